"""The conformance suite of targets passes on ours and notices a broken cache, a coupled batch, a wrong guidance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specbench.models import load_target
from specbench.models.mini.target import MiniCanvas, MiniTarget
from specbench.verify.targets import target_conformance


def tiny() -> MiniTarget:
    target = load_target("mini/tiny", "float64")
    assert isinstance(target, MiniTarget)
    return target


def test_the_tiny_model_conforms() -> None:
    result = target_conformance("mini/tiny", tiny())
    assert result.passed, result.detail


def forgetful(self: MiniCanvas, n: Tensor) -> None:
    self.committed += n.amin()


def off_by_one(self: MiniCanvas, n: Tensor) -> None:
    self.committed += n + 1


def scaled(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    return cond * scale - uncond


def averaged(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    mixed = uncond + scale * (cond - uncond)
    return mixed + 0.01 * mixed.mean(0, keepdim=True)


@pytest.mark.parametrize("keep", [forgetful, off_by_one])
def test_a_cache_at_the_wrong_place_is_noticed(
    monkeypatch: pytest.MonkeyPatch, keep: Callable[[MiniCanvas, Tensor], None]
) -> None:
    monkeypatch.setattr(MiniCanvas, "keep", keep)
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert "windows equal single passes" in result.detail


@pytest.mark.parametrize(("guide", "says"), [(scaled, "guidance"), (averaged, "rows are independent")])
def test_wrong_guidance_and_coupled_rows_are_noticed(
    monkeypatch: pytest.MonkeyPatch, guide: Callable[..., Tensor], says: str
) -> None:
    monkeypatch.setattr("specbench.models.mini.target.guide", guide)
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert says in result.detail


def test_pictures_of_the_wrong_kind_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MiniTarget, "pixels", lambda self, tokens: torch.zeros(len(tokens), 3, 4, 4))
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert "uint8" in result.detail
