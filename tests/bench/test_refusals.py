"""Requests that cannot be meant are refused in one sentence before anything is loaded or written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import specbench
from specbench import bench
from specbench.bench import paths, registry
from specbench.errors import SpecbenchError, UsageError
from tests.bench.toy import ToyTarget

Ask = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["method=ar,sjd", "window=-5"], "window must be at least 1, not -5"),
        (["sampling.temperature=1e-40"], "at least 0.001 and at most 1000"),
        (["sampling.temperature=1e30"], "at least 0.001 and at most 1000"),
        (["sampling.top_p=1e-320"], "at least 1e-06 and at most 1"),
        (["sampling.guidance=1e38"], "at least 0 and at most 1000"),
        (["device=cpu:abc"], "did you mean 'cpu'"),
        (["device=cuda:x"], "unknown device"),
        (["prompt=a star", "prompts=scenes"], "prompts=scenes names others"),
        (["prompt=a star", "prompts=file", "prompts.path=README.md"], "prompts.path=README.md names others"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        bench.compose(words)
    assert says in str(caught.value)


def test_a_sweep_may_hold_a_method_without_a_window_and_a_caption_needs_no_set() -> None:
    assert [r.window for r in bench.compose(["method=ar,scd", "window=4"])] == [None, 4]
    assert bench.compose(["prompt=a star", "prompts.samples=2"])[0].prompts.text == "a star"


def test_a_device_that_is_not_there_is_refused_whoever_loads_the_model(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="this machine has 1 CUDA device; use device=cpu"):
        bench.run(ask("method=ar", device="cuda:1"), tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no usable CUDA device"):
        bench.run(ask("method=ar", device="cuda"), tmp_path)


def test_a_prompt_beyond_reason_is_refused_and_a_byte_order_mark_is_no_part_of_one(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"\xef\xbb\xbfa red ring\n")
    words = ["model=toy", "method=ar", "prompts=file", f"prompts.path={file}"]
    bench.run(bench.compose(words), tmp_path / "out")
    assert any('"text":"a red ring"' in line for line in bench.export(tmp_path / "out", canonical=True))
    file.write_text("x" * 10_001)
    with pytest.raises(UsageError, match="a prompt has 10,001 characters, and at most 10,000 are read"):
        bench.run(bench.compose(words), tmp_path / "out")


def test_a_long_warning_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyTarget, "warnings", lambda self, prompt: ["x" * 5000])
    document = bench.run(bench.compose(["model=toy", "method=ar", "prompt=a star"]), tmp_path)
    assert document["warnings"] == ["x" * 200 + "…"]


@pytest.mark.parametrize("name", ["", " ", "a b", "a=b", "-x", "../x", "a,b", None, 3])
def test_a_name_that_cannot_be_typed_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        specbench.register_method(name, lossless=True, settings={"decoder": "ar"})
    with pytest.raises(UsageError, match="cannot be called"):
        registry.register_target(name, ToyTarget)


@pytest.mark.parametrize(("field", "value"), [("lossless", "yes"), ("lossless", 1), ("window", 0), ("window", "8")])
def test_a_claim_or_window_of_another_kind_is_refused(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"'mine': {field} must be"):
        specbench.register_method("mine", **{"lossless": True, "settings": {"decoder": "ar"}, field: value})


@pytest.mark.parametrize("damage", [lambda plain: b"{", lambda plain: json.dumps({**plain, "code": "other"}).encode()])
def test_a_damaged_cell_is_noticed_before_anything_is_decoded(
    ask: Ask, tmp_path: Path, damage: Callable[[Any], bytes]
) -> None:
    bench.run(ask("method=ar"), tmp_path)
    (cell,) = tmp_path.glob("cells/*/cell.json")
    cell.write_bytes(damage(json.loads(cell.read_text())))
    told: list[Any] = []
    with pytest.raises(SpecbenchError, match=r"unreadable at .*cell\.json"):
        bench.run(ask("method=ar", limit=5), tmp_path, told.append)
    assert told == []


def test_a_document_is_read_beside_its_own_store(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = bench.run(ask("method=scd", window=2), "runs")
    (tmp_path / "runs" / "report").mkdir()
    (tmp_path / "runs" / "report" / "document.json").write_text(json.dumps(document))
    (tmp_path / "runs").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = str(tmp_path / "moved" / "report" / "document.json")
    assert bench.compare(file, file)["comparison"]["images"] == 3


def test_clocks_of_one_device_do_not_count_for_another(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=scd", window=2), tmp_path)
    scd = next(cell for cell in document["cells"] if cell["method"] == "scd")
    for journal in tmp_path.glob(f"cells/{scd['id']}/records.jsonl"):
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        moved = [{**line, "device": "cuda"} if line["kind"] == "timing" else line for line in lines]
        journal.write_text("".join(json.dumps(line) + "\n" for line in moved))
    plan = bench.plan(ask("method=scd", window=2), tmp_path)
    assert [cell["to_run"] for cell in plan["cells"]] == [3, 3]
    again = bench.run(ask("method=scd", window=2), tmp_path)
    assert [cell["timed_together"] for cell in again["cells"]] == [3, 3]


def test_the_roots_reach_what_loads_weights_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specbench.cli.options import roots

    monkeypatch.setenv(paths.WEIGHTS_ROOT, "")
    monkeypatch.setenv(paths.DATA_ROOT, "")
    assert paths.weights_root() is paths.data_root() is None
    (tmp_path / "mine.txt").write_text("weights of mine")

    class Mine(ToyTarget):
        def __init__(self, name: str, dtype: str, device: str) -> None:
            super().__init__(name, dtype, device)
            root = paths.weights_root()
            assert root is not None
            self.weights_hash = (root / "mine.txt").read_text()

    registry.register_target("mine", Mine)
    roots(tmp_path, tmp_path)
    assert paths.data_root() == tmp_path
    bench.run(bench.compose(["model=mine", "method=ar", "prompt=a star"]), tmp_path / "out")
    assert any('"weights":"weights of mine"' in line for line in bench.export(tmp_path / "out"))
