"""Imported once by the process that workers are forked from: its imports and data are theirs for nothing."""

from __future__ import annotations

import contextlib
import json
import os

from transformer_ablate.config import DataConfig
from transformer_ablate.data import load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.plugins import load_inherited
from transformer_ablate.record import store as tracking
from transformer_ablate.run import worker
from transformer_ablate.run.launchers import PRELOAD_VARIABLE

worker.quiet()
tracking.preload()
load_inherited()
for _fields in json.loads(os.environ.get(PRELOAD_VARIABLE, "[]")):
    with contextlib.suppress(ConfigError):  # the run that needs it will say so
        load_task(DataConfig(**_fields))
