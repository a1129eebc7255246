"""Small Transformers with every encoding, and sentences for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.registry import POSITIONS
from transformer_ablate.tokens import BOS, EOS, PAD

V = 20
# Every registered encoding, and those of its options that are encodings of their own.
SHORT = {"trained_length": 12, "factor": 4.0}
ENCODINGS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in POSITIONS.names()} | {
    "integer-equal": ("integer", {"channels": "equal"}),
    "integer-log": ("integer", {"scale": "log"}),
    "learned-clamp": ("learned", {"rows": 12, "beyond": "clamp"}),
    "shaw-values": ("shaw", {"clip": 4, "values": True}),
    "t5-short": ("t5", {"buckets": 8, "max_distance": 12}),
    "alibi-heads": ("alibi", {"sides": "heads"}),
    "kerple-power": ("kerple", {"kernel": "power"}),
    "rope-half": ("rope", {"layout": "half"}),
    "rope-pi": ("rope", {"scaling": "pi", "factor": 4.0}),
    "rope-ntk": ("rope", {"scaling": "ntk", "factor": 4.0}),
    "rope-dynamic_ntk": ("rope", {"scaling": "dynamic_ntk", "trained_length": 12}),
    "rope-yarn": ("rope", {"scaling": "yarn", **SHORT}),
    "rope-yarn_reference": ("rope", {"scaling": "yarn_reference", **SHORT}),
}


def config_of(encoding: str, **options: Any) -> ModelConfig:
    """A small model with one of the encodings."""
    position, position_options = ENCODINGS[encoding]
    small = {"d_model": 16, "n_heads": 2, "d_ff": 32, "position": position, "position_options": position_options}
    return ModelConfig(**{**small, **options})


def model_of(config: ModelConfig, seed: int = 0) -> Seq2Seq:
    """A model in evaluation mode whose biases, norms and position tables are off their initial values: none is zero."""
    model = build_model(config, V, V, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 or "position." in name:
                p += 0.2 * torch.randn(p.shape, generator=generator)
    return model.eval()


def sentences(lengths: list[int], seed: int = 0, framed: bool = True) -> Tensor:
    """Random sentences of these lengths in tokens, padded; ``framed`` ones begin with BOS and end with EOS."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, V, (len(lengths), max(lengths)), generator=generator)
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = PAD
        if framed:
            row[0], row[length - 1] = BOS, EOS
    return tokens
