"""Published tables: every selector means what is there, every row can be composed, statuses follow their rules."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specbench import bench
from specbench.bench import paths, stats, store, tables, tables_run
from specbench.bench.config import RunRequest, compose
from specbench.bench.tables import Claim, Row, Table
from specbench.bench.tables_judge import (
    DIFFERS,
    HOLDS,
    NOT_RUN,
    REPRODUCED,
    Measured,
    contrast,
    judge,
    measured,
    pairs_of,
    printed,
)
from specbench.errors import SpecbenchError, UsageError
from specbench.report.published import lines, page
from tests.bench.toy import write_prompts

Ask = Callable[..., list[RunRequest]]
ROOT = Path(__file__).parents[2]
NAMES = tables.names()
DUE = {
    "scd-image", "scd-janus", "scd-cosmos", "scd-lumina2", "scd-overhead", "scd-window", "scd-alpha", "scd-guidance",
    "sjdvp-1-coco", "sjdvp-1-parti", *(f"sjdvp-{n}" for n in range(2, 9)), "sjd-window", "sjd-fill", "pac-1-coco",
    "pac-1-parti", "pac-2", "pac-3", "pac-4", "gsd-clusters", *(f"ssd-{n}" for n in (*range(1, 8), 10)),
}  # fmt: skip


def test_every_table_that_was_promised_is_there() -> None:
    assert set(NAMES) == DUE
    assert [row["name"] for row in bench.list_tables()] == NAMES
    assert all(row["summary"] for row in bench.list_tables())


def test_make_has_a_target_for_every_table_and_no_other() -> None:
    database = subprocess.run(["make", "-pn", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    found = {line.split(":")[0].removeprefix("table-") for line in database.splitlines() if line.startswith("table-")}
    assert {name for name in found if "%" not in name} == set(NAMES)


@cache
def composed(words: tuple[str, ...]) -> list[RunRequest]:
    """Tables share most of their cells, and composing one takes a tenth of a second."""
    return compose(words)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_a_composition_that_exists(name: str) -> None:
    table = tables.load(name)
    own = dict(word.split("=", 1) for word in table.stand_in)
    for row in table.rows:
        assert bool(row.words) != bool(row.missing), row.id
        if row.words:
            words = {"model": "mini", **own, **dict(word.split("=", 1) for word in row.words)}
            (request,) = composed(tuple(f"{key}={value}" for key, value in words.items()))
            assert request.prompts.limit is not None, "a table on mini must end: give its stand_in a prompts.limit"


def test_every_published_row_is_selected_by_a_table() -> None:
    shown = set()
    for table in map(tables.load, NAMES):
        for row in table.rows:
            selectors = [{**table.published, **row.published}] if row.published else []
            selectors += [{**table.published, **row.published, **more} for more in row.columns.values()]
            selectors += [{**table.published, **(row.ar or table.ar)}] if table.published else []
            shown |= {tuple(sorted(found.items())) for each in selectors for found in tables.matching(each)}
    with (paths.published() / "diagnostics.csv").open(newline="", encoding="utf-8") as figures:
        shown |= {tuple(sorted(row.items())) for row in csv.DictReader(figures)}  # shown beside diagnostics
    assert not [row for row in tables.published() if tuple(sorted(row.items())) not in shown]


def test_every_row_that_selects_something_finds_a_value() -> None:
    for table in map(tables.load, NAMES):
        for row in table.rows:
            if row.published or row.columns:
                assert any(table.value(row, column) for column in table.columns), (table.name, row.id)


def test_published_values_are_well_formed_and_neutral() -> None:
    for row in tables.published():
        assert row["confidence"] in "ABCDR"
        assert float(row["value"]) >= 0
        assert not {"/", "\\", "notes"} & set(row["source"].split())
    letters = {row["confidence"] for row in tables.published()}
    assert {"A", "B", "C"} <= letters
    kinds = {row["source"] for row in tables.published() if row["confidence"] == "A"}
    assert kinds == {"printed in the paper"}


def test_values_stand_in_one_place_only() -> None:
    """A published number typed into a table's file could drift from the one in results/published."""
    numbers = {row["value"] for row in tables.published() if "." in row["value"] and len(row["value"]) > 4}
    for file in sorted((paths.conf() / "table").glob("*.yaml")):
        without_notes = file.read_text().split("\nnotes:")[0]
        assert not [number for number in numbers if number in without_notes], file.name


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_own_numbers_satisfy_the_claims(name: str) -> None:
    """What a table's file says that a paper claims must at least be true of what the paper prints."""
    table = tables.load(name)
    for claim in table.claims:
        for left, right in pairs_of(claim):
            ratio = printed(table, claim, left, right)
            if ratio is not None and claim.kind in ("greater", "monotone", "best"):
                assert ratio > (0 if claim.metric == "accuracy" else 1), (claim.says, left, right, ratio)
            if ratio is not None and claim.kind == "flat":
                assert 1 / (1 + claim.tolerance) <= ratio <= 1 + claim.tolerance, (claim.says, ratio)
            if claim.kind == "about":
                assert ratio is not None, (claim.says, "claims a published ratio, and none is published")


