"""What is counted: parameters that tying saves, and operations of attention beside recurrence and convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from transformer_ablate.config import ModelConfig, Recipe
from transformer_ablate.core import build_model
from transformer_ablate.measures.exact.base import Checked, check
from transformer_ablate.measures.size import forward_flops, parameter_count

# The base model of Vaswani et al. 2017 (table 3) and its vocabulary (section 5.1).
BASE_MODEL: dict[str, Any] = {"d_model": 512, "n_heads": 8, "d_ff": 2_048, "encoder_layers": 6, "decoder_layers": 6}
BASE_VOCABULARY = 37_000
# Width at which operations are counted, and how far from d a crossing may lie to be "at about d".
WIDTH, ABOUT = 16, 0.05


def base_parameters(tying: str) -> int:
    """Parameters of the base model with a joint vocabulary; nothing is allocated for them."""
    with torch.device("meta"):
        return parameter_count(build_model(ModelConfig(**BASE_MODEL, tying=tying), BASE_VOCABULARY, BASE_VOCABULARY))


def saved_by(tying: str, matrices: int) -> Checked:
    """Whether a kind of tying saves exactly so many V x d_model matrices."""
    untied, tied = base_parameters("none"), base_parameters(tying)
    matrix = BASE_VOCABULARY * BASE_MODEL["d_model"]
    saved, expected = untied - tied, matrices * matrix
    detail = (
        f"base model, V {BASE_VOCABULARY:,}, d {BASE_MODEL['d_model']}: {untied / 1e6:.2f} M parameters untied, "
        f"{tied / 1e6:.2f} M tied; {saved:,} saved = {saved / matrix:g} V·d"
    )
    return Checked(saved == expected, float(saved), float(expected), detail)


@check("tying-2way-count")
def tying_2way_count(bases: Mapping[str, Recipe]) -> Checked:
    """Decoder embedding and output matrix in one save V d parameters (Press & Wolf 2017)."""
    return saved_by("decoder", 1)


@check("tying-3way-count")
def tying_3way_count(bases: Mapping[str, Recipe]) -> Checked:
    """Both embeddings and the output matrix in one save 2 V d parameters (Vaswani et al. 2017, section 3.4)."""
    return saved_by("all", 2)


@check("concat-parameters-grow")
def concat_parameters_grow(bases: Mapping[str, Recipe]) -> Checked:
    """A network on concatenated embeddings has weights of its own for every place (Bengio et al. 2003).

    So parameters grow by the same number with each token of the longest sequence, at one width.
    """

    def parameters(longest: int) -> int:
        options = {"longest": longest}
        config = ModelConfig(
            architecture="fnn_concat", architecture_options=options, matched=False, d_model=WIDTH, encoder_layers=1
        )
        return parameter_count(build_model(config, 8, 8))

    at_10, at_20, at_40 = (parameters(longest) for longest in (10, 20, 40))
    each = (at_20 - at_10) / 10
    detail = (
        f"d {WIDTH}, one width: {at_10:,} parameters for 10 tokens, {at_20:,} for 20, {at_40:,} for 40: "
        f"{each:g} = {each / WIDTH**2:g} d² for each token more; a Transformer has none"
    )
    return Checked(each > 0 and at_40 - at_20 == 20 * each, each, 0.0, detail)


def layer_flops(architecture: str, length: int) -> int:
    """Forward operations of one encoder layer over ``length`` tokens, without a feed-forward sublayer, at WIDTH."""
    counts = []
    for layers in (1, 2):
        config = ModelConfig(
            architecture=architecture, matched=False, d_model=WIDTH, ffn="none", encoder_layers=layers, decoder_layers=1
        )
        counts.append(forward_flops(build_model(config, 8, 8), length, 1))
    return counts[1] - counts[0]


class Cost(NamedTuple):
    """``linear * L + quadratic * L^2`` operations for L tokens."""

    linear: float
    quadratic: float

    def at(self, length: int) -> float:
        """Operations for ``length`` tokens."""
        return self.linear * length + self.quadratic * length**2


def layer_cost(architecture: str) -> Cost:
    """The cost of one encoder layer that has its counts at one token and at two."""
    one, two = (layer_flops(architecture, length) for length in (1, 2))
    quadratic = (two - 2 * one) / 2
    return Cost(one - quadratic, quadratic)


def crossing(attention: Cost, other: Cost) -> float:
    """L over d at which attention costs as much as another layer, which is linear in L; 0 or less for nowhere."""
    return (other.linear - attention.linear) / attention.quadratic / WIDTH


# What attention is held against: architecture to the name of its encoder's layer, the plain recurrent one first.
RIVALS = {
    "rnn_synchronous": "a plain recurrent layer",
    "gru": "a GRU layer",
    "lstm": "an LSTM layer",
    "convs2s": "a gated convolution of kernel 3",
}


@check("attention-cheaper-crossover")
def attention_cheaper_crossover(bases: Mapping[str, Recipe]) -> Checked:
    """L^2 d operations of self-attention are fewer than L d^2 of recurrence below L = d (Vaswani et al. 2017, table 1).

    Held against the project's own counts, two a multiply-add: attention's scores and values, which are all that the
    table counts, against a layer of a plain RNN. The projections, which the table leaves out, move the crossing.
    """
    attention = layer_cost("transformer")
    rivals = {architecture: layer_cost(architecture) for architecture in RIVALS}
    # Two counts make a cost of any shape; a third tells whether it is of this one.
    shapes = {"transformer": attention, **rivals}
    fits = all(layer_flops(name, WIDTH) == cost.at(WIDTH) for name, cost in shapes.items())
    fits = fits and not any(cost.quadratic for cost in rivals.values())
    value = crossing(Cost(0, attention.quadratic), rivals["rnn_synchronous"])
    told = []
    for architecture, cost in rivals.items():
        ratio = crossing(attention, cost)
        where = f"at L = {ratio:g} d" if ratio > 0 else "nowhere"
        told.append(f"{RIVALS[architecture]} ({cost.linear / WIDTH**2:g} L·d²) {where}")
    detail = (
        f"scores and values ({attention.quadratic / WIDTH:g} L²·d) cost as much as a plain recurrent layer at "
        f"L = {value:g} d; with the projections ({attention.linear / WIDTH**2:g} L·d² more) a whole layer of attention "
        f"costs as much as {', '.join(told)}"
    )
    return Checked(fits and abs(value - 1) <= ABOUT, value, 1.0, detail)
