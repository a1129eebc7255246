"""The report on a corpus: sizes, lengths, vocabulary, overlap of the division, random pairs, faulty lines."""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Sequence

import numpy as np
from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transformer_ablate.cli import OK
from transformer_ablate.cli.options import add_field, parse_words
from transformer_ablate.config import DataConfig, check_values
from transformer_ablate.data.cleaning import content_key
from transformer_ablate.data.stable import stable_generator
from transformer_ablate.data.task import load_task
from transformer_ablate.data.text import Examples, TextData, examples_of
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import UNK

SHOWN_PAIRS = 10
SHOWN_FAULTS = 20
SHOWN_CHARACTERS = 300
# Lengths are those of the first examples in hash order, which is a random order.
MEASURED_EXAMPLES = 20_000
BINS, BAR = 12, 40
SMALLEST_VOCABULARY = 256  # one token for each byte
# Where the recipes' own default, made for short strings, would cut off nearly all text.
MAX_LENGTH = 128
FIELDS = (
    *("task", "source", "config", "source_column", "target_column", "swap", "task_options"),
    *("tokenizer", "tokenizer_size", "joint_vocabulary", "max_length"),
    *("train_examples", "valid_examples", "test_examples"),
)


def parse(argv: Sequence[str], program: str = "transformer_ablate data") -> DataConfig:
    """The options are fields of ``data`` in a recipe, with or without ``data.`` in front.

    Raises:
        ConfigError: for an unknown option or a value outside its limits.
    """
    about = "What to know of a corpus before training on it."
    parser = ArgumentParser(prog=f"python -m {program}", exit_on_error=False, description=about)
    fields = {field.name: field for field in dataclasses.fields(DataConfig)}
    defaults = {**vars(DataConfig()), "task": "translation", "max_length": MAX_LENGTH, "train_examples": 0}
    for name in FIELDS:
        add_field(parser, f"--{name}", fields[name], defaults[name])
    words = [re.sub(r"^--(?:data\.)?([\w-]+)", lambda m: f"--{m[1].replace('-', '_')}", word) for word in argv]
    given = {name: value for name, value in vars(parse_words(parser, words)).items() if value is not None}
    check_values({f"data.{name}": value for name, value in given.items()})
    return DataConfig(**{**defaults, **given})


def main(argv: Sequence[str], program: str = "transformer_ablate data") -> int:
    """Prints the report; the exit status is 0.

    Raises:
        ConfigError: where there is nothing that could be trained on.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know the corpus's script
    report(parse(argv, program), Console(highlight=False))
    return OK


def report(config: DataConfig, console: Console) -> None:
    """Prints all that there is to know of the corpus; plain text where the console is no terminal.

    Raises:
        ConfigError: where it cannot be trained on; what is wrong with it has been printed by then.
    """
    start = time.perf_counter()
    examples = examples_of(config)
    _heading(console, f"{examples.corpus.name}: {' -> '.join(examples.corpus.columns)}")
    for note in examples.notes:
        _say(console, note)
    try:
        config, data = _loaded(console, config)
        _say(console, f"read, cleaned and encoded in {time.perf_counter() - start:.1f} s")
        _sizes(console, examples, data, config)
        _lengths(console, examples, data, config)
        _coverage(console, data)
        _overlap(console, examples)
        _pairs(console, examples)
    finally:
        _faults(console, examples)
    console.print(f"\ncontent {data.content_hash}", soft_wrap=True)


def _loaded(console: Console, config: DataConfig) -> tuple[DataConfig, TextData]:
    """The task's data; with a smaller vocabulary, and saying so, where the text does not give the one asked for."""
    try:
        data = load_task(config)
    except ConfigError as error:
        smaller = config.tokenizer_size // 2
        if error.field != "data.tokenizer_size" or smaller < SMALLEST_VOCABULARY:
            raise
        _say(console, f"{error}; this report goes on with {smaller}")
        return _loaded(console, dataclasses.replace(config, tokenizer_size=smaller))
    assert isinstance(data, TextData)
    return config, data


def _say(console: Console, words: str) -> None:
    console.print(f"  {words}", soft_wrap=True, markup=False)


def _heading(console: Console, words: str) -> None:
    console.print(Text(words, style="bold"), soft_wrap=True)


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    console.print()
    _heading(console, title)
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:,}".replace(",", " ") if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def _sizes(console: Console, examples: Examples, data: TextData, config: DataConfig) -> None:
    used = len(data.train), len(data.valid), len(data.test[0])
    rows: list[list[object]] = [
        ["examples", *(len(part) for part in examples.parts.values())],
        ["families of near-duplicates", *(len(np.unique(examples.families[p])) for p in examples.parts.values())],
        [f"used: at most {config.max_length} tokens", *used],
    ]
    _table(console, "Division", list(examples.parts), rows)
    for test in data.test[1:]:
        _say(console, f"test set of sources up to {test.ratio:g} times as long: {len(test)}")


