"""A tiny checkpoint in Cosmos's format: random weights, and TorchScript files with the release's signatures.

Knows: the layout that Cosmos-1 AR is published in, and that its tokenizer turns 8 frames of 16 × 16 pixels into a code.
Refuses to know: how a checkpoint is read. What is written here is read by the loader of the real thing.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn


class TinyDecoder(nn.Module):
    """Every code is one colour: [B, T, h, w] int64 to [B, 3, 8(T-1)+1, 16h, 16w] in -1…1."""

    def __init__(self, colours: Tensor) -> None:
        super().__init__()
        self.colours = nn.Parameter(colours, requires_grad=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Blocks of colour. The first latent frame is one frame; each of the others takes eight to fade in."""
        key = self.colours[codes].permute(0, 4, 1, 2, 3)
        share = (torch.arange(1, 9, device=codes.device) / 8).to(key.dtype)[:, None, None]
        before, after = key[:, :, :-1, None], key[:, :, 1:, None]
        video = torch.cat([key[:, :, :1], (before + (after - before) * share).flatten(2, 3)], 2)
        return video.repeat_interleave(16, 3).repeat_interleave(16, 4)


class TinyEncoder(nn.Module):
    """The code of the nearest colour: [B, 3, 8(T-1)+1, 16h, 16w] to codes [B, T, h, w] and two things nobody reads."""

    def __init__(self, colours: Tensor) -> None:
        super().__init__()
        self.colours = nn.Parameter(colours, requires_grad=False)

    def forward(self, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean colour of each block in the last of eight frames."""
        mean = nn.functional.avg_pool3d(video[:, :, ::8], (1, 16, 16)).permute(0, 2, 3, 4, 1)
        codes = (mean[..., None, :] - self.colours).square().sum(-1).argmin(-1)
        return codes.int(), mean, mean


def write_cosmos(
    folder: Path,
    latent: tuple[int, int, int] = (5, 6, 8),
    levels: tuple[int, ...] = (4, 4, 4),
    layers: int = 2,
    dtype: torch.dtype = torch.float32,
) -> None:
    """``config.json``, ``model.pt``, ``encoder.jit``, ``decoder.jit``; four heads of 16 that share two keys."""
    from specbench.models.cosmos import CosmosNetwork, lattice, read_config
    from specbench.models.tiny import seeded

    vocab = int(torch.tensor(levels).prod())
    config = {
        "dim": 64,
        "n_layers": layers,
        "n_heads": 4,
        "n_kv_heads": 2,
        "ffn_hidden_size": 96,
        "vocab_size": vocab,
        "video_latent_shape": list(latent),
        "fsq_levels": list(levels),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    state = seeded(CosmosNetwork(read_config(folder / "config.json")), sharp=("output.weight",))
    named = {f"model.{name}": value.to(dtype) for name, value in state.items()}
    torch.save({"model": {**named, "model.layers.0.attention._extra_state": torch.zeros(0)}}, folder / "model.pt")
    colours = lattice(levels, vocab)
    assert colours is not None
    colours = nn.functional.pad(colours, (0, 3))[:, :3].contiguous()
    with warnings.catch_warnings():  # that TorchScript is not the newest way to export is no news to whoever runs this
        warnings.simplefilter("ignore")
        torch.jit.script(TinyDecoder(colours)).save(str(folder / "decoder.jit"))
        torch.jit.script(TinyEncoder(colours)).save(str(folder / "encoder.jit"))
