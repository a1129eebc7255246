"""Training one recipe with Lightning.

Importing the package registers optimizers and schedules; Lightning itself is imported by ``module`` and ``callbacks``
only, since planning and reporting do without it.
"""

from transformer_ablate.training import optimizers, schedules
from transformer_ablate.training.curve import Curve
from transformer_ablate.training.losses import cross_entropy

__all__ = ["Curve", "cross_entropy", "optimizers", "schedules"]
