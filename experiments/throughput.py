"""What do encodings, architectures, kernels and precisions cost, and how does it grow with the length?"""

from __future__ import annotations

from typing import Any

from experiments._positions import DELTAS
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Value, difference
from transformer_ablate.study.declarations import Cell, Contrast, FromBase, Study, Variant
from transformer_ablate.study.rules import Beyond, Deterministic, Holds, Within
from transformer_ablate.tokens import longest_output

CORE = ("sinusoidal", "rope", "t5", "shaw")
ROWS = FromBase("rows to 4 N", lambda base: {"rows": longest_output(4 * base.data.max_length + 2)})


def cell(name: str, longest: int, level: str, title: str, metric: str = "forward_ms", **delta: Any) -> Cell:
    """A model as it starts: nothing is trained, since weights do not change what a pass costs."""
    sizes = {
        "data.task": "copy",
        "data.max_length": longest,
        "data.train_examples": 4,
        "data.valid_examples": 2,
        "data.test_examples": 2,
        "data.batch_tokens": 4 * (longest + 2),
        "train.max_steps": 0,
        "train.warmup_steps": 0,
        "model.d_model": 64,
        "model.d_ff": 256,
        **{field.replace("__", "."): value for field, value in delta.items()},
    }
    return Cell(name, "synthetic", sizes, metric, title, axis="tokens", level=level, measures=("throughput", "size"))


def grows(key: str) -> tuple[Value]:
    """An exponent of the plain Transformer."""
    return (Value("sinusoidal", key),)


