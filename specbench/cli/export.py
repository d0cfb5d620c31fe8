"""``specbench export``: the records as JSON lines, or the last table in a markup language.

Knows: where it is written to.
Refuses to know: what a record holds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from specbench.cli import options as o
from specbench.errors import SpecbenchError, UsageError


def command(
    out: o.Out = o.STORE,
    canonical: Annotated[
        bool, typer.Option("--canonical", help="Leave out timings, host and git: equal runs give equal bytes.")
    ] = False,
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="FORMAT", help="The last report's table: markdown, csv or latex.", show_default=False
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write to this file instead of stdout.", dir_okay=False, show_default=False),
    ] = None,
) -> int:
    """Export the store's records as JSON lines, or the last table as Markdown, CSV or LaTeX.

    Examples: specbench export --canonical > run.jsonl; specbench export --table latex --to table.tex
    """
    if table is not None and canonical:
        raise UsageError("--canonical concerns records, --table the report: give one of them")
    text = _records(out, canonical) if table is None else _table(out, table)
    if to is None:
        sys.stdout.write(text)
    else:
        from specbench.report.folder import write_file

        write_file(to, text)
    return 0


def _records(out: Path, canonical: bool) -> str:
    from specbench import bench
    from specbench.bench import store
    from specbench.cli.output import warn

    text = "".join(bench.export(out=out, canonical=canonical))
    for sentence in store.damaged_pictures(out):
        warn(f"warning: {sentence}")
    return text


def _table(out: Path, form: str) -> str:
    import json

    from specbench.report.export import export_table
    from specbench.report.folder import full_table

    path = out / "report" / "document.json"
    if not path.is_file():
        raise UsageError(f"{path} is not there: run or sweep into {out} first")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SpecbenchError(f"{path} cannot be read ({error}): run the sweep again, its records are kept") from error
    return export_table(full_table(document), form)
