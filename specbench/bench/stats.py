"""Ratios with intervals, proportions with intervals: seeded, vectorised, paired by prompt.

Knows: the ratio of sums and its bootstrap, Wilson's interval, the mean of families.
Refuses to know: where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
Z95 = 1.959963984540054


class Interval(NamedTuple):
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def ratio_of_sums(
    numerator: Sequence[float], denominator: Sequence[float], groups: Sequence[str], seed: int = 0
) -> Interval:
    """Σ numerator ÷ Σ denominator over pairs, with a percentile bootstrap over ``groups``.

    The three sequences run over pairs (one image of either method each). Pairs of one group (a prompt's samples) are
    drawn together, since they are not independent. One group gives no interval: its ends are NaN.

    >>> ratio_of_sums([8, 8, 8], [4, 4, 4], ["a", "b", "c"])
    Interval(value=2.0, low=2.0, high=2.0)
    """
    top, bottom = _grouped(numerator, denominator, groups)
    value = float(top.sum() / bottom.sum())
    if len(top) < 2:
        return Interval(value, math.nan, math.nan)
    counts = _resampled_counts(len(top), seed)
    low, high = np.quantile((counts @ top) / (counts @ bottom), [0.025, 0.975])
    return Interval(value, float(low), float(high))


def difference_of_means(a: Sequence[float], b: Sequence[float], groups: Sequence[str], seed: int = 0) -> Interval:
    """Mean of a minus mean of b over pairs, with the same paired bootstrap as :func:`ratio_of_sums`."""
    difference = np.asarray(a, float) - np.asarray(b, float)
    total, count = _grouped(difference.tolist(), [1.0] * len(difference), groups)
    value = float(total.sum() / count.sum())
    if len(total) < 2:
        return Interval(value, math.nan, math.nan)
    counts = _resampled_counts(len(total), seed)
    low, high = np.quantile((counts @ total) / (counts @ count), [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _grouped(a: Sequence[float], b: Sequence[float], groups: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of ``a`` and ``b`` per group, in the order of the groups' names (the input's order must not matter)."""
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.zeros((2, len(names)))
    np.add.at(sums[0], index, np.asarray(a, float))
    np.add.at(sums[1], index, np.asarray(b, float))
    return sums[0], sums[1]


@lru_cache(maxsize=2)  # every ratio of a document asks for the same n
def _resampled_counts(n: int, seed: int) -> np.ndarray:
    """How often each of ``n`` groups is drawn in each resample, [RESAMPLES, n]."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)


def wilson(successes: float, n: float) -> Interval:
    """Wilson's score interval (Wilson 1927, JASA 22) for a proportion; ``n`` may be an effective number.

    >>> [round(x, 4) for x in wilson(8, 10)]
    [0.8, 0.4902, 0.9433]
    """
    if n <= 0:
        return Interval(math.nan, math.nan, math.nan)
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # At 0 and 1 one end is the proportion itself; rounding would leave it a hair beside.
    return Interval(p, 0.0 if p <= 0 else centre - half, 1.0 if p >= 1 else centre + half)


def mean_of_families(correct: Mapping[str, Mapping[str, Sequence[bool]]]) -> tuple[Interval, dict[str, Interval]]:
    """GenEval's overall score, the plain mean of the families' accuracies, and each family by itself.

    ``correct`` maps family → prompt id → verdicts of its samples. A prompt counts once however many samples it has
    (samples of a prompt are not independent), so an interval's n is a number of prompts. The overall interval is
    Wilson's at the effective number K² ÷ Σ 1/n_k, which equals n where K families have the same size.
    """
    families = {}
    for family, prompts in sorted(correct.items()):
        mean = float(np.mean([np.mean(verdicts) for verdicts in prompts.values()]))
        families[family] = wilson(mean * len(prompts), len(prompts))
    sizes = [len(correct[family]) for family in families]
    effective = len(sizes) ** 2 / sum(1 / n for n in sizes)
    value = float(np.mean([interval.value for interval in families.values()]))
    return wilson(value * effective, effective), families