def test_known_values_and_where_they_come_from() -> None:
    image = tables.load("scd-image")
    sjd, gumbel = image.value(image.row("sjd@64"), "nfe_ratio"), image.value(image.row("scd_gs@64"), "nfe_ratio")
    assert (sjd.shown, gumbel.shown) == ("2.31 (B)", "4.21 (D from B)")
    wide = tables.load("sjdvp-5")
    assert wide.value(wide.row("vp@64"), "nfe_ratio").shown == "5.95 (D)"
    overhead = tables.load("scd-overhead")
    assert overhead.value(overhead.row("scd@64"), "sampling_ms").value == pytest.approx(0.14 + 1.66 + 2.67)
    assert image.value(image.row("ar"), "accuracy").value is None


def test_a_factor_of_unbatched_guidance_is_taken_out_and_shown() -> None:
    """SSD, Table 1: 4704 passes of AR count its guided pairs twice; 1D-MTP's and Emu3's SSD do so on both sides."""
    main = tables.load("ssd-1")
    both = {row.id: [main.value(row, column) for column in ("step_ratio", "printed_ratio")] for row in main.rows}
    shown = {name: [value.shown for value in values if value] for name, values in both.items()}
    assert shown["lumina-ssd"] == ["8.37 (D)", "16.74 (A)"]
    assert shown["lumina-sjd"] == ["2.21 (D)", "4.42 (A)"]
    assert shown["emu3-sjd"] == ["2.25 (D)", "4.50 (A)"]
    assert shown["emu3-ssd"] == ["12.39 (A)", "12.39 (A)"]
    assert shown["janus-sjd"] == ["1.81 (A)", "1.81 (A)"]
    assert shown["lumina-mtp"] == ["2.23 (A)", "2.23 (A)"]
    # What is printed beside it agrees: AR's 48 rows of 48 tokens and a row end, over the printed steps.
    steps = float(
        tables.matching({"table": "Table 6", "setting": "kv=2, staged b=5,i=4", "metric": "steps"})[0]["value"]
    )
    assert both["lumina-ssd"][0].value == pytest.approx(48 * 49 / steps, abs=0.01)  # type: ignore[union-attr]


def test_benchmarks_are_compared_by_their_difference() -> None:
    rounds = tables.load("ssd-5")
    claim = next(claim for claim in rounds.claims if claim.kind == "monotone" and claim.metric == "accuracy")
    differences = [printed(rounds, claim, left, right) for left, right in pairs_of(claim)]
    assert differences == pytest.approx([81.27 - 71.65, 83.40 - 81.27])


def test_overlaps_are_means_over_the_measured_heads_and_absent_ones_are_none() -> None:
    heads = {"model": "mini", "images": 960, "input": "e", "units": "deviation"}
    with (ROOT / "results" / "heads.csv").open(newline="", encoding="utf-8") as lines:
        found = [float(row["heads"]) for row in csv.DictReader(lines)
                 if (row["input"], row["images"], row["units"]) == ("e", "960", "deviation")]  # fmt: skip
    assert len(found) == 6
    assert tables.overlap(heads) == pytest.approx(sum(found) / 6)
    assert tables.overlap({**heads, "images": 7}) is None
    measured_rows = [row for name in ("ssd-3", "ssd-7") for row in tables.load(name).rows if row.heads]
    assert len(measured_rows) == 10
    assert all(tables.overlap(row.heads or {}) for row in measured_rows)


@pytest.mark.parametrize("name", NAMES)
def test_ratios_of_passes_and_of_seconds_are_never_in_one_column(name: str) -> None:
    table = tables.load(name)
    assert not set(tables.PRINTED["nfe_ratio"]) & set(tables.PRINTED["latency_ratio"])
    for row in table.rows:
        unnamed = {**table.published, **row.published, "metric": "speedup_unspecified"}
        if row.published and tables.matching(unnamed):
            assert "unspecified_ratio" in table.columns, row.id


