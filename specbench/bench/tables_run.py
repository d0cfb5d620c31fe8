"""Redo a published table: its rows as cells, what is missing run, the document of values, claims and statuses.

Knows: the order (passes first, in batches beside each other; then clocks, alone, at batch 1) and why a row is not run.
Refuses to know: what a published value or a claim is (``tables``, ``tables_judge``) and how the page looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.bench import metrics, registry, tables, weights
from specbench.bench.config import RunRequest, compose
from specbench.bench.planning import Group, Job, held, json_document, plan, prepare
from specbench.bench.scoring import scorer_code
from specbench.bench.tables import CLOCKS, UNMEASURED, Row, Table
from specbench.bench.tables_judge import NOT_RUN, Measured, judge, measured, reproduces, worst
from specbench.errors import SpecbenchError, UsageError, unknown

if TYPE_CHECKING:
    from specbench.bench.runner import OnEvent

BATCH = 16
"""Images decoded together where only passes are counted."""

TOKENS_PER_PASS = 3
"""What a plan assumes of every method before it has run: SJD's figure, within a factor of two for all of them."""

ALL = "all"
"""In place of a name: every table, one after the other, sharing what they have in common."""


@dataclass(frozen=True)
class Entry:
    """A row with its request, or with the ``reason`` why it has none. ``own``: the paper's own model and prompts."""

    row: Row
    request: RunRequest | None = None
    reason: str | None = None
    own: bool = False


def chosen_tables(name: str) -> list[str]:
    """The tables that ``name`` means. Raises :class:`UsageError` with the nearest name when there is none."""
    known = tables.names()
    if name != ALL and name not in known:
        raise unknown("table", name, [*known, ALL])
    return known if name == ALL else [name]


def entries(table: Table, overrides: Sequence[str] = (), plugins: Sequence[str | Path] = ()) -> list[Entry]:
    """Every row of ``table`` under the user's words; a row that cannot run says why.

    Raises :class:`UsageError` where the words themselves are at fault, or set what the table is about.
    """
    registry.load_plugins(plugins)
    given = dict(_split(word) for word in overrides)
    taken = {"batch", *(_split(word)[0] for row in table.rows for word in row.words)}
    for key in given:
        if key in taken:
            raise UsageError(f"{key} cannot be set here: it is what the rows of table {table.name} are about")
    model = given.pop("model", None)
    if model is not None and model not in registry.models():
        raise unknown("model", model, registry.models())
    if model is not None or table.model in registry.models():
        # What the user typed fails here, once; the paper's prompts may not be here, those of a stand-in are.
        compose(_words(table, model or table.model, False, given, ("method=ar",)))
    found = [_entry(table, row, model or row.model, given) for row in table.rows]
    return _fitting(found)


def _split(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"{word!r} is not of the form key=value")
    return key.strip(), value


def _words(table: Table, model: str, own: bool, given: dict[str, str], words: Sequence[str]) -> list[str]:
    """The paper's prompts on its ``own`` model, the stand-in's elsewhere; then the user's words and the row's."""
    base = [f"prompts={table.prompts}"] if own else table.stand_in
    merged = {"model": model, "batch": str(BATCH), **dict(map(_split, base)), **given, **dict(map(_split, words))}
    return [f"{key}={value}" for key, value in merged.items()]


def _entry(table: Table, row: Row, model: str, given: dict[str, str]) -> Entry:
    if row.missing is not None:
        return Entry(row, reason=row.missing)
    lacking = Entry(row, reason=f"the weights of {row.measured_on} are not here")
    if model not in registry.models():
        return lacking
    try:
        if model == row.model and weights.missing(compose(_words(table, model, False, given, row.words))) is not None:
            return lacking
        (request,) = compose(_words(table, model, model == row.model, given, row.words))
    except UsageError as error:
        return Entry(row, reason=str(error))
    return Entry(row, request, own=model == row.model and request.prompts.name == table.prompts)


