"""A small study that shows every part of a report: each rule, a design, a Pareto picture, a recipe, text, artifacts."""

from __future__ import annotations

from typing import Any

from transformer_ablate.study.claims import (
    AtBestSetting,
    Best,
    Claim,
    GapClosed,
    Mean,
    Minus,
    Ratio,
    Value,
    difference,
)
from transformer_ablate.study.declarations import (
    USUAL_MEASURES,
    Cell,
    Contrast,
    Factorial,
    Pareto,
    Steps,
    Study,
    Variant,
)
from transformer_ablate.study.rules import (
    AtBest,
    Beyond,
    Bounded,
    Deterministic,
    FailsMore,
    Holds,
    KeepsTo,
    MoreVariance,
    NeverFails,
    Within,
)

SMALL: dict[str, Any] = {
    "model.d_model": 16,
    "model.d_ff": 48,
    "model.n_heads": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 1,
    "train.max_steps": 24,
    "train.warmup_steps": 2,
    "train.log_every": 4,
}
STRINGS: dict[str, Any] = {
    **SMALL,
    "data.max_length": 4,
    "data.vocab_size": 4,
    "data.train_examples": 800,
    "data.valid_examples": 20,
    "data.test_examples": 30,
    "data.batch_tokens": 240,
}
TEXT: dict[str, Any] = {
    **SMALL,
    "data.tokenizer": "char",
    "data.tokenizer_size": 120,
    "data.max_length": 12,
    "data.batch_tokens": 800,
    "data.valid_examples": 20,
    "data.test_examples": 20,
}
EVERYTHING = (*USUAL_MEASURES, "calibration", "attention", "probes", "gradients")
ROPE, SWIGLU = {"model.position": "rope"}, {"model.ffn": "swiglu"}
EM, FAR, LOSS, CHRF = "copy/em/1", "copy/em/1.5", "copy/valid_nll", "text/chrf/1"
MODERN, SIX = "rope+swiglu", ("copy", "sort")

