"""A target of four tokens and four codes; its law depends on the last token and the position. Milliseconds an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from specbench.decoding.interfaces import Forward, Grid, Prompt


class ToyCanvas:
    def __init__(self, target: ToyTarget, images: int) -> None:
        self.target = target
        self.committed = torch.zeros(images, dtype=torch.int64)

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        position = self.committed[:, None] + torch.arange(tokens.shape[1])
        return Forward(self.target.table[position.clamp(max=self.target.grid.size - 1), tokens + 1])

    def keep(self, n: Tensor) -> None:
        self.committed = self.committed + n


class ToyTarget:
    """``table`` [N, V + 1, V]: logits at a position after a token (START is row 0)."""

    def __init__(self, name: str = "toy", dtype: str = "float64", device: str = "cpu") -> None:
        self.name, self.grid, self.vocab, self.codebook = name, Grid(2, 2), 4, None
        self.weights_hash = "toy-weights"
        generator = torch.Generator().manual_seed(7)
        self.table = torch.randn(4, 5, 4, generator=generator, dtype=torch.float64)

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> ToyCanvas:
        return ToyCanvas(self, len(prompts))

    def pixels(self, tokens: Tensor) -> Tensor:
        shade = (tokens * 60).to(torch.uint8).view(-1, 1, 2, 2)
        return shade.expand(-1, 3, 2, 2).contiguous()

    def embed(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def norm(self, h: Tensor) -> Tensor:
        return h

    def head(self, h: Tensor) -> Tensor:
        raise NotImplementedError

    def warnings(self, prompt: Prompt) -> list[str]:
        return ["toy cannot read"] if "unreadable" in prompt.text else []


def write_prompts(path: Path, count: int) -> Path:
    path.write_text("".join(f"caption number {index}\n" for index in range(count)))
    return path
