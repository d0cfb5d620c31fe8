"""``specbench run``: one point (or with ``-m`` a grid) of methods, windows and seeds, and the table about it.

Knows: the order of a run: compose, run with progress, write the report, print, exit code.
Refuses to know: how cells are decoded, stored or summarised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.cli import options as o
from specbench.errors import IncompleteError, SpecbenchError, UsageError

MEMORY = ("weights", "kv_cache", "activations", "total")


@dataclass(frozen=True)
class Request:
    """A run as the command line asks for it."""

    overrides: tuple[str, ...]
    out: Path
    plugins: tuple[str, ...] = ()
    json: bool = False
    plots: bool = False
    dry_run: bool = False
    quiet: bool = False
    workers: int = 1


def command(
    overrides: o.Overrides = None,
    multirun: Annotated[bool, typer.Option("-m", "--multirun", help="Commas sweep; the same as `sweep`.")] = False,
    out: o.Out = o.STORE,
    json: o.Json = False,
    plots: o.Plots = False,
    dry_run: o.DryRun = False,
    workers: o.Workers = 1,
    plugin: o.Plugin = None,
    weights_root: o.WeightsRoot = None,
    data_root: o.DataRoot = None,
    quiet: o.Quiet = False,
) -> int:
    """Decode a prompt set with one method beside plain AR, and print the table.

    Example: specbench run model=mini method=scd window=32 prompts=scenes prompts.limit=64 seed=0

    What is stored already is reused, so the same command goes on after an interruption.
    """
    o.roots(weights_root, data_root)
    request = Request(tuple(overrides or ()), out, o.plugins(plugin), json, plots, dry_run, quiet, workers)
    return execute(request, multirun)


def execute(request: Request, multirun: bool) -> int:
    """Carry a request out and return the exit code of its document."""
    from specbench import bench

    requests = bench.compose(request.overrides, plugins=request.plugins)
    if len(requests) > 1 and not multirun:
        raise UsageError(f"these settings name {len(requests)} runs: use `specbench sweep`, or `specbench run -m`")
    if request.dry_run:
        return _plan(bench.plan(requests, out=request.out, clocks=request.workers == 1), request.json)
    document = _decode(request, requests)
    files = _write(document, request)
    _print(document, files, request)
    return bench.exit_code(document)


def _decode(request: Request, requests: list[Any]) -> Mapping[str, Any]:
    from specbench import bench
    from specbench.bench.weights import require
    from specbench.cli.progress import Tally, progress

    require(requests)  # weights that are not here are said before numbers, tables and progress bars are imported
    tally = Tally()
    try:
        with progress(tally, request.quiet) as on_event:
            return bench.run(requests, out=request.out, on_event=on_event, workers=request.workers)
    except KeyboardInterrupt:
        kept = f"{tally.done} of {tally.total} images are kept in {request.out}" if tally.total else "no image was made"
        raise IncompleteError(f"interrupted: {kept}; the same command goes on from there") from None


def _plan(document: Mapping[str, Any], as_json: bool) -> int:
    from specbench.cli.output import emit_json, print_rows, say

    if as_json:
        emit_json(document)
    else:
        if document["memory"]:
            print_rows(document["memory"], ("model", "dtype", "window", "batch", *MEMORY))
            say("memory in GiB, estimated from the model's sizes")
        if document["missing"]:
            say(document["missing"])
            return 0
        print_rows(document["cells"], ("model", "method", "window", "seed", "images", "stored", "to_run"))
        say(f"{sum(cell['to_run'] for cell in document['cells'])} images to decode; nothing was run")
    return 0


def _write(document: Mapping[str, Any], request: Request) -> list[Path]:
    from specbench import bench
    from specbench.report.folder import write_report

    folder = request.out / "report"
    try:
        return write_report(document, bench.pictures(document), folder, plots=request.plots)
    except OSError as error:
        raise SpecbenchError(
            f"the report could not be written to {folder} ({error.strerror or error}): every image and clock is kept "
            f"in {request.out}, and the same command writes the report again"
        ) from error


def _print(document: Mapping[str, Any], files: list[Path], request: Request) -> None:
    from specbench.cli.output import emit_json, say

    if request.json:
        emit_json(document)
        return
    from specbench.report.terminal import console, print_report

    print_report(document, console())
    say()
    say(f"report: {', '.join(str(path) for path in files)}")
