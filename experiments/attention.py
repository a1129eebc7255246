"""What do several heads, the scaling and the output projection of attention buy?"""

from __future__ import annotations

from experiments._cells import SHORT_WORDS_NOTE, short_words
from transformer_ablate.cli import main
from transformer_ablate.config import Recipe
from transformer_ablate.study.claims import Best, Claim, Mean, Minus, Ratio, Value, difference
from transformer_ablate.study.declarations import Contrast, FromBase, Study, Variant
from transformer_ablate.study.rules import Beyond, Holds

NLL, PER = "g2p/nll/test", "g2p/per/test"
KINDS = ("encoder", "decoder", "cross")
MID = ("heads-4", "heads-8")


def equal_flops(base: Recipe) -> int:
    """Hidden width whose forward operations are those of two heads of width d_model, for N + 2 tokens on both sides.

    Two such heads double the width of all attentions: 12 d^2 more multiply-adds a token and pair of layers (three
    attentions, four matrices each) and 6 L d more in scores and values; a channel of width costs 4 d of them.
    """
    d, length = base.model.d_model, base.data.max_length + 2
    return base.model.d_ff + round(3 * d + 1.5 * length)


def untrained_too(suffix: str) -> Mean:
    """Mean over the three kinds of attention of the divergence between heads."""
    return Mean(tuple(Value("heads-4", f"g2p/head_js_{kind}{suffix}") for kind in KINDS))


STUDY = Study(
    name="attention",
    question="What do several heads, the scaling and the output projection of attention buy?",
    cells=(
        # One size in every preset, so that arms mean the same in all of them.
        short_words("attention", delta={"model.n_heads": 4, "model.d_model": 64, "model.d_ff": 256}),
    ),
    variants=(
        Variant("heads-4", {}, why="the base recipe: four heads of 16 channels, scores over √d_k, output projection"),
        Variant("heads-1", {"model.n_heads": 1}, why="one head as wide as the model: as many parameters"),
        Variant("heads-8", {"model.n_heads": 8}, why="eight heads of 8 channels: as many parameters"),
        Variant("no-scaling", {"model.attention_scale": 1.0}, why="scores q·k without 1/√d_k, at d_k 16"),
        Variant(
            "no-output-projection",
            {"model.output_projection": False},
            why="concatenated heads as they are; the feed-forward sublayers are wider by the missing parameters",
        ),
        Variant(
            "no-output-projection-unmatched",
            {"model.output_projection": False, "model.matched": False},
            why="concatenated heads as they are, with fewer parameters",
        ),
        Variant("heads-16", {"model.n_heads": 16}, level="claims", why="sixteen heads of 4 channels"),
        Variant(
            "no-scaling-one-head",
            {"model.n_heads": 1, "model.attention_scale": 1.0},
            level="claims",
            why="scores q·k without 1/√d_k, at d_k 64: compare with heads-1",
        ),
        Variant(
            "full-width-heads",
            {"model.n_heads": 2, "model.d_head": FromBase("d_model", lambda base: base.model.d_model)},
            level="claims",
            why="two heads, each as wide as the model",
        ),
        Variant(
            "equal-flops",
            {"model.n_heads": 2, "model.d_ff": FromBase("FLOPs of full-width-heads", equal_flops)},
            level="claims",
            why="two standard heads and a wider feed-forward sublayer: the FLOPs of full-width-heads",
        ),
        Variant("heads-2", {"model.n_heads": 2}, level="further", why="two heads of 32 channels"),
        Variant("qk-norm", {"model.qk_norm": True}, level="further", why="RMSNorm on each head's queries and keys"),
    ),
    contrasts=(
        *(Contrast(arm, "heads-1", PER) for arm in ("heads-4", "heads-8")),
        *(Contrast(arm, "heads-4", NLL) for arm in ("no-scaling", "no-output-projection")),
        Contrast("no-scaling-one-head", "heads-1", NLL),
        Contrast("full-width-heads", "equal-flops", NLL),
    ),
    claims=(
        Claim(
            "unscaled-saturates",
            "Without 1/√d_k the softmax of scores is saturated at the start.",
            "Vaswani et al. 2017, section 3.2.1",
            "exact, at initialisation: N(0, 1) queries and keys, 32 keys, d_k 64",
            Holds("unscaled-saturates"),
            kind="exact",
            remark="entropy ratio unscaled over scaled .168, variance of the scores d_k",
        ),
        Claim(
            "unscaled-hurts",
            "Without 1/√d_k a Transformer learns worse.",
            "Vaswani et al. 2017, section 3.2.1",
            "g2p, NLL at d_k 64: unscaled at least .01 nats above scaled",
            Beyond(0.01),
            (difference("no-scaling-one-head", "heads-1", NLL),),
            remark="Adam learns smaller queries and keys, which hides it",
        ),
        Claim(
            "heads-beat-one",
            "Several heads are better than one.",
            "Vaswani et al. 2017, table 3 row A",
            "g2p, PER: 4 heads and 8 heads each at least .5 point below 1 head",
            Beyond(0.005, below=True),
            tuple(difference(arm, "heads-1", PER) for arm in MID),
            remark="+.9 BLEU in the source",
        ),
        Claim(
            "more-heads-better",
            "The more heads, the better.",
            "course notes",
            "g2p, PER: 16 heads (d_k 4) at least .5 point below the best of 4 and 8 heads",
            Beyond(0.005, below=True),
            (Minus((Value("heads-16", PER), Best(MID, PER, lowest=True))),),
            remark="quality drops off with too many heads in Vaswani et al. 2017, table 3 row A",
        ),
        Claim(
            "single-head-peaks",
            "A single head attends to fewer tokens than each of several heads.",
            "course notes",
            "g2p: mean attention entropy of 1 head more than 10 % below that of 8 heads",
            Beyond(0.1, below=True, bound=1.0),
            (Ratio((Value("heads-1", "g2p/attention_entropy"), Value("heads-8", "g2p/attention_entropy"))),),
        ),
        Claim(
            "heads-diverse",
            "Heads learn to attend to different things.",
            "Vaswani et al. 2017, section 3.2.2",
            "g2p: mean pairwise Jensen–Shannon divergence of 4 heads above that of an untrained network",
            Beyond(0.0),
            (Minus((untrained_too(""), untrained_too("_untrained"))),),
            remark="heads of an untrained network differ as well: that is the control",
        ),
        Claim(
            "output-projection-needed",
            "The matrix after the concatenated heads is needed.",
            "course notes; Vaswani et al. 2017, section 3.2.2",
            "g2p, NLL: without it, at equal parameters, at least .01 nats more",
            Beyond(0.01),
            (difference("no-output-projection", "heads-4", NLL),),
        ),
        Claim(
            "full-width-heads-worth",
            "Heads as wide as the model are worth what they cost.",
            "course notes",
            "g2p, NLL: two heads of width d_model at least .01 nats below a standard model of equal FLOPs",
            Beyond(0.01, below=True),
            (difference("full-width-heads", "equal-flops", NLL),),
            remark="the literature says no",
        ),
    ),
    notes=(
        "Numbers of heads at equal parameters: the width of a head is d_model over their number. d_model is 64, so "
        "that one head has the d_k of the base model of Vaswani et al. 2017.",
        "Full-width heads are two, not four, and the rival spends their FLOPs on the feed-forward sublayer.",
        SHORT_WORDS_NOTE,
        "All arms share one learning rate.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.attention")
