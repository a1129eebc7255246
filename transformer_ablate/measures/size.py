"""How large a model is and what a forward pass costs."""

from __future__ import annotations

import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_ablate.core import Seq2Seq
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation


def parameter_count(model: torch.nn.Module) -> int:
    """Number of trained values; a tensor that is used in several places counts once."""
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())


def forward_flops(model: Seq2Seq, source_length: int, target_length: int) -> int:
    """Floating-point operations of one teacher-forced forward pass of one example, two a multiply-add.

    Matrix products are counted, attention's scores and values included and in full (a causal mask does not make them
    cheaper here); element-wise work is not.
    """
    source, target = (torch.ones(1, n, dtype=torch.long, device=model.device) for n in (source_length, target_length))
    # The math kernel consists of plain matrix products, which the counter knows on every device; oneDNN's fused LSTM is
    # no such thing.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TF32 acceleration")  # the switch below sets that of GPUs as well
        plain = torch.backends.mkldnn.flags(enabled=False)
        with torch.no_grad(), plain, sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(source, target)
    return int(counter.get_total_flops())


class Size:
    """``parameters`` (tied tensors once) and ``flops`` (forward, one example of the longest training lengths)."""

    name = "size"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        flops = forward_flops(run.model, run.task.longest_source, run.task.longest_target - 1)
        return Measured({"parameters": float(parameter_count(run.model)), "flops": float(flops)})
