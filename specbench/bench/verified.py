"""What the tests have shown of the real families: read from ``results/verified.json``, which a test run writes.

Knows: the file, its checks and how they are called in a table.
Refuses to know: how anything is checked, and torch. Nothing here is written by hand: ``scripts/verified.py`` runs the
tests and writes the file, the table of docs/models.md comes from it, and a test compares the two.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from specbench.bench import paths

CHECKS = {
    "official": "official code",
    "native": "native layout",
    "suite": "suite of targets",
    "trees": "trees = their paths",
    "replay": "replay = AR (float64)",
    "waits": "no wait in a pass",
    "law": "law of SJD, SCD",
}
"""Checks by their key in the file, as tables call them."""


@cache
def families() -> dict[str, dict[str, Any]]:
    """``date checks differences`` of each family that was tested; empty where the file is not shipped.

    ``checks`` maps a key of :data:`CHECKS` to ``passed``, or ``skipped`` where what it needs was not at hand;
    ``differences`` maps what was compared with the official code to the largest absolute difference, in float32.
    """
    path = paths.verified()
    if path is None:
        return {}
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["families"]
    return found


def sentence(family: str | None) -> str | None:
    """What was verified of a family, in one line; None where no test run is on record."""
    record = families().get(family or "")
    if record is None:
        return None
    passed = [CHECKS[key] for key in CHECKS if record["checks"].get(key) == "passed"]
    worst = max(record["differences"].values(), default=None)
    if worst is not None and passed[:1] == [CHECKS["official"]]:
        passed[0] = f"= official code (≤ {ceiling(worst)})"
    return f"tiny checkpoint, {record['date']}: {', '.join(passed)}; the released weights: not"


def ceiling(value: float) -> str:
    """A difference with one digit, never rounded down.

    >>> ceiling(7.21e-7)
    '8e-07'
    """
    if value == 0:
        return "0"
    digits, power = f"{value:.6e}".split("e")
    whole = int(float(digits)) + (float(digits) % 1 > 0)
    return f"{whole}e{power}" if whole < 10 else f"1e{int(power) + 1:+03d}"
