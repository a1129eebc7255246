"""Cells that several studies share: one declaration, so that their arms have one fingerprint and run once."""

from __future__ import annotations

from typing import Any

from transformer_ablate.studies.study import USUAL_MEASURES, Cell

SHORT_WORDS: dict[str, Any] = {"data.split": "stem", "data.max_length": 8, "data.batch_tokens": 1_600}
SHORT_WORDS_NOTE = (
    "To be affordable with eight seeds, words have up to 8 letters and a batch 1,600 padded tokens (about 90 words), "
    "in place of 20 letters and 5,120 tokens of the G2P base recipe; the model is the base recipe's."
)
# Copying that is small enough for what needs depth or many arms, the same in every preset: 32 strings a batch.
SMALL_COPY: dict[str, Any] = {
    "data.task": "copy",
    "data.max_length": 8,
    "data.batch_tokens": 640,
    "model.d_model": 32,
    "model.d_ff": 128,
    "model.n_heads": 4,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "train.max_steps": 400,
    "train.lr": 2e-3,
    "train.warmup_steps": 100,
}


def short_words(*measures: str, **delta: Any) -> Cell:
    """English words of up to 8 letters, measured as usual and by ``measures``; ``delta`` adds fields of ``data``."""
    return Cell(
        "g2p",
        "g2p",
        {**SHORT_WORDS, **{f"data.{name}": value for name, value in delta.items()}},
        "per",
        "pronounce English words of up to 8 letters, of unseen families",
        figure=False,
        measures=(*USUAL_MEASURES, *measures),
    )


def deep_copy(layers: int, level: str) -> Cell:
    """Copying by ``layers`` layers on each side, a tenth of 500 steps of warmup."""
    depth = {"model.encoder_layers": layers, "model.decoder_layers": layers}
    return Cell(
        f"depth-{layers}",
        "synthetic",
        {**SMALL_COPY, **depth, "train.max_steps": 500, "train.warmup_steps": 50},
        "em",
        f"copy strings of up to 8 symbols, {layers} + {layers} layers",
        figure=False,
        level=level,
    )
