from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from specbench import errors
from specbench.cli import doctor, explain, listing
from specbench.cli.main import COMMANDS, app, run_cli
from tests.cli.commands import ROOT, call, cpu_seconds, one_sentence, spawn

PROBE = """
import sys
from specbench.cli.main import run_cli
run_cli(["--help"])
heavy = {"torch", "hydra", "omegaconf", "pandas", "numpy", "matplotlib", "PIL"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def test_help_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"
    for name in COMMANDS:
        assert f" {name} " in done.stdout


def test_help_takes_a_third_of_a_second_or_two_and_a_half_times_its_bare_libraries():
    bare = "import typer, rich.console, rich.table, rich.panel, rich.markdown"
    pairs = [(cpu_seconds("-m", "specbench.cli.main", "--help"), cpu_seconds("-c", bare)) for _ in range(3)]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    assert ours <= 0.3 or ours <= 2.5 * theirs, f"{ours:.2f} s against {theirs:.2f} s"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    outcome = call(capsys, name, "--help")
    assert outcome.code == 0
    assert "Usage" in outcome.out


def test_without_a_word_it_shows_help(capsys):
    assert "Commands" in call(capsys).out


def test_the_version_is_the_packages(capsys):
    import specbench

    assert call(capsys, "--version") == (0, f"{specbench.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu"], "Did you mean 'run'"),
        (["run", "--ouut", "x"], "--out"),
        (["list", "method"], "did you mean 'methods'"),
        (["compare", "onlyone"], "Missing argument"),
        (["run", "--plugin", "nowhere.py"], "nowhere.py is not a file"),
        (["run", "--weights-root", "nowhere"], "--weights-root nowhere is not a folder"),
        (["table", "scd-imge"], "did you mean 'scd-image'"),
        (["train"], "target=mini"),
        (["train", "target=minni"], "did you mean 'mini'"),
        (["train", "target=mini", "steps"], "not of the form key=value"),
        (["verify", "window=3"], "not 'window'"),
        (["export", "--canonical", "--table", "csv"], "give one of them"),
        (["export", "--table", "csv", "--out", "nowhere"], "run or sweep into nowhere first"),
        (["run", "method=sdc"], "did you mean 'scd'"),
        (["run", "metod=scd"], "did you mean 'method'"),
        (["run", "window=0"], "window must be at least 1"),
        (["run", "window=8,16"], "specbench sweep"),
        (["run", "prompt= "], "prompt"),
        (["explain", "method=scd,sjd"], "explain takes one cell"),
    ],
)
def test_a_mistake_gets_one_sentence_and_exit_code_2(words, hint, capsys):
    outcome = call(capsys, *words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert one_sentence(outcome.err)
    assert hint in outcome.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SpecbenchError("broken"), 1),
        (errors.UsageError("broken"), 2),
        (errors.NotComparableError("broken"), 3),
        (errors.RegressionError("broken"), 4),
        (errors.IncompleteError("broken"), 5),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 1),
        (ValueError("a bug\nover two lines"), 1),
    ],
)
def test_every_error_has_its_exit_code_and_one_sentence(error, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("specbench.bench.list_methods", fail, raising=False)
    outcome = call(capsys, "list", "methods", "--json")
    assert outcome.code == code
    assert outcome.out == ""
    assert one_sentence(outcome.err)


def test_an_unknown_training_setting_is_answered_with_the_nearest(monkeypatch, capsys):
    def train(steps: int = 10, folder: str = "runs") -> None:
        raise AssertionError("must not start")

    monkeypatch.setattr("specbench.models.mini.training.recipe.train", train, raising=False)
    outcome = call(capsys, "train", "target=mini", "stepz=3")
    assert (outcome.code, one_sentence(outcome.err)) == (2, True)
    assert "did you mean 'steps'" in outcome.err


def test_a_bug_shows_its_traceback_when_asked(monkeypatch):
    def fail(*_, **__):
        raise ValueError("a bug")

    monkeypatch.setattr("specbench.bench.list_methods", fail, raising=False)
    monkeypatch.setenv("SPECBENCH_DEBUG", "1")
    with pytest.raises(ValueError, match="a bug"):
        run_cli(["list", "methods"])


def test_a_reader_that_leaves_a_pipe_is_no_error():
    done = subprocess.run(
        [f"{sys.executable} -m specbench.cli.main list methods --json | true; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT, shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""


def test_no_color_and_pipes_get_plain_text():
    assert "\x1b" not in spawn("list", "methods").out


def test_commands_are_one_thin_file_each():
    folder = ROOT / "specbench" / "cli"
    for path in folder.glob("*.py"):
        assert len(path.read_text().splitlines()) < 200, path.name
    assert {command.name for command in app.registered_commands} == set(COMMANDS)
    assert all(callable(module.command) for module in (doctor, explain, listing))
