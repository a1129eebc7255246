"""What is left of a model past its training length."""

from __future__ import annotations

import numpy as np

from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation

THRESHOLDS = {"rho_90": 0.9, "rho_50": 0.5}


def reach(exact: list[tuple[float, float]], threshold: float) -> float:
    """Largest length ratio up to which every test set keeps exact match >= threshold; 0 where the first does not.

    Args:
        exact: (ratio, exact match) of the test sets in order of length.
        threshold: tau of the definition rho_tau = (largest such length) / N.
    """
    reached = 0.0
    for ratio, value in exact:
        if value < threshold:
            break
        reached = ratio
    return reached


class Extrapolation:
    """Free and oracle-length exact match, accuracy by position, length error and capped outputs for each test set.

    Metrics: ``em_oracle/TEST`` (EOS withheld until the reference's length: what remains is content, not stopping; only
    where the target is a function of the source, since it is judged under one gold prefix);
    ``length_error/TEST`` (mean absolute difference of lengths, tokens, greedy outputs, closest-length reference);
    ``cap_share/TEST`` (share of greedy outputs that met the limit of twice the source and ten); ``rho_90``, ``rho_50``
    (see :func:`reach`). Artifact ``accuracy_by_position``: share right at each output position under the gold prefix.
    """

    name = "extrapolation"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        metrics: dict[str, float] = {}
        by_position = []
        exact = []
        for test in run.task.test:
            forced, free = run.forced(test), run.free(test)
            errors = [
                min(abs(len(output) - len(reference)) for reference in references)
                for output, references in zip(free.outputs, test.references[: len(free)], strict=True)
            ]
            metrics[f"length_error/{test.name}"] = float(np.mean(errors))
            metrics[f"cap_share/{test.name}"] = float(free.capped.mean())
            if run.exact:
                metrics[f"em_oracle/{test.name}"] = float(forced.exact_with_oracle_length.mean())
                exact.append((test.ratio, float(forced.exact.mean())))
            counts = forced.scored.sum(axis=0)
            for position in np.flatnonzero(counts):
                share = float(forced.right[:, position].sum() / counts[position])
                by_position.append(
                    {"bucket": test.name, "position": int(position), "n": int(counts[position]), "accuracy": share}
                )
        if run.exact:
            metrics |= {name: reach(exact, threshold) for name, threshold in THRESHOLDS.items()}
        return Measured(metrics, {"accuracy_by_position": by_position})
