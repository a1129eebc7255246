"""What a model costs in time and memory against the length of its sequences."""

from __future__ import annotations

import math

import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.lock import machine_lock
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation

SHORTEST = 64
# Seconds for each of the four groups of calls at each length; exceeded only by what the fewest rounds take.
SECONDS = 0.8
# What the reference has of the arm: its size, and nothing else.
SIZES = ("d_model", "n_heads", "d_head", "d_ff", "ff_factor", "encoder_layers", "decoder_layers")


def measured_lengths(longest: int, shortest: int = SHORTEST) -> list[int]:
    """Powers of two from ``shortest`` to ``longest``; the greatest one up to ``longest`` where that is less."""
    top = 2 ** int(math.log2(longest))
    first = min(top, shortest)
    return [length for length in (2**i for i in range(top.bit_length())) if first <= length <= top]


def batch_rows(lengths: list[int], batch_tokens: int) -> dict[int, int]:
    """Sentences of each length, of which a batch has the same number of tokens at every length."""
    at_longest = max(1, batch_tokens // (2 * lengths[-1]))
    return {length: at_longest * lengths[-1] // length for length in lengths}


class Throughput:
    """Times and memory by length, beside a reference model that is timed in turn with the model.

    Every batch has the same number of tokens: ``data.batch_tokens / 2`` of source and of target or a little less, and
    one sentence of the longest length at least. All sentences have exactly L tokens of source and L to predict, none of
    them padding. Lengths are the powers of two from 64 up to ``data.max_length``. The reference is the default recipe
    (sinusoidal positions, 32-bit, parallel training) in the model's size. The model itself is left as it is, trained or
    not; the machine is locked meanwhile, which the process must not hold in a shared way then.

    Metrics, ``NAME/L``, medians:
        ``forward_ms``, ``train_step_ms``: of one batch; ``forward_ratio``, ``train_step_ratio``: over the reference's.
        ``source_tokens_per_second``, ``target_tokens_per_second``: in training.
        ``decode_cached_tokens_per_second``, ``decode_uncached_tokens_per_second`` (up to L = 512): greedy, of a whole
        batch, encoding included; reckoned from steps at four places of the target.
        ``scores_ms``, ``peak_memory_mb``: of scores and values alone (``workloads.scores_call``), by the kernel that
        torch chooses, and with ``_math`` and ``_fused`` by those; memory is what is allocated beyond queries, keys and
        values, all heads and sentences of a batch together. None for models without such attention.
    Others: ``forward_exponent``, ``scores_exponent``, ``memory_exponent`` (and ``_math``, ``_fused``): local exponent
    of one sentence's cost over the last octave. ``matmul_peak_gflops``, ``work_doubling_ratio``, ``timed_repeats`` (the
    fewest of any median; 30 where there was time).

    Artifacts: ``throughput_timings`` (all medians with their interquartile ranges) and ``throughput_notes``.

    Args:
        shortest: shortest length.
        seconds: time for each of four groups of calls at each length.
    """

    name = "throughput"
    exclusive = True

    def __init__(self, shortest: int = SHORTEST, seconds: float = SECONDS) -> None:
        self.shortest, self.seconds = shortest, seconds

    def measure(self, run: Evaluation) -> Measured:
        """See the class.

        Raises:
            ConfigError: where the model cannot take so long sequences.
            TimingError: where twice the work does not take longer.
        """
        # Lightning's import is not to be paid by those who only want to know what measures there are.
        from transformer_ablate.measures.benchmark import Duel
        from transformer_ablate.measures.workloads import Contestant

        device = run.model.device
        lengths = measured_lengths(run.recipe.data.max_length, self.shortest)
        run.model.check_lengths(lengths[-1], lengths[-1])
        sizes = len(run.task.source_vocabulary), len(run.task.target_vocabulary)
        # Dropout draws from the global generator.
        with machine_lock(exclusive=True), torch.random.fork_rng([device] if device.type == "cuda" else []):
            plain = Recipe().replace({f"model.{name}": getattr(run.recipe.model, name) for name in SIZES})
            duel = Duel(
                Contestant(run.recipe, run.model, sizes, device),
                Contestant(plain, build_model(plain.model, *sizes, 0), sizes, device),
                sizes,
                batch_rows(lengths, run.recipe.data.batch_tokens),
                self.seconds,
            )
            return duel.result()
