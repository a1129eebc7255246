"""Whether a model is as sure as it is right."""

from transformer_ablate.metrics.metric import Family, Metric

CALIBRATION = Family("calibration", "calibration", "Calibration", artifact="reliability", metrics=(
    Metric("ece", "ECE", "lower", "decimal",
           "Expected calibration error of token probabilities under the gold prefix, in distribution: 15 bins of "
           "equal width."),
    Metric("ece_mass", "ECE, equal mass", "lower", "decimal", "The same with 15 bins of equally many tokens."),
    Metric("brier", "Brier score", "lower", "decimal",
           "Mean squared distance of the predicted distribution from the reference token, summed over classes."),
    Metric("confidence_gap", "Confidence − accuracy", "", "decimal",
           "Mean confidence less accuracy: above 0 is over-confident."),
    Metric("ece_scaled", "ECE, scaled", "lower", "decimal",
           "ECE after one temperature, fitted on the validation set (Guo et al. 2017)."),
    Metric("ece_mass_scaled", "ECE equal mass, scaled", "lower", "decimal", "Equal-mass ECE after the temperature."),
    Metric("brier_scaled", "Brier, scaled", "lower", "decimal", "Brier score after the temperature."),
    Metric("nll_scaled", "NLL, scaled", "lower", "decimal", "NLL after the temperature, in nats per token."),
    Metric("temperature", "Temperature", "", "short",
           "What logits are divided by for the least validation NLL: above 1 where the model is over-confident."),
    Metric("ece_eos", "ECE of ends", "lower", "decimal", "ECE at the places where the reference ends."),
    Metric("ece_rest", "ECE of content", "lower", "decimal", "ECE at all other places."),
    Metric("ece_free", "ECE, free-running", "lower", "decimal", "ECE of the tokens of greedy outputs."),
    Metric("confidence_gap_free", "Confidence gap, free-running", "", "decimal",
           "Mean confidence less accuracy of the tokens of greedy outputs."),
    Metric("calibration_tokens", "Tokens", "", "count", "Tokens that the calibration figures rest on."),
))  # fmt: skip
