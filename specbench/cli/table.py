"""``specbench table``: a published table, recomputed. Which tables there are is read from ``conf/table``.

Knows: the names of the tables.
Refuses to know: any table; none is shipped yet (``docs/roadmap.md``), and it says so instead of printing an empty one.
"""

from __future__ import annotations

from typing import Annotated

import typer

from specbench.cli import options as o
from specbench.errors import UsageError, unknown


def command(
    name: Annotated[
        str | None, typer.Argument(help="Name of a table; without it, list them.", show_default=False)
    ] = None,
    json: o.Json = False,
) -> int:
    """Recompute a published table beside its published values. Without a name: list the tables."""
    from specbench import bench
    from specbench.cli.output import emit_json, print_rows, say

    tables = bench.list_tables()
    if name is None:
        if json:
            emit_json({"schema": "specbench/list/1", "tables": tables})
        elif tables:
            print_rows(tables, ("name", "summary"))
        else:
            say("no table is shipped yet (docs/roadmap.md says which come)")
        return 0
    if not tables:
        raise UsageError(f"unknown table {name!r}: no table is shipped yet")
    raise unknown("table", name, [str(table["name"]) for table in tables])
