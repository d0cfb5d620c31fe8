"""``specbench doctor``: what works on this machine, what is missing, and the next step for each.

Knows: three states and how they are shown.
Refuses to know: how anything is examined.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.cli import options as o
from specbench.errors import UsageError, unknown


def command(
    overrides: o.Overrides = None,
    out: o.Out = o.STORE,
    json: o.Json = False,
    weights_root: o.WeightsRoot = None,
    data_root: o.DataRoot = None,
) -> int:
    """Say what works here, what is missing, and the next step. Exit code 1 if something is broken.

    With model=NAME: which files of its weights are here, where they come from and where they go; then what is missing
    counts as broken. Example: specbench doctor model=janus --weights-root ~/weights
    """
    from specbench import bench
    from specbench.cli.output import emit_json, print_rows, say

    o.roots(weights_root, data_root)
    models, path = _asked(overrides or ())
    findings = bench.doctor(out=out, models=models, path=path)
    bad = ("broken", "missing") if models else ("broken",)
    broken = [finding for finding in findings if finding["state"] == "broken"]
    if json:
        emit_json({"schema": "specbench/doctor/1", "findings": findings})
    else:
        print_rows(findings, ("name", "state", "detail", "next_step"))
        missing = sum(finding["state"] == "missing" for finding in findings)
        say(f"{len(findings) - missing - len(broken)} ok, {missing} missing, {len(broken)} broken")
    return 1 if any(finding["state"] in bad for finding in findings) else 0


def _asked(words: Sequence[str]) -> tuple[list[str], str | None]:
    """``model=A,B`` and ``model.path=FOLDER``; raises ``UsageError`` for anything else."""
    found = dict(word.partition("=")[::2] for word in words)
    for key in found:
        if key not in ("model", "model.path"):
            raise unknown("key of doctor", key, ("model", "model.path"))
    if "model.path" in found and "model" not in found:
        raise UsageError("model.path belongs to a model: specbench doctor model=NAME model.path=FOLDER")
    return found["model"].split(",") if "model" in found else [], found.get("model.path")
