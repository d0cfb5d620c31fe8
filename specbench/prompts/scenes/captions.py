"""Words for scenes: the caption of a scene and its GenEval metadata.

Knows: the caption grammar and GenEval's metadata format (``tag``, ``include``, ``exclude``, ``prompt``).
Refuses to know: pixels, token ids, and how a model embeds a word.
"""

from __future__ import annotations

from typing import Any

from specbench.prompts.scenes.world import SHAPES, Scene

NUMBERS = {2: "two", 3: "three", 4: "four"}


def plural(shape: str) -> str:
    """The plural of a shape's name.

    >>> plural("cross")
    'crosses'
    """
    return f"{shape}es" if shape == "cross" else f"{shape}s"


def caption(scene: Scene) -> str:
    """The caption of a scene in the form of its family."""
    first = scene.things[0]
    if scene.family == "counting":
        return f"a picture of {NUMBERS[len(scene.things)]} {plural(first.shape)}"
    colored = scene.family in ("colors", "color_attr") or scene.named_colors
    names = [f"a {t.color} {t.shape}" if colored else f"a {t.shape}" for t in scene.things]
    joint = f" {scene.relation} " if scene.relation else " and "
    return "a picture of " + joint.join(names)


def metadata(scene: Scene) -> dict[str, Any]:
    """GenEval metadata of a scene.

    As in GenEval, counting excludes one more object of the class and the two-object families allow bystanders. Families
    with a single object go further than GenEval: the caption names everything in the picture, so any other object is
    excluded.
    """
    first = scene.things[0]
    include: list[dict[str, Any]]
    exclude: list[dict[str, Any]] = []
    if scene.family == "counting":
        n = len(scene.things)
        include, exclude = [{"class": first.shape, "count": n}], [{"class": first.shape, "count": n + 1}]
    else:
        colored = scene.family in ("colors", "color_attr")
        include = [{"class": t.shape, "count": 1, **({"color": t.color} if colored else {})} for t in scene.things]
        if len(scene.things) == 1:
            exclude = [{"class": s, "count": 2 if s == first.shape else 1} for s in SHAPES]
        if scene.relation:
            # things[0] stands in the relation to things[1]; GenEval hangs it on the object that is placed.
            include = [include[1], {**include[0], "position": [scene.relation, 0]}]
    out = {"tag": scene.family, "include": include, "prompt": caption(scene)}
    return {**out, "exclude": exclude} if exclude else out
