from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench.bench import compose, registry
from specbench.bench.config import RunRequest
from tests.bench.toy import ToyTarget, write_prompts


@pytest.fixture(autouse=True)
def toy_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy target as a registered model; whatever a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_models", {})
    monkeypatch.setattr(registry, "_methods", {})
    monkeypatch.setattr(registry, "_loaded", set())
    registry.register_target("toy", ToyTarget, summary="four tokens, for tests")


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., list[RunRequest]]:
    """Requests on the toy target with 24 captions from a file: ``ask("method=scd", "window=2", limit=3)``."""

    def ask(*words: str, limit: int = 3, **more: Any) -> list[RunRequest]:
        prompts = write_prompts(tmp_path / "captions.txt", 24)
        given = [f"{key}={value}" for key, value in more.items()]
        path, model = f"prompts.path={prompts}", "model=toy"
        return compose([model, "dtype=float64", "prompts=file", path, f"prompts.limit={limit}", *words, *given])

    return ask
