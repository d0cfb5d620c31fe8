"""What the cost curve means, in one computed sentence a group.

A method that needs r times fewer passes is r times faster only where a pass over W tokens costs what a pass over one
costs. Papers measure on GPUs, where that nearly holds; a CPU is different. This file takes the measured T(W)/T(1) and
says what follows from it.

Knows: the document's cost curve, latency ratios and phase times.
Refuses to know: who measured them; it never estimates a time that was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench.report.groups import groups_of

Json = Mapping[str, Any]


def cost_sentences(document: Json) -> list[str]:
    """Say for each group what a wide pass costs, what a flat cost curve would give, and which window is fastest.

    Of the methods at the widest window it follows the one with the fewest passes. Nothing is said of a group where
    nothing was timed: without a cost curve, or where no method carries a latency ratio (batches above 1, failed cells).
    """
    found = []
    for group in groups_of(document):
        sentence = _sentence(group.shared.get("cost_curve"), group.cells)
        if sentence is not None:
            found.append(f"{group.label}: {sentence}" if group.label else sentence)
    return found


def _sentence(stored: Json | None, cells: Sequence[Json]) -> str | None:
    curve = _curve(stored)
    timed = [cell for cell in cells if cell.get("method") != "ar" and _latency(cell) is not None]
    if stored is None or not curve or not timed:
        return None
    here = bool(stored.get("here"))
    width = max(_widest(cell) for cell in timed)
    widest = max((cell for cell in timed if _widest(cell) == width), key=lambda cell: _value(cell, "nfe_ratio") or 0.0)
    return f"{_what_a_pass_costs(curve, width, here)}; {_what_follows(widest)}; {_what_is_fastest(timed, here)}."


def _what_a_pass_costs(curve: Mapping[int, float], width: int, here: bool) -> str:
    others = ", ".join(f"{w} tokens {ratio:.2f}" for w, ratio in sorted(curve.items()) if w not in (1, width))
    more = f" ({others})" if others else ""
    # Stored clocks may be another machine's, or this one's with other threads or libraries.
    place = "On this machine" if here else "Where this was timed"
    if width not in curve:
        return f"{place} a pass over {width} tokens was not timed{more}"
    return f"{place} a pass over {width} tokens costs {curve[width]:.2f} single passes{more}"


def _what_follows(cell: Json) -> str:
    passes, here, flat = _value(cell, "nfe_ratio"), _latency(cell), _flat(cell)
    text = f"{_named(cell)} makes {passes:.2f}x fewer passes"
    text += f" and its latency ratio is {here:.2f}x"
    share = _sampling_share(cell)
    text += f" ({share:.0%} of its time goes into sampling)" if share is not None else ""
    if flat is not None:
        text += f"; were the cost curve flat, as nearly on the papers' GPUs, it would be {flat:.2f}x"
    return text


def _what_is_fastest(timed: list[Json], here: bool) -> str:
    best = max(timed, key=lambda cell: _latency(cell) or 0.0)
    ratio = _latency(best) or 0.0
    verdict = f"{ratio:.2f}x" if ratio > 1 else f"{ratio:.2f}x: plain AR is faster still"
    return f"fastest {'here' if here else 'there'} is {_named(best)} ({verdict})"


def _curve(curve: Json | None) -> dict[int, float]:
    if not curve or not curve.get("windows"):
        return {}
    return {int(w): float(r) for w, r in zip(curve["windows"], curve["ratio"], strict=True) if r is not None}


def _value(cell: Json, name: str) -> float | None:
    ratio = cell.get(name)
    value = ratio.get("value") if isinstance(ratio, Mapping) else ratio
    return None if value is None else float(value)


def _latency(cell: Json) -> float | None:
    return _value(cell, "latency_ratio")


def _flat(cell: Json) -> float | None:
    return _value(cell, "latency_ratio_flat")


def _widest(cell: Json) -> int:
    """Most tokens of a pass: the window, or what the widest pass of a method without one had."""
    return int(cell.get("window") or (cell.get("effective") or {}).get("window") or 1)


def _named(cell: Json) -> str:
    size = f"at window {cell['window']}" if cell.get("window") else f"(up to {_widest(cell)} tokens a pass)"
    return f"{cell['method']} {size}"


def _sampling_share(cell: Json) -> float | None:
    timing = cell.get("timing")
    if not isinstance(timing, Mapping):
        return None
    parts = [float(timing.get(name) or 0.0) for name in ("prefill_s", "pass_s", "sampling_s")]
    return parts[2] / sum(parts) if sum(parts) > 0 else None
