"""Cells that several studies share: one declaration, so that their arms have one fingerprint and run once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformer_ablate.study.declarations import USUAL_MEASURES, Cell, FromBase

# Sizes at which all studies with eight seeds can be afforded on two cores, the same in smoke, quick and standard: a
# standard run goes on from a quick one. Preset full has the base recipes' sizes.
STRINGS: dict[str, Any] = {
    "data.max_length": 8,
    "model.d_model": 32,
    "model.d_ff": 128,
    "model.n_heads": 4,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "train.max_steps": 500,
}
# Without position in cross-attention the slower encodings need more updates to learn within N.
STRINGS_LONGER: dict[str, Any] = {**STRINGS, "train.max_steps": 800}
WORDS: dict[str, Any] = {"data.max_length": 8, "data.batch_tokens": 1_024, "train.max_steps": 300}
SHORT_WORDS_NOTE = (
    "To be affordable with many arms and eight seeds, words have up to 8 letters, a batch 1,024 padded tokens (about "
    "57 words) and training 300 steps in every preset but full; the model is the base recipe's."
)
# Copying with 32 strings a batch, for what needs depth or many arms.
SMALL_COPY: dict[str, Any] = {**STRINGS, "data.batch_tokens": 640, "train.max_steps": 400}


def words_by_length(level: str = "core") -> Cell:
    """Trained on words of up to 7 letters, tested on longer ones."""
    return Cell(
        "g2p-length",
        "g2p",
        {"data.split": "length", "data.max_length": 7},
        "per",
        "pronounce English words; trained on words of up to 7 letters",
        level=level,
        small={"data.batch_tokens": 1_088, "train.max_steps": 400},
    )


def short_words(*measures: str, delta: Mapping[str, Any] | None = None, level: str = "core") -> Cell:
    """English words of up to 8 letters, measured as usual and by ``measures``, with further dotted fields."""
    return Cell(
        "g2p",
        "g2p",
        {"data.split": "stem", **(delta or {})},
        "per",
        "pronounce English words of unseen families",
        figure=False,
        level=level,
        measures=(*USUAL_MEASURES, *measures),
        small=WORDS,
    )


def deep_copy(layers: int, level: str, *measures: str) -> Cell:
    """Copying by ``layers`` layers on each side, a tenth of the steps of warmup."""
    depth = {"model.encoder_layers": layers, "model.decoder_layers": layers}
    return Cell(
        f"depth-{layers}",
        "synthetic",
        {"data.task": "copy", **depth},
        "em",
        f"copy strings, {layers} + {layers} layers",
        figure=False,
        level=level,
        measures=(*USUAL_MEASURES, *measures),
        small={**SMALL_COPY, **depth, "train.warmup_steps": 40},
    )


def times_rate(factor: float) -> dict[str, Any]:
    """The base recipe's peak learning rate times a factor."""
    return {"train.lr": FromBase(f"{factor:g} × the base", lambda base: base.train.lr * factor)}


def at_rate(arm: str, factor: float) -> str:
    """The name of an arm at a multiple of the peak learning rate."""
    return arm if factor == 1 else f"{arm}-rate-{factor:g}"
