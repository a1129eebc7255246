"""Time and memory by length."""

from transformer_ablate.metrics.metric import TOKENS, Family, Metric


def of_scores(suffix: str = "", how: str = "") -> tuple[Metric, ...]:
    """What attention's scores, softmax and values cost alone, by one kernel."""
    return (
        Metric(f"scores_ms{suffix}", f"Scores and values{how}, ms", "lower", "short",
               f"Median milliseconds of attention's scores, softmax and values alone{how}."),
        Metric(f"peak_memory_mb{suffix}", f"Memory of scores{how}, MB", "lower", "short",
               f"Largest memory that they take{how}."),
        Metric(f"scores_exponent{suffix}", f"Exponent of scores{how}", "", "decimal",
               "Local slope of log time over log length in the last octave, of one sentence: a batch's time over its "
               "sentences, of which there are half as many at twice the length.", counts=""),
        Metric(f"memory_exponent{suffix}", f"Exponent of memory{how}", "", "decimal",
               "Local slope of log memory over log length in the last octave, of one sentence: a batch's over its "
               "sentences, so that a bias which they share (T5, Shaw) counts for more than its square.", counts=""),
    )  # fmt: skip


THROUGHPUT = Family("throughput", "throughput", "Time and memory", counts=TOKENS, metrics=(
    Metric("forward_ms", "Forward, ms", "lower", "short",
           "Median milliseconds of a forward pass of a batch with a fixed number of tokens."),
    Metric("forward_ratio", "Forward, ratio", "lower", "decimal",
           "Forward time over that of the reference model (sinusoidal, same size), timed in turns with it."),
    Metric("train_step_ms", "Training step, ms", "lower", "short",
           "Median milliseconds of loss, gradients, clipping and update."),
    Metric("train_step_ratio", "Training step, ratio", "lower", "decimal", "The same over the reference's."),
    Metric("source_tokens_per_second", "Source tokens/s", "higher", "si",
           "Source tokens a second in training, no padding."),
    Metric("target_tokens_per_second", "Target tokens/s", "higher", "si",
           "Target tokens a second in training, no padding."),
    *of_scores(),
    *of_scores("_math", " by plain products"),
    *of_scores("_fused", " by the fused kernel"),
    Metric("forward_exponent", "Exponent of forward", "", "decimal",
           "Local slope of log time over log length in the last octave, whole model, for one sequence.", counts=""),
    Metric("decode_cached_tokens_per_second", "Decoded tokens/s", "higher", "si",
           "Target tokens decoded a second, with a cache."),
    Metric("decode_uncached_tokens_per_second", "Decoded tokens/s, no cache", "higher", "si",
           "The same without a cache."),
    Metric("matmul_peak_gflops", "Peak, GFLOP/s", "", "short", "Rate of a large matrix product in the same process.",
           counts=""),
    Metric("timed_repeats", "Repeats", "", "count", "Least number of timed repetitions.", counts=""),
    Metric("work_doubling_ratio", "Doubling", "", "decimal",
           "Time of twice the work over that of once: near 2 where time is spent on work.", counts=""),
))  # fmt: skip
