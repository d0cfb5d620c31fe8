"""Heads find their target when a run is planned, and heads from outside the package are a term of its cells."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from specbench import drafters, load_decoder, load_target
from specbench.bench import weights
from specbench.bench.config import compose
from specbench.bench.planning import prepare
from specbench.drafters.heads import untrained
from specbench.errors import UsageError
from tests.cli.commands import call

WORDS = ["model=mini/tiny", "method=ssd", "method.columns=3", "prompts.limit=2"]


def planned(words=WORDS):
    (group,) = prepare(compose(words))
    return group.jobs[-1]


def test_a_planned_cell_has_the_heads_of_its_target():
    job = planned()
    assert job.decoder.heads is not None and job.cell.terms.settings["heads"] == "ssd"
    assert job.cell.terms.overridden == ("columns",)


def test_heads_from_elsewhere_are_a_term(monkeypatch):
    own = planned().cell.id
    found = {}
    for digest in ("one", "two"):
        heads = untrained(width=32, horizontal=3, vertical=3, weights=digest)
        monkeypatch.setattr(drafters, "load_heads", lambda *_, _heads=heads, **__: _heads)
        job = planned()
        assert job.cell.terms.settings["heads"] == f"ssd@{digest}"
        found[job.cell.id] = digest
    assert len(found) == 2 and own not in found


def test_what_cannot_be_drafted_is_refused_before_anything_is_decoded():
    with pytest.raises(UsageError, match=r"look 3 columns far: set method\.columns=3 or less"):
        planned(WORDS[:2])


def test_a_method_by_name_brings_its_heads_and_knows_whether_it_is_lossless():
    target = load_target("mini/tiny", dtype="float64")
    prompts = ["a red ring", "a blue star"]
    exact = load_decoder("ssd", columns=3, rounds="exact", redraft="gumbel", stop="fixed_point")
    with pytest.raises(UsageError, match="method ssd has no window"):
        load_decoder("ssd", window=8)
    assert exact.lossless and not load_decoder("ssd", columns=3).lossless
    expected = load_decoder("ar").decode(target, prompts, seed=3).tokens
    assert torch.equal(exact.decode(target, prompts, seed=3).tokens, expected)
    assert not torch.equal(load_decoder("mtp", columns=3).decode(target, prompts, seed=3).tokens, expected)


@pytest.fixture
def other_heads(tmp_path, monkeypatch):
    """Heads for mini/tiny under a weights root, trained on the weights that are named; a function that writes them."""
    monkeypatch.setenv("SPECBENCH_WEIGHTS_ROOT", str(tmp_path))
    (tmp_path / "drafters").mkdir()
    path = tmp_path / "drafters" / "mini-tiny-ssd.safetensors"

    def write(weights):
        replace(untrained(width=32, horizontal=3, vertical=3), target_weights=weights).write(path)
        return path

    return write


def test_heads_of_other_weights_or_none_that_are_known(other_heads, tmp_path, capsys):
    out = ("--out", str(tmp_path / "runs"))
    path = other_heads("tiny-seed-1")
    refused = call(capsys, "run", *WORDS, *out)
    assert refused.code == 1 and "other weights of mini/tiny (tiny-seed-1) than are loaded (tiny-seed-0)" in refused.err
    path.write_bytes(path.read_bytes()[:-9])
    damaged = call(capsys, "run", *WORDS, *out)
    assert damaged.code == 1 and f"{path} holds no spatial heads" in damaged.err
    assert not (tmp_path / "runs").exists()  # AR decoded nothing either
    other_heads("")
    done = call(capsys, "run", *WORDS, *out)
    assert done.code == 0 and "may have been trained on other weights" in done.out
    other_heads("tiny-seed-0")
    assert "may have been trained" not in call(capsys, "run", *WORDS, *out).out


def test_blocks_show_no_window_and_the_curve_times_their_widths(tmp_path, capsys):
    words = ["model=mini/tiny", "method=scd,ssd", "window=4", "method.columns=3", "prompts.limit=1"]
    out = ("--out", str(tmp_path))
    dry = json.loads(call(capsys, "sweep", *words, *out, "--dry-run", "--json").out)
    assert [(cell["method"], cell["window"]) for cell in dry["cells"]] == [("ar", 1), ("scd", 4), ("ssd", None)]
    done = json.loads(call(capsys, "sweep", *words, *out, "--json").out)
    assert {1, 3, 4} <= set(done["cost_curve"]["windows"])
    assert "was not timed" not in call(capsys, "sweep", *words, *out).out


def test_memory_is_that_of_a_block():
    def memory(*words):
        (request,) = compose(["model=lumina", *words])
        return weights.memory(request)

    one, four = memory("method=ssd"), memory("method=ssd", "method.rows=4")
    assert one["window"] is four["window"] is None
    assert one["activations"] == memory("method=scd", "window=48")["activations"]
    assert four["activations"] == memory("method=scd", "window=192")["activations"]
    assert memory("method=ar")["window"] == 1
