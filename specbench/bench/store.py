"""The store: one folder per cell, one line per image, nothing ever rewritten.

    out/store.json                  the layout's version
    out/lock                        held by the one run that writes
    out/sessions/ID.json            circumstances of one process
    out/cells/ID/cell.json          terms and code of a cell
    out/cells/ID/records.jsonl      images, timings, scores, costs, failures, redrawn pictures, as they happen
    out/cells/ID/PROMPT-SAMPLE.png  pictures, named by ids

Knows: where everything lies and in which order it is written (a picture before the record that names it).
Refuses to know: how images are made and what the numbers mean.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from specbench.bench import disk
from specbench.bench.cells import Cell, digest
from specbench.errors import SpecbenchError, UsageError

SCHEMA = 1
Key = tuple[str, int]
"""Prompt id and sample: what finds an image inside its cell."""

IMAGE = ("prompt", "text", "sample", "tokens", "trace", "entropy", "file", "sha256", "session")
TRACE = ("window", "drafted", "accepted", "committed", "fixed_pass", "changes")
REQUIRED = {
    "image": IMAGE,
    "picture": ("prompt", "sample", "file", "sha256"),
    "timing": ("prompt", "sample", "session", "round", "rows", "prefill", "passes", "sampling", "pixels"),
    "score": ("prompt", "sample", "scorer", "code", "verdict"),
    "cost": ("session", "windows", "seconds"),
}
"""Kind of record → the fields that readers rely on; ``TRACE`` are those of an image's trace."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def file_stem(prompt_id: str, sample: int) -> str:
    """File name of an image without its ending: from ids, and from a hash where an id is no plain name."""
    name = prompt_id if _PLAIN_NAME.fullmatch(prompt_id) else digest(prompt_id.encode())[:16]
    return f"{name}-{sample}"


class Records:
    """What is known about one cell: its journal, sorted by kind. Later lines never replace an image."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self.cell = cell
        self.folder = folder
        self.images: dict[Key, dict[str, Any]] = {}
        self.timings: dict[Key, list[dict[str, Any]]] = {}
        self.scores: dict[tuple[str, int, str, str], dict[str, Any]] = {}
        self.diagnostics: dict[Key, dict[str, Any]] = {}
        self.costs: list[dict[str, Any]] = []
        self.failures: list[dict[str, Any]] = []
        journal = folder / "records.jsonl"
        for number, record in enumerate(disk.read_journal(journal), 1):
            self._take(record, f"{journal}, line {number}")

    def _take(self, record: dict[str, Any], where: str) -> None:
        kind = record.get("kind")
        try:
            for name in REQUIRED.get(str(kind), ()):
                record[name]
            for name in TRACE if kind == "image" else ():
                record["trace"][name]
            if kind == "image":
                self.images.setdefault((record["prompt"], record["sample"]), record)
            elif kind == "timing":
                self.timings.setdefault((record["prompt"], record["sample"]), []).append(record)
            elif kind == "score":
                key = (record["prompt"], record["sample"], record["scorer"], record["code"])
                self.scores.setdefault(key, record)
            elif kind == "diagnostics":
                self.diagnostics[record["prompt"], record["sample"]] = record
            elif kind == "cost":
                self.costs.append(record)
            elif kind == "failure":
                self.failures.append(record)
            elif kind == "picture":
                at = (record["prompt"], record["sample"])
                self.images[at] = {**self.images[at], "file": record["file"], "sha256": record["sha256"]}
            else:
                raise KeyError("kind")
        except (KeyError, TypeError) as error:
            raise SpecbenchError(
                f"the store is unreadable at {where}: a record has no valid {error}; "
                f"move {self.folder} away or choose another folder with --out"
            ) from error

    def damaged(self, keys: Iterable[Key]) -> list[Key]:
        """Images among ``keys`` whose picture is gone, or is not the one whose SHA-256 was stored."""
        return [key for key in keys if key in self.images and self.picture_bytes(key) is None]

    def picture_bytes(self, key: Key) -> bytes | None:
        """The stored picture of an image; None where it is gone or altered."""
        image = self.images[key]
        try:
            data = (self.folder / image["file"]).read_bytes()
        except OSError:
            return None
        return data if digest(data) == image["sha256"] else None

    def timed(self, key: Key) -> dict[tuple[str, str | None], dict[str, Any]]:
        """(Session, device) → timing of this image; the device is None where it was not noted."""
        return {(timing["session"], timing.get("device")): timing for timing in self.timings.get(key, ())}


class CellWriter(Records):
    """A cell's records, open for appending."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        super().__init__(cell, folder)
        self._journal = disk.Journal(folder / "records.jsonl")

    def append(self, kind: str, **fields: Any) -> None:
        """Append one record; it is on the disk when this returns."""
        record = {"kind": kind, **fields}
        self._journal.append(record)
        self._take(record, str(self._journal.path))

    def picture(self, prompt_id: str, sample: int, data: bytes) -> dict[str, str]:
        """Write a PNG; returns the ``file`` and ``sha256`` that the image's record carries."""
        name = f"{file_stem(prompt_id, sample)}.png"
        disk.write_atomic(self.folder / name, data)
        return {"file": name, "sha256": digest(data)}

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