def _fitting(found: list[Entry]) -> list[Entry]:
    """The same entries, those without a request whose window or parts the target refuses, or whose weights miss."""
    try:
        prepare(_requests(found), clocks=False)
        return found
    except SpecbenchError:
        return [_alone(entry) for entry in found]


def _alone(entry: Entry) -> Entry:
    try:
        prepare([entry.request] if entry.request else [], clocks=False)
        return entry
    except SpecbenchError as error:
        return replace(entry, request=None, reason=str(error))


def _requests(found: Sequence[Entry]) -> list[RunRequest]:
    return [entry.request for entry in found if entry.request is not None]


def _timed(table: Table, requests: Sequence[RunRequest]) -> list[RunRequest]:
    """The same cells at batch 1 over the first prompts, where the table has a column of clocks."""
    if table.clocks is None:
        return []
    limits = [min(table.clocks, request.prompts.limit or table.clocks) for request in requests]
    return [
        replace(request, batch=1, prompts=replace(request.prompts, limit=limit))
        for request, limit in zip(requests, limits, strict=True)
    ]


def plan_tables(
    name: str, overrides: Sequence[str] = (), out: str | Path = "runs", plugins: Sequence[str | Path] = ()
) -> dict[str, Any]:
    """What :func:`run_table` would do for ``name`` (or all tables), without doing it.

    ``cells`` are counted once however many tables share them: ``images stored to_run to_time``. ``token_evaluations``
    is the work: passes × window over all images, at :data:`TOKENS_PER_PASS` tokens per pass where nothing is known.
    ``not_run`` lists the rows without a cell and why.
    """
    cells: dict[str, dict[str, Any]] = {}
    missing = []
    for each in chosen_tables(name):
        table = tables.load(each)
        found = entries(table, overrides, plugins)
        missing += [{"table": each, "row": e.row.id, "reason": e.reason} for e in found if e.request is None]
        requests = _requests(found)
        for cell in plan(requests, out, clocks=False)["cells"] if requests else ():
            known = cells.setdefault(cell["id"], {**cell, "to_time": 0})
            known |= {key: max(known[key], cell[key]) for key in ("images", "stored", "to_run")}
        for cell in plan(_timed(table, requests), out)["cells"] if _timed(table, requests) else ():
            known = cells[cell["id"]]
            known["to_time"] = max(known["to_time"], cell["to_run"])
    work = sum((cell["to_run"] + cell["to_time"]) * _evaluations(cell) for cell in cells.values())
    return json_document(
        tables=chosen_tables(name),
        cells=list(cells.values()),
        token_evaluations=work,
        tokens_per_pass=TOKENS_PER_PASS,
        not_run=missing,
    )


def _evaluations(cell: dict[str, Any]) -> int:
    tokens = int(cell["tokens"])
    if cell["window"] is None:  # a block decoder reads every token once a round and once to commit it: SSD's r = 2
        return tokens * TOKENS_PER_PASS
    window = int(cell["window"])
    return tokens if window == 1 else tokens * window // min(window, TOKENS_PER_PASS)


