"""A target of any grid with hidden states, for the tests of block decoding: one hidden state per token and position.

The hidden state depends on the token it follows, on all tokens before that through a running sum, and on the position,
so that a stale cache or a missing roll-back shows in every later law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import START, Forward, Grid, Prompt
from specbench.decoding.laws import Sampling, guide
from specbench.verify.spatial import SeededHeads

WIDTH, VOCAB = 8, 8


class SpatialTarget:
    """``drift`` says how much laws depend on tokens that lie further back than the last one."""

    codebook = None
    device = torch.device("cpu")
    vocab = VOCAB

    def __init__(self, grid: Grid, drift: float = 0.5, hidden: bool = True) -> None:
        self.grid, self.drift, self.hidden = grid, drift, hidden
        generator = torch.Generator().manual_seed(5)
        self.codes = torch.randn(VOCAB + 1, WIDTH, generator=generator, dtype=torch.float64)
        self.places = torch.randn(64, WIDTH, generator=generator, dtype=torch.float64)
        self.out = torch.randn(WIDTH, VOCAB, generator=generator, dtype=torch.float64)

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> SpatialCanvas:
        return SpatialCanvas(self, [len(prompt.text) for prompt in prompts], guidance)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.codes[tokens]

    def norm(self, h: Tensor) -> Tensor:
        return h

    def head(self, h: Tensor) -> Tensor:
        return h @ self.out


class SpatialCanvas:
    """``memory`` [B, d] sums up the embeddings of everything that is committed and fed."""

    def __init__(self, target: SpatialTarget, offsets: list[int], guidance: float | None) -> None:
        self.target, self.offsets, self.guidance = target, torch.tensor(offsets), guidance
        self.committed = torch.zeros(len(offsets), dtype=torch.int64)
        self.memory = torch.zeros(len(offsets), WIDTH, dtype=torch.float64)

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        target = self.target
        at = self.committed[:, None] + torch.arange(tokens.shape[1])
        embedded = target.codes[torch.where(tokens == START, VOCAB, tokens)]
        self.sums = self.memory[:, None] + embedded.cumsum(1)
        state = embedded + target.drift * torch.sin(self.sums) + target.places[(at * 7 + self.offsets[:, None]) % 64]
        branches = [torch.tanh(state)]
        if self.guidance is not None:
            branches.append(torch.tanh(state - target.places[self.offsets % 64][:, None]))
        h = torch.stack(branches)
        logits = target.head(h)
        mixed = logits[0] if self.guidance is None else guide(logits[0], logits[1], self.guidance)
        return Forward(mixed, h if target.hidden else None)

    def keep(self, n: Tensor) -> None:
        rows = torch.arange(len(n))
        self.memory = torch.where((n > 0)[:, None], self.sums[rows, (n - 1).clamp(min=0)], self.memory)
        self.committed = self.committed + n


def block(sampling: Sampling | None = None, **settings: object):
    """A block decoder with seeded heads."""
    decoder = build_decoder({"decoder": "block", **settings}, None, sampling)
    return replace(decoder, heads=SeededHeads(WIDTH))
