"""Two measurements outside the timed region: what a wide pass costs, and how uncertain the sampled laws are.

Knows: a canvas can be asked again at the same place (``keep(0)``), and fed with tokens that are already known.
Refuses to know: methods.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specbench.decoding.interfaces import START
from specbench.decoding.laws import entropy, law_of

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Canvas, Prompt, Target
    from specbench.decoding.laws import Sampling

WINDOWS = (1, 8, 16, 32, 64)
REPEATS, FEWEST, BUDGET_S = 15, 5, 10.0
"""Repeats of the cost curve; after BUDGET_S seconds it stops at FEWEST."""

CHUNK = 64
"""Tokens per pass when known tokens are fed: bounds the memory of the logits."""


def synchronize(device: str) -> None:
    """Wait for the accelerator, so that a wall clock sees its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@torch.inference_mode()
def cost_curve(
    target: Target, sampling: Sampling, prompt: Prompt, windows: Sequence[int], device: str
) -> dict[int, float]:
    """Seconds of one target pass over W tokens, for each W: median of interleaved repeats in mid-image, batch 1.

    Windows beyond half of the image are left out, since the passes stand at position N / 2.
    """
    half = max(1, target.grid.size // 2)
    widths = sorted({1, *(w for w in windows if w <= half)})
    canvas = target.begin([prompt], sampling.guidance)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(target.vocab, (1, half + max(widths)), generator=generator).to(device)
    tokens[:, 0] = START
    _feed(canvas, tokens[:, :half])
    seconds: dict[int, list[float]] = {width: [] for width in widths}
    nothing = torch.zeros(1, dtype=torch.int64, device=device)
    begin = time.perf_counter()
    for repeat in range(REPEATS + 1):
        if repeat > FEWEST and time.perf_counter() - begin > BUDGET_S:
            break
        for width in widths:
            synchronize(device)
            start = time.perf_counter()
            canvas.forward(tokens[:, half : half + width])
            synchronize(device)
            if repeat > 0:  # the first round warms up
                seconds[width].append(time.perf_counter() - start)
            canvas.keep(nothing)
    return {width: median(times) for width, times in seconds.items()}


def _feed(canvas: Canvas, tokens: Tensor) -> None:
    for chunk in tokens.split(CHUNK, dim=1):
        canvas.forward(chunk)
        canvas.keep(torch.full((len(tokens),), chunk.shape[1], dtype=torch.int64, device=tokens.device))


@torch.inference_mode()
def mean_entropy(target: Target, sampling: Sampling, prompts: Sequence[Prompt], tokens: Tensor) -> list[float]:
    """Mean entropy of the sampled law along each image, in nats per token; ``tokens`` [B, N] int64.

    The tokens are fed again in wide passes, so the value needs no help from the decoder that made them.
    """
    canvas = target.begin(prompts, sampling.guidance)
    fed = torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, :-1]], dim=1)
    total = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
    for chunk in fed.split(CHUNK, dim=1):
        logits = canvas.forward(chunk).logits
        total += entropy(law_of(logits, sampling)).sum(-1)
        canvas.keep(torch.full((len(tokens),), chunk.shape[1], dtype=torch.int64, device=tokens.device))
    return [float(value) for value in total / tokens.shape[1]]
