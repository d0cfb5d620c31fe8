"""What a codebook says about likeness of tokens: distances in units of its own spread, and nearest codes.

Knows: code vectors, and how to keep what was computed from them as long as the codebook lives.
Refuses to know: laws, acceptance rules, models.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from specbench.decoding.interfaces import Target
from specbench.errors import UsageError

_kept: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Codebook → what was derived from it. By identity: a target hands out the same tensor every time."""

ROWS = 256
"""Codes whose distances to all others are held at once: 32 MB of float64 for a codebook of 16,384."""


def codebook_of(target: Target) -> Tensor:
    """The code vectors [V, e] of ``target``. Raises ``UsageError`` if it has none."""
    if target.codebook is None:
        raise UsageError("this acceptance compares code vectors, and the model has no codebook")
    return target.codebook


def in_units_of_spread(codebook: Tensor) -> Tensor:
    """The code vectors [V, e], scaled so that two different codes are at a mean squared distance of 1."""

    def scaled() -> Tensor:
        codes = codebook.double()
        mean_square = 2 * (codes - codes.mean(0)).square().sum() / max(1, len(codes) - 1)
        return (codes / mean_square.clamp(min=torch.finfo(torch.float64).tiny).sqrt()).float()

    return _remembered(codebook, "scaled", scaled)


def nearest(codebook: Tensor, count: int) -> Tensor:
    """The ``count`` nearest other codes of each code, nearest first, by Euclidean distance: [V, count] int32."""

    def table() -> Tensor:
        codes = codebook.double()
        norms = codes.square().sum(-1)
        found = []
        for first in range(0, len(codes), ROWS):
            some = torch.arange(first, min(first + ROWS, len(codes)), device=codes.device)
            squared = norms - 2 * codes[some] @ codes.T  # up to a constant per row
            squared[some - first, some] = torch.inf
            found.append(squared.topk(count, largest=False).indices.int())
        return torch.cat(found)

    return _remembered(codebook, ("nearest", count), table)


def _remembered(codebook: Tensor, what: object, compute: Callable[[], Tensor]) -> Tensor:
    kept: dict[object, Tensor] = _kept.setdefault(codebook, {})
    if what not in kept:
        kept[what] = compute()
    return kept[what]
