"""The world ``scenes``: what can be in a picture, where, and which pictures nobody may train on.

Knows: shapes, colours, sizes, placement, the six task families, and how a seed becomes a scene.
Refuses to know: pixels (``render``), words (``captions``) and whether a picture is right (``specbench.scores``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

SIZE = 64
"""Side of a picture in pixels."""

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")

PALETTE = {
    "red": (212, 36, 36),
    "yellow": (236, 214, 48),
    "green": (40, 164, 56),
    "cyan": (44, 200, 214),
    "blue": (40, 72, 214),
    "purple": (160, 44, 190),
    "black": (18, 18, 18),
    "white": (244, 244, 244),
}
"""Nominal colours, 8-bit RGB; a scene jitters them."""

COLORS = tuple(PALETTE)
RELATIONS = ("left of", "right of", "above", "below")
FAMILIES = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
"""GenEval's task families, under GenEval's tags."""

HELD_OUT = frozenset({("red", "star"), ("cyan", "cross"), ("white", "ring"), ("blue", "triangle")})
"""Colour-shape pairs that never occur in a training picture; the benchmark set asks for them."""

GAP = 4.0
"""Least distance between two objects in pixels: one token, so that neighbours never share a token for long."""

RADIUS = {1: (14.0, 20.0), 2: (11.0, 13.5), 3: (10.0, 12.0), 4: (10.0, 12.0)}
"""Range of an object's half extent in pixels, by number of objects."""


@dataclass(frozen=True)
class Thing:
    """One object: its shape and colour, centre (x right, y down) and half extent in pixels."""

    shape: str
    color: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """A picture before it is drawn. ``relation`` holds between things[0] and things[1] when the family is position."""

    family: str
    things: tuple[Thing, ...]
    relation: str | None = None
    named_colors: bool = field(default=False)
    """Whether a position caption also names the colours (training only; the benchmark never asks for it)."""


def relation_of(a: tuple[float, float, float], b: tuple[float, float, float]) -> set[str]:
    """Relations that hold from ``a`` to ``b``, each (x, y, half extent), by GenEval's rule.

    The offset is shrunk on each axis by a tenth of the summed sizes, divided by the length of the unshrunk offset, and
    compared with ±0.5; two relations can hold at once (GenEval, evaluation/evaluate_images.py ``relative_position``).
    """
    dx, dy = a[0] - b[0], a[1] - b[1]
    margin = 0.1 * 2 * (a[2] + b[2])
    sx = math.copysign(max(abs(dx) - margin, 0.0), dx)
    sy = math.copysign(max(abs(dy) - margin, 0.0), dy)
    if abs(sx) < 1e-3 and abs(sy) < 1e-3:
        return set()
    length = math.hypot(dx, dy)
    sx, sy = sx / length, sy / length
    found = {"left of": sx < -0.5, "right of": sx > 0.5, "above": sy < -0.5, "below": sy > 0.5}
    return {name for name, holds in found.items() if holds}


def _apart(things: list[tuple[float, float, float]], x: float, y: float, r: float) -> bool:
    """Whether a box of half extent r at (x, y) keeps the gap from every other box."""
    return all(max(abs(x - ox), abs(y - oy)) >= r + orr + GAP for ox, oy, orr in things)


def places(rng: np.random.Generator, count: int, relation: str | None) -> list[tuple[float, float, float]]:
    """Draw non-overlapping (x, y, half extent) for ``count`` objects; the first two stand in ``relation``."""
    low, high = RADIUS[count]
    while True:
        placed: list[tuple[float, float, float]] = []
        for _ in range(count):
            for _ in range(30):
                r = rng.uniform(low, high)
                x, y = rng.uniform(r + 1, SIZE - r - 1, size=2)
                if _apart(placed, x, y, r):
                    placed.append((float(x), float(y), float(r)))
                    break
        if len(placed) == count and (relation is None or relation_of(placed[0], placed[1]) == {relation}):
            return placed


def sample_scene(rng: np.random.Generator, family: str, *, held_out: bool | None = False) -> Scene:
    """Draw a scene of ``family``.

    ``held_out``: False keeps every held-out pair away (training); True puts one on the first object (families that name
    colours); None draws pairs freely.
    """
    count = {"single_object": 1, "colors": 1, "counting": int(rng.integers(2, 5))}.get(family, 2)
    relation = str(rng.choice(RELATIONS)) if family == "position" else None
    shapes = [str(s) for s in rng.choice(SHAPES, size=count, replace=False)] if count <= 2 else []
    if family == "counting":
        shapes = [str(rng.choice(SHAPES))] * count
    things: list[Thing] = []
    pairs = sorted(HELD_OUT)
    forced = pairs[int(rng.integers(len(pairs)))] if held_out else None
    colors = rng.choice(COLORS, size=count, replace=family == "counting")
    for i, (x, y, r) in enumerate(places(rng, count, relation)):
        shape, color = shapes[i], str(colors[i])
        if forced and i == 0:
            color, shape = forced
        while (
            held_out is not None
            and not (forced and i == 0)
            and (
                (color, shape) in HELD_OUT
                or (family != "counting" and i and (shape == things[0].shape or color == things[0].color))
            )
        ):
            color = str(rng.choice(COLORS))
            if forced:
                shape = str(rng.choice(SHAPES))
        things.append(Thing(shape, color, x, y, r))
    return Scene(family, tuple(things), relation)
