"""The scripts that time passes run, on models of no size: what they print has the shape that it should have."""

from __future__ import annotations

import csv
import importlib
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from specbench.decoding.build import build_decoder
from specbench.decoding.laws import Sampling
from specbench.models import trunk

SCRIPTS = Path(__file__).parents[2] / "scripts"
TINY = {"width": 64, "layers": 2, "heads": 4, "feedforward": 96, "codes": 64}


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(name)


def run(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", [name, *words])
    return script(monkeypatch, name).main()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if re.match(r" *\d+ +\d", line)]


def test_bench_pass_prints_a_row_a_window_and_precision(monkeypatch, capsys, tmp_path):
    table = tmp_path / "pass.csv"
    assert run(monkeypatch, "bench_pass", "--tiny", "--turns", "2", "--csv", str(table)) == 0
    out = capsys.readouterr().out
    assert [int(row[0]) for row in rows(out)] == [1, 2, 4, 8, 16, 32, 64] * 2
    assert all(float(value) > 0 for row in rows(out) for value in row)
    stored = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [int(row["window"]) for row in stored] == [1, 2, 4, 8, 16, 32, 64] * 2
    assert all(float(row["pass_min_ms"]) <= float(row["pass_ms"]) for row in stored)
    assert all(
        math.isclose(float(r["ratio"]), float(r["pass_ms"]) / float(r["floor_ms"]), rel_tol=0.01) for r in stored
    )


@pytest.mark.parametrize(("limit", "code"), [(1e6, 0), (1e-6, 1)])
def test_the_check_of_bench_pass_fails_above_its_limit(monkeypatch, capsys, limit, code):
    monkeypatch.setattr(script(monkeypatch, "bench_pass"), "LIMIT", limit)
    assert run(monkeypatch, "bench_pass", "--tiny", "--turns", "1", "--check") == code
    assert run(monkeypatch, "bench_pass", "--tiny", "--turns", "1") == 0, "without the flag it only tells"


def test_generate_draws_the_greedy_tokens_of_our_ar(monkeypatch, capsys):
    assert run(monkeypatch, "bench_generate", "--tiny", "--turns", "1", "--rows", "2") == 0
    out = capsys.readouterr().out
    assert re.findall(r"the (\w+) cache: (\d+)%", out) == [("growing", "100"), ("static", "100")]
    assert re.search(r"^ar +median .* 1\.00 x our AR$", out, re.M)


def test_generate_runs_on_attention_of_its_own(monkeypatch):
    """The layers are shared and ask their configuration: ours must not run in what is called plain, nor it in ours."""
    make, bench = script(monkeypatch, "random_targets"), script(monkeypatch, "bench_generate")
    target = make.target(make.janus, TINY, make.Grid(2, 4), torch.float32, "cpu")
    calls, attend = [], trunk.attend
    monkeypatch.setattr(trunk, "attend", lambda *given: calls.append(1) or attend(*given))
    plain = bench.Plain(target)
    plain.generate("growing", 1)
    assert not calls
    bench.ours(target, 1)
    assert len(calls) == 2 * 8


FAMILIES = ["janus 1B", "lumina 7B", "emu3 8B", "llamagen XL", "cosmos 4B"]


@pytest.mark.parametrize("family", FAMILIES)
def test_gpu_check_runs_on_the_processor(monkeypatch, capsys, family):
    words = ("--tiny", "--device", "cpu", "--turns", "1", "--layers", "2", "--fast", "graphs", "--family", family)
    assert run(monkeypatch, "gpu_check", *words) == 0
    out = capsys.readouterr().out
    assert [int(row[0]) for row in rows(out)] == [1, 2, 4, 8, 16, 32, 64]
    tokens = int(re.search(r"(\d+) tokens", out)[1])
    assert re.search(rf"ar +\S+ s +{tokens} passes", out)
    assert ("100% of greedy tokens as ours" in out) == family.startswith("janus")
    assert "CUDA graphs: not run, there is no GPU; eager below" in out
    assert out.rstrip().endswith("skipped: nothing")


