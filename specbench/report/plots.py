"""Plots of a run: NFE against window, and where on the image drafts were accepted.

Knows: matplotlib (drawn without a display) and the records' integers.
Refuses to know: how either was computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = Mapping[str, Any]


def nfe_against_window(cells: Sequence[Json]) -> Figure | None:
    """Draw the NFE ratio with its 95 % interval against the window, one line a method; ``None`` with no such cell."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    for cell in cells:
        ratio = cell.get("nfe_ratio")
        if cell.get("method") == "ar" or not cell.get("window") or not ratio or ratio.get("value") is None:
            continue
        value = float(ratio["value"])
        low, high = (float(ratio[k]) if ratio.get(k) is not None else value for k in ("low", "high"))
        lines.setdefault(str(cell["method"]), []).append((int(cell["window"]), value, low, high))
    if not lines:
        return None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for method, points in lines.items():
        windows, values, lows, highs = zip(*sorted(points), strict=True)
        down = [max(0.0, v - low) for v, low in zip(values, lows, strict=True)]
        up = [max(0.0, high - v) for v, high in zip(values, highs, strict=True)]
        axes.errorbar(windows, values, yerr=[down, up], marker="o", capsize=3, label=_plain(method))
    ticks = sorted({window for points in lines.values() for window, *_ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.axhline(1, color="0.7", linewidth=1)
    axes.annotate("plain AR", (ticks[0], 1), xytext=(0, 3), textcoords="offset points", color="0.5", fontsize=9)
    axes.set_xlabel("window W (tokens per pass)")
    axes.set_ylabel("NFE ratio, AR ÷ method [95 %]")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def accepted_positions(accepted: Sequence[int], size: int) -> list[bool]:
    """Tell for every token whether it was an accepted draft or drawn from the target.

    Each pass commits its ``accepted`` drafts and then one token drawn from the target (the residual's draw after a
    rejection, the free one after full acceptance); the last pass may end at the image's last token before that.

    >>> accepted_positions([0, 2, 1], 6)
    [False, True, True, False, True, False]
    """
    flags: list[bool] = []
    for count in accepted:
        flags += [True] * int(count) + [False]
    return flags[:size]


def acceptance_maps(cells: Sequence[Json], pictures: Sequence[Json]) -> Figure | None:
    """Draw for every method cell, over the image grid: the share of images whose token was an accepted draft (above)
    and the mean pass at which the token got its final value (below). ``None`` where no trace is at hand.
    """
    from matplotlib.figure import Figure

    shown = [(cell, maps) for cell in cells if cell.get("method") != "ar" and (maps := _maps(cell, pictures))]
    if not shown:
        return None
    figure = Figure(figsize=(1 + 2.2 * len(shown), 5), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False)
    latest = max(float(max(map(max, fixed))) for _, (_, fixed) in shown)
    for column, (cell, (share, fixed)) in enumerate(shown):
        top = axes[0][column].imshow(share, vmin=0, vmax=1, cmap="viridis")
        low = axes[1][column].imshow(fixed, vmin=0, vmax=latest, cmap="magma")
        axes[0][column].set_title(f"{_plain(str(cell['method']))}  W={cell.get('window')}", fontsize=9)
        for axis in (axes[0][column], axes[1][column]):
            axis.set_xticks([])
            axis.set_yticks([])
    axes[0][0].set_ylabel("share of accepted drafts")
    axes[1][0].set_ylabel("pass that fixed the token")
    figure.colorbar(top, ax=axes[0], shrink=0.8, pad=0.01)
    figure.colorbar(low, ax=axes[1], shrink=0.8, pad=0.01)
    return figure


def _maps(cell: Json, pictures: Sequence[Json]) -> tuple[Any, Any] | None:
    import numpy as np

    traced = [p for p in pictures if p["cell"] == cell["id"] and p.get("fixed_pass") and p.get("accepted") is not None]
    if not traced:
        return None
    rows, columns, *frames = traced[0]["grid"]
    height = rows * (frames[0] if frames else 1)
    size = height * columns
    share = np.mean([accepted_positions(p["accepted"], size) for p in traced], axis=0)
    fixed = np.mean([p["fixed_pass"] for p in traced], axis=0)
    return share.reshape(height, columns), fixed.reshape(height, columns)


def _plain(text: str) -> str:
    # A dollar sign would start mathematics, a leading underscore hides a legend entry.
    return text.replace("$", r"\$").lstrip("_")
