"""The house keeps its shape: which room may import which, how long files and functions are, how modules open."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "specbench"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = {
    "decoding": {"errors"},
    "prompts": {"errors", "decoding"},
    "models": {"errors", "decoding", "prompts"},
    "scores": {"errors", "prompts"},
    "drafters": {"errors", "decoding", "models"},
    "bench": {"errors", "decoding", "drafters", "models", "prompts", "scores"},
    "verify": {"errors", "decoding", "models"},
    "report": {"errors"},
    "cli": {"errors", "bench", "report", "verify", "models"},
}
"""Room → rooms it may import. Arrows point one way: cli → bench → the rest, report and verify on the side."""
METHOD_FILES = {"loop", "redraft", "accept", "fill", "build"}


def imports(path: Path) -> Iterator[str]:
    """Dotted names below ``specbench`` that a file imports, wherever it does so; not those for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("specbench"):
            below = node.module.removeprefix("specbench").lstrip(".")
            yield from ([below] if below else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("specbench.") for a in node.names if a.name.startswith("specbench."))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in ROOMS], ids=label)
def test_arrows_point_one_way(path):
    own = room(path)
    strange = {name for name in imports(path) if name.split(".")[0] not in ROOMS[own] | {own, "__version__"}}
    assert not strange


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "models"], ids=label)
def test_a_model_never_imports_a_method(path):
    assert not {name for name in imports(path) if name.startswith("decoding.") and name.split(".")[1] in METHOD_FILES}


@pytest.mark.parametrize("path", FILES, ids=label)
def test_files_and_functions_keep_their_size_and_modules_say_what_they_know(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 400
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {n.name: length for n in functions if (length := n.end_lineno - n.lineno + 1) > 60}
    assert not long
    if text.strip():
        docstring = ast.get_docstring(tree)
        assert docstring
        assert path.name == "__init__.py" or "nows" in docstring, "say what this module knows and refuses to know"


def test_the_house_test_sees_what_it_looks_for(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import specbench.bench.store\nfrom specbench import errors\ndef f():\n    from specbench.cli.run import x\n"
    )
    assert set(imports(path)) == {"bench.store", "errors", "cli.run"}
