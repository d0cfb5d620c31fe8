"""Weights are found where people put them, and their absence is said in a second, before torch is imported."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specbench import bench
from specbench.bench import weights
from specbench.bench.config import compose
from specbench.errors import SpecbenchError, UsageError
from specbench.models import source, tiny
from specbench.models.source import WEIGHTS, Bundle, locate

PART = Bundle(("config.json", "tokenizer.json", WEIGHTS), ("org/Model", "copy/Model-hf"), 1.5, "a licence")


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("place", ["org/Model", "Model", "copy/Model-hf", "Model-hf"])
def test_a_root_holds_models_under_their_hub_ids_or_bare_names(tmp_path, place):
    folder = put(tmp_path / place, "config.json", "tokenizer.json", "model.safetensors")
    (found,) = locate([PART], None, tmp_path)
    assert (found.folder, found.missing) == (folder, ())


def test_the_hubs_cache_is_looked_at_and_its_main_revision_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--Model"
    for revision in ("aaa", "bbb"):
        put(repository / "snapshots" / revision, "config.json", "tokenizer.json", "pytorch_model.bin")
    put(repository / "refs").joinpath("main").write_text("bbb")
    (found,) = locate([PART])
    assert found.folder == repository / "snapshots" / "bbb"


def test_a_shard_that_the_index_lists_is_missed(tmp_path):
    put(tmp_path, "config.json", "tokenizer.json")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    put(tmp_path, "one.safetensors")
    (found,) = locate([PART], str(tmp_path))
    assert found.missing == ("two.safetensors",)


def test_a_folder_of_another_family_is_told_by_its_config_and_nothing_else_is_blamed(tmp_path):
    part = replace(PART, kinds=("janus", "Multi"))
    put(tmp_path, "config.json", "tokenizer.json", "model.safetensors")
    for kind, fits in (("JANUS", True), ("multi", True), (None, True), ("chameleon", False)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        (found,) = locate([part], str(tmp_path))
        assert (found.missing == ()) == fits
    (said,) = found.lacks("config.json")
    assert said == f"config.json of model_type janus or Multi ({tmp_path / 'config.json'} says 'chameleon')"
    assert found.lacks(WEIGHTS) == found.lacks("tokenizer.json") == []


def test_the_fullest_place_is_named_when_none_is_complete(tmp_path):
    put(tmp_path / "Model", "config.json")
    folder = put(tmp_path / "Model-hf", "config.json", "tokenizer.json")
    with pytest.raises(SpecbenchError, match=r"model\.safetensors or .* not found in ") as caught:
        source.require("x", [PART], None, tmp_path)
    assert str(folder) in str(caught.value)
    assert "1.5 GB; licence: a licence" in str(caught.value)


def test_a_path_is_a_folder_or_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    put(tmp_path / "models--me--mine" / "snapshots" / "x", "config.json", "tokenizer.json", "model.safetensors")
    assert locate([PART], "me/mine")[0].missing == ()
    with pytest.raises(SpecbenchError, match="no such folder"):
        locate([PART], "/nowhere/at/all")


def test_a_run_without_weights_ends_at_once_without_torch(tmp_path):
    """In a process of its own, where importing torch would be seen."""
    code = (
        "import sys; from specbench.cli.main import run_cli; "
        "code = run_cli(['run', 'model=janus']); sys.exit(99 if 'torch' in sys.modules else code)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr
    assert "model=janus has no weights here" in done.stderr
    assert "DeepSeek Model License" in done.stderr
    assert "--weights-root ROOT" in done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2, "of computing, whatever else runs"


def test_doctor_lists_each_file_of_a_model(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBENCH_WEIGHTS_ROOT", str(tmp_path))
    put(tmp_path / "Janus-Pro-7B", "config.json", "tokenizer.json")
    rows = {row["name"]: row for row in bench.doctor(models=["janus"])}
    assert rows["janus: config.json"]["state"] == "ok"
    assert rows["janus: weights"]["state"] == "missing"
    assert "deepseek-community/Janus-Pro-7B" in rows["janus: weights"]["next_step"]
    assert "14.8 GB" in rows["janus: licence of weights"]["detail"]
    with pytest.raises(UsageError, match="did you mean 'janus'"):
        bench.doctor(models=["januss"])


def test_a_dry_run_tells_the_memory_even_without_weights():
    document = bench.plan(compose(["model=janus", "method=scd", "window=16,64", "dtype=bfloat16"]))
    assert document["cells"] == []
    assert "no weights here" in document["missing"]
    small, large = document["memory"]
    assert small["weights"] == large["weights"] == pytest.approx(6.6e9 * 2 / 2**30, rel=0.03)
    # models.md: 480 KiB per token and row in bfloat16, two rows with guidance.
    assert small["kv_cache"] == pytest.approx(2 * 480 * 1024 * (576 + 64 + 16) / 2**30, rel=0.001)
    assert large["activations"] > small["activations"]


def test_a_model_that_is_shipped_takes_no_path():
    with pytest.raises(UsageError, match=r"takes no model\.path"):
        compose(["model=mini", "model.path=/tmp"])


def test_the_tiny_model_runs_end_to_end_and_says_that_its_weights_are_random(tmp_path):
    requests = compose(["model=janus/tiny", "method=scd", "window=8", "prompt=a red circle", "model.protocol=pjd"])
    document = bench.run(requests, out=tmp_path)
    assert [cell["state"] for cell in document["cells"]] == ["done", "done"]
    assert any("janus/tiny has random weights" in text for text in document["warnings"])
    assert (tmp_path / "cells").is_dir()


def test_a_folder_in_the_real_format_stands_for_the_real_model(tmp_path):
    words = ["model=janus", f"model.path={tiny.cached('janus')}", "method=sjd", "window=8", "prompt=a red circle"]
    document = bench.run(compose([*words, "dtype=bfloat16"]), out=tmp_path)
    assert [cell["state"] for cell in document["cells"]] == ["done", "done"]
    assert document["cells"][0]["grid"][:2] == [8, 8]
    assert not any("random weights" in text for text in document["warnings"]), "nobody can know what a folder holds"


def test_row_ends_are_counted_beside_passes(tmp_path):
    words = ["model=lumina/tiny", "method=scd", "window=8", "prompts=scenes", "prompts.limit=3", "batch=3"]
    ar, scd = bench.run(compose(words), out=tmp_path)["cells"]
    assert (ar["nfe"]["mean"], ar["steps_with_row_ends"]) == (64, 72)
    assert scd["state"] == "done"
    assert scd["steps_with_row_ends"] >= scd["nfe"]["mean"]


def test_another_recipe_is_another_cell(tmp_path):
    words = ["model=janus/tiny", "method=ar", "prompt=a red circle"]
    sampling = ["sampling.top_k=8", "sampling.guidance=null"]
    ids = set()
    for protocol in ("official", "scd_script"):
        (request,) = compose([*words, *sampling, f"model.protocol={protocol}"])
        document = bench.run([request], out=tmp_path)
        ids.add(document["cells"][0]["id"])
    assert len(ids) == 2


def test_a_tiny_checkpoint_is_written_once(monkeypatch):
    first = tiny.cached("janus")
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert (tiny.cached("janus") / "model.safetensors").stat().st_mtime_ns == stamp


def test_explain_shows_the_recipe():
    rows = {row["key"]: row for row in bench.explain(["model=janus", "model.protocol=scd_script"])}
    assert "384x384" in rows["protocol.template"]["value"]
    assert rows["protocol.first_top_k"]["value"] == 10
    assert rows["sampling.guidance"]["value"] is None
    assert "protocol scd_script" in rows["protocol.template"]["source"]


def test_memory_is_unknown_where_sizes_are_not_stated():
    (request,) = compose(["model=mini", "method=ar"])
    assert weights.memory(request) is None
