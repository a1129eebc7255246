"""What is said about positional encodings, and what decides it in the study ``pe_extrapolation``."""

from __future__ import annotations

from collections.abc import Sequence

from transformer_ablate.study.claims import (
    Claim,
    GapClosed,
    InterquartileMean,
    Mean,
    Minus,
    Ratio,
    Value,
    difference,
)
from transformer_ablate.study.rules import Beyond, Holds, KeepsTo, MoreVariance, Within

ABSOLUTE, RELATIVE = ("sinusoidal", "learned"), ("shaw", "t5", "alibi", "rope")
ENCODINGS = ("none", *ABSOLUTE, *RELATIVE)
# Those that run on every task of the claim about cross-attention: one of each kind.
ONE_OF_EACH = ("none", "sinusoidal", "alibi", "rope")
# Exact match up to 1.5 N, on four tasks.
NEAR = (
    *(f"{cell}/em/{ratio}" for cell in ("copy", "reverse", "sort") for ratio in ("1", "1.25", "1.5")),
    *(f"g2p-length/em/{letters}" for letters in ("7", "8", "9-10")),
)
SETTINGS = {"none": "", "rotary": "+cross"}  # of cross-attention, with what they add to an arm's name


def mean_of(arm: str, keys: Sequence[str]) -> Mean:
    """An arm's mean over several metrics."""
    return Mean(tuple(Value(arm, key) for key in keys))


def exact(name: str, statement: str, source: str, remark: str) -> Claim:
    """A statement that is computed, not trained for."""
    return Claim(name, statement, source, "no training: float64, untrained weights", Holds(name), kind="exact",
                 remark=remark)  # fmt: skip


def longer_contexts(arm: str) -> Ratio:
    """Perplexity of the same tokens behind 4 N tokens of source over that behind N."""
    return Ratio((Value(arm, "continuation/context_ppl/4"), Value(arm, "continuation/context_ppl/1")))


def extrapolates(name: str, arm: str, who: str, source: str, ratio: float, remark: str, cell: str = "copy") -> Claim:
    """An arm keeps its exact match up to ``ratio`` times N."""
    statement = f"{who} work on inputs {ratio:g} times as long as those of training."
    return Claim(name, statement, source, f"{cell}, arm {arm}, EM up to {ratio:g}×", KeepsTo(arm, cell, ratio),
                 remark=remark, learnt=((Value(arm, f"{cell}/em/1"), 0.5),))  # fmt: skip


def near(arms: Sequence[str]) -> InterquartileMean:
    """Exact match of several arms up to 1.5 N."""
    return InterquartileMean(tuple(Value(arm, key) for arm in arms for key in NEAR))


def crossed(encodings: Sequence[str], key: str) -> MoreVariance:
    """Whether cross-attention's setting explains more of the variance than the encoding in self-attention."""
    return MoreVariance({(e, c): e + suffix for e in encodings for c, suffix in SETTINGS.items()}, key)


def cross_decides(cell: str, encodings: Sequence[str], key: str, remark: str) -> Claim:
    """Position in cross-attention explains more than the encoding in self-attention."""
    return Claim(
        f"cross-position-decides-{cell}",
        "Whether cross-attention knows positions matters more than which encoding self-attention has.",
        "this suite's pilots",
        f"{key}: {len(encodings)} encodings × cross-attention none, rotary",
        crossed(encodings, key),
        remark=remark,
    )


EXACT = (
    exact("order-blind-encoder", "Without positional encoding an encoder cannot tell the order of its input.",
          "Vaswani et al. 2017, section 3.5", "holds"),
    exact("order-blind-decoder", "Without positional encoding a causal decoder cannot tell the order of its input.",
          "course notes", "true of one layer, refuted from two on: the causal mask tells"),
    exact("integer-all-channels", "The position's number, added alike to all channels, is no position at all.",
          "course notes", "LayerNorm in pre-LN takes it out; not so for RMSNorm or post-LN"),
    exact("sinusoidal-bounded", "Sinusoidal encodings lie between -1 and 1 at every position.",
          "course notes; Vaswani et al. 2017, section 3.5", "holds"),
    exact("sinusoidal-linear-shift", "PE(p + k) is a linear function of PE(p), the same for all p.",
          "Vaswani et al. 2017, section 3.5", "one rotation a frequency"),
    exact("sinusoidal-wavelengths", "Wavelengths run from 2π to 10000 · 2π.", "Vaswani et al. 2017, section 3.5",
          "refuted as stated: they end at 9646.6 · 2π for d_model 512"),
    exact("sinusoidal-decay", "Dot products of sinusoidal encodings fall monotonically with distance.", "course notes",
          "refuted: they rise again after a few positions"),
    exact("rope-offset-only", "RoPE's scores depend on the offset alone, and it has no parameters.",
          "Su et al. 2021, eq. 16", "holds"),
)  # fmt: skip

