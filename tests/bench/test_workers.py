"""Worker processes: the same store as one process makes, and what happens when one of them does not live."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench import bench
from specbench.bench import events, registry
from specbench.bench.config import RunRequest
from specbench.errors import SpecbenchError, UsageError
from tests.bench.toy import ToyTarget, write_prompts

Ask = Callable[..., list[RunRequest]]

PLUGIN = """
import os
import specbench
from specbench.decoding.build import build_decoder
from tests.bench.toy import ToyTarget

specbench.register_target("toy", ToyTarget, summary="four tokens, in a file")


class Fragile:
    lossless = True

    def __init__(self, window, sampling, at, how):
        self.window, self.sampling, self.at, self.how = window, sampling, at, how

    def decode(self, target, prompts, seed=0, sample=0):
        print("noise from a plugin", flush=True)
        if any(prompt.text.endswith(str(self.at)) for prompt in prompts):
            if self.how == "exit":
                os._exit(7)
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            raise RuntimeError("told to")
        return build_decoder({"redraft": "maximal"}, self.window, self.sampling).decode(target, prompts, seed, sample)


specbench.register_method("fragile", lossless=True, factory=Fragile, settings={"at": -1, "how": "raise"}, window=2)
"""


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunRequest]]:
    """Requests on the toy target as a plugin file brings it, which is how a worker can see it."""
    monkeypatch.setattr(registry, "_models", {})
    plugin = tmp_path / "toys.py"
    plugin.write_text(PLUGIN)
    captions = write_prompts(tmp_path / "captions.txt", 24)

    def ask(*words: str, limit: int = 9, batch: int = 2) -> list[RunRequest]:
        given = ["model=toy", "dtype=float64", "prompts=file", f"prompts.path={captions}", f"prompts.limit={limit}"]
        return bench.compose([*given, f"batch={batch}", *words], plugins=[plugin])

    return ask


def canonical(out: Path) -> str:
    return "".join(bench.export(out, canonical=True))


def states(document: dict[str, Any]) -> dict[str, str]:
    return {cell["method"]: cell["state"] for cell in document["cells"]}


def test_two_workers_leave_the_same_store_as_one_process(plugged: Ask, tmp_path: Path) -> None:
    requests = plugged("method=sjd,scd", "window=2,4")
    told: list[events.Event] = []
    document = bench.run(requests, tmp_path / "two", told.append, workers=2)
    bench.run(requests, tmp_path / "one")
    assert canonical(tmp_path / "two") == canonical(tmp_path / "one")
    assert set(states(document).values()) == {"done"}
    done = [event for event in told if isinstance(event, events.ImageDone)]
    assert [event.done for event in done] == list(range(1, 46))
    assert document["cost_curve"] is None
    assert all(cell["throughput"] is None for cell in document["cells"])
    assert all(cell["nfe_ratio"] is not None for cell in document["cells"])
    assert multiprocessing.active_children() == []


def test_workers_take_up_what_a_single_process_left_and_the_reverse(plugged: Ask, tmp_path: Path) -> None:
    bench.run(plugged("method=scd", "window=2", limit=3), tmp_path / "mixed")
    bench.run(plugged("method=scd", "window=2", limit=8), tmp_path / "mixed", workers=2)
    document = bench.run(plugged("method=scd", "window=2", limit=9), tmp_path / "mixed")
    bench.run(plugged("method=scd", "window=2", limit=9), tmp_path / "whole")
    assert canonical(tmp_path / "mixed") == canonical(tmp_path / "whole")
    assert all(cell["throughput"] for cell in document["cells"])


def test_two_limits_of_one_cell_in_one_run_are_made_once(plugged: Ask, tmp_path: Path) -> None:
    both = [*plugged("method=scd", "window=2", limit=4), *plugged("method=scd", "window=2", limit=9)]
    document = bench.run(both, tmp_path / "two", workers=2)
    assert {cell["state"] for cell in document["cells"]} == {"done"}
    bench.run(plugged("method=scd", "window=2", limit=9), tmp_path / "one")
    assert canonical(tmp_path / "two") == canonical(tmp_path / "one")


@pytest.mark.parametrize(
    ("how", "sentence"), [("exit", "ended with code 7"), ("kill", "was killed by signal 9"), ("raise", "told to")]
)
def test_a_dying_worker_fails_its_cell_and_not_the_run(
    plugged: Ask, tmp_path: Path, how: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    requests = plugged("method=fragile,scd", "window=2", "method.at=5", f"method.how={how}")
    document = bench.run(requests, tmp_path / "out", workers=2)
    assert states(document) == {"ar": "done", "fragile": "failed", "scd": "done"}
    (failed,) = [cell for cell in document["cells"] if cell["state"] == "failed"]
    assert sentence in failed["error"]
    assert multiprocessing.active_children() == []
    assert "noise from a plugin" not in capfd.readouterr().out


def test_latency_and_workers_exclude_each_other(plugged: Ask, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at batch=1 the clock runs"):
        bench.run(plugged("method=scd", "window=2", batch=1), tmp_path / "out", workers=2)
    with pytest.raises(UsageError, match="at least 1"):
        bench.run(plugged("method=scd", "window=2"), tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


def test_what_only_this_session_knows_is_refused(ask: Ask, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model 'toy' was registered in this Python session"):
        bench.run(ask("method=scd", "batch=2", window=2), tmp_path / "out", workers=2)
    assert not (tmp_path / "out").exists()
    assert ToyTarget().grid.size == 4


def test_a_worker_that_means_other_cells_ends_the_run(
    plugged: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = plugged("method=scd", "window=2")
    (tmp_path / "toys.py").write_text(PLUGIN + "\n# edited while the run was starting\n")
    with pytest.raises(SpecbenchError, match="the sources changed"):
        bench.run(requests, tmp_path / "out", workers=2)
    (tmp_path / "toys.py").write_text("raise SystemExit('no')\n")
    with pytest.raises(SpecbenchError, match="a worker process could not start"):
        bench.run(requests, tmp_path / "out", workers=2)
    assert multiprocessing.active_children() == []


def children(of: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(of)], capture_output=True, text=True).stdout.split()
    return [pid for child in map(int, found) for pid in (child, *children(child))]


def test_ctrl_c_leaves_no_process_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ["sweep", "model=mini/tiny", "method=sjd,scd", "window=4", "batch=2", "prompts.limit=200", "--workers", "2"]
    command = [sys.executable, "-m", "specbench.cli.main", *words, "--out", str(tmp_path / "s")]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not list((tmp_path / "s").glob("cells/*/*.png")):
        time.sleep(0.05)
    mine = children(process.pid)
    assert len(mine) >= 2
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: every process of the group hears it
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 5, errors
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in mine):
        time.sleep(0.05)
    assert not [pid for pid in mine if Path(f"/proc/{pid}").exists()]