def spoil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "mine.yaml").write_text(text)
    (tmp_path / "config.yaml").write_text("")
    monkeypatch.setattr(paths, "conf", lambda: tmp_path)


MINE = """
title: mine
paper: nobody
model: toy
measured_on: the toy
prompts: file
columns: [nfe_ratio]
rows: [{id: a, label: A, words: [method=ar]}, {id: b, label: B, words: [method=scd, window=2]}]
claims: [{kind: greater, metric: nfe_ratio, rows: [b, a], says: it helps}]
"""


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("title: mine", "titel: mine", "did you mean 'title'"),
        ("rows: [b, a]", "rows: [c, a]", "row 'c' of a claim"),
        ("kind: greater", "kind: grater", "kind 'grater'"),
        ("columns: [nfe_ratio]", "columns: [nfe]", "column 'nfe'"),
        ("columns: [nfe_ratio]", "columns: [latency_ratio]", "clocks"),
        ("metric: nfe_ratio", "metric: overlap", "metric 'overlap' of a claim"),
        ("kind: greater, metric: nfe_ratio", "kind: about, metric: accuracy", "metric 'accuracy' for about"),
        ("kind: greater", "kind: same", "metric 'nfe_ratio' for same"),
    ],
)
def test_a_mistake_in_a_tables_file_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str, hint: str
) -> None:
    spoil(monkeypatch, tmp_path, MINE.replace(old, new))
    with pytest.raises(SpecbenchError, match=hint):
        tables.load("mine")


# On the toy target


def rows_of(out: Path, requests: list[RunRequest], clocked: int) -> dict[str, Measured]:
    cells = {records.cell.terms.method: records for records in store.read(out).values()}
    keys = sorted(cells["ar"].images)
    return {name: Measured(cell, cells["ar"], tuple(keys), tuple(keys[:clocked]), None) for name, cell in cells.items()}


