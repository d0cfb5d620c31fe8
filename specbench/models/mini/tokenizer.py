"""mini's image tokenizer: a small VQ autoencoder, 64×64 RGB to a 16×16 grid of 1,024 codes and back.

Knows: the encoder, cosine quantisation against unit codes, the decoder.
Refuses to know: how it was trained, captions, and the transformer that predicts its codes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CODES, WIDTH, CODE_DIM = 1024, 96, 16


class Residual(nn.Module):
    """x + conv(silu(conv(silu(x)))), 3×3 kernels, [B, C, H, W] to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return x + self.second(F.silu(self.first(F.silu(x))))


class Tokenizer(nn.Module):
    """VQ autoencoder with unit-length codes (cosine codes after ViT-VQGAN, arXiv 2110.04627, §3.2)."""

    def __init__(self, codes: int = CODES, width: int = WIDTH, dim: int = CODE_DIM) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), Residual(width), nn.SiLU(), nn.Conv2d(width, dim, 1)
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, width, 1),
            Residual(width),
            Residual(width),
            nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1),
            Residual(width // 2),
            nn.ConvTranspose2d(width // 2, width // 4, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width // 4, 3, 3, padding=1),
        )
        self.register_buffer("codebook", F.normalize(torch.randn(codes, dim), dim=-1))
        self.codebook: Tensor

    def latents(self, images: Tensor) -> Tensor:
        """Unit latents [B, H/4, W/4, dim] of uint8 pictures [B, 3, H, W]."""
        z = self.encoder(images.to(self.codebook.dtype) / 127.5 - 1)
        return F.normalize(z.movedim(1, -1), dim=-1)

    def encode(self, images: Tensor) -> Tensor:
        """Codes [B, N] int64, raster order, of uint8 pictures [B, 3, H, W]."""
        z = self.latents(images)
        return (z.flatten(1, 2) @ self.codebook.T).argmax(-1)

    def paint(self, z: Tensor) -> Tensor:
        """Latents [B, h, w, dim] to pictures [B, 3, 4h, 4w] as floats, about -1 to 1."""
        return self.decoder(z.movedim(-1, 1))

    def decode(self, codes: Tensor, columns: int = 16) -> Tensor:
        """Codes [B, N] to uint8 pictures [B, 3, H, W]."""
        z = self.codebook[codes].unflatten(1, (-1, columns))
        return ((self.paint(z) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
