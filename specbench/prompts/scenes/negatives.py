"""Hard negatives: pictures that miss their caption by one thing. They measure the scorer, never a model.

Knows: which single mistakes a family allows.
Refuses to know: how the scorer looks at a picture.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specbench.prompts.scenes.world import COLORS, SHAPES, Scene, Thing, places

OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


def _other(rng: np.random.Generator, names: tuple[str, ...], *taken: str) -> str:
    return str(rng.choice([n for n in names if n not in taken]))


def _place(rng: np.random.Generator, things: list[Thing], scene: Scene, relation: str | None) -> Scene:
    """The scene with other things, placed anew."""
    spots = places(rng, len(things), relation)
    placed = tuple(replace(t, x=x, y=y, radius=r) for t, (x, y, r) in zip(things, spots, strict=True))
    return replace(scene, things=placed, relation=relation)


def negatives(scene: Scene, rng: np.random.Generator) -> dict[str, Scene]:
    """Scenes that differ from the caption of ``scene`` in one thing, by the kind of mistake."""
    things, relation = list(scene.things), scene.relation
    shapes = [t.shape for t in things]
    out = {}

    def add(kind: str, changed: list[Thing], with_relation: str | None = relation) -> None:
        out[kind] = _place(rng, changed, scene, with_relation)

    wrong = replace(things[0], shape=_other(rng, SHAPES, *shapes))
    add("shape replaced", [wrong, *things[1:]])
    if scene.family == "colors":
        add("colour changed", [replace(things[0], color=_other(rng, COLORS, things[0].color))])
    if scene.family == "color_attr":
        a, b = things
        add("colours swapped", [replace(a, color=b.color), replace(b, color=a.color)])
    if relation:
        add("relation reversed", things, OPPOSITE[relation])
    if scene.family == "counting":
        add("one missing", things[1:])
        if len(things) < 4:
            add("one too many", [*things, things[0]])
    if scene.family in ("single_object", "colors"):
        extra = Thing(_other(rng, SHAPES, *shapes), _other(rng, COLORS, things[0].color), 0, 0, 0)
        add("forbidden extra object", [*things, extra])
    return out
