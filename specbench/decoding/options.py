"""The words that describe a Jacobi decoder, and which of them belongs to which part.

Knows: names, nothing else: it is read before torch is.
Refuses to know: what the parts do (that stands beside each of them) and their defaults (those are the parts' own).

    redraft  independent · maximal · gumbel              alpha
    accept   strict · fresh · replay · grouped · lantern group gap distance · neighbours delta scale budget
    fill     uniform · onehot · left · above · left_law · above_law
    predict  none · growth · score                       history decay growth candidates verify
             context                                     history decay sharpness
    tree     none · siblings                             children depth
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from specbench.decoding import block_options
from specbench.errors import UsageError, unknown

DEFAULTS = {"redraft": "independent", "accept": "strict", "fill": "uniform", "predict": "none", "tree": "none"}
"""The axes, and the choice that is meant where a method names none: together they are SJD."""

OPTIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("redraft", "maximal"): ("alpha",),
    ("redraft", "gumbel"): ("alpha",),
    ("accept", "grouped"): ("group", "gap", "distance"),
    ("accept", "lantern"): ("neighbours", "delta", "scale", "budget"),
    ("predict", "growth"): ("history", "decay", "growth", "candidates", "verify"),
    ("predict", "score"): ("history", "decay", "growth", "candidates", "verify"),
    ("predict", "context"): ("history", "decay", "sharpness"),
    ("tree", "siblings"): ("children", "depth"),
}
"""(axis, choice) to the settings that this choice alone reads."""

LOSSY: frozenset[tuple[str, str]] = frozenset({("accept", "grouped"), ("accept", "lantern"), ("verify", "raw")})
"""(setting, value) that give up the law of plain AR, whatever else is chosen."""


WORDS: Mapping[str, tuple[str, ...]] = {"verify": ("posterior", "raw"), "budget": ("score", "law")}
"""Options that are one of a few words."""

RANGES: Mapping[str, tuple[type, float, float]] = {
    "alpha": (float, 0, 1),
    "history": (int, 1, 64),
    "decay": (float, 0, 1),
    "growth": (int, 0, 64),
    "candidates": (float, 0, 1),
    "sharpness": (float, 0, 1000),
    "group": (int, 1, 1 << 20),
    "gap": (float, 0, 1),
    "distance": (float, 0, float("inf")),
    "neighbours": (int, 1, 1 << 20),
    "delta": (float, 0, 1),
    "scale": (float, 1, float("inf")),
    "children": (int, 2, 64),
    "depth": (int, 2, 64),
}
"""Options that are numbers: kind, least and greatest value. ``scale`` may also be null."""

SHARE_OF_CODES = 8
"""Neighbourhoods hold at most a codebook's 8th: LANTERN's 1,000 of 8,192 is the largest share that was published."""


def check(given: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for a value that :data:`WORDS` or :data:`RANGES` exclude; other names pass."""
    for name, value in given.items():
        if name in WORDS and value not in WORDS[name]:
            raise unknown(name, str(value), WORDS[name])
        if name not in RANGES or (name == "scale" and value is None):
            continue
        kind, low, high = RANGES[name]
        number = isinstance(value, int | kind) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            noun = "whole number" if kind is int else "number"
            span = f"of at least {low:g}" if high > 1 << 19 else f"from {low:g} to {high:g}"
            raise UsageError(f"the setting {name} must be a {noun} {span}, not {value!r}")


def considered(candidates: float, kept: int) -> int:
    """How many tokens a share of the ``kept`` ones is: at least one."""
    return max(1, round(candidates * kept))


def near(neighbours: int, vocab: int) -> int:
    """How many nearest codes count as neighbours in a codebook of ``vocab``: at least one."""
    return max(1, min(neighbours, vocab // SHARE_OF_CODES))


def effective(settings: Mapping[str, Any], vocab: int, kept: int) -> dict[str, int]:
    """Numbers of tokens that the settings come to on a codebook of ``vocab`` of which sampling keeps ``kept``."""
    sizes: dict[str, Callable[[Any], int]] = {
        "candidates": lambda value: considered(value, kept),
        "group": lambda value: min(value, vocab),
        "neighbours": lambda value: near(value, vocab),
    }
    return {name: size(settings[name]) for name, size in sizes.items() if name in read(settings) and name in settings}


def names() -> tuple[str, ...]:
    """Every setting of a Jacobi decoder, axes first."""
    return ("decoder", *DEFAULTS, *dict.fromkeys(name for taken in OPTIONS.values() for name in taken))


def names_of(decoder: str) -> tuple[str, ...]:
    """Every setting that decoders of this kind can have; none but ``decoder`` for an unknown kind."""
    kinds = {"jacobi": names(), "block": ("decoder", *block_options.DEFAULTS)}
    return kinds.get(decoder, ("decoder",))


def taken_by(settings: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Axis → the options that the choice made there reads (empty where it reads none)."""
    chosen = {axis: str(settings.get(axis, default)) for axis, default in DEFAULTS.items()}
    return {axis: OPTIONS.get((axis, choice), ()) for axis, choice in chosen.items()}


def read(settings: Mapping[str, Any]) -> set[str]:
    """The options that the chosen parts read, all axes together."""
    return {name for taken in taken_by(settings).values() for name in taken}


def in_use(settings: Mapping[str, Any], asked: Collection[str] = ()) -> dict[str, Any]:
    """``settings`` without the options of parts that are not chosen any more (``method=best method.tree=none``).

    What was ``asked`` for stays, so that building can refuse it: it would change nothing.
    """
    if settings.get("decoder") != "jacobi":
        return dict(settings)
    unread = {name for taken in OPTIONS.values() for name in taken} - read(settings)
    return {name: value for name, value in settings.items() if name not in unread or name in asked}


def combine(settings: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for choices that exclude each other: a tree has the strict test of its siblings only."""
    tree, accept = (str(settings.get(axis, DEFAULTS[axis])) for axis in ("tree", "accept"))
    if tree != "none" and accept != "strict":
        raise UsageError(f"tree={tree} tests siblings with accept=strict, and cannot be combined with accept={accept}")


def lossless(settings: Mapping[str, Any], declared: bool = True) -> bool:
    """Whether these settings keep the law of plain AR, as far as the choice of parts decides it.

    ``declared``: what the method says of itself, which a choice of parts can spoil; blocks can also mend it (rounds).
    """
    if settings.get("decoder") == "block":
        return block_options.lossless(settings)
    matter = {"decoder", *DEFAULTS, *read(settings)}
    return declared and not any((name, value) in LOSSY for name, value in settings.items() if name in matter)
