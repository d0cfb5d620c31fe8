"""The one table: from a sweep's document to headers, rows and footnotes of plain strings.

Knows: which columns there are, when a setting becomes a column, how a number with an interval is written.
Refuses to know: where the table goes (a terminal, Markdown, CSV, LaTeX).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench.report.groups import Group, groups_of
from specbench.report.labels import differing

Json = Mapping[str, Any]
MISSING = "–"
FEW = 10
"""Prompts below which the level of an interval leans on assumptions (``docs/metrics.md``)."""

SHARED_SETTINGS = (
    "model",
    "prompts.name",
    "sampling.temperature",
    "sampling.top_k",
    "sampling.top_p",
    "sampling.guidance",
    "method.fill",
    "seed",
    "dtype",
    "batch",
    "device",
)
"""Settings that earn a column as soon as two cells differ in them."""


@dataclass(frozen=True)
class Table:
    """Headers, rows and notes, all plain text; ``numeric[i]`` tells whether column i is set flush right."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A header and how a cell of the document becomes its text."""

    header: str
    text: Callable[[Json], str]
    numeric: bool = True


def table_of(document: Json) -> Table:
    """Lay out ``document["cells"]``, one row a cell, in the document's order."""
    cells: Sequence[Json] = document.get("cells") or ()
    columns = columns_for(cells)
    rows = tuple(tuple(column.text(cell) for column in columns) for cell in cells)
    return Table(
        headers=tuple(column.header for column in columns),
        rows=rows,
        numeric=tuple(column.numeric for column in columns),
        notes=tuple(notes_of(document)),
    )


def columns_for(cells: Sequence[Json]) -> list[Column]:
    """Return the columns these cells need: the standing ones, and settings in which the cells differ."""
    columns = [Column("method", lambda cell: str(cell.get("method", MISSING)), numeric=False)]
    for name in [*SHARED_SETTINGS, *_telling(cells)]:
        if len({_text(setting(cell, name)) for cell in cells if setting(cell, name) is not None}) > 1:
            columns.append(Column(name, lambda cell, name=name: _text(setting(cell, name)), numeric=False))  # type: ignore[misc]
    columns += [
        Column("window", lambda cell: _text(cell.get("window"))),
        Column("lossless", _lossless, numeric=False),
        Column("NFE", lambda cell: number(_at(cell, "nfe", "mean"), 1)),
        Column("NFE ratio [95 %]", lambda cell: interval(cell.get("nfe_ratio"), 2)),
    ]
    if any(cell.get("steps_with_row_ends") != _at(cell, "nfe", "mean") for cell in cells):
        columns.append(Column("steps with row ends", lambda cell: number(_mean(cell.get("steps_with_row_ends")), 1)))
    if len({cell.get("images") for cell in cells}) > 1:
        columns.append(Column("images", lambda cell: _text(cell.get("images"))))
    columns += [
        Column("latency ratio [95 %]", lambda cell: interval(cell.get("latency_ratio"), 2)),
        Column("tokens per pass", lambda cell: number(cell.get("tokens_per_pass"), 2)),
        Column("accuracy [95 %]", lambda cell: interval(cell.get("accuracy"), 2)),
    ]
    if any(cell.get("state", "done") != "done" for cell in cells):
        columns.append(Column("state", lambda cell: str(cell.get("state", "done")), numeric=False))
    return columns


def _telling(cells: Sequence[Json]) -> list[str]:
    """Settings of a method in which two of its own cells differ (``method.rounds``): else their rows look alike."""
    names = dict.fromkeys(name for cell in cells for name in differing(cell, cells) if name.startswith("method."))
    return [name for name in names if name not in SHARED_SETTINGS]


def setting(cell: Json, name: str) -> Any:
    """Look a dotted name up in a cell: in the cell itself, then in its effective, then its requested settings."""
    for source in (cell, cell.get("effective"), cell.get("requested")):
        value = _walk(source, name)
        if value is not None and not isinstance(value, Mapping):
            return value
    return None


def number(value: float | None, digits: int) -> str:
    """Write a number with ``digits`` decimals, or a dash where there is none."""
    return MISSING if value is None else f"{value:.{digits}f}"


def interval(value: Json | None, digits: int) -> str:
    """Write ``{"value", "low", "high"}`` as ``2.31 [2.20, 2.43]``, the bounds left out where there are none."""
    if not value or value.get("value") is None:
        return MISSING
    text = number(value["value"], digits)
    low, high = value.get("low"), value.get("high")
    if low is None or high is None or low == high == value["value"]:
        return text
    return f"{text} [{number(low, digits)}, {number(high, digits)}]"


