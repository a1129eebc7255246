"""What the Transformer is compared with, on the same interface; importing this package registers them all.

None of them has heads, norms or sublayers of the config: ``n_heads``, ``d_ff``, ``ffn``, ``norm`` and their kin only
say how large the Transformer is whose parameters are to be matched. Used are the numbers of layers, ``dropout``,
``tying``, ``logit_scale`` and, by the convolutions, ``position``.
"""

from transformer_ablate.core.baselines import convolutional, feedforward, recurrent
from transformer_ablate.core.baselines.matching import Baseline, count_parameters, matched_width

__all__ = ["Baseline", "convolutional", "count_parameters", "feedforward", "matched_width", "recurrent"]
