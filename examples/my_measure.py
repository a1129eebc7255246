"""A measure of one's own, what readers are told of it, and a study that asks for it, in one file.

python examples/my_measure.py --preset smoke
"""

from __future__ import annotations

from itertools import pairwise

from transformer_ablate import measures, metrics
from transformer_ablate.cli import main
from transformer_ablate.measures import Evaluation, Measured
from transformer_ablate.metrics import TEST_SET, Family, Metric
from transformer_ablate.study.declarations import USUAL_MEASURES, Cell, Study, Variant


class Repetition:
    """How often greedy outputs say a token twice in a row, for each test set."""

    name = "repetition"

    def measure(self, run: Evaluation) -> Measured:
        """Metric ``repeated/TEST``: share of outputs with two equal tokens side by side."""
        found = {}
        for test in run.task.test:
            outputs = run.free(test).outputs
            twice = sum(any(a == b for a, b in pairwise(said)) for said in outputs)
            found[f"repeated/{test.name}"] = twice / len(outputs)
        return Measured(found)


measures.register(Repetition())
metrics.register(
    Family(
        "repetition",
        "repetition",
        "Outputs that repeat themselves",
        (Metric("repeated", "Repeats itself", "", "fraction", "Share of greedy outputs with a token twice in a row."),),
        counts=TEST_SET,
    )
)

STUDY = Study(
    name="my_measure",
    question="Does a model without positions repeat itself more often?",
    cells=(
        Cell("copy", "synthetic", {"data.task": "copy"}, "em", "copy strings",
             measures=(*USUAL_MEASURES, "repetition")),
    ),
    variants=(Variant("sinusoidal", {}), Variant("none", {"model.position": "none"})),
)  # fmt: skip

if __name__ == "__main__":
    main([STUDY])
