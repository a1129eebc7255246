"""Does RoPE reach longer inputs by position interpolation, NTK-aware scaling, dynamic NTK or YaRN?"""

from __future__ import annotations

from typing import Any

from experiments._cells import STRINGS
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Ratio, Value, difference
from transformer_ablate.study.declarations import Cell, Contrast, FromBase, Study, Variant
from transformer_ablate.study.rules import Beyond, Within

FACTOR = 4  # the longest test strings over the longest of training
BASE = 100  # at 10 000 nearly all pairs turn so slowly that all scalings are the same at these lengths
FAR = ("3", "4")
# YaRN's bounds on turns within the training length: of the eight pairs the first turns 1.6 times, the fifth .16 times.
TURNS = {"alpha": 0.25, "beta": 1.0}
LLAMA = {"alpha": 1.0, "beta": 32.0}


def rotary(base: int = BASE, **options: Any) -> dict[str, Any]:
    """Options of self- and cross-attention alike; ``trained=True`` stands for the training length in tokens."""

    def filled(tokens: int, values: dict[str, Any]) -> dict[str, Any]:
        inner = {name: filled(tokens, value) if isinstance(value, dict) else value for name, value in values.items()}
        return {**inner, "trained_length": tokens} if inner.pop("trained", False) else inner

    text = ", ".join([f"base {base}", *(f"{name}: {value}" for name, value in options.items())])
    value = FromBase(text, lambda recipe: {"base": base, **filled(recipe.data.max_length + 2, options)})
    return {"model.position_options": value, "model.cross_position_options": value}


# Fine-tuning within the same number of steps: the last fifth of them.
TUNED = {"train.adapt_steps": FromBase("a fifth of the steps", lambda recipe: recipe.train.max_steps // 5)}
SCALINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "pi": ({"scaling": "pi", "factor": FACTOR}, "Position interpolation", "Chen et al. 2023"),
    "ntk": ({"scaling": "ntk", "factor": FACTOR}, "NTK-aware scaling", "Peng et al. 2023, section 3.1"),
    "yarn": (
        {"scaling": "yarn", "factor": FACTOR, "trained": True, **TURNS},
        "YaRN, by the paper,",
        "Peng et al. 2023, section 3.2",
    ),
    "yarn-reference": (
        {"scaling": "yarn_reference", "factor": FACTOR, "trained": True, **TURNS},
        "YaRN, by its authors' code,",
        "Peng et al. 2023, code",
    ),
}


def claims_of(arm: str) -> tuple[Claim, ...]:
    """What is said of one scaling, read with no further training."""
    _, who, source = SCALINGS[arm]
    gains = tuple(difference("raw", arm, f"copy/nll/{ratio}") for ratio in FAR)
    # Over what raw reaches within N: a scaling may lose that too, and nothing over nothing would be no value.
    shares = tuple(Ratio((Value(arm, f"copy/em/{ratio}"), Value("raw", "copy/em/1"))) for ratio in FAR)
    return (
        Claim(f"{arm}-extends", f"{who} makes RoPE work better on longer inputs.", source,
              "copy, rotary cross-attention, NLL at 3× and 4×: raw − scaled", Beyond(0.05), gains,
              remark="it helps perplexity in language models; exact tasks are open"),
        Claim(f"{arm}-fixes", f"{who} lets RoPE keep at least half of its exact match on longer inputs.", source,
              "copy, rotary cross-attention, EM at 3× and 4× over raw's EM within N ≥ .5",
              Beyond(0.0, bound=0.5, counted=True), shares, remark="open"),
        Claim(f"{arm}-keeps-short", f"{who} costs nothing within the training length.", source,
              "copy, rotary cross-attention, NLL within N: scaled − raw, ±.02", Within(0.02),
              (difference(arm, "raw", "copy/nll/1"),), remark="open without further training"),
    )  # fmt: skip


STUDY = Study(
    name="rope_scaling",
    question="Does RoPE reach longer inputs by PI, NTK-aware scaling, dynamic NTK or YaRN?",
    one_rate=True,
    cells=(
        Cell(
            "copy",
            "synthetic",
            {
                "data.task": "copy",
                "model.position": "rope",
                "model.cross_position": "rotary",
                "model.position_options": {"base": BASE},
                "model.cross_position_options": {"base": BASE},
            },
            "em",
            "repeat a string of up to N symbols",
            small={**STRINGS, "model.n_heads": 2},
        ),
    ),
    variants=(
        Variant("raw", {}, why="RoPE as it was trained, in self- and in cross-attention"),
        *(
            Variant(arm, rotary(evaluation=options), why=f"trained raw, read with it: {source}")
            for arm, (options, _, source) in SCALINGS.items()
        ),
        Variant("dynamic-ntk", rotary(evaluation={"scaling": "dynamic_ntk", "trained": True}), level="further",
                why="trained raw, read with the base of each sentence's own length (Peng et al. 2023, section 3.3)"),
        Variant("yarn-llama", rotary(evaluation={**SCALINGS["yarn"][0], **LLAMA}), level="further",
                why="YaRN with the bounds that suit LLaMA: at these lengths nearly interpolation"),
        *(
            Variant(f"{arm}-trained", rotary(**SCALINGS[arm][0]), level="further",
                    why="trained with it from the first step, on short strings only")
            for arm in SCALINGS
        ),
        *(
            Variant(f"{arm}-tuned", {**rotary(evaluation=options), **TUNED}, level="further",
                    why="trained raw, with it for the last fifth of the steps, on short strings only, and read with it")
            for arm, (options, _, _) in SCALINGS.items()
        ),
        Variant("raw-10000", rotary(10_000), level="further", why="raw at the usual base"),
        *(
            Variant(f"{arm}-10000", rotary(10_000, evaluation=SCALINGS[arm][0]), level="further",
                    why="at the usual base, trained raw, read with it")
            for arm in SCALINGS
        ),
    ),
    contrasts=tuple(Contrast(arm, "raw", f"copy/nll/{ratio}") for arm in SCALINGS for ratio in FAR),
    claims=tuple(claim for arm in SCALINGS for claim in claims_of(arm)),
    notes=(
        "Every scaling but those called -trained and -tuned is put on at evaluation only (0 steps): its arm trains "
        "exactly the weights of raw; -tuned arms, at equal steps in all, have the scaling in training too for the last "
        "fifth. A scaling covers self-attention and cross-attention, which would otherwise disagree on positions.",
        f"The factor is {FACTOR} at every length, so that short strings show what it costs. Heads are 16 wide and the "
        f"base is {BASE}: at 10 000 the scalings coincide at this size. N = 8 and 500 steps in every preset but full.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main([STUDY], program="experiments.rope_scaling")
