"""The scripts that time passes run, on models of no size: what they print has the shape that it should have."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> int:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [name, *words])
    return importlib.import_module(name).main()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if re.match(r" *\d+ +\d", line)]


def test_bench_pass_prints_a_row_a_window_and_precision(monkeypatch, capsys):
    assert run(monkeypatch, "bench_pass", "--tiny", "--turns", "2") == 0
    out = capsys.readouterr().out
    assert [int(row[0]) for row in rows(out)] == [1, 2, 4, 8, 16, 32, 64] * 2
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows(out))


@pytest.mark.parametrize("family", ["janus 1B", "lumina 7B", "cosmos 4B"])
def test_gpu_check_runs_on_the_processor(monkeypatch, capsys, family):
    words = ("--tiny", "--device", "cpu", "--turns", "1", "--layers", "2", "--family", family)
    assert run(monkeypatch, "gpu_check", *words) == 0
    out = capsys.readouterr().out
    assert [int(row[0]) for row in rows(out)] == [1, 2, 4, 8, 16, 32, 64]
    tokens = int(re.search(r"(\d+) tokens", out)[1])
    assert re.search(rf"ar +\S+ s +{tokens} passes", out)
    assert ("generate" in out) == family.startswith("janus")


def test_the_mid_size_model_has_the_stated_size(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import torch

    make, bench = importlib.import_module("random_targets"), importlib.import_module("bench_pass")
    with torch.device("meta"):
        network = make.janus(**bench.SIZES, grid=make.Grid(24, 24))()
    linear = sum(layer.weight.numel() for layer in make.linear_layers(network))
    assert linear >= 300e6
