"""Trains mini's tokenizer on freshly drawn scenes.

Knows: the reconstruction loss, the moving-average codebook and its restarts.
Refuses to know: the transformer, captions, and where the finished weights are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specbench.models.mini.tokenizer import Tokenizer
from specbench.prompts.scenes.render import render
from specbench.prompts.scenes.world import FAMILIES, sample_scene

DECAY, COMMIT = 0.98, 0.25


def draw_pictures(rng: np.random.Generator, count: int) -> Tensor:
    """``count`` training pictures, uint8 [count, 3, 64, 64], families in equal shares."""
    scenes = [sample_scene(rng, FAMILIES[i % len(FAMILIES)]) for i in range(count)]
    return torch.from_numpy(render(scenes, rng)).movedim(-1, 1)


class Codebook:
    """Moving-average update of unit codes (van den Oord et al. 2017, appendix A.1) with restarts of idle codes."""

    def __init__(self, codebook: Tensor) -> None:
        self.codes = codebook
        self.count = torch.ones(len(codebook))
        self.total = codebook.clone()

    def update(self, z: Tensor, index: Tensor) -> None:
        """Move codes towards the latents ``z`` [M, dim] that chose them (``index`` [M]); restart idle ones."""
        k = len(self.codes)
        counts = torch.bincount(index, minlength=k).float()
        sums = torch.zeros_like(self.total).index_add_(0, index, z)
        self.count.mul_(DECAY).add_(counts, alpha=1 - DECAY)
        self.total.mul_(DECAY).add_(sums, alpha=1 - DECAY)
        idle = self.count < 0.15 * self.count.mean()
        fresh = z[torch.randint(len(z), (k,))]
        self.total = torch.where(idle[:, None], fresh * self.count.mean(), self.total)
        self.count = torch.where(idle, self.count.mean(), self.count)
        self.codes.copy_(F.normalize(self.total, dim=-1))


def train_tokenizer(
    steps: int, batch: int = 48, seed: int = 0, pool: int = 6000, report: Callable[[str], None] = print
) -> Tokenizer:
    """Train for ``steps`` batches on ``pool`` drawn pictures, continuous for the first tenth, then quantised."""
    torch.manual_seed(seed)
    model = Tokenizer()
    pictures = draw_pictures(np.random.default_rng([seed, 1]), pool)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    warm = steps // 10
    book = Codebook(model.codebook)
    for step in range(steps):
        images = pictures[torch.randint(pool, (batch,))]
        z = model.latents(images)
        flat = z.flatten(0, 2)
        if step == warm:
            book = Codebook(model.codebook.copy_(flat.detach()[torch.randperm(len(flat))[: len(model.codebook)]]))
        with torch.no_grad():
            index = (flat @ model.codebook.T).argmax(-1)
            nearest = model.codebook[index].view_as(z)
            if step >= warm:
                book.update(flat, index)
        quantised = z if step < warm else z + (nearest - z).detach()
        error = model.paint(quantised) - (images.float() / 127.5 - 1)
        loss = error.abs().mean() + 2 * error.square().mean()
        loss = loss + (COMMIT * (1 - (z * nearest).sum(-1)).mean() if step >= warm else 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            used = torch.bincount(index, minlength=len(model.codebook)).float()
            p = used / used.sum()
            perplexity = torch.special.entr(p).sum().exp()
            l1 = error.abs().mean() * 127.5
            report(f"tokenizer step {step}/{steps}  l1 {l1:.2f} of 255  codebook perplexity {perplexity:.0f}")
    return model
