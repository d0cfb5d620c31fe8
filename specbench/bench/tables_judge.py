"""What a row of a published table measures here, and whether a claim between rows holds, with paired intervals.

Knows: the columns of tables as products of sums over common prompts, and the rule behind each status.
Refuses to know: files, decoders, and how a table is laid out.

    reproduced    the paper's own model, and the interval, widened by the table's tolerance, holds the published value
    trend holds   the ordering or ratio that the paper claims holds here, and the interval leaves no other answer
    differs       the interval leaves only the other answer
    unresolved    the interval holds both answers, or there is no interval
    not run       the row has no cell here, and the reason is given
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from specbench.bench import metrics, stats
from specbench.bench.comparison import accuracy_difference
from specbench.bench.stats import Interval
from specbench.bench.tables import Claim, Published, Table

if TYPE_CHECKING:
    from specbench.bench.store import Key, Records

REPRODUCED, HOLDS, DIFFERS, UNRESOLVED, NOT_RUN = "reproduced", "trend holds", "differs", "unresolved", "not run"
WIDE = 1.5
"""An interval whose ends lie further apart than this factor reproduces nothing: it would hold almost any value."""

COUNTED: Mapping[str, Callable[[Mapping[str, Any]], int]] = {"nfe_ratio": metrics.nfe, "step_ratio": metrics.steps}
"""Columns that are AR ÷ method in something counted, and what counts it in an image."""

Factors = list[tuple[int, dict["Key", float]]]


@dataclass(frozen=True)
class Measured:
    """The records behind one row: its cell, the AR cell of its terms, the images that count, and those under the clock.

    ``accuracy`` is the document's ``{"value", "low", "high"}`` or None.
    """

    records: Records
    baseline: Records
    keys: tuple[Key, ...]
    clocked: tuple[Key, ...]
    accuracy: dict[str, Any] | None


def factors(metric: str, row: Measured, contrast: bool = False) -> Factors:
    """A metric of a row as sums with exponents; empty where there is nothing to sum.

    ``contrast``: in milliseconds, for a quotient of two rows. Each is then taken in passes of the AR beside it, since
    two processes may have run at different speeds.
    """
    if metric in COUNTED:
        both = [key for key in row.keys if key in row.records.images and key in row.baseline.images]
        count = COUNTED[metric]
        ar = {key: float(count(row.baseline.images[key])) for key in both}
        return [(1, ar), (-1, {key: float(count(row.records.images[key])) for key in both})] if both else []
    pairs = metrics.timed_pairs(row.baseline, row.records, row.clocked)
    if not pairs:
        return []
    beside = {key: metrics.latency(ar) for key, (ar, _) in pairs.items()}
    if metric == "latency_ratio":
        return [(1, beside), (-1, {key: metrics.latency(own) for key, (_, own) in pairs.items()})]
    parts = ("sampling",) if metric == "sampling_ms" else ("prefill", "passes")
    spent = {key: 1000 * sum(float(own[part]) for part in parts) for key, (_, own) in pairs.items()}
    per_pass: Factors = [(1, spent), (-1, {key: float(metrics.nfe(row.records.images[key])) for key in pairs})]
    if contrast:
        per_pass += [(-1, beside), (1, {key: float(metrics.nfe(row.baseline.images[key])) for key in pairs})]
    return per_pass


def measured(metric: str, row: Measured) -> Interval | None:
    """The value of a column with its interval; None where there is none."""
    return _product(factors(metric, row))


def contrast(metric: str, left: Measured, right: Measured) -> Interval | None:
    """``left`` ÷ ``right`` of a metric over the prompts and samples both have, paired."""
    ours, theirs = factors(metric, left, True), factors(metric, right, True)
    if not ours or not theirs:
        return None
    return _product([*ours, *((-exponent, values) for exponent, values in theirs)])


def _product(found: Factors) -> Interval | None:
    if not found:
        return None
    common = sorted(set.intersection(*(set(values) for _, values in found)))
    columns = [(exponent, [values[key] for key in common]) for exponent, values in found]
    if not common or any(sum(values) <= 0 for _, values in columns):
        return None
    return stats.product_of_sums(columns, [prompt for prompt, _ in common])


def reproduces(value: Interval | None, published: Published | None, tolerance: float) -> str | None:
    """The status of one cell on the paper's own model; None where nothing can be compared."""
    if value is None or published is None or published.value is None:
        return None
    if not _known(value) or value.high / value.low > WIDE:
        return UNRESOLVED
    inside = value.low * (1 - tolerance) <= published.value <= value.high * (1 + tolerance)
    return REPRODUCED if inside else DIFFERS


