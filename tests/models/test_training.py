"""Training runs through all its stages at toy size, resumes, and leaves weights that load."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from specbench.errors import SpecbenchError, UsageError
from specbench.models.mini import text, weights
from specbench.models.mini.training import data, recipe, tokenizer
from specbench.models.mini.training.transformer import Plan, learning_rate, loss_of
from specbench.prompts.scenes.captions import caption
from specbench.prompts.scenes.world import HELD_OUT


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pictures, so that a stage takes a second."""
    draw = tokenizer.draw_pictures
    monkeypatch.setattr(data, "SHARD", 8)
    monkeypatch.setattr(tokenizer, "draw_pictures", lambda rng, count: draw(rng, 12))
    monkeypatch.setattr(tokenizer.train_tokenizer, "__defaults__", (4, 0, 12, print))


@pytest.mark.usefixtures("toy")
def test_training_makes_weights_that_load_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings = {"clean_steps": 10, "batch": 2, "workers": 1, "tokenizer_steps": 2, "clean_shards": 1, "shards": 1}
    recipe.train(str(tmp_path), steps=20, **settings)
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    path = recipe.train(str(tmp_path), steps=22, **settings)
    after = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert (before["step"], after["step"]) == (20, 22)
    assert not torch.equal(before["model"]["head.weight"], after["model"]["head.weight"])
    assert [json.loads(x)["step"] for x in (tmp_path / "curve.jsonl").read_text().splitlines()] == [20]
    assert (tmp_path / "curve.png").stat().st_size > 1000
    target = weights.load_mini(torch.float32, "cpu", path)
    stored = after["average"]["head.weight"].to(torch.bfloat16).float()
    assert torch.equal(target.transformer.head.weight, stored)


def test_held_out_pairs_never_reach_a_training_picture() -> None:
    scenes = data.training_scenes(np.random.default_rng(3), 3000)
    assert not {(t.color, t.shape) for s in scenes for t in s.things} & HELD_OUT


def test_every_word_of_a_training_caption_is_known() -> None:
    captions = [caption(s) for s in data.training_scenes(np.random.default_rng(5), 3000)]
    assert not [w for c in captions for w in text.warnings(c)]


def test_object_tokens_cover_what_is_drawn() -> None:
    scenes = data.training_scenes(np.random.default_rng(4), 50)
    share = data.object_tokens(scenes, 16).mean()
    assert 0.1 < share < 0.5


def test_object_weight_moves_the_loss_towards_object_tokens() -> None:
    logits = torch.zeros(1, 2, 3)
    logits[0, 0, 0] = 5.0  # token 0 is well predicted, token 1 is not
    codes, objects = torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[False, True]])
    weighted, plain = loss_of(logits, codes, objects, 4.0)
    assert weighted > plain
    assert torch.isclose(loss_of(logits, codes, objects, 1.0)[0], plain)


def test_learning_rate_warms_up_stays_and_decays() -> None:
    plan = Plan("", steps=1000, warmup=100, decay=0.25)
    rates = [learning_rate(plan, s) for s in (0, 99, 500, 750, 875, 999)]
    assert rates == pytest.approx([0.01, 1, 1, 1, 0.5, 0.004])


@pytest.mark.parametrize("bad", [{"steps": 0}, {"clean_steps": 9, "steps": 5}, {"batch": 3, "workers": 2}])
def test_impossible_settings_are_refused_before_anything_is_written(tmp_path: Path, bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        recipe.train(str(tmp_path / "x"), **bad)
    assert not (tmp_path / "x").exists()


def test_missing_or_mismatched_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecbenchError, match=r"gone\.safetensors"):
        weights.load_mini(torch.float32, "cpu", tmp_path / "gone.safetensors")
