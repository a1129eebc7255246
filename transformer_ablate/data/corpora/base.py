"""What reading a corpus gives: its texts, and what was wrong with the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transformer_ablate.errors import ConfigError, unknown_name

# Real corpora hold some faulty lines, which are skipped and counted; more of them mean that the file is misread.
TOLERATED_SHARE = 0.01
LISTED_FAULTS = 1_000


class Fault(NamedTuple):
    """A record that cannot be used: ``place`` as people look it up, e.g. ``corpus.tsv:17``, and what is wrong."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass
class Corpus:
    """Texts, or pairs of texts, in the order of their source.

    Args:
        name: as people know it, e.g. ``gettext:zh_CN``.
        columns: what the texts are called where they come from, one name for each side.
        sides: for each side a list; all are of one length, and every text is tidy and not empty.
        faults: the first 1 000 faulty records.
        n_faults: how many there are.
        blank: records without text on any side, which separate documents and are no fault.
        records: all records that were read, the faulty and blank ones included.
        notes: what else was left out, with counts.
    """

    name: str
    columns: tuple[str, ...]
    sides: tuple[list[str], ...] = ()
    faults: list[Fault] = field(default_factory=list)
    n_faults: int = 0
    blank: int = 0
    records: int = 0
    notes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sides = tuple([] for _ in self.columns)

    def __len__(self) -> int:
        return len(self.sides[0])

    def add(self, place: str, number: int, texts: Sequence[object]) -> None:
        """Takes one record up, or counts it as faulty.

        Args:
            place: where it stands, to which ``number`` is added, e.g. ``corpus.tsv:``.
            number: of the line or row, from 1.
            texts: one value for each side; None stands for no text.
        """
        self.records += 1
        tidy = []
        for text, column in zip(texts, self.columns, strict=True):
            if text is None:
                text = ""
            elif not isinstance(text, str):
                self.count(place, number, f"{column} is no text but {type(text).__name__}")
                return
            # Runs of white space, line ends among them, become one space: a text is one line from here on.
            text = " ".join(text.split())
            if not text.isascii() and not _encodable(text):
                self.count(place, number, f"{column} is not valid Unicode")
                return
            tidy.append(text)
        if all(tidy):
            for side, text in zip(self.sides, tidy, strict=True):
                side.append(text)
        elif any(tidy):
            self.count(place, number, f"{self.columns[tidy.index('')]} is empty")
        else:
            self.blank += 1

    def fault(self, place: str, number: int, reason: str) -> None:
        """Counts a record that could not even be taken apart."""
        self.records += 1
        self.count(place, number, reason)

    def count(self, place: str, number: int, reason: str) -> None:
        """Counts a fault of a record that is counted already."""
        self.n_faults += 1
        if len(self.faults) < LISTED_FAULTS:
            self.faults.append(Fault(f"{place}{number}", reason))

    def check_faults(self) -> None:
        """Raises ConfigError, which names the first of them, where more than 1 % of the records are faulty."""
        if self.n_faults > TOLERATED_SHARE * self.records:
            raise ConfigError(
                "data.source",
                str(self.faults[0]),
                f"{TOLERATED_SHARE:.0%} of faulty lines, which are skipped; here {self.n_faults} of {self.records} are",
                f"python -m transformer_ablate data --source {self.name} lists them",
            )


def _encodable(text: str) -> bool:
    """Whether this is Unicode text: JSON's escapes can give halves of surrogate pairs, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def wanted_columns(source_column: str, target_column: str, sides: int) -> tuple[str, ...]:
    """The columns that the user named, one for each side; empty strings for those left to us.

    Raises:
        ConfigError: where one of two is named, or one for a task that takes none.
    """
    if sides == 1:
        if target_column:
            raise ConfigError("data.target_column", target_column, "left unset: the task reads one text a record")
        return (source_column,)
    if bool(source_column) != bool(target_column):
        given, left = ("source", "target") if source_column else ("target", "source")
        raise ConfigError(
            f"data.{left}_column", "", f"a column, as data.{given}_column is {source_column or target_column!r}"
        )
    return source_column, target_column


FIELDS = ("data.source_column", "data.target_column")


def choose_columns(wanted: Sequence[str], available: Sequence[str], where: str) -> tuple[str, ...]:
    """Names of the columns to read from records whose text fields have names.

    Where the user named none: ``source`` and ``target`` (``text`` for single texts) if there are such, else all text
    columns if they are as many as needed.

    Args:
        wanted: what the user named, from :func:`wanted_columns`.
        available: text columns, those inside others by dots, e.g. ``translation.en``.
        where: the corpus, for the error.

    Raises:
        ConfigError: for a column that is not there, or a choice that cannot be made.
    """
    if any(wanted):
        for field_name, name in zip(FIELDS, wanted, strict=False):
            if name not in available:
                raise unknown_name(field_name, name, available or [f"(none: {where} has no text columns)"])
        return tuple(wanted)
    usual = ("source", "target") if len(wanted) == 2 else ("text",)
    for names in (usual, tuple(available)):
        if len(names) == len(wanted) and set(names) <= set(available):
            return names
    listed = ", ".join(available) or "(none)"
    raise ConfigError(FIELDS[0], "", f"one of the text columns of {where}: {listed}")
