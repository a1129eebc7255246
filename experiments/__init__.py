"""The studies: each module says what is compared, and nothing else."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer_ablate.study.declarations import Study


def discover() -> dict[str, Study]:
    """Every study of this package, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    studies = [importlib.import_module(f"{__name__}.{name}").STUDY for name in names]
    return {study.name: study for study in studies}
