"""Small recurrent models that several tests look into."""

from __future__ import annotations

from typing import Any

import torch

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model

V = 20
D = 6


def model_of(architecture: str, layers: tuple[int, int] = (2, 2), **options: Any) -> Seq2Seq:
    """A float64 model of width D whose biases are off their initial values."""
    config = ModelConfig(
        architecture=architecture,
        architecture_options=options,
        d_model=D,
        matched=False,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        tying="none",
    )
    model = build_model(config, V, V, seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model
