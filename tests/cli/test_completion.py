from __future__ import annotations

import os
import subprocess
import sys

import pytest

from specbench.cli.complete import complete_override
from tests.cli.commands import ROOT, cpu_seconds


def bash(*words: str) -> list[str]:
    """Complete the last word as bash does it: words joined by newlines, the number of the one at the cursor."""
    done = subprocess.run(
        [sys.executable, "-m", "specbench.cli.main"],
        cwd=ROOT,
        env={
            **os.environ,
            "_SPECBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(("specbench", *words)),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.split()


def test_bash_completes_commands_kinds_keys_and_values():
    assert bash("swe") == ["sweep"]
    assert bash("list", "m") == ["methods", "models"]
    assert "method=" in bash("run", "meth")
    # bash breaks words at "=", so the value comes as a word of its own and is offered bare
    assert bash("run", "method", "=", "repl") == ["replay"]
    assert set(bash("run", "method", "=")) >= {"ar", "sjd", "scd"}


def test_a_real_bash_types_the_word_to_its_end(tmp_path):
    script = subprocess.run(
        [sys.executable, "-m", "specbench.cli.main", "--show-completion", "bash"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    ).stdout  # fmt: skip
    assert "complete" in script
    wrapper = tmp_path / "specbench"
    wrapper.write_text(f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m specbench.cli.main "$@"\n')
    wrapper.chmod(0o755)
    ask = (
        "COMP_WORDS=(specbench run method = repl); COMP_CWORD=4; _specbench_completion specbench; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "replay"


def test_shells_that_keep_the_word_whole_get_it_back_whole():
    assert complete_override("method=repl") == ["method=replay"]
    assert set(complete_override("method=sc")) >= {"method=scd", "method=scd_gs"}


def test_after_a_comma_only_what_is_not_listed_yet_is_offered():
    offers = complete_override("method=scd,sc")
    assert "method=scd,scd_gs" in offers
    assert "method=scd,scd" not in offers
    assert bash("run", "method", "=", "scd,repl") == ["scd,replay"]


@pytest.mark.parametrize("typed", ["nonsense", "nonsense=", "=", "method=zzz", "window="])
def test_completion_never_fails(typed):
    assert isinstance(complete_override(typed), list)


def test_completion_is_quick_enough_to_type_with_and_loads_no_torch():
    probe = (
        "import sys; from specbench.cli.complete import complete_override as c; c('method=s'); c('win');"
        "assert not {'torch', 'hydra'} & set(sys.modules)"
    )
    assert cpu_seconds("-c", probe) < 1.0