def warnings_of(document: Json) -> list[str]:
    """Every surprise of a run, each once, with the number of cells that saw it.

    Collects the document's and the cells' own warnings, and settings whose effective value is not the requested one.
    """
    counts: dict[str, int] = {}
    for text in document.get("warnings") or ():
        counts[str(text)] = 0
    for cell in document.get("cells") or ():
        for text in [*(cell.get("warnings") or ()), *_mismatches(cell)]:
            counts[str(text)] = counts.get(str(text), 0) + 1
    return [text if n < 2 else f"{text} ({n} cells)" for text, n in counts.items()]


def failures_of(document: Json) -> list[str]:
    """One sentence for every cell that is not done: what it was, its state, and the reason if there is one."""
    sentences = []
    for cell in document.get("cells") or ():
        state = cell.get("state", "done")
        if state != "done":
            window = cell.get("window")
            name = f"{cell.get('method')}" + (f" window={window}" if window is not None else "")
            reason = f": {cell['error']}" if cell.get("error") else ""
            sentences.append(f"{name} is {state}{reason}")
    return sentences


def notes_of(document: Json) -> list[str]:
    """Return what a reader of the table must know to read it."""
    notes = ["Ratios are plain AR ÷ method over the same prompts and samples: above 1 is faster."]
    notes += dict.fromkeys(note for group in groups_of(document) if (note := _prompt_note(group)))
    notes += _timing_notes(document)
    if any(0 < count < FEW for count in _prompt_counts(document)):
        notes.append(f"With fewer than {FEW} prompts the 95 % of an interval is nominal.")
    comparison = document.get("comparison")
    if comparison:
        notes.append(str(comparison["sentence"]))
    allowed = document.get("allowed")
    if allowed:
        notes.append(f"Compared although these terms differ: {', '.join(map(str, allowed))}.")
    lossy = sorted({str(cell.get("method")) for cell in document.get("cells") or () if cell.get("lossless") is False})
    if lossy:
        notes.append(f"Not lossless (the picture law changes): {', '.join(lossy)}.")
    return notes


def _prompt_note(group: Group) -> str | None:
    prompts = group.shared.get("prompts")
    if not isinstance(prompts, Mapping) or not prompts.get("name"):
        return None
    count = f", {prompts['count']} prompts" if prompts.get("count") is not None else ""
    images = {cell.get("images") for cell in group.cells}
    if len(images) == 1:
        count += f", {images.pop()} images a cell"
    scorer = f", scored by {group.shared['scorer']}" if group.shared.get("scorer") else ""
    return f"Prompt set {prompts['name']}{count}{scorer}."


def _prompt_counts(document: Json) -> list[int]:
    """How many prompts stand behind the intervals, per group and for a comparison."""
    sources = [*(group.shared.get("prompts") for group in groups_of(document)), document.get("comparison")]
    named = [source.get("count", source.get("prompts")) for source in sources if isinstance(source, Mapping)]
    return [int(count) for count in named if count is not None]


def _timing_notes(document: Json) -> list[str]:
    """What the clocks leave out: images of the warm-up, and those that no one process timed for AR and method both."""
    notes = []
    if document.get("warmup"):
        notes.append(f"Warm-up: {document['warmup']} images were decoded beforehand and are not counted.")
    timed = [c for c in document.get("cells") or () if c.get("method") != "ar" and c.get("timed_together")]
    if timed:
        fewest, most = (f(int(cell["timed_together"]) for cell in timed) for f in (min, max))
        span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        notes.append(f"Latency ratios rest on the {span} images a cell that one process timed for AR and method both.")
    return notes


def _mismatches(cell: Json) -> list[str]:
    requested, effective = flat(cell.get("requested") or {}), flat(cell.get("effective") or {})
    return [
        f"{name}: requested {_text(value)}, effective {_text(effective[name])}"
        for name, value in requested.items()
        if value is not None and name in effective and effective[name] != value
    ]


def flat(tree: Json, prefix: str = "") -> dict[str, Any]:
    """Flatten a nested mapping to dotted names."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            out.update(flat(value, f"{name}."))
        else:
            out[name] = value
    return out


def _walk(tree: Any, name: str) -> Any:
    if isinstance(tree, Mapping) and name in tree:
        return tree[name]
    for part in name.split("."):
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(part)
    return tree


def _at(cell: Json, *path: str) -> float | None:
    value: Any = cell
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def _mean(value: Any) -> float | None:
    return _at({"x": value}, "x", "mean") if isinstance(value, Mapping) else value


def _lossless(cell: Json) -> str:
    value = cell.get("lossless")
    return MISSING if value is None else ("yes" if value else "no")


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)
