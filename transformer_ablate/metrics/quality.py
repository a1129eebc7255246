"""How well a model does, on each of its test sets."""

from transformer_ablate.metrics.metric import TEST_SET, Family, Metric

# By the measure of what is left of a model past its training length; it stands among the others here.
EXTRAPOLATION = "extrapolation"


def reach(threshold: str) -> Metric:
    """Up to which length an exact match is kept."""
    return Metric(f"rho_{threshold}0", f"Reach, EM ≥ .{threshold}", "higher", "short",
                  f"Largest length over N up to which every test set has exact match ≥ .{threshold}; 0 where the first "
                  "fails.", counts="", measure=EXTRAPOLATION)  # fmt: skip


QUALITY = Family("quality", "quality", "", counts=TEST_SET, metrics=(
    Metric("em", "Exact match", "higher", "fraction",
           "Share of test examples whose greedy output, with its end, equals the reference."),
    Metric("em_oracle", "Exact match, oracle length", "higher", "fraction",
           "Exact match when the end-of-sequence token is withheld until the reference's length: "
           "separates wrong symbols from a wrong stop.", measure=EXTRAPOLATION),
    Metric("token_accuracy", "Token accuracy", "higher", "fraction",
           "Share of non-pad target tokens predicted right given the reference prefix (teacher-forced)."),
    Metric("free_accuracy", "Token accuracy, free-running", "higher", "fraction",
           "Share of reference tokens, the end counted, that the greedy output has at the same place: what teacher "
           "forcing hides is the difference from token accuracy."),
    Metric("nll", "NLL", "lower", "decimal",
           "Negative log-likelihood of the hard target, mean over non-pad target tokens, in nats per token; "
           "comparable across label smoothing."),
    Metric("ppl", "Perplexity", "lower", "short", "exp(NLL)."),
    Metric("edit_distance", "Edit distance", "lower", "decimal",
           "Levenshtein distance of the free-running output to the reference over the reference's length, on the first "
           "256 examples of each test set."),
    Metric("per", "Phone error rate", "lower", "decimal",
           "Edit distance in phones (on synthetic tasks: in symbols) to the closest listed pronunciation, over that "
           "pronunciation's length."),
    Metric("wer", "Word error rate", "lower", "fraction",
           "Share of words whose output equals none of the listed pronunciations."),
    Metric("length_error", "Length error", "lower", "decimal",
           "Mean absolute difference of decoded and reference length, in tokens; where the target is a function of the "
           "source, on the first 256 examples of each test set.", measure=EXTRAPOLATION),
    Metric("cap_share", "Share at the cap", "lower", "fraction",
           "Share of outputs that were cut at the decoding limit without an end; same examples as the length error.",
           measure=EXTRAPOLATION),
    Metric("valid_nll", "Validation NLL", "lower", "decimal",
           "NLL on the in-distribution validation set after the last step, in nats per token.", counts=""),
    Metric("valid_token_accuracy", "Validation accuracy", "higher", "fraction",
           "Token accuracy on the in-distribution validation set after the last step, teacher-forced.", counts=""),
    reach("9"),
    reach("5"),
))  # fmt: skip

TEXT = Family("quality", "text", "", counts=TEST_SET, metrics=(
    Metric("bleu", "BLEU", "higher", "short", "Corpus BLEU, 0 to 100 (sacrebleu)."),
    Metric("chrf", "chrF", "higher", "short", "Character n-gram F-score, 0 to 100 (sacrebleu)."),
    Metric("ter", "TER", "lower", "short",
           "Translation edit rate in percent (sacrebleu), on the first test examples."),
    Metric("chrf_copy", "chrF of copying", "", "short", "chrF of the source copied as it is."),
    Metric("chrf_frequent", "chrF of most frequent", "", "short",
           "chrF of always saying the most frequent training target."),
    Metric("unknown", "Unknown tokens", "lower", "fraction",
           "Share of unknown tokens in the test set's source and target."),
    Metric("bits_per_char", "Bits/character", "lower", "decimal",
           "NLL of the reference in bits over its characters; comparable across vocabularies."),
))  # fmt: skip

CONTEXT = Family("quality", "context", "", counts=TEST_SET, metrics=(
    Metric("context_nll", "NLL by context", "lower", "decimal",
           "NLL of the same target tokens behind the last 1, 1.25, … times N tokens of their sources, nats per token."),
    Metric("context_ppl", "Perplexity by context", "lower", "short", "exp of it."),
))  # fmt: skip

BEAM = Family("beam", "beam", "A beam of 4 beside greedy decoding", metrics=(
    Metric("beam_em", "Exact match, beam", "higher", "fraction",
           "Share of the best hypotheses of a beam of 4 that equal a reference, in distribution, up to 256 examples."),
    Metric("beam_distance", "Edit distance, beam", "lower", "decimal",
           "Edits of the beam's hypotheses to the closest reference over its length, the same examples."),
    Metric("beam_bleu", "BLEU, beam", "higher", "short", "Corpus BLEU of the beam's hypotheses."),
    Metric("beam_chrf", "chrF, beam", "higher", "short", "chrF of the beam's hypotheses."),
    Metric("beam_gain", "Gain of the search", "", "decimal",
           "Nats by which the beam's hypothesis is likelier than the greedy output, mean over sentences."),
))  # fmt: skip
