"""A run that is hurt anywhere and started again leaves the same store as one that was not."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
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


def test_twenty_kills_after_the_first_record_leave_the_same_store(ask: Ask, tmp_path: Path) -> None:
    requests = ask("method=sjd,scd", window=2, limit=24)
    bench.run(requests, tmp_path / "whole")
    out, rng = tmp_path / "killed", random.Random(5)
    fork = multiprocessing.get_context("fork")
    kills = 0
    for _ in range(60):
        before, wait = records(out), rng.randint(1, 6)
        child = fork.Process(target=_child, args=(requests, out))
        child.start()
        while child.is_alive() and records(out) < before + wait:
            time.sleep(rng.random() / 500)
        if child.is_alive() and child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += child.exitcode == -signal.SIGKILL
        if child.exitcode == 0 or kills == 20:
            break
    assert kills == 20, f"the run ended after {kills} kills"
    document = bench.run(requests, out)
    assert {cell["state"] for cell in document["cells"]} == {"done"}
    assert canonical(out) == canonical(tmp_path / "whole")
