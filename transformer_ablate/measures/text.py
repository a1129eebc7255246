"""How well a model writes: scores of detokenised text, beside those of two systems that have learnt nothing."""

from __future__ import annotations

from transformer_ablate.data.scores import Scored, bits_per_character, interval, most_frequent, unknown_share
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation

MODEL, COPY, FREQUENT = "model", "copy the source", "most frequent target"


class TextQuality:
    """Corpus-level BLEU, chrF and TER of greedy outputs as text, for tasks that name a scorer; nothing for others.

    Metrics, each ``NAME/TEST``: ``bleu``, ``chrf``, ``ter`` (percentages); ``chrf_copy`` and ``chrf_frequent``, chrF of
    copying the source and of always saying the most frequent training target; ``unknown`` (share of UNK among the
    tokens of source and target); ``bits_per_char`` (likelihood of the first reference, with its end, over its
    characters: comparable where vocabularies differ, if nothing is unknown). The artifact ``text_scores`` has a row for
    each test and system, with signatures and 95 % intervals over resampled examples: of chrF, and of the model's chrF
    less a baseline's.
    """

    name = "text"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        task, scorer = run.task, run.task.scorer
        if scorer is None:
            return Measured({})
        metrics: dict[str, float] = {}
        rows: list[dict[str, object]] = []
        frequent = task.target_vocabulary.decode(most_frequent(task.train.target))
        for test in task.test:
            outputs = [task.target_vocabulary.decode(output) for output in run.free(test).outputs]
            references = [[task.target_vocabulary.decode(r) for r in accepted] for accepted in test.references]
            sources = [task.source_vocabulary.decode(source) for source in test.pairs.source]
            model = scorer.score(outputs, references)
            baselines = {
                COPY: scorer.score(sources, references, ter=False),
                FREQUENT: scorer.score([frequent] * len(test), references, ter=False),
            }
            rows.append({"bucket": test.name, "system": MODEL, **_row(model)})
            for system, scored in baselines.items():
                low, high = interval("chrf", model, scored)
                gain = {"model_gain": model.values["chrf"] - scored.values["chrf"], "gain_low": low, "gain_high": high}
                rows.append({"bucket": test.name, "system": system, **_row(scored), **gain})
            here = {
                **model.values,
                "chrf_copy": baselines[COPY].values["chrf"],
                "chrf_frequent": baselines[FREQUENT].values["chrf"],
                "unknown": unknown_share(test.pairs.source, test.pairs.target),
                "bits_per_char": bits_per_character(
                    float(run.forced(test).nll.sum()), [accepted[0] for accepted in references]
                ),
            }
            metrics |= {f"{name}/{test.name}": value for name, value in here.items()}
        return Measured(metrics, {"text_scores": rows})


def _row(scored: Scored) -> dict[str, object]:
    low, high = interval("chrf", scored)
    signatures = {f"{name}_signature": text for name, text in scored.signatures.items()}
    return {**scored.values, "chrf_low": low, "chrf_high": high, **signatures}
