"""The special tokens, whose ids every vocabulary, model and measure shares, and how many tokens are waited for."""

from __future__ import annotations

from typing import Any

PAD, BOS, EOS, UNK = 0, 1, 2, 3
N_SPECIALS = 4


def longest_output(source_length: Any) -> Any:
    """Longest output that is waited for, in tokens with EOS: twice the source's tokens, and ten."""
    return 2 * source_length + 10