def run_table(
    name: str,
    overrides: Sequence[str] = (),
    out: str | Path = "runs",
    on_event: OnEvent | None = None,
    workers: int = 1,
    plugins: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Decode what table ``name`` lacks in the store at ``out``, and return its document (``docs/tables.md``).

    Raises :class:`UsageError` for names and words that do not exist, :class:`SpecbenchError` for a store or a table
    file that cannot be used.
    """
    from specbench.bench.runner import run

    table = tables.load(name)
    found = entries(table, overrides, plugins)
    requests = _requests(found)
    documents = [run(requests, out, on_event, workers=workers, clocks=False)] if requests else []
    failed = {cell["id"] for document in documents for cell in document["cells"] if cell["state"] != "done"}
    groups = prepare(requests, clocks=False)
    alive = [job.request for group in groups for job in group.jobs if job.cell.id not in failed]
    timed = _timed(table, [request for request in requests if request.identity() in {r.identity() for r in alive}])
    documents += [run(timed, out, on_event)] if timed else []
    command = " ".join(["specbench table", name, *overrides])
    return {**_document(table, found, groups, out, documents), "command": command}


def _document(
    table: Table, found: Sequence[Entry], groups: Sequence[Group], out: str | Path, documents: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    errors = {
        cell["id"]: cell["error"] or cell["state"]
        for document in documents
        for cell in document["cells"]
        if cell["state"] != "done"
    }
    jobs = {job.request.identity(): (group, job) for group in groups for job in group.jobs}
    have = held(groups, out) if groups else {}
    data, reasons, cells = {}, {}, {}
    for entry in found:
        if entry.request is None:
            reasons[entry.row.id] = str(entry.reason)
            continue
        group, job = jobs[entry.request.identity()]
        cells[entry.row.id] = job.cell.id
        if job.cell.id in errors:
            reasons[entry.row.id] = errors[job.cell.id]
        else:
            data[entry.row.id] = _measure(table, group, job, have)
    claims = [judge(claim, table, data, reasons) for claim in table.claims]
    rows = [_row(table, entry, data.get(entry.row.id), reasons, claims) for entry in found]
    warnings = dict.fromkeys(
        text for d in documents for text in [*d["warnings"], *(w for cell in d["cells"] for w in cell["warnings"])]
    )
    return json_document(
        name=table.name,
        title=table.title,
        paper=table.paper,
        measured_on=table.measured_on,
        columns=list(table.columns),
        rows=[{**row, "cell": cells.get(row["id"])} for row in rows],
        claims=claims,
        notes=list(table.notes),
        warnings=list(warnings),
        failed=sorted(set(cells.values()) & set(errors)),
        images={name: len(row.keys) for name, row in data.items()},
        timed=table.clocks,
        circumstances=documents[-1]["circumstances"] if documents else None,
    )


def _measure(table: Table, group: Group, job: Job, have: dict[str, Any]) -> Measured:
    records, keys = have[job.cell.id], group.image_keys()
    first = {prompt.id for prompt in group.items[: table.clocks or 0]}
    return Measured(
        records=records,
        baseline=have[group.jobs[0].cell.id],
        keys=tuple(keys),
        clocked=tuple(key for key in keys if key[0] in first),
        accuracy=metrics.accuracy(records, keys, group.scorer, scorer_code()),
    )


def _row(
    table: Table, entry: Entry, data: Measured | None, reasons: dict[str, str], claims: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One row of the document. On the paper's own model its columns decide the status, elsewhere the claims on it."""
    row, columns, statuses = entry.row, {}, []
    for column in table.columns:
        published = table.value(row, column)
        value: dict[str, Any] | None = None
        if column == "overlap":
            known = None if row.heads is None else tables.overlap(row.heads)
            value = None if known is None else {"value": known, "low": None, "high": None}
        elif data is not None and column == "accuracy":
            value = data.accuracy and {end: data.accuracy[end] for end in ("value", "low", "high")}
        elif data is not None and column not in UNMEASURED:
            interval = measured(column, data)
            value = None if interval is None else metrics.interval(interval)
            status = reproduces(interval, published, table.tolerance) if entry.own else None
            statuses += [] if status is None else [status]
        columns[column] = {
            "published": None
            if published is None
            else {
                "value": published.value,
                "text": published.text,
                "confidence": published.confidence,
                "source": published.source,
            },
            "measured": value,
            "clock": column in CLOCKS,
        }
    if not entry.own:
        statuses = [claim["status"] for claim in claims if row.id in claim["rows"] and claim["status"] != NOT_RUN]
    reason = reasons.get(row.id)
    return {
        "id": row.id,
        "label": row.label,
        "words": list(row.words),
        "model": None if entry.request is None else entry.request.model,
        "lossless": None if entry.request is None else entry.request.lossless,
        "own": entry.own,
        "columns": columns,
        "status": NOT_RUN if reason is not None else worst(statuses) if statuses else None,
        "reason": reason,
    }
