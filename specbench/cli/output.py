"""Where a command's result goes: one JSON document on stdout, or a table for people.

Knows: stdout and stderr.
Refuses to know: what the result says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def emit_json(document: Mapping[str, Any]) -> None:
    """Print ``document`` as the only thing on stdout.

    Raises ``ValueError`` for NaN and infinity, which JSON does not have: what cannot be had is null.
    """
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def say(text: str = "") -> None:
    """Print a line for people on stdout, as it is (no markup)."""
    print(text)


def warn(text: str) -> None:
    """Print a line for people on stderr."""
    print(text, file=sys.stderr, flush=True)


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
    return str(value)
