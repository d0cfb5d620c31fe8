"""The VQGAN decoder of Chameleon and of VQ-16 (LlamaGen, Janus): codes to pictures.

Knows: one convolutional decoder, its two published shapes and their two naming schemes.
Refuses to know: encoders (nobody here reads pictures), language models, files.

The architecture is that of Esser et al. 2021 (Taming Transformers, arXiv 2012.09841). Parameters are called as in
VQ-16, whose levels are numbered in the order in which they run (lowest resolution first); Chameleon's are renamed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MIDDLE = ("block_1", "attn_1", "block_2")
"""The middle's blocks where they have names instead of numbers."""
AT_ONCE = 4
"""Pictures decoded together: activations at full resolution are what fills the memory."""


@dataclass(frozen=True)
class VQConfig:
    """Sizes of a decoder. ``attention`` says whether its lowest level has attention beside the middle.

    ``unit_codes``: code vectors are scaled to length 1 when they are looked up (VQ-16).
    """

    codes: int = 16384
    code_dim: int = 8
    latent: int = 256
    width: int = 128
    multiples: tuple[int, ...] = (1, 1, 2, 2, 4)
    blocks: int = 2
    attention: bool = True
    unit_codes: bool = True

    @property
    def factor(self) -> int:
        """Pixels per token along a side."""
        return 2 ** (len(self.multiples) - 1)


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width, eps=1e-6)


class Residual(nn.Module):
    """[B, c, H, W] to [B, out, H, W]."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(width), nn.Conv2d(width, out, 3, padding=1)
        self.norm2, self.conv2 = _norm(out), nn.Conv2d(out, out, 3, padding=1)
        if out != width:
            self.nin_shortcut = nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions beside a shortcut."""
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y)))
        return y + (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x)


class Attention(nn.Module):
    """One head over all places, [B, c, H, W] to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Residual attention."""
        y = self.norm(x)
        q, k, v = (conv(y).flatten(2).transpose(1, 2)[:, None] for conv in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, x.shape[2:])
        return x + self.proj_out(out)


class Upsample(nn.Module):
    """[B, c, H, W] to [B, c, 2H, 2W]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Repeat pixels, then smooth."""
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Level(nn.Module):
    """The blocks of one resolution."""

    def __init__(self, width: int, out: int, blocks: int, attention: bool, last: bool) -> None:
        super().__init__()
        self.res = nn.ModuleList(Residual(width if i == 0 else out, out) for i in range(blocks))
        self.attn = nn.ModuleList(Attention(out) for _ in range(blocks if attention else 0))
        if not last:
            self.upsample = Upsample(out)

    def forward(self, x: Tensor) -> Tensor:
        """Blocks in order, then twice the resolution (but for the last level)."""
        for i, block in enumerate(self.res):
            x = block(x)
            x = self.attn[i](x) if len(self.attn) else x
        return self.upsample(x) if hasattr(self, "upsample") else x


class Decoder(nn.Module):
    """[B, latent, h, w] to [B, 3, factor·h, factor·w]."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        widths = [config.width * m for m in reversed(config.multiples)]
        self.conv_in = nn.Conv2d(config.latent, widths[0], 3, padding=1)
        self.mid = nn.ModuleList([Residual(widths[0], widths[0]), Attention(widths[0]), Residual(widths[0], widths[0])])
        inputs, final = [widths[0], *widths[:-1]], len(widths) - 1
        self.conv_blocks = nn.ModuleList(
            Level(inputs[i], widths[i], config.blocks + 1, config.attention and i == 0, i == final)
            for i in range(len(widths))
        )
        self.norm_out, self.conv_out = _norm(widths[-1]), nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """Values in about -1…1."""
        x = self.conv_in(z)
        for block in [*self.mid, *self.conv_blocks]:
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Codebook(nn.Module):
    """The code vectors as they are stored."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.codes, config.code_dim)


class VQDecoder(nn.Module):
    """Codes to pictures. ``decode`` is the network, ``pixels`` what people look at."""

    def __init__(self, config: VQConfig) -> None:
        super().__init__()
        self.config = config
        self.quantize = Codebook(config)
        self.post_quant_conv = nn.Conv2d(config.code_dim, config.latent, 1)
        self.decoder = Decoder(config)

    def codebook(self) -> Tensor:
        """The vectors that are decoded, [codes, code_dim] float32: of length 1 where the model scales them."""
        rows = self.quantize.embedding.weight.float()
        return F.normalize(rows, dim=-1) if self.config.unit_codes else rows

    def decode(self, codes: Tensor) -> Tensor:
        """Codes [B, h, w] int64 to [B, 3, H, W], about -1…1, in the dtype of the weights."""
        z = self.codebook()[codes].to(self.post_quant_conv.weight.dtype).movedim(-1, 1)
        return self.decoder(self.post_quant_conv(z))

    @torch.inference_mode()
    def pixels(self, codes: Tensor) -> Tensor:
        """Codes [B, h, w] int64 to uint8 [B, 3, H, W]: ``(x + 1) / 2 · 255``, clamped, cut off as the releases do."""
        parts = [self.decode(part).float() for part in codes.split(AT_ONCE)]
        return ((torch.cat(parts) + 1) * 127.5).clamp(0, 255).to(torch.uint8)


def chameleon_name(name: str, levels: int) -> str | None:
    """A name of ``vqgan.ckpt`` as ours; None for what only encoding and training need."""
    if re.match(r"(encoder|quant_conv|loss)\.", name):
        return None
    name = re.sub(r"^decoder\.mid\.(block_1|attn_1|block_2)\.", _middle, name)
    name = re.sub(r"^decoder\.up\.(\d+)\.", lambda m: f"decoder.conv_blocks.{levels - 1 - int(m[1])}.", name)
    return re.sub(r"(conv_blocks\.\d+)\.block\.", r"\1.res.", name)


def released_name(name: str, levels: int) -> str:
    """The inverse of :func:`chameleon_name`, for whoever writes such a file."""
    name = re.sub(r"^decoder\.mid\.(\d)\.", lambda m: f"decoder.mid.{MIDDLE[int(m[1])]}.", name)
    name = re.sub(r"(conv_blocks\.\d+)\.res\.", r"\1.block.", name)
    return re.sub(r"^decoder\.conv_blocks\.(\d+)\.", lambda m: f"decoder.up.{levels - 1 - int(m[1])}.", name)


def native_name(name: str) -> str | None:
    """A name of transformers' Janus VQ model as ours; its levels are numbered as they run, like VQ-16's."""
    if re.match(r"(encoder|quant_conv)\.", name):
        return None
    name = re.sub(r"^decoder\.mid\.(block_1|attn_1|block_2)\.", _middle, name)
    return re.sub(
        r"^decoder\.up\.(\d+)\.(block\.)?", lambda m: f"decoder.conv_blocks.{m[1]}.{'res.' if m[2] else ''}", name
    )


def _middle(match: re.Match[str]) -> str:
    return f"decoder.mid.{MIDDLE.index(match[1])}."
