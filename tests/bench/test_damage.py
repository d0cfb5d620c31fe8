"""A picture that was deleted or altered is drawn again from its tokens, said so, and never scored or shown as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench import bench
from specbench.bench import store
from specbench.errors import SpecbenchError

Ask = Callable[..., Any]


def pictures(out: Path) -> dict[str, bytes]:
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.glob("cells/*/*.png"))}


def damage(out: Path, how: str) -> None:
    files = sorted(out.glob("cells/*/*.png"))
    for file in files[:2]:
        file.unlink() if how == "deleted" else file.write_bytes(files[-1].read_bytes() + b"x")


@pytest.mark.parametrize("how", ["deleted", "altered"])
def test_a_damaged_picture_is_drawn_again_and_reported(ask: Ask, tmp_path: Path, how: str) -> None:
    bench.run(ask("method=scd", window=2), tmp_path)
    before, exported = pictures(tmp_path), list(bench.export(tmp_path, canonical=True))
    damage(tmp_path, how)
    assert "2 pictures of cell" in store.damaged_pictures(tmp_path)[0]
    document = bench.run(ask("method=scd", window=2), tmp_path)
    assert document["warmup"] == 0
    warned = [text for cell in document["cells"] for text in cell["warnings"]]
    assert warned == ["2 stored pictures deleted or altered since, and drawn again from the stored tokens"]
    assert pictures(tmp_path) == before
    assert list(bench.export(tmp_path, canonical=True)) == exported
    assert not any(cell["warnings"] for cell in bench.run(ask("method=scd", window=2), tmp_path)["cells"])


def test_a_picture_that_comes_out_differently_gets_its_own_hash(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.bench.toy import ToyTarget

    bench.run(ask("method=ar"), tmp_path)
    damage(tmp_path, "deleted")
    draw = ToyTarget.pixels
    monkeypatch.setattr(ToyTarget, "pixels", lambda self, tokens: draw(self, tokens) + 1)
    bench.run(ask("method=ar"), tmp_path)
    assert store.damaged_pictures(tmp_path) == []
    kinds = [json.loads(line)["kind"] for line in bench.export(tmp_path)]
    assert kinds.count("picture") == 2


def test_a_damaged_picture_is_not_shown(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=ar"), tmp_path)
    damage(tmp_path, "altered")
    assert len(bench.pictures(document)) == 1


@pytest.mark.parametrize("field", ["tokens", "sha256", "trace", "session"])
def test_a_record_without_a_field_is_named_by_file_and_line(ask: Ask, tmp_path: Path, field: str) -> None:
    bench.run(ask("method=ar"), tmp_path)
    (journal,) = tmp_path.glob("cells/*/records.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    at = [line["kind"] for line in lines].index("image")
    del lines[at][field]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SpecbenchError, match=rf"records.jsonl, line {at + 1}: a record has no valid '{field}'"):
        bench.list_runs(tmp_path)
