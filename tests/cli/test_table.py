from __future__ import annotations

import csv
import json

import pytest

from tests.cli.commands import call, one_sentence, spawn

TINY = ("sjd-window", "model=mini/tiny", "prompts.limit=6")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    return out, spawn("table", *TINY, "--out", str(out), "--workers", "2")


def test_a_table_shows_published_and_measured_and_writes_its_page(made):
    out, outcome = made
    assert outcome.code == 0, outcome.err
    for part in (
        "SJD (arXiv 2410.01699)",
        "Measured on mini/tiny",
        "16 (C)",
        "not run: window 64 is beyond",
        "Letters:",
    ):
        assert part in outcome.out
    page = (out / "tables" / "sjd-window.md").read_text()
    assert "specbench table sjd-window model=mini/tiny prompts.limit=6" in page
    assert "## Claims" in page
    rows = list(csv.DictReader((out / "tables" / "sjd-window.csv").read_text().splitlines()))
    values = {row["name"]: row for row in rows if row["kind"] == "row" and row["metric"] == "nfe_ratio"}
    assert float(values["sjd@4"]["measured"]) > 1
    assert values["sjd@64"]["measured"] == ""
    assert {row["status"] for row in rows} <= {"trend holds", "differs", "unresolved", "not run", ""}


def test_json_is_one_document_and_what_is_stored_is_not_run_again(made, capsys):
    out, _ = made
    outcome = call(capsys, "table", *TINY, "--out", str(out), "--json", "--workers", "1")
    document = json.loads(outcome.out)
    assert "30 of them stored already" in outcome.err
    (table,) = document["tables"]
    assert table["name"] == "sjd-window"
    assert [row["id"] for row in table["rows"]] == ["sjd@2", "sjd@4", "sjd@8", "sjd@16", "sjd@32", "sjd@64"]
    assert table["rows"][0]["columns"]["nfe_ratio"]["measured"]["value"] > 1
    assert all(set(claim) >= {"kind", "metric", "rows", "says", "published", "measured", "status"}
               for claim in table["claims"])  # fmt: skip


def test_a_dry_run_counts_cells_images_and_work_and_writes_nothing(tmp_path, capsys):
    outcome = call(capsys, "table", *TINY, "--out", str(tmp_path / "x"), "--dry-run")
    assert outcome.code == 0
    for part in ("5 cells, 30 images to decode and 0 to time", "token evaluations", "not run: sjd-window, sjd@64"):
        assert part in outcome.out
    assert not (tmp_path / "x").exists()


def test_a_dry_run_plans_blocks_which_have_no_window(tmp_path, capsys):
    outcome = call(capsys, "table", "ssd-5", "model=mini", "prompts.limit=2", "--out", str(tmp_path / "x"), "--dry-run")
    assert outcome.code == 0 and "about 16,384 token evaluations" in outcome.out


def test_tables_are_listed_and_without_weights_say_that_they_are_not_run(tmp_path, capsys):
    assert "scd-image" in call(capsys, "table").out
    listed = json.loads(call(capsys, "table", "--json").out)["tables"]
    assert {"name", "summary", "model"} <= set(listed[0])
    outcome = call(capsys, "table", "scd-alpha", "--out", str(tmp_path / "x"), "-q")
    assert outcome.code == 0
    assert "not run" in outcome.out
    assert "Nothing was run" in outcome.out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["scd-imge"], "did you mean 'scd-image'"),
        (["scd-image", "model=minni"], "did you mean 'mini'"),
        (["scd-image", "model=mini", "window=3"], "window cannot be set here"),
        (["scd-image", "model=mini", "prompts.limt=3"], "did you mean 'prompts.limit'"),
        (["scd-image", "model=mini", "--workers", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_sentence_and_code_2(words, hint, tmp_path, capsys):
    outcome = call(capsys, "table", *words, "--out", str(tmp_path / "x"), "-q")
    assert outcome.code == 2
    assert one_sentence(outcome.err)
    assert hint in outcome.err


def test_workers_and_the_clock_exclude_each_other_in_a_run(tmp_path, capsys):
    words = ("run", "model=mini/tiny", "window=4", "method=scd", "prompts.limit=2", "--workers", "2", "-q")
    outcome = call(capsys, *words, "--out", str(tmp_path / "x"))
    assert outcome.code == 2
    assert one_sentence(outcome.err)
    assert "batch=16" in outcome.err
