"""What passes cost on a GPU: every family at its real width with few layers and random weights, in about 8 minutes.

    .venv/bin/python scripts/gpu_check.py                   on a GPU, bfloat16, eager
    .venv/bin/python scripts/gpu_check.py --fast graphs     the layers as CUDA graphs, if they compute the same
    .venv/bin/python scripts/gpu_check.py --fast compile    the layers through torch.compile, likewise
    .venv/bin/python scripts/gpu_check.py --tiny --device cpu   to try the script

For each family: milliseconds of a pass for W = 1…64 beside the floor, which is the time to read the linear layers'
weights once (all of them called back to back on W tokens); the latency of AR, SJD and SCD on a short image; and, where
the layers are those of transformers' Llama, plain ``generate`` of as many tokens on the same layers beside our AR
(``bench_generate.py``): is the baseline a straw man? Random weights: counters mean nothing.

Each family has its share of ``--seconds``; what does not fit is skipped, and listed at the end. Exit code 1 if faster
layers were refused because their logits differ, or if a family failed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import bench_generate
import fast_trunk
import random_targets as make
import torch

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import START, Grid, Prompt
from specbench.decoding.laws import Sampling

WINDOWS = (1, 2, 4, 8, 16, 32, 64)
METHODS = {
    "ar": {"decoder": "ar"},
    "sjd": {"decoder": "jacobi", "redraft": "independent", "accept": "strict"},
    "scd": {"decoder": "jacobi", "redraft": "maximal", "accept": "strict"},
}
FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, int], Grid]] = {
    "janus 7B": (make.janus, {"width": 4096, "heads": 32, "feedforward": 11008, "codes": 16384}, Grid(16, 24)),
    "janus 1B": (make.janus, {"width": 2048, "heads": 16, "feedforward": 5632, "codes": 16384}, Grid(16, 24)),
    "lumina 7B": (
        make.lumina,
        {"width": 4096, "heads": 32, "feedforward": 11008, "codes": 8192},
        Grid(8, 48, row_ends=True),
    ),
    "emu3 8B": (
        make.emu3,
        {"width": 4096, "heads": 32, "feedforward": 14336, "codes": 32768},
        Grid(4, 90, row_ends=True),
    ),
    "llamagen XL": (make.llamagen, {"width": 1280, "heads": 20, "feedforward": 3584, "codes": 16384}, Grid(16, 24)),
    "cosmos 4B": (make.cosmos, {"width": 4096, "heads": 32, "feedforward": 14336, "codes": 64000}, Grid(8, 48)),
}
PROMPT = [Prompt("gpu", "")]


class Share:
    """The seconds that a family may take, and what was skipped for want of them."""

    def __init__(self, family: str, seconds: float, skipped: list[str]) -> None:
        self.family, self.end, self.skipped = family, time.perf_counter() + seconds, skipped

    def left(self, what: str) -> bool:
        """Whether there is time for ``what``; if not, it is noted as skipped."""
        if time.perf_counter() < self.end:
            return True
        self.skipped.append(f"{self.family}: {what}")
        return False


def milliseconds(call: Callable[[], object], device: str, turns: int) -> float:
    """Median of ``turns`` calls by the wall, each waited for, behind two that warm up."""
    spent = []
    for turn in range(turns + 2):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        if turn >= 2:
            spent.append(1000 * (time.perf_counter() - start))
    return statistics.median(spent)


def wait(device: str) -> None:
    """Until the device has done what it was told."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def tokens(width: int, device: str, start: bool = False) -> torch.Tensor:
    """Codes [1, width], after the mark of the start if asked for."""
    row = torch.arange(width, device=device)[None] % 64
    return torch.cat([torch.full_like(row[:, :1], START), row[:, 1:]], 1) if start else row


@torch.inference_mode()
def passes(target: Any, device: str, turns: int, share: Share) -> None:
    """Print milliseconds of a pass and of its floor for each window, in the middle of an image."""
    canvas, half = target.begin(PROMPT), target.grid.size // 2
    canvas.forward(tokens(half, device, start=True))
    canvas.keep(torch.tensor([half], device=device))
    print(f"{'W':>4}{'pass ms':>10}{'floor ms':>10}{'ratio':>7}")
    for window in WINDOWS:
        if not share.left(f"passes of W = {window}"):
            continue
        fed = tokens(window, device)
        whole = milliseconds(lambda fed=fed: canvas.forward(fed), device, turns)
        least = milliseconds(make.floor(target.network, window), device, turns)
        print(f"{window:>4}{whole:>10.3f}{least:>10.3f}{whole / least:>7.2f}", flush=True)