class Writer:
    """The store, open for the one process that writes to it.

    Raises :class:`SpecbenchError` when another process holds it, when it cannot be read, or when the disk is full.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.session = uuid.uuid4().hex[:12]
        self._open: dict[str, CellWriter] = {}
        if self.out.exists() and not self.out.is_dir():
            raise UsageError(f"--out {self.out} is a file: give a folder")
        disk.make_folder(self.out)
        self._lock = disk.Lock(self.out / "lock")

    def __enter__(self) -> Writer:
        self._lock.__enter__()
        try:
            if not check_layout(self.out):
                disk.write_atomic(self.out / "store.json", disk.dumps({"schema": SCHEMA}))
            disk.make_folder(self.out / "sessions")
            disk.sweep_temporaries(self.out / "sessions")
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for cell in self._open.values():
            cell.close()
        self._lock.__exit__(kind, error, trace)

    def begin_session(self, circumstances: dict[str, Any]) -> None:
        """Note the circumstances before the first image, so that no image is without them."""
        disk.write_atomic(self.out / "sessions" / f"{self.session}.json", disk.dumps(circumstances))

    def cell(self, cell: Cell) -> CellWriter:
        """Open a cell for appending, creating it when it is new."""
        if cell.id not in self._open:
            folder = self.out / "cells" / cell.id
            disk.make_folder(folder)
            if not (folder / "cell.json").exists():
                disk.write_atomic(folder / "cell.json", disk.dumps(cell.plain()))
            elif description(folder).id != cell.id:
                raise SpecbenchError(
                    f"the store is unreadable at {folder / 'cell.json'}: it describes another cell; move {folder} away "
                    "or choose another folder with --out"
                )
            self._open[cell.id] = CellWriter(cell, folder)
        return self._open[cell.id]


def check_layout(out: str | Path) -> bool:
    """Whether there is a store at ``out``.

    Raises :class:`UsageError` when ``out`` is a file, :class:`SpecbenchError` when the store has another layout.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file: give a folder")
    if not (folder / "store.json").exists():
        return False
    found = disk.read_json(folder / "store.json").get("schema")
    if found != SCHEMA:
        raise SpecbenchError(
            f"{out} has layout {found}, and this specbench reads layout {SCHEMA}: choose another --out"
        )
    return True


def folders(out: str | Path) -> dict[str, Path]:
    """Cell id → folder of every cell in a store; a store that does not exist yet has none."""
    if not check_layout(out):
        return {}
    # A kill between mkdir and the rename of cell.json leaves a folder without a cell: nothing was measured there.
    return {file.parent.name: file.parent for file in sorted(Path(out).glob("cells/*/cell.json"))}


def read(out: str | Path) -> dict[str, Records]:
    """All cells of a store by id, read without a lock."""
    return {name: read_cell(folder) for name, folder in folders(out).items()}


def description(folder: Path) -> Cell:
    """What ``cell.json`` says; :class:`SpecbenchError` when it cannot be read."""
    try:
        return Cell.from_plain(disk.read_json(folder / "cell.json"))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecbenchError(
            f"the store is unreadable at {folder / 'cell.json'}: move it away or choose another folder with --out"
        ) from error


def read_cell(folder: Path) -> Records:
    """One cell from its folder."""
    return Records(description(folder), folder)


def session(out: str | Path, name: str) -> dict[str, Any] | None:
    """The circumstances of a session, if they are still there."""
    file = Path(out) / "sessions" / f"{name}.json"
    return disk.read_json(file) if file.exists() else None


def damaged_pictures(out: str | Path) -> list[str]:
    """A sentence for each cell that has pictures gone or altered since they were stored."""
    found = {name: len(records.damaged(records.images)) for name, records in read(out).items()}
    return [
        f"{count} picture{'s' * (count != 1)} of cell {name} gone or altered: run it again to have them redrawn"
        for name, count in found.items()
        if count
    ]


CANONICAL = ("prompt", "text", "sample", "tokens", "trace", "entropy", "file", "sha256")


def export(out: str | Path = "runs", canonical: bool = False) -> Iterator[str]:
    """The store as JSON lines, each with its newline.

    ``canonical`` keeps what decoding decides (terms, tokens, traces, pictures' hashes, scores), sorted, and leaves out
    clocks, sessions, machines and the order of events: a run that was killed and resumed exports the same bytes.
    Raises :class:`UsageError` when there is no store at ``out``.
    """
    if not (Path(out) / "store.json").exists():
        raise UsageError(f"there is no store at {out}")
    for name, records in read(out).items():
        yield disk.dumps({"kind": "cell", **records.cell.plain()}).decode()
        if not canonical:
            for record in disk.read_journal(records.folder / "records.jsonl"):
                yield disk.dumps({"cell": name, **record}).decode()
            continue
        for _, image in sorted(records.images.items()):
            yield disk.dumps({"kind": "image", "cell": name, **{k: image[k] for k in CANONICAL if k in image}}).decode()
        for _, score in sorted(records.scores.items()):
            yield disk.dumps({"cell": name, **score}).decode()
