"""Names of lines and columns in plots: the method, and whatever else tells two cells of it apart.

Knows: which settings two cells may differ in, matplotlib's special characters, a palette that colour-blind eyes can
tell apart.
Refuses to know: what is plotted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
"""Okabe and Ito's eight, darkest first."""
MARKERS = "osD^vPX*"


def names_of(cells: Sequence[Json]) -> list[str]:
    """One name a cell, without its window: ``scd``, or ``scd fill=left`` where cells of one method differ in that."""
    own = [differing(cell, cells) for cell in cells]
    words = [[f"{name.split('.')[-1]}={value}" for name, value in each.items()] for each in own]
    return [_plain(" ".join([str(cell.get("method")), *each])) for cell, each in zip(cells, words, strict=True)]


def window_of(cell: Json) -> str:
    """``W=16``; nothing where the method has no window."""
    return f"W={cell['window']}" if cell.get("window") else ""


def style(number: int) -> dict[str, Any]:
    """Colour and marker of line ``number``; beyond the palette the line is broken."""
    turn, place = divmod(number, len(PALETTE))
    return {"color": PALETTE[place], "marker": MARKERS[place], "linestyle": ("-", "--", ":")[turn % 3]}


def differing(cell: Json, cells: Sequence[Json]) -> dict[str, Any]:
    """Settings of ``cell`` in which another cell of its method differs: dotted name to value."""
    others = [_settings(other) for other in cells if other.get("method") == cell.get("method")]
    return {name: value for name, value in _settings(cell).items() if any(other.get(name) != value for other in others)}


def _settings(cell: Json) -> dict[str, Any]:
    asked = cell.get("requested") or {}
    return {name: value for name, value in asked.items() if name.startswith(("method.", "sampling."))}


def _plain(text: str) -> str:
    # A dollar sign would start mathematics, a leading underscore hides a legend entry.
    return text.replace("$", r"\$").lstrip("_")
