"""The groups of a document: cells that share model, sampling, prompts and a machine's cost curve.

Knows: which cells belong to which group, and what tells groups apart.
Refuses to know: what is said about a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

TELLING = ("model", "prompts.name", "prompts.count", "prompts.samples", "seed", "dtype", "device", "batch")
"""What may tell groups apart, besides every ``sampling.*``."""


@dataclass(frozen=True)
class Group:
    """``label`` says in what this group differs from the others; it is empty where there is one group only."""

    label: str
    shared: Json
    cells: tuple[Json, ...]


def groups_of(document: Json) -> list[Group]:
    """Split a document's cells by group; a document that names none is one group that shares what the document says."""
    cells = tuple(document.get("cells") or ())
    rows = document.get("groups")
    if not rows:
        return [Group("", document, cells)]
    facts = [_facts(row) for row in rows]
    differing = [name for name in dict.fromkeys(name for each in facts for name in each) if _differ(facts, name)]
    return [
        Group(
            ", ".join(f"{name}={each.get(name)}" for name in differing),
            row,
            tuple(cell for cell in cells if cell.get("group", 0) == number),
        )
        for number, (row, each) in enumerate(zip(rows, facts, strict=True))
    ]


def _facts(row: Json) -> dict[str, Any]:
    flat = dict(row) | {f"prompts.{key}": value for key, value in (row.get("prompts") or {}).items()}
    facts = {name: flat[name] for name in TELLING if name in flat}
    return facts | {f"sampling.{key}": value for key, value in (row.get("sampling") or {}).items()}


def _differ(facts: list[dict[str, Any]], name: str) -> bool:
    return len({str(each.get(name)) for each in facts}) > 1
