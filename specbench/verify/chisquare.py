"""The few facts about chi-square that a test and its power need, from torch's incomplete gamma function.

Knows: tail, quantile and power of the chi-square test. Refuses to know: what is being tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch


def tail(x: float, df: float) -> float:
    """P(chi2 with ``df`` degrees of freedom > x)."""
    shape = torch.tensor([df / 2, max(x, 0.0) / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(shape[0], shape[1]))


def critical(alpha: float, df: float) -> float:
    """The x whose tail is ``alpha``."""
    return _solve(lambda x: tail(x, df) - alpha, df + 100 + 10 * math.sqrt(2 * df))


def power(noncentrality: float, alpha: float, df: float) -> float:
    """Chance of exceeding the critical value when the statistic has this noncentrality (a Poisson mixture of tails)."""
    mean = noncentrality / 2
    spread = int(10 * math.sqrt(mean + 1)) + 10
    terms = torch.arange(max(0, int(mean) - spread), int(mean) + spread + 1, dtype=torch.float64)
    weight = torch.exp(torch.xlogy(terms, torch.tensor(mean, dtype=torch.float64)) - mean - torch.lgamma(terms + 1))
    limit = torch.tensor(critical(alpha, df) / 2, dtype=torch.float64)
    return float((weight * torch.special.gammaincc(df / 2 + terms, limit)).sum())


def detectable(samples: int, alpha: float, df: float, wanted: float = 0.99) -> float:
    """Smallest total variation that a test on ``samples`` draws rejects with chance ``wanted``, whatever its shape.

    A law at distance d from the expected one over any cells has noncentrality n Σ δ²/π >= n (Σ|δ|)² = 4 n d²
    (Cauchy–Schwarz), with equality when the cells are shifted evenly: the least favourable case.
    """
    needed = _solve(lambda x: wanted - power(x, alpha, df), 4 * critical(alpha, df) + 100)
    return math.sqrt(needed / (4 * samples))


def _solve(falling: Callable[[float], float], high: float) -> float:
    """Root of a falling function on (0, high) by bisection."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
