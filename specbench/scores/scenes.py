"""The exact scorer of ``scenes``: does a picture show what its caption says?

Knows: how to find objects (segment against the ground, name the colour, fit the shapes) and GenEval's verdict rules
(djghosh13/geneval, evaluation/evaluate_images.py: count, colour, relative position, exclusion).
Refuses to know: who made the picture. The same code judges renders, reconstructions and generated pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from specbench.prompts.scenes.render import distance
from specbench.prompts.scenes.world import COLORS, PALETTE, SHAPES, relation_of

MIN_AREA = 24
"""Smallest region in pixels that can be an object (the smallest ring of the world covers about 140)."""

MIN_FIT = 0.55
"""Least overlap (soft intersection over union) with the best template for a region to count as an object."""

HALF = 26
"""Half side in pixels of the crop in which shapes are fitted."""


@dataclass(frozen=True)
class Found:
    """One object seen in a picture: names, centre and half extent in pixels, and the overlap with its template."""

    shape: str
    color: str
    x: float
    y: float
    radius: float
    fit: float


def _ground(images: Tensor) -> Tensor:
    """Colour of the ground [B, 3]: median over pixels that are neither saturated nor near black or white."""
    spread = images.amax(1) - images.amin(1)
    plain = (spread < 60) & (images.mean(1) > 55) & (images.mean(1) < 200)
    masked = torch.where(plain[:, None], images, torch.nan).flatten(2)
    return masked.nanmedian(-1).values.nan_to_num(128.0)


def _regions(mask: Tensor) -> Tensor:
    """Label 8-connected regions of mask [B, H, W]: each pixel gets its region's largest index + 1, ground gets 0."""
    label = torch.where(mask, torch.arange(1, mask[0].numel() + 1.0).view(mask.shape[1:]), 0.0)
    while True:
        grown = F.max_pool2d(label[:, None], 3, stride=1, padding=1)[:, 0] * mask
        if torch.equal(grown, label):
            return label.long()
        label = grown


def _halved(covers: Tensor) -> Tensor:
    """Coverages [T, 2·HALF, 2·HALF] at half resolution, flat: overlaps barely change and cost a quarter."""
    return F.avg_pool2d(covers[:, None], 2).flatten(1)


@cache
def _templates() -> tuple[list[tuple[str, float, float, float]], npt.NDArray[np.float64], Tensor]:
    """Every shape at radii 7…22 and small shifts: (shape, radius, dx, dy), the radii again, coverages [T, HALF²]."""
    axis = np.arange(-HALF, HALF, dtype=np.float32) + 0.5
    covers, names = [], []
    for shape in SHAPES:
        for radius in np.arange(7, 22.1, 0.75):
            for dx in (-1.0, 0.0, 1.0):
                for dy in (-2.0, -1.0, 0.0, 1.0, 2.0):
                    x, y = np.meshgrid(axis - np.float32(dx), axis - np.float32(dy))
                    covers.append(np.clip(0.5 - distance(shape, x, y, float(radius)), 0, 1))
                    names.append((shape, float(radius), dx, dy))
    radii = np.array([name[1] for name in names])
    return names, radii, _halved(torch.from_numpy(np.stack(covers).astype(np.float32)))


def _fit(alpha: Tensor, cx: int, cy: int, extent: float) -> tuple[str, float, float, float, float]:
    """Best template for soft coverage ``alpha`` [H, W] about pixel (cx, cy): (shape, x, y, radius, overlap)."""
    padded = F.pad(alpha, (HALF, HALF, HALF, HALF))
    crop = _halved(padded[None, cy : cy + 2 * HALF, cx : cx + 2 * HALF])
    names, radii, covers = _templates()
    chosen = np.flatnonzero(abs(radii - extent) <= 2.3)
    if not len(chosen):
        chosen = np.flatnonzero(abs(radii - extent) == abs(radii - extent).min())
    candidates = covers[torch.from_numpy(chosen)]
    shared = torch.minimum(candidates, crop).sum(-1)
    overlap = shared / (candidates.sum(-1) + crop.sum() - shared)
    best = int(overlap.argmax())
    shape, radius, dx, dy = names[int(chosen[best])]
    return shape, cx + dx, cy + dy, radius, float(overlap[best])