def latency(target: Any, method: str, window: int, device: str) -> tuple[float, int]:
    """Seconds of one image, and its passes."""
    decoder: Any = build_decoder(METHODS[method], None if method == "ar" else window, Sampling(top_k=1000))
    for seed in range(2):
        wait(device)
        start = time.perf_counter()
        generation = decoder.decode(target, PROMPT, seed=seed)
        wait(device)
    return time.perf_counter() - start, int(generation.trace.nfe[0])


def examine(name: str, arguments: argparse.Namespace, share: Share) -> bool:
    """Everything about one family, printed; whether it went as it should."""
    family, sizes, grid = FAMILIES[name]
    sizes = {**sizes, "layers": arguments.layers}
    if arguments.tiny:
        sizes |= {"width": 64, "heads": 4, "feedforward": 96, "codes": 64}
        grid = grid._replace(rows=2)
    device, dtype = arguments.device, getattr(torch, arguments.dtype)
    target, good = make.target(family, sizes, grid, dtype, device), True
    print(f"\n{name}: {arguments.layers} layers, {arguments.dtype}, {grid.size} tokens")
    if bench_generate.fits(target) and share.left("generate"):
        beside(target, device)
    if arguments.fast and share.left(arguments.fast):
        try:
            print(f"{arguments.fast}: largest difference of logits {fast_trunk.hasten(target, arguments.fast):.1e}")
        except fast_trunk.Unfit as reason:
            print(f"{reason}; eager below")
            good = "differ" not in str(reason)
    passes(target, device, arguments.turns, share)
    for method in METHODS:
        if share.left(f"latency of {method}"):
            seconds, nfe = latency(target, method, 32, device)
            print(f"{method:<10}{seconds:>8.3f} s{nfe:>6} passes{1000 * seconds / nfe:>8.3f} ms each", flush=True)
    return good


def beside(target: Any, device: str) -> None:
    """Print our AR, eager, beside transformers' ``generate`` on the same layers."""
    plain = bench_generate.Plain(target)
    same = bench_generate.equal(target, plain)
    spent = bench_generate.in_turn(target, plain, 2, lambda: wait(device))
    for who, seconds in spent.items():
        what = "eager ar" if who == "ar" else f"generate, {who} cache, {same[who]:.0%} of greedy tokens as ours"
        each = 1000 * min(seconds) / target.grid.size
        print(f"{what:<56}{min(seconds):>8.3f} s{each:>8.3f} ms a token", flush=True)


def main() -> int:
    """Examine the families that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default=None, choices=["bfloat16", "float32"], help="bfloat16; float32 with --tiny")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=15, help="calls that a median is taken of")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="may be given again; default: all")
    parser.add_argument("--fast", choices=fast_trunk.WAYS, help="faster layers, if they compute the same")
    parser.add_argument("--seconds", type=float, default=480, help="for all families together")
    parser.add_argument("--tiny", action="store_true", help="models of no size, to try the script")
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.tiny else "bfloat16")
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print("gpu_check: there is no usable CUDA device here; --device cpu --tiny tries the script")
        return 1
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    else:
        print(torch.cuda.get_device_name())
    started, skipped, good = time.perf_counter(), [], True
    families = arguments.family or list(FAMILIES)
    for number, name in enumerate(families):
        left = arguments.seconds - (time.perf_counter() - started)
        try:
            good &= examine(name, arguments, Share(name, left / (len(families) - number), skipped))
        except (
            RuntimeError
        ) as error:  # out of memory, a kernel that is not there: the other families still say something
            print(f"{name} failed: {str(error).strip().splitlines()[0]}")
            good = False
        if arguments.device.startswith("cuda"):
            torch.cuda.empty_cache()
    print(f"\n{time.perf_counter() - started:.0f} s; skipped: {', '.join(skipped) or 'nothing'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
