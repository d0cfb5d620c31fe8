"""``specbench table``: a published table of ``conf/table``, redone beside its published values.

Knows: the order of a table: plan or run with progress, write the page, print, exit code.
Refuses to know: what is published, how it is measured and judged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli import options as o
from specbench.cli.complete import complete_table
from specbench.errors import IncompleteError


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a table, or `all`; without it, list them.", show_default=False, autocompletion=complete_table
        ),
    ] = None,
    overrides: o.Overrides = None,
    out: o.Out = o.STORE,
    json: o.Json = False,
    dry_run: o.DryRun = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes for cells that need no clock; default: one a core."),
    ] = None,
    plugin: o.Plugin = None,
    weights_root: o.WeightsRoot = None,
    data_root: o.DataRoot = None,
    quiet: o.Quiet = False,
) -> int:
    """Redo a published table and print it beside its published values. Without a name: list the tables.

    Example: specbench table scd-image model=mini prompts.limit=16

    The default model is the paper's own, whose weights may not be here; `model=mini` runs every row that can run, and
    judges the paper's claims on it. What is stored already is reused. Pages: OUT/tables/NAME.md and NAME.csv.
    """
    from specbench import bench

    o.roots(weights_root, data_root)
    if name is None:
        return _list(json)
    words, plugins = tuple(overrides or ()), o.plugins(plugin)
    chosen = bench.chosen_tables(name)
    if dry_run:
        return _plan(bench.plan_tables(name, words, out=out, plugins=plugins), json)
    documents = [
        _redo(each, words, out, _cores() if workers is None else workers, plugins, quiet, json) for each in chosen
    ]
    if json:
        from specbench.cli.output import emit_json

        emit_json({"schema": documents[0]["schema"], "tables": documents})
    return 1 if any(document["failed"] for document in documents) else 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _list(as_json: bool) -> int:
    from specbench import bench
    from specbench.cli.output import emit_json, print_rows

    tables = bench.list_tables()
    if as_json:
        emit_json({"schema": "specbench/list/1", "tables": tables})
    else:
        print_rows(tables, ("name", "summary"))
    return 0


def _redo(
    name: str, words: tuple[str, ...], out: Path, workers: int, plugins: tuple[str, ...], quiet: bool, as_json: bool
) -> Mapping[str, Any]:
    """Run one table, write its page, and print it unless the whole is to be one document."""
    from specbench import bench
    from specbench.cli.progress import Tally, progress
    from specbench.report.folder import write_file
    from specbench.report.published import lines, page

    tally = Tally()
    try:
        with progress(tally, quiet) as on_event:
            document = bench.run_table(name, words, out=out, on_event=on_event, workers=workers, plugins=plugins)
    except KeyboardInterrupt:
        raise IncompleteError(
            f"interrupted at table {name}: what was decoded is kept in {out}; the same command goes on from there"
        ) from None
    files = [write_file(out / "tables" / f"{name}{suffix}", text) for suffix, text in
             ((".md", page(document)), (".csv", lines(document)))]  # fmt: skip
    if not as_json:
        _print(document, files)
    return document


def _print(document: Mapping[str, Any], files: list[Path]) -> None:
    from rich.markup import escape

    from specbench.cli.output import say
    from specbench.report.published import claims_table, measured_where, notes_of, rows_table
    from specbench.report.terminal import console, print_table

    screen = console()
    say(str(document["title"]))
    say(measured_where(document))
    print_table(rows_table(document), screen)
    if document["claims"]:
        print_table(claims_table(document), screen)
    for note in notes_of(document):
        screen.print(escape(note), style="dim", soft_wrap=True)
    say()
    say(f"pages: {', '.join(str(path) for path in files)}")
    say()


def _plan(document: Mapping[str, Any], as_json: bool) -> int:
    from specbench.cli.output import emit_json, print_rows, say

    if as_json:
        emit_json(document)
        return 0
    cells = document["cells"]
    if cells:
        print_rows(cells, ("model", "method", "window", "images", "stored", "to_run", "to_time"))
    for row in document["not_run"]:
        say(f"not run: {row['table']}, {row['row']}: {row['reason']}")
    images, clocks = (sum(cell[key] for cell in cells) for key in ("to_run", "to_time"))
    work = document["token_evaluations"]
    say(f"{len(cells)} cells, {images} images to decode and {clocks} to time; nothing was run")
    say(f"about {work:,} token evaluations of the model, at {document['tokens_per_pass']} tokens a pass")
    return 0
