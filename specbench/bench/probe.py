"""Three measurements outside the timed region: the cost of a wide pass, and of the laws their entropy and their memory.

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

from specbench.decoding.interfaces import START, Key
from specbench.decoding.laws import entropy, law_of, total_variation
from specbench.decoding.noise import AddressedNoise

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Canvas, Prompt, Target
    from specbench.decoding.laws import Sampling

WINDOWS = (1, 8, 16, 32, 64)
REPEATS, FEWEST, BUDGET_S = 15, 5, 10.0
"""Repeats of the cost curve; after BUDGET_S seconds it stops at FEWEST."""

SITES, REACH = 16, 15
"""Tokens of an image that :func:`perturbed` replaces, and how far behind each it looks at least (SJD-PAC, figure 4)."""

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


@torch.inference_mode()
def perturbed(
    target: Target, sampling: Sampling, prompts: Sequence[Prompt], tokens: Tensor, seed: int = 0, sample: int = 0
) -> list[dict[str, list[float]]]:
    """How far the laws behind a token move when it alone is replaced: TV by offset, summed over sites.

    ``tokens`` [B, N] are finished images. At up to :data:`SITES` positions, spread over rows and columns, the token is
    replaced by another draw from its own law (without the token itself), and the laws at offsets 1 to :data:`REACH`,
    or to one beyond the row below where that is further, are compared in two passes. Returns for each image ``probe``
    (sums of TV) and ``probe_sites`` (their counts), one entry an offset. SJD-PAC (2603.18599), figure 4, masks the
    token instead.
    """
    images, size = tokens.shape
    reach = min(max(REACH, target.grid.columns + 1), size - 1)
    canvas, noise = target.begin(prompts, sampling.guidance), AddressedNoise(prompts, seed, sample, tokens.device)
    fed = torch.cat([torch.full_like(tokens[:, :1], START), tokens], 1)
    sums = torch.zeros(2, images, reach, dtype=torch.float64, device=tokens.device)
    nothing = torch.zeros(images, dtype=torch.int64, device=tokens.device)
    every = torch.ones(images, 1, dtype=torch.bool, device=tokens.device)
    done = 0
    for site in sites(size):
        _feed(canvas, fed[:, done:site])
        done, ahead = site, fed[:, site : min(site + reach + 1, size)]
        laws = law_of(canvas.forward(ahead).logits, sampling)
        canvas.keep(nothing)
        others = laws[:, :1].scatter(-1, tokens[:, site, None, None], 0)
        possible = others.sum(-1) > 0
        place = torch.full_like(tokens[:, :1], site)
        other = noise.draw(torch.where(possible[..., None], others, laws[:, :1]), Key("probe", place), every)
        changed = torch.cat([ahead[:, :1], other, ahead[:, 2:]], 1)
        moved = total_variation(law_of(canvas.forward(changed).logits, sampling), laws)[:, 1:]
        canvas.keep(nothing)
        sums[0, :, : moved.shape[1]] += torch.where(possible, moved, 0)
        sums[1, :, : moved.shape[1]] += possible
    return [
        {"probe": [round(x, 6) for x in tv], "probe_sites": count}
        for tv, count in zip(sums[0].tolist(), sums[1].long().tolist(), strict=True)
    ]


def sites(size: int) -> list[int]:
    """Positions to perturb: one in each of :data:`SITES` equal stretches, at golden-ratio steps within it.

    Plain steps would stand in one column wherever the stretch is a row. The first token is left alone (it needs the
    pass that reads the prompt), and so is the last, behind which there is nothing.

    >>> sites(256)[:4]
    [1, 26, 36, 62]
    """
    count = min(SITES, size - 2)
    return [1 + int((size - 2) * (k + k * 0.6180339887 % 1) / count) for k in range(count)]
