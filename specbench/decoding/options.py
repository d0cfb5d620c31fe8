"""The words that describe a Jacobi decoder, and which of them belongs to which part.

Knows: names, nothing else: it is read before torch is.
Refuses to know: what the parts do (that stands beside each of them) and their defaults (those are the parts' own).

    redraft  independent · maximal · gumbel              alpha
    accept   strict · fresh · replay · grouped · lantern group gap distance · neighbours delta scale budget
    fill     uniform · onehot · left · above · left_law · above_law
    predict  none · growth · score                       history decay growth candidates verify
    tree     none · siblings                             children depth
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS = {"redraft": "independent", "accept": "strict", "fill": "uniform", "predict": "none", "tree": "none"}
"""The axes, and the choice that is meant where a method names none: together they are SJD."""

OPTIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("redraft", "maximal"): ("alpha",),
    ("redraft", "gumbel"): ("alpha",),
    ("accept", "grouped"): ("group", "gap", "distance"),
    ("accept", "lantern"): ("neighbours", "delta", "scale", "budget"),
    ("predict", "growth"): ("history", "decay", "growth", "candidates", "verify"),
    ("predict", "score"): ("history", "decay", "growth", "candidates", "verify"),
    ("tree", "siblings"): ("children", "depth"),
}
"""(axis, choice) to the settings that this choice alone reads."""

LOSSY: frozenset[tuple[str, str]] = frozenset({("accept", "grouped"), ("accept", "lantern"), ("verify", "raw")})
"""(setting, value) that give up the law of plain AR, whatever else is chosen."""


def names() -> tuple[str, ...]:
    """Every setting of a Jacobi decoder, axes first."""
    return ("decoder", *DEFAULTS, *dict.fromkeys(name for taken in OPTIONS.values() for name in taken))


def taken_by(settings: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Axis → the options that the choice made there reads (empty where it reads none)."""
    chosen = {axis: str(settings.get(axis, default)) for axis, default in DEFAULTS.items()}
    return {axis: OPTIONS.get((axis, choice), ()) for axis, choice in chosen.items()}


def lossless(settings: Mapping[str, Any]) -> bool:
    """Whether these settings keep the law of plain AR, as far as the choice of parts decides it."""
    read = {"decoder", *DEFAULTS, *(name for taken in taken_by(settings).values() for name in taken)}
    return not any((name, value) in LOSSY for name, value in settings.items() if name in read)
