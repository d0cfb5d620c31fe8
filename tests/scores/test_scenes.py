"""The exact scorer says yes to what a caption says and no to what misses it by one thing."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch

from specbench.models.mini import weights
from specbench.prompts.scenes.captions import metadata
from specbench.prompts.scenes.negatives import negatives
from specbench.prompts.scenes.render import render
from specbench.prompts.scenes.world import FAMILIES, Scene, sample_scene
from specbench.scores.scenes import Found, judge, score_scenes

FAST, SLOW = 24, 200


def pictures(scenes: list[Scene], rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(render(scenes, rng)).movedim(-1, 1)


def scenes_of(family: str, count: int, rng: np.random.Generator) -> list[Scene]:
    return [sample_scene(rng, family, held_out=None) for _ in range(count)]


def share_correct(images: torch.Tensor, wanted: list[Scene]) -> float:
    return float(np.mean([v["correct"] for v in score_scenes(images, [metadata(s) for s in wanted])]))


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_truth_is_recognised_in_every_family(family: str, count: int) -> None:
    rng = np.random.default_rng(11)
    scenes = scenes_of(family, count, rng)
    images = pictures(scenes, rng)
    seen = share_correct(images, scenes)
    chance = share_correct(images.roll(1, 0), scenes)
    print(f"{family}: renders {seen:.3f}, captions shuffled (chance) {chance:.3f}")
    assert seen >= 0.99
    assert chance <= seen - 0.3


@pytest.mark.skipif(not weights.PATH.exists(), reason="mini's weights are not trained yet")
@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_reconstructions_are_recognised_in_every_family(family: str, count: int) -> None:
    tokenizer = weights.load_mini(torch.float32, "cpu").tokenizer
    rng = np.random.default_rng(12)
    scenes = scenes_of(family, count, rng)
    with torch.inference_mode():
        images = tokenizer.decode(tokenizer.encode(pictures(scenes, rng)))
    seen = share_correct(images, scenes)
    print(f"{family}: reconstructions {seen:.3f}")
    assert seen >= 0.9


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_hard_negatives_are_refused_in_every_family(family: str, count: int) -> None:
    rng = np.random.default_rng(13)
    kinds: dict[str, list[tuple[Scene, Scene]]] = defaultdict(list)
    while not kinds or min(map(len, kinds.values())) < count:
        scene = sample_scene(rng, family, held_out=None)
        for kind, wrong in negatives(scene, rng).items():
            kinds[kind].append((scene, wrong))
    for kind, pairs in kinds.items():
        refused = 1 - share_correct(pictures([w for _, w in pairs], rng), [s for s, _ in pairs])
        print(f"{family}, {kind}: {refused:.3f} of {len(pairs)} refused")
        assert refused >= 0.97, kind


def found(shape: str, x: float = 32, y: float = 32, color: str = "red", radius: float = 10) -> Found:
    return Found(shape, color, x, y, radius, 0.9)


def include(*items: dict[str, object], exclude: list[dict[str, object]] | None = None) -> dict[str, object]:
    return {"tag": "x", "include": list(items), "exclude": exclude or []}


CASES = [
    ("present", [found("ring")], include({"class": "ring", "count": 1}), True),
    ("absent", [found("star")], include({"class": "ring", "count": 1}), False),
    ("too few", [found("ring")], include({"class": "ring", "count": 2}), False),
    ("wrong colour", [found("ring")], include({"class": "ring", "count": 1, "color": "blue"}), False),
    (
        "excluded at the limit",
        [found("ring")] * 3,
        include({"class": "ring", "count": 2}, exclude=[{"class": "ring", "count": 3}]),
        False,
    ),
    (
        "below the limit",
        [found("ring")] * 2,
        include({"class": "ring", "count": 2}, exclude=[{"class": "ring", "count": 3}]),
        True,
    ),
    (
        "left",
        [found("ring", 10), found("star", 50)],
        include({"class": "star", "count": 1}, {"class": "ring", "count": 1, "position": ["left of", 0]}),
        True,
    ),
    (
        "not right",
        [found("ring", 10), found("star", 50)],
        include({"class": "star", "count": 1}, {"class": "ring", "count": 1, "position": ["right of", 0]}),
        False,
    ),
    (
        "diagonal holds both",
        [found("ring", 10, 10), found("star", 54, 54)],
        include({"class": "star", "count": 1}, {"class": "ring", "count": 1, "position": ["above", 0]}),
        True,
    ),
    (
        "too close",
        [found("ring", 30), found("star", 33)],
        include({"class": "star", "count": 1}, {"class": "ring", "count": 1, "position": ["left of", 0]}),
        False,
    ),
]


@pytest.mark.parametrize(("seen", "wanted", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_judge_follows_genevals_rules(seen: list[Found], wanted: dict[str, object], expected: bool) -> None:
    assert judge(seen, wanted)[0] is expected
