"""Whether a longer source helps or harms: the same target tokens behind more and more of it."""

from __future__ import annotations

import numpy as np

from transformer_ablate.data.examples import PackedSequences, Pairs
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation, teacher_forced
from transformer_ablate.measures.quality import likelihood


def behind_context(pairs: Pairs, context: int, scored: int) -> Pairs:
    """The same targets behind less of their sources.

    Args:
        pairs: with BOS and EOS.
        context: tokens of each source that stay, the last ones; BOS and EOS come on top.
        scored: tokens of each target that stay, the first ones, EOS counted.
    """
    sources = [source[1:-1][-context:].tolist() for source in pairs.source]
    targets = [target[: scored + 1].tolist() for target in pairs.target]
    return Pairs(PackedSequences.from_lists(sources).framed(), PackedSequences.from_lists(targets))


class Context:
    """Perplexity of the same tokens at several lengths of the source (Press et al. 2022, section 4, of contexts).

    Taken are the sources of the longest test set, each once with its last N tokens and once with its last r N for every
    longer test set's ratio r. Scored are the first N tokens of their targets, so that nothing but the source is longer
    than in training. Only for text, where what is nearest tells most: of a string task, the answer would be cut.

    Metrics, each ``NAME/TEST``: ``context_nll`` (nats a token), ``context_ppl``. None where no test set is longer.
    """

    name = "context"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        longest = run.task.test[-1]
        if run.task.scorer is None or longest.ratio <= 1:
            return Measured({})
        n = run.recipe.data.max_length
        metrics: dict[str, float] = {}
        for test in run.task.test:
            context = int(np.floor(test.ratio * n + 1e-9))
            pairs = behind_context(longest.pairs, context, scored=n)
            found = likelihood(teacher_forced(run.model, pairs, run.batch_tokens))
            metrics |= {f"context_{key}/{test.name}": found[key] for key in ("nll", "ppl")}
        return Measured(metrics)
