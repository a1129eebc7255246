"""A user's own files: every kind, every compression, every way in which a line can be wrong."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora import Corpus, read_corpus
from transformer_ablate.errors import ConfigError

PAIRS = [
    ("Open the file.", "打开文件。"),
    ('He said "no", and left', "er sagte „nein“, und ging"),
    ("naïve café", "𝒳 😀 é"),
]
COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def read(source: Path | str, sides: int = 2, **fields: Any) -> Corpus:
    return read_corpus(DataConfig(source=str(source), **fields), sides)


def write(path: Path, content: bytes | str) -> Path:
    """Writes a file, compressed as its name says."""
    content = content.encode() if isinstance(content, str) else content
    compression = COMPRESSIONS.get(path.suffix)
    if compression is None:
        path.write_bytes(content)
    else:
        with pyarrow.output_stream(str(path), compression=compression) as stream:
            stream.write(content)
    return path


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def as_json(records: Sequence[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def as_parquet(records: list[dict[str, Any]]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), sink)
    return bytes(sink.getvalue())


def refused(source: Path | str, sides: int = 2, **fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(source, sides, **fields).check_faults()
    assert "\n" not in str(caught.value)
    return caught.value


def pairs(corpus: Corpus) -> list[tuple[str, ...]]:
    return list(zip(*corpus.sides, strict=True))


FLAT = [{"id": i, "source": s, "target": t} for i, (s, t) in enumerate(PAIRS)]
NESTED = [{"id": str(i), "translation": {"en": s, "zh": t}} for i, (s, t) in enumerate(PAIRS)]
BY_NAME = {"source_column": "translation.en", "target_column": "translation.zh"}
KINDS: dict[str, tuple[str, bytes | str, dict[str, str]]] = {
    "tsv": (".tsv", "".join(f"{s}\t{t}\n" for s, t in PAIRS), {}),
    "tsv without a last line end": (".tsv", "\n".join(f"{s}\t{t}" for s, t in PAIRS), {}),
    "tsv of Windows": (".txt", "\ufeff" + "".join(f"{s}\t{t}\r\n" for s, t in PAIRS), {}),
    "tsv with names": (
        ".tsv",
        "id\tzh\ten\n" + "".join(f"7\t{t}\t{s}\n" for s, t in PAIRS),
        {"source_column": "en", "target_column": "zh"},
    ),
    "tsv by index": (
        ".tab",
        "".join(f"7\t{t}\t{s}\n" for s, t in PAIRS),
        {"source_column": "2", "target_column": "1"},
    ),
    "csv": (".csv", as_csv(PAIRS), {}),
    "csv with names": (".csv", as_csv([("a", "b"), *PAIRS]), {"source_column": "a", "target_column": "b"}),
    "csv by name and index": (".csv", as_csv([("a", "b"), *PAIRS]), {"source_column": "a", "target_column": "1"}),
    "jsonl": (".jsonl", as_json(FLAT), {}),
    "jsonl, nested": (".ndjson", as_json(NESTED), BY_NAME),
    "parquet": (".parquet", as_parquet(FLAT), {}),
    "parquet, nested": (".parquet", as_parquet(NESTED), BY_NAME),
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_pairs(kind: str, compression: str, tmp_path: Path) -> None:
    suffix, content, fields = KINDS[kind]
    path = write(tmp_path / f"corpus{suffix}{compression}", content)
    corpus = read(path, **fields)
    assert pairs(corpus) == PAIRS
    assert (corpus.records, corpus.n_faults, corpus.blank) == (3, 0, 0)
    swapped = read(path, swap=True, **fields)
    assert pairs(swapped) == [pair[::-1] for pair in PAIRS]
    assert swapped.columns == corpus.columns[::-1]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_two_aligned_files(compression: str, tmp_path: Path) -> None:
    left = write(tmp_path / f"a.en{compression}", "".join(s + "\n" for s, _ in PAIRS))
    right = write(tmp_path / f"b.zh{compression}", "".join(t + "\n" for _, t in PAIRS))
    assert pairs(read(f"{left},{right}")) == PAIRS
    assert pairs(read(f"{left}, {right}", swap=True)) == [pair[::-1] for pair in PAIRS]


def test_a_comma_in_the_name_of_a_file_is_no_division(tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "a,b.tsv", "x\ty\n"))) == 1


@pytest.mark.parametrize("kind", ["text", "tsv", "jsonl", "csv"])
def test_single_texts(kind: str, tmp_path: Path) -> None:
    texts = [s for s, _ in PAIRS]
    content, fields = {
        "text": ("".join(text + "\n" for text in texts), {}),
        "tsv": ("".join(f"{i}\t{text}\n" for i, text in enumerate(texts)), {"source_column": "1"}),
        "jsonl": (as_json([{"n": 1, "text": text} for text in texts]), {}),
        "csv": (as_csv([["body", "x"], *([text, ""] for text in texts)]), {"source_column": "body"}),
    }[kind]
    suffix = ".txt" if kind == "text" else f".{kind}"
    assert read(write(tmp_path / f"corpus{suffix}", content), sides=1, **fields).sides == (texts,)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=8))
def test_any_text_comes_back_with_its_spaces_tidied(rows: list[tuple[str, str]]) -> None:
    expected = [tuple(" ".join(text.split()) for text in row) for row in rows]
    faulty, blank = (sum(bool(any(row)) is some and not all(row) for row in expected) for some in (True, False))
    named = [{"source": s, "target": t} for s, t in rows]
    contents: dict[str, bytes | str] = {"a.jsonl": as_json(named), "a.parquet": as_parquet(named)}
    if "\x00" not in "".join(map("".join, rows)):  # which csv cannot quote
        contents["a.csv"] = as_csv(rows)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in contents.items():
            file = write(Path(folder) / name, content)
            if blank == len(rows):
                assert "this one is empty" in str(refused(file))
            else:
                corpus = read(file)
                assert pairs(corpus) == [row for row in expected if all(row)], name
                assert (corpus.n_faults, corpus.blank, corpus.records) == (faulty, blank, len(rows))


# Faulty records --------------------------------------------------------------------------------------------------

GOOD_JSON = '{"source": "a", "target": "b"}\n'
FAULTS: dict[str, tuple[str, bytes, dict[str, str], str]] = {
    "missing column": ("a.tsv", b"a\tb\nalone\n", {}, "a.tsv:2: 1 column where line 1 has 2"),
    "stray tab": ("a.tsv", b"a\tb\n\nx\ty\tz\n", {}, "a.tsv:3: 3 columns where line 1 has 2"),
    "UTF-8": ("a.tsv", b"a\tb\nx\t\xff\n", {}, "a.tsv:2: invalid UTF-8"),
    "empty side": ("a.tsv", b"a\tb\nx\t \n", {}, "a.tsv:2: column 1 is empty"),
    "empty side of a name": (
        "a.tsv",
        b"en\tde\nx\ty\n\ty\n",
        {"source_column": "en", "target_column": "de"},
        "a.tsv:3: en is empty",
    ),
    "csv after a field of several lines": (
        "a.csv",
        b'a,"b\nb"\nx\n',
        {},
        "a.csv:3: 1 column where line 1 has 2",
    ),
    "UTF-8 within a field of several lines": ("a.csv", b'a,b\nx,"y\n\xff\nz"\n', {}, "a.csv:2: invalid UTF-8"),
    "JSON": ("a.jsonl", (GOOD_JSON + '{"source": \n').encode(), {}, "a.jsonl:2: not JSON"),
    "JSON, UTF-8": ("a.jsonl", GOOD_JSON.encode() + b'{"source": "\xff"}\n', {}, "a.jsonl:2: invalid UTF-8"),
    "JSON, no object": ("a.jsonl", (GOOD_JSON + "[1]\n").encode(), {}, "a.jsonl:2: not a JSON object"),
    "JSON, no text": (
        "a.jsonl",
        (GOOD_JSON + '{"source": 3, "target": "b"}\n').encode(),
        {},
        "a.jsonl:2: source is no text but int",
    ),
    "JSON, no field": ("a.jsonl", (GOOD_JSON + '{"source": "x"}\n').encode(), {}, "a.jsonl:2: target is empty"),
    "JSON, half a character": (
        "a.jsonl",
        (GOOD_JSON + '{"source": "\\ud83d", "target": "b"}\n').encode(),
        {},
        "a.jsonl:2: source is not valid Unicode",
    ),
    "parquet": (
        "a.parquet",
        as_parquet([{"source": "a", "target": "b"}, {"source": "a", "target": None}]),
        {},
        "a.parquet: row 2: target is empty",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_record_is_named_by_file_and_line(name: str, tmp_path: Path) -> None:
    file, content, fields, expected = FAULTS[name]
    corpus = read(write(tmp_path / file, content), **fields)
    assert [str(fault) for fault in corpus.faults] == [f"{tmp_path}/{expected}"]
    assert corpus.n_faults == 1
    assert len(corpus) == 1
    assert expected in str(refused(tmp_path / file, **fields))


def test_invalid_utf8_in_parquet_costs_its_row_alone(tmp_path: Path) -> None:
    good, bad = (pyarrow.array([b"x", text, b"z"]).view(pyarrow.string()) for text in (b"y", b"\xff"))
    table = pyarrow.table({"source": good, "target": bad})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    corpus = read(tmp_path / "a.parquet")
    assert [str(fault) for fault in corpus.faults] == [f"{tmp_path}/a.parquet: row 2: invalid UTF-8"]
    assert pairs(corpus) == [("x", "x"), ("z", "z")]


def test_aligned_files_lose_the_line_that_is_faulty_in_either(tmp_path: Path) -> None:
    left = write(tmp_path / "a", b"one\ntwo\nthree\nfour\n\n")
    right = write(tmp_path / "b", b"1\n\xff\n3\n\n\n")
    corpus = read(f"{left},{right}")
    assert pairs(corpus) == [("one", "1"), ("three", "3")]
    assert list(map(str, corpus.faults)) == [
        f"{right}:2: invalid UTF-8",
        f"{left} and {right}: line 4: {right} is empty",
    ]
    assert (corpus.records, corpus.blank) == (5, 1)


def test_one_faulty_line_in_a_hundred_is_skipped_and_counted(tmp_path: Path) -> None:
    good = [f"word {i}\tWort {i}" for i in range(198)]
    corpus = read(write(tmp_path / "a.tsv", "\n".join([*good, "x", "y"])))
    corpus.check_faults()
    assert (len(corpus), corpus.n_faults, corpus.records) == (198, 2, 200)
    error = refused(write(tmp_path / "b.tsv", "\n".join([*good[:196], "x", "y"])))
    assert error.value == f"{tmp_path}/b.tsv:197: 1 column where line 1 has 2"
    assert "2 of 198" in str(error)


def test_blank_lines_are_no_fault(tmp_path: Path) -> None:
    for name, content in {"a.tsv": "\na\tb\n\n\t\nc\td\n", "a.csv": "\na,b\n\n,\nc,d\n"}.items():
        corpus = read(write(tmp_path / name, content))
        assert (pairs(corpus), corpus.n_faults, corpus.blank) == ([("a", "b"), ("c", "d")], 0, 3)


def test_a_file_of_faults_alone_keeps_a_thousand_of_them(tmp_path: Path) -> None:
    corpus = read(write(tmp_path / "a.tsv", "a\tb\n" + "x\n" * 3_000))
    assert (len(corpus.faults), corpus.n_faults) == (1_000, 3_000)


# What cannot be read at all --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_aligned_files_of_different_lengths(left: int, right: int, tmp_path: Path) -> None:
    files = [write(tmp_path / name, "line\n" * n) for name, n in (("a.en", left), ("b.de", right))]
    message = str(refused(f"{files[0]},{files[1]}"))
    assert f"{files[0]} has {left} and {files[1]} has {right}" in message


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.txt", "a.tsv.gz", "a.csv.zst", "a.parquet"])
def test_an_empty_corpus(name: str, tmp_path: Path) -> None:
    schema = pyarrow.schema([("source", pyarrow.string()), ("target", pyarrow.string())])
    content: bytes | str = "\n\n" if "csv" in name else ""
    if name == "a.parquet":
        pyarrow.parquet.write_table(schema.empty_table(), tmp_path / "p")
        content = (tmp_path / "p").read_bytes()
    assert "this one is empty" in str(refused(write(tmp_path / name, content)))


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.jsonl.zst", "a.csv.bz2", "a.parquet", "a.parquet.zst"])
@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_damaged_file(name: str, damage: str, tmp_path: Path) -> None:
    content = as_parquet(FLAT) if "parquet" in name else as_json(FLAT).encode()
    whole = write(tmp_path / name, content).read_bytes()
    (tmp_path / name).write_bytes(whole[:-12] if damage == "cut" else b"no such thing" * 9)
    error = refused(tmp_path / name)
    assert (error.field, error.value, error.allowed) == ("data.source", str(tmp_path / name), "a whole, readable file")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.tsv").value == str(tmp_path / "none.tsv")
    assert refused(f"{tmp_path}/a,{tmp_path}/b").value == f"{tmp_path}/a"
    assert "hub:FOLDER" in str(refused(tmp_path))
    write(tmp_path / "a", "x\n")
    assert "one file or two" in str(refused(",".join([f"{tmp_path}/a"] * 3)))


@pytest.mark.parametrize(
    ("name", "content", "fields", "field", "words"),
    [
        (
            "a.tsv",
            "a\tb\n",
            {"source_column": "0", "target_column": "2"},
            "data.target_column",
            "a.tsv:1 has 2 columns",
        ),
        ("a.txt", "no tab here\n", {}, "data.target_column", "two aligned files are given as a.en,b.de"),
        ("a.tsv", "en\tde\nx\ty\n", {"source_column": "en", "target_column": "dee"}, "data.target_column", "'de'?"),
        ("a.tsv", "en\tde\n", {"source_column": "en"}, "data.target_column", "data.source_column is 'en'"),
        ("a.csv", "en,de\n", {"target_column": "de"}, "data.source_column", "data.target_column is 'de'"),
        ("a.jsonl", as_json(NESTED), {}, "data.source_column", "id, translation.en, translation.zh"),
        ("a.jsonl", as_json(NESTED), BY_NAME | {"source_column": "translation.de"}, "data.source_column", "mean"),
        ("a.parquet", as_parquet(NESTED), {}, "data.source_column", "id, translation.en, translation.zh"),
        ("a.jsonl", "[1, 2]\n", {}, "data.source", "a.jsonl:1"),
        ("a.tsv", b"\xff\xfea\x00\n", {}, "data.source", "a.tsv:1"),
        ("a.tsv", "a\tb\n", {"config": "de-en"}, "data.config", "hub:NAME"),
    ],
)
def test_a_choice_that_cannot_be_made(
    name: str, content: bytes | str, fields: dict[str, str], field: str, words: str, tmp_path: Path
) -> None:
    error = refused(write(tmp_path / name, content), **fields)
    assert error.field == field
    assert words in str(error)
