"""The benchmark set ``scenes`` and the tuning set ``scenes_val``: which captions are asked for, in which order.

Knows: every caption of every family, the split between the two sets, the balance over families.
Refuses to know: pictures. The sets are stored beside this file; ``scripts/make_scene_prompts.py`` writes them.

Families with many captions are split: no caption of one set occurs in the other. Single objects (6 captions) and
counting (18) have too few, so both sets ask for all of them, under other ids and therefore with other noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from specbench.prompts.scenes.captions import metadata
from specbench.prompts.scenes.world import COLORS, FAMILIES, HELD_OUT, RELATIONS, SHAPES, Scene, Thing

PER_FAMILY = {"scenes": 80, "scenes_val": 22}
SPLIT = {"two_object": 20, "colors": 34, "position": 80, "color_attr": 80}
"""How many distinct captions of a family belong to ``scenes``; the rest is left to ``scenes_val``."""


def _thing(shape: str, color: str = "red") -> Thing:
    return Thing(shape, color, 0, 0, 0)


def every_scene(family: str) -> list[Scene]:
    """One scene for each caption of a family (positions and unnamed colours are placeholders)."""
    pairs = list(itertools.permutations(SHAPES, 2))
    match family:
        case "single_object":
            return [Scene(family, (_thing(s),)) for s in SHAPES]
        case "two_object":
            return [Scene(family, (_thing(a), _thing(b))) for a, b in pairs]
        case "counting":
            return [Scene(family, (_thing(s),) * n) for s in SHAPES for n in (2, 3, 4)]
        case "colors":
            return [Scene(family, (_thing(s, c),)) for s in SHAPES for c in COLORS]
        case "position":
            return [Scene(family, (_thing(a), _thing(b)), r) for a, b in pairs for r in RELATIONS]
    colors = list(itertools.permutations(COLORS, 2))
    return [Scene(family, (_thing(a, c), _thing(b, d))) for a, b in pairs for c, d in colors]


def held_out(scene: Scene) -> bool:
    """Whether the caption names a colour-shape pair that no training picture shows."""
    return scene.family in ("colors", "color_attr") and any((t.color, t.shape) in HELD_OUT for t in scene.things)


def _chosen(scenes: Sequence[Scene], family: str, name: str, rng: np.random.Generator) -> list[Scene]:
    """The captions of one family that a set asks for: its side of the split, held-out pairs on the benchmark's."""
    order = [scenes[i] for i in rng.permutation(len(scenes))]
    if family not in SPLIT:
        return order
    if family == "color_attr":
        unseen = [s for s in order if held_out(s)][:16]
        order = unseen + [s for s in order if not held_out(s)]
    else:
        order.sort(key=held_out, reverse=True)
    cut = SPLIT[family]
    return order[:cut] if name == "scenes" else [s for s in order[cut:] if not held_out(s)]


def build(name: str) -> list[dict[str, Any]]:
    """Rows ``{"id", **GenEval metadata, "held_out"}`` of a set, families in turn, so that any limit is balanced."""
    columns = []
    for k, family in enumerate(FAMILIES):
        rng = np.random.default_rng([20261130, k])
        chosen = _chosen(every_scene(family), family, name, rng)
        rng.shuffle(chosen)  # type: ignore[arg-type]
        scenes = list(itertools.islice(itertools.cycle(chosen), PER_FAMILY[name]))
        prefix = "" if name == "scenes" else "val-"
        columns.append(
            [{"id": f"{prefix}{family}-{i:03d}", **metadata(s), "held_out": held_out(s)} for i, s in enumerate(scenes)]
        )
    return [row for group in zip(*columns, strict=True) for row in group]
