"""``specbench compare``: two results side by side, if their terms allow it.

Knows: two names (a cell's id prefix, or a path) and the fields that may differ.
Refuses to know: what the terms are; bench refuses unequal ones with exit code 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specbench.cli import options as o


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A cell: the beginning of its id, or a path.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The cell to hold against it.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="FIELD", help="A term that may differ; printed under the table.", show_default=False
        ),
    ] = None,
    out: o.Out = o.STORE,
    json: o.Json = False,
) -> int:
    """Compare two cells on their common prompts and samples; unequal terms are refused and listed (exit code 3)."""
    from specbench import bench
    from specbench.cli.output import emit_json

    document = bench.compare(a, b, out=out, allow=tuple(allow or ()))
    if json:
        emit_json(document)
    else:
        _print(document)
    return 0


def _print(document: Mapping[str, Any]) -> None:
    from specbench.report.terminal import console, print_report

    print_report(document, console())
