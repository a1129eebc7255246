"""Tasks, their examples and their batches. Importing this package fills ``registry.TASKS``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformer_ablate.data.batching import TokenBudgetBatches, evaluation_batches, padding_share
from transformer_ablate.data.examples import Batch, PackedSequences, Pairs, TestSet
from transformer_ablate.data.g2p import GraphemeToPhoneme, PhonemeToGrapheme
from transformer_ablate.data.synthetic import SyntheticTask
from transformer_ablate.data.task import Task, TaskData, load_task
from transformer_ablate.data.translation import Continuation, Translation
from transformer_ablate.data.vocabulary import Vocabulary
from transformer_ablate.tokens import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from transformer_ablate.data.datamodule import Seq2SeqDataModule

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Continuation",
    "GraphemeToPhoneme",
    "PackedSequences",
    "Pairs",
    "PhonemeToGrapheme",
    "Seq2SeqDataModule",
    "SyntheticTask",
    "Task",
    "TaskData",
    "TestSet",
    "TokenBudgetBatches",
    "Translation",
    "Vocabulary",
    "evaluation_batches",
    "load_task",
    "padding_share",
]


def __getattr__(name: str) -> Any:
    # Lightning takes seconds to import; checking a recipe's task name must not pay for it.
    if name == "Seq2SeqDataModule":
        from transformer_ablate.data.datamodule import Seq2SeqDataModule

        return Seq2SeqDataModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
