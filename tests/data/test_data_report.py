"""The report that people read before they train on a corpus."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from transformer_ablate.cli import OK, USAGE
from transformer_ablate.cli.corpus import histogram, parse, printable, report
from transformer_ablate.cli.door import enter
from transformer_ablate.errors import ConfigError

PACK = ["--source", "packs:zh_CN", "--tokenizer_size", "2000"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 000 distinct pairs, a duplicate, an untranslated one, five faulty lines; sources have 3 characters."""
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyzäöüß"]
    lines = [f"{word}\t{word[::-1]}-{'lang' * (i % 7)}" for i, word in enumerate(words)]
    lines += [lines[0], "same\tsame"]
    for number in (3, 33, 333, 600, 900):
        lines.insert(number - 1, "faulty \x1b[31mline")
    path = tmp_path_factory.mktemp("corpus") / "words.tsv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def options(corpus: Path) -> list[str]:
    return ["--source", str(corpus), "--tokenizer", "char"]


def run(options: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = enter(["data", *options], "transformer_ablate")
    return status, *capsys.readouterr()


def test_everything_a_person_wants_is_there(
    options: list[str], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text, errors = run(options, capsys)
    assert (status, errors) == (OK, "")
    assert "1007 records read, 1000 examples kept" in text
    assert "left out, duplicates: 1\n" in text
    assert "left out, the same text on both sides: 1\n" in text
    assert "left out, faulty records: 5\n" in text
    train, valid, test = map(int, re.findall(r"^examples +([\d ]+?) +(\d+) +(\d+) *$", text, re.MULTILINE)[0])
    assert train + valid + test == 1_000
    assert re.search(
        r"of source \(column 0\) in tokens \(char\), all training.*\n"
        rf"  50 % up to 3,.*\n.*\n +1 +0 \n +2 +0 \n +3 +{train} #",
        text,
    )
    for line in (f"{corpus}:{number}:" for number in (3, 33, 333, 600, 900)):
        assert line in text
    assert "\x1b" not in text  # neither of ours, since this is no terminal, nor of the corpus
    assert len(re.findall(r"^    -> \w{3}-(?:lang)*$", text, re.MULTILINE)) == 10
    overlap = text[text.index("Overlap") : text.index("Random")]
    assert re.findall(r"\d+", overlap) == ["0"] * 8
    assert re.search(r"^content [0-9a-f]{64}$", text, re.MULTILINE)


def test_overlap_is_counted_and_not_assumed(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a division that tears families apart, the table says so."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(
        "transformer_ablate.data.translation.families",
        lambda *sides: rng.integers(0, 2**63, size=len(sides[0]), dtype=np.uint64) * np.uint64(2),
    )
    status, text, _ = run([*PACK, "--task_options", '{"max_ratio": 9}'], capsys)
    assert status == OK
    sources, near = (
        re.findall(rf"{row} +(\d+) +(\d+)", text)[0] for row in ("targets that training has", "or nearly so")
    )
    assert int(sources[0]) > 0
    assert int(near[0]) > int(sources[0]) // 4 > 0


def test_a_terminal_is_shown_bars_and_bold_headings(options: list[str]) -> None:
    screen = io.StringIO()
    report(parse(options), Console(file=screen, force_terminal=True, color_system="standard", width=100))
    assert "█" * 40 in screen.getvalue()
    assert "\x1b[1mDivision" in screen.getvalue()
    assert "\x1b[31m" not in screen.getvalue()  # the corpus's own


def test_the_command(options: list[str]) -> None:
    command = [sys.executable, "-m", "transformer_ablate", "data", *PACK, "--swap", "true", "--data.max_length", "64"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (OK, "")
    assert "packs:zh_CN: zh_CN -> English" in result.stdout
    assert "used: at most 64 tokens" in result.stdout


def test_a_vocabulary_that_is_too_large_is_told_and_does_not_end_the_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, text, _ = run(["--source", "packs:zh_CN", "--tokenizer_size", "16000"], capsys)
    assert status == OK
    sizes = re.findall(r"data.tokenizer_size: got (\d+), allowed: at most \d+,.* goes on with (\d+)\n", text)
    assert sizes == [("16000", "8000"), ("8000", "4000")]


def test_continuation(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = run([*PACK, "--task", "continuation"], capsys)
    assert status == OK
    assert "Lengths of target (English, rest)" in text


def test_faulty_lines_are_listed_before_the_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\n" + "alone\n" * 25)
    status, text, errors = run(["--source", str(tmp_path / "a.tsv")], capsys)
    assert status == USAGE
    assert text.count("1 column where line 1 has 2") == 20
    assert "... and 5 more" in text
    assert errors.count("\n") == 1
    assert "25 of 26" in errors
    assert f"python -m transformer_ablate data --source {tmp_path / 'a.tsv'} lists them" in errors


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--sorce", "a"], "option"),
        (["--max_length", "0"], "data.max_length"),
        (["--tokenizer", "bpee"], "data.tokenizer"),
        (["--swap", "perhaps"], "swap"),
        (["--source", "none.tsv"], "data.source"),
        (["--task", "copy"], "data.task"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], field: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, errors = run(words, capsys)
    assert (status, text) == (USAGE, "")
    assert errors.startswith(f"error: {field}: got ")
    assert errors.count("\n") == 1


def test_options_are_the_recipes_own() -> None:
    config = parse(["--data.source", "a.tsv", "--source-column", "x", "--target_column", "y", "--swap", "false"])
    assert (config.source, config.source_column, config.target_column, config.swap) == ("a.tsv", "x", "y", False)
    assert parse(["--swap", "true"]).swap
    assert parse(["--task_options", '{"share": 0.3}', "--task", "continuation"]).task_options == {"share": 0.3}
    with pytest.raises(ConfigError):
        parse(["--task_options", "share"])


def test_histogram() -> None:
    lengths = np.repeat(np.arange(1, 25), 10)
    rows = histogram(lengths, "#")
    assert [(label, n) for label, n, _ in rows] == [(f"{i}-{i + 1}", 20) for i in range(1, 24, 2)]
    assert {bar for *_, bar in rows} == {"#" * 40}
    assert histogram(np.array([3] * 1_000 + [2]), "#") == [("1", 0, ""), ("2", 1, "#"), ("3", 1_000, "#" * 40)]
    *_, last = histogram(np.array([1] * 999 + [500]), "#")
    assert last == ("2-500", 1, "#")


def test_printable() -> None:
    assert printable("naïve \x1b[31m\u202e文\t") == "naïve \\x1b[31m\\u202e文\\t"
    assert len(printable("x" * 1_000)) == 300
