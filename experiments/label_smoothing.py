"""What does label smoothing do to loss, accuracy and calibration?"""

from __future__ import annotations

from experiments._cells import SHORT_WORDS_NOTE, STRINGS, short_words
from transformer_ablate.cli import main
from transformer_ablate.study.claims import Claim, Minus, Value, difference
from transformer_ablate.study.declarations import USUAL_MEASURES, Cell, Contrast, Study, Variant
from transformer_ablate.study.rules import Beyond, Bounded, Holds

HARD, SMOOTH = "hard-targets", "smoothing-0.1"
MEASURES = (*USUAL_MEASURES, "calibration")
UNCERTAIN = ("g2p", "noisy-copy")
SZEGEDY, MULLER = "Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4", "Müller et al. 2019"


def against_scaling(cell: str) -> Minus:
    """Calibration error of smoothing as trained, less that of hard targets after temperature scaling."""
    return Minus((Value(SMOOTH, f"{cell}/ece"), Value(HARD, f"{cell}/ece_scaled")))


STUDY = Study(
    name="label_smoothing",
    question="What does label smoothing do to loss, accuracy and calibration?",
    cells=(
        short_words("calibration", delta={"data.valid_examples": 2_500}),
        Cell(
            "noisy-copy",
            "synthetic",
            {"data.task": "noisy-copy", "data.valid_examples": 3_000, "data.test_examples": 1_000},
            "nll",
            "repeat a string; a tenth of the labels are wrong",
            figure=False,
            measures=MEASURES,
            small=STRINGS,
            gate=False,
        ),
        Cell(
            "copy",
            "synthetic",
            {"data.task": "copy", "data.valid_examples": 2_000},
            "nll",
            "repeat a string of up to N symbols: nothing is uncertain",
            figure=False,
            measures=MEASURES,
            small=STRINGS,
        ),
    ),
    variants=(
        Variant(HARD, {}, why="the base recipe: all probability on the target"),
        Variant(SMOOTH, {"train.label_smoothing": 0.1}, why="a tenth is spread over all classes"),
        *(
            Variant(f"smoothing-{alpha}", {"train.label_smoothing": alpha}, level="further", why=f"α = {alpha}")
            for alpha in (0.05, 0.2, 0.3)
        ),
    ),
    contrasts=(
        *(Contrast(SMOOTH, HARD, f"{cell}/{metric}") for cell in UNCERTAIN for metric in ("ece", "brier")),
        Contrast(SMOOTH, HARD, "g2p/nll/test"),
        Contrast(SMOOTH, HARD, "g2p/per/test"),
        Contrast(SMOOTH, HARD, "copy/ece"),
    ),
    claims=(
        Claim(
            "smoothing-hurts-perplexity",
            "Label smoothing makes perplexity worse.",
            "Vaswani et al. 2017, section 5.4",
            "g2p and noisy copy, NLL of hard targets: smoothing .1 − none > 0",
            Beyond(0.0),
            (difference(SMOOTH, HARD, "g2p/nll/test"), difference(SMOOTH, HARD, "noisy-copy/nll/1")),
            remark="4.67 → 4.92 in the source (table 3 row D)",
        ),
        Claim(
            "smoothing-hurts-perplexity-floor",
            "With label smoothing the loss on a task without uncertainty cannot fall to zero.",
            SZEGEDY,
            "copy, NLL of hard targets: at least −ln(1 − α + α/V), less .005 for models that have not converged",
            Bounded("smoothing-floor", below=False, slack=0.005, near=0.05),
            (Value(SMOOTH, "copy/nll/1"),),
            kind="exact",
            remark="theory: .0984 for V 16, .1026 for V 40; special tokens count in V",
        ),
        Claim(
            "smoothing-improves-accuracy",
            "Label smoothing improves accuracy.",
            "Vaswani et al. 2017, section 5.4",
            "g2p, PER: smoothing .1 at least .3 point below none",
            Beyond(0.003, below=True),
            (difference(SMOOTH, HARD, "g2p/per/test"),),
            remark="+.5 BLEU in the literature; eight seeds are too few to see so small a gain",
        ),
        Claim(
            "smoothing-calibrates-noisy",
            "Label smoothing makes probabilities more honest where labels are uncertain.",
            MULLER,
            "g2p and noisy copy, ECE: smoothing .1 − none < 0",
            Beyond(0.0, below=True),
            tuple(difference(SMOOTH, HARD, f"{cell}/ece") for cell in UNCERTAIN),
            remark="yes for networks that are overconfident",
        ),
        Claim(
            "smoothing-calibrates-clean",
            "Label smoothing makes probabilities more honest where nothing is uncertain.",
            MULLER,
            "copy, ECE: smoothing .1 − none < 0",
            Beyond(0.0, below=True),
            (difference(SMOOTH, HARD, "copy/ece"),),
            remark="no: theory says + α (1 − 1/V)",
        ),
        Claim(
            "smoothing-clean-ece",
            "Where nothing is uncertain, label smoothing costs a calibration error of α (1 − 1/V).",
            "Szegedy et al. 2016, section 7",
            "exact: the optimum of the smoothed loss",
            Holds("smoothing-clean-ece"),
            kind="exact",
        ),
        Claim(
            "smoothing-beats-scaling",
            "Label smoothing calibrates better than one temperature fitted afterwards.",
            f"{MULLER}; Guo et al. 2017",
            "g2p and noisy copy, ECE: smoothing .1 as trained − none after temperature scaling < 0",
            Beyond(0.0, below=True),
            tuple(against_scaling(cell) for cell in UNCERTAIN),
            remark="one scalar does as well",
        ),
        Claim(
            "smoothing-beats-scaling-clean",
            "Label smoothing calibrates better than one temperature fitted afterwards, where nothing is uncertain.",
            f"{MULLER}; Guo et al. 2017",
            "copy, ECE: smoothing .1 as trained − none after temperature scaling < 0",
            Beyond(0.0, below=True),
            (against_scaling("copy"),),
            remark="by construction smoothing costs α (1 − 1/V) here",
        ),
    ),
    notes=(
        "All losses are of hard targets, which alone are comparable across α. Temperature scaling, the rival, is a "
        "measure of every arm: metrics with “scaled” in their name.",
        "The claims are about ECE under the gold prefix. Free-running, where a model goes by its own words, it stands "
        "in the table and in the picture beside it, and need not point the same way.",
        "Calibration counts validation and test tokens together, about 20 000 in each cell, hence larger validation "
        "sets than in other studies. On deterministic copying both arms are right everywhere: it is the check of "
        "theory, and its classes are V symbols and the special tokens.",
        SHORT_WORDS_NOTE,
        "Copying has d 32, N 8 and 500 steps in every preset but full. All arms share one learning rate.",
    ),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.label_smoothing")
