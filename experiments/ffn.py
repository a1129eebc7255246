"""Which feed-forward sublayer, and how wide?"""

from __future__ import annotations

from experiments._cells import SHORT_WORDS_NOTE, short_words
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Relative, Value, difference
from transformer_ablate.study.declarations import Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond, Within

NLL, PER = "g2p/nll/test", "g2p/per/test"
SHAZEER = "Shazeer 2020, table 1"


def relative(arm: str) -> tuple[Relative]:
    """The arm's NLL relative to that of ReLU."""
    return (Relative((Value(arm, NLL), Value("relu", NLL))),)


STUDY = Study(
    name="ffn",
    question="Which feed-forward sublayer, and how wide?",
    cells=(short_words(),),
    variants=(
        Variant("relu", {"model.ffn": "relu"}, why="max(0, x), hidden width four times d_model (Vaswani et al. 2017)"),
        Variant("gelu", {"model.ffn": "gelu"}, why="x Φ(x) (Hendrycks & Gimpel 2016)"),
        Variant("swiglu", {"model.ffn": "swiglu"}, why="SiLU gate, two thirds of the width: equal parameters"),
        Variant(
            "swiglu-unmatched",
            {"model.ffn": "swiglu", "model.matched": False},
            why="the trap: SiLU gate at the same width has half as many feed-forward parameters again",
        ),
        Variant("no-activation", {"model.ffn": "linear"}, why="two matrices and nothing between: one linear map"),
        Variant("no-ffn", {"model.ffn": "none"}, why="attention alone, with fewer parameters (Dong et al. 2021)"),
        Variant("geglu", {"model.ffn": "geglu"}, level="claims", why="GELU gate, equal parameters"),
        Variant("width-1", {"model.ff_factor": 1.0}, level="claims", why="ReLU, hidden width d_model"),
        Variant("width-2", {"model.ff_factor": 2.0}, level="further", why="ReLU, hidden width twice d_model"),
        Variant("width-8", {"model.ff_factor": 8.0}, level="further", why="ReLU, hidden width eight times d_model"),
        Variant("silu", {"model.ffn": "silu"}, level="further", why="x sigmoid(x)"),
        Variant("squared-relu", {"model.ffn": "squared_relu"}, level="further", why="max(0, x)² (So et al. 2021)"),
        Variant("glu", {"model.ffn": "glu"}, level="further", why="sigmoid gate, equal parameters"),
        Variant("bilinear", {"model.ffn": "bilinear"}, level="further", why="gate without activation"),
        Variant("reglu", {"model.ffn": "reglu"}, level="further", why="ReLU gate, equal parameters"),
    ),
    contrasts=(
        *(Contrast(arm, "relu", NLL) for arm in ("gelu", "swiglu", "geglu", "no-activation", "no-ffn", "width-1")),
        *(Contrast(arm, "relu", PER, primary=False) for arm in ("gelu", "swiglu", "no-activation", "no-ffn")),
        Contrast("swiglu-unmatched", "swiglu", NLL, primary=False),
    ),
    claims=(
        Claim(
            "swiglu-beats-relu",
            "SwiGLU is better than ReLU at equal parameters.",
            SHAZEER,
            "g2p, NLL: SwiGLU more than 1 % below ReLU",
            Beyond(0.01, below=True),
            relative("swiglu"),
            remark="−.04 nats in the source, on T5 pre-training",
        ),
        Claim(
            "geglu-beats-relu",
            "GEGLU is better than ReLU at equal parameters.",
            SHAZEER,
            "g2p, NLL: GEGLU more than 1 % below ReLU",
            Beyond(0.01, below=True),
            relative("geglu"),
            remark="−.04 nats in the source, on T5 pre-training",
        ),
        Claim(
            "gelu-equals-relu",
            "GELU without a gate does as well as ReLU.",
            SHAZEER,
            "g2p, NLL: GELU within 1 % of ReLU",
            Within(0.01),
            relative("gelu"),
            remark="no difference in the literature",
        ),
        Claim(
            "nonlinearity-matters",
            "Without an activation between its two matrices the feed-forward sublayer is of little use.",
            "course notes",
            "g2p, NLL: no activation at least .02 nats above ReLU",
            Beyond(0.02),
            (difference("no-activation", "relu", NLL),),
            remark="the softmax of attention is not linear either: the network does not become a linear map",
        ),
        Claim(
            "width-matters",
            "The feed-forward sublayer must be wider than the model.",
            "course notes; Vaswani et al. 2017, table 3 row C",
            "g2p, NLL: hidden width d_model at least .02 nats above four times d_model",
            Beyond(0.02),
            (difference("width-1", "relu", NLL),),
            remark="wider sublayers have more parameters as well",
        ),
    ),
    notes=(
        "Gated sublayers take the hidden width at which their parameters, with biases, are nearest to a plain one's. "
        "Arms of other widths, no-ffn and swiglu-unmatched differ in parameters: read them beside the parameter table.",
        SHORT_WORDS_NOTE,
        "All arms share one learning rate.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.ffn")
