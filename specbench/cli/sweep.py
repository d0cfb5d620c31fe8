"""``specbench sweep``: a grid in one command; the same as ``run -m``.

Knows: its arguments.
Refuses to know: anything that ``run`` knows better.
"""

from __future__ import annotations

from specbench.cli import options as o
from specbench.cli.run import Request, execute


def command(
    overrides: o.Overrides = None,
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
    """Decode a prompt set with every combination of the listed values, and print one table.

    Example: specbench sweep method=ar,sjd,scd,scd_gs window=8,16,32 prompts.limit=16
    """
    o.roots(weights_root, data_root)
    request = Request(tuple(overrides or ()), out, o.plugins(plugin), json, plots, dry_run, quiet, workers)
    return execute(request, multirun=True)
