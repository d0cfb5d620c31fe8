"""Tiny checkpoints are written into the test run's own cache.

What official code computed is found through SPECBENCH_GOLDEN, and in part, with rounded weights, in ``data``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import golden_slices
from tests.models.families import Official


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


@pytest.fixture(params=["whole", "slice"])
def outputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Official:
    """A family's language model and what official code computed on it: the golden folder, and what is committed."""
    if request.param == "whole":
        return Official(request.getfixturevalue("golden"), 1e-5, rounded=False)
    family, folder = request.path.stem.removeprefix("test_"), tmp_path_factory.mktemp("slice")
    golden_slices.unpack(golden_slices.DATA / f"{family}.npz", folder)
    return Official(folder, golden_slices.TOLERANCE[family], rounded=True)
