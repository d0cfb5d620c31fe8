"""``specbench explain``: every value of one run, and where it came from.

Knows: three columns.
Refuses to know: how configuration is composed.
"""

from __future__ import annotations

from specbench.cli import options as o


def command(overrides: o.Overrides = None, json: o.Json = False, plugin: o.Plugin = None) -> int:
    """Show each setting of one run with its value and where that value came from.

    Example: specbench explain method=scd window=16
    """
    from specbench import bench
    from specbench.cli.output import emit_json, print_rows

    rows = bench.explain(overrides or (), plugins=o.plugins(plugin))
    if json:
        emit_json({"schema": "specbench/explain/1", "settings": rows})
    else:
        print_rows(rows, ("key", "value", "source"))
    return 0
