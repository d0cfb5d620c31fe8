"""What passes cost on a GPU: every family at its real width with few layers and random weights, in about 8 minutes.

    .venv/bin/python scripts/gpu_check.py                 on a GPU, bfloat16, eager
    .venv/bin/python scripts/gpu_check.py --compile       the layers through torch.compile, if they compute the same
    .venv/bin/python scripts/gpu_check.py --tiny --device cpu   to try the script

For each family: milliseconds of a pass for W = 1…64 beside the floor, which is the time to read the linear layers'
weights once (all of them called back to back on W tokens); the latency of AR, SJD and SCD on a short image; and, where
the family's trunk is one of transformers' own, plain ``generate`` of the same number of tokens on the same layers,
beside our AR at batch 1 without guidance: is the baseline a straw man? Random weights: counters mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

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
    "cosmos 4B": (make.cosmos, {"width": 4096, "heads": 32, "feedforward": 14336, "codes": 64000}, Grid(8, 48)),
}
PROMPT = [Prompt("gpu", "")]
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Largest difference of logits of unit size that another order of summation explains."""


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
def passes(target: Any, device: str, turns: int) -> list[tuple[int, float, float]]:
    """Window, milliseconds of a pass and of its floor, in the middle of an image."""
    canvas, half = target.begin(PROMPT), target.grid.size // 2
    canvas.forward(tokens(half, device, start=True))
    canvas.keep(torch.tensor([half], device=device))
    found = []
    for window in WINDOWS:
        fed = tokens(window, device)
        whole = milliseconds(lambda fed=fed: canvas.forward(fed), device, turns)
        found.append((window, whole, milliseconds(make.floor(target.network, window), device, turns)))
    return found


class Compiled:
    """A trunk whose layers run through ``torch.compile``; everything else is the trunk's own."""

    def __init__(self, trunk: Any) -> None:
        self.trunk, self.call = trunk, torch.compile(trunk, dynamic=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trunk, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As the trunk."""
        return self.call(*given, **named)


class Network:
    """A network with another trunk."""

    def __init__(self, network: Any, trunk: Any) -> None:
        self._network, self.trunk = network, trunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


@torch.inference_mode()
def compiled(target: Any, device: str, dtype: torch.dtype) -> float:
    """Put compiled layers into ``target``; returns the largest difference of logits to the eager ones."""
    fed = tokens(8, device, start=True)
    eager = target.begin(PROMPT).forward(fed).logits
    network = target.network
    target.network = Network(network, Compiled(network.trunk))
    gap = float((target.begin(PROMPT).forward(fed).logits - eager).abs().max())
    if gap > TOLERANCE[dtype]:
        raise SystemExit(f"compiled layers differ from eager ones by {gap:.2g}: nothing below would mean anything")
    return gap


def latency(target: Any, method: str, window: int, device: str) -> tuple[float, int]:
    """Seconds of one image, and its passes."""
    decoder: Any = build_decoder(METHODS[method], None if method == "ar" else window, Sampling(top_k=1000))
    for seed in range(2):
        wait(device)
        start = time.perf_counter()
        generation = decoder.decode(target, PROMPT, seed=seed)
        wait(device)
    return time.perf_counter() - start, int(generation.trace.nfe[0])


@torch.inference_mode()
def generate(target: Any, device: str) -> float | None:
    """Seconds of transformers' own ``generate`` on Janus's layers and as many tokens; None for other families.

    Its head is a plain linear layer of as many codes, and it samples with top-k 1000 as the others do.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    trunk = target.network.trunk
    if not isinstance(getattr(trunk, "config", None), LlamaConfig):
        return None
    settings = LlamaConfig(**{**trunk.config.to_dict(), "vocab_size": target.vocab})
    weight = trunk.embed_tokens.weight
    with torch.device("meta"):
        plain = LlamaForCausalLM(settings)
    plain.to(weight.dtype).to_empty(device=device)
    plain.model.layers, plain.model.norm = trunk.layers, trunk.norm
    plain.model.rotary_emb = trunk.rotary[0].to(device)
    plain.lm_head.weight.data.normal_(std=settings.hidden_size**-0.5)
    plain.model.embed_tokens.weight.data.normal_()
    words, count = tokens(64, device), target.grid.size
    common = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": True, "top_k": 1000, "pad_token_id": 0}
    for _ in range(2):
        wait(device)
        start = time.perf_counter()
        plain.eval().generate(words, attention_mask=torch.ones_like(words), **common)
        wait(device)
    return time.perf_counter() - start


def examine(name: str, arguments: argparse.Namespace) -> None:
    """Everything about one family, printed."""
    family, sizes, grid = FAMILIES[name]
    sizes = {**sizes, "layers": arguments.layers}
    if arguments.tiny:
        sizes |= {"width": 64, "heads": 4, "feedforward": 96, "codes": 64}
        grid = grid._replace(rows=2)
    device, dtype = arguments.device, getattr(torch, arguments.dtype)
    target = make.target(family, sizes, grid, dtype, device)
    print(f"\n{name}: {arguments.layers} layers, {arguments.dtype}, {grid.size} tokens")
    plain = generate(target, device)
    if arguments.compile:
        print(f"compiled layers: largest difference of logits {compiled(target, device, dtype):.1e}")
    print(f"{'W':>4}{'pass ms':>10}{'floor ms':>10}{'ratio':>7}")
    for window, whole, least in passes(target, device, arguments.turns):
        print(f"{window:>4}{whole:>10.3f}{least:>10.3f}{whole / least:>7.2f}", flush=True)
    for method in METHODS:
        seconds, nfe = latency(target, method, 32, device)
        print(f"{method:<10}{seconds:>8.3f} s{nfe:>6} passes{1000 * seconds / nfe:>8.3f} ms each", flush=True)
    if plain is not None:
        print(f"{'generate':<10}{plain:>8.3f} s{grid.size:>6} passes{1000 * plain / grid.size:>8.3f} ms each")


def main() -> int:
    """Examine the families that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default=None, choices=["bfloat16", "float32"], help="bfloat16; float32 with --tiny")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=15, help="calls that a median is taken of")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="may be given again; default: all")
    parser.add_argument("--compile", action="store_true", help="run the layers through torch.compile")
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
    started = time.perf_counter()
    for name in arguments.family or FAMILIES:
        examine(name, arguments)
        if arguments.device.startswith("cuda"):
            torch.cuda.empty_cache()
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
