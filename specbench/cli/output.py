"""Where a command's result goes: one JSON document on stdout, or a table for people.

Knows: stdout and stderr, and that either may be closed or left by its reader.
Refuses to know: what the result says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

STDOUT, STDERR = 1, 2
"""Descriptors. ``sys.stdout`` may be another object in a notebook or a test."""


_held: list[str] | None = None
"""Documents waiting for stdout to be given back; None while nobody has taken it."""


@contextmanager
def only_json() -> Iterator[None]:
    """Keep stdout for :func:`emit_json`: whatever else is printed within, in Python or below it, goes to stderr."""
    global _held
    documents: list[str] = []
    kept, _held = sys.stdout, documents
    kept.flush()
    with suppress(OSError):  # without a stdout of its own this process has nothing to keep clean
        descriptor = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        with suppress(OSError, UnboundLocalError):
            os.dup2(descriptor, STDOUT)
            os.close(descriptor)
        sys.stdout, _held = kept, None
        kept.write("".join(documents))
        kept.flush()


def emit_json(document: Mapping[str, Any]) -> None:
    """Print ``document`` as the only thing on stdout, within :func:`only_json` at its end.

    Raises ``ValueError`` for NaN and infinity, which JSON does not have: what cannot be had is null.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if _held is None:
        sys.stdout.write(text)
    else:
        _held.append(text)


def say(text: str = "") -> None:
    """Print a line for people on stdout, as it is (no markup)."""
    print(text)


def warn(text: str) -> None:
    """Print a line for people on stderr; where nobody reads that, nowhere."""
    if sys.stderr is not None:  # print(file=None) would mean stdout
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def open_standard_streams() -> None:
    """Give closed standard descriptors to the null device, or the next file opened would get what is said to people."""
    for descriptor in (0, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as we live


def drop_stdout() -> None:
    """Send what is still to come to the null device: its reader has left, and Python must not complain on exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Print mappings as an aligned table with the given columns; absent and null values read as a dash."""
    from specbench.report.table import MISSING, Table
    from specbench.report.terminal import console, print_table

    headers = tuple(columns)
    body = tuple(tuple(_text(row.get(name), MISSING) for name in headers) for row in rows)
    table = Table(headers=headers, rows=body, numeric=(False,) * len(headers))
    print_table(table, console())


def _text(value: Any, missing: str) -> str:
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return str(value).replace("\n", "\\n")
