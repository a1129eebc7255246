"""What every test relies on: no network, one thread a process (run.sh starts one a core), no deadline on examples."""

import os
import tempfile

# Before anything imports torch: it reads the thread count once, while it is loaded.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(_name, _value)

# Vocabularies that tests learn are not kept among the user's own.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="transformer-ablate-tests-")

from hypothesis import settings  # noqa: E402

settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("suite")
