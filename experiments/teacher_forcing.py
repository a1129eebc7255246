"""What does parallel training under the gold prefix buy, and what does it hide?"""

from __future__ import annotations

from typing import Any

from experiments._cells import words_by_length
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Ratio, Value
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond

SEQUENTIAL: dict[str, Any] = {"train.regime": "sequential"}
RATE = "train_tokens_per_second"


def length_cell(length: int, level: str) -> Cell:
    """Copying strings whose longest target has ``length`` tokens; a few updates are enough to time them."""
    delta = {"data.task": "copy", "data.max_length": length - 2, "train.max_steps": 12, "data.test_examples": 64,
             "data.batch_tokens": 2 * 16 * length, "train.warmup_steps": 5}  # fmt: skip
    return Cell(f"speed-{length}", "synthetic", delta, RATE, f"training speed on targets of up to {length} tokens",
                figure=False, level=level, measures=("convergence", "size"))  # fmt: skip


STUDY = Study(
    name="teacher_forcing",
    question="What does parallel training under the gold prefix buy, and what does it hide?",
    cells=(
        length_cell(16, "core"),
        length_cell(64, "core"),
        length_cell(256, "further"),
        words_by_length(),
    ),
    variants=(
        Variant("parallel", {}, why="all positions at once under the gold prefix: what a Transformer's masks allow"),
        Variant(
            "sequential",
            SEQUENTIAL,
            ("speed-16", "speed-64", "speed-256"),
            why="the same loss position by position, as a recurrent network must",
        ),
        Variant(
            "scheduled",
            {**SEQUENTIAL, "train.sampling": 0.25},
            ("g2p-length", "speed-16", "speed-64"),
            "further",
            "a quarter of the prefix tokens are the model's own (Bengio et al. 2015)",
        ),
    ),
    contrasts=(
        Contrast("parallel", "sequential", f"speed-16/{RATE}"),
        Contrast("parallel", "sequential", f"speed-64/{RATE}"),
    ),
    claims=(
        Claim(
            "teacher-forcing-parallel",
            "Teacher forcing lets a Transformer train all positions at once: over five times as fast at 64 tokens.",
            "course notes; Vaswani et al. 2017, section 3.2.3",
            f"copy, {RATE}, 64 tokens: parallel over sequential > 5",
            Beyond(0.0, bound=5.0),
            (Ratio((Value("parallel", f"speed-64/{RATE}"), Value("sequential", f"speed-64/{RATE}"))),),
            remark="on a CPU too: one large matrix product instead of many small ones",
        ),
        Claim(
            "teacher-forcing-parallel-grows",
            "The advantage of parallel training grows with the length.",
            "course notes",
            f"copy, {RATE}: the ratio at 64 tokens over the ratio at 16 > 1",
            Beyond(0.0, bound=1.0),
            (
                Ratio(
                    (
                        Ratio((Value("parallel", f"speed-64/{RATE}"), Value("sequential", f"speed-64/{RATE}"))),
                        Ratio((Value("parallel", f"speed-16/{RATE}"), Value("sequential", f"speed-16/{RATE}"))),
                    )
                ),
            ),
        ),
    ),
    notes=(
        "Parallel and sequential training compute the same loss and the same gradients (a test holds them to 1e-5): "
        "only their speed can differ. Seconds are of training on a shared machine, both arms alike; the throughput "
        "study measures alone.",
        "Under greedy decoding exact match is the same teacher-forced and free-running by definition. What differs is "
        "token accuracy (under the gold prefix, and of free outputs by position) and, on words, the phone error rate "
        "against one minus the teacher-forced accuracy.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.teacher_forcing")
