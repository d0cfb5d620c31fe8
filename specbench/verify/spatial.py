"""A table with hidden states, and heads that guess them badly: what block decoding needs beside a law.

Knows: seeded hidden states for every prefix, from which the table's laws follow by a seeded head, and seeded spatial
heads for any target. The heads are arbitrary on purpose: exactness may not depend on what they say.
Refuses to know: decoders and noise.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.decoding.block import Block
from specbench.decoding.interfaces import Decoder, Forward, Prompt, Target
from specbench.verify.tabular import RaggedGrid, TabularCanvas, TabularTarget

WIDTH = 5
"""Hidden width d of the table: above any vocabulary here, so that every law is possible."""
OFFSETS = 5
"""How far seeded heads look, k_h and k_v: as far as the published ones."""


@dataclass
class HiddenTable(TabularTarget):
    """A tabular target of ``columns`` columns whose logits are a head of seeded hidden states [contexts, d]."""

    columns: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.grid = RaggedGrid.of(self.size, self.columns)
        self.codebook = self._codes = self._normal("codes", self.vocab)
        self._head = self._normal("head", self.vocab) / WIDTH**0.5

    def hidden(self, name: str) -> Tensor:
        """Hidden states [contexts, d] of the prompt ``name``, ordered as the table is."""
        return self._normal(f"hidden/{name}", sum(self.vocab**length for length in range(self.size)) + 1)

    def table(self, name: str) -> Tensor:
        """Logits [contexts, V]: the head of the hidden states."""
        if name not in self._tables:
            self._tables[name] = self.head(self.hidden(name))
        return self._tables[name]

    def head(self, h: Tensor) -> Tensor:
        """[..., d] to logits [..., V], of the sharpness that was asked for."""
        return self.sharpness * h @ self._head.T

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> HiddenCanvas:
        """Open a canvas whose rows carry hidden states behind the logits."""
        names = sorted({prompt.id for prompt in prompts})
        branches = [[name] if guidance is None or guidance == 1 else [name, ""] for name in names]
        rows = [
            torch.cat([self.guided(name, guidance), *map(self.hidden, branch)], 1)
            for name, branch in zip(names, branches, strict=True)
        ]
        self.canvas = HiddenCanvas(self, torch.stack(rows), torch.tensor([names.index(p.id) for p in prompts]))
        return self.canvas

    def _normal(self, name: str, rows: int) -> Tensor:
        return torch.randn(rows, WIDTH, generator=_generator(f"{self.seed}/{name}"), dtype=torch.float64)


class HiddenCanvas(TabularCanvas):
    """A tabular canvas whose table rows are logits and hidden states side by side."""

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """As the tabular canvas, with ``h`` [R, B, W, d]."""
        both = super().forward(tokens, parents, taps).logits
        vocab = self.target.vocab
        return Forward(both[..., :vocab], both[..., vocab:].unflatten(-1, (-1, WIDTH)).permute(2, 0, 1, 3))


@dataclass(frozen=True)
class SeededHeads:
    """Untrained heads for a hidden ``width``: one random linear map of [h; e] per offset, the same in every process."""

    width: int
    seed: int = 0
    horizontal_offsets: int = OFFSETS
    vertical_offsets: int = OFFSETS
    post_norm: bool = False

    def horizontal(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, d] and [B, L, d] to [R, B, L, k_h, d]."""
        return self._guess("horizontal", self.horizontal_offsets, h, e)

    def vertical(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, d] and [B, L, d] to [R, B, L, k_v, d]."""
        return self._guess("vertical", self.vertical_offsets, h, e)

    def _guess(self, name: str, offsets: int, h: Tensor, e: Tensor) -> Tensor:
        generator = _generator(f"{self.seed}/{name}")
        maps = torch.randn(offsets, 2 * self.width, self.width, generator=generator, dtype=torch.float64)
        z = torch.cat([h, e.expand_as(h)], -1)[..., None, None, :]  # [R, B, L, 1, 1, 2d]
        return (z @ (maps / self.width**0.5).to(z)).squeeze(-2)


def with_heads(decoder: Decoder, target: Target) -> Decoder:
    """A block decoder without heads gets seeded ones for ``target``; any other decoder stays as it is."""
    if not isinstance(decoder, Block) or decoder.heads is not None:
        return decoder
    one = torch.zeros(1, dtype=torch.int64, device=target.device)
    return decoder.with_heads(SeededHeads(target.embed(one).shape[-1]))


def _generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))
