"""The lock by which runs share the machine or have it alone, between real processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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
Start = Callable[[str], "subprocess.Popen[str]"]
# Long enough for a process that need not wait; what waits is given a shorter look.
PATIENCE, LOOK = 120.0, 1.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that takes the lock, in a temporary folder of this test's own."""
    begun: list[subprocess.Popen[str]] = []

    def run(mode: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        begun.append(process)
        assert said(process, PATIENCE) == "waiting"
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], seconds: float) -> str:
    """The next line, or nothing within so many seconds."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() if ready else ""


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


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
    alone.kill()
    assert said(shared, PATIENCE) == "held"


def test_a_process_that_shares_it_cannot_wait_for_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with machine_lock(exclusive=False), pytest.raises(RuntimeError, match="upgrade"), machine_lock(exclusive=True):
        pass
    with machine_lock(exclusive=True):
        pass
    assert lock_file().parent.stat().st_mode & 0o777 == 0o700
