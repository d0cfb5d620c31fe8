from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specbench import bench
from specbench.bench import store
from specbench.bench.config import RunRequest
from specbench.bench.scoring import scorer_code
from specbench.errors import NotComparableError, UsageError

Ask = Callable[..., list[RunRequest]]


def ids(out: Path) -> dict[tuple[str, int], str]:
    return {(row["method"], row["window"]): row["id"] for row in bench.list_runs(out)}


def test_two_methods_of_one_window_compare_on_common_images(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=sjd", window=2, limit=6), tmp_path)
    document = bench.run(ask("method=scd", window=2, limit=4), tmp_path)
    cell = ids(tmp_path)
    found = bench.compare(cell["sjd", 2], cell["scd", 2][:6], tmp_path)
    comparison = found["comparison"]
    assert comparison["images"] == 4
    sjd, scd = found["cells"]
    assert comparison["nfe_ratio"]["value"] == pytest.approx(sjd["nfe"]["total"] / scd["nfe"]["total"])
    assert comparison["latency_ratio"] is None
    assert "no process timed both" in comparison["sentence"]
    assert scd["nfe_ratio"] == next(c["nfe_ratio"] for c in document["cells"] if c["method"] == "scd")


def test_clocks_compare_when_one_process_took_both(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=sjd,scd", window=2), tmp_path)
    cell = ids(tmp_path)
    assert bench.compare(cell["sjd", 2], cell["scd", 2], tmp_path)["comparison"]["latency_ratio"] is not None


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"window": 4}, "window"),
        ({"seed": 1}, "seed"),
        ({"sampling.top_k": 2}, "sampling.top_k"),
        ({"method.fill": "left"}, "method.fill"),
        ({"dtype": "float32"}, "dtype"),
    ],
)
def test_unequal_terms_are_refused_listed_and_can_be_allowed(
    ask: Ask, tmp_path: Path, other: dict[str, object], field: str
) -> None:
    one = bench.run(ask("method=sjd", window=2), tmp_path)["cells"][1]["id"]
    words = [f"{key}={value}" for key, value in {"window": 2, "method": "scd", **other}.items()]
    requests = ask(*[word for word in words if not word.startswith("dtype")])
    if "dtype" in other:
        from dataclasses import replace

        requests = [replace(request, dtype="float32") for request in requests]
    two = bench.run(requests, tmp_path)["cells"][1]["id"]
    with pytest.raises(NotComparableError, match=f"--allow {field}") as caught:
        bench.compare(one, two, tmp_path)
    assert caught.value.exit_code == 3
    found = bench.compare(one, two, tmp_path, allow=[field])
    assert found["allowed"] == [field]
    assert list(found["comparison"]["differing"]) == [field]


def test_ar_has_no_window_and_compares_with_any(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=sjd", window=2), tmp_path)
    cell = ids(tmp_path)
    found = bench.compare(cell["ar", 1], cell["sjd", 2], tmp_path)
    assert found["comparison"]["nfe_ratio"]["value"] >= 1


def test_cells_without_a_common_image_do_not_compare(ask: Ask, tmp_path: Path) -> None:
    for method, prompt in (("sjd", "a ring"), ("scd", "a star")):
        words = ["model=toy", f"method={method}", "window=2", f"prompt={prompt}"]
        bench.run(bench.compose(words), tmp_path)
    rows = {row["method"]: row["id"] for row in bench.list_runs(tmp_path)}
    with pytest.raises(NotComparableError, match="no image in common"):
        bench.compare(rows["sjd"], rows["scd"], tmp_path, allow=["prompts"])


def test_names_that_find_no_cell_or_several_are_answered(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=sjd,scd", window=2), tmp_path / "runs")
    cell = ids(tmp_path / "runs")
    with pytest.raises(UsageError, match="unknown cell"):
        bench.compare("zzz", cell["scd", 2], tmp_path / "runs")
    with pytest.raises(UsageError, match="must mean one cell, and it means 2"):
        bench.compare(str(tmp_path / "runs"), cell["scd", 2], tmp_path / "runs")
    with pytest.raises(UsageError, match="there are no cells"):
        bench.compare("a", "b", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="did you mean 'window'"):
        bench.compare(cell["sjd", 2], cell["scd", 2], tmp_path / "runs", allow=["windw"])


def test_a_cell_can_be_named_by_folder_store_or_document(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=scd", window=2), tmp_path / "one")
    bench.run(ask("method=sjd", window=2), tmp_path / "two")
    file = tmp_path / "one.json"
    file.write_text(json.dumps(document))
    folder = tmp_path / "two" / "cells" / ids(tmp_path / "two")["sjd", 2]
    sentences = {
        bench.compare(str(tmp_path / "two"), str(tmp_path / "one"))["comparison"]["sentence"],
        bench.compare(str(folder), str(file))["comparison"]["sentence"],
    }
    assert len(sentences) == 1
    file.write_text("{}")
    with pytest.raises(UsageError, match="is not a run document"):
        bench.compare(str(folder), str(file))


def test_the_accuracy_difference_is_that_of_the_printed_accuracies(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=sjd,scd", window=2, limit=8), tmp_path)
    cell = ids(tmp_path)
    verdicts = {cell["sjd", 2]: [1, 0, 1, 1, 1, 1, 0, 1], cell["scd", 2]: [0, 0, 1, 0, 1, 1, 0, 0]}
    for name, correct in verdicts.items():
        with (tmp_path / "cells" / name / "records.jsonl").open("a") as journal:
            for at, prompt in enumerate(sorted(key for key, _ in store.read(tmp_path)[name].images)):
                verdict = {"family": "few" if at < 2 else "many", "correct": bool(correct[at]), "reason": ""}
                score = {"scorer": "scenes", "code": scorer_code(), "verdict": verdict}
                journal.write(json.dumps({"kind": "score", "prompt": prompt, "sample": 0, **score}) + "\n")
    found = bench.compare(cell["sjd", 2], cell["scd", 2], tmp_path)
    sjd, scd = found["cells"]
    difference = found["comparison"]["accuracy_difference"]
    assert difference["value"] == pytest.approx(sjd["accuracy"]["value"] - scd["accuracy"]["value"])
    assert difference["value"] == pytest.approx((1 / 2 + 2 / 6) / 2)
    assert difference["low"] < difference["value"] < difference["high"]
