"""How the tests call the command line: in this process where they can, in another where they must."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from specbench.bench import registry
from specbench.cli.main import run_cli

ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Outcome:
    capsys.readouterr()
    code = run_cli(words)
    return Outcome(code, *capsys.readouterr())


def plugin_file(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Path of a plugin with this text, for a registry in which no other plugin has registered anything."""
    for name, empty in (("_methods", {}), ("_models", {}), ("_loaded", set())):
        monkeypatch.setattr(registry, name, empty)
    file = folder / "mine.py"
    file.write_text(text)
    return str(file)


def spawn(*words: str, cwd: Path | None = None, timeout: float = 120, **env: str) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "specbench.cli.main", *words],
        cwd=cwd or ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def cpu_seconds(*words: str) -> float:
    """Processor time of one Python process: what it costs, on a busy machine too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one_sentence(text: str) -> bool:
    return text.startswith("specbench: ") and text.count("\n") == 1 and "Traceback" not in text
