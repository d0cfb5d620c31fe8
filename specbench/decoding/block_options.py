"""The words that describe a block decoder: their defaults, their values, and which of them exclude each other.

Knows: names and plain values, nothing else: it is read before torch is.
Refuses to know: what the parts do. That stands beside them: ``spatial`` (columns … filter_drafts), ``correct`` (the
rest), ``redraft``. ``heads`` names the trained heads, which whoever knows the target finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.errors import UsageError, unknown

SPATIAL: Mapping[str, Any] = {
    "columns": 5,
    "rows": 1,
    "draft": "sample",
    "source": "committed",
    "guide_drafts": True,
    "filter_drafts": True,
}
REPAIR: Mapping[str, Any] = {
    "rounds": 2,
    "first_rounds": 1,
    "staged": 0,
    "law": "previous",
    "commit": "row",
    "states": "commit",
    "bonus": False,
    "stop": "never",
}
DEFAULTS: Mapping[str, Any] = {"heads": "ssd", "correct": "repair", "redraft": "maximal", **SPATIAL, **REPAIR}
"""What is meant where a method names nothing: SSD with k_h = 5, k_v = 1, r = 2 (2606.20543, table 9, Janus-Pro)."""

WORDS: Mapping[str, tuple[Any, ...]] = {
    "correct": ("repair", "truncate"),
    "redraft": ("maximal", "gumbel"),
    "draft": ("sample", "argmax"),
    "source": ("committed", "predicted"),
    "law": ("previous", "head"),
    "commit": ("row", "group"),
    "states": ("commit", "round"),
    "stop": ("never", "fixed_point"),
}
LEAST: Mapping[str, int] = {"columns": 1, "rows": 0, "rounds": 0, "first_rounds": 0, "staged": 0}


def check(settings: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for values that do not exist, and for settings that would be set and change nothing."""
    for name, value in settings.items():
        if name in WORDS and value not in WORDS[name]:
            raise unknown(name, str(value), WORDS[name])
        if name in LEAST and not (name == "rounds" and value == "exact"):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or value < LEAST[name]:
                orso = ", or exact" if name == "rounds" else ""
                raise UsageError(f"method.{name} must be a whole number of at least {LEAST[name]}{orso}, not {value!r}")
        if isinstance(DEFAULTS.get(name), bool) and not isinstance(value, bool):
            raise UsageError(f"method.{name} must be true or false, not {value!r}")
    chosen = {**DEFAULTS, **settings}
    for holds, unread, why in _conflicts(chosen):
        for name in unread:
            if holds and chosen[name] != DEFAULTS[name]:
                raise UsageError(f"method.{name}={chosen[name]} has no meaning {why}")
    if chosen["correct"] == "truncate" and chosen["rows"] > 1:
        raise UsageError("correct=truncate drafts one row at a time: set method.rows=1")
    if chosen["stop"] == "fixed_point" and (chosen["rounds"], chosen["redraft"]) != ("exact", "gumbel"):
        raise UsageError("stop=fixed_point waits for AR's tokens: set method.rounds=exact and method.redraft=gumbel")


def _conflicts(chosen: Mapping[str, Any]) -> list[tuple[bool, tuple[str, ...], str]]:
    """Whether something is chosen, the settings that nobody reads then, and how to say so."""
    exact, gumbel = chosen["rounds"] == "exact", chosen["redraft"] == "gumbel"
    return [
        (chosen["correct"] == "truncate", ("redraft", *REPAIR), "with correct=truncate, which has no rounds"),
        (chosen["rows"] == 0, ("first_rounds", "staged", "commit", "source"), "with rows=0: no row is drafted whole"),
        (exact, ("first_rounds", "staged"), "with rounds=exact, which repairs every block until it is right"),
        (exact and not gumbel, ("law", "draft"), "with rounds=exact, which needs drafts of known law"),
        (gumbel, ("law",), "with redraft=gumbel, which reads no law of a draft"),
        (chosen["commit"] == "group", ("staged",), "with commit=group"),
        (bool(chosen["bonus"]), ("states",), "with bonus=true, whose token comes from the commit pass"),
        (chosen["stop"] == "fixed_point", ("commit", "states", "bonus"), "with stop=fixed_point: no pass only commits"),
    ]


def lossless(settings: Mapping[str, Any]) -> bool:
    """Whether these settings keep the law of plain AR; ``Block.lossless`` is the same in terms of parts."""
    chosen = {**DEFAULTS, **settings}
    sampled = chosen["draft"] == "sample"
    if chosen["correct"] == "truncate":
        return bool(sampled)
    known = chosen["redraft"] == "gumbel" or (sampled and chosen["law"] == "previous")
    return bool(chosen["rounds"] == "exact" and known)


def widths(settings: Mapping[str, Any], columns: int, size: int, row_ends: bool = False) -> list[int]:
    """How many tokens the passes of these blocks read on a grid of ``columns`` and ``size`` tokens, the most last.

    Left out are the first pass and what the ends of rows and images cut shorter.
    """
    chosen = {**DEFAULTS, **settings}
    inside = chosen["rows"] > 0 or row_ends  # no block runs across the end of its row, whose first token has none
    across = min(chosen["columns"], (columns if inside else size) - 1)
    more = int(chosen["correct"] == "truncate")  # the token behind the block is drawn in the same pass
    bonus = int(chosen["bonus"] and across < (columns if inside else size) - 1)
    least = 1 if chosen["commit"] == "row" else chosen["rows"]
    most = least if chosen["rounds"] == 0 else chosen["rows"]  # without rounds a group is read by its commits alone
    down = {min(rows * columns, size - columns) for rows in (least, most)}
    return sorted({max(1, width + more) for width in (across, across + bonus, *(down if chosen["rows"] else ()))})
