"""``specbench check``: the regression gate on counters.

Knows: that a change is exit code 4 and an update is not.
Refuses to know: what is counted, and clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from specbench.cli import options as o
from specbench.errors import RegressionError


def command(
    update: Annotated[bool, typer.Option("--update", help="Accept what was measured as the new baseline.")] = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> int:
    """Compare pass counts and token hashes with the stored baseline (float64, so the same on every machine).

    Any change is exit code 4; `--update` prints the difference and stores what was measured.
    """
    from specbench import bench
    from specbench.cli.output import emit_json
    from specbench.cli.progress import Tally, progress

    with progress(Tally(), quiet or json) as on_event:
        document = bench.check(update=update, on_event=on_event)
    if json:
        emit_json(document)
    else:
        _print(document)
    if not document["passed"] and not document.get("updated"):
        changes = len(document["changes"])
        raise RegressionError(
            f"{changes} counters differ from the baseline; if that is meant, `specbench check --update`"
        )
    return 0


def _print(document: Mapping[str, Any]) -> None:
    from specbench.cli.output import print_rows, say

    if document["changes"]:
        print_rows(document["changes"], ("cell", "field", "baseline", "measured"))
    cells = len(document["cells"])
    if document.get("updated"):
        say(f"baseline of {cells} cells written, {len(document['changes'])} counters changed")
    elif document["passed"]:
        say(f"{cells} cells as in the baseline")
