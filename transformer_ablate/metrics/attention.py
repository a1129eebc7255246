"""What attention looks at."""

from transformer_ablate.metrics.metric import Family, Metric

KINDS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


def of_kind(kind: str, which: str) -> tuple[Metric, ...]:
    """Entropy and diversity of one kind of attention."""
    return (
        Metric(f"attention_entropy_{kind}", f"Entropy, {kind}", "", "decimal",
               f"Mean entropy of the rows of {which} in nats, over layers, heads and queries."),
        Metric(f"attention_entropy_relative_{kind}", f"Relative entropy, {kind}", "", "fraction",
               "The same over the logarithm of the number of keys that a query may see."),
        Metric(f"head_js_{kind}", f"Head diversity, {kind}", "", "decimal",
               f"Mean Jensen–Shannon divergence between two heads of a layer of {which}, in nats."),
        Metric(f"head_js_{kind}_untrained", f"Head diversity untrained, {kind}", "", "decimal",
               "The same in the untrained network."),
    )  # fmt: skip


ATTENTION = Family("attention", "attention", "Attention", artifact="attention_maps", metrics=(
    Metric("attention_entropy", "Attention entropy", "", "decimal",
           "Mean entropy of attention rows in nats, over the kinds of attention that there are."),
    *(metric for kind in KINDS.items() for metric in of_kind(*kind)),
    Metric("aligned_mass", "Aligned mass", "higher", "fraction",
           "Cross-attention weight on the source symbol that the target symbol is a copy of, mean over layers and "
           "heads."),
    Metric("aligned_mass_last", "Aligned mass, last layer", "higher", "fraction", "The same in the last layer."),
    Metric("aligned_mass_best", "Aligned mass, best head", "higher", "fraction",
           "The same for the head that has most of it."),
))  # fmt: skip
