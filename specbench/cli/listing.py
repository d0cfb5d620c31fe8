"""``specbench list KIND``: what there is.

Knows: the five kinds and which columns a person wants of each.
Refuses to know: where the entries come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli import options as o
from specbench.errors import unknown

COLUMNS = {
    "methods": ("name", "lossless", "window", "summary", "paper"),
    "models": ("name", "summary", "verified"),
    "prompts": ("name", "summary", "count"),
    "runs": ("id", "model", "method", "window", "seed", "images", "state"),
    "tables": ("name", "summary"),
}


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in COLUMNS if kind.startswith(incomplete)]


def command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(COLUMNS), autocompletion=_kinds)],
    out: o.Out = o.STORE,
    json: o.Json = False,
    plugin: o.Plugin = None,
) -> int:
    """List methods, models, prompts, runs or tables."""
    if kind not in COLUMNS:
        raise unknown("kind", kind, COLUMNS)
    from specbench.cli.output import emit_json, print_rows, say

    entries = _entries(kind, out, o.plugins(plugin))
    if json:
        emit_json({"schema": "specbench/list/1", kind: entries})
    elif entries:
        columns = [name for name in COLUMNS[kind] if any(entry.get(name) is not None for entry in entries)]
        print_rows(entries, columns)
    else:
        say(f"no {kind} yet")
    return 0


def _entries(kind: str, out: Path, plugins: tuple[str, ...]) -> list[dict[str, Any]]:
    from specbench import bench

    if kind == "methods":
        return bench.list_methods(plugins=plugins)
    if kind == "models":
        return bench.list_models(plugins=plugins)
    if kind == "prompts":
        return bench.list_prompts()
    return bench.list_runs(out=out) if kind == "runs" else bench.list_tables()
