"""Ctrl-C in the middle of a sweep, in a file of its own: it takes a minute, and files run beside each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transformer_ablate.record.store import Store


def processes_of_session(session: int) -> list[int]:
    """Live processes that belong to a session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdecimal() and int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to count processes")
def test_ctrl_c_ends_everything_and_the_same_command_goes_on(store: Store, uri: str, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "experiments.masking", "--preset", "smoke", "--cells", "copy",
        "--variants", "both-masks,no-causal-mask", "--workers", "1", "--train.max_steps", "300",
        "--data.test_examples", "50",
        "--tracking-uri", uri, "--output", str(tmp_path / "reports"),
    ]  # fmt: skip
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("[1/2]"):
            break
    time.sleep(1.0)
    began = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes at once
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert time.monotonic() - began < 10
    assert "the same command goes on" in err
    assert "Traceback" not in err
    while processes_of_session(running.pid) and time.monotonic() - began < 10:
        time.sleep(0.1)
    assert processes_of_session(running.pid) == []
    runs = store.client.search_runs([store.open_experiment("masking")])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED", "KILLED"]

    again = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd="/")
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == "1 trained, 1 reused, 0 failed"
