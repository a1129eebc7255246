"""How well a model does: likelihood, accuracy, edit distance, each for every test set."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

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


def closest(output: Sequence[int], references: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Edits to the closest reference and that reference's length; the share of edits decides, then the order given."""
    scored = [(Levenshtein.distance(output, reference), len(reference)) for reference in references]
    return min(scored, key=lambda pair: pair[0] / max(1, pair[1]))


class Quality:
    """Likelihood and accuracy, and edit distance of greedy outputs, for each test set.

    Metrics, each ``NAME/TEST``: ``nll``, ``ppl``, ``token_accuracy`` (under the gold prefix, against the first
    reference); ``em`` (share of outputs that equal a reference); ``edit_distance`` (edits over reference length, corpus
    level, greedy outputs, closest reference), called ``per``, with ``wer`` = 1 - em, where inputs have several
    references.
    """

    name = "quality"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        valid = likelihood(run.valid)
        metrics = {"valid_nll": valid["nll"], "valid_token_accuracy": valid["token_accuracy"]}
        predictions = []
        source_words, target_words = run.task.source_vocabulary, run.task.target_vocabulary
        for test in run.task.test:
            here = likelihood(run.forced(test))
            free = run.free(test)
            pairs = [closest(o, r) for o, r in zip(free.outputs, test.references[: len(free)], strict=True)]
            distance = sum(edits for edits, _ in pairs) / max(1, sum(length for _, length in pairs))
            if run.task.exact:
                here["em"] = float(run.forced(test).exact.mean())
                here["edit_distance"] = distance
            else:
                here["em"] = sum(edits == 0 for edits, _ in pairs) / len(pairs)
                here["wer"], here["per"] = 1 - here["em"], distance
            metrics |= {f"{name}/{test.name}": value for name, value in here.items()}
            for i, output in enumerate(free.outputs):
                predictions.append(
                    {
                        "bucket": test.name,
                        "source": source_words.decode(test.pairs.source[i].tolist()),
                        "reference": " | ".join(target_words.decode(list(r)) for r in test.references[i]),
                        "output": target_words.decode(output),
                        "correct": tuple(output) in test.references[i],
                    }
                )
        return Measured(metrics, {"predictions": predictions})
