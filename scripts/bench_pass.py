"""What a pass costs against the weights that it must read, in milliseconds: ``make bench-pass``.

A Llama of 330 million parameters with random weights and the head of Janus, batch 1, no guidance, in the middle of an
image of 24×24 codes behind a prompt of 64 words. The floor is all of its linear layers called back to back on inputs of
the same width, turn by turn with the pass, so that a busy machine slows both. Columns: medians and minima of processor
time, medians by the wall, the ratio of the medians and that of the minima. The float32 pass at W = 1 may cost 1.25
times the floor; ``--check`` ends with exit code 1 if the ratio of the medians is above.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import random_targets as make
import torch

from specbench.decoding.interfaces import START, Grid, Prompt

SIZES = {"width": 1024, "layers": 24, "heads": 16, "feedforward": 2816, "codes": 16384}
TINY = {"width": 64, "layers": 2, "heads": 2, "feedforward": 128, "codes": 64}
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
LIMIT = 1.25


class Spent(NamedTuple):
    """Milliseconds of processor time and by the wall, one of each per turn."""

    processor: list[float]
    wall: list[float]


def in_turn(calls: list[Callable[[], object]], turns: int) -> list[Spent]:
    """What each call costs; all of them are called once per turn, so that a busy machine slows them alike."""
    spent = [Spent([], []) for _ in calls]
    for turn in range(turns + 1):
        for call, own in zip(calls, spent, strict=True):
            start, wall = time.process_time(), time.perf_counter()
            call()
            if turn:  # the first one allocates
                own.processor.append(1000 * (time.process_time() - start))
                own.wall.append(1000 * (time.perf_counter() - wall))
    return spent


@torch.inference_mode()
def measure(dtype: torch.dtype, sizes: dict[str, int], windows: tuple[int, ...], turns: int) -> dict[int, list[Spent]]:
    """What a pass and its floor cost for each window."""
    grid = Grid(24, 24)
    target = make.target(make.janus, sizes, grid, dtype, "cpu")
    canvas, half = target.begin([Prompt("bench", "")]), grid.size // 2
    canvas.forward(torch.cat([torch.tensor([[START]]), torch.arange(half - 1)[None] % 64], 1))
    canvas.keep(torch.tensor([half]))
    found = {}
    for window in windows:
        tokens = torch.arange(window)[None] % 64
        found[window] = in_turn([lambda t=tokens: canvas.forward(t), make.floor(target.network, window)], turns)
    parameters = sum(p.numel() for name, p in target.network.named_parameters() if "vision_model" not in name)
    print(f"{str(dtype).removeprefix('torch.')}: {parameters / 1e6:.0f} million parameters")
    return found


PARTS = [f"{what}_{how}" for what in ("pass", "floor") for how in ("ms", "min_ms", "wall_ms")]
COLUMNS = ["dtype", "window", *PARTS, "ratio", "ratio_of_minima"]


HEADS = ("W", "pass ms", "min", "wall", "floor ms", "min", "wall", "ratio", "of min")


def row(dtype: str, window: int, whole: Spent, least: Spent) -> list[Any]:
    """One line of the table, by :data:`COLUMNS`: medians where nothing else is said."""
    median = statistics.median
    parts = [x for own, wall in (whole, least) for x in (median(own), min(own), median(wall))]
    return [dtype, window, *parts, parts[0] / parts[3], parts[1] / parts[4]]


def main() -> int:
    """Print the table; with ``--check``, 1 if the float32 pass at W = 1 is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15, help="calls that a median is taken of")
    parser.add_argument("--tiny", action="store_true", help="a model of no size, to try the script")
    parser.add_argument("--csv", type=Path, help="write the table to this file as well")
    parser.add_argument("--check", action="store_true", help=f"fail if the float32 pass at W = 1 is above {LIMIT} x")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        found = measure(dtype, TINY if arguments.tiny else SIZES, WINDOWS, arguments.turns)
        print("{:>4}{:>10}{:>8}{:>8}{:>10}{:>8}{:>8}{:>7}{:>8}".format(*HEADS), flush=True)
        for window, spent in found.items():
            rows.append(row(str(dtype).removeprefix("torch."), window, *spent))
            print(
                "{:>4}{:>10.1f}{:>8.1f}{:>8.1f}{:>10.1f}{:>8.1f}{:>8.1f}{:>7.2f}{:>8.2f}".format(*rows[-1][1:]),
                flush=True,
            )
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [COLUMNS, *([f"{x:.4g}" if isinstance(x, float) else x for x in r] for r in rows)]
            )
    ratio = rows[0][COLUMNS.index("ratio")]
    print(f"float32 at W = 1: {ratio:.2f} of the floor, target {LIMIT}")
    return int(arguments.check and ratio > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
