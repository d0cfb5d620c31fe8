"""From logits to laws, and the arithmetic of laws.

Knows: guidance, temperature, top-k, top-p, the residual of a rejected draft, distances between laws.
Refuses to know: randomness, positions, windows, models.

A *law* is a normalised distribution over the last dimension, float32 or float64. "Lossless" is always relative to
plain autoregressive decoding under the same :class:`Sampling`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """What turns guided logits into the law that is sampled. ``None`` switches a filter off.

    ``guidance`` is applied by the canvas (:func:`guide`), the rest by :func:`law_of`, in the order temperature,
    top-k, top-p. Raises ``UsageError`` for values that define no law.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    guidance: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UsageError(
                f"sampling.temperature must be above 0, not {self.temperature}; sampling.top_k=1 decodes greedily"
            )
        if self.top_k is not None and (self.top_k != int(self.top_k) or self.top_k < 1):
            raise UsageError(
                f"sampling.top_k must be a whole number of at least 1, or null for no limit, not {self.top_k}"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"sampling.top_p must lie in (0, 1], or be null for no limit, not {self.top_p}")
        if self.guidance is not None and not (math.isfinite(self.guidance) and self.guidance >= 0):
            raise UsageError(f"sampling.guidance must be 0 or above, or null for none, not {self.guidance}")


def guide(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance ``uncond + scale · (cond - uncond)`` on logits of equal shape (Ho & Salimans 2022)."""
    return torch.lerp(uncond, cond, scale)


def law_of(logits: Tensor, sampling: Sampling) -> Tensor:
    """The law of guided ``logits`` [..., V]: temperature, then top-k, then top-p, then softmax, in float32 or above.

    Ties are kept: every logit equal to the k-th largest (or to the last one inside the nucleus) survives, so the
    law never depends on the order in which equal logits were sorted.
    """
    scores = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    if sampling.temperature != 1:
        scores = scores / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        kth = scores.topk(sampling.top_k, sorted=False).values.amin(-1, keepdim=True)
        scores = scores.masked_fill(scores < kth, -math.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ranked = scores.sort(dim=-1, descending=True).values
        mass = ranked.softmax(-1)
        inside = mass.cumsum(-1) - mass < sampling.top_p  # the token that crosses top_p stays
        least = ranked.masked_fill(~inside, math.inf).amin(-1, keepdim=True)
        scores = scores.masked_fill(scores < least, -math.inf)
    law: Tensor = scores.softmax(-1)
    return law


def residual(p: Tensor, q: Tensor) -> Tensor:
    """``(p - q)₊`` normalised: the law of the token that replaces a rejected draft. [..., V] each.

    Leviathan et al. 2023 (2211.17192), section 2.3. Where p and q coincide there is no mass left and nothing can be
    rejected but by rounding; the law is then ``p`` itself, so that the result is a law for every input.
    """
    rest = torch.sub(p, q).clamp_(min=0)
    mass = rest.sum(-1, keepdim=True)
    tiny = torch.finfo(rest.dtype).tiny
    law: Tensor = rest.div_(mass.clamp(min=tiny))
    return torch.where(mass > tiny, law, p)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """``½ Σ |p - q|`` over the last dimension: [..., V] each to [...]."""
    return (p - q).abs().sum(-1) / 2


def entropy(p: Tensor) -> Tensor:
    """Entropy in nats over the last dimension: [..., V] to [...]."""
    nats: Tensor = torch.special.entr(p).sum(-1)
    return nats