STUDY = Study(
    name="throughput",
    question="What do encodings, architectures, kernels and precisions cost, and how does it grow with the length?",
    cells=(
        cell("time", 512, "core", "a forward pass, 2+2 layers of width 64, 64 to 512 tokens"),
        cell("long", 2_048, "claims", "scores and values alone, 64 to 2 048 tokens", "scores_ms"),
        cell("wide", 512, "claims", "a forward pass, 2+2 layers of width 512, 64 to 512 tokens",
             model__d_model=512, model__n_heads=8, model__d_ff=2_048),
        Cell("g2p", "g2p", {"data.split": "stem"}, "per", "pronounce English words of unseen families", figure=False,
             level="further"),
        cell("longest", 16_384, "further", "scores and values alone, 64 to 16 384 tokens", "scores_ms"),
    ),
    variants=(
        *(Variant(name, DELTAS[name][0] if name != "sinusoidal" else {}, None if name == "sinusoidal" else ("time",),
                  why=DELTAS[name][1]) for name in CORE),
        Variant("gru", {"model.architecture": "gru", "model.architecture_options": {"reader": "additive"}},
                ("time",), why="a recurrent network with attention, equal parameters (Bahdanau et al. 2015)"),
        Variant("gru-same-width", {"model.architecture": "gru", "model.architecture_options": {"reader": "start"},
                "model.matched": False}, ("wide",), "claims",
                "a recurrent network of the same width, without attention (Sutskever et al. 2014)"),
        Variant("convs2s", {"model.architecture": "convs2s"}, ("time",),
                why="convolutions with attention, equal parameters (Gehring et al. 2017)"),
        Variant("none", DELTAS["none"][0], ("time",), "further", DELTAS["none"][1]),
        Variant("alibi", DELTAS["alibi"][0], ("time",), "further", DELTAS["alibi"][1]),
        Variant("learned", {"model.position": "learned", "model.position_options": ROWS}, ("time",), "further",
                DELTAS["learned"][1]),
        Variant("kerple", {"model.position": "kerple"}, ("time",), "further", "a learned penalty (Chi et al. 2022)"),
        Variant("fire", {"model.position": "fire"}, ("time",), "further", "a bias by a small network (Li et al. 2024)"),
        Variant("bf16", {"train.precision": "bf16-mixed"}, ("time", "wide", "g2p"), "further",
                "bfloat16 where it is safe"),
    ),
    contrasts=tuple(Contrast(arm, "sinusoidal", f"time/forward_ratio/{length}")
                    for arm in ("rope", "t5", "shaw", "gru", "convs2s") for length in (64, 512)),
    claims=(
        Claim("attention-quadratic-scores", "The time of attention's scores grows with the square of the length.",
              "Vaswani et al. 2017, table 1", "scores and values alone, last octave to 2 048: exponent ≥ 1.8",
              Beyond(0.0, bound=1.8), grows("long/scores_exponent"), remark="yes"),
        Claim("attention-quadratic-model", "The time of a whole Transformer grows with the square of the length.",
              "course notes", "forward pass, d 512, last octave to 512: exponent ≥ 1.5",
              Beyond(0.0, bound=1.5), grows("wide/forward_exponent"),
              remark="by operations 1.13 in this octave: in an encoder the quadratic part is L / (L + 6 d)"),
        Claim("memory-quadratic-math", "By plain products attention's memory grows with the square of the length.",
              "course notes", "scores and values by plain products, last octave to 2 048: exponent ≥ 1.8",
              Deterministic(1.8), grows("long/memory_exponent_math"), kind="exact", remark="yes"),
        Claim("memory-quadratic-fused", "By a fused kernel attention's memory grows with the square of the length.",
              "course notes", "scores and values by the fused kernel, last octave to 2 048: exponent ≥ 1.8",
              Deterministic(1.8), grows("long/memory_exponent_fused"), kind="exact",
              remark="no: it never holds all scores at once (Dao et al. 2022)"),
        Claim("attention-cheaper-than-rnn-operations", "Self-attention computes less than a recurrence where L < d.",
              "Vaswani et al. 2017, section 4", "operations of one layer: L²d against Ld² cross at L ≈ d",
              Holds("attention-cheaper-crossover"), kind="exact", remark="by operations, not by time"),
        Claim("attention-cheaper-than-rnn-time", "Self-attention is faster than a recurrence at L = d / 2.",
              "Vaswani et al. 2017, section 4",
              "forward pass at L 256, both 512 wide: GRU without attention over sinusoidal, within each run, > 1",
              Beyond(0.0, bound=1.0), (Value("gru-same-width", "wide/forward_ratio/256"),),
              remark="a recurrence takes L steps one after the other"),
        Claim("half-precision-doubles", "bfloat16 nearly doubles throughput and costs no quality.",
              "course notes", "tokens/s of training at d 512, L 512: bf16 over fp32 ≥ 1.6 (time ≤ .625)",
              Beyond(0.0, bound=1 / 1.6, below=True), (Value("bf16", "wide/train_step_ratio/512"),),
              remark="depends on size and device", cuda=True),
        Claim("half-precision-keeps-quality", "bfloat16 trains to the same loss.", "course notes",
              "G2P, hard-target NLL: bf16 − fp32, TOST ±.01 nats", Within(0.01),
              (difference("bf16", "sinusoidal", "g2p/nll/test"),), cuda=True),
    ),
    notes=(
        "Every run has the machine to itself (a lock waits for other runs of this user) and is timed in turns with a "
        "reference of the same size, sinusoidal: ratios are of two things in one process. Models are untrained.",
        "Two rules were changed after a first run. attention-cheaper-than-rnn-time was judged by the difference in "
        "milliseconds between runs and inconclusive (−27, interval −84 to 30), since the machine's speed changes from "
        "run to run; it is now judged by the ratio within each run. The claims on memory were judged by an interval "
        "over seeds, which has no width: the same bytes are allocated in each; they are now decided as counts. The "
        "first of these speaks of 256 tokens only (see the ratios at others) and of one width: a GRU of that width has "
        "less than half of the Transformer's parameters.",
        "Which kernel ran, the threads and the peak of a matrix product in the same process are in the artifact "
        "throughput_notes of each run. A run fails where twice the work does not take longer.",
        "Memory by the formula continues to 128k and 1M tokens at the base size (8 heads, one layer, one sentence, 32 "
        "bits): 8 L² scores take 550 GB and 35 TB by plain products; a fused kernel's own need grows with L.",
    ),
    left_out=(
        ("fp8", "Lightning's fp8 needs transformer-engine and a Hopper GPU; no machine with one has run this study"),
        ("tf32, compile", "they are settings of a GPU; on this CPU compile costs 30 s a shape and gains little"),
        ("cope, xpos (decoder only)", "they cannot serve the encoder that scores are timed in"),
    ),
)  # fmt: skip

if __name__ == "__main__":
    main([STUDY], program="experiments.throughput")
