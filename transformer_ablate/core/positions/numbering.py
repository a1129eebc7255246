"""Which position each token is said to stand at: its index, or a random increasing sample of a longer range."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer_ablate.core.linear import derive_seed
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import longest_output


class Numbering(nn.Module):
    """Tokens stand at 0, 1, 2, … in every sentence. A module only so that it knows whether it trains."""

    def draw(self, lengths: Tensor, width: int) -> tuple[Tensor, Tensor | None]:
        """Positions for one forward pass.

        Args:
            lengths: (B,) tokens of each source.
            width: S, that of the padded batch.

        Returns:
            Positions of the source tokens, (S,) or (B, S), and those of the target tokens to come, (B, K), or None for
            0, 1, 2, …
        """
        return torch.arange(width, device=lengths.device), None

    def reach(self, longest: int) -> int:
        """Positions of a sequence of ``longest`` tokens lie below this.

        Raises:
            ConfigError: where there are not as many positions as tokens.
        """
        return longest


class RandomisedNumbering(Numbering):
    """Positions are an increasing sample of 0 … M - 1 without replacement (Ruoss et al. 2023, section 3).

    In training each sentence has a draw of its own at every forward pass, shared by the layers of a stack. The source
    draws as many positions as it has tokens; the target as many as it may have at most (:func:`longest_output` of its
    source), of which it uses the first ones. So positions do not tell how long the target will be, and teacher
    forcing, free running and cached steps see the same ones; it uses little more than the lower half of the range. A
    target longer than that shares the last position. In evaluation the draw depends on the number of positions and on
    ``eval_draw`` alone. (The paper's models have a source only; the authors' code draws once for a whole batch, and for
    relative encodings draws offsets, afresh in each layer.)

    Args:
        size: M of the paper, at least the longest sequence that will be met.
        shared: source and target take one draw, as long as the target's: aligned tokens then stand at one position,
            which hands a copying task its alignment.

    Attributes:
        eval_draw: which of the evaluation draws is used; results may be averaged over several.
    """

    def __init__(self, size: int, shared: bool) -> None:
        super().__init__()
        self.size, self.shared = size, shared
        self.eval_draw = 0

    def draw(self, lengths: Tensor, width: int) -> tuple[Tensor, Tensor | None]:
        counts = torch.as_tensor(longest_output(lengths))
        longest = longest_output(width)
        self.reach(longest)
        target = self._sample(counts, longest, "target")
        source = target[:, :width] if self.shared else self._sample(lengths, width, "source")
        return source, target

    def reach(self, longest: int) -> int:
        if longest > self.size:
            allowed = f"at least {longest}, one for each token that a source or its target may have"
            raise ConfigError("model.randomised_positions", self.size, allowed)
        return self.size

    def _sample(self, counts: Tensor, width: int, side: str) -> Tensor:
        """``counts`` (B,) positions for each sentence, increasing, then M - 1 up to ``width`` -> (B, width)."""
        if self.training:  # the places of the largest of M random numbers, a fifth of the time of a permutation
            order = torch.rand(len(counts), self.size, device=counts.device).topk(width).indices
        else:  # one order for each number of positions, whoever the neighbours are
            different, which = counts.unique(return_inverse=True)
            orders = [self._evaluation_order(n, side)[:width] for n in different.tolist()]
            order = torch.stack(orders).to(counts.device)[which]
        rank = torch.arange(width, device=counts.device)
        return torch.where(rank < counts[:, None], order, self.size - 1).sort(dim=1).values

    def _evaluation_order(self, count: int, side: str) -> Tensor:
        seed = derive_seed(self.eval_draw, f"positions/{side}/{count}")
        return torch.randperm(self.size, generator=torch.Generator().manual_seed(seed))


def build_numbering(size: int, shared: bool) -> Numbering:
    """Consecutive positions for a ``size`` of 0, else :class:`RandomisedNumbering`."""
    return RandomisedNumbering(size, shared) if size else Numbering()
