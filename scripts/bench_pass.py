"""What a pass costs against the weights that it must read, in milliseconds: ``make bench-pass``.

A Llama of 330 million parameters with random weights and the head of Janus, batch 1, no guidance, in the middle of an
image of 24×24 codes behind a prompt of 64 words. The floor is all of its linear layers called back to back on inputs of
the same width, turn by turn with the pass, so that a busy machine slows both. The float32 pass at W = 1 may cost 1.25
times the floor (``--check`` makes more an error).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import random_targets as make
import torch

from specbench.decoding.interfaces import START, Grid, Prompt

SIZES = {"width": 1024, "layers": 24, "heads": 16, "feedforward": 2816, "codes": 16384}
TINY = {"width": 64, "layers": 2, "heads": 2, "feedforward": 128, "codes": 64}
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
LIMIT = 1.25


def in_turn(calls: list[Callable[[], object]], turns: int) -> list[float]:
    """The median milliseconds of processor time of each call; all of them are called once per turn."""
    spent: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for call, own in zip(calls, spent, strict=True):
            start = time.process_time()
            call()
            if turn:  # the first one allocates
                own.append(1000 * (time.process_time() - start))
    return [statistics.median(own) for own in spent]


@torch.inference_mode()
def measure(
    dtype: torch.dtype, sizes: dict[str, int], windows: tuple[int, ...], turns: int
) -> dict[int, tuple[float, float]]:
    """Milliseconds of a pass and of its floor for each window."""
    grid = Grid(24, 24)
    target = make.target(make.janus, sizes, grid, dtype, "cpu")
    canvas, half = target.begin([Prompt("bench", "")]), grid.size // 2
    canvas.forward(torch.cat([torch.tensor([[START]]), torch.arange(half - 1)[None] % 64], 1))
    canvas.keep(torch.tensor([half]))
    found = {}
    for window in windows:
        tokens = torch.arange(window)[None] % 64
        found[window] = tuple(in_turn([lambda t=tokens: canvas.forward(t), make.floor(target.network, window)], turns))
    parameters = sum(p.numel() for name, p in target.network.named_parameters() if "vision_model" not in name)
    print(f"{str(dtype).removeprefix('torch.')}: {parameters / 1e6:.0f} million parameters")
    return found


def main() -> int:
    """Print the table; with ``--check``, 1 if the float32 pass at W = 1 is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7, help="calls that a median is taken of")
    parser.add_argument("--tiny", action="store_true", help="a model of no size, to try the script")
    parser.add_argument("--check", action="store_true", help=f"fail if the float32 pass at W = 1 is above {LIMIT} x")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ratio = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        found = measure(dtype, TINY if arguments.tiny else SIZES, WINDOWS, arguments.turns)
        print(f"{'W':>4}{'pass ms':>10}{'floor ms':>10}{'ratio':>7}{'ms/token':>10}")
        for window, (whole, least) in found.items():
            print(f"{window:>4}{whole:>10.1f}{least:>10.1f}{whole / least:>7.2f}{whole / window:>10.2f}", flush=True)
        ratio = ratio or found[1][0] / found[1][1]
    print(f"float32 at W = 1: {ratio:.2f} of the floor, target {LIMIT}")
    return int(arguments.check and ratio > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
