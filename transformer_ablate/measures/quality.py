"""How well a model does: likelihood, accuracy, edit distance, each for every test set."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from transformer_ablate.data.examples import TestSet
from transformer_ablate.data.task import TaskData
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation, TeacherForced


def perplexity(nll: float) -> float:
    """``e^nll`` of nats a token; infinite where that overflows."""
    return math.exp(nll) if nll < 700 else math.inf


def likelihood(forced: TeacherForced) -> dict[str, float]:
    """Token-weighted hard-target NLL (nats/token), perplexity and accuracy under the gold prefix."""
    tokens = int(forced.tokens.sum())
    nll = float(forced.nll.sum() / tokens)
    return {"nll": nll, "ppl": perplexity(nll), "token_accuracy": float(forced.right.sum() / tokens)}


def right_by_place(output: Sequence[int], references: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Tokens of the best-met reference, its end counted, that the output has at the same place; and their number."""
    scored = []
    for reference in references:
        right = sum(a == b for a, b in zip(output, reference, strict=False)) + (len(output) == len(reference))
        scored.append((right, len(reference) + 1))
    return max(scored, key=lambda pair: pair[0] / pair[1])


def closest(output: Sequence[int], references: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Edits to the closest reference and that reference's length; the share of edits decides, then the order given."""
    scored = [(Levenshtein.distance(output, reference), len(reference)) for reference in references]
    return min(scored, key=lambda pair: pair[0] / max(1, pair[1]))


class Quality:
    """Likelihood and accuracy, and edit distance of greedy outputs, for each test set.

    Metrics, each ``NAME/TEST``: ``nll``, ``ppl``, ``token_accuracy`` (under the gold prefix, against the first
    reference); ``free_accuracy`` (the same of greedy outputs, place by place, against the best-met reference: what
    teacher forcing hides is the difference); ``em`` (share of outputs that equal a reference); ``edit_distance`` (edits
    over reference length, corpus level, greedy outputs, closest reference), called ``per``, with ``wer`` = 1 - em,
    where inputs have several references. Text (a task with a scorer) is compared as text, whatever its tokens, and
    keeps ``edit_distance``.
    """

    name = "quality"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        valid = likelihood(run.valid)
        metrics = {"valid_nll": valid["nll"], "valid_token_accuracy": valid["token_accuracy"]}
        predictions = []
        for test in run.task.test:
            here = likelihood(run.forced(test))
            free = run.free(test)
            pairs = [closest(o, r) for o, r in zip(free.outputs, test.references[: len(free)], strict=True)]
            distance = sum(edits for edits, _ in pairs) / max(1, sum(length for _, length in pairs))
            met = [right_by_place(o, r) for o, r in zip(free.outputs, test.references[: len(free)], strict=True)]
            here["free_accuracy"] = sum(right for right, _ in met) / sum(tokens for _, tokens in met)
            rows = [prediction(run.task, test, i, output) for i, output in enumerate(free.outputs)]
            if run.exact:
                here["em"] = float(run.forced(test).exact.mean())
            else:
                here["em"] = sum(bool(row["correct"]) for row in rows) / len(rows)
            if run.task.exact or run.task.scorer is not None:
                here["edit_distance"] = distance
            else:
                here["wer"], here["per"] = 1 - here["em"], distance
            metrics |= {f"{name}/{test.name}": value for name, value in here.items()}
            predictions += rows
        return Measured(metrics, {"predictions": predictions})


def prediction(task: TaskData, test: TestSet, i: int, output: list[int]) -> dict[str, object]:
    """What was asked, accepted and said in example i, as text."""
    said = task.target_vocabulary.decode(output)
    accepted = [task.target_vocabulary.decode(reference) for reference in test.references[i]]
    return {
        "bucket": test.name,
        "source": task.source_vocabulary.decode(test.pairs.source[i]),
        "reference": " | ".join(accepted),
        "output": said,
        # One text can be divided into tokens in several ways, and unknown tokens do not say what they stand for.
        "correct": tuple(output) in test.references[i] if task.scorer is None else task.scorer.equal(said, accepted),
    }
