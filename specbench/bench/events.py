"""What a run tells while it works: plain frozen objects for a progress display.

Knows: the events and their fields.
Refuses to know: how they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CellLabel:
    """How people call a cell. ``window`` is None where the method has none."""

    id: str
    model: str
    method: str
    window: int | None
    seed: int


@dataclass(frozen=True)
class Planned:
    """The plan stands: ``total`` images will be decoded, ``stored`` are already there."""

    cells: tuple[CellLabel, ...]
    total: int
    stored: int


@dataclass(frozen=True)
class WarmedUp:
    """One image was decoded and thrown away before timing began."""

    cell: CellLabel


@dataclass(frozen=True)
class ImageDone:
    """One image is in the store. ``seconds``: prefill + passes + sampling of its batch; ``done`` of ``total``."""

    cell: CellLabel
    prompt_id: str
    sample: int
    nfe: int
    seconds: float
    done: int
    total: int


@dataclass(frozen=True)
class CellFailed:
    """A cell stopped: ``state`` is ``failed``, ``oom`` or ``skipped``; the others go on."""

    cell: CellLabel
    state: str
    message: str


@dataclass(frozen=True)
class Note:
    """Something worth a line that is not a failure."""

    message: str


Event = Planned | WarmedUp | ImageDone | CellFailed | Note
