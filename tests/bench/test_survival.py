"""A run that is hurt anywhere and started again leaves the same store as one that was not."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specbench import bench
from specbench.bench import disk
from specbench.bench.config import RunRequest
from specbench.errors import SpecbenchError
from tests.bench.faults import FaultyOs, Killed

Ask = Callable[..., list[RunRequest]]


def canonical(out: Path) -> str:
    return "".join(bench.export(out, canonical=True))


def attempt(requests: list[RunRequest], out: Path) -> str:
    """Run, and return the sentence of the error if there is one."""
    try:
        bench.run(requests, out)
    except Killed:
        return ""
    except SpecbenchError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("how", ["full", "torn", "killed", "killed-torn", "killed-after"])
def test_a_fault_at_any_write_sync_rename_or_open_costs_nothing_but_time(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    requests = ask("method=scd", window=2, limit=1)
    bench.run(requests, tmp_path / "whole")
    whole = canonical(tmp_path / "whole")
    seen: dict[str, int] = {}
    n = 0
    while True:
        n += 1
        faulty = FaultyOs(n, how)
        out = tmp_path / f"{how}-{n}"
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", faulty)
            answer = attempt(requests, out)
        assert "\n" not in answer
        assert "disk is full" in answer or faulty.how.startswith("killed") or faulty.fired is None
        if faulty.fired is None:
            break
        seen[faulty.fired] = seen.get(faulty.fired, 0) + 1
        document = bench.run(requests, out)
        assert {cell["state"] for cell in document["cells"]} == {"done"}
        assert all(cell["timed_together"] == 1 for cell in document["cells"])
        assert canonical(out) == whole, f"{how} at call {n} ({faulty.fired})"
        assert not list(out.rglob("*.tmp"))
    assert seen["write"] >= 10
    assert seen["replace"] >= 6
    assert seen["fsync"] >= 15


def test_a_full_disk_keeps_what_was_measured_before(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", FaultyOs(70, "full"))
        with pytest.raises(SpecbenchError, match="the disk is full"):
            bench.run(ask("method=scd", window=2, limit=5), out)
    kept = sum(row["images"] for row in bench.list_runs(out))
    assert kept > 0
    plan = bench.plan(ask("method=scd", window=2, limit=5), out)
    assert sum(cell["stored"] for cell in plan["cells"]) == kept


def _child(requests: list[RunRequest], out: Path) -> None:
    bench.run(requests, out)
    os._exit(0)


def records(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("cells/*/records.jsonl"))


def kill_twenty_times(start: Callable[[], tuple[int, Callable[[], int | None]]], out: Path) -> int:
    """Start a run, kill it one to six records later, and again; returns how many were killed before they ended."""
    rng = random.Random(5)
    kills = 0
    while kills < 20:
        before, wait = records(out), rng.randint(1, 6)
        pid, poll = start()
        while (code := poll()) is None and records(out) < before + wait:
            time.sleep(rng.random() / 500)
        if code is None:
            os.kill(pid, signal.SIGKILL)
        while (code := poll()) is None:
            time.sleep(0.001)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
    return kills


def test_twenty_kills_after_the_first_record_leave_the_same_store(ask: Ask, tmp_path: Path) -> None:
    requests = ask("method=sjd,scd", window=2, limit=24)
    bench.run(requests, tmp_path / "whole")
    out = tmp_path / "killed"

    def start() -> tuple[int, Callable[[], int | None]]:
        child = multiprocessing.get_context("fork").Process(target=_child, args=(requests, out))
        child.start()
        assert child.pid is not None
        return child.pid, lambda: child.exitcode

    assert kill_twenty_times(start, out) == 20
    document = bench.run(requests, out)
    assert {cell["state"] for cell in document["cells"]} == {"done"}
    assert canonical(out) == canonical(tmp_path / "whole")


@pytest.mark.slow
def test_twenty_kills_of_the_command_line_leave_the_same_store(tmp_path: Path) -> None:
    words = ["sweep", "model=mini/tiny", "method=sjd,scd", "window=4", "dtype=float64", "prompts.limit=48"]
    entry = [sys.executable, "-c", "from specbench.cli.main import main; main()"]

    def start() -> tuple[int, Callable[[], int | None]]:
        command = [*entry, *words, "--out", str(tmp_path / "killed")]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return child.pid, child.poll

    assert kill_twenty_times(start, tmp_path / "killed") == 20
    for out in ("killed", "whole"):
        subprocess.run([*entry, *words, "--out", str(tmp_path / out)], check=True, capture_output=True)
    exports = [
        subprocess.run([*entry, "export", "--canonical", "--out", str(tmp_path / out)], check=True, capture_output=True)
        for out in ("killed", "whole")
    ]
    assert exports[0].stdout == exports[1].stdout
    assert exports[0].stdout.count(b"\n") > 3 * 48
