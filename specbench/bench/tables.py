"""Published tables as data: what one holds, which published rows it redoes, and what it claims.

Knows: the files of ``conf/table`` and ``results/published``, and how a published value becomes the one of a column.
Refuses to know: how anything is measured, and whether a claim holds.

A published value is never written into a table's file: the file *selects* rows of ``results/published`` by their
fields, and what it selects must be there exactly once. Confidence travels with the value: A is printed in the paper, B
transcribed from it by a third party, C second-hand or contradictory, D derived here from printed values, R re-reported.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from specbench.bench import paths
from specbench.errors import SpecbenchError, unknown

Selector = Mapping[str, Any]

PRINTED: Mapping[str, tuple[str, ...]] = {
    "nfe_ratio": ("speedup_nfe", "step_compression"),
    "step_ratio": ("speedup_step",),
    "printed_ratio": ("speedup_step",),
    "latency_ratio": ("speedup_latency",),
    "unspecified_ratio": ("speedup_unspecified",),
    "forward_ms": ("time_per_op", "time_per_step"),
    "sampling_ms": ("overhead_per_step", "time_per_op", "time_per_step"),
    "saturates_at": ("saturates_at",),
}
"""Column to the published metrics that mean the same; the first one found counts."""

DERIVED = {"nfe_ratio": "NFE", "latency_ratio": "latency"}
"""Column of a ratio to the published metric that gives it as AR ÷ method, where no ratio is printed."""

UNITS = {"NFE": "passes", "latency": "s", "saturates_at": "tokens"}
BENCHMARKS = ("DPG overall", "GenEval overall")
"""Scores of which more is better and which count what a picture gets right, as mini's scorer does."""

QUALITY = ("FID", "FVD", "CLIP", *BENCHMARKS)
COLUMNS = (*PRINTED, "overlap", "accuracy")
CLOCKS = ("latency_ratio", "forward_ms", "sampling_ms")
"""Columns that need clocks: their cells are decoded again at batch 1, timed together."""

UNMEASURED = ("unspecified_ratio", "printed_ratio", "saturates_at")
"""Columns that show what a paper says and that no single cell of ours measures."""

UNCLAIMED = (*UNMEASURED, "overlap")
"""Columns without an interval, about which no claim can be judged."""

KINDS = ("greater", "monotone", "best", "flat", "about", "same")
DIFFERENCES = ("greater", "monotone", "best", "same")
"""Kinds that can be said of accuracies: these are compared by their difference, everything else by a quotient."""


@dataclass(frozen=True)
class Published:
    """One published value: ``value`` None for quality scores that are shown and compared with nothing (FID, CLIP)."""

    value: float | None
    text: str
    confidence: str
    source: str

    @property
    def shown(self) -> str:
        """The value with its letter; only A may go without saying who says so."""
        return f"{self.text} ({self.confidence})"


@dataclass(frozen=True)
class Row:
    """One row. ``words`` are settings; empty where the method is not here, and ``missing`` says why.

    ``guided_twice``: the paper counts a guided pass of AR as two and one of this method as one, so that its printed
    step ratio holds a factor of 2 that ``step_ratio`` takes out. ``heads`` selects lines of ``results/heads.csv``.
    """

    id: str
    label: str
    words: tuple[str, ...] = ()
    missing: str | None = None
    model: str = ""
    measured_on: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Selector] = field(default_factory=dict)
    ar: Mapping[str, Any] | None = None
    guided_twice: bool = False
    heads: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Claim:
    """An ordering or a ratio between rows, to be tested on any model. ``kind`` decides how ``rows`` are read.

    ``greater`` first above second · ``monotone`` each above the one before · ``best`` first above every other ·
    ``flat`` last equals first within ``tolerance`` · ``about`` first ÷ second equals the published ratio within
    ``tolerance`` · ``same`` accuracies differ by less than ``tolerance``. Of accuracies the first three speak too.
    """

    kind: str
    metric: str
    rows: tuple[str, ...]
    says: str
    tolerance: float = 0.15


