"""A published table beside what was measured: for a terminal, as a page, as CSV.

Knows: which column goes where, that a value never goes without its letter, and what the letters and statuses mean.
Refuses to know: how anything was measured or judged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from specbench.report.export import markdown
from specbench.report.table import MISSING, Table, interval

Json = Mapping[str, Any]

HEADERS = {
    "nfe_ratio": "NFE ratio",
    "step_ratio": "step ratio, counted alike",
    "printed_ratio": "step ratio as printed",
    "latency_ratio": "latency ratio",
    "unspecified_ratio": "ratio, kind not said",
    "forward_ms": "model, ms per pass",
    "sampling_ms": "outside the model, ms per pass",
    "saturates_at": "saturates at",
    "overlap": "overlap of mini's heads",
    "accuracy": "quality",
}
MEASURED = {"accuracy": "accuracy (in place of the paper's scores) [95 %]", "overlap": "overlap of mini's heads"}
"""Headers of measured columns that are not the published one with an interval."""

DIGITS = {"forward_ms": 1, "sampling_ms": 2}
LETTERS = (
    "Letters: A printed in the paper; B transcribed from it by a third party; C second-hand, or transcriptions that "
    "disagree; D derived here from printed values (D from B: from such values). Only A is what the paper says."
)
STATUSES = (
    "Intervals are 95 %, paired by prompt. On another model than the paper's no value is judged, only the claims: "
    "trend holds, differs, or unresolved where the interval holds both answers. A row's status is the worst of the "
    "claims about it."
)
CSV = ("kind", "name", "label", "metric", "published", "confidence", "source", "measured", "low", "high", "status",
       "reason")  # fmt: skip


def rows_table(document: Json) -> Table:
    """The rows: per column the published value with its letter and the measured one with its interval, then status."""
    columns = [name for name in document["columns"] if _filled(document, name)]
    headers, numeric = ["row"], [False]
    for name in columns:
        title = HEADERS[name]
        headers.append(f"{title}: published")
        numeric.append(True)
        if _has(document, name, "measured"):
            headers.append(MEASURED.get(name, f"{title} [95 %]"))
            numeric.append(True)
    body = []
    for row in document["rows"]:
        cells = [str(row["label"])]
        for name in columns:
            cells.append(_published(row["columns"][name]["published"]))
            if _has(document, name, "measured"):
                cells.append(interval(row["columns"][name]["measured"], DIGITS.get(name, 2)))
        body.append((*cells, _status(row, shared_reason(document))))
    return Table((*headers, "status"), tuple(body), (*numeric, False))


def claims_table(document: Json) -> Table:
    """The claims: what the paper says about which rows, its own quotients, ours with intervals, status."""
    body = []
    for claim in document["claims"]:
        printed = [f"{value:.2f}" for value in claim["published"] if value is not None]
        ours = [interval(value, 2) for value in claim["measured"]]
        body.append((
            str(claim["says"]), HEADERS[claim["metric"]], _rows(claim), ", ".join(printed) or MISSING,
            ", ".join(ours) or MISSING, _status(claim, shared_reason(document)),
        ))  # fmt: skip
    headers = ("claim", "metric", "rows", "published", "measured [95 %]", "status")
    return Table(headers, tuple(body), (False, False, False, True, True, False))


def notes_of(document: Json) -> list[str]:
    """What a reader of both tables must know to read them."""
    said = shared_reason(document)
    notes = [] if said is None else [f"Not run: {said}. Another model, model=mini say, can stand in."]
    notes += [LETTERS, STATUSES]
    counts = sorted(set(document["images"].values()))
    if counts:
        span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        clocks = f"; clocks from the first {document['timed']} prompts at most, at batch 1, timed together with AR"
        notes.append(f"Passes from {span} images a row{clocks if document['timed'] else ''}.")
    lossy = [str(row["label"]) for row in document["rows"] if row["lossless"] is False]
    if lossy:
        notes.append(f"Not lossless (the picture law changes): {', '.join(lossy)}.")
    return [*notes, *document["notes"], *(f"Warning: {text}." for text in document["warnings"])]


def measured_where(document: Json) -> str:
    """Which model the published values are of, and which one ours are of."""
    models = sorted({str(row["model"]) for row in document["rows"] if row["model"]})
    ours = f"Measured on {', '.join(models)}" if models else "Nothing was run"
    return f"Published: {document['paper']}, on {document['measured_on']}. {ours}."


def page(document: Json) -> str:
    """The result page in Markdown, with the command that makes it."""
    parts = [f"# {document['title']}", measured_where(document), f"```\n{document['command']}\n```"]
    parts.append(markdown(rows_table(document)).rstrip())
    if document["claims"]:
        parts += ["## Claims", markdown(claims_table(document)).rstrip()]
    parts.append(markdown(Table((), (), (), tuple(notes_of(document)))).strip().removeprefix("|  |\n|  |").strip())
    return "\n\n".join(parts) + "\n"


def lines(document: Json) -> str:
    """The same as CSV in long form: one line per row and column, one per claim."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV, lineterminator="\n")
    writer.writeheader()
    for row in document["rows"]:
        for name in document["columns"]:
            cell = row["columns"][name]
            printed, ours = cell["published"] or {}, cell["measured"] or {}
            writer.writerow({
                "kind": "row", "name": row["id"], "label": row["label"], "metric": name,
                "published": printed.get("text"), "confidence": printed.get("confidence"),
                "source": printed.get("source"), "measured": ours.get("value"), "low": ours.get("low"),
                "high": ours.get("high"), "status": row["status"], "reason": row["reason"],
            })  # fmt: skip
    for claim in document["claims"]:
        for place, printed in enumerate(claim["published"]):
            ours = (claim["measured"][place] if claim["measured"] else None) or {}
            writer.writerow({
                "kind": claim["kind"], "name": " ".join(claim["rows"]), "label": claim["says"],
                "metric": claim["metric"], "published": printed, "measured": ours.get("value"), "low": ours.get("low"),
                "high": ours.get("high"), "status": claim["status"], "reason": claim["reason"],
            })  # fmt: skip
    return out.getvalue()


def _filled(document: Json, name: str) -> bool:
    return _has(document, name, "published") or _has(document, name, "measured")


def _has(document: Json, name: str, side: str) -> bool:
    return any(row["columns"][name][side] for row in document["rows"])


def _published(value: Json | None) -> str:
    return MISSING if value is None else f"{value['text']} ({value['confidence']})"


def shared_reason(document: Json) -> str | None:
    """Why nothing at all was run, where that is one reason: it is said once, in a note."""
    reasons = {row["reason"] for row in document["rows"]}
    return str(reasons.pop()) if len(reasons) == 1 and None not in reasons else None


def _status(entry: Json, said: str | None) -> str:
    reason = entry["reason"]
    return f"{entry['status']}: {reason}" if reason and said is None else str(entry["status"] or MISSING)


def _rows(claim: Json) -> str:
    names: Sequence[str] = claim["rows"]
    if claim["kind"] == "monotone":
        return " < ".join(names)
    if claim["kind"] == "best":
        return f"{names[0]} > {', '.join(names[1:])}"
    return {"greater": " > ", "flat": " ≈ ", "about": " ÷ ", "same": " − "}[claim["kind"]].join(names)
