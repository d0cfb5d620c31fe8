"""The page that says why a method is fast: measured means beside published figures, each with its letter.

Knows: which table a number belongs to, and in words what is compared with what.
Refuses to know: how anything was counted (``docs/diagnostics.md`` defines it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specbench.report.export import markdown
from specbench.report.groups import Group, groups_of
from specbench.report.labels import names_of, window_of
from specbench.report.table import MISSING, Table, interval, number

Json = Mapping[str, Any]

SLOTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)
"""Slots that are printed; the plot has all of them."""

INTRODUCTION = (
    "Counted from laws and drafts that every pass has anyway; nothing of this run was timed. Means over slots and "
    "passes, pooled over images; intervals are 95 %, over prompts. Definitions: `docs/diagnostics.md`. Published "
    "figures are from other models and are shown for orientation. Letters: A printed in the paper; B transcribed from "
    "it, or read off its figure, by a third party."
)


def diagnostics_page(document: Json) -> str | None:
    """Write the page, a section a group of cells; ``None`` where no cell carries diagnostics."""
    sections = [text for group in groups_of(document) if (text := _section(group, document.get("diagnosed") or ()))]
    return "\n".join(["# Why it is fast", "", INTRODUCTION, "", *sections]) if sections else None


def _section(group: Group, published: Sequence[Json]) -> str | None:
    cells = [cell for cell in group.cells if cell.get("diagnostics")]
    if not cells:
        return None
    own = [cell for cell in cells if (cell["diagnostics"].get("slots") or {}).get("drafts")]
    names = dict(zip([cell["id"] for cell in own], names_of(own), strict=True))
    lines = [f"## {group.label}", ""] if group.label else []
    blocks = [cell for cell in cells if cell["diagnostics"].get("rounds")]
    done = [cell for cell in group.cells if cell.get("state", "done") == "done" and cell.get("method") != "ar"]
    silent = [f"{cell['method']} {window_of(cell)}".strip() for cell in done if cell not in [*own, *blocks]]
    if silent:
        lines += [
            f"Nothing to diagnose: {', '.join(silent)} (a window of one, or a plugin's own decoder).",
            "",
        ]
    for title, table in _tables(cells, own, names, published):
        lines += [f"### {title}", "", markdown(table)]
    if blocks:
        names = dict(zip([cell["id"] for cell in blocks], names_of(blocks), strict=True))
        for title, table in _of_blocks(blocks, names, published):
            lines += [f"### {title}", "", markdown(table)]
    return "\n".join(lines)


def _of_blocks(
    blocks: Sequence[Json], names: Mapping[str, str], published: Sequence[Json]
) -> Iterator[tuple[str, Table]]:
    """What block decoders show: their heads by offset, and their rounds."""
    heads, rounds = [], []
    for cell in blocks:
        found = cell["diagnostics"]
        for way in ("right", "below"):
            heads += [(names[cell["id"]], f"{way} +{i}", *_test(each)) for i, each in enumerate(found["heads"][way], 1)]
        rounds += [(names[cell["id"]], str(number), *_test(each)) for number, each in enumerate(found["rounds"], 1)]
    figures, numeric = ("drafts", "Σ min(p, q), %", "kept, %"), (False, False, True, True, True)
    yield "How far do heads see?", Table(
        ("method", "offset", *figures),
        tuple(heads),
        numeric,
        ("First test of each draft: p the target's law behind the drafts of the block, q the law of its head.",
         *_quotes(published, "head_kept")),
    )  # fmt: skip
    yield (
        "What does each round change?",
        Table(
            ("method", "round", *figures),
            tuple(rounds),
            numeric,
            ("From the second round on q is the law that the token was last drawn from, or the head's (method.law).",),
        ),
    )


def _test(each: Json) -> tuple[str, str, str]:
    return str(each["drafts"]), _percent(each["overlap"]), _percent(each["kept"])


def _tables(
    cells: Sequence[Json], own: Sequence[Json], names: Mapping[str, str], published: Sequence[Json]
) -> Iterator[tuple[str, Table]]:
    if own:
        yield "Do drafts survive a redraft?", _redrafts(own, names, published)
        yield "How far are drafts from those of 1, 2, 3 passes ago?", _hamming(own, names)
        yield "Did the probability of accepted tokens rise?", _growth(own, names, published)
        if any(cell["diagnostics"]["prediction"] for cell in own):
            yield "Do predicted laws come true?", _predictions(own, names)
        yield "What limits acceptance?", _ceiling(own, names)
        yield "Expected acceptance by slot", _by_slot(own, names)
    probed = next((cell["diagnostics"]["probe"] for cell in cells if cell["diagnostics"].get("probe")), None)
    yield "How far does one replaced token reach?", _perturbation(own, names, probed, published)


def _redrafts(own: Sequence[Json], names: Mapping[str, str], published: Sequence[Json]) -> Table:
    """Measured change of open drafts between what independence and the best coupling would give."""
    rows = []
    for cell in own:
        for part, which in (("redraft", "all"), ("redraft_seen", "seen before")):
            found = cell["diagnostics"][part]
            rows.append(
                (
                    *_head(cell, names), which, str(found["drafts"]), _percent(found["changed"]),
                    _percent(_but(found["collision"])), _percent(_but(found["gumbel_at_least"])),
                    _percent(_but(found["overlap"])),
                )
            )  # fmt: skip
    return _table(
        ("drafts", "count", "changed in a pass, %", "if independent, %", "Gumbel at most, %", "best coupling, %"),
        rows,
        ["If independent: 1 - Σ p q. Best coupling: 1 - Σ min(p, q). Gumbel at most: 1 - (1 - TV) / (1 + TV).",
         "Drafts: those behind the token that the pass settles. Seen before: without slots whose draft was a fill.",
         *_quotes(published, "redraft_changed", "redraft_kept")],
    )  # fmt: skip


def _hamming(own: Sequence[Json], names: Mapping[str, str]) -> Table:
    rows = [(*_head(cell, names), *map(_percent, cell["diagnostics"]["hamming"])) for cell in own]
    return _table(
        ("lag 1, %", "lag 2, %", "lag 3, %"),
        rows,
        ["Share of open drafts that differ, at the same absolute position, from the draft so many passes earlier. "
         "SCD's claim (B): maximal coupling is steadier at lag 1, Gumbel coupling at lags 2 and 3."],
    )  # fmt: skip


def _growth(own: Sequence[Json], names: Mapping[str, str], published: Sequence[Json]) -> Table:
    rows = []
    for cell in own:
        for part, which in (("growth", "up to the test"), ("growth_before", "before the test")):
            found = cell["diagnostics"][part]
            for step in range(3):
                shares = [_percent(found[group][step]) for group in ("accepted", "rejected", "drafts")]
                rows.append((*_head(cell, names), which, str(step + 1), *shares))
    return _table(
        ("steps end", "steps N", "accepted, %", "rejected, %", "all drafts, %"),
        rows,
        ["Share of drafts whose probability rose in each of N successive passes. Up to the test: the last step leads "
         "to the law that tests the draft; where the test is p/q with q the law of the pass before, a draft that "
         "rises there is always accepted, and no rejected one can have risen. Before the test: the steps that a "
         "prediction could have used.",
         "The paper follows accepted tokens back through all passes and does not print the number of steps or a base "
         "rate; the nearest rows are those of N = 1.",
         *_quotes(published, "growth_accepted")],
    )  # fmt: skip


def _predictions(own: Sequence[Json], names: Mapping[str, str]) -> Table:
    rows = []
    for cell in own:
        for part, which in (("prediction", "all"), ("prediction_boosted", "where p′ ≠ p")):
            found = cell["diagnostics"][part]
            if found:
                shown = (number(found["plain"], 4), number(found["predicted"], 4), interval(found["difference"], 4))
                rows.append((*_head(cell, names), which, str(found["drafts"]), *shown))
    return _table(
        ("slots", "count", "TV(p, next p)", "TV(p′, next p)", "difference [95 %]"),
        rows,
        ["SJD-VP's claim: the predicted law p′ is nearer to the law of the next pass than p is, so the difference is "
         "negative. It is the mean over images of their mean differences."],
    )  # fmt: skip


def _ceiling(own: Sequence[Json], names: Mapping[str, str]) -> Table:
    rows = []
    for cell in own:
        found = cell["diagnostics"]
        lengths = [number(found["accepted_length"][name], 2) for name in found["accepted_length"]]
        rows.append((*_head(cell, names), interval(found["moved"], 3), *lengths))
    return _table(
        ("TV(p, next p) [95 %]", "accepted per pass", "if slots were independent", "… and all passes alike"),
        rows,
        ["Accepted drafts per pass, beside Σ over slots of the product of Σ min(p, q) up to there: within each pass, "
         "then from the means by slot. For tests other than p/q it is what that test would give for these drafts."],
    )  # fmt: skip


def _by_slot(own: Sequence[Json], names: Mapping[str, str]) -> Table:
    widest = max(len(cell["diagnostics"]["slots"]["overlap"]) for cell in own)
    slots = [slot for slot in SLOTS if slot < widest]
    rows = []
    for cell in own:
        overlap = cell["diagnostics"]["slots"]["overlap"]
        values = [overlap[slot] if slot < len(overlap) else None for slot in slots]
        rows.append((*_head(cell, names), *(number(value, 3) for value in values)))
    return _table(
        [f"slot {slot}" for slot in slots], rows, ["Mean Σ min(p, q) of the slot's draft law q and its new law p."]
    )


def _perturbation(
    own: Sequence[Json], names: Mapping[str, str], probe: Json | None, published: Sequence[Json]
) -> Table:
    """Offsets down, the controlled probe first, then each cell's own replaced tokens, then the paper."""
    known = {row["setting"].split()[-1]: row for row in published if row["metric"] == "perturbed_tv"}
    tv, counts = (list(probe["tv"]), list(probe["sites"])) if probe else ([], [])
    replaced = [cell["diagnostics"]["replaced"] for cell in own]
    rows = []
    for place in range(max([len(tv), *(len(each["tv"]) for each in replaced)], default=0)):
        row = known.get(str(place + 1))
        rows.append(
            (
                str(place + 1), number(_at(tv, place), 4), str(_at(counts, place) or 0),
                *(number(_at(each["tv"], place), 4) for each in replaced),
                f"{row['value']} ({row['confidence']})" if row else MISSING,
            )
        )  # fmt: skip
    cells = [f"{names[cell['id']]} W={cell['window']}" for cell in own]
    return Table(
        headers=("offset", "controlled", "sites", *cells, "SJD-PAC, figure 4"),
        rows=tuple(rows),
        numeric=(True,) * (4 + len(cells)),
        notes=(
            "Controlled: in finished images of AR one token is replaced by another draw from its law, the rest kept; "
            "the paper masks the token instead. At an offset of one grid row the token stands below the replaced one.",
            "A method's column: passes in which the token at the first rejection alone was replaced. Beyond offset 1 "
            "it holds only where every draft between survived, which favours steady laws.",
        ),
    )


def _head(cell: Json, names: Mapping[str, str]) -> tuple[str, str]:
    return names[cell["id"]], str(cell["window"])


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Table:
    numeric = (False, True, *(header not in ("drafts", "slots", "steps end") for header in headers))
    return Table(("method", "window", *headers), tuple(map(tuple, rows)), numeric, tuple(notes))


def _quotes(published: Sequence[Json], *metrics: str) -> list[str]:
    """One line a published figure: what it says, of what, how sure, from where."""
    return [
        f"Published: {row['value']} {row['unit']} ({row['confidence']}), {row['method']}, {row['setting']}; "
        f"{row['model']}, {row['dataset']}; {row['paper']}, {row['table']}."
        for row in published
        if row["metric"] in metrics
    ]


def _percent(value: Json | float | None) -> str:
    if value is None:
        return MISSING
    if not isinstance(value, Mapping):
        return number(100 * value, 1)
    return interval({key: None if end is None else 100 * end for key, end in value.items()}, 1)


def _but(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None
