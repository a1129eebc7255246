"""The machine as something that runs share, or that one of them has to itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import ReadWriteLock


def lock_file() -> Path:
    """The file that all processes of this user on this machine lock, in a folder that is theirs alone."""
    folder = Path(tempfile.gettempdir()) / f"transformer-ablate-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "machine.lock"


@contextmanager
def machine_lock(exclusive: bool) -> Iterator[None]:
    """Holds this machine, waiting for as long as it takes; a process that dies lets go of it.

    Runs that train share it. One that takes times has it alone, whichever sweep the others belong to: it waits until
    they have let go, and those that come meanwhile wait for it.

    Args:
        exclusive: whether nobody else may hold it.

    Raises:
        RuntimeError: where this process holds it in the other way already, which could never end.
    """
    lock = ReadWriteLock(lock_file())
    with lock.write_lock() if exclusive else lock.read_lock():
        yield
