"""What the cells of one group share, as the document says it: terms, prompts, scorer, and the cost of a pass.

A sweep over models or sampling has several groups, and one group's cost curve says nothing about another's passes.

Knows: which stored curve belongs to a group, and whether its clocks are of the circumstances at hand.
Refuses to know: cells' own numbers, and how a sentence about any of it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specbench.bench import metrics, store
from specbench.bench.cells import circumstances
from specbench.bench.planning import Group
from specbench.bench.store import Records, Writer

COMMON = ("processor", "accelerator", "threads", "versions")
"""Circumstances whose change between two sessions makes their clocks different clocks."""


def group_rows(groups: Sequence[Group], written: Writer) -> list[dict[str, Any]]:
    """One row a group, in the order that the cells' ``group`` counts."""
    return [_row(group, written) for group in groups]


def _row(group: Group, written: Writer) -> dict[str, Any]:
    request = group.request
    return {
        "model": request.model,
        "seed": request.seed,
        "dtype": request.dtype,
        "device": request.device,
        "batch": request.batch,
        "sampling": dict(request.sampling),
        "prompts": {
            "name": group.prompts.name,
            "count": len(group.items),
            "samples": request.prompts.samples,
            "hash": group.prompts.hash,
            "ids": sorted(prompt.id for prompt in group.items),
        },
        "scorer": group.scorer,
        "cost_curve": _cost_curve(group, written),
    }


def _cost_curve(group: Group, written: Writer) -> dict[str, Any] | None:
    """The latest curve of this device; ``here`` tells whether it and the latencies are of this run's circumstances."""
    baseline = written.cell(group.jobs[0].cell)
    device = group.request.device
    costs = [cost for cost in baseline.costs if cost.get("device", device) == device]
    if not group.timed or not costs:
        return None
    latest = costs[-1]
    single = latest["seconds"][latest["windows"].index(1)]
    now = circumstances(device, group.request.batch)
    sessions = {latest["session"], *_timing_sessions(group, written, baseline)}
    return {
        "windows": latest["windows"],
        "seconds": latest["seconds"],
        "ratio": [seconds / single for seconds in latest["seconds"]],
        "session": latest["session"],
        "here": all(_alike(store.session(written.out, name), now) for name in sessions),
    }


def _timing_sessions(group: Group, written: Writer, baseline: Records) -> set[str]:
    keys = group.image_keys()
    pairs = [metrics.timed_pairs(baseline, written.cell(job.cell), keys, group.request.device) for job in group.jobs]
    return {own["session"] for each in pairs for _, own in each.values()}


def _alike(then: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    return then is not None and all(then.get(name) == now[name] for name in COMMON)
