from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import specbench
from specbench import bench
from specbench.bench import registry
from specbench.bench.cells import code_fingerprint
from specbench.decoding.fill import FILLS
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError

PLUGIN = """
import specbench
from specbench.decoding.redraft import Independent

class Mine(Independent):
    pass

specbench.register_method(
    "mine", lossless=True, summary="my own", window=2,
    settings={"decoder": "jacobi", "redraft": Mine(), "accept": "strict", "fill": "uniform"},
)
"""


def test_a_plugin_file_brings_a_method_with_its_own_part(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    (request,) = bench.compose(["method=mine"], plugins=[file])
    assert (request.window, request.settings["redraft"]) == (2, "mine:Mine")
    decoder = registry.build("mine", request.settings, request.window, Sampling())
    assert type(decoder.redraft).__name__ == "Mine"  # type: ignore[attr-defined]
    assert "mine" in [row["name"] for row in bench.list_methods()]


def test_a_plugins_source_enters_its_own_cells_only(tmp_path: Path) -> None:
    before = code_fingerprint("ar", "mini")
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    bench.compose(["method=mine"], plugins=[file])
    first = code_fingerprint("mine", "mini")
    assert code_fingerprint("ar", "mini") == before != first
    registry._loaded.clear()
    file.write_text(PLUGIN + "\n# changed\n")
    bench.compose(["method=mine"], plugins=[file])
    assert code_fingerprint("mine", "mini") != first


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("import nowhere_at_all", "failed while loading: ModuleNotFoundError"),
        ("1 +", "failed while loading: SyntaxError"),
    ],
)
def test_a_broken_plugin_is_named(tmp_path: Path, content: str, answer: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(content)
    with pytest.raises(UsageError, match=answer):
        bench.compose([], plugins=[file])


def test_a_missing_plugin_is_named() -> None:
    with pytest.raises(UsageError, match=r"plugin 'nowhere.py' does not exist"):
        bench.compose([], plugins=["nowhere.py"])


def test_shipped_names_cannot_be_taken() -> None:
    with pytest.raises(UsageError, match="shipped"):
        specbench.register_method("scd", lossless=True, settings={"decoder": "ar"})
    with pytest.raises(UsageError, match="needs settings or a factory"):
        specbench.register_method("mine", lossless=True)


def test_a_factory_is_given_window_sampling_and_settings() -> None:
    @dataclass
    class Decoder:
        window: int
        sampling: Sampling
        speed: int = 1

        def decode(self) -> None: ...

    specbench.register_method("mine", lossless=False, factory=Decoder, settings={"speed": 3}, window=4)
    (request,) = bench.compose(["method=mine", "method.speed=5"])
    decoder: Any = registry.build("mine", request.settings, request.window, Sampling(top_k=2))
    assert (decoder.window, decoder.speed, decoder.sampling.top_k) == (4, 5, 2)
    assert request.lossless is False


def test_a_registered_model_brings_its_protocol(ask: Callable[..., Any]) -> None:
    (request,) = ask("method=scd", window=2)
    assert request.sampling == {"temperature": 1.0, "top_k": None, "top_p": None, "guidance": None}


def test_the_notebook_makes_the_image_of_the_command_line(tmp_path: Path) -> None:
    words = ["model=mini/tiny", "method=scd", "window=4", "seed=3", "dtype=float64", "prompt=a red ring", "scores=none"]
    bench.run(bench.compose(words), tmp_path)
    stored = [json.loads(line) for line in bench.export(tmp_path, canonical=True)]
    target = specbench.load_target("mini/tiny", dtype="float64")
    ours = specbench.load_decoder("scd", window=4).decode(target, prompts=["a red ring"], seed=3)
    assert ours.tokens[0].tolist() in [line["tokens"] for line in stored if line["kind"] == "image"]
    assert isinstance(ours, specbench.Generation)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: specbench.load_decoder("sdc"), "did you mean 'scd'"),
        (lambda: specbench.load_decoder("scd", window=0), "at least 1"),
        (lambda: specbench.load_decoder("scd", fil="left"), "did you mean 'fill'"),
        (lambda: specbench.load_decoder("scd", fill="lft"), "did you mean 'left'"),
        (lambda: specbench.load_target("minni"), "did you mean 'mini'"),
    ],
)
def test_the_notebook_door_answers_typos(call: Callable[[], object], answer: str) -> None:
    with pytest.raises(UsageError, match=answer):
        call()


def test_completion_offers_every_fill_that_exists() -> None:
    assert set(bench.values("method.fill")) == set(FILLS)


def test_a_plugin_that_exits_is_an_error_and_not_a_success(tmp_path):
    plugin = tmp_path / "leaves.py"
    plugin.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UsageError, match="leaves"):
        registry.load_plugins([plugin])
