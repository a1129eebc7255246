"""The models: one encoder-decoder core whose every part is chosen by name."""

from __future__ import annotations

import torch

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import baselines, feedforward, normalization, transformer
from transformer_ablate.core.beam import Hypothesis, beam_search
from transformer_ablate.core.decoding import Decoded, greedy_decode
from transformer_ablate.core.embedding import check_tying
from transformer_ablate.core.linear import derive_seed, initialise
from transformer_ablate.core.seq2seq import Memory, Seq2Seq
from transformer_ablate.registry import ARCHITECTURES
from transformer_ablate.tokens import longest_output

__all__ = [
    "Decoded",
    "Hypothesis",
    "Memory",
    "Seq2Seq",
    "baselines",
    "beam_search",
    "build_model",
    "check_tying",
    "derive_seed",
    "feedforward",
    "greedy_decode",
    "initialise",
    "longest_output",
    "normalization",
    "transformer",
]


def build_model(config: ModelConfig, source_size: int, target_size: int, seed: int | None = None) -> Seq2Seq:
    """Constructs the model of a config and draws its initial values; the global random generator is left as it was.

    Args:
        config: what to build.
        source_size, target_size: vocabulary sizes.
        seed: of the initial values; None leaves them unset (for loading a checkpoint, or on the meta device).

    Raises:
        ConfigError: where a component refuses its options or sizes.
    """
    with torch.random.fork_rng(devices=[]):
        options = config.architecture_options
        ARCHITECTURES.check_options(config.architecture, options, given=("config", "source_size", "target_size"))
        model: Seq2Seq = ARCHITECTURES[config.architecture](config, source_size, target_size, **options)
    if seed is not None:
        initialise(model, seed)
    return model
