"""What is told of a committed store: every file of its report but the pictures, byte for byte.

``store.tar.xz`` holds 36 runs of ``study.py`` (smoke, three seeds). After a change that is meant to change what a
report says, ``GOLDEN=write python -m pytest tests/golden`` writes the files anew; the commit shows what became
different.
"""

from __future__ import annotations

import os
import runpy
import sqlite3
import tarfile
from pathlib import Path

import pytest

from transformer_ablate.record.store import Store
from transformer_ablate.report.render import write_overview, write_report
from transformer_ablate.run.reporting import study_record
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import make_plan

HERE = Path(__file__).parent
FILES = ("results.json", "report.md", "table.csv", "table.tex", "recommended.yaml", "../claims.md")
ENVIRONMENT = {
    "commit": "0123456789ab",
    "source_hash": "0123456789ab",
    "versions": "Python 3",
    "hardware": "two cores",
    "command": "python tests/golden/study.py",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The committed store, in a place of its own."""
    folder = tmp_path_factory.mktemp("store")
    with tarfile.open(HERE / "store.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    with sqlite3.connect(folder / "mlflow.db") as database:
        for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, 'file:///STORE', ?)", [folder.as_uri()])
    return Store(f"sqlite:///{folder / 'mlflow.db'}")


@pytest.fixture(scope="module")
def told(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report."""
    study: Study = runpy.run_path(str(HERE / "study.py"))["STUDY"]
    folder = tmp_path_factory.mktemp("reports") / "smoke"
    record = study_record(make_plan(study, "smoke", range(3)), store, ENVIRONMENT, cuda=False)
    page = write_report(record, folder / study.name)
    write_overview(folder)
    return page.parent


@pytest.mark.parametrize("name", FILES)
def test_a_report_says_what_it_said(told: Path, name: str) -> None:
    found, expected = (told / name).read_bytes(), HERE / "expected" / Path(name).name
    if os.environ.get("GOLDEN") == "write":
        expected.parent.mkdir(exist_ok=True)
        expected.write_bytes(found)
    assert found == expected.read_bytes()
