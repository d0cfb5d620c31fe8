"""``specbench doctor``: what works on this machine, what is missing, and the next step for each.

Knows: three states and how they are shown.
Refuses to know: how anything is examined.
"""

from __future__ import annotations

from specbench.cli import options as o


def command(
    out: o.Out = o.STORE,
    json: o.Json = False,
    weights_root: o.WeightsRoot = None,
    data_root: o.DataRoot = None,
) -> int:
    """Say what works here, what is missing, and the next step. Exit code 1 if something is broken."""
    from specbench import bench
    from specbench.cli.output import emit_json, print_rows, say

    o.roots(weights_root, data_root)
    findings = bench.doctor(out=out)
    broken = [finding for finding in findings if finding["state"] == "broken"]
    if json:
        emit_json({"schema": "specbench/doctor/1", "findings": findings})
    else:
        print_rows(findings, ("name", "state", "detail", "next_step"))
        missing = sum(finding["state"] == "missing" for finding in findings)
        say(f"{len(findings) - missing - len(broken)} ok, {missing} missing, {len(broken)} broken")
    return 1 if broken else 0
