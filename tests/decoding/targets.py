"""A target for the tests of the loops: logits hashed from the tokens that its cache really holds.

Every row has its own committed length; the cache is the list of tokens it was fed, so a wrong position, a missing
correction or a missing rollback changes the laws that follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Forward, Grid, Prompt


class HashedTarget:
    """Logits over ``vocab`` codes as a smooth function of the last ``memory`` tokens, the position and the prompt.

    ``drift`` says how much they depend on the tokens at all (0: laws never change, couplings keep every draft).
    """

    codebook = None
    device = torch.device("cpu")

    def __init__(
        self, grid: Grid = Grid(4, 4), vocab: int = 16, memory: int = 3, drift: float = 1.0, dtype=torch.float64
    ) -> None:
        self.grid, self.vocab, self.memory, self.drift, self.dtype = grid, vocab, memory, drift, dtype
        generator = torch.Generator().manual_seed(7)
        self.by_token = torch.randn(memory, vocab + 1, vocab, generator=generator, dtype=torch.float64)
        self.by_place = torch.randn(64, vocab, generator=generator, dtype=torch.float64)

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> HashedCanvas:
        """Open a canvas."""
        return HashedCanvas(self, [sum(map(ord, prompt.text)) % 8 for prompt in prompts])

    def laws(self, prompt: Prompt, tokens: Tensor) -> Tensor:
        """Logits [n + 1, V] after each prefix of ``tokens`` [n] (plain, for one image)."""
        canvas = self.begin([prompt])
        return canvas.forward(torch.cat([torch.tensor([START]), tokens])[None]).logits[0]


class HashedCanvas:
    """``cache`` [B, N] holds the tokens that were fed and kept, ``committed`` [B] how many positions are committed."""

    def __init__(self, target: HashedTarget, offsets: list[int]) -> None:
        self.target, self.offsets = target, torch.tensor(offsets)
        size = target.grid.size
        self.cache = torch.full((len(offsets), 3 * size + 64), target.vocab)
        self.committed = torch.zeros(len(offsets), dtype=torch.int64)
        self.passes = 0
        self.widths: list[int] = []

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """Logits [B, W, V] of the positions after each token."""
        target, memory = self.target, self.target.memory
        self.passes += 1
        self.widths.append(tokens.shape[1])
        column = torch.arange(tokens.shape[1])
        parents = (column - 1).expand(tokens.shape) if parents is None else parents
        depth = torch.zeros_like(tokens)
        for node in range(1, tokens.shape[1]):
            depth[:, node] = depth.gather(1, parents[:, node : node + 1])[:, 0] + 1
        at = self.committed[:, None] + depth  # the position that follows each token
        self.fed = torch.where(tokens == START, target.vocab, tokens)
        logits = target.by_place[(at * 5 + self.offsets[:, None]) % 64]
        node = column.expand(tokens.shape)
        for back in range(memory):
            provisional = self.fed.gather(1, node.clamp(min=0))
            seen = torch.where(node >= 0, provisional, self.cache.gather(1, at + memory - 1 - back))
            logits = logits + target.drift * target.by_token[back, seen] / (back + 1)
            node = torch.where(node >= 0, parents.gather(1, node.clamp(min=0)), -1)
        return Forward(logits.to(target.dtype))

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Commit ``n`` [B] positions; what was fed beside and behind them is forgotten."""
        columns = torch.arange(self.fed.shape[1]).repeat(len(n), 1)
        if path is not None:
            columns[:, : path.shape[1]] = path
        place = self.committed[:, None] + torch.arange(self.fed.shape[1]) + self.target.memory - 1
        board = self.cache.scatter(1, place, self.fed.gather(1, columns))
        self.committed = self.committed + n
        inside = torch.arange(self.cache.shape[1]) < (self.committed + self.target.memory - 1)[:, None]
        self.cache = torch.where(inside, board, self.target.vocab)