def test_columns_and_quotients_are_what_metrics_and_hand_say(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=sjd,scd", window=3, limit=12), tmp_path)
    rows = rows_of(tmp_path, [], 12)
    found = {cell["method"]: cell for cell in document["cells"]}
    for name in ("ar", "sjd", "scd"):
        for metric in ("nfe_ratio", "latency_ratio"):
            value = measured(metric, rows[name])
            assert value is not None
            assert found[name][metric]["value"] == pytest.approx(value.value)
            assert found[name][metric]["low"] == pytest.approx(value.low)
    ratio = contrast("nfe_ratio", rows["scd"], rows["sjd"])
    assert ratio is not None
    assert ratio.value == pytest.approx(found["sjd"]["nfe"]["total"] / found["scd"]["nfe"]["total"])
    passes = {name: [len(image["trace"]["window"]) for _, image in sorted(rows[name].records.images.items())]
              for name in ("scd", "sjd")}  # fmt: skip
    by_hand = stats.ratio_of_sums(passes["sjd"], passes["scd"], [str(i) for i in range(12)])
    assert ratio.low == pytest.approx(by_hand.low, rel=0.02)
    assert ratio.high == pytest.approx(by_hand.high, rel=0.02)
    timing = found["scd"]["timing"]
    outside = measured("sampling_ms", rows["scd"])
    assert outside is not None
    assert outside.value == pytest.approx(1000 * timing["sampling_s"] / timing["passes"])
    assert contrast("forward_ms", rows["ar"], rows["ar"]) is not None


def test_step_ratios_count_row_ends_and_passes_do_not() -> None:
    """Two rows of three tokens: AR spends a pass on each row end, the method one behind row 0."""

    def image(passes: int, ends: list[int] | None) -> dict[str, Any]:
        return {"trace": {"window": [1] * passes, **({} if ends is None else {"row_ends": ends})}}

    def records(made: dict[str, Any]) -> Any:
        return SimpleNamespace(images={("a", 0): made, ("b", 0): made})

    keys = (("a", 0), ("b", 0))
    marked = Measured(records(image(4, [1, 0, 0, 0])), records(image(6, [0, 0, 1, 0, 0, 1])), keys, (), None)
    plain = Measured(records(image(4, None)), records(image(6, None)), keys, (), None)
    found = [measured(metric, row) for row in (marked, plain) for metric in ("nfe_ratio", "step_ratio")]
    assert [value.value for value in found if value] == pytest.approx([6 / 4, 8 / 5, 6 / 4, 6 / 4])


def test_a_claim_about_a_row_that_is_not_run_is_not_judged() -> None:
    table = tables.load("scd-image")
    claim = judge(table.claims[0], table, {}, {"scd@64": "too far away", "sjd@64": "too"})
    assert (claim["status"], claim["reason"]) == (NOT_RUN, "scd@64: too far away")
    assert claim["published"] == [pytest.approx(4.21 / 2.31)]


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Table]:
    """A table on the toy target: what the paper is said to print comes with it."""
    captions = write_prompts(tmp_path / "captions.txt", 24)

    def mine(model: str = "elsewhere", **changed: Any) -> Table:
        rows = (
            Row("ar", "AR", ("method=ar",), model=model, measured_on="toy", published={"method": "AR"}),
            Row("sjd", "SJD", ("method=sjd", "window=3"), model=model, measured_on="toy", published={"method": "SJD"}),
            Row("far", "far away", ("method=scd", "window=9"), model=model, measured_on="toy"),
            Row("none", "no method", missing="it needs a trained drafter", model=model, measured_on="toy"),
        )
        claims = (
            Claim("greater", "nfe_ratio", ("sjd", "ar"), "SJD needs fewer passes"),
            Claim("greater", "nfe_ratio", ("far", "sjd"), "far is better"),
        )
        words = ("prompts=file", f"prompts.path={captions}", "prompts.limit=20", "dtype=float64")
        plain: dict[str, Any] = {
            "name": "mine", "title": "Mine", "paper": "P", "model": model, "measured_on": "a model elsewhere",
            "prompts": "file", "rows": rows, "columns": ("nfe_ratio", "latency_ratio"), "stand_in": words,
            "published": {"paper": "P"}, "claims": claims, "notes": ("a footnote",), "clocks": 4,
        }  # fmt: skip
        table = Table(**{**plain, **changed})
        monkeypatch.setattr(tables, "load", lambda name: table)
        monkeypatch.setattr(tables, "names", lambda: ["mine"])
        values = (("AR", "NFE", "4"), ("SJD", "NFE", "2"), ("SJD", "speedup_latency", "1.5"))
        printed = [
            {"paper": "P", "method": m, "metric": k, "value": v, "confidence": "A", "table": "T"} for m, k, v in values
        ]
        monkeypatch.setattr(tables, "published", lambda: tuple(printed))
        return table

    return mine


def test_a_table_runs_on_a_stand_in_and_is_judged_by_its_claims(mine: Callable[..., Table], tmp_path: Path) -> None:
    mine()
    document = bench.run_table("mine", ["model=toy"], tmp_path / "out")
    ar, sjd, far, none = document["rows"]
    assert sjd["columns"]["nfe_ratio"]["published"] == {
        "value": 2.0, "text": "2.00", "confidence": "D", "source": "4 ÷ 2, P, T"
    }  # fmt: skip
    assert sjd["columns"]["latency_ratio"]["published"]["confidence"] == "A"
    value = sjd["columns"]["nfe_ratio"]["measured"]
    assert 1 < value["low"] < value["value"] < value["high"]
    assert sjd["columns"]["latency_ratio"]["measured"]["value"] > 0
    assert [claim["status"] for claim in document["claims"]] == [HOLDS, NOT_RUN]
    assert (ar["status"], sjd["status"], far["status"], none["status"]) == (HOLDS, HOLDS, NOT_RUN, NOT_RUN)
    assert "window 9 is beyond the 4 tokens" in far["reason"]
    assert none["reason"] == "it needs a trained drafter"
    assert document["images"] == {"ar": 20, "sjd": 20}
    text = page(document)
    assert "specbench table mine model=toy" in text
    assert "2.00 (D)" in text
    assert "a footnote" in text
    found = list(csv.DictReader(lines(document).splitlines()))
    assert [row["status"] for row in found if row["kind"] == "row" and row["metric"] == "nfe_ratio"] == [
        HOLDS, HOLDS, NOT_RUN, NOT_RUN
    ]  # fmt: skip


