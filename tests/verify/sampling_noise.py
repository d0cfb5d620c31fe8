"""Independent real noise for checking the enumerator: torch's own generator, no keys, no production code."""

from __future__ import annotations

import torch


class FreshNoise:
    """The three verbs with fresh numbers, except that each slot keeps its row of exponential noise [B, N, V]."""

    def __init__(self, batch: int, size: int, vocab: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = -torch.rand(batch, size, vocab, generator=self.generator, dtype=torch.float64).log()

    def advance(self):
        pass

    def accept(self, prob, key, need, lead=False):
        return torch.rand(prob.shape, generator=self.generator, dtype=torch.float64) < prob

    def draw(self, law, key, need):
        safe = torch.where(need[..., None], law, torch.ones_like(law))
        tokens = torch.multinomial(safe.flatten(0, 1), 1, generator=self.generator)
        return torch.where(need, tokens.view(need.shape), 0)

    def coupled(self, law, position, need):
        at = position.clamp(max=self.rows.shape[1] - 1)
        rows = self.rows.gather(1, at[..., None].expand(*at.shape, self.rows.shape[2]))
        return torch.where(need, (rows / law).argmin(-1), 0)
