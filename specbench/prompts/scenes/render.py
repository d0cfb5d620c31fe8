"""Draws scenes: anti-aliased shapes on textured grounds, so that image tokens are uncertain as in photographs.

Knows: signed distances of the shapes and the texture model (a ground colour, a gradient, two scales of correlated
noise, grain).
Refuses to know: captions, families, and tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench.prompts.scenes.world import PALETTE, SIZE, Scene, Thing

Floats = npt.NDArray[np.floating[Any]]

FINE, COARSE = 1.2, 2.5
"""Correlation lengths (standard deviation of the Gaussian, pixels) of the luminance and the per-channel noise."""

_AXIS = np.arange(SIZE, dtype=np.float32) + 0.5


def distance(shape: str, x: Floats, y: Floats, r: float) -> Floats:
    """Signed distance (pixels, negative inside) from a shape of half extent ``r`` centred at the origin."""
    match shape:
        case "circle":
            return np.hypot(x, y) - r
        case "square":
            return np.maximum(abs(x), abs(y)) - 0.9 * r
        case "ring":
            return abs(np.hypot(x, y) - 0.74 * r) - 0.26 * r
        case "cross":
            arm = 0.32 * r
            return np.minimum(np.maximum(abs(x) - r, abs(y) - arm), np.maximum(abs(x) - arm, abs(y) - r))
        case "triangle":
            slope = 1 / np.hypot(1.0, 0.5)
            return np.maximum(y - 0.85 * r, (abs(x) - 0.5 * (y + r)) * slope)
        case "star":
            angle = np.arctan2(x, -y)
            sector = 2 * np.pi / 5
            folded = abs(angle - sector * np.round(angle / sector))
            rho = np.hypot(x, y)
            px, py = rho * np.sin(folded), rho * np.cos(folded)
            inner = 0.5 * r
            ex, ey = inner * np.sin(sector / 2), inner * np.cos(sector / 2) - r
            return (px * -ey + (py - r) * ex) / np.hypot(ex, ey)
    raise ValueError(f"no such shape: {shape}")


def _gaussian(sigma: float) -> Floats:
    """Transfer function of a Gaussian blur on the torus, scaled so that white noise keeps unit variance."""
    f = np.fft.fftfreq(SIZE)
    g = np.exp(-2 * (np.pi * sigma) ** 2 * f**2)
    kernel = np.outer(g, g)
    return (kernel / np.sqrt((kernel**2).mean())).astype(np.float32)


_FINE, _COARSE = _gaussian(FINE), _gaussian(COARSE)


def _noise(rng: np.random.Generator, count: int, kernel: Floats) -> Floats:
    """``count`` fields [count, SIZE, SIZE] of unit-variance correlated noise (two real fields per complex FFT)."""
    pairs = (count + 1) // 2
    white = rng.standard_normal((pairs, 2, SIZE, SIZE), dtype=np.float32)
    field = np.fft.ifft2(np.fft.fft2(white[:, 0] + 1j * white[:, 1]) * kernel)
    return np.stack([field.real, field.imag], 1).reshape(-1, SIZE, SIZE)[:count].astype(np.float32)


def coverage(thing: Thing) -> Floats:
    """Share of each pixel [SIZE, SIZE] that the object covers (one-pixel anti-aliasing)."""
    x, y = np.meshgrid(_AXIS - np.float32(thing.x), _AXIS - np.float32(thing.y))
    return np.clip(0.5 - distance(thing.shape, x, y, thing.radius), 0, 1)


def render(scenes: Sequence[Scene], rng: np.random.Generator, texture: float = 1.0) -> npt.NDArray[np.uint8]:
    """Draw scenes to uint8 RGB [B, SIZE, SIZE, 3].

    ``texture`` scales the noise of every picture: 1 is the world, 0 a clean world (first stage of a curriculum).
    """
    b = len(scenes)
    tint = rng.uniform(98, 158, (b, 1, 1, 1)) + rng.uniform(-9, 9, (b, 1, 1, 3))
    tilt = rng.uniform(-16, 16, (b, 2, 1, 1)) * texture
    ramp = (_AXIS / SIZE - 0.5) * 2
    images = (tint + (tilt[:, 0, :, :] * ramp[None, :] + tilt[:, 1] * ramp[:, None])[..., None]).astype(np.float32)
    strength = np.ones((b, SIZE, SIZE, 1), dtype=np.float32)
    for i, scene in enumerate(scenes):
        for thing in scene.things:
            cover = coverage(thing)[..., None]
            color = np.asarray(PALETTE[thing.color]) + rng.uniform(-10, 10, 3)
            images[i] += cover * (color.astype(np.float32) - images[i])
            strength[i] -= 0.4 * cover
    fine = _noise(rng, b, _FINE)[..., None] * rng.uniform(8, 18, (b, 1, 1, 1))
    coarse = np.moveaxis(_noise(rng, 3 * b, _COARSE).reshape(b, 3, SIZE, SIZE), 1, -1) * rng.uniform(
        4, 10, (b, 1, 1, 1)
    )
    grain = rng.standard_normal((b, SIZE, SIZE, 3), dtype=np.float32) * 2.5
    images += texture * strength * (fine + coarse + grain).astype(np.float32)
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)
