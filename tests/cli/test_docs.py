"""What the README and the pages tell a reader to type, typed."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from specbench.cli.main import COMMANDS
from tests.cli.commands import ROOT, call

TEXT = {".py", ".md", ".toml", ".yaml", ".txt", ".cff", ""}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    lines = [line for block in blocks(text, "bash") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("specbench ")]
    return [w[1:] for w in words]


def marked(name: str) -> str:
    found = re.search(rf"<!-- test:{name} -->\n```python\n(.*?)```", README, flags=re.DOTALL)
    assert found, name
    return found.group(1)


@pytest.fixture
def plugin(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(marked("plugin"))
    return path


ALL = [(page.name, words) for page in PAGES for words in commands(page.read_text(encoding="utf-8"))]


def test_there_are_commands_to_test():
    assert len(ALL) >= 8


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{p} {' '.join(w)}" for p, w in ALL])
def test_every_command_of_the_pages_is_accepted(page, words, tmp_path, capsys, plugin):
    if any(word.isupper() and len(word) > 3 for part in words for word in re.split(r"[= ]", part)):
        pytest.skip("a pattern, not a command")
    (tmp_path / "my.txt").write_text("a blue star\n")
    words = [word.replace("./mine.py", str(plugin)).replace("my.txt", str(tmp_path / "my.txt")) for word in words]
    name, settings = words[0], [word for word in words[1:] if "=" in word]
    assert name in COMMANDS
    assert call(capsys, name, *words[1:], "--help").code == 0
    if name in ("run", "sweep", "explain"):
        extra = ["--plugin", str(plugin)] if "--plugin" in words else []
        if name != "explain":
            # mini's own grid is the reader's; the plan is all that is asked for here, on the model for tests
            settings = [w for w in settings if w.split("=")[0] not in ("model", "window", "device")]
            extra += ["--dry-run", "--out", str(tmp_path / "store"), "model=mini/tiny", "window=4"]
        outcome = call(capsys, name, *settings, *extra)
        assert outcome.code == 0, outcome.err
    elif name == "list":
        assert call(capsys, *words, "--json").code == 0


def test_the_readmes_own_method_is_listed_and_conforms(plugin, capsys):
    listed = json.loads(call(capsys, "list", "methods", "--plugin", str(plugin), "--json").out)["methods"]
    assert {m["name"]: m["lossless"] for m in listed}["alternating"] is True
    outcome = call(capsys, "verify", "method=alternating", "--conformance", "--plugin", str(plugin), "--json")
    assert outcome.code == 0, outcome.err
    assert [r["passed"] for r in json.loads(outcome.out)["results"]] == [True]


@pytest.mark.slow
def test_the_readmes_own_method_is_exact(plugin, capsys):
    outcome = call(capsys, "verify", "method=alternating", "--exact", "--plugin", str(plugin), "--json")
    (result,) = json.loads(outcome.out)["results"]
    assert result["passed"] is True
    assert result["total_variation"] <= 1e-12


def test_a_method_of_ones_own_fits_into_ten_lines():
    code = [line for line in marked("plugin").splitlines() if line.strip()]
    assert len(code) <= 10


def test_the_notebook_snippet_runs_on_the_tiny_model(capsys):
    snippet = marked("notebook").replace('"mini"', '"mini/tiny"').replace("window=32", "window=4")
    scope: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), scope)
    assert scope["pictures"].dtype.is_floating_point is False  # type: ignore[attr-defined]
    assert scope["pictures"].shape[:2] == (1, 3)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_notebook_snippet_runs_as_it_stands():
    scope: dict[str, object] = {}
    exec(compile(marked("notebook"), "README.md", "exec"), scope)
    assert tuple(scope["pictures"].shape) == (1, 3, 64, 64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http", "mailto")):
            assert (page.parent / target).exists(), target


def test_make_help_documents_every_target():
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE).group(1).split()
    documented = re.findall(r"^([a-z-]+):.*## ", text, flags=re.MULTILINE)
    assert set(phony) == set(documented)


def test_no_file_names_a_path_outside_the_repository():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    outside = re.compile(r"(?<![\w.])/(?:work|root|home)/|\.\./shared")
    for name in tracked:
        path = ROOT / name
        # CI alone may look for golden files beside the checkout.
        if name != ".ci/run" and path.suffix in TEXT and path.is_file():
            assert not outside.search(path.read_text(encoding="utf-8")), name


def test_the_demo_has_its_place_in_the_readme():
    spec = importlib.util.spec_from_file_location("readme_demo", ROOT / "scripts" / "readme_demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.filled(README, "| a |\n| --- |\n| 1 |\n")
    assert "| 1 |\n\n![AR beside the methods at equal seeds](docs/images/demo.png)" in text
    assert module.filled(text, "| b |") == module.filled(README, "| b |")
