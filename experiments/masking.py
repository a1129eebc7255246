"""What do the masks buy?"""

from __future__ import annotations

from typing import Any

from experiments._cells import STRINGS
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, difference
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond, Holds

# One layer a stack: the effects are of the masks, not of depth.
SMALL: dict[str, Any] = {**STRINGS, "model.encoder_layers": 1, "model.decoder_layers": 1}

STUDY = Study(
    name="masking",
    question="What do the causal mask and the padding mask buy?",
    cells=(
        Cell(
            "copy",
            "synthetic",
            {"data.task": "copy", "data.test_examples": 500},
            "edit_distance",
            "repeat a string of up to N symbols",
            small=SMALL,
        ),
        Cell(
            "noisy-copy",
            "synthetic",
            {"data.task": "noisy-copy", "data.test_examples": 500},
            "em",
            "the same, with one label in ten replaced at random: what cannot be known can only leak",
            gate=False,
            small=SMALL,
        ),
    ),
    variants=(
        Variant("both-masks", {}, why="the decoder sees no later token, and nothing sees padding"),
        Variant("no-causal-mask", {"model.causal_mask": False}, why="in training the decoder sees what it is to say"),
        Variant(
            "no-padding-mask",
            {"model.padding_mask": False},
            ("copy",),
            why="padding is attended to as if it were a token",
        ),
        Variant(
            "causal-encoder",
            {"model.causal_encoder": True},
            ("copy",),
            level="further",
            why="the encoder sees no later token either",
        ),
    ),
    contrasts=(
        Contrast("no-causal-mask", "both-masks", "copy/edit_distance/1"),
        Contrast("no-causal-mask", "both-masks", "noisy-copy/final_nll"),
        Contrast("no-padding-mask", "both-masks", "copy/nll/1"),
    ),
    claims=(
        Claim(
            "causal-mask-stops-leak",
            "Without the causal mask the training loss falls lower, because the answer leaks.",
            "Vaswani et al. 2017, section 3.2.3",
            "noisy copy, training NLL at the end: no causal mask − both masks < 0",
            Beyond(0.0, below=True),
            (difference("no-causal-mask", "both-masks", "noisy-copy/final_nll"),),
            remark="by construction: with both masks the noise cannot be known",
        ),
        Claim(
            "causal-mask-stops-leak-free",
            "What was learnt without the causal mask fails as soon as the model must go by its own words.",
            "Vaswani et al. 2017, section 3.2.3",
            "noisy copy, greedy outputs, EM up to N: no causal mask − both masks < -.5",
            Beyond(0.5, below=True, counted=True),
            (difference("no-causal-mask", "both-masks", "noisy-copy/em/1"),),
            remark="by construction",
        ),
        Claim(
            "padding-mask-independence",
            "With a padding mask a sentence's output does not depend on what it is batched with; without, it does.",
            "course notes",
            "no training: alone against in a batch",
            Holds("padding-mask-independence"),
            kind="exact",
            remark="by construction; it is the causal mask, not this one, that stops peeking",
        ),
    ),
    notes=(
        "Without a causal mask whatever is scored under the gold prefix sees the answer: on copy read the edit "
        "distance, the length error and the share at the cap, which come from what the model writes freely. Copying "
        "without noise can be learnt to a loss of 0 with both masks; noisy copy, whose exact match is that of greedy "
        "outputs, has something to leak.",
        "One layer a stack, N = 8 and 500 steps in every preset but full: both effects are of the masks, not of depth.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.masking")
