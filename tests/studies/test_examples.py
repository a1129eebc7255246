"""The files of examples/ run as their pages in docs/ say, and the pages show what stands in them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("add-a-*.md"))
COMMANDS = [line for page in PAGES for line in page.read_text("utf-8").splitlines() if line.startswith("python ")]


def test_there_are_three_pages_that_can_be_read_at_once() -> None:
    assert [page.stem for page in PAGES] == ["add-a-component", "add-a-measure", "add-a-study"]
    assert all(len(page.read_text("utf-8").splitlines()) <= 60 for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_pages_works(command: str, tmp_path: Path, uri: str) -> None:
    where = ["--tracking-uri", uri, "--output", str(tmp_path / "reports"), "--workers", "1"]
    small = ["--train.max_steps", "4", "--data.test_examples", "20", "--train.warmup_steps", "2"]
    small += ["--cells", "copy"] if "plugin" in command else []
    words = [sys.executable, *shlex.split(command)[1:], *where, *small]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d trained, 0 reused, 0 failed", done.stdout.splitlines()[-1])
    (report,) = (tmp_path / "reports" / "smoke").glob("*/report.md")
    told = report.read_text("utf-8")
    shown = {
        "my_position": "my-triangle",
        "my_measure": "Repeats itself by test set",
        "my_study": "rotary-helps-reverse",
    }
    assert next(words for name, words in shown.items() if name in command) in told
