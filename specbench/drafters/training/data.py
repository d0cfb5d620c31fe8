"""What drafters learn from: images sampled from the frozen target itself, kept on disk as tokens.

Knows: captions to draw for, shards of sampled tokens, and how one pass over a finished image gives its hidden states.
Refuses to know: heads, losses, optimisers.

Self-distillation (SSD, 2606.20543, training section): one image per caption from the target at its own sampling, then
teacher forcing. Sampling is slow and done once; hidden states are cheap and made again whenever they are needed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.decoding.loop import AR
from specbench.errors import SpecbenchError, UsageError

SHARD = 48
"""Images of a shard: one batch of plain AR decoding."""

CAPTIONS = {"mini": ("specbench.models.mini.training.data", "training_captions")}
"""Targets that bring their own captions: module and function (count, seed) -> list of captions."""

MIX = 2.0
"""Any guidance but 1 makes a canvas run the unconditional rows, whose hidden states do not depend on it."""


@dataclass(frozen=True)
class Images:
    """Sampled images: ``tokens`` [M, N] int64 and their captions."""

    tokens: Tensor
    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)


def captions(name: str, path: str | None, count: int, seed: int) -> list[str]:
    """``count`` captions to sample images for: lines of the file ``path``, or the target's own training captions.

    Raises UsageError when there are too few lines, or no file for a target without captions of its own.
    """
    if path is not None:
        file = Path(path)
        if not file.is_file():
            raise UsageError(f"prompts={path} is not a file")
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise UsageError(f"prompts={path} is no UTF-8 text: captions are lines") from error
        if len(lines) < count:
            raise UsageError(
                f"{count} captions are needed, one an image and one for each image of the card, and prompts={path} has "
                f"{len(lines)}"
            )
        return lines[:count]
    if name not in CAPTIONS:
        raise UsageError(f"model={name} has no captions of its own: give a file with one a line, prompts=FILE")
    module, function = CAPTIONS[name]
    found: list[str] = getattr(import_module(module), function)(count, seed)
    return found


def write_images(
    folder: Path,
    target: Target,
    sampling: Sampling,
    texts: Sequence[str],
    seed: int,
    report: Callable[[str], None] = print,
) -> list[Path]:
    """Sample the shards that ``folder`` lacks by plain AR decoding; return the paths of all.

    A shard holds ``tokens`` [S, N] int32 and ``texts`` [S]. Image i has the noise of prompt id ``train/i``: no image
    of a prompt set can be met again here, whatever its caption.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for start in range(0, len(texts), SHARD):
        path = folder / f"images-{start // SHARD:04d}.npz"
        paths.append(path)
        prompts = [Prompt(f"train/{start + i}", text) for i, text in enumerate(texts[start : start + SHARD])]
        if path.exists():
            _same(path, [p.text for p in prompts])
            continue
        tokens = AR(sampling).decode(target, prompts, seed=seed).tokens
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            np.savez(file, tokens=tokens.cpu().numpy().astype(np.int32), texts=np.array([p.text for p in prompts]))
        os.replace(part, path)
        report(f"images {start + len(prompts)}/{len(texts)}")
    return paths


def _same(path: Path, texts: list[str]) -> None:
    """A shard left by other settings must not be taken for this run's; a shorter last one would be a hole."""
    stored = _read(path)[1]
    if stored != texts:
        raise UsageError(f"{path} holds images of other captions or another number of them: choose another out=")


def load_images(paths: Sequence[Path]) -> Images:
    """Read shards back, in order."""
    tokens, texts = [], []
    for path in paths:
        found, named = _read(path)
        tokens.append(found)
        texts += named
    return Images(torch.cat(tokens), texts)


def _read(path: Path) -> tuple[Tensor, list[str]]:
    """Tokens [S, N] and captions of one shard; SpecbenchError where its file is damaged."""
    try:
        with np.load(path) as shard:
            return torch.from_numpy(shard["tokens"].astype(np.int64)), [str(text) for text in shard["texts"]]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise SpecbenchError(f"{path} is damaged: delete it, and the same command draws its images again") from error


@torch.inference_mode()
def teach(target: Target, tokens: Tensor, texts: Sequence[str], dropped: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states and embeddings of finished images by teacher forcing: h and e, [B, N, d] each.

    ``h[:, n]`` is the pre-norm state that token n's law is made from, ``e[:, n]`` the embedding of token n itself.
    Images whose ``dropped`` [B] bool is set are read without their caption, as guidance's second row is.
    """
    tokens = tokens.to(target.device)
    h: Tensor | None = None
    for without in (False, True):
        rows = (dropped == without).nonzero().flatten()
        if not len(rows):
            continue
        fed = torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, :-1]], 1)[rows.to(tokens.device)]
        canvas = target.begin([Prompt("teach", texts[i]) for i in rows.tolist()], MIX if without else None)
        states = canvas.forward(fed).h
        if states is None:
            raise UsageError("this target returns no hidden states, so no drafter can be trained on it")
        h = torch.empty(len(tokens), *states.shape[2:], dtype=states.dtype, device=states.device) if h is None else h
        h[rows.to(h.device)] = states[-1]
    assert h is not None
    return h, target.embed(tokens)
