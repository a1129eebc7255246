"""Is position diluted in deep layers for additive encodings but not for RoPE?"""

from __future__ import annotations

from experiments._cells import STRINGS_LONGER
from experiments._positions import DELTAS
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Mean, Minus, Value
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond

MEASURES = ("quality", "convergence", "probes", "size")
ADDITIVE = ("sinusoidal", "learned")
# What stands behind a claim's id, the metric, and what it is.
SLOPES = {
    "probe": ("copy/probe_r2_slope_net", "R² of a linear probe for the position"),
    "share": ("copy/functional_share_slope_net", "share of the score variance that the offset explains"),
}


def slopes(suffix: str) -> tuple[Claim, ...]:
    """The claims on one of the two measures."""
    key, what = SLOPES[suffix]
    rope, additive = Value("rope", key), tuple(Value(arm, key) for arm in ADDITIVE)
    cell = f"copy, encoder of 6 layers: slope over layers of the {what}, less the untrained control's"
    remark = "not measured before, as far as we know"
    return (
        Claim(f"additive-dilutes-{suffix}", "Positions that are added to the embeddings are diluted in deep layers.",
              "course notes", f"{cell}, < 0", Beyond(0.0, below=True), additive, remark=remark),
        Claim(f"rope-keeps-{suffix}", "RoPE keeps position in deep layers, as it enters each of them anew.",
              "course notes", f"{cell}, ≥ 0", Beyond(0.0), (rope,), remark=remark),
        Claim(f"rope-keeps-more-{suffix}", "Position is diluted less with RoPE than with additive encodings.",
              "course notes", f"{cell}: RoPE − mean of the additive ones > 0", Beyond(0.0),
              (Minus((rope, Mean(additive))),), remark=remark),
    )  # fmt: skip


STUDY = Study(
    name="position_dilution",
    question="Is position diluted in deep layers for additive encodings but not for RoPE?",
    cells=(
        Cell(
            "copy",
            "synthetic",
            {
                "data.task": "copy",
                "data.test_examples": 200,
                "model.encoder_layers": 6,
                "model.decoder_layers": 1,
            },
            "probe_r2",
            "how well the position can be read off the layers of an encoder of 6, after learning to copy",
            axis="layer",
            measures=MEASURES,
            small={**STRINGS_LONGER, "model.encoder_layers": 6, "model.decoder_layers": 1},
        ),
        Cell(
            "copy-12",
            "synthetic",
            {"data.task": "copy", "model.encoder_layers": 12, "model.decoder_layers": 1},
            "probe_r2",
            "the same for an encoder of 12 layers; for --preset full",
            axis="layer",
            level="full",
            measures=MEASURES,
        ),
    ),
    variants=tuple(
        Variant(name, {} if name == "sinusoidal" else delta, level="further" if name in ("t5", "shaw") else "core",
                why=why)
        for name, (delta, why) in DELTAS.items()
    ),
    contrasts=tuple(Contrast("rope", name, key) for name in ADDITIVE for key, _ in SLOPES.values()),
    claims=tuple(claim for suffix in SLOPES for claim in slopes(suffix)),
    notes=(
        "Two measures, both for every arm: how well a token's position can be read from the stream behind each layer "
        "(R², 0 being the embeddings), and which share of the variance of a layer's attention scores depends on the "
        "offset alone. RoPE and the biases put nothing into the embeddings, so that their R² starts at 0 and "
        "can only rise: a slope says how position changes with depth, not how much of it there is; for that compare "
        "the values of a layer.",
        "Slopes are per layer and net of an untrained network of the same recipe: depth alone mixes what is in the "
        "stream.",
        "Copying without position in cross-attention: the decoder finds its place by what the encoder tells of it. "
        "Width 32, N = 8 and 800 steps in every preset but full; copy-12 has the preset's own size.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main([STUDY], program="experiments.position_dilution")