def judge(claim: Claim, table: Table, rows: Mapping[str, Measured], reasons: Mapping[str, str]) -> dict[str, Any]:
    """A claim as the document has it: ``kind metric rows says published measured status reason``.

    ``published`` and ``measured`` list one quotient (of accuracies: one difference, in the paper's points and in
    shares) per pair of rows that the claim is about, in the order of its rows; published ones are null where the paper
    prints no numbers.
    """
    couples = pairs_of(claim)
    missing = [name for name in claim.rows if name not in rows]
    plain: dict[str, Any] = {
        "kind": claim.kind,
        "metric": claim.metric,
        "rows": list(claim.rows),
        "says": claim.says,
        "published": [printed(table, claim, a, b) for a, b in couples],
        "measured": [],
        "status": NOT_RUN,
        "reason": f"{missing[0]}: {reasons[missing[0]]}" if missing else None,
    }
    if missing:
        return plain
    values = [_pair(claim, rows[a], rows[b]) for a, b in couples]
    plain["measured"] = [None if value is None else metrics.interval(value) for value in values]
    equal = 0.0 if claim.metric == "accuracy" else 1.0
    goals = plain["published"] if claim.kind == "about" else [equal] * len(values)
    plain["status"] = worst([verdict(claim, value, goal) for value, goal in zip(values, goals, strict=True)])
    return plain


def pairs_of(claim: Claim) -> list[tuple[str, str]]:
    """The pairs of rows that a claim compares; the first of each is the one said to be above."""
    if claim.kind == "monotone":
        return [(above, below) for below, above in pairwise(claim.rows)]
    if claim.kind == "best":
        return [(claim.rows[0], other) for other in claim.rows[1:]]
    if claim.kind == "flat":
        return [(claim.rows[-1], claim.rows[0])]
    return [(claim.rows[0], claim.rows[1])]


def printed(table: Table, claim: Claim, left: str, right: str) -> float | None:
    """The published quotient of two rows, of accuracies their difference, where both are printed as numbers."""
    values = [table.value(table.row(name), claim.metric) for name in (left, right)]
    numbers = [value.value for value in values if value is not None and value.value is not None]
    if len(numbers) < 2:
        return None
    return numbers[0] - numbers[1] if claim.metric == "accuracy" else numbers[0] / numbers[1]


def verdict(claim: Claim, value: Interval | None, goal: float | None) -> str:
    """The status of one pair. ``goal``: what equal rows would have, for ``about`` the quotient to be near to."""
    if value is None or not _known(value) or goal is None:
        return UNRESOLVED
    if claim.kind in ("greater", "monotone", "best"):
        return _which(value.low > goal, value.high < goal)
    if claim.kind == "same":
        low, high = -claim.tolerance, claim.tolerance
    else:
        low, high = goal / (1 + claim.tolerance), goal * (1 + claim.tolerance)
    return _which(low <= value.low and value.high <= high, value.high < low or value.low > high)


def worst(statuses: Sequence[str]) -> str:
    """A conjunction: it differs where one part differs, and holds where all do."""
    for status in (DIFFERS, UNRESOLVED):
        if status in statuses:
            return status
    return statuses[0] if statuses else UNRESOLVED


def _pair(claim: Claim, left: Measured, right: Measured) -> Interval | None:
    if claim.metric != "accuracy":
        return contrast(claim.metric, left, right)
    common = [key for key in left.keys if key in left.records.images and key in right.records.images]
    difference = accuracy_difference(left.records, right.records, common)
    if difference is None:
        return None
    return Interval(*(math.nan if difference[end] is None else difference[end] for end in ("value", "low", "high")))


def _which(holds: bool, differs: bool) -> str:
    return HOLDS if holds else DIFFERS if differs else UNRESOLVED


def _known(value: Interval) -> bool:
    return not (math.isnan(value.low) or math.isnan(value.high))
