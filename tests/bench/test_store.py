from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench import bench
from specbench.bench import disk, store
from specbench.errors import SpecbenchError, UsageError
from tests.bench.faults import FaultyOs


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def journals(out: Path) -> list[Path]:
    return sorted(out.glob("cells/*/records.jsonl"))


def test_a_torn_last_line_is_cut_before_appending(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_bytes(b'{"a":1}\n{"a":2')
    assert list(disk.read_journal(file)) == [{"a": 1}]
    journal = disk.Journal(file)
    journal.append({"a": 3})
    journal.close()
    assert file.read_bytes() == b'{"a":1}\n{"a":3}\n'


@pytest.mark.parametrize("size", [0, 1, 70_000, 140_000])
def test_a_torn_line_of_any_length_is_cut(tmp_path: Path, size: int) -> None:
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"x" * size)
    disk.Journal(file).close()
    assert file.read_bytes() == b""
    whole = disk.dumps({"a": "y" * size})
    file.write_bytes(whole + b"x" * size)
    disk.Journal(file).close()
    assert file.read_bytes() == whole


@pytest.mark.parametrize("how", ["full", "torn"])
def test_an_append_that_fails_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    journal = disk.Journal(tmp_path / "records.jsonl")
    journal.append({"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", FaultyOs(1, how))
        with pytest.raises(SpecbenchError, match="disk is full"):
            journal.append({"a": 2})
    journal.append({"a": 3})
    assert list(disk.read_journal(journal.path)) == [{"a": 1}, {"a": 3}]


def test_a_second_run_on_one_store_is_refused_in_one_sentence(ask: Callable[..., Any], out: Path) -> None:
    with store.Writer(out), pytest.raises(SpecbenchError, match="another run is writing") as caught:
        bench.run(ask("method=ar"), out)
    assert caught.value.exit_code == 1
    bench.run(ask("method=ar"), out)


def test_a_store_that_another_run_writes_to_can_be_read(ask: Callable[..., Any], out: Path) -> None:
    bench.run(ask("method=ar"), out)
    with store.Writer(out):
        assert bench.list_runs(out)[0]["images"] == 3
        assert len(list(bench.export(out, canonical=True))) == 4


@pytest.mark.parametrize("damage", [b"not json\n", b"[1]\n", b'{"kind":"image"}\n', b'{"kind":"riddle"}\n'])
def test_a_damaged_line_makes_the_store_unreadable_and_says_where(
    ask: Callable[..., Any], out: Path, damage: bytes
) -> None:
    bench.run(ask("method=ar"), out)
    (journal,) = journals(out)
    journal.write_bytes(damage + journal.read_bytes())
    with pytest.raises(SpecbenchError, match="unreadable at") as caught:
        bench.run(ask("method=ar"), out)
    assert str(journal.parent) in str(caught.value)


def test_a_damaged_cell_and_a_strange_layout_are_named(ask: Callable[..., Any], out: Path) -> None:
    bench.run(ask("method=ar"), out)
    (cell,) = out.glob("cells/*/cell.json")
    good = cell.read_bytes()
    for bad in (b"{", b"{}"):
        cell.write_bytes(bad)
        with pytest.raises(SpecbenchError, match="unreadable at"):
            bench.list_runs(out)
    cell.write_bytes(good)
    (out / "store.json").write_text('{"schema": 99}')
    with pytest.raises(SpecbenchError, match="layout 99"):
        bench.run(ask("method=ar"), out)


def test_out_must_be_a_folder(ask: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("")
    with pytest.raises(UsageError, match="is a file"):
        bench.run(ask("method=ar"), file)
    with pytest.raises(UsageError, match="no store at"):
        list(bench.export(tmp_path / "nowhere"))


def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    assert bench.list_runs(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_file_names_come_from_ids_and_never_leave_the_folder() -> None:
    assert store.file_stem("scenes-0001", 2) == "scenes-0001-2"
    for strange in ("../../etc/passwd", "a/b", "", ".hidden", "x" * 100, "a b"):
        stem = store.file_stem(strange, 0)
        assert "/" not in stem
        assert not stem.startswith(".")
    assert store.file_stem("a b", 0) != store.file_stem("a  b", 0)


def test_the_canonical_export_has_no_clock_host_or_session(ask: Callable[..., Any], out: Path) -> None:
    bench.run(ask("method=scd", window=2), out)
    lines = [json.loads(line) for line in bench.export(out, canonical=True)]
    words = set().union(*(set(line) for line in lines))
    assert not words & {"session", "wall", "prefill", "passes", "round"}
    assert {line["kind"] for line in lines} == {"cell", "image"}
    full = [json.loads(line) for line in bench.export(out)]
    assert {"timing", "cost", "image", "cell"} <= {line["kind"] for line in full}
