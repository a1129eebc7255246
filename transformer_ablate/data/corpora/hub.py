"""Data sets of the Hugging Face hub, or in its layout on this machine, through the library ``datasets``."""

from __future__ import annotations

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora.base import Corpus, choose_columns, wanted_columns
from transformer_ablate.data.corpora.records import numbered_rows, take_up, text_columns
from transformer_ablate.errors import ConfigError, unknown_name

ROWS_AT_ONCE = 10_000
SPLIT = "train"
LONGEST_REASON = 300


def read(config: DataConfig, name: str, sides: int) -> Corpus:
    """The part called ``train``, or the only one there is, of a data set; other parts are left to others' tests.

    Columns inside others are named by dots, e.g. ``translation.en``.
    """
    source = f"hub:{name}"
    wanted = wanted_columns(config.source_column, config.target_column, sides)
    try:
        import datasets
    except ImportError:
        fix = "pip install datasets (extra: corpora)"
        raise ConfigError("data.source", source, "a source that can be read", fix) from None
    try:
        datasets.disable_progress_bars()
        names = datasets.get_dataset_config_names(name)
        if config.config and config.config not in names:
            raise unknown_name("data.config", config.config, names)
        parts = datasets.load_dataset(name, config.config or None)
    except ConfigError:
        raise
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error)[:LONGEST_REASON] or type(error).__name__
        raise ConfigError("data.source", source, "a data set that can be had, or a folder of one", reason) from None
    split = SPLIT if SPLIT in parts or len(parts) != 1 else next(iter(parts))
    if split not in parts:
        raise ConfigError("data.source", source, f"a data set with a part called {SPLIT}; this has {', '.join(parts)}")
    part = parts[split]
    columns = choose_columns(wanted, text_columns(part.features.arrow_schema), source)
    top = list(dict.fromkeys(column.partition(".")[0] for column in columns))
    batches = part.select_columns(top).with_format("arrow").iter(ROWS_AT_ONCE)
    corpus = take_up(Corpus(source, columns), f"{source}: row ", numbered_rows(batches))
    if config.swap:
        corpus.sides, corpus.columns = corpus.sides[::-1], corpus.columns[::-1]
    return corpus
