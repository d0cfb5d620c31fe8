"""mini's training set: scenes drawn once, tokenised, and kept on disk as codes.

Knows: which scenes are trained on (never a held-out pair), the shards and their file layout.
Refuses to know: the transformer and its loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from specbench.models.mini import text
from specbench.models.mini.tokenizer import Tokenizer
from specbench.prompts.scenes.captions import caption
from specbench.prompts.scenes.render import coverage, render
from specbench.prompts.scenes.world import FAMILIES, SIZE, Scene, sample_scene

SHARE = {"single_object": 2, "two_object": 3, "counting": 4, "colors": 3, "position": 4, "color_attr": 4}
"""Relative frequency of the families in training: the ones that need planning are seen more often."""

SHARD = 2000

CAPTION_BLOCK = 3840


def training_scenes(rng: np.random.Generator, count: int) -> list[Scene]:
    """Draw ``count`` training scenes; a quarter of the position captions also name the colours."""
    weights = np.array([SHARE[f] for f in FAMILIES], dtype=float)
    scenes = []
    for family in rng.choice(FAMILIES, size=count, p=weights / weights.sum()):
        scene = sample_scene(rng, str(family))
        named = scene.family == "position" and rng.random() < 0.25
        scenes.append(replace(scene, named_colors=named))
    return scenes


def training_captions(count: int, seed: int) -> list[str]:
    """``count`` captions as mini was taught them, for drafters that learn from images mini draws itself.

    Drawn in blocks of one size, so that more captions begin with the same ones.
    """
    blocks = range(-(-count // CAPTION_BLOCK))
    scenes = [s for b in blocks for s in training_scenes(np.random.default_rng([seed, 7 + b]), CAPTION_BLOCK)]
    return [caption(s) for s in scenes[:count]]


def object_tokens(scenes: list[Scene], side: int) -> npt.NDArray[np.bool_]:
    """Whether an object covers part of each token: [B, side·side]."""
    masks = np.zeros((len(scenes), side, side), dtype=bool)
    for i, scene in enumerate(scenes):
        for thing in scene.things:
            cover = coverage(thing).reshape(side, SIZE // side, side, SIZE // side)
            masks[i] |= cover.mean((1, 3)) > 0.05
    return masks.reshape(len(scenes), -1)


def write_shard(path: Path, tokenizer: Tokenizer, seed: list[int], texture: float) -> None:
    """Draw, tokenise and store one shard: ``codes`` [S, N] uint16, ``words`` [S, P] uint8, ``object`` [S, N] bool."""
    rng = np.random.default_rng(seed)
    scenes = training_scenes(rng, SHARD)
    codes, side = [], 16
    with torch.inference_mode():
        for start in range(0, SHARD, 250):
            pictures = render(scenes[start : start + 250], rng, texture)
            codes.append(tokenizer.encode(torch.from_numpy(pictures).movedim(-1, 1)).numpy())
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        np.savez(
            file,
            codes=np.concatenate(codes).astype(np.uint16),
            words=text.encode([caption(s) for s in scenes]).numpy().astype(np.uint8),
            object=object_tokens(scenes, side),
        )
    os.replace(part, path)


def write_codes(
    folder: Path, tokenizer: Tokenizer, shards: int, seed: int, texture: float, report: Callable[[str], None] = print
) -> list[Path]:
    """Write the shards of one texture strength that are missing in ``folder``; return all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"texture{texture:.2f}-{i:03d}.npz" for i in range(shards)]
    for i, path in enumerate(paths):
        if not path.exists():
            write_shard(path, tokenizer, [seed, round(100 * texture), i], texture)
            report(f"codes {path.name} {i + 1}/{shards}")
    return paths


def load_codes(paths: list[Path]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes [M, N], caption ids [M, P] (int64) and object masks [M, N] (bool) of some shards."""
    loaded = [np.load(p) for p in paths]
    codes, captions, masks = (np.concatenate([f[key] for f in loaded]) for key in ("codes", "words", "object"))
    return torch.from_numpy(codes.astype(np.int32)), torch.from_numpy(captions), torch.from_numpy(masks)
