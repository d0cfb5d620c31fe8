"""Ratios with intervals, proportions with intervals: seeded, vectorised, paired by prompt.

Knows: the ratio of sums and its bootstrap, what few prompts do to it, Wilson's interval, the mean of families.
Refuses to know: where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 10_000
Z95 = 1.959963984540054
T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % quantiles of Student's t at 1 to 10 degrees of freedom."""


class Interval(NamedTuple):
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def ratio_of_sums(
    numerator: Sequence[float], denominator: Sequence[float], groups: Sequence[str], seed: int = 0
) -> Interval:
    """Σ numerator ÷ Σ denominator over pairs of positive numbers, with a bootstrap over ``groups``.

    The three sequences run over pairs (one image of either method each). Pairs of one group (a prompt's samples) are
    drawn together, since they are not independent. One group gives no interval: its ends are NaN. The percentile
    interval is widened about the value, on the log scale, by :func:`small_sample`.

    >>> ratio_of_sums([8, 8, 8], [4, 4, 4], ["a", "b", "c"])
    Interval(value=2.0, low=2.0, high=2.0)
    """
    return product_of_sums([(1, numerator), (-1, denominator)], groups, seed)


def product_of_sums(factors: Sequence[tuple[int, Sequence[float]]], groups: Sequence[str], seed: int = 0) -> Interval:
    """Π (Σ values)^exponent over the factors, all of positive numbers over the same pairs; bootstrap over ``groups``.

    A ratio of sums has exponents 1 and -1; the quotient of two such ratios, each with clocks of its own process, has
    four factors. Resampled and widened as :func:`ratio_of_sums` says.

    >>> product_of_sums([(1, [8, 8]), (-1, [4, 4]), (-1, [6, 6]), (1, [2, 2])], ["a", "b"]).value
    0.6666666666666666
    """
    sums = [_grouped(values, groups) for _, values in factors]
    value, n = _power([each.sum() for each in sums], factors), len(sums[0])
    if n < 2:
        return Interval(float(value), math.nan, math.nan)
    counts = _resampled_counts(n, seed)
    low, high = np.quantile(_power([counts @ each for each in sums], factors), [0.025, 0.975])
    wider = small_sample(n - 1) * math.sqrt(n / (n - 1))
    return Interval(float(value), float(value * (low / value) ** wider), float(value * (high / value) ** wider))


def _power(sums: Sequence[Any], factors: Sequence[tuple[int, Sequence[float]]]) -> Any:
    """Numerators' product ÷ denominators' product."""
    top, bottom = 1.0, 1.0
    for total, (exponent, _) in zip(sums, factors, strict=True):
        top, bottom = (top * total**exponent, bottom) if exponent > 0 else (top, bottom * total**-exponent)
    return top / bottom


def small_sample(freedom: float) -> float:
    """How much wider Student's interval is than the normal one: t(0.975, freedom) ÷ z(0.975).

    A bootstrap spreads like the normal with the variance of n, and not n - 1, observations: its 95 % interval of two
    observations holds the truth half of the time. Times sqrt(n / (n - 1)) it is as wide as Student's.
    """
    return t975(freedom) / Z95


def t975(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: below 10 degrees of freedom from the table, linear in 1 ÷ freedom.

    From 10 on by the Cornish-Fisher series (Abramowitz and Stegun 26.7.5), good to 1e-4 there.

    >>> [round(t975(n), 3) for n in (1, 4, 10, 30)]
    [12.706, 2.776, 2.228, 2.042]
    """
    if freedom < len(T975):
        return float(np.interp(-1 / max(freedom, 1.0), [-1 / n for n in range(1, len(T975) + 1)], T975))
    z, v = Z95, freedom
    series = (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
    return z + series + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)


def mean_difference_of_families(
    a: Sequence[float], b: Sequence[float], groups: Sequence[str], families: Sequence[str], seed: int = 0
) -> Interval:
    """The plain mean over families of (mean of a minus mean of b): the difference of two :func:`mean_of_families`.

    Over pairs, like :func:`ratio_of_sums`; a group counts once in its family however many pairs it has. The bootstrap
    draws groups within their family, and is widened by each family's n / (n - 1) and by Student's t at Satterthwaite's
    degrees of freedom. A family of one group shows no spread, so there is no interval then.
    """
    differences: list[np.ndarray] = []
    pairs = np.asarray(a, float) - np.asarray(b, float)
    for family in sorted(set(families)):
        mine = [i for i, name in enumerate(families) if name == family]
        names = [groups[i] for i in mine]
        differences.append(_grouped(pairs[mine].tolist(), names) / _grouped([1.0] * len(mine), names))
    value = float(np.mean([each.mean() for each in differences]))
    sizes = np.array([len(each) for each in differences])
    if sizes.min() < 2:
        return Interval(value, math.nan, math.nan)
    drawn = np.zeros(RESAMPLES)
    for place, each in enumerate(differences):
        n = len(each)
        deviation = _resampled_counts(n, seed + place) @ (each - each.mean()) / n
        drawn += deviation * math.sqrt(n / (n - 1)) / len(differences)
    variances = np.array([each.var(ddof=1) / len(each) for each in differences])
    total_variance = float(variances.sum())
    if total_variance == 0:
        return Interval(value, value, value)
    wider = small_sample(total_variance**2 / float((variances**2 / (sizes - 1)).sum()))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value, float(value + wider * low), float(value + wider * high))


def _grouped(values: Sequence[float], groups: Sequence[str]) -> np.ndarray:
    """Sums per group, in the order of the groups' names (the input's order must not matter)."""
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.zeros(len(names))
    np.add.at(sums, index, np.asarray(values, float))
    return sums


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
