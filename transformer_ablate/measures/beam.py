"""What a wider search than the greedy one finds."""

from __future__ import annotations

import numpy as np

from transformer_ablate.core import Hypothesis, beam_search
from transformer_ablate.data.batching import evaluation_batches
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import DECODED_OF_EXACT_TASKS, Evaluation
from transformer_ablate.measures.quality import closest, prediction

WIDTH = 4


def searched(run: Evaluation, n: int, width: int) -> list[Hypothesis]:
    """The best hypothesis of a beam for each of the first ``n`` examples of the first test set."""
    pairs = run.task.test[0].pairs.select(np.arange(n))
    found: dict[int, Hypothesis] = {}
    for batch in evaluation_batches(pairs, run.batch_tokens // width):
        best = (hypotheses[0] for hypotheses in beam_search(run.model, batch.source.to(run.model.device), width))
        found |= dict(zip(batch.indices.tolist(), best, strict=True))
    return [found[i] for i in range(n)]


class Beam:
    """A beam of 4 beside greedy decoding, on up to 256 examples of the test set in distribution.

    Metrics: ``beam_em`` (share of outputs that equal a reference), ``beam_distance`` (edits over reference length,
    closest reference), for tasks with a scorer ``beam_bleu`` and ``beam_chrf``; ``beam_gain`` (nats by which the
    hypothesis is likelier than the greedy one, mean over sentences).
    """

    name = "beam"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        test, task = run.task.test[0], run.task
        n = min(len(test.pairs), DECODED_OF_EXACT_TASKS)
        wide, greedy = (searched(run, n, width) for width in (WIDTH, 1))
        references = test.references[:n]
        pairs = [closest(h.tokens, r) for h, r in zip(wide, references, strict=True)]
        gains = [a.log_probability - b.log_probability for a, b in zip(wide, greedy, strict=True)]
        metrics = {
            "beam_em": float(
                np.mean([bool(prediction(task, test, i, h.tokens)["correct"]) for i, h in enumerate(wide)])
            ),
            "beam_distance": sum(edits for edits, _ in pairs) / max(1, sum(length for _, length in pairs)),
            "beam_gain": float(np.mean(gains)),
        }
        if task.scorer is not None:
            decode = task.target_vocabulary.decode
            scored = task.scorer.score([decode(h.tokens) for h in wide], [[decode(r) for r in of] for of in references])
            metrics |= {f"beam_{name}": scored.values[name] for name in ("bleu", "chrf")}
        return Measured(metrics)
