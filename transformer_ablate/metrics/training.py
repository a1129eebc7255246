"""What training was like: how fast it learnt, what it cost, whether it ended well; and how large the model is."""

from transformer_ablate.metrics.metric import Family, Metric

CONVERGENCE = Family("convergence", "convergence", "", (
    Metric("initial_nll", "Initial NLL", "", "decimal", "Training NLL at the first logged step, in nats per token."),
    Metric("final_nll", "Final NLL", "lower", "decimal",
           "Training NLL at the end of the fixed budget, in nats per token."),
    Metric("steps_to_half", "Steps to ½", "lower", "count",
           "Optimizer steps until the training NLL has fallen to half of its initial value; seeds that never get there "
           "are left out of the mean and counted.", never_reached=True),
    Metric("steps_to_tenth_uniform", "Steps to ⅒ ln V", "lower", "count",
           "Updates until the running mean of the training loss is a tenth of ln V, the loss of a uniform guess; one "
           "more than all updates where it never is."),
    Metric("steps_to_tenth", "Steps to ⅒", "lower", "count",
           "Optimizer steps until the training NLL has fallen to a tenth of its initial value; seeds that never get "
           "there are left out of the mean and counted.", never_reached=True),
    Metric("seconds_to_half", "Seconds to ½", "lower", "short",
           "Training seconds until half of the initial NLL, on a shared machine; seeds without are left out.",
           never_reached=True),
    Metric("tokens_to_half", "Tokens to ½", "lower", "si",
           "Non-pad target tokens until half of the initial NLL; seeds that never get there are left out.",
           never_reached=True),
    Metric("area", "Area under the curve", "lower", "decimal",
           "Mean training NLL over all steps: small where learning is early and deep."),
    Metric("grad_norm_max", "Largest gradient norm", "", "short", "Largest global gradient norm before clipping."),
))  # fmt: skip

COST = Family("cost", "convergence", "", (
    Metric("train_seconds", "Seconds", "lower", "short",
           "Wall-clock seconds of training, on a shared machine: a rough guide, not a benchmark.",
           shared_machine=True),
    Metric("train_tokens_per_second", "Tokens/s", "higher", "si",
           "Non-pad training tokens per second, on a shared machine: a rough guide, not a benchmark.",
           shared_machine=True),
    Metric("padding_share", "Padding", "", "fraction",
           "Padded slots over all slots of source and target in the first epoch's batches.", measure=""),
))  # fmt: skip

SIZE = Family("size", "size", "", (
    Metric("parameters", "Parameters", "", "count", "Trainable parameters; tied tensors count once."),
    Metric("flops", "FLOPs", "", "si",
           "Floating-point operations of the forward pass of one example of the longest training length."),
))  # fmt: skip

STATUS = Family("status", "convergence", "", (
    Metric("diverged", "Diverged", "lower", "fraction",
           "1 where the loss was not finite, ended above .9 ln V, or rose by more than 1 nat above its minimum for 100 "
           "steps; of fewer than 100 updates only the first is said."),
))  # fmt: skip
