"""What is known layer by layer: where positions can be read, how large gradients are."""

from transformer_ablate.metrics.metric import LAYER, Family, Metric

UNTRAINED, SHUFFLED = "The same of the untrained network.", "The same with positions shuffled: what chance gives."


def controls(name: str, label: str) -> tuple[Metric, Metric]:
    """What a probe finds where there is nothing learnt, or nothing to find."""
    return (
        Metric(f"{name}_untrained", f"{label}, untrained", "", "decimal", UNTRAINED),
        Metric(f"{name}_shuffled", f"{label}, shuffled", "", "decimal", SHUFFLED),
    )


def slopes(name: str, label: str) -> tuple[Metric, Metric]:
    """How a figure changes over depth."""
    return (
        Metric(f"{name}_slope", f"{label}: slope", "", "decimal", "Least-squares slope over depth, per layer.",
               counts=""),
        Metric(f"{name}_slope_net", f"{label}: net slope", "", "decimal",
               "The slope less that of the untrained network.", counts=""),
    )  # fmt: skip


PROBES = Family("probes", "probes", "Position in the encoder's layers", counts=LAYER, metrics=(
    Metric("probe_r2", "Position probe R²", "higher", "decimal",
           "R² of a ridge regression of the position on the encoder's states at a depth, on held-out random content."),
    Metric("probe_r2_mlp", "Position probe R², MLP", "higher", "decimal", "The same by a small MLP."),
    *controls("probe_r2", "Position probe R²"),
    *controls("probe_r2_mlp", "Position probe R², MLP"),
    Metric("functional_share", "Functional share", "higher", "fraction",
           "Part of the row-centred variance of encoder attention scores that the offset i − j explains."),
    Metric("functional_share_untrained", "Functional share, untrained", "", "fraction",
           "The same in the untrained network."),
    *slopes("probe_r2", "Probe R²"),
    *slopes("functional_share", "Functional share"),
))  # fmt: skip

GRADIENTS = Family("gradients", "gradients", "Gradients by layer", counts=LAYER, metrics=(
    Metric("grad_norm_encoder", "Gradient norm, encoder layer", "", "short",
           "L2 norm of the gradient of a layer's parameters at the end of training, on validation examples."),
    Metric("grad_norm_decoder", "Gradient norm, decoder layer", "", "short", "The same of a decoder layer."),
    Metric("grad_norm_encoder_start", "Gradient norm at the start, encoder layer", "", "short",
           "The same with the initial values that the model was trained from."),
    Metric("grad_norm_decoder_start", "Gradient norm at the start, decoder layer", "", "short",
           "The same of a decoder layer."),
    Metric("grad_norm_min_encoder", "Least gradient norm, encoder", "", "short",
           "The least of the encoder layers' gradient norms at the end of training.", counts=""),
    Metric("grad_norm_min_decoder", "Least gradient norm, decoder", "", "short", "The same of the decoder's layers.",
           counts=""),
    Metric("grad_norm_min_encoder_start", "Least gradient norm at the start, encoder", "", "short",
           "The least of the encoder layers' gradient norms before training.", counts=""),
    Metric("grad_norm_min_decoder_start", "Least gradient norm at the start, decoder", "", "short",
           "The same of the decoder's layers.", counts=""),
))  # fmt: skip
