"""Measures: small objects that turn a trained model on its data into numbers and artifacts."""

from transformer_ablate.measures.attention import Attention
from transformer_ablate.measures.base import Measure, Measured
from transformer_ablate.measures.beam import Beam
from transformer_ablate.measures.calibration import Calibration
from transformer_ablate.measures.context import Context
from transformer_ablate.measures.convergence import Convergence
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.measures.extrapolation import Extrapolation
from transformer_ablate.measures.gradients import Gradients
from transformer_ablate.measures.probes import Probes
from transformer_ablate.measures.quality import Quality
from transformer_ablate.measures.size import Size
from transformer_ablate.measures.text import TextQuality
from transformer_ablate.measures.throughput import Throughput

_ALL: tuple[Measure, ...] = (
    Quality(),
    TextQuality(),
    Context(),
    Beam(),
    Extrapolation(),
    Convergence(),
    Calibration(),
    Attention(),
    Probes(),
    Gradients(),
    Size(),
    Throughput(),
)
# By name; a cell of a study says which it needs.
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _ALL}


def register(measure: Measure) -> None:
    """Enters a measure of a user's own under its name, for cells to ask for.

    Raises:
        ValueError: where another has that name.
    """
    if type(MEASURES.setdefault(measure.name, measure)) is not type(measure):
        raise ValueError(f"there is a measure {measure.name!r} already")


__all__ = ["MEASURES", "Evaluation", "Measure", "Measured", "register"]
