from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from specbench.cli import progress
from tests.cli.commands import ROOT, call, one_sentence, spawn

TINY = ("model=mini/tiny", "window=4", "prompts.limit=2", "seed=3")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    outcome = spawn("sweep", *TINY, "method=sjd,scd", "--out", str(out), "--plots")
    return out, outcome


def test_a_sweep_prints_the_table_and_the_sentence_and_keeps_the_files(swept):
    out, outcome = swept
    assert outcome.code == 0, outcome.err
    for part in (
        "NFE",
        "latency",
        "tokens",
        "On this machine a pass over 4 tokens costs",
        "Ratios are plain AR ÷ method",
    ):
        assert part in outcome.out
    report = {path.name for path in (out / "report").iterdir()}
    assert report == {
        "table.md",
        "table.csv",
        "table.tex",
        "document.json",
        "sheet.png",
        "nfe.png",
        "acceptance.png",
        "map-changes.png",
        "map-fixed-pass.png",
    }


def test_progress_goes_to_stderr_in_plain_lines_without_a_terminal(swept):
    _, outcome = swept
    assert "3 cells, 6 images" in outcome.err
    assert "6/6 images" in outcome.err
    assert "\x1b" not in outcome.err + outcome.out
    assert "\r" not in outcome.err


def test_json_is_one_document_and_nothing_else(swept, capsys):
    out, _ = swept
    outcome = call(capsys, "sweep", *TINY, "method=sjd,scd", "--out", str(out), "--json", "--quiet")
    document = json.loads(outcome.out)
    assert outcome.err == ""
    cells = document["cells"]
    assert [cell["method"] for cell in cells] == ["ar", "sjd", "scd"]
    for key in ("id", "model", "window", "seed", "lossless", "images", "nfe", "nfe_ratio", "latency_s", "latency_ratio",
                "tokens_per_pass", "accept_rate_pooled", "steps_with_row_ends", "accuracy", "entropy", "requested",
                "effective", "state"):  # fmt: skip
        assert all(key in cell for cell in cells), key
    assert (cells[0]["window"], cells[0]["nfe"]["mean"], cells[0]["accept_rate_pooled"]) == (1, 16, None)


def test_what_is_stored_is_not_run_again(swept, capsys):
    out, _ = swept
    plan = json.loads(call(capsys, "sweep", *TINY, "method=sjd,scd", "--out", str(out), "--dry-run", "--json").out)
    assert sum(cell["to_run"] for cell in plan["cells"]) == 0
    outcome = call(capsys, "run", "model=mini/tiny", "window=4", "method=scd", "prompts.limit=3", "seed=3",
                   "--out", str(out), "--dry-run")  # fmt: skip
    assert "2 images to decode; nothing was run" in outcome.out


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    assert call(capsys, "run", *TINY, "method=scd", "--out", str(tmp_path / "x"), "--dry-run").code == 0
    assert not (tmp_path / "x").exists()


def test_the_last_table_and_the_records_can_be_exported(swept, capsys, tmp_path):
    out, _ = swept
    assert (
        call(capsys, "export", "--table", "markdown", "--out", str(out)).out
        == (out / "report" / "table.md").read_text()
    )
    assert call(capsys, "export", "--table", "latex", "--out", str(out), "--to", str(tmp_path / "t.tex")).out == ""
    assert (tmp_path / "t.tex").read_text().startswith("%")
    lines = call(capsys, "export", "--canonical", "--out", str(out)).out.splitlines()
    assert all(json.loads(line) for line in lines)
    assert len(lines) >= 6


def test_runs_are_listed_and_compared(swept, capsys):
    out, _ = swept
    runs = json.loads(call(capsys, "list", "runs", "--out", str(out), "--json").out)["runs"]
    assert {run["method"] for run in runs} == {"ar", "sjd", "scd"}
    ids = {run["method"]: run["id"] for run in runs}
    assert call(capsys, "compare", ids["sjd"], ids["scd"], "--out", str(out)).code == 0
    assert json.loads(call(capsys, "compare", ids["sjd"], ids["scd"], "--out", str(out), "--json").out)


