"""How the gradient is spread over the layers, at the start and at the end of training."""

from __future__ import annotations

import copy

import torch
from torch import nn

from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.data.examples import Batch, decoder_inputs
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.capture import decoder_blocks, encoder_blocks
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.training.losses import cross_entropy

EXAMPLES = 128


def block_norms(blocks: list[nn.Module]) -> list[float]:
    """L2 norm of the gradient of each block's parameters; those that have none count as zero."""
    squares = []
    for block in blocks:
        gradients = [p.grad for p in block.parameters() if p.grad is not None]
        squares.append(sum(float(g.double().square().sum()) for g in gradients))
    return [square**0.5 for square in squares]


@torch.enable_grad()
def gradient_norms(model: Seq2Seq, batch: Batch, alpha: float, smoothing: str) -> dict[str, list[float]]:
    """Norms by kind of block (``encoder``, ``decoder``), first layer first, of the training loss without dropout.

    Norms over the batch use its own statistics, as in training. The model itself is left as it is.
    """
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        module.training = hasattr(module, "running_mean")
    model.zero_grad(set_to_none=True)
    logits = model(batch.source, decoder_inputs(batch.target))
    cross_entropy(logits, batch.target[:, 1:], alpha, smoothing).backward()
    return {"encoder": block_norms(encoder_blocks(model)), "decoder": block_norms(decoder_blocks(model))}


class Gradients:
    """Gradient norms by layer, on the first 128 validation examples, with the training loss and without dropout.

    With post-LN the last layers have by far the largest gradients at the start, which is what warmup is said to be for
    (Xiong et al. 2020, section 3.3); without residual connections the first layers have hardly any.

    Metrics, D counted from 1: ``grad_norm_encoder/D``, ``grad_norm_decoder/D`` (L2 norm over the layer's parameters),
    of the trained model, and ``_start`` of the initial values that it had; ``grad_norm_min_encoder``,
    ``grad_norm_min_decoder`` and ``_start``, the least of them over a stack's layers: where the gradient vanishes on
    the way, no ratio of two layers need show it. None for models without such layers.
    """

    name = "gradients"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        if not encoder_blocks(run.model):
            return Measured({})
        sizes = len(run.task.source_vocabulary), len(run.task.target_vocabulary)
        device = run.model.device
        start = build_model(run.recipe.model, *sizes, seed=run.recipe.train.seed).to(device)
        rows = range(min(EXAMPLES, len(run.task.valid)))
        batch = Batch(*(tensor.to(device) for tensor in run.task.valid.batch(rows)))
        train = run.recipe.train
        metrics: dict[str, float] = {}
        for model, suffix in ((run.model, ""), (start, "_start")):
            for kind, norms in gradient_norms(model, batch, train.label_smoothing, train.smoothing).items():
                metrics |= {f"grad_norm_{kind}{suffix}/{depth}": norm for depth, norm in enumerate(norms, start=1)}
                if norms:
                    metrics[f"grad_norm_min_{kind}{suffix}"] = min(norms)
        return Measured(metrics)
