"""A study of one's own, in a file of one's own.

python examples/my_study.py --preset smoke
"""

from __future__ import annotations

from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, difference
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond

STUDY = Study(
    name="my_study",
    question="Do positions in cross-attention help to reverse a string?",
    cells=(Cell("reverse", "synthetic", {"data.task": "reverse"}, "em", "reverse strings of up to 8 symbols"),),
    variants=(
        Variant("none", {}, why="the base recipe: cross-attention knows no positions"),
        Variant("rotary", {"model.cross_position": "rotary"}, why="queries and keys are turned by their positions"),
    ),
    contrasts=(Contrast("rotary", "none", "reverse/em/1"),),
    claims=(
        Claim(
            "rotary-helps-reverse",
            "Rotary positions in cross-attention make reversing easier to learn.",
            "a hunch",
            "reverse, validation NLL: rotary − none below −.01",
            Beyond(0.01, below=True),
            (difference("rotary", "none", "reverse/valid_nll"),),
        ),
    ),
)

if __name__ == "__main__":
    main([STUDY])
