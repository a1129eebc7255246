"""The lock by which runs share the machine or have it alone, between real processes."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from transformer_ablate.lock import lock_file, machine_lock

HOLDER = """
import sys
from transformer_ablate.lock import machine_lock
print("waiting", flush=True)
with machine_lock(exclusive=sys.argv[1] == "exclusive"):
    print("held", flush=True)
    sys.stdin.readline()
"""
Start = Callable[[str], "Holder"]
# Long enough for a process that need not wait; what waits is given a shorter look.
PATIENCE, LOOK = 120.0, 1.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that takes the lock, in a temporary folder of this test's own."""
    begun: list[Holder] = []

    def run(mode: str) -> Holder:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        holder = listen(process)
        begun.append(holder)
        assert said(holder, PATIENCE) == "waiting"
        return holder

    yield run
    for holder in begun:
        holder.process.kill()
        holder.process.wait()


class Holder(NamedTuple):
    """A process and what it says: a thread of its own reads the lines, since buffers hide them from select."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str]


def listen(process: subprocess.Popen[str]) -> Holder:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.strip())

    threading.Thread(target=read, daemon=True).start()
    return Holder(process, lines)


def said(holder: Holder, seconds: float) -> str:
    """The next line, or nothing within so many seconds."""
    try:
        return holder.lines.get(timeout=seconds)
    except queue.Empty:
        return ""


def let_go(holder: Holder) -> None:
    assert holder.process.stdin is not None
    holder.process.stdin.write("\n")
    holder.process.stdin.flush()


def test_runs_that_share_hold_it_together_and_keep_out_one_that_wants_it_alone(start: Start) -> None:
    first, second = start("shared"), start("shared")
    assert said(first, PATIENCE) == said(second, PATIENCE) == "held"
    alone = start("exclusive")
    assert said(alone, LOOK) == ""
    let_go(first)
    assert said(alone, LOOK) == ""
    let_go(second)
    assert said(alone, PATIENCE) == "held"


def test_one_that_has_it_alone_keeps_out_all_others_until_it_ends_or_dies(start: Start) -> None:
    alone = start("exclusive")
    assert said(alone, PATIENCE) == "held"
    shared = start("shared")
    assert said(shared, LOOK) == ""
    alone.process.kill()
    assert said(shared, PATIENCE) == "held"


def test_a_process_that_shares_it_cannot_wait_for_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with machine_lock(exclusive=False), pytest.raises(RuntimeError, match="upgrade"), machine_lock(exclusive=True):
        pass
    with machine_lock(exclusive=True):
        pass
    assert lock_file().parent.stat().st_mode & 0o777 == 0o700
