"""mini's transformer: a decoder that reads a caption prefix and predicts image codes in raster order.

Knows: its layers, two-dimensional rotary positions, and how to run over a whole sequence or over a preallocated cache.
Refuses to know: guidance, sampling, which positions are committed, and how it is trained.

Sequence: ``prefix`` caption slots, then the codes. The output at a slot predicts the code after it, so the last prefix
slot predicts code 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, k, v), each [B, heads, S, d_head], to the attention output [B, heads, S, d_head]."""


@dataclass(frozen=True)
class Config:
    """Sizes of the transformer; ``grid`` is (rows, columns)."""

    codes: int = 1024
    vocabulary: int = 32
    prefix: int = 16
    grid: tuple[int, int] = (16, 16)
    width: int = 256
    depth: int = 5
    heads: int = 4
    hidden: int = 640

    @property
    def length(self) -> int:
        """Slots of a whole sequence: prefix and all codes."""
        return self.prefix + self.grid[0] * self.grid[1]

    def to_dict(self) -> dict[str, object]:
        """Plain values for a JSON file."""
        return asdict(self)


def rotary(config: Config) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, d_head]: half of the pairs turn with the row, half with the column.

    Caption slots sit on row -1. After RoPE (arXiv 2104.09864, §3.2) applied per axis.
    """
    rows, columns = config.grid
    index = torch.arange(rows * columns)
    row = torch.cat([torch.full((config.prefix,), -1), index // columns])
    column = torch.cat([torch.arange(config.prefix), index % columns])
    quarter = config.width // config.heads // 4
    rate = 1.2 * 0.02 ** (torch.arange(quarter, dtype=torch.float64) / max(quarter - 1, 1))
    angle = torch.cat([row[:, None] * rate, column[:, None] * rate], -1)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + d/2) of x [..., S, d_head]; cos and sin broadcast to it."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    """Pre-norm attention with normalised queries and keys, then SwiGLU."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, config.heads
        head = config.width // config.heads
        self.norm_attention = nn.RMSNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.norm_q, self.norm_k = nn.RMSNorm(head), nn.RMSNorm(head)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_mlp = nn.RMSNorm(config.width)
        self.up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x [B, S, width] to the same; cos and sin [B or 1, 1, S, d_head]."""
        qkv = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.movedim(2, 0).transpose(2, 3)
        q, k = turn(self.norm_q(q), cos, sin), turn(self.norm_k(k), cos, sin)
        x = x + self.out(attend(self.layer, q, k, v).transpose(1, 2).flatten(2))
        gate, value = self.up(self.norm_mlp(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Transformer(nn.Module):
    """The whole network; ``trunk`` gives hidden states before the final norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.codes = nn.Embedding(config.codes, config.width)
        self.place = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.depth))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.codes, bias=False)
        cos, sin = rotary(config)
        self.register_buffer("cos", cos.float(), persistent=False)
        self.register_buffer("sin", sin.float(), persistent=False)
        self.cos: Tensor
        self.sin: Tensor
        self.reset()

    def reset(self) -> None:
        """Draw initial weights; residual outputs and the head start at zero, so the first law is uniform."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02 if module is self.place else 0.3)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        for weight in [*self.residual_outputs(), self.head.weight]:
            nn.init.zeros_(weight)

    def residual_outputs(self) -> list[Tensor]:
        """The matrices that write into the residual stream, two per block."""
        return [p for name, p in self.named_parameters() if name.endswith(("out.weight", "down.weight"))]

    def trunk(self, embedded: Tensor, slots: Tensor, attend: Attend) -> Tensor:
        """Hidden states [B, S, width] before the final norm, for inputs at sequence ``slots`` [B or 1, S]."""
        x = embedded + self.place(slots)
        cos, sin = self.cos[slots].unsqueeze(1), self.sin[slots].unsqueeze(1)
        for block in self.blocks:
            x = block(x, cos, sin, attend)
        return x

    def forward(self, prefix: Tensor, codes: Tensor) -> Tensor:
        """Teacher-forced logits [B, N, codes] for caption prefixes [B, prefix] and codes [B, N]."""
        embedded = torch.cat([self.words(prefix), self.codes(codes[:, :-1])], 1)
        slots = torch.arange(embedded.shape[1], device=prefix.device)[None]
        x = self.trunk(embedded, slots, causal)
        return self.head(self.norm(x[:, self.config.prefix - 1 :]))


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention over a whole sequence; in bfloat16 on a CPU twice as fast as sdpa with its backward."""
    del layer
    length = q.shape[2]
    hidden = torch.full((length, length), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + hidden
    return scores.softmax(-1).to(v.dtype) @ v
