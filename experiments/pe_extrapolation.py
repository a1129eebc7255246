"""Which positional encoding learns, and which still works past the training length?"""

from typing import Any

from transformer_ablate.studies.cli import main
from transformer_ablate.studies.study import Cell, Contrast, Study, Variant

ENCODINGS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"model.position": "none"}, "no position in self-attention"),
    "sinusoidal": ({"model.position": "sinusoidal"}, "fixed sines added to the embeddings (Vaswani et al. 2017)"),
    "learned": (
        {"model.position": "learned", "model.position_options": {"rows": 256}},
        "one trained vector a position; rows past the training length exist and stay untrained",
    ),
    "rope": ({"model.position": "rope"}, "queries and keys rotated by position (Su et al. 2021)"),
}
CROSS = {"model.cross_position": "rotary"}
# Reverse and sort have no use for it: target and source share no index there.
CROSS_CELLS = ("copy", "g2p-length", "g2p-stem")

STUDY = Study(
    name="pe_extrapolation",
    question="Which positional encoding learns, and which still works past the training length?",
    cells=(
        Cell("copy", "synthetic", {"data.task": "copy"}, "em", "repeat a string of up to N symbols"),
        Cell("reverse", "synthetic", {"data.task": "reverse"}, "em", "write a string backwards"),
        Cell("sort", "synthetic", {"data.task": "sort"}, "em", "put a string's symbols in order"),
        Cell(
            "g2p-length",
            "g2p",
            {"data.split": "length", "data.max_length": 7, "data.batch_tokens": 4_352},
            "per",
            "pronounce English words; trained on words of up to 7 letters",
        ),
        Cell(
            "g2p-stem",
            "g2p",
            {"data.split": "stem"},
            "per",
            "pronounce English words of unseen families, all lengths",
            figure=False,
            core=False,
        ),
    ),
    variants=(
        *(Variant(name, delta, why=why) for name, (delta, why) in ENCODINGS.items()),
        *(
            Variant(f"{name}+cross", {**delta, **CROSS}, CROSS_CELLS, why=f"{why}; rotary cross-attention")
            for name, (delta, why) in ENCODINGS.items()
        ),
    ),
    contrasts=(
        *(Contrast(f"{name}+cross", name, f"copy/em/{ratio}") for name in ENCODINGS for ratio in ("1.5", "2")),
        *(Contrast(f"{name}+cross", name, f"g2p-length/per/{b}") for name in ENCODINGS for b in ("7", "9-10", "11-14")),
        *(Contrast("none", name, "sort/em/1.5") for name in ENCODINGS if name != "none"),
    ),
    notes=(
        "N is the longest training source. Every test set past N is out of distribution; nothing was selected on it.",
        "Arms called +cross rotate the queries and keys of cross-attention by their target and source positions. Where "
        "target and source share an index (copy), that contains the solution by construction; on words it does not.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.pe_extrapolation")
