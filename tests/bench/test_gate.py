from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench import bench
from specbench.bench import paths
from specbench.decoding import redraft
from specbench.errors import UsageError

TINY = ("mini/tiny",)


def test_the_tracked_baseline_of_the_tiny_model_holds() -> None:
    document = bench.check(models=TINY)
    assert document["changes"] == []
    assert document["passed"]
    assert [cell["method"] for cell in document["cells"]] == ["ar", "sjd", "scd", "scd_gs"]
    assert all(len(cell["tokens"]) == 8 for cell in document["cells"])


def test_a_changed_counter_fails_until_the_baseline_is_updated(tmp_path: Path) -> None:
    tracked = json.loads((paths.baselines() / "mini-tiny.json").read_text())
    tracked["cells"][2]["nfe_total"] += 1
    (tmp_path / "mini-tiny.json").write_text(json.dumps(tracked))
    document = bench.check(baseline=tmp_path, models=TINY)
    assert not document["passed"]
    (change,) = document["changes"]
    assert (change["cell"], change["field"]) == ("mini/tiny scd 8", "nfe_total")
    assert change["baseline"] == change["measured"] + 1
    updated = bench.check(update=True, baseline=tmp_path, models=TINY)
    assert updated["changes"] == [change]
    assert bench.check(baseline=tmp_path, models=TINY)["passed"]


def test_a_defect_in_the_decoder_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redraft, "residual", lambda p, q: p)
    document = bench.check(models=TINY)
    assert {change["cell"] for change in document["changes"]} >= {"mini/tiny scd 8"}


def test_a_missing_baseline_is_an_error_and_not_a_pass(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="check --update"):
        bench.check(baseline=tmp_path, models=TINY)
