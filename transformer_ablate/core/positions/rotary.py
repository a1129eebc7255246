"""Rotary position embedding: door (b)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, wide
from transformer_ablate.core.positions.scaling import LIMITS, Scaling, build_scaling
from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS


def rotate_interleaved(x: Tensor, turn: Tensor) -> Tensor:
    """Rotates the pairs (2i, 2i+1) of the last dimension of ``x`` (..., L, d_head).

    A pair is a complex number and ``turn`` (..., L, d_head / 2) holds ``e^(i angle)``, times a magnitude where there is
    one: a complex product is several times as fast as the four real ones.
    """
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


def rotate_half(x: Tensor, turn: Tensor) -> Tensor:
    """Rotates the pairs (i, i + d_head/2): another function of the same weights than the interleaved layout."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn.real, turn.imag
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


LAYOUTS = {"interleaved": rotate_interleaved, "half": rotate_half}


@POSITIONS.register("rope")
@CROSS_POSITIONS.register("rotary")
class Rotary(PositionalEncoding):
    """Queries and keys are rotated by position, so scores depend on i - j alone (Su et al. 2021, eq. 14).

    In cross-attention the query is rotated by its target position and the key by its source position. It has no
    parameters. Angles are computed in float64 and applied in float32 (or wider), whatever the autocast.

    Args:
        geometry: see :class:`Geometry`; the head width must be even.
        base: ratio that the wavelengths span.
        layout: ``interleaved`` pairs channels (2i, 2i+1) as in the paper, ``half`` pairs (i, i + d_head/2).
        scaling: how the frequencies are changed for sentences longer than those of training, a name of ``SCALINGS``
            (scaling.py). Lengths are those of the keys' sentences, in cross-attention of the sources.
        factor, trained_length, alpha, beta, temperature: arguments of the scaling, for those that have them.
        evaluation: another scaling, with its arguments, e.g. ``{scaling: pi, factor: 4}``, that takes the place of the
            trained one whenever the module does not train: what a scaling does to a finished model.

    Attributes:
        scaling: the one in use; ``train()`` and ``eval()`` choose it.
    """

    def __init__(
        self,
        geometry: Geometry,
        base: float = 10_000.0,
        layout: str = "interleaved",
        scaling: str = "none",
        factor: float | None = None,
        trained_length: int | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        temperature: bool | None = None,
        evaluation: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(geometry)
        _check_even(geometry)
        self.base = options.number_above(f"{OPTIONS}.base", base, 1)
        self._rotate = LAYOUTS[options.name(f"{OPTIONS}.layout", layout, LAYOUTS)]
        given = {
            "factor": factor,
            "trained_length": trained_length,
            "alpha": alpha,
            "beta": beta,
            "temperature": temperature,
        }
        trained = build_scaling(scaling, given, geometry.d_head)
        evaluated = trained if evaluation is None else _build_evaluated(evaluation, geometry.d_head)
        self.evaluated_otherwise = evaluation is not None
        self._scalings = {True: trained, False: evaluated}
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """See :meth:`torch.nn.Module.train`; also chooses the scaling."""
        self.scaling = self._scalings[mode]
        self.keys_move = self.scaling.moves
        return super().train(mode)

    def adapt(self) -> None:
        """See the base class: the trained scaling is that of evaluation from now on (Chen et al. 2023, section 3.4)."""
        self._scalings[True] = self._scalings[False]
        self.train(self.training)

    def angles(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """Positions (L,) or (B, L) -> (L, d_head / 2) or (B, L, d_head / 2), float64."""
        inverse = self.scaling.frequencies(self.geometry.d_head, self.base, lengths)
        return positions.to(torch.float64)[..., None] * inverse

    def point_table(self, positions: Tensor, lengths: Tensor, dtype: torch.dtype) -> Any:
        """Complex numbers (1, L, d_head / 2) or (B, 1, L, d_head / 2) that turn the pairs."""
        angles = self.angles(positions, lengths)
        return turns(torch.full_like(angles, self.scaling.magnitude), angles, dtype)

    def transform_query(self, q: Tensor, table: Any, layer: int) -> Tensor:
        return self._rotate(q.to(wide(q.dtype)), table).to(q.dtype)

    def transform_key(self, k: Tensor, table: Any, layer: int) -> Tensor:
        return self._rotate(k.to(wide(k.dtype)), table).to(k.dtype)


def turns(magnitudes: Tensor, angles: Tensor, dtype: torch.dtype) -> Tensor:
    """``magnitude e^(i angle)``, (..., L, d_head / 2) -> (..., 1, L, d_head / 2) for queries or keys of ``dtype``."""
    return torch.polar(magnitudes, angles).to(wide(dtype).to_complex()).unsqueeze(-3)


def _build_evaluated(values: Any, width: int) -> Scaling:
    """The scaling that ``evaluation`` asks for, for heads of ``width``."""
    field, known = f"{OPTIONS}.evaluation", ("scaling", *LIMITS)
    if not isinstance(values, Mapping):
        raise ConfigError(field, values, "a scaling with its arguments, as in {scaling: pi, factor: 4}")
    for option in values:
        if option not in known:
            raise unknown_name(field, option, known)
    arguments = {option: value for option, value in values.items() if option != "scaling"}
    try:
        return build_scaling(values.get("scaling", "none"), arguments, width)
    except ConfigError as error:
        raise ConfigError(error.field.replace(OPTIONS, field), error.value, error.allowed, error.fix) from None


def _check_even(geometry: Geometry) -> None:
    if geometry.d_head % 2 == 0:
        return
    if geometry.d_head * geometry.n_heads != geometry.d_model:
        raise ConfigError("model.d_head", geometry.d_head, "an even number for rotary positions")
    raise ConfigError(
        "model.n_heads",
        geometry.n_heads,
        f"a number that makes d_model / n_heads even for rotary positions"
        f" (d_model={geometry.d_model} gives {geometry.d_head})",
    )
