"""The report of a run as files: document, table in three languages, sheets, plots.

Knows: file names (from model and seed, never from prompts) and that a file is written whole or not at all.
Refuses to know: what is in the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specbench.report.diagnostics import diagnostics_page
from specbench.report.export import SUFFIXES, export_table
from specbench.report.sentence import cost_sentences
from specbench.report.table import Table, failures_of, table_of, warnings_of

Json = Mapping[str, Any]


def full_table(document: Json) -> Table:
    """Lay out the table with everything that belongs under it: notes, the sentences on cost, failures, warnings."""
    table = table_of(document)
    surprises = [f"Not done: {text}." for text in failures_of(document)]
    surprises += [f"Warning: {text}." for text in warnings_of(document)]
    return replace(table, notes=(*table.notes, *cost_sentences(document), *surprises))


def write_report(document: Json, pictures: Sequence[Json], folder: Path, plots: bool = False) -> list[Path]:
    """Write ``document.json``, ``table.{md,csv,tex}``, contact sheets, the page on diagnostics where there are any, and
    if asked the plots; return their paths.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = full_table(document)
    files = [_whole(folder / f"table{suffix}", _text(export_table(table, form))) for suffix, form in SUFFIXES.items()]
    files.append(
        _whole(folder / "document.json", _text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)))
    )
    for name, cells in _groups(document.get("cells") or ()).items():
        files += _pictures(cells, pictures, document.get("diagnosed") or (), folder, name, plots)
    page = diagnostics_page(document)
    if page is not None:
        files.append(_whole(folder / "diagnostics.md", _text(page)))
    return files


def write_file(path: Path, text: str) -> Path:
    """Write ``text`` to ``path`` whole or not at all; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _whole(path, _text(text))


def _pictures(
    cells: Sequence[Json], pictures: Sequence[Json], published: Sequence[Json], folder: Path, name: str, plots: bool
) -> list[Path]:
    from specbench.report.sheet import contact_sheet

    files = []
    sheet = contact_sheet(cells, pictures)
    if sheet is not None:
        files.append(_whole(folder / f"sheet{name}.png", lambda path: sheet.save(path, format="PNG")))
    if plots:
        from specbench.report.maps import WHAT, acceptance_maps, maps_over_pictures
        from specbench.report.plots import diagnostic_curves, nfe_against_window

        figures = {
            "nfe": nfe_against_window(cells),
            "diagnostics": diagnostic_curves(cells, published),
            "acceptance": acceptance_maps(cells, pictures),
            **{f"map-{what}": maps_over_pictures(cells, pictures, what) for what in WHAT},
        }
        for kind, figure in figures.items():
            if figure is not None:
                files.append(_whole(folder / f"{kind.replace('_', '-')}{name}.png", _saver(figure)))
    return files


def _groups(cells: Sequence[Json]) -> dict[str, list[Json]]:
    """Cells that may share a sheet, by the suffix of its name: empty when there is only one model and seed."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for cell in cells:
        groups.setdefault((str(cell.get("model")), str(cell.get("seed"))), []).append(cell)
    if len(groups) == 1:
        return {"": next(iter(groups.values()))}
    return {"-" + re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join(key)): cells for key, cells in groups.items()}


def _text(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


def _saver(figure: Any) -> Callable[[Path], None]:
    return lambda path: figure.savefig(path, format="png", dpi=130, bbox_inches="tight")


def _whole(path: Path, write: Callable[[Path], None]) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
