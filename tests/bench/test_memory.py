"""Out of memory: named, recorded as the cell's state, and what is wider is not tried; what fits goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench import bench
from specbench.bench import registry
from specbench.cli.main import run_cli
from specbench.decoding.interfaces import Forward, Prompt
from specbench.errors import SpecbenchError
from tests.bench.toy import ToyCanvas, ToyTarget

Ask = Callable[..., Any]
LIMIT = {"tokens": 3}
"""From how many tokens a pass runs out of memory."""
TRIED: list[int] = []


class SmallCanvas(ToyCanvas):
    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        TRIED.append(tokens.shape[1])
        if tokens.shape[1] >= LIMIT["tokens"]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nMore that nobody reads")
        return super().forward(tokens, parents, taps)


class SmallTarget(ToyTarget):
    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> SmallCanvas:
        return SmallCanvas(self, len(prompts))


@pytest.fixture(autouse=True)
def small_model(toy_model: None, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register_target("toy", SmallTarget)
    monkeypatch.setitem(LIMIT, "tokens", 3)
    # The entropy of AR's laws is found in passes as wide as the toy's image, which a real image's never are.
    monkeypatch.setattr("specbench.bench.probe.CHUNK", 1)
    TRIED.clear()


def states(document: dict[str, Any]) -> dict[tuple[str, int, int], str]:
    return {(cell["method"], cell["window"], cell["seed"]): cell["state"] for cell in document["cells"]}


def grid(ask: Ask, **more: Any) -> list[Any]:
    found: list[Any] = ask("method=sjd,scd", "window=2,3,4", "seed=0,1", **more)
    return found


@pytest.mark.parametrize("windows", ["2,3,4", "4,3,2"])
def test_a_window_that_does_not_fit_is_recorded_and_wider_ones_are_not_tried(
    ask: Ask, tmp_path: Path, windows: str
) -> None:
    document = bench.run(ask("method=sjd,scd", f"window={windows}", "seed=0,1"), tmp_path)
    found = states(document)
    for seed in (0, 1):
        assert found["ar", 1, seed] == found["sjd", 2, seed] == found["scd", 2, seed] == "done"
        assert {found[method, 4, seed] for method in ("sjd", "scd")} == {"skipped"}
        assert {found[method, 3, seed] for method in ("sjd", "scd")} == {"oom"}, "another method may take less"
    assert 4 not in TRIED, "a wider window was tried after a narrower one had not fitted"
    ran_out = next(cell for cell in document["cells"] if cell["state"] == "oom")
    assert ran_out["error"] == "out of memory: CUDA out of memory. Tried to allocate 20.00 MiB."
    assert bench.exit_code(document) == 1


def test_batches_which_nothing_warms_up_are_shuffled_and_may_meet_it_anywhere(ask: Ask, tmp_path: Path) -> None:
    found = states(bench.run(grid(ask, batch=2), tmp_path))
    assert {state for (_, window, _), state in found.items() if window < 3} == {"done"}
    assert {state for (_, window, _), state in found.items() if window == 3} == {"oom"}
    assert {state for (_, window, _), state in found.items() if window == 4} <= {"oom", "skipped"}


def test_it_is_in_the_journal_and_another_run_tries_again(ask: Ask, tmp_path: Path) -> None:
    """A state is this run's: who freed memory, or took a larger machine, gets the images without another word."""
    bench.run(grid(ask), tmp_path)
    journal = [json.loads(line) for line in bench.export(tmp_path)]
    assert {line["state"] for line in journal if line["kind"] == "failure"} == {"oom"}
    before = {line["cell"] for line in journal if line["kind"] == "image"}
    again = bench.run(grid(ask), tmp_path)
    assert {"oom", "skipped", "done"} == set(states(again).values())
    LIMIT["tokens"] = 5
    whole = bench.run(grid(ask), tmp_path)
    assert set(states(whole).values()) == {"done"}
    assert before < {cell["id"] for cell in whole["cells"]}
    assert bench.exit_code(whole) == 0


def test_the_cost_of_a_pass_is_measured_below(ask: Ask, tmp_path: Path) -> None:
    LIMIT["tokens"] = 2
    told: list[Any] = []
    document = bench.run(ask("method=scd", "window=2"), tmp_path, told.append)
    assert states(document)["scd", 2, 0] == "oom"
    assert document["cost_curve"] is not None
    assert not [event for event in told if type(event).__name__ == "Note"]


def test_where_ar_does_not_fit_nothing_is_compared_with_it(ask: Ask, tmp_path: Path) -> None:
    LIMIT["tokens"] = 1
    document = bench.run(ask("method=scd", "window=2"), tmp_path)
    assert states(document) == {("ar", 1, 0): "oom", ("scd", 2, 0): "skipped"}
    assert "its AR baseline is oom: out of memory: CUDA" in document["cells"][1]["error"]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory.\nMore"), MemoryError()])
def test_weights_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    pytest.importorskip("transformers")

    def full(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("specbench.models.load_checkpoint", full)
    with pytest.raises(SpecbenchError, match=r"^model=janus/tiny does not fit into the memory of device=cpu"):
        registry.load_target("janus/tiny")


def test_anywhere_else_it_is_one_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore")

    monkeypatch.setattr("specbench.bench.planning.prepare", full)
    assert run_cli(["run", "model=mini", "method=ar", "--dry-run"]) == 1
    assert capsys.readouterr().err == "specbench: out of memory: try a smaller batch, window or model\n"
