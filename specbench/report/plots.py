"""Curves of a run: passes against the window, and the diagnostics by slot and offset.

Knows: matplotlib, drawn without a display, and the document's numbers.
Refuses to know: how a number was computed. Maps are ``maps``'s, tables ``diagnostics``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specbench.report.labels import names_of, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
Point = tuple[int, float, float, float]
"""Window, value, and the ends of its interval."""


def nfe_against_window(cells: Sequence[Json]) -> Figure | None:
    """Draw the NFE ratio (left) and mean NFE (right) with 95 % intervals against the window, one line a method.

    AR's passes are constant, so the interval of a mean NFE is that of the ratio, turned over. ``None`` with no cell
    that has a ratio and a window.
    """
    from matplotlib.figure import Figure

    own = [cell for cell in cells if cell.get("method") != "ar" and cell.get("window") and _value(cell) is not None]
    if not own:
        return None
    ratios: dict[str, list[Point]] = {}
    passes: dict[str, list[Point]] = {}
    for cell, name in zip(own, names_of(own), strict=True):
        value, low, high = _interval(cell["nfe_ratio"])
        ratios.setdefault(name, []).append((int(cell["window"]), value, low, high))
        mean = (cell.get("nfe") or {}).get("mean")
        if mean is not None:
            passes.setdefault(name, []).append((int(cell["window"]), mean, mean * value / high, mean * value / low))
    figure = Figure(figsize=(8.6, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, ratios)
    _lines(right, passes)
    _level(left, 1, "plain AR")
    left.set_ylabel("NFE ratio, AR ÷ method [95 %]")
    right.set_ylabel("NFE, passes per image [95 %]")
    ar = next((c["nfe"]["mean"] for c in cells if c.get("method") == "ar" and (c.get("nfe") or {}).get("mean")), None)
    if ar is not None:
        _level(right, float(ar), "plain AR")
    figure.legend(*left.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def diagnostic_curves(cells: Sequence[Json], published: Sequence[Json]) -> Figure | None:
    """Draw what slots and offsets tell: expected acceptance and changed drafts by slot, TV behind a replaced token.

    ``None`` where no cell carries diagnostics.
    """
    from matplotlib.figure import Figure

    own = [cell for cell in cells if ((cell.get("diagnostics") or {}).get("slots") or {}).get("drafts")]
    probes = [cell["diagnostics"]["probe"] for cell in cells if (cell.get("diagnostics") or {}).get("probe")]
    if not own and not probes:
        return None
    figure = Figure(figsize=(12.6, 4), layout="constrained")
    acceptance, changed, perturbed = figure.subplots(1, 3)
    for number, (cell, name) in enumerate(zip(own, names_of(own), strict=True)):
        label, slots = f"{name}  W={cell['window']}", cell["diagnostics"]["slots"]
        look = {**style(number), "markersize": 3, "linewidth": 1.2, "label": label}
        acceptance.plot(range(len(slots["overlap"])), _gaps(slots["overlap"]), **look)
        changed.plot(range(len(slots["changed"])), _gaps(slots["changed"]), **look)
    for axes, label in (
        (acceptance, "Σ min(p, q), expected acceptance"),
        (changed, "share of open drafts that change"),
    ):
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("slot of the window (0: the first)")
        axes.set_ylabel(label)
    for number, probe in enumerate(probes[:1]):
        tv = _gaps(probe["tv"])
        perturbed.plot(range(1, len(tv) + 1), tv, **{**style(number + 6), "markersize": 3, "label": "measured"})
    _published_perturbation(perturbed, published)
    if own:
        handles, labels = acceptance.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=min(5, len(own)), fontsize=9)
    return figure


def _published_perturbation(axes: Axes, published: Sequence[Json]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    known = [(int(row["setting"].split()[-1]), float(row["value"])) for row in published if _is_perturbation(row)]
    if known:
        axes.plot(*zip(*known, strict=True), "x", color="#D55E00", markersize=6, label="SJD-PAC, figure 4 (masked)")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("offset behind the replaced token")
    axes.set_ylabel("TV of the law there")
    axes.legend(frameon=False, fontsize=9)


def _is_perturbation(row: Json) -> bool:
    return row.get("metric") == "perturbed_tv"


def _lines(axes: Axes, lines: Mapping[str, Sequence[Point]]) -> None:
    from matplotlib.ticker import NullLocator

    for number, (name, points) in enumerate(lines.items()):
        windows, values, lows, highs = zip(*sorted(points), strict=True)
        down = [max(0.0, v - low) for v, low in zip(values, lows, strict=True)]
        up = [max(0.0, high - v) for v, high in zip(values, highs, strict=True)]
        axes.errorbar(windows, values, yerr=[down, up], capsize=3, label=name, markersize=5, **style(number))
    ticks = sorted({window for points in lines.values() for window, *_ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("window W (tokens per pass)")


def _level(axes: Axes, height: float, text: str) -> None:
    axes.axhline(height, color="0.7", linewidth=1, zorder=0)
    axes.annotate(
        text, (1, height), xycoords=("axes fraction", "data"), xytext=(-3, 3), textcoords="offset points",
        ha="right", color="0.45", fontsize=9,
    )  # fmt: skip
    axes.set_ylim(top=max(axes.get_ylim()[1], height * 1.12))


def _value(cell: Json) -> float | None:
    ratio = cell.get("nfe_ratio")
    return None if not ratio or ratio.get("value") is None else float(ratio["value"])


def _interval(ratio: Json) -> tuple[float, float, float]:
    value = float(ratio["value"])
    low, high = (float(ratio[end]) if ratio.get(end) is not None else value for end in ("low", "high"))
    return value, low, high


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
