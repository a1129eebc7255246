"""What a reader is told about a number: title, unit, direction, where it is shown; one declaration a family."""

from transformer_ablate.metrics.catalogue import CATALOGUE, FAMILIES, register
from transformer_ablate.metrics.key import Key
from transformer_ablate.metrics.metric import LAYER, TEST_SET, TOKENS, Family, Metric

__all__ = ["CATALOGUE", "FAMILIES", "LAYER", "TEST_SET", "TOKENS", "Family", "Key", "Metric", "register"]
