"""Defects planted in the canvas that all real families share are seen by the suite, and each under its own name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from specbench.models import tiny
from specbench.models.prompted import PromptedCanvas
from specbench.models.trunk import Slab
from specbench.verify.targets import target_conformance
from tests.models.families import load_folder

keep, sees = PromptedCanvas.keep, PromptedCanvas._sees


def one_too_many(self: PromptedCanvas, n: Tensor, path: Tensor | None = None) -> None:
    keep(self, n, path)
    self.committed = self.committed + 1


def what_was_refused_stays_in_sight(self: PromptedCanvas, within: Tensor | None) -> Tensor:
    right = sees(self, within)
    written = self.cache.kv[0, 0].abs().sum((1, 3)) > 0
    return right if within is not None else right | written[:, None, None, : right.shape[-1]]


def padding_in_sight(self: PromptedCanvas, within: Tensor | None) -> Tensor:
    self.prompt = self.prompt._replace(padded=False)
    return sees(self, within)


def nothing_moves(self: Slab, source: Tensor, to: Tensor) -> None:
    return None


@pytest.fixture(scope="module", params=["janus", "lumina"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp(request.param)
    tiny.WRITERS[request.param](folder, side=4, codes=32, layers=1, dtype=torch.float64)
    more = {"side": 4} if request.param == "lumina" else {}
    return load_folder(request.param, folder, torch.float64, **more)


@pytest.mark.parametrize(
    ("where", "name", "defect", "says"),
    [
        (PromptedCanvas, "keep", one_too_many, "windows equal single passes"),
        (PromptedCanvas, "_sees", what_was_refused_stays_in_sight, "windows equal single passes"),
        (PromptedCanvas, "_sees", padding_in_sight, "rows are independent"),
        (Slab, "move", nothing_moves, "trees equal their paths"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_defect_is_seen(
    monkeypatch: pytest.MonkeyPatch, target: Any, where: type, name: str, defect: Callable[..., Any], says: str
) -> None:
    monkeypatch.setattr(where, name, defect)
    result = target_conformance("defective", target)
    assert result.passed is False
    assert says in result.detail
