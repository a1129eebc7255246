"""From the declaration of a study to finished runs: plan, launch, work, record."""

import os

# A tool that people run on their own data does not call home; MLflow reads this when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
