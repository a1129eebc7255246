"""What the report knows about each metric.

A metric that is not listed here is still reported, under "further metrics", with its bare name.
"""

from __future__ import annotations

from transformer_ablate.metrics.metric import MISSING, Metric
from transformer_ablate.metrics.of_measures import MEASURED

_ALL = (
    Metric("em", "Exact match", "higher", "fraction", "quality",
           "Share of test examples whose greedy output, with its end, equals the reference."),
    Metric("em_oracle", "Exact match, oracle length", "higher", "fraction", "quality",
           "Exact match when the end-of-sequence token is withheld until the reference's length: "
           "separates wrong symbols from a wrong stop."),
    Metric("token_accuracy", "Token accuracy", "higher", "fraction", "quality",
           "Share of non-pad target tokens predicted right given the reference prefix (teacher-forced)."),
    Metric("free_accuracy", "Token accuracy, free-running", "higher", "fraction", "quality",
           "Share of reference tokens, the end counted, that the greedy output has at the same place: what teacher "
           "forcing hides is the difference from token accuracy."),
    Metric("nll", "NLL", "lower", "decimal", "quality",
           "Negative log-likelihood of the hard target, mean over non-pad target tokens, in nats per token; "
           "comparable across label smoothing."),
    Metric("ppl", "Perplexity", "lower", "short", "quality", "exp(NLL)."),
    Metric("edit_distance", "Edit distance", "lower", "decimal", "quality",
           "Levenshtein distance of the free-running output to the reference over the reference's length, on the first "
           "256 examples of each test set."),
    Metric("per", "Phone error rate", "lower", "decimal", "quality",
           "Edit distance in phones (on synthetic tasks: in symbols) to the closest listed pronunciation, over that "
           "pronunciation's length."),
    Metric("wer", "Word error rate", "lower", "fraction", "quality",
           "Share of words whose output equals none of the listed pronunciations."),
    Metric("length_error", "Length error", "lower", "decimal", "quality",
           "Mean absolute difference of decoded and reference length, in tokens; where the target is a function of the "
           "source, on the first 256 examples of each test set."),
    Metric("cap_share", "Share at the cap", "lower", "fraction", "quality",
           "Share of outputs that were cut at the decoding limit without an end; same examples as the length error."),
    Metric("valid_nll", "Validation NLL", "lower", "decimal", "quality",
           "NLL on the in-distribution validation set after the last step, in nats per token."),
    Metric("valid_token_accuracy", "Validation accuracy", "higher", "fraction", "quality",
           "Token accuracy on the in-distribution validation set after the last step, teacher-forced."),
    Metric("rho_90", "Reach, EM ≥ .9", "higher", "short", "quality",
           "Largest length over N up to which every test set has exact match ≥ .9; 0 where the first fails."),
    Metric("rho_50", "Reach, EM ≥ .5", "higher", "short", "quality",
           "Largest length over N up to which every test set has exact match ≥ .5; 0 where the first fails."),
    Metric("bleu", "BLEU", "higher", "short", "quality", "Corpus BLEU, 0 to 100 (sacrebleu)."),
    Metric("chrf", "chrF", "higher", "short", "quality", "Character n-gram F-score, 0 to 100 (sacrebleu)."),
    Metric("ter", "TER", "lower", "short", "quality",
           "Translation edit rate in percent (sacrebleu), on the first test examples."),
    Metric("chrf_copy", "chrF of copying", "", "short", "quality", "chrF of the source copied as it is."),
    Metric("chrf_frequent", "chrF of most frequent", "", "short", "quality",
           "chrF of always saying the most frequent training target."),
    Metric("unknown", "Unknown tokens", "lower", "fraction", "quality",
           "Share of unknown tokens in the test set's source and target."),
    Metric("bits_per_char", "Bits/character", "lower", "decimal", "quality",
           "NLL of the reference in bits over its characters; comparable across vocabularies."),
    Metric("initial_nll", "Initial NLL", "", "decimal", "convergence",
           "Training NLL at the first logged step, in nats per token."),
    Metric("final_nll", "Final NLL", "lower", "decimal", "convergence",
           "Training NLL at the end of the fixed budget, in nats per token."),
    Metric("steps_to_half", "Steps to ½", "lower", "count", "convergence",
           "Optimizer steps until the training NLL has fallen to half of its initial value; seeds that never get there "
           "are left out of the mean and counted."),
    Metric("steps_to_tenth_uniform", "Steps to ⅒ ln V", "lower", "count", "convergence",
           "Updates until the running mean of the training loss is a tenth of ln V, the loss of a uniform guess; one "
           "more than all updates where it never is."),
    Metric("steps_to_tenth", "Steps to ⅒", "lower", "count", "convergence",
           "Optimizer steps until the training NLL has fallen to a tenth of its initial value; seeds that never get "
           "there are left out of the mean and counted."),
    Metric("seconds_to_half", "Seconds to ½", "lower", "short", "convergence",
           "Training seconds until half of the initial NLL, on a shared machine; seeds without are left out."),
    Metric("tokens_to_half", "Tokens to ½", "lower", "si", "convergence",
           "Non-pad target tokens until half of the initial NLL; seeds that never get there are left out."),
    Metric("area", "Area under the curve", "lower", "decimal", "convergence",
           "Mean training NLL over all steps: small where learning is early and deep."),
    Metric("grad_norm_max", "Largest gradient norm", "", "short", "convergence",
           "Largest global gradient norm before clipping."),
    Metric("train_seconds", "Seconds", "lower", "short", "cost",
           "Wall-clock seconds of training, on a shared machine: a rough guide, not a benchmark."),
    Metric("train_tokens_per_second", "Tokens/s", "higher", "si", "cost",
           "Non-pad training tokens per second, on a shared machine: a rough guide, not a benchmark."),
    Metric("padding_share", "Padding", "", "fraction", "cost",
           "Padded slots over all slots of source and target in the first epoch's batches."),
    Metric("parameters", "Parameters", "", "count", "size", "Trainable parameters; tied tensors count once."),
    Metric("flops", "FLOPs", "", "si", "size",
           "Floating-point operations of the forward pass of one example of the longest training length."),
    Metric("diverged", "Diverged", "lower", "fraction", "status",
           "1 where the loss was not finite, ended above .9 ln V, or rose by more than 1 nat above its minimum for 100 "
           "steps."),
)  # fmt: skip
CATALOGUE: dict[str, Metric] = {m.name: m for m in (*_ALL, *MEASURED)}
NEVER_REACHED = ("steps_to_half", "steps_to_tenth", "seconds_to_half", "tokens_to_half")
SHARED_MACHINE = ("train_seconds", "train_tokens_per_second")


def metric_of(key: str) -> Metric:
    """The metric of ``METRIC[/BUCKET]``; unknown names get a plain entry of group ``further``."""
    name = key.partition("/")[0]
    return CATALOGUE.get(name) or Metric(name, name.replace("_", " "), "", "short", "further", "Not described.")


def order_of(name: str) -> int:
    """Position in the catalogue, for sorting; unknown metrics come last."""
    names = list(CATALOGUE)
    return names.index(name) if name in CATALOGUE else len(names)


__all__ = ["CATALOGUE", "MISSING", "NEVER_REACHED", "SHARED_MACHINE", "Metric", "metric_of", "order_of"]