STUDY = Study(
    name="golden",
    question="Does a report say today what it said yesterday?",
    cells=(
        Cell("copy", "synthetic", {**STRINGS, "data.task": "copy"}, "em", "copy strings", measures=EVERYTHING),
        Cell("sort", "synthetic", {**STRINGS, "data.task": "sort"}, "nll", "sort strings", figure=False),
        Cell("text", "text", TEXT, "chrf", "translate Chinese interface texts into English", figure=False),
        Cell(
            "layers",
            "synthetic",
            {**STRINGS, "data.task": "copy"},
            "probe_r2",
            "where positions are",
            axis="layer",
            measures=("size", "probes"),
        ),
        Cell("never", "synthetic", {**STRINGS, "data.task": "reverse"}, "em", "reverse strings", level="further"),
    ),
    variants=(
        Variant("base", {}, why="the base recipe"),
        Variant("rope", ROPE, (*SIX, "never"), why="positions turn queries and keys"),
        Variant("swiglu", SWIGLU, SIX),
        Variant(MODERN, {**ROPE, **SWIGLU}, ("copy", "sort", "text", "layers"), why="both"),
        Variant("fast", {"train.lr": 2e-2}, ("copy",), why="ten times the rate"),
        Variant("mean", {"model.architecture": "fnn_mean"}, ("copy",)),
        Variant("absent", {"model.position": "none"}, ("copy",), "further"),
    ),
    contrasts=(
        Contrast("rope", "base", EM),
        Contrast("rope", "base", FAR),
        Contrast("swiglu", "base", "sort/nll/1"),
        Contrast(MODERN, "base", CHRF, primary=False),
        Contrast("absent", "base", EM),
    ),
    claims=(
        Claim(
            "decided",
            "Rotary scores depend on the offset alone.",
            "a paper",
            "exact",
            Holds("rope-offset-only"),
            kind="exact",
        ),
        Claim(
            "beyond",
            "RoPE learns more.",
            "people",
            "copy",
            Beyond(0.01, below=True),
            (difference("rope", "base", LOSS),),
        ),
        Claim(
            "family",
            "Everything learns more.",
            "people",
            "copy",
            Beyond(0.0),
            (difference("rope", "base", EM), difference("swiglu", "base", EM)),
        ),
        Claim(
            "counted",
            "RoPE is right more often.",
            "people",
            "copy",
            Beyond(0.0, counted=True),
            (difference("rope", "base", FAR),),
        ),
        Claim(
            "within",
            "SwiGLU costs nothing.",
            "people",
            "sort",
            Within(0.5),
            (difference("swiglu", "base", "sort/nll/1"),),
            remark="theory is silent",
        ),
        Claim("keeps", "RoPE reaches 1.5 times as far.", "people", "copy", KeepsTo("rope", "copy", 1.5)),
        Claim("fails", "A fast rate fails.", "people", "copy", FailsMore("fast", "base", "copy")),
        Claim("never-fails", "RoPE never fails.", "people", "copy", NeverFails(("rope", MODERN), "copy")),
        Claim(
            "at-best",
            "RoPE at its best rate.",
            "people",
            "copy",
            AtBest({"base": NeverFails(("base",), "copy"), "fast": NeverFails(("fast",), "copy")}, LOSS),
        ),
        Claim(
            "bound",
            "An average loses order.",
            "theory",
            "copy",
            Bounded("bag-of-words-bound", slack=0.2, near=0.9),
            (Value("mean", EM),),
            kind="exact",
        ),
        Claim(
            "count",
            "SwiGLU has as many parameters.",
            "arithmetic",
            "copy",
            Deterministic(1.2, below=True),
            (Ratio((Value("swiglu", "copy/parameters"), Value("base", "copy/parameters"))),),
            kind="exact",
        ),
        Claim(
            "variance",
            "The feed-forward matters more than position.",
            "people",
            "sort",
            MoreVariance(
                {
                    ("sin", "relu"): "base",
                    ("rope", "relu"): "rope",
                    ("sin", "swiglu"): "swiglu",
                    ("rope", "swiglu"): MODERN,
                },
                "sort/nll/1",
            ),
        ),
        Claim(
            "gap",
            "Half of the gap is closed.",
            "people",
            "copy",
            Beyond(0.0, bound=0.5),
            (GapClosed((Value("base", LOSS), Value("rope", LOSS), Value(MODERN, LOSS)), lower=True),),
        ),
        Claim(
            "best",
            "The best beats the base.",
            "people",
            "copy",
            Beyond(0.0),
            (Minus((Best(("rope", "swiglu"), EM, lowest=False), Value("base", EM))),),
        ),
        Claim(
            "setting",
            "At its best rate it is good.",
            "people",
            "copy",
            Beyond(0.0),
            (Mean((AtBestSetting(("base", "fast"), EM, LOSS), Value("rope", EM))),),
            learnt=((Value("base", EM), 0.95),),
        ),
        Claim(
            "cuda", "A device is faster.", "people", "copy", Beyond(0.0), (difference("rope", "base", EM),), cuda=True
        ),
        Claim(
            "missing",
            "What was not run decides nothing.",
            "people",
            "reverse",
            Beyond(0.0),
            (difference("rope", "base", "never/em/1"),),
        ),
    ),
    notes=("A note with a * and a | in it.",),
    left_out=(("fp8", "needs a device that has it"),),
    pareto=Pareto(("copy/parameters", "copy/flops"), (EM, LOSS)),
    factorial=Factorial(
        ("position", "ffn"), {"base": (-1, -1), "rope": (1, -1), "swiglu": (-1, 1), MODERN: (1, 1)}, ("sort/nll/1",)
    ),
    steps=Steps(LOSS, {"base": ("rope", "swiglu"), MODERN: ("rope", "swiglu")}),
)