def _lengths(console: Console, examples: Examples, data: TextData, config: DataConfig) -> None:
    rows = examples.parts["train"]
    measured = rows[:MEASURED_EXAMPLES]
    which = "all" if len(measured) == len(rows) else f"{len(measured)} random"
    sides = (
        ("source", examples.sources, data.source_vocabulary),
        ("target", examples.targets, data.target_vocabulary),
    )
    for (side, texts, vocabulary), column in zip(sides, _two(data.columns), strict=True):
        chosen = [texts[i] for i in measured]
        lengths = np.array([len(ids) for ids in vocabulary.encode_texts(chosen)])  # type: ignore[attr-defined]
        characters = sum(map(len, chosen))
        console.print()
        _heading(console, f"Lengths of {side} ({column}) in tokens ({config.tokenizer}), {which} training examples")
        percentiles = ", ".join(f"{p} % up to {int(np.percentile(lengths, p))}" for p in (50, 90, 99))
        _say(console, f"{percentiles}, longest {lengths.max()}; {characters / lengths.sum():.2f} characters a token")
        _say(console, f"max_length {config.max_length} keeps {(lengths <= config.max_length).mean():.1%}")
        for label, count, bar in histogram(lengths, "█" if console.is_terminal else "#"):
            _say(console, f"{label:>11} {count:>8} {bar}")


def _two(columns: Sequence[str]) -> tuple[str, str]:
    return (columns[0], columns[1]) if len(columns) == 2 else (f"{columns[0]}, beginning", f"{columns[0]}, rest")


def histogram(lengths: np.ndarray, mark: str) -> list[tuple[str, int, str]]:
    """Ranges of lengths, their counts and their bars; the last range holds all that is longer than 99 %."""
    common = int(np.percentile(lengths, 99))
    width = max(1, -(-common // BINS))
    edges = [edge for edge in range(1, common + width + 1, width) if edge <= lengths.max()]
    counts = [int(((lengths >= low) & (lengths < low + width)).sum()) for low in edges[:-1]]
    counts.append(int((lengths >= edges[-1]).sum()))
    labels = [f"{low}-{low + width - 1}" if width > 1 else str(low) for low in edges[:-1]]
    labels.append(f"{edges[-1]}-{lengths.max()}" if lengths.max() > edges[-1] else str(edges[-1]))
    unit = max(counts) / BAR
    return [(label, n, mark * max(round(n / unit), n > 0)) for label, n in zip(labels, counts, strict=True)]


def _coverage(console: Console, data: TextData) -> None:
    vocabularies = data.source_vocabulary, data.target_vocabulary
    parts = {"train": data.train, "valid": data.valid, "test": data.test[0].pairs}
    rows: list[list[object]] = []
    for side, vocabulary in zip(("source", "target"), vocabularies, strict=True):
        counts = {
            name: np.bincount(getattr(pairs, side).flat, minlength=len(vocabulary)) for name, pairs in parts.items()
        }
        seen = counts["train"] > 0
        rows += [
            [f"{side}: tokens of the vocabulary", len(vocabulary), "", ""],
            ["  of these in use", *(int((n > 0).sum()) for n in counts.values())],
            ["  share of unknown tokens", *(f"{n[UNK] / n.sum():.2%}" for n in counts.values())],
            ["  share of tokens that training never shows", "", *_shares(seen, counts["valid"], counts["test"])],
        ]
    _table(console, "Vocabulary" + " (one for both)" * data.joint_vocabulary, list(parts), rows)


def _shares(seen: np.ndarray, *counts: np.ndarray) -> list[str]:
    return [f"{n[~seen].sum() / n.sum():.2%}" for n in counts]


def _overlap(console: Console, examples: Examples) -> None:
    rows: list[list[object]] = []
    for side, texts in (("source", examples.sources), ("target", examples.targets)):
        parts = {name: [texts[i] for i in part] for name, part in examples.parts.items()}
        trained, keys = set(parts["train"]), set(map(content_key, parts["train"]))
        held_out = parts["valid"], parts["test"]
        rows.append([f"{side}s that training has", *(sum(text in trained for text in part) for part in held_out)])
        rows.append(["  or nearly so", *(sum(content_key(text) in keys for text in part) for part in held_out)])
    _table(console, "Overlap with training", ["valid", "test"], rows)


def _pairs(console: Console, examples: Examples) -> None:
    rows = examples.parts["train"]
    generator = stable_generator("report pairs", examples.corpus.name)
    console.print()
    _heading(console, "Random training pairs")
    for i in generator.choice(rows, size=min(SHOWN_PAIRS, len(rows)), replace=False):
        _say(console, printable(examples.sources[i]))
        _say(console, f"  -> {printable(examples.targets[i])}")


def _faults(console: Console, examples: Examples) -> None:
    corpus = examples.corpus
    if corpus.n_faults:
        console.print()
        _heading(console, f"Faulty records: {corpus.n_faults}")
    for fault in corpus.faults[:SHOWN_FAULTS]:
        _say(console, printable(str(fault)))
    if corpus.n_faults > SHOWN_FAULTS:
        _say(console, f"... and {corpus.n_faults - SHOWN_FAULTS} more")


def printable(text: str) -> str:
    """A text that cannot disturb a terminal: shortened, with control characters written out."""
    shown = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
