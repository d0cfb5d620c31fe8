"""Quality against passes, from stored cells of one model: ``python scripts/quality_curve.py STORE… --out FILE``.

One CSV line and one point a cell: mean passes, the ratio to AR, accuracy and its difference to AR (95 %, paired by
prompt), over the images that all chosen cells have; the ratio of clocks over the images that AR and the cell were timed
together on, which may be fewer and of a later run. The same as a table in Markdown goes to stdout. Lossless cells draw
from one law, so lossy ones are also held against the mean of them all, several pictures a prompt: a narrower interval
than against AR's one.

Cells of several stores may stand together where AR's images are the same in each, token for token: a lossless method's
passes do not depend on which store they lie in.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from specbench.bench import metrics, stats, store
from specbench.bench.metrics import Timing
from specbench.bench.store import Key, Records
from specbench.errors import SpecbenchError
from specbench.report.labels import style

Pairs = Mapping[Key, tuple[Timing, Timing]]


def main() -> None:
    """Write the table and the curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--methods", nargs="+", default=["sjd", "scd", "scd_gs", "ssd", "mtp"])
    parser.add_argument("--windows", nargs="+", type=int, default=[16, 64], help="of methods that have one")
    parser.add_argument(
        "--without", nargs="*", default=["heads", "rows", "staged", "commit"], help="leave cells out that set these"
    )
    parser.add_argument("--least", type=int, default=32, help="images below which a cell is left out")
    parser.add_argument("--out", type=Path, required=True, help="name of both files, without their endings")
    given = parser.parse_args()
    cells, clocks = chosen(given), clocked(given)
    ar, keys = baseline(cells), common(list(cells.values()))
    pool = {key: lossless_share(cells.values(), key) for key in keys}
    lines = [
        line(name, cell, ar, pool, keys, clocks.get(name, {}))
        for name, cell in sorted(cells.items(), key=lambda item: order(item[1]))
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    curve(lines).savefig(given.out.with_suffix(".png"), dpi=110)
    print("\n".join(markdown(lines)))


def chosen(given: argparse.Namespace) -> dict[str, Records]:
    """The cells to show, by name; of two with one name the first store's."""
    found: dict[str, Records] = {}
    images: dict[Key, list[int]] = {}
    for folder in given.stores:
        for cell in store.read(folder).values():
            terms = cell.cell.terms
            guided = terms.sampling["guidance"] == given.guidance and terms.model == given.model
            if terms.method == "ar" and guided:
                for key, image in cell.images.items():
                    if images.setdefault(key, image["tokens"]) != image["tokens"]:
                        raise SpecbenchError(
                            f"AR's image {key} differs between the stores: they do not belong together"
                        )
            plain = not terms.overridden or terms.window is None
            asked = terms.method == "ar" or (terms.method in given.methods and plain)
            wide = terms.window is None or terms.window in given.windows
            asked = asked and not set(terms.overridden) & set(given.without)
            if guided and asked and wide and len(cell.images) >= given.least:
                found.setdefault(name_of(cell), cell)
    return found


def clocked(given: argparse.Namespace) -> dict[str, Pairs]:
    """By name, the clocks of AR and a cell that were taken together; of several cells those with the most images."""
    held = [cell for folder in given.stores for cell in store.read(folder).values()]
    plain = [cell for cell in held if cell.cell.terms.method == "ar"]
    found: dict[str, Pairs] = {}
    for cell in held:
        for ar in plain if cell.cell.terms.method != "ar" else ():
            pairs = metrics.timed_pairs(ar, cell, sorted(cell.images))
            if len(pairs) > len(found.get(name_of(cell), {})):
                found[name_of(cell)] = pairs
    return found


def name_of(cell: Records) -> str:
    """The method, its window, and what was set by hand; the rounds of a block decoder where nothing was."""
    terms = cell.cell.terms
    window = [] if terms.window is None else [f"W={terms.window}"]
    shown = terms.overridden or ("rounds",) * ("rounds" in terms.settings)
    return " ".join([terms.method, *window, *(f"{name}={terms.settings[name]}" for name in shown)])


def baseline(cells: dict[str, Records]) -> Records:
    """AR, which every ratio needs."""
    if "ar" not in cells:
        raise SpecbenchError("no store has enough images of AR")
    return cells["ar"]


def common(cells: Sequence[Records]) -> list[Key]:
    """Images that all cells have."""
    return sorted(set.intersection(*(set(cell.images) for cell in cells)))


def order(cell: Records) -> tuple[bool, str, int, str]:
    """AR first, then by method, window and settings."""
    terms = cell.cell.terms
    return terms.method != "ar", terms.method, terms.window or 0, name_of(cell)


def verdicts(cell: Records) -> dict[Key, dict[str, Any]]:
    """The scorer's verdict on each image."""
    return {(prompt, sample): score["verdict"] for (prompt, sample, *_), score in cell.scores.items()}


def lossless_share(cells: Iterable[Records], key: Key) -> float:
    """Share of the lossless cells whose image is right."""
    right = [float(verdicts(cell)[key]["correct"]) for cell in cells if cell.cell.lossless]
    return sum(right) / len(right)


def line(
    name: str, cell: Records, ar: Records, pool: Mapping[Key, float], keys: Sequence[Key], pairs: Pairs
) -> dict[str, Any]:
    """One cell in numbers; ``pool``: the share of lossless cells that are right."""
    ours, theirs = verdicts(cell), verdicts(ar)
    families: dict[str, dict[str, list[bool]]] = {}
    for key in keys:
        families.setdefault(ours[key]["family"], {}).setdefault(key[0], []).append(bool(ours[key]["correct"]))
    accuracy, _ = stats.mean_of_families(families)
    correct = [float(ours[key]["correct"]) for key in keys]
    prompts, kinds = [prompt for prompt, _ in keys], [ours[key]["family"] for key in keys]
    to_ar = stats.mean_difference_of_families(correct, [float(theirs[key]["correct"]) for key in keys], prompts, kinds)
    to_pool = stats.mean_difference_of_families(correct, [pool[key] for key in keys], prompts, kinds)
    ratio = metrics.nfe_ratio(ar, cell, keys)
    about = {"cell": name, "method": cell.cell.terms.method, "lossless": cell.cell.lossless, "images": len(keys)}
    about |= {"timed": len(pairs)}
    about["nfe"] = round(sum(metrics.nfe(cell.images[key]) for key in keys) / len(keys), 2)
    clocks = None if cell is ar else metrics.latency_ratio(pairs)
    named = {
        "nfe_ratio": ratio,
        "latency_ratio": clocks,
        "accuracy": accuracy,
        "difference_to_ar": to_ar,
        "difference_to_lossless": to_pool,
    }
    ends = {f"{what}{suffix}": "" if value is None else round(getattr(value, end), 4)
            for what, value in named.items()
            for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high"))}  # fmt: skip
    return {**about, **ends}


def markdown(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The table of a page: values with their intervals."""

    def shown(each: dict[str, Any], what: str, digits: int = 2, sign: str = "") -> str:
        low, value, high = (each[f"{what}{end}"] for end in ("_low", "", "_high"))
        if value == "":
            return ""
        text = f"{value:{sign}.{digits}f}"
        return text if low == high else f"{text} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"

    names = ["cell", "lossless", "passes", "NFE ratio", "latency ratio", "accuracy", "− AR", "− all lossless"]
    rows = [f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * 6]
    for each in lines:
        ratios = [shown(each, "nfe_ratio"), shown(each, "latency_ratio"), shown(each, "accuracy")]
        to = [shown(each, f"difference_to_{whom}", sign="+") for whom in ("ar", "lossless")]
        first = [f"`{each['cell']}`", "yes" if each["lossless"] else "no", f"{each['nfe']:g}"]
        rows.append(f"| {' | '.join([*first, *ratios, *to])} |")
    return rows


def curve(lines: Sequence[dict[str, Any]]) -> Figure:
    """Accuracy over mean passes; filled markers are lossless."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(each["method"] for each in lines)):
        points = sorted((each for each in lines if each["method"] == method), key=lambda each: each["nfe"])
        look = style(number)
        joined = [p for p in points if "correct=" not in p["cell"]]
        axes.plot([p["nfe"] for p in joined], [p["accuracy"] for p in joined], color=look["color"], alpha=0.4)
        for place, point in enumerate(points):
            fill = look["color"] if point["lossless"] else "white"
            reach = [[point["accuracy"] - point["accuracy_low"]], [point["accuracy_high"] - point["accuracy"]]]
            axes.errorbar(point["nfe"], point["accuracy"], yerr=reach, color=look["color"], marker=look["marker"],
                          markerfacecolor=fill, capsize=3, elinewidth=0.8, linestyle="",
                          label=method if place == 0 else None)  # fmt: skip
            text = point["cell"].removeprefix(method).strip().replace("rounds", "r").replace("correct=truncate", "cut")
            above = (number + place) % 2 == 0  # labels of neighbours on both sides of their points
            axes.annotate(
                text,
                (point["nfe"], point["accuracy"]),
                xytext=(6, 5 if above else -11),
                textcoords="offset points",
                fontsize=7,
            )
    axes.set_xscale("log")
    ticks = (16, 32, 64, 128, 256)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("passes an image (mean)")
    axes.set_ylabel("accuracy of the exact scorer [95 %]")
    axes.set_ylim(0, 1)
    axes.set_title(f"{lines[0]['images']} prompts; hollow: the picture law changes", fontsize=9)
    axes.legend(fontsize=8, loc="lower right")
    axes.grid(alpha=0.25)
    return figure


if __name__ == "__main__":
    main()
