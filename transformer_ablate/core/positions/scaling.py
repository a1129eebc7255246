"""How the frequencies of rotary positions are changed, so that longer sentences than those of training can be read.

A scaling has no parameters: a model trained with one can be run with another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, frequencies
from transformer_ablate.errors import ConfigError


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# What each option may be: a test, and the same in words.
LIMITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "factor": (lambda value: _number(value) and value >= 1, "a number at least 1"),
    "trained_length": (
        lambda value: _number(value) and isinstance(value, int) and value >= 1,
        "the longest training sequence in tokens, an integer at least 1",
    ),
    "alpha": (lambda value: _number(value) and value > 0, "a number above 0"),
    "beta": (lambda value: _number(value) and value > 0, "a number above 0"),
    "temperature": (lambda value: isinstance(value, bool), "true or false"),
}


@dataclass(frozen=True)
class Scaling:
    """Frequencies as they are (Su et al. 2021, section 3.2.2).

    Attributes:
        moves: frequencies depend on how long the sentence is at present.
        least_width: narrowest head that it is defined for.
    """

    moves: ClassVar[bool] = False
    least_width: ClassVar[int] = 2

    def frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        """Angle from one position to the next, for each pair of channels.

        Args:
            width: of one head.
            base: see :class:`~transformer_ablate.core.positions.rotary.Rotary`.
            lengths: (B,) or (1,) number of tokens of each sentence; says the device, too.

        Returns:
            (width / 2,), or (B, 1, width / 2) where it differs by sentence; float64.
        """
        return frequencies(width, base, lengths.device)

    @property
    def magnitude(self) -> float:
        """Factor on queries and on keys."""
        return 1.0


@dataclass(frozen=True)
class PositionInterpolation(Scaling):
    """All frequencies divided by the factor, so that no angle is new (Chen et al. 2023, eq. 4).

    Args:
        factor: s, longest sentence over longest training sentence.
    """

    factor: float

    def frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        return frequencies(width, base, lengths.device) / self.factor


@dataclass(frozen=True)
class NTKAware(Scaling):
    """Base times ``s^(d/(d-2))``: the first frequency stays, the last is divided by s (Peng et al. 2023, section 3.1).

    Args:
        factor: s, longest sentence over longest training sentence.
    """

    least_width: ClassVar[int] = 4

    factor: float

    def frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        return frequencies(width, base * self.factor ** (width / (width - 2)), lengths.device)


@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """NTK-aware with the s of each sentence's present length, ``max(1, l / L)`` (Peng et al. 2023, section 3.3).

    A longer sentence turns all its keys anew. Sentences of one batch have a base each, where other implementations give
    them that of the longest. The present length of a target is the whole one under teacher forcing, and that of the
    tokens so far in a cached step, so that past L the two are different functions.

    Args:
        trained_length: L, longest training sequence, in tokens.
        factor: f of Hugging Face's form, where s is ``f l / L - (f - 1)``, which for f > 1 is more than ``l / L``.
    """

    moves: ClassVar[bool] = True
    least_width: ClassVar[int] = 4

    trained_length: int
    factor: float = 1.0

    def frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        longer = (lengths.to(torch.float64) / self.trained_length).clamp(min=1)
        stretch = (self.factor * longer - (self.factor - 1))[:, None, None]  # (B, 1, 1)
        # (base stretch^(d/(d-2)))^(-2i/d) = base^(-2i/d) stretch^(-2i/(d-2))
        exponents = torch.arange(0, width, 2, dtype=torch.float64, device=lengths.device) / (width - 2)
        return frequencies(width, base, lengths.device) * stretch**-exponents


@dataclass(frozen=True)
class YaRN(Scaling):
    """Fast pairs stay, slow ones are divided by s, scores sharpened (Peng et al. 2023, sections 3.2 and 3.4).

    Args:
        factor: s, longest sentence over longest training sentence.
        trained_length: L, longest training sequence, in tokens.
        alpha, beta: pairs that turn fewer than ``alpha`` times within L are divided, those that turn more than ``beta``
            times stay, with a ramp between. The defaults suit LLaMA; at d_head 16 and L 40 they divide nearly all.
        temperature: queries and keys are multiplied by ``0.1 ln s + 1`` each.
    """

    factor: float
    trained_length: int
    alpha: float = 1.0
    beta: float = 32.0
    temperature: bool = True

    def __post_init__(self) -> None:
        if self.beta <= self.alpha:
            raise ConfigError(f"{OPTIONS}.beta", self.beta, f"a number above alpha={self.alpha:g}")

    def frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        theta = frequencies(width, base, lengths.device)
        kept = self.kept(theta, base)
        return theta * (kept + (1 - kept) / self.factor)

    def kept(self, theta: Tensor, base: float) -> Tensor:
        """Gamma of the paper: share of each unscaled frequency, (width / 2,) -> (width / 2,)."""
        turns = self.trained_length * theta / (2 * math.pi)
        return ((turns - self.alpha) / (self.beta - self.alpha)).clamp(0, 1)

    @property
    def magnitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1 if self.temperature else 1.0


@dataclass(frozen=True)
class YaRNReference(YaRN):
    """YaRN as its authors and Hugging Face compute it, the ramp linear in the pair's index (Peng et al. 2023, code).

    The ramp begins at the pair with ``beta`` turns and ends at the one with ``alpha`` turns, both rounded outwards; it
    keeps more of the middle frequencies than the paper's definition. Arguments as in :class:`YaRN`.
    """

    def kept(self, theta: Tensor, base: float) -> Tensor:
        pairs = len(theta)

        def pair_of(turns: float) -> float:
            return pairs * math.log(self.trained_length / (2 * math.pi * turns)) / math.log(base)

        low = max(math.floor(pair_of(self.beta)), 0)
        high = min(math.ceil(pair_of(self.alpha)), 2 * pairs - 1)
        # Training lengths of a few tokens would turn the ramp round, where the first pair alone is to be kept.
        rise = max(high - low, 1e-3)
        return 1 - ((torch.arange(pairs, dtype=theta.dtype, device=theta.device) - low) / rise).clamp(0, 1)


SCALINGS: dict[str, type[Scaling]] = {
    "none": Scaling,
    "pi": PositionInterpolation,
    "ntk": NTKAware,
    "dynamic_ntk": DynamicNTK,
    "yarn": YaRN,
    "yarn_reference": YaRNReference,
}


def build_scaling(name: str, values: Mapping[str, Any], width: int) -> Scaling:
    """The scaling called ``name``.

    Args:
        name: one of ``SCALINGS``.
        values: its arguments; None stands for one that is not given.
        width: of one head.

    Raises:
        ConfigError: for an unknown name, a missing option, one that this scaling does not have, or a bad value.
    """
    kind = SCALINGS[options.name(f"{OPTIONS}.scaling", name, SCALINGS)]
    if width < kind.least_width:
        raise ConfigError("model.d_head", width, f"at least {kind.least_width} for scaling={name}")
    given = {option: value for option, value in values.items() if value is not None}
    needed = {field.name: field.default is MISSING for field in fields(kind)}
    for option, value in given.items():
        holds, allowed = LIMITS[option]
        if option not in needed:
            known = ", ".join(needed) or "(it has none)"
            raise ConfigError(f"{OPTIONS}.{option}", value, f"nothing: the options of scaling={name} are {known}")
        if not holds(value):
            raise ConfigError(f"{OPTIONS}.{option}", value, allowed)
    for option, need in needed.items():
        if need and option not in given:
            raise ConfigError(f"{OPTIONS}.{option}", None, f"{LIMITS[option][1]} (scaling={name} needs it)")
    return kind(**given)