REACHES = (
    extrapolates("learned-extrapolates-none", "learned", "Learned encodings", "course notes", 1.5, "expected: no"),
    extrapolates("learned-extrapolates-rotary", "learned+cross", "Learned encodings (with rotary cross-attention)",
                 "course notes", 1.5, "in the pilot yes: cross-attention has the solution"),
    extrapolates("sinusoidal-extrapolates-none", "sinusoidal", "Sinusoidal encodings",
                 "Vaswani et al. 2017, section 3.5", 1.5, "language models break 20 to 50 tokens past the end"),
    extrapolates("sinusoidal-extrapolates-rotary", "sinusoidal+cross",
                 "Sinusoidal encodings (with rotary cross-attention)", "Vaswani et al. 2017, section 3.5", 1.5, ""),
    extrapolates("rope-extrapolates-none", "rope", "Rotary encodings", "course notes", 4,
                 "refuted for language models without scaling"),
    extrapolates("rope-extrapolates-rotary", "rope+cross", "Rotary encodings (in cross-attention too)",
                 "course notes", 4, "refuted for language models without scaling"),
    extrapolates("rope-extrapolates-literal-none", "rope", "Rotary encodings trained to 2048", "course notes", 4,
                 "2048 to 8192: for --preset full --cells literal-2048", "literal-2048"),
    extrapolates("rope-extrapolates-literal-rotary", "rope+cross",
                 "Rotary encodings (in cross-attention too) trained to 2048", "course notes", 4,
                 "2048 to 8192: for --preset full --cells literal-2048", "literal-2048"),
    extrapolates("alibi-extrapolates-exact", "alibi", "Models with ALiBi", "Press et al. 2022", 2,
                 "the paper's claim is on perplexity; exact copying is another matter"),
)  # fmt: skip

# Token accuracy where exact match may be 0 in all arms and leave no variance to divide.
DECIDES = (
    cross_decides("copy", ENCODINGS, "copy/token_accuracy/1.5", "by construction: target and source share an index"),
    cross_decides(
        "skip-copy", ONE_OF_EACH, "skip-copy/token_accuracy/1.5", "the offset varies: an index does not help"
    ),
    cross_decides("duplicate", ONE_OF_EACH, "duplicate/token_accuracy/1.5", "half by construction"),
    cross_decides("g2p", ENCODINGS, "g2p-length/per/9-10", "open: letters and phones share no index exactly"),
)

PAST = ("copy/em/1.25", "copy/em/1.5", "copy/em/2")
SORTED = ("sort/em/1.25", "sort/em/1.5")
CROSSED_ARMS = tuple(f"{name}+cross" for name in ENCODINGS)


def within_n(*arms: str) -> tuple[tuple[Value, float], ...]:
    """Arms that must have learnt to copy within N before anything is said of them."""
    return tuple((Value(arm, "copy/em/1"), 0.5) for arm in arms)


def randomised(encoding: str) -> tuple[Claim, Claim]:
    """What randomised positions gain past the training length, and what they cost within it."""
    arm, source = f"{encoding}-randomised", "Ruoss et al. 2023"
    gain = Minus((mean_of(arm, PAST), mean_of(encoding, PAST)))
    cost = difference(arm, encoding, "copy/valid_nll")
    return (
        Claim(f"randomised-helps-{encoding}", "Positions drawn at random from a longer range help on longer inputs.",
              source, "copy, cross none, EM at 1.25–2×, mean", Beyond(0.05, counted=True), (gain,),
              remark="in the paper they help", learnt=within_n(encoding)),
        Claim(f"randomised-costs-{encoding}", "At equal steps they cost nothing within the training length.",
              source, "copy, cross none, validation NLL", Within(0.01), (cost,), remark="they cost training steps",
              learnt=within_n(encoding)),
    )  # fmt: skip


