"""Score terms that keep the fused kernel, and options of positions that are refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_ablate.core.attention import attend, attend_naive
from transformer_ablate.core.linear import initialise
from transformer_ablate.core.positions import Geometry, build_position
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS


@pytest.mark.parametrize("encoding", ["alibi", "t5", "fire", "kerple"])
def test_terms_of_one_for_all_sentences_keep_the_fused_kernel(encoding: str) -> None:
    # It knows masks of two and of four dimensions; of three it would fall back to a slower kernel without a word.
    position = build_position(POSITIONS, encoding, Geometry(32, 4, 1, causal=True), {})
    initialise(position, seed=0)
    q = torch.randn(2, 4, 9, 8)
    at = torch.arange(9)
    with torch.no_grad():  # the kernel gives no gradient to a term
        term = position.score_term(q, q, position.pair_table(at, at, q.dtype), 0)
    assert term is not None
    assert term.dim() == 3
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        fused = attend(q, q, q, term=term, is_causal=True)
        alone = attend(q, q, q, term=term)
    torch.testing.assert_close(fused, attend_naive(q, q, q, None, term, is_causal=True), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone, attend_naive(q, q, q, None, term), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("position", "option", "value"),
    [
        ("sinusoidal", "base", "abc"),
        ("sinusoidal", "base", True),
        ("rope", "base", [3]),
        ("rope", "layout", ["half"]),
        ("rope", "scaling", {"pi": 1}),
        ("xpos", "gamma", "x"),
        ("xpos", "scale_base", None),
        ("integer", "divisor", "x"),
        ("integer", "channels", ["each"]),
        ("integer", "scale", {}),
        ("learned", "rows", True),
        ("learned", "beyond", ["clamp"]),
        ("shaw", "clip", 1.5),
        ("shaw", "values", 1),
        ("t5", "buckets", "32"),
        ("alibi", "sides", ["heads"]),
        ("kerple", "kernel", ["log"]),
        ("fire", "c", "x"),
        ("fire", "shared", 0),
        ("cope", "p_max", None),
        ("cope", "scaled_gate", "yes"),
    ],
)
def test_options_of_a_wrong_type_are_refused_in_one_line(position: str, option: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        build_position(POSITIONS, position, Geometry(32, 4, 1, causal=True), {option: value})
    assert caught.value.field == f"model.position_options.{option}"
    assert "\n" not in str(caught.value)


def test_an_option_of_cross_attention_is_called_by_its_own_field() -> None:
    with pytest.raises(ConfigError) as caught:
        build_position(CROSS_POSITIONS, "rotary", Geometry(32, 4, 1, causal=False), {"base": 0})
    assert caught.value.field == "model.cross_position_options.base"
