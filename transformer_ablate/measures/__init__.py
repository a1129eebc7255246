"""Measures: small objects that turn a trained model on its data into numbers and artifacts."""

from transformer_ablate.measures.base import Measure, Measured
from transformer_ablate.measures.convergence import Convergence
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.measures.extrapolation import Extrapolation
from transformer_ablate.measures.quality import Quality
from transformer_ablate.measures.size import Size
from transformer_ablate.measures.text import TextQuality

MEASURES: tuple[Measure, ...] = (Quality(), TextQuality(), Extrapolation(), Convergence(), Size())

__all__ = ["MEASURES", "Evaluation", "Measure", "Measured"]