def faster(name: str, arm: str, who: str, source: str) -> Claim:
    """An arm needs fewer steps than learned encodings."""
    return Claim(name, f"{who} encodings train faster than learned ones.", source,
                 "copy, cross none, steps to a tenth of a uniform guess's loss", Beyond(0.0, below=True),
                 (difference(arm, "learned", "copy/steps_to_tenth_uniform"),),
                 remark="seeds that never get there count as one step more than all")  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    *EXACT,
    *REACHES,
    Claim(
        "alibi-extrapolates-perplexity",
        "With ALiBi the perplexity of the same tokens does not suffer from contexts longer than those of training.",
        "Press et al. 2022, section 4",
        "continuation, the same tokens behind 4 N and N tokens of source: ratio of perplexities ≤ 1.05",
        Beyond(0.0, below=True, bound=1.05),
        (longer_contexts("alibi"),),
        remark="it does not, as attention hardly looks at what is far; sinusoidal positions, which must suffer by as "
        "much as is allowed here, show that the measure can tell",
        learnt=((longer_contexts("sinusoidal"), 1.05),),
    ),
    Claim(
        "integer-too-poor",
        "The number of the position times a learned vector is too poor a position to learn from.",
        "course notes",
        "copy, cross none, EM within N: integer − sinusoidal",
        Beyond(0.05, below=True, counted=True),
        (difference("integer", "sinusoidal", "copy/em/1"),),
        learnt=within_n("sinusoidal"),
    ),
    Claim(
        "relative-beats-absolute",
        "Relative encodings beat absolute ones.",
        "Shaw et al. 2018; course notes",
        "copy, reverse, sort, G2P by length, cross none: interquartile mean of EM up to 1.5×",
        Beyond(0.05, counted=True),
        (Minus((near(RELATIVE), near(ABSOLUTE))),),
        remark="mixed in the literature; EM within N is part of it, so that slow learning counts too",
        learnt=within_n(*RELATIVE, *ABSOLUTE),
    ),
    *DECIDES,
    Claim(
        "no-position-sorts-best",
        "Where order does not matter, no positional encoding is best.",
        "this suite's pilots",
        "sort, EM at 1.25–1.5×: none − each encoding",
        Beyond(0.05, counted=True),
        tuple(Minus((mean_of("none", SORTED), mean_of(name, SORTED))) for name in ENCODINGS if name != "none"),
        remark="every seed must be beyond the margin in all six comparisons; the pilot says yes",
    ),
    Claim(
        "learned-equals-sinusoidal",
        "Learned and sinusoidal encodings give nearly identical results.",
        "Vaswani et al. 2017, table 3 row E",
        "G2P, unseen words of up to 7 letters, PER, ±1 point",
        Within(0.01),
        (difference("learned", "sinusoidal", "g2p-length/per/7"),),
        remark="25.7 against 25.8 BLEU in the paper",
    ),
    *randomised("sinusoidal"),
    *randomised("rope"),
    Claim(
        "end-of-sequence-bottleneck",
        "Past the training length models fail because they stop at the wrong place.",
        "Newman et al. 2020",
        "copy, rotary cross-attention, 3×: part of the gap to EM within N that the oracle length closes ≥ .5",
        Beyond(0.0, bound=0.5, counted=True),
        (GapClosed(tuple(Mean(tuple(Value(arm, f"copy/{key}") for arm in CROSSED_ARMS))
                         for key in ("em/3", "em_oracle/3", "em/1"))),),
        remark="partly",
    ),
    faster("rope-trains-faster", "rope", "Rotary", "Su et al. 2021, section 4"),
    faster("rope-trains-faster-sinusoidal", "sinusoidal", "Sinusoidal", "course notes"),
)  # fmt: skip
