from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from specbench import bench
from specbench.bench import disk
from specbench.bench.cells import Cell, Terms, source_hash, weights_hash
from specbench.bench.store import REQUIRED, TRACE, Records
from specbench.errors import SpecbenchError
from tests.bench.toy import ToyTarget

TERMS = Terms("toy", "w", "float64", {"top_k": 2}, "p", 0, "scd", {"fill": "left"}, ("fill",), 3)
CELL = Cell(TERMS, "code", True, "file")
OTHER: dict[str, Any] = {
    "model": "other",
    "weights": "other",
    "dtype": "float32",
    "sampling": {"top_k": 3},
    "prompts": "other",
    "seed": 1,
    "method": "sjd",
    "settings": {"fill": "above"},
    "window": 4,
    "recipe": {"template": "{prompt}!"},
}


@pytest.mark.parametrize("field", sorted(OTHER))
def test_every_term_changes_the_id(field: str) -> None:
    assert replace(CELL, terms=replace(TERMS, **{field: OTHER[field]})).id != CELL.id


def test_the_code_changes_the_id_and_what_follows_from_the_terms_does_not() -> None:
    assert {field.name for field in fields(Terms)} == {*OTHER, "overridden"}
    assert replace(CELL, code="other").id != CELL.id
    assert replace(CELL, prompt_set="other name, same content").id == CELL.id
    assert replace(CELL, terms=replace(TERMS, overridden=())).id == CELL.id
    assert Cell.from_plain(CELL.plain()) == CELL


def test_a_source_changes_the_fingerprint_by_name_and_by_content(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    before = source_hash([("a.py", file)])
    assert source_hash([("b.py", file)]) != before
    file.write_text("x = 2\n")
    assert source_hash([("a.py", file)]) != before


def test_a_target_without_weights_hash_or_tensors_is_refused() -> None:
    target: Any = ToyTarget()
    assert weights_hash(target) == "toy-weights"
    del target.weights_hash
    with pytest.raises(SpecbenchError, match="declares no weights_hash"):
        weights_hash(target)
    target.state_dict = lambda: {"table": target.table}
    before = weights_hash(target)
    target.table[0, 0, 0] += 1
    assert weights_hash(target) != before


def test_the_first_record_of_an_image_stands(tmp_path: Path) -> None:
    trace = {name: [] for name in TRACE}
    known = dict.fromkeys(REQUIRED["image"]) | {"kind": "image", "prompt": "a", "sample": 0, "trace": trace}
    lines = [known | {"tokens": [n]} for n in (1, 2)]
    (tmp_path / "records.jsonl").write_bytes(b"".join(map(disk.dumps, lines)))
    assert Records(CELL, tmp_path).images["a", 0]["tokens"] == [1]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["done", "done"], 0),
        (["done", "incomplete"], 5),
        (["incomplete", "failed"], 1),
        (["done", "oom"], 1),
        (["done", "skipped"], 1),
    ],
)
def test_cell_states_decide_the_exit_code(states: list[str], code: int) -> None:
    assert bench.exit_code({"cells": [{"state": state} for state in states]}) == code
