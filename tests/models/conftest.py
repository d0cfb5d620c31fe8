"""Tiny checkpoints are written into the test run's own cache; golden outputs are found through SPECBENCH_GOLDEN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "SPECBENCH_WEIGHTS_ROOT"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder with what official code computed on tiny checkpoints."""
    named = os.environ.get("SPECBENCH_GOLDEN")
    if not named:
        pytest.skip("SPECBENCH_GOLDEN is not set: the outputs of the official implementations are not here")
    if not Path(named).is_dir():
        pytest.skip(f"SPECBENCH_GOLDEN={named} is not a folder")
    return Path(named)
