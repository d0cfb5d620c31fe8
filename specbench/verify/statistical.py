"""The law of a method under its real noise, real attention and real cache, tested on thousands of small images.

Knows: given its prefix, every token of an image must be a draw from the target's law at that prefix. The laws come from
one teacher-forced pass over the finished images and this house's second reading of the filters, so that neither the
loop nor the production filters are part of the reference.
Refuses to know: how a method works.

The tests (under the null each statistic is chi-square; family-wise error by Bonferroni over all tests of a method):
``rank`` orders each law by probability, ``draftlike`` by probability over the average law of the position (what a draft
that ignores the context would be), and both ask whether the randomised probability integral transform is uniform;
``token`` compares counts of each code with their conditional expectation; ``neighbours`` and ``rows`` ask
whether the transforms of adjacent positions, and of adjacent images of the batch, are independent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specbench.decoding.interfaces import START, Canvas, Forward, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.verify import chisquare
from specbench.verify.method import decoder_of, wide
from specbench.verify.result import Result
from specbench.verify.tabular import reference_law

ROWS, WINDOW = 4608, 8
BATCH = 512
"""Images in flight at a time: rows are independent, and thousands behind a long prompt would fill gigabytes."""
ALPHA = 1e-3
"""Chance that a lossless method fails, over all its tests and terms (seeds are fixed: it fails always or never)."""
DETECT = 0.02
"""The suite must see a distance of this size with 99 % power, or it is not worth running."""
CONTRAST = 0.3
"""Mean total variation between contexts that the head is sharpened to: a law that ignores its context tests nothing."""
TERMS = (Sampling(), Sampling(temperature=0.9, top_k=16, top_p=0.9, guidance=3.0))
BINS, COARSE = 16, 3
TEXTS = ("a red circle", "two blue squares", "a green ring above a yellow star", "three white triangles")


@dataclass(frozen=True)
class Test:
    """One chi-square test: statistic, degrees of freedom, draws, and the distance seen in its cells."""

    name: str
    statistic: float
    df: int
    draws: int
    distance: float

    @property
    def p_value(self) -> float:
        """Chance of a larger statistic under the null."""
        return chisquare.tail(self.statistic, self.df)

    @property
    def expected_distance(self) -> float:
        """The distance that sampling alone shows, for even cells: E|normal| summed over them."""
        return math.sqrt((self.df + 1) / (2 * math.pi * self.draws))


def statistical(
    method: Mapping[str, Any], rows: int = ROWS, window: int = WINDOW, target: Target | None = None
) -> Result:
    """Run all tests under all terms. ``p_value`` is adjusted; the detail states the smallest detectable distance.

    ``window`` is what a chain would have; the nodes of a tree beside its main path come on top.
    """
    window = wide(method, window)
    started, found, contrasts = time.perf_counter(), [], []
    base = target or _tiny()
    prompts = [Prompt(f"statistical/{i}", TEXTS[i % len(TEXTS)]) for i in range(rows)]
    guided = getattr(base, "takes_guidance", True)
    for sampling in TERMS if guided else [replace(each, guidance=None) for each in TERMS]:
        sharp, contrast = sharpen(base, sampling)
        contrasts.append(contrast)
        decoder = decoder_of(method, window, sampling)
        batches = [prompts[start : start + BATCH] for start in range(0, rows, BATCH)]
        tokens = torch.cat([decoder.decode(sharp, batch, seed=20).tokens for batch in batches])
        found += judge_tokens(tokens, reference_laws(sharp, prompts, tokens, sampling))
    family = len(found)
    p_value = min(1.0, family * min(test.p_value for test in found))
    worst = min(found, key=lambda test: test.p_value)
    smallest = max(chisquare.detectable(test.draws, ALPHA / family, test.df) for test in found)
    if smallest > DETECT:
        raise ValueError(f"{rows} images detect only a distance of {smallest:.3f}: take more")
    chain = "" if method.get("settings", {}).get("decoder") == "block" else f", W={window}"
    detail = (
        f"{family} tests on {len(TERMS)} × {rows:,} images{chain}, worst {worst.name!r} at distance "
        f"{worst.distance:.4f} (sampling alone: {worst.expected_distance:.4f}); would detect a distance "
        f"of {smallest:.4f} with 99 % power; TV between contexts {min(contrasts):.2f}; "
        f"{time.perf_counter() - started:.0f} s"
    )
    passed = p_value >= ALPHA if method["lossless"] else None
    return Result(method["name"], "statistical", worst.distance, p_value, passed, detail)


def judge_tokens(tokens: Tensor, laws: NDArray[np.float64], seed: int = 0) -> list[Test]:
    """The five tests on ``tokens`` [B, N] against the laws [B, N, V] at their own prefixes."""
    x = tokens.numpy()
    rng = np.random.default_rng(seed)
    chosen = np.take_along_axis(laws, x[..., None], 2)[..., 0]
    if (chosen <= 0).any():
        impossible = int((chosen <= 0).sum())
        return [Test("support", float("inf"), 1, x.size, impossible / x.size)]
    u = _transform(laws, laws, x, rng)
    draftlike = _transform(laws / np.maximum(laws.mean(0, keepdims=True), 1e-300), laws, x, rng)
    return [
        _uniform("rank", _bins(u, BINS), BINS),
        _uniform("draftlike", _bins(draftlike, BINS), BINS),
        _counts(x, laws),
        _uniform("neighbours", _joint(u[:, 0:-1:2], u[:, 1::2]), COARSE**2),
        _uniform("rows", _joint(u[0:-1:2], u[1::2]), COARSE**2),
    ]


def _transform(
    order: NDArray[np.float64], laws: NDArray[np.float64], x: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Randomised probability integral transform [B, N]: the mass ordered above each token and a part of its own."""
    own = np.take_along_axis(order, x[..., None], 2)
    above = np.where(order > own, laws, 0).sum(2)
    tied = np.where(order == own, laws, 0).sum(2)
    return above + rng.random(x.shape) * tied


