"""One shape of a run's record, and the store that keeps it: the only room that knows MLflow."""

import os

# A tool that people run on their own data does not call home; MLflow reads this when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