def test_passes_take_no_clock_and_clocks_take_few_prompts(mine: Callable[..., Table], tmp_path: Path) -> None:
    mine()
    bench.run_table("mine", ["model=toy"], tmp_path / "out")
    for records in store.read(tmp_path / "out").values():
        assert len(records.images) == 20
        assert len(records.timings) == 4
        assert all(timing["rows"] == 1 for timings in records.timings.values() for timing in timings)
    told: list[Any] = []
    bench.run_table("mine", ["model=toy"], tmp_path / "out", told.append)
    assert not [event for event in told if type(event).__name__ == "ImageDone"]
    mine(columns=("nfe_ratio",), clocks=None)
    bench.run_table("mine", ["model=toy"], tmp_path / "plain")
    assert not [1 for records in store.read(tmp_path / "plain").values() if records.timings or records.costs]


def test_on_its_own_model_a_table_is_judged_by_its_values(mine: Callable[..., Table], tmp_path: Path) -> None:
    captions = tmp_path / "captions.txt"
    mine(model="toy", columns=("nfe_ratio",), clocks=None)
    words = [f"prompts.path={captions}", "prompts.limit=20", "dtype=float64"]
    document = bench.run_table("mine", words, tmp_path / "out")
    sjd = document["rows"][1]
    ratio = sjd["columns"]["nfe_ratio"]["measured"]["value"]
    near = abs(ratio - 2) < 0.3
    assert (sjd["own"], sjd["status"]) == (True, REPRODUCED if near else DIFFERS)


def test_without_the_papers_model_nothing_runs_and_every_row_says_why(
    mine: Callable[..., Table], tmp_path: Path
) -> None:
    mine()
    document = bench.run_table("mine", [], tmp_path / "out")
    assert {row["status"] for row in document["rows"]} == {NOT_RUN}
    assert document["rows"][0]["reason"] == "the weights of toy are not here"
    assert not (tmp_path / "out").exists()
    assert "Nothing was run" in page(document)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["model=tay"], "did you mean 'toy'"),
        (["model=toy", "window=4"], "window cannot be set here"),
        (["model=toy", "method=ar"], "method cannot be set here"),
        (["model=toy", "batch=1"], "batch cannot be set here"),
        (["model=toy", "prompts.limit=0"], "at least 1"),
        (["model=toy", "sead=1"], "did you mean 'seed'"),
        (["toy"], "key=value"),
    ],
)
def test_words_that_a_table_cannot_take_are_refused(
    mine: Callable[..., Table], tmp_path: Path, words: list[str], hint: str
) -> None:
    mine()
    with pytest.raises(UsageError, match=hint):
        bench.run_table("mine", words, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plan_counts_cells_once_and_estimates_the_work(mine: Callable[..., Table], tmp_path: Path) -> None:
    mine()
    plan = bench.plan_tables("mine", ["model=toy"], tmp_path / "out")
    assert [(c["method"], c["images"], c["to_run"], c["to_time"]) for c in plan["cells"]] == [
        ("ar", 20, 20, 4), ("sjd", 20, 20, 4)
    ]  # fmt: skip
    assert plan["token_evaluations"] == 24 * 4 + 24 * 4
    assert [(row["row"], bool(row["reason"])) for row in plan["not_run"]] == [("far", True), ("none", True)]
    assert not (tmp_path / "out").exists()
    bench.run_table("mine", ["model=toy"], tmp_path / "out")
    assert bench.plan_tables("mine", ["model=toy"], tmp_path / "out")["token_evaluations"] == 0


def test_a_failing_row_is_not_run_and_the_others_are(
    mine: Callable[..., Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import specbench

    specbench.register_method("broken", lossless=True, settings={}, factory=lambda **_: Broken(), window=2)
    table = mine()
    rows = (*table.rows[:2], Row("broken", "broken", ("method=broken", "window=2"), model="elsewhere"))
    mine(rows=rows, claims=(Claim("greater", "nfe_ratio", ("broken", "ar"), "never"),))
    document = bench.run_table("mine", ["model=toy"], tmp_path / "out")
    broken = document["rows"][2]
    assert (broken["status"], broken["reason"]) == (NOT_RUN, "RuntimeError: no")
    assert document["rows"][1]["columns"]["nfe_ratio"]["measured"] is not None
    assert len(document["failed"]) == 1
    assert document["claims"][0]["status"] == NOT_RUN


class Broken:
    lossless = True

    def decode(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no")


def test_an_unknown_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'scd-image'"):
        tables_run.chosen_tables("scd-imge")
    assert tables_run.chosen_tables("all") == NAMES