def find_objects(pixels: Tensor) -> list[list[Found]]:
    """Objects in each picture of ``pixels`` uint8 [B, 3, 64, 64], best fit first."""
    images = pixels.float()
    smooth = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    ground = _ground(smooth)
    palette = torch.tensor([PALETTE[c] for c in COLORS], dtype=torch.float32)
    centres = torch.cat([ground[:, None], palette.expand(len(images), -1, -1)], 1)
    nearest = torch.cdist(smooth.flatten(2).transpose(1, 2), centres).argmin(-1).view(len(images), *images.shape[2:])
    labels = _regions(nearest > 0)
    out = []
    for image, names, label, base in zip(smooth, nearest, labels, ground, strict=True):
        found = []
        for region in label.unique().tolist():
            inside = label == region
            if region == 0 or int(inside.sum()) < MIN_AREA:
                continue
            color = int(names[inside].mode().values) - 1
            axis = palette[color] - base
            alpha = ((image - base[:, None, None]) * axis[:, None, None]).sum(0) / axis.square().sum()
            near = F.max_pool2d(inside[None].float(), 3, stride=1, padding=1)[0] > 0
            alpha = alpha.clamp(0, 1) * near
            ys, xs = inside.nonzero(as_tuple=True)
            cx, cy = round(float(xs.min() + xs.max() + 1) / 2), round(float(ys.min() + ys.max() + 1) / 2)
            extent = max(float(xs.max() - xs.min()), float(ys.max() - ys.min())) / 2 + 0.5
            shape, x, y, radius, fit = _fit(alpha, cx, cy, extent)
            if fit >= MIN_FIT:
                found.append(Found(shape, COLORS[color], x, y, radius, fit))
        out.append(sorted(found, key=lambda f: -f.fit))
    return out


def _related(group: Sequence[Found], others: Sequence[Found], relation: str) -> bool:
    """Whether every object of ``group`` stands in ``relation`` to every one of ``others``."""
    return all(relation in relation_of((a.x, a.y, a.radius), (b.x, b.y, b.radius)) for a in group for b in others)


def judge(found: Sequence[Found], metadata: Mapping[str, Any]) -> tuple[bool, str]:
    """GenEval's verdict on the objects of one picture, and the first reason when it is no."""
    matched: list[list[Found]] = []
    for want in metadata["include"]:
        count = want["count"]
        objects = [f for f in found if f.shape == want["class"]][:count]
        if len(objects) < count:
            return False, f"{len(objects)} of {count} {want['class']} found"
        if "color" in want:
            right = sum(f.color == want["color"] for f in objects)
            if right < count:
                return False, f"{want['class']} is {objects[0].color}, not {want['color']}"
        if "position" in want:
            relation, k = want["position"]
            if not _related(objects, matched[k], relation):
                return False, f"{want['class']} is not {relation} {matched[k][0].shape}"
        matched.append(objects)
    for banned in metadata.get("exclude", ()):
        seen = sum(f.shape == banned["class"] for f in found)
        if seen >= banned["count"]:
            return False, f"{seen} {banned['class']} found, fewer than {banned['count']} allowed"
    return True, ""


def score_scenes(pixels: Tensor, metadata: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Judge pictures uint8 [B, 3, 64, 64] against GenEval metadata: ``correct``, ``reason`` and ``family`` of each."""
    verdicts = []
    for found, wanted in zip(find_objects(pixels), metadata, strict=True):
        correct, reason = judge(found, wanted)
        verdicts.append({"correct": correct, "reason": reason, "family": wanted["tag"]})
    return verdicts
