"""What a page is made of: sections of blocks, built once; the renderers (``render``) know how each kind looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Entry:
    """One place in a table: its text, and what a pointer held over it shows."""

    text: str
    tip: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column holds row headings.

    Attributes:
        look: ``""`` for numbers, ``text`` for outputs as they are, ``words`` for sentences in columns.
    """

    kind: ClassVar = "table"
    caption: str
    header: Sequence[Entry]
    rows: Sequence[Sequence[Entry]]
    look: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; ``soft`` for what explains and is not the matter itself."""

    kind: ClassVar = "text"
    text: str
    soft: bool = False


@dataclass(frozen=True)
class Command:
    """What a reader can type."""

    kind: ClassVar = "command"
    text: str


@dataclass(frozen=True)
class Link:
    """A file beside the page, in a sentence."""

    kind: ClassVar = "link"
    target: str
    text: str


@dataclass(frozen=True)
class Bullets:
    """A list; an item is a sentence, or a term with its definition."""

    kind: ClassVar = "bullets"
    items: Sequence[str | tuple[str, str]]


@dataclass(frozen=True)
class Caution:
    """A box: what is wrong with the runs, and the runs or arms concerned."""

    kind: ClassVar = "caution"
    title: str
    text: str
    items: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A figure: ``uri`` holds the picture itself, ``path`` is its file beside the page."""

    kind: ClassVar = "picture"
    caption: str
    uri: str
    path: str


@dataclass(frozen=True)
class Details:
    """Blocks that a page may fold under their summary."""

    kind: ClassVar = "details"
    summary: str
    blocks: Sequence[Block]


Block = Table | Text | Command | Link | Bullets | Caution | Picture | Details


@dataclass(frozen=True)
class Section:
    """A part of a page under its own heading, of a level from 1; an empty title for none."""

    title: str
    blocks: Sequence[Block] = field(default=())
    level: int = 2


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], look: str = "") -> Table:
    """A table of plain texts."""
    return Table(caption, [Entry(h) for h in header], [[Entry(t) for t in row] for row in rows], look)
