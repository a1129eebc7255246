"""Attention over few keys on a CPU: the same numbers as PyTorch's fused kernel, sooner.

PyTorch's CPU softmax, alone or within its fused attention kernel, works through the last dimension in whole vectors,
and where that dimension is shorter than one it is several times slower than for 16 or 32 entries. Written out over
whole tensors most of that cost goes away.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# A vector of AVX-512. On two Xeon cores, with up to 14 keys, forward and backward took .4 to .76 of the fused kernel's
# time; with 24 keys and more, longer.
MOST_KEYS = 16
LOG2_E = 1 / math.log(2)


def is_short(q: Tensor, k: Tensor) -> bool:
    """Whether :func:`attend_short` is the way for queries (B, H, L, d) and keys (B, H, S, d)."""
    few = k.shape[-2] <= MOST_KEYS and q.shape[-2] > 1
    return few and q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64)


def attend_short(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None) -> Tensor:
    """``softmax(scale q k^T + bias) v`` (Vaswani et al. 2017, eq. 1), without dropout.

    Args:
        q: (B, H, L, d).
        k, v: (B, H, S, d) and (B, H, S, d_v).
        bias: broadcastable to (B, H, L, S): additive, or boolean with True = may attend. A query that may attend to
            nothing gets zeros.
        scale: 1 / sqrt(d) by default.

    Returns:
        (B, H, L, d_v).
    """
    if bias is not None and bias.dtype == torch.bool:
        bias = q.new_zeros(bias.shape).masked_fill_(~bias, -math.inf)
    out: Tensor = _ShortAttention.apply(q, k, v, bias, q.shape[-1] ** -0.5 if scale is None else scale)
    return out


class _ShortAttention(torch.autograd.Function):
    """Keeps the weights, which are few, and writes in place what it may."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:  # type: ignore[no-untyped-def]
        batch, heads, length, _ = q.shape
        q, k, v = (x.reshape(batch * heads, *x.shape[2:]) for x in (q * (scale * LOG2_E), k, v))
        flat = torch.bmm(q, k.transpose(1, 2))  # scores over ln 2: powers of two do not slow down at -inf, e's do
        weights = flat.view(batch, heads, length, -1)
        if bias is not None:
            weights.add_(bias, alpha=LOG2_E)
        largest = weights.amax(-1, keepdim=True)
        if bias is not None:
            largest.clamp_(min=torch.finfo(largest.dtype).min)  # where no key is allowed it is -inf
        total = weights.sub_(largest).exp2_().sum(-1, keepdim=True)
        if bias is not None:
            total.clamp_(min=torch.finfo(total.dtype).tiny)
        weights /= total
        ctx.save_for_backward(q, k, v, flat)
        ctx.scale, ctx.bias_shape = scale, None if bias is None else bias.shape
        return torch.bmm(flat, v).view(batch, heads, length, -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        q, k, v, weights = ctx.saved_tensors
        batch, heads, length, _ = gradient.shape
        gradient = gradient.reshape(batch * heads, length, -1).contiguous()  # torch copies matrix by matrix else
        of_weights = torch.bmm(gradient, v.transpose(1, 2))
        mean = (of_weights * weights).sum(-1, keepdim=True)
        of_scores = of_weights.sub_(mean).mul_(weights)

        def whole(x: Tensor) -> Tensor:
            return x.view(batch, heads, *x.shape[1:])

        of_bias = None
        if ctx.needs_input_grad[3]:
            of_bias = whole(of_scores).sum_to_size(ctx.bias_shape)
        return (
            whole(torch.bmm(of_scores, k).mul_(ctx.scale)),
            whole(torch.bmm(of_scores.transpose(1, 2), q).mul_(1 / LOG2_E)),
            whole(torch.bmm(weights.transpose(1, 2), gradient)),
            of_bias,
            None,
        )