def test_gpu_check_skips_what_does_not_fit_and_says_so(monkeypatch, capsys):
    words = ("--tiny", "--device", "cpu", "--layers", "1", "--seconds", "0", "--family", "emu3 8B")
    assert run(monkeypatch, "gpu_check", *words) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert [f"emu3 8B: passes of W = {w}" in last for w in (1, 64)] == [True, True]
    assert "emu3 8B: latency of scd" in last


def test_gpu_check_goes_on_behind_a_family_that_fails(monkeypatch, capsys):
    check, real = script(monkeypatch, "gpu_check"), script(monkeypatch, "gpu_check").examine

    def examine(name, *rest):
        if name == "janus 1B":
            raise torch.OutOfMemoryError("no room\nfor it")
        return real(name, *rest)

    monkeypatch.setattr(check, "examine", examine)
    words = ("--tiny", "--device", "cpu", "--turns", "1", "--layers", "1", "--family", "janus 1B")
    assert run(monkeypatch, "gpu_check", *words, "--family", "llamagen XL") == 1
    out = capsys.readouterr().out
    assert "janus 1B failed: no room\n" in out
    assert "scd" in out


def test_gpu_check_without_a_gpu_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(monkeypatch, "gpu_check") == 1
    assert "no usable CUDA device" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["janus", "lumina", "emu3", "llamagen", "cosmos"])
def test_recorded_layers_compute_the_same(monkeypatch, family):
    """Buffers, the one cache, the shapes: everything of the graphs but CUDA's own recording."""
    make, fast = script(monkeypatch, "random_targets"), script(monkeypatch, "fast_trunk")
    grid = make.Grid(8, 8, row_ends=family in ("lumina", "emu3"))
    target = make.target(getattr(make, family), TINY, grid, torch.float32, "cpu")
    replays = []

    def rerun(call, pool):  # a recording as it is seen from outside: fixed inputs, one output that a replay fills
        out = call().clone()
        return lambda: replays.append(out.copy_(call())), out

    monkeypatch.setattr(fast, "record", rerun)
    eager, network = fast.logits(target), target.network
    target.network = fast.Network(network, fast.Graphed(network.trunk))
    for _ in range(2):  # a second image takes over the cache of the first, and its graphs
        replays.clear()
        assert torch.allclose(fast.logits(target), eager, atol=1e-5)
        assert len(replays) >= 3
    scd = {"decoder": "jacobi", "redraft": "maximal"}
    decoder = build_decoder(scd, 6, Sampling(top_k=8))
    graphed = decoder.decode(target, ["a"], seed=1)
    target.network = network
    assert torch.equal(decoder.decode(target, ["a"], seed=1).tokens, graphed.tokens)


def test_faster_layers_that_compute_something_else_are_refused(monkeypatch):
    make, fast = script(monkeypatch, "random_targets"), script(monkeypatch, "fast_trunk")
    target = make.target(make.janus, TINY, make.Grid(8, 8), torch.float32, "cpu")
    network = target.network

    class Off(fast.Compiled):
        def __call__(self, x, *rest):
            return self.trunk(x * 1.1, *rest)

    class Broken(fast.Compiled):
        def __call__(self, *given):
            raise RuntimeError("no compiler\nmore")

    for kind, reason in ((Off, "refused, logits differ"), (Broken, r"not possible here \(no compiler\)")):
        monkeypatch.setattr(fast, "Compiled", kind)
        with pytest.raises(fast.Unfit, match=reason):
            fast.hasten(target, "compile")
        assert target.network is network


@pytest.mark.slow
def test_compiled_layers_compute_the_same(monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler, which torch.compile needs on a CPU")
    make, fast = script(monkeypatch, "random_targets"), script(monkeypatch, "fast_trunk")
    target = make.target(make.janus, TINY, make.Grid(8, 8), torch.float32, "cpu")
    assert fast.hasten(target, "compile") < 1e-4


def test_the_mid_size_model_has_the_stated_size(monkeypatch):
    make, bench = script(monkeypatch, "random_targets"), script(monkeypatch, "bench_pass")
    with torch.device("meta"):
        network = make.janus(**bench.SIZES, grid=make.Grid(24, 24))()
    linear = sum(layer.weight.numel() for layer in make.linear_layers(network))
    assert linear >= 300e6
