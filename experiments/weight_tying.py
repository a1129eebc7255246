"""What does sharing embeddings save, and does it help?"""

from __future__ import annotations

from typing import Any

from experiments._cells import short_words
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Minus, Value, difference
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond, Holds, Within

CHRF, NLL = "zh-en/chrf/1", "zh-en/nll/1"
PRESS, VASWANI = "Press & Wolf 2017", "Vaswani et al. 2017, section 3.4; Press & Wolf 2017"
SCALED: dict[str, Any] = {"model.logit_scale": "rsqrt_d"}


def gap(arm: str) -> Minus:
    """Test NLL less training NLL at the end."""
    return Minus((Value(arm, NLL), Value(arm, "zh-en/final_nll")))


STUDY = Study(
    name="weight_tying",
    question="What does sharing embeddings and output matrix save, and does it help?",
    cells=(
        Cell(
            "zh-en",
            "text",
            {"data.tokenizer_size": 2_000},
            "chrf",
            "translate Chinese interface texts into English, one vocabulary for both",
            figure=False,
            small={"data.batch_tokens": 2_000, "train.max_steps": 400},
        ),
        short_words("beam", level="further"),
    ),
    variants=(
        Variant("three-way", {"model.tying": "all"}, ("zh-en",), why="both embeddings and the output matrix are one"),
        Variant("decoder", {"model.tying": "decoder"}, why="target embedding and output matrix are one"),
        Variant("none", {"model.tying": "none"}, why="three matrices"),
        Variant(
            "three-way-scaled", {"model.tying": "all", **SCALED}, ("zh-en",), why="three-way, logits over √d_model"
        ),
        Variant("none-scaled", {"model.tying": "none", **SCALED}, why="none, logits over √d_model"),
        Variant(
            "encoder-decoder",
            {"model.tying": "encoder-decoder"},
            ("zh-en",),
            "further",
            "both embeddings are one, the output matrix another",
        ),
    ),
    contrasts=(
        *(Contrast(arm, "none", metric) for arm in ("decoder", "three-way") for metric in (CHRF, NLL)),
        Contrast("three-way-scaled", "none-scaled", CHRF),
        Contrast("three-way-scaled", "three-way", NLL, primary=False),
    ),
    claims=(
        Claim(
            "tying-2way-count",
            "Sharing target embedding and output matrix saves V·d parameters.",
            PRESS,
            "exact: parameters of the base model with a joint vocabulary of 37 000",
            Holds("tying-2way-count"),
            kind="exact",
        ),
        Claim(
            "tying-3way-count",
            "Sharing the source embedding too saves 2·V·d parameters.",
            VASWANI,
            "exact: parameters of the base model with a joint vocabulary of 37 000",
            Holds("tying-3way-count"),
            kind="exact",
        ),
        Claim(
            "tying-2way-free",
            "Sharing target embedding and output matrix costs no quality.",
            PRESS,
            "zh-en, chrF: decoder within .5 of none",
            Within(0.5),
            (difference("decoder", "none", CHRF),),
            remark="168 M → 80 M parameters in the source (three-way), BLEU kept",
        ),
        Claim(
            "tying-3way-free",
            "Sharing both embeddings and the output matrix costs no quality.",
            VASWANI,
            "zh-en, chrF: three-way within .5 of none",
            Within(0.5),
            (difference("three-way", "none", CHRF),),
            remark="168 M → 80 M parameters in the source, BLEU kept",
        ),
        Claim(
            "tying-3way-free-scaled",
            "Sharing all three costs no quality, where both models start near a uniform guess.",
            VASWANI,
            "zh-en, chrF, logits over √d_model: three-way within .5 of none",
            Within(0.5),
            (difference("three-way-scaled", "none-scaled", CHRF),),
            learnt=((Value("none-scaled", CHRF), 10.0),),
            remark="tells the tie from the initial loss that comes with it",
        ),
        *(
            Claim(
                f"tying-{kind}-gap",
                f"Sharing {what} narrows the gap between training and test loss.",
                PRESS,
                f"zh-en, test NLL − training NLL: {arm} below none",
                Beyond(0.0, below=True),
                (Minus((gap(arm), gap("none"))),),
                remark="training NLL is with dropout, test NLL without: only differences between arms mean anything",
            )
            for kind, arm, what in (
                ("2way", "decoder", "target embedding and output matrix"),
                ("3way", "three-way", "both embeddings and the output matrix"),
            )
        ),
    ),
    notes=(
        "Every arm on text has the joint vocabulary of 2 000 tokens, so that arms differ in the tie alone. Words and "
        "phones have no common symbols: on g2p only target embedding and output matrix can be shared.",
        "A tied matrix starts as an embedding does, so that a tied model's first loss is well above ln V; logits over "
        "√d_model start near ln V in both. The scaled arms tell the tie from this start.",
        "The corpus is small (2 730 training pairs, 138 test texts), and a batch has 2,000 padded tokens in place of "
        "5,000 of the text base recipe and training 400 steps in every preset but full, to be affordable with eight "
        "seeds. All arms share one learning rate.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.weight_tying")