def _bins(u: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    return np.minimum((u * bins).astype(np.int64), bins - 1)


def _joint(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.int64]:
    """Joint cell of disjoint pairs (overlapping ones would not be independent of each other)."""
    return _bins(u, COARSE) * COARSE + _bins(v, COARSE)


def _uniform(name: str, cells: NDArray[np.int64], bins: int) -> Test:
    share = np.bincount(cells.ravel(), minlength=bins) / cells.size
    statistic = cells.size * bins * ((share - 1 / bins) ** 2).sum()
    return Test(name, float(statistic), bins - 1, cells.size, float(np.abs(share - 1 / bins).sum() / 2))


def _counts(x: NDArray[np.int64], laws: NDArray[np.float64]) -> Test:
    """Counts minus conditional expectations are a martingale: their covariance is the sum of the laws' covariances."""
    vocab = laws.shape[2]
    flat = laws.reshape(-1, vocab)
    gap = np.bincount(x.ravel(), minlength=vocab) - flat.sum(0)
    covariance = np.diag(flat.sum(0)) - flat.T @ flat
    statistic = gap @ np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ gap
    df = int(np.linalg.matrix_rank(covariance, tol=1e-10 * np.abs(covariance).max(), hermitian=True))
    return Test("token", float(statistic), df, x.size, float(np.abs(gap).sum() / 2 / x.size))


def reference_laws(
    target: Target, prompts: Sequence[Prompt], tokens: Tensor, sampling: Sampling, rows: int = BATCH
) -> NDArray[np.float64]:
    """Law [B, N, V] at every prefix of the finished images ``tokens`` [B, N], from one wide pass per batch."""
    laws = []
    for start in range(0, len(tokens), rows):
        part = tokens[start : start + rows]
        fed = torch.cat([torch.full_like(part[:, :1], START), part[:, :-1]], 1)
        canvas = target.begin(prompts[start : start + rows], sampling.guidance)
        laws.append(reference_law(canvas.forward(fed).logits.double().numpy(), sampling))
    return np.concatenate(laws)


@dataclass
class Sharpened:
    """A target whose logits are multiplied by ``factor``; everything else is the target's own."""

    target: Target
    factor: float

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> SharpenedCanvas:
        """Open the target's canvas."""
        return SharpenedCanvas(self.target.begin(prompts, guidance), self.factor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@dataclass
class SharpenedCanvas:
    """A canvas whose logits are multiplied by ``factor``."""

    canvas: Canvas
    factor: float

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """The canvas's pass with sharper logits."""
        forward = self.canvas.forward(tokens, parents, taps)
        return replace(forward, logits=forward.logits * self.factor)

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """As the canvas."""
        self.canvas.keep(n, path)


def sharpen(target: Target, sampling: Sampling, rows: int = 128) -> tuple[Sharpened, float]:
    """Raise the factor until the mean total variation between the laws of random contexts is :data:`CONTRAST`."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(target.vocab, (rows, target.grid.size), generator=generator)
    prompts = [Prompt(f"contrast/{i}", TEXTS[i % len(TEXTS)]) for i in range(rows)]
    factor = 0.5
    while factor < 1e4:
        factor *= 1.5
        sharp = Sharpened(target, factor)
        laws = reference_laws(sharp, prompts, tokens, sampling)
        contrast = float(np.abs(laws[1:, 1:] - laws[:-1, 1:]).sum(-1).mean() / 2)
        if contrast >= CONTRAST:
            return sharp, contrast
    raise ValueError("the target's laws do not depend on their context")


def _tiny() -> Target:
    from specbench.models import load_target

    return load_target("mini/tiny", dtype="float32")
