"""Nothing but the document reaches stdout with ``--json``, and closed or broken streams are no errors of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.commands import ROOT, spawn

NOISY = """
import atexit, os, subprocess, sys
print("printed by Python")
os.write(1, b"written to the descriptor\\n")
subprocess.run(["echo", "said by a child"], check=True)
atexit.register(lambda: print("last words"))
"""


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line.replace("specbench", f"{sys.executable} -m specbench.cli.main"), cwd=ROOT, shell=True,
        executable="/bin/bash", capture_output=True, text=True, timeout=120, env={**os.environ, **env},
    )  # fmt: skip


def test_what_a_plugin_prints_never_reaches_the_document(tmp_path):
    plugin = tmp_path / "noisy.py"
    plugin.write_text(NOISY)
    words = ("run", "model=mini/tiny", "method=ar", "prompt=a star", "--dry-run", "--out", str(tmp_path / "x"))
    outcome = spawn(*words, "--json", "--plugin", str(plugin))
    assert outcome.code == 0
    assert json.loads(outcome.out)["schema"]
    for line in ("printed by Python", "written to the descriptor", "said by a child", "last words"):
        assert line in outcome.err


def test_a_reader_that_leaves_is_met_with_silence():
    for command in ("list methods", "list methods --json", "--help"):
        done = shell(f"specbench {command} | true; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED="1")
        assert (done.returncode, done.stderr) in ((141, ""), (0, "")), command  # 0: all was written before it left
    slow = "specbench list methods | (exec <&-; sleep 6); exit ${PIPESTATUS[0]}"
    assert (shell(slow).returncode, shell(slow).stderr) == (141, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    done = shell(f"specbench list methods --json {closed}")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == "" or json.loads(done.stdout)["methods"]


def test_errors_never_reach_stdout_even_without_a_stderr():
    done = shell("specbench run method=sdc 2>&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert shell("specbench run method=sdc 2>/dev/full").returncode == 2