def test_unequal_terms_are_refused_with_code_3_until_they_are_allowed(swept, capsys):
    out, _ = swept
    call(
        capsys, "run", "model=mini/tiny", "window=4", "method=scd", "prompts.limit=2", "seed=4", "--out", str(out), "-q"
    )
    runs = json.loads(call(capsys, "list", "runs", "--out", str(out), "--json").out)["runs"]
    a, b = (next(run["id"] for run in runs if run["method"] == "scd" and run["seed"] == seed) for seed in (3, 4))
    refused = call(capsys, "compare", a, b, "--out", str(out))
    assert refused.code == 3
    assert one_sentence(refused.err)
    assert "seed" in refused.err
    allowed = call(capsys, "compare", a, b, "--out", str(out), "--allow", "seed")
    assert allowed.code == 0
    assert "seed" in allowed.out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["window=17"], "beyond the 16 tokens"),
        (["prompts.limit=0"], "at least 1"),
        (["prompts=file", "prompts.path=nowhere.txt"], "nowhere.txt"),
        (["model=minni/tiny"], "did you mean"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_anything_is_decoded(words, hint, tmp_path, capsys):
    keep = [word for word in TINY if word.split("=")[0] not in {w.split("=")[0] for w in words}]
    outcome = call(capsys, "run", *keep, "method=scd", *words, "--out", str(tmp_path / "x"), "-q")
    assert outcome.code == 2
    assert one_sentence(outcome.err)
    assert hint in outcome.err


def test_a_store_that_cannot_be_used_is_one_sentence_and_code_1_or_2(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    outcome = call(capsys, "run", *TINY, "method=scd", "--out", str(tmp_path / "file" / "deep"), "-q")
    assert outcome.code in (1, 2)
    assert one_sentence(outcome.err)


def test_an_interrupted_run_says_what_is_kept_and_goes_on_from_there(tmp_path):
    words = ["run", "model=mini/tiny", "window=2", "method=sjd", "prompts.limit=120", "--out", str(tmp_path / "s")]
    process = subprocess.Popen(
        [sys.executable, "-m", "specbench.cli.main", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list((tmp_path / "s").glob("cells/*/*.png")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "Traceback" not in err
    assert "are kept in" in err
    assert "goes on from there" in err
    plan = json.loads(spawn(*words, "--dry-run", "--json").out)
    assert 0 < sum(cell["stored"] for cell in plan["cells"]) < 240


def test_plain_progress_is_sparse_and_tells_failures_at_once():
    cell = type("Cell", (), {"method": "scd", "window": 32})()
    event = lambda kind, **fields: type(kind, (), fields)()  # noqa: E731
    now, lines = [0.0], []
    show = progress.plain_lines(lines.append, clock=lambda: now[0])
    show(event("Planned", cells=[1, 2], total=10, stored=4))
    now[0] += 500
    show(event("WarmedUp", cell=cell))
    for done in (1, 2, 3):
        now[0] += 1
        show(event("ImageDone", cell=cell, prompt_id="p", done=done, total=10))
    now[0] += 10
    show(event("ImageDone", cell=cell, prompt_id="p", done=4, total=10))
    show(event("CellFailed", cell=cell, state="oom", message="out of memory"))
    assert lines == [
        "2 cells, 10 images, 4 of them stored already",
        "4/10 images, scd window=32, about 20 s left",
        "scd window=32 oom: out of memory",
    ]


def test_the_bar_is_drawn_between_images_and_never_by_a_thread_that_runs_inside_them(monkeypatch):
    out = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("specbench.report.terminal.console", lambda stderr=False: out)
    cell = type("Cell", (), {"method": "scd", "window": 32})()
    before, tally = threading.active_count(), progress.Tally()
    with progress.progress(tally) as on_event:
        assert threading.active_count() == before
        on_event(type("Planned", (), {"cells": [1], "total": 4, "stored": 0})())
        on_event(type("ImageDone", (), {"cell": cell, "prompt_id": "p", "done": 3, "total": 4})())
    assert (tally.done, tally.total) == (3, 4)
    assert "scd window=32" in out.file.getvalue()
    assert "3/4" in out.file.getvalue()


def test_a_report_that_cannot_be_written_says_what_is_kept(tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("specbench.report.folder.write_report", full)
    words = ("run", *TINY, "method=scd", "--out", str(tmp_path / "s"), "-q")
    outcome = call(capsys, *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert one_sentence(outcome.err)
    assert "No space left on device): every image and clock is kept in" in outcome.err
    monkeypatch.undo()
    plan = json.loads(call(capsys, *words, "--dry-run", "--json").out)
    assert sum(cell["to_run"] for cell in plan["cells"]) == 0
