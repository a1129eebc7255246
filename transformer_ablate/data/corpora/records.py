"""Records whose fields have names, and may hold records themselves: jsonl, parquet, data sets of the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow
import pyarrow.types

from transformer_ablate.data.corpora.base import Corpus

INVALID = "invalid UTF-8"


def text_fields(record: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Names of the texts in a record, those of nested records by dots."""
    names: list[str] = []
    for name, value in record.items():
        if isinstance(value, str):
            names.append(prefix + name)
        elif isinstance(value, Mapping):
            names += text_fields(value, f"{prefix}{name}.")
    return names


def text_columns(fields: Iterable[pyarrow.Field], prefix: str = "") -> list[str]:
    """The same from the types of a table; ``fields`` is a schema or a struct's type."""
    names: list[str] = []
    for field in fields:
        kind = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
        if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
            names.append(prefix + field.name)
        elif pyarrow.types.is_struct(kind):
            names += text_columns(kind, f"{prefix}{field.name}.")
    return names


def leaf(record: Mapping[str, Any] | None, name: str) -> Any:
    """What stands in a record under a name with dots; None where nothing does."""
    if not isinstance(record, Mapping):
        return None
    if name in record:  # a name may hold a dot of its own
        return record[name]
    first, dot, rest = name.partition(".")
    return leaf(record.get(first), rest) if dot else None


def take_up(corpus: Corpus, place: str, numbered: Iterable[tuple[int, Mapping[str, Any] | str]]) -> Corpus:
    """Adds numbered records to ``corpus``; one that is a string says what is wrong with it."""
    for number, record in numbered:
        if isinstance(record, str):
            corpus.fault(place, number, record)
        else:
            corpus.add(place, number, [leaf(record, column) for column in corpus.columns])
    return corpus


def numbered_rows(
    batches: Iterable[pyarrow.RecordBatch | pyarrow.Table],
) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """The rows of all batches, numbered from 1."""
    return enumerate(chain.from_iterable(map(_rows, batches)), 1)


def _rows(batch: pyarrow.RecordBatch | pyarrow.Table) -> Iterator[Mapping[str, Any] | str]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # somewhere in it, and before the first row was given
        for row in range(batch.num_rows):
            try:
                yield batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield INVALID
