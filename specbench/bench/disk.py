"""The only file of bench that writes bytes: atomic files, append-only journals, one lock.

Knows: what a kill, a full disk or a second process can do to a file, and how to leave it whole.
Refuses to know: what the bytes mean.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from specbench.errors import SpecbenchError

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turn an operating-system error into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise SpecbenchError(
                f"the disk is full while writing {path}: everything measured before is kept; "
                "free some space and give the same command again"
            ) from error
        raise SpecbenchError(f"cannot write {path}: {error.strerror or error}") from error


def dumps(value: object) -> bytes:
    """One JSON line: sorted keys, no spaces, so that equal values are equal bytes."""
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    )


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    with sentences(path):
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - faults are injected through this file's os


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` under a temporary name and rename it: a reader sees the old file or the new one, never half."""
    temporary = path.with_name(f".{path.name}.tmp")
    with sentences(path):
        try:
            _write_and_sync(temporary, data)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)


def _write_and_sync(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporaries(folder: Path) -> None:
    """Remove what a killed :func:`write_atomic` left in ``folder``; only for the holder of the lock."""
    with sentences(folder):
        for left in folder.glob(".*.tmp"):
            os.unlink(left)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Journal:
    """An append-only file of JSON lines; each line is on the disk before :meth:`append` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with sentences(path):
            existed = path.exists()
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            if not existed:
                _sync_folder(path.parent)
            self._cut_torn_line()

    def _cut_torn_line(self) -> None:
        """A kill can leave the last line without its end: it was never acknowledged, so it goes."""
        size = os.fstat(self._descriptor).st_size
        whole, block = size, 1 << 16
        while whole > 0:
            start = max(0, whole - block)
            newline = os.pread(self._descriptor, whole - start, start).rfind(b"\n")
            if newline >= 0:
                whole = start + newline + 1
                break
            whole = start
        if whole < size:
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def append(self, record: dict[str, Any]) -> None:
        """Append one record and wait until the disk has it; on failure the file is as before."""
        with sentences(self.path):
            before = os.lseek(self._descriptor, 0, os.SEEK_END)
            try:
                _write_all(self._descriptor, dumps(record))
                os.fsync(self._descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, before)
                raise

    def close(self) -> None:
        """Close the file; nothing is pending, since every append was waited for."""
        os.close(self._descriptor)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal. A torn last line is passed over (its writer may still be at it).

    Raises :class:`SpecbenchError` with the line's number when a whole line is not a record.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise SpecbenchError(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SpecbenchError(_unreadable(path, f"line {number}")) from error
        if not isinstance(record, dict):
            raise SpecbenchError(_unreadable(path, f"line {number}"))
        yield record


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object from a file written by :func:`write_atomic`."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SpecbenchError(_unreadable(path)) from error
    if not isinstance(value, dict):
        raise SpecbenchError(_unreadable(path))
    return value


def _unreadable(path: Path, where: str = "") -> str:
    place = f"{path}, {where}" if where else str(path)
    return f"the store is unreadable at {place}: move it away or choose another folder with --out"


class Lock:
    """One writer per store. The operating system drops the lock when its holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def __enter__(self) -> Lock:
        with sentences(self.path):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise SpecbenchError(
                f"another run is writing to {self.path.parent}: wait for it, or choose another folder with --out"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