@dataclass(frozen=True)
class Table:
    """One published table. ``prompts`` is the paper's set under our name, ``stand_in`` the words on another model.

    ``clocks`` is how many prompts are timed (None: no column needs it), ``tolerance`` how far from the published value
    a measured one may lie on the paper's own model.
    """

    name: str
    title: str
    paper: str
    model: str
    measured_on: str
    prompts: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    stand_in: tuple[str, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    ar: Mapping[str, Any] = field(default_factory=lambda: {"method": "AR"})
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    clocks: int | None = None
    tolerance: float = 0.1

    def row(self, name: str) -> Row:
        """The row called ``name``."""
        return next(row for row in self.rows if row.id == name)

    def value(self, row: Row, column: str) -> Published | None:
        """What is published for a cell of the table, or None."""
        selector = {**self.published, **row.published, **row.columns.get(column, {})}
        if not row.published and column not in row.columns:
            return None
        if column == "accuracy":
            return _quality(selector)
        for metric in PRINTED.get(column, ()):
            if (found := select({**selector, "metric": metric})) is not None:
                return _alike(found) if column == "step_ratio" and row.guided_twice else found
        if column in DERIVED:
            ar = row.ar if row.ar is not None else self.ar
            return _quotient(selector, {**self.published, **ar}, DERIVED[column])
        return None


def names() -> list[str]:
    """Every table, by the name of its file."""
    return sorted(file.stem for file in (paths.conf() / "table").glob("*.yaml"))


def load(name: str) -> Table:
    """The table called ``name``.

    Raises :class:`UsageError` with the nearest name when there is none, :class:`SpecbenchError` when its file has a
    key, kind, column or row name that does not exist.
    """
    if name not in names():
        raise unknown("table", name, names())
    node = _node(name)
    plain = {**node, "name": name, "columns": tuple(node["columns"])}
    inherited = {"model": node["model"], "measured_on": node["measured_on"]}
    plain["rows"] = tuple(_part(name, Row, {**inherited, **row}) for row in node["rows"])
    plain["claims"] = tuple(_part(name, Claim, claim) for claim in node.get("claims", ()))
    table: Table = _part(name, Table, plain)
    _check(table)
    return table


def _node(name: str) -> dict[str, Any]:
    from omegaconf import OmegaConf

    node = OmegaConf.to_container(OmegaConf.load(paths.conf() / "table" / f"{name}.yaml"))
    if not isinstance(node, dict):
        raise SpecbenchError(f"conf/table/{name}.yaml holds no table")
    return {str(key): value for key, value in node.items()}


def _part(table: str, kind: Any, node: Mapping[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    for key in node:
        if key not in known:
            raise SpecbenchError(f"conf/table/{table}.yaml: {unknown('key', str(key), known)}")
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in node.items()}
    return kind(**lists)


def _check(table: Table) -> None:
    """Names inside a table's file must exist: a claim about a row that is not there would never be judged."""
    rows = [row.id for row in table.rows]
    wrong = [f"column {name!r}" for name in table.columns if name not in COLUMNS]
    wrong += [f"row {name!r} twice" for name in {name for name in rows if rows.count(name) > 1}]
    for claim in table.claims:
        wrong += [f"kind {claim.kind!r}"] * (claim.kind not in KINDS)
        wrong += [f"metric {claim.metric!r} of a claim"] * (claim.metric not in COLUMNS or claim.metric in UNCLAIMED)
        wrong += [f"row {name!r} of a claim" for name in claim.rows if name not in rows]
        wrong += [f"fewer than two rows in the claim {claim.says!r}"] * (len(claim.rows) < 2)
        wrong += [f"metric {claim.metric!r} for {claim.kind}"] * _mismatched(claim)
    if any(column in CLOCKS for column in table.columns) != (table.clocks is not None):
        wrong.append("clocks without a column of clocks, or the reverse")
    if wrong:
        raise SpecbenchError(f"conf/table/{table.name}.yaml: wrong {', wrong '.join(wrong)}")


def _mismatched(claim: Claim) -> bool:
    """Accuracies are compared by their difference, everything else by a quotient."""
    return claim.kind not in DIFFERENCES if claim.metric == "accuracy" else claim.kind == "same"


@cache
def published() -> tuple[dict[str, str], ...]:
    """Every row of ``results/published``: paper, table, model, dataset, method, setting, window, metric, value, …"""
    found: list[dict[str, str]] = []
    for file in sorted(paths.published().glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            found += csv.DictReader(lines)
    return tuple(found)


def matching(selector: Selector) -> list[dict[str, str]]:
    """The published rows with these fields; a list of values selects several rows."""
    wanted = {key: [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)]
              for key, value in selector.items()}  # fmt: skip
    return [row for row in published() if all(row[key] in values for key, values in wanted.items())]


def select(selector: Selector) -> Published | None:
    """The one published value that ``selector`` means; the sum (letter D) where it lists several methods or settings.

    Raises :class:`SpecbenchError` when it is not that many.
    """
    found = matching(selector)
    if not found:
        return None
    expected = 1
    for value in selector.values():
        expected *= len(value) if isinstance(value, list | tuple) else 1
    if len(found) != expected:
        raise SpecbenchError(f"results/published: {dict(selector)} means {len(found)} values, and {expected} expected")
    if expected == 1:
        row = found[0]
        return Published(float(row["value"]), _text(row), row["confidence"], _cite(row))
    total = sum(float(row["value"]) for row in found)
    letter = _derived(row["confidence"] for row in found)
    return Published(total, f"{total:.2f}", letter, f"sum of {expected} rows of {_cite(found[0])}")


def _quotient(own: Selector, ar: Selector, metric: str) -> Published | None:
    top, bottom = select({**ar, "metric": metric}), select({**own, "metric": metric})
    if bottom is None or bottom.value is None:
        return None
    if top is None or top.value is None:
        return Published(None, f"{bottom.text} {UNITS[metric]}", bottom.confidence, bottom.source)
    ratio = top.value / bottom.value
    letter = _derived((top.confidence, bottom.confidence))
    return Published(ratio, f"{ratio:.2f}", letter, f"{top.text} ÷ {bottom.text}, {bottom.source}")


def _alike(printed: Published) -> Published:
    """A step ratio in which AR's guided passes were counted twice, with everybody's counted once."""
    assert printed.value is not None
    half = printed.value / 2
    return Published(half, f"{half:.2f}", _derived(printed.confidence), f"{printed.text} ÷ 2, {printed.source}")


def overlap(heads: Selector) -> float | None:
    """Mean Σ min(p, q) over the measured heads of ``results/heads.csv`` with these fields; None where there are none.

    The file is a result of ours, made by ``scripts/ablate_heads.py``; an installed package does not carry it.
    """
    file = paths.published().parent / "heads.csv"
    if not file.is_file():
        return None
    with file.open(newline="", encoding="utf-8") as lines:
        found = [float(row["heads"]) for row in csv.DictReader(lines)
                 if all(row[key] == str(value) for key, value in heads.items())]  # fmt: skip
    return sum(found) / len(found) if found else None


def _derived(letters: Iterable[str]) -> str:
    """D, and what it is derived from where that is not printed in the paper itself."""
    weakest = max(letters)
    return "D" if weakest == "A" else f"D from {weakest}"


def _quality(selector: Selector) -> Published | None:
    scores = [(name, found) for name in QUALITY if (found := select({**selector, "metric": name})) is not None]
    if not scores:
        return None
    worst = max(found.confidence for _, found in scores)
    text = ", ".join(f"{name} {found.text}" for name, found in scores)
    value = scores[0][1].value if scores[0][0] in BENCHMARKS else None
    return Published(value, text, worst, scores[0][1].source)


def _text(row: Mapping[str, str]) -> str:
    """The value as papers print it: ratios and scores with two decimals, counts as they are."""
    value = row["value"]
    whole_or_long = row["metric"] in UNITS or len(value.partition(".")[2]) > 1
    return value if whole_or_long else f"{float(value):.2f}"


def _cite(row: Mapping[str, str]) -> str:
    return f"{row['paper']}, {row['table']}"


def summaries() -> list[dict[str, Any]]:
    """``name summary model source`` of every table, for lists."""
    return [
        {"name": name, "summary": node["title"], "model": node["model"], "source": f"conf/table/{name}.yaml"}
        for name, node in ((name, _node(name)) for name in names())
    ]
