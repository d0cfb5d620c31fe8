"""Passes against the side of the grid, on a lattice field with a stated entropy: ``python scripts/growth.py``.

AR needs n² passes. What does a method need as the image grows? Each method decodes images on fields of side n, and
log NFE = a log n + b is fitted by least squares, with a 95 % bootstrap interval over images for the exponent a. SSD's
heads are in closed form (the exact law given the row above), so that no training can be blamed. Beside the passes
stands the share of codes that equal their left and their upper neighbour: a method that keeps the law has AR's shares.
Writes a CSV (one line a method and side, and one a fit) and a PNG.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specbench.decoding.block import Block
from specbench.decoding.build import build_decoder
from specbench.decoding.correct import Repair
from specbench.decoding.interfaces import Decoder
from specbench.models.lattice import Lattice, LatticeHeads, with_entropy

SIDES = (8, 12, 16, 24, 32, 48, 64)
Make = Callable[[Lattice], Decoder]


def chain(redraft: str, window: int | None) -> Make:
    """A Jacobi method with a fixed window, or with one row's."""
    settings = {"decoder": "jacobi", "redraft": redraft}
    return lambda target: build_decoder(settings, min(window or target.side, target.grid.size))


def block(rounds: int | str) -> Make:
    """SSD with heads in closed form."""
    return lambda target: Block(correct=Repair(rounds=rounds), heads=LatticeHeads(target))  # type: ignore[arg-type]


METHODS: dict[str, Make] = {
    "ar": lambda _: build_decoder({"decoder": "ar"}),
    "sjd W=32": chain("independent", 32),
    "sjd W=n": chain("independent", None),
    "scd W=32": chain("maximal", 32),
    "scd W=n": chain("maximal", None),
    "ssd r=0": block(0),
    "ssd r=2": block(2),
    "ssd exact": block("exact"),
}


def measure(base: Lattice, side: int, name: str, images: int, seed: int) -> tuple[list[int], list[float], list[float]]:
    """NFE, left agreement and upper agreement of each image."""
    target = replace(base, side=side, states=name.startswith("ssd"))
    done = METHODS[name](target).decode(target, [f"growth {i}" for i in range(images)], seed=seed)
    tokens = done.tokens.unflatten(1, (side, side))
    left = (tokens[:, 1:, 1:] == tokens[:, 1:, :-1]).double().mean((1, 2))
    above = (tokens[:, 1:, 1:] == tokens[:, :-1, 1:]).double().mean((1, 2))
    return done.trace.nfe.tolist(), left.tolist(), above.tolist()


def exponent(sides: Sequence[int], nfe: Sequence[Sequence[int]], seed: int = 0) -> tuple[float, float, float]:
    """Slope of log NFE on log n over all images, and its 95 % bootstrap interval (images resampled within a side)."""
    x, y = np.log(np.asarray(sides, float)), np.log(np.asarray(nfe, float))
    rng = np.random.default_rng(seed)

    def slope(values: Any) -> float:
        return float(np.polyfit(x, values.mean(1), 1)[0])

    picks = [rng.integers(0, y.shape[1], y.shape) for _ in range(2000)]
    low, high = np.quantile([slope(np.take_along_axis(y, pick, 1)) for pick in picks], [0.025, 0.975])
    return slope(y), float(low), float(high)


def draw(rows: list[dict[str, Any]], fits: dict[str, tuple[float, float, float]], title: str, path: Path) -> None:
    """Both axes logarithmic, one line a method, its exponent in the legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, (slope, low, high) in fits.items():
        own = [row for row in rows if row["method"] == name]
        style = {"ar": "k--"}.get(name, "o-")
        text = f"{name}: {slope:.2f} [{low:.2f}, {high:.2f}]"
        axes.plot([r["side"] for r in own], [r["nfe"] for r in own], style, markersize=3, linewidth=1, label=text)
    axes.set(xscale="log", yscale="log", xlabel="side of the grid n", ylabel="passes (NFE)", title=title)
    axes.set_xticks(sorted({r["side"] for r in rows}), [str(s) for s in sorted({r["side"] for r in rows})])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), title="exponent [95 %]")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=int, default=64, help="codebook size K")
    parser.add_argument("--nats", type=float, default=2.5, help="entropy of a code given its neighbours")
    parser.add_argument("--images", type=int, default=8, help="images per side")
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="sides of the grid")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="which methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/growth.csv"), help="the CSV; the PNG lies beside it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    base = with_entropy(max(given.sides), given.codes, given.nats)
    about = {"codes": given.codes, "nats": given.nats, "coupling": round(base.coupling, 4), "images": given.images}
    print(f"lattice: {about}", flush=True)
    rows: list[dict[str, Any]] = []
    fits = {}
    for name in given.methods:
        counts = []
        for side in given.sides:
            nfe, left, above = measure(base, side, name, given.images, given.seed)
            counts.append(nfe)
            means = [round(float(np.mean(x)), 4) for x in (nfe, left, above)]
            agreement = {"left_agreement": means[1], "above_agreement": means[2]}
            passes = {"nfe": means[0], "nfe_low": min(nfe), "nfe_high": max(nfe)}
            rows.append({"method": name, "side": side, **passes, **agreement, **about})
            print(f"{name:<10} n={side:<3} nfe {means[0]:8.1f}  left {means[1]:.3f}  above {means[2]:.3f}", flush=True)
        if len(given.sides) > 1:
            fits[name] = exponent(given.sides, counts)
            slope, low, high = (round(x, 4) for x in fits[name])
            rows.append({"method": name, "exponent": slope, "exponent_low": low, "exponent_high": high, **about})
            print(f"{name:<10} NFE ~ n^{slope:.2f} [{low:.2f}, {high:.2f}]", flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        columns = ["method", "side", "nfe", "nfe_low", "nfe_high", "left_agreement", "above_agreement", "exponent",
                   "exponent_low", "exponent_high", *about]  # fmt: skip
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    measured = [row for row in rows if "side" in row]
    draw(measured, fits, f"Lattice of {given.codes} codes, {given.nats:g} nats", given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
