"""The store of an invocation, or one line that says why there is none."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence

from transformer_ablate.errors import ConfigError
from transformer_ablate.record.place import default_uri
from transformer_ablate.record.store import Store, StoreError


@contextlib.contextmanager
def told(uri: str | None) -> Iterator[str]:
    """Turns what a store raises into one line.

    Raises:
        ConfigError: where it does not answer, or is of a kind that MLflow has given up.
    """
    uri, allowed = uri or default_uri(), "sqlite:///FILE or the address of an MLflow server that answers"
    if "://" not in uri or uri.startswith("file:"):
        raise ConfigError("--tracking-uri", uri, allowed)
    try:
        yield uri
    except (StoreError, OSError, sqlite3.Error) as error:
        raise ConfigError("--tracking-uri", uri, allowed, str(error).splitlines()[0]) from error


def open_store(uri: str | None, experiments: Sequence[str] = ()) -> Store:
    """The store, with an experiment for each study; see :func:`told` for what it raises."""
    with told(uri) as known:
        store = Store(known)
        for name in experiments:
            store.open_experiment(name)
    return store
