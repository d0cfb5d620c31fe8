"""The wheel, away from the checkout: what is in it, and that it works alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.commands import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_groups_the_weights_and_the_type_marker_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "conf", "specbench"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in tracked.stdout.split():
        assert (f"specbench/{path}" if path.startswith("conf/") else path) in names
    assert "specbench/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "conf/", "scripts/"))]


def test_the_wheel_stays_small_enough_to_ship(wheel):
    assert wheel.stat().st_size < 20e6


def test_it_installs_into_an_empty_environment_and_runs_from_another_folder(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel],
        check=True,
        capture_output=True,
        timeout=1200,
    )
    specbench = tmp_path / "venv" / "bin" / "specbench"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [specbench, *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [python, "-c", "import specbench; print(specbench.__file__)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert str(tmp_path / "venv") in where.stdout
    assert {"ar", "sjd", "scd", "scd_gs"} <= {
        m["name"] for m in json.loads(run("list", "methods", "--json"))["methods"]
    }
    document = json.loads(run("run", "model=mini/tiny", "method=scd", "window=4", "prompts.limit=2", "--json"))
    assert [cell["state"] for cell in document["cells"]] == ["done", "done"]
    assert (tmp_path / "runs" / "report" / "sheet.png").is_file()
    assert "passed" in run("verify", "method=scd", "--exact")
