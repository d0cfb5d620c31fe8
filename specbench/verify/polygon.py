"""Gumbel noise in closed form: which noise can still be behind the tokens that a slot has shown.

Knows: the geometry of one row of Gumbel noise. With ``E_k = exp(-G_k)`` iid exponential, the Gumbel-max token of a law
p is ``argmin E_k / p_k``, and ``e = E / ΣE`` is uniform on the simplex. So "token t came out" is the polytope
``e_t p_k <= e_k p_t for all k``: an interval for two tokens, a convex polygon for three. A region is what is left of
the simplex after the tokens seen so far, and its probability is a ratio of lengths or areas.
Refuses to know: positions, passes, decoders. More than three tokens would need polyhedra.

Source: the exponential-race form of the Gumbel-max trick (Maddison et al. 2014, "A* sampling", section 2).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specbench.errors import UsageError

Interval = tuple[float, float]
Polygon = tuple[tuple[float, float], ...]
Law = tuple[float, ...]

INSIDE = 1 - 1e-12
"""A region whose share of a cell reaches this lies in that cell: cutting it again would only shave off rounding."""


def cut_interval(region: Interval, law: Law) -> list[tuple[float, Interval]]:
    """Share and remaining interval of ``e_0`` for each of two tokens (token 0 iff ``e_0 < p_0``)."""
    low, high = region
    middle = min(max(law[0], low), high)
    length = high - low
    return [((middle - low) / length, (low, middle)), ((high - middle) / length, (middle, high))]


def cut_polygon(region: Polygon, law: Law) -> list[tuple[float, Polygon]]:
    """Share and remaining polygon in ``(e_0, e_1)`` for each of three tokens; shares are renormalised."""
    cells = [_cell(region, law, token) if law[token] > 0 else () for token in range(3)]
    areas = [_area(cell) for cell in cells]
    total = sum(areas)
    return [(area / total, cell) for area, cell in zip(areas, cells, strict=True)]


def _cell(polygon: Polygon, law: Law, token: int) -> Polygon:
    """The part of ``polygon`` where ``e_token / p_token`` is the smallest ratio."""
    for other in range(3):
        if other != token and law[other] > 0:
            polygon = _clip(polygon, law, token, other)
    return polygon


def _clip(polygon: Polygon, law: Law, token: int, other: int) -> Polygon:
    """Keep the side ``e_other p_token >= e_token p_other`` (Sutherland and Hodgman 1974)."""
    side = [_ratio_gap(point, law, token, other) for point in polygon]
    kept: list[tuple[float, float]] = []
    for i, point in enumerate(polygon):
        before, now = side[i - 1], side[i]
        if (before < 0) != (now < 0):
            share = before / (before - now)
            x, y = polygon[i - 1]
            kept.append((x + share * (point[0] - x), y + share * (point[1] - y)))
        if now >= 0:
            kept.append(point)
    return tuple(kept)


def _ratio_gap(point: tuple[float, float], law: Law, token: int, other: int) -> float:
    e = (point[0], point[1], 1 - point[0] - point[1])
    return e[other] * law[token] - e[token] * law[other]


def _area(polygon: Polygon) -> float:
    if len(polygon) < 3:
        return 0.0
    x0, y0 = polygon[0]
    doubled = sum((x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0) for (x1, y1), (x2, y2) in pairwise(polygon[1:]))
    return abs(doubled) / 2


class Regions:
    """All regions met so far, each under a small integer; 0 is the whole simplex.

    Cutting is memoised by (region, law to 13 decimals), so that thousands of histories share a few hundred cuts.
    """

    def __init__(self, vocab: int):
        if vocab not in (2, 3):
            raise UsageError(f"exact Gumbel noise needs 2 or 3 tokens, not {vocab}")
        self.vocab = vocab
        self._cut = cut_interval if vocab == 2 else cut_polygon
        whole: Interval | Polygon = (0.0, 1.0) if vocab == 2 else ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
        self._regions: list[Interval | Polygon] = [whole]
        self._memo: dict[bytes, int] = {}
        self._shares: list[list[float]] = []
        self._children: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._regions)

    def cut(self, ids: NDArray[np.int64], laws: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Cut regions ``ids`` [M] by ``laws`` [M, V]: shares [M, V] of each token and the ids [M, V] that remain."""
        keys = np.column_stack([ids.astype(np.float64), np.round(laws, 13) + 0.0])
        rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1] * 8))).ravel()
        unique, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        cuts = np.array(
            [self._cut_once(key.tobytes(), int(ids[i]), laws[i]) for key, i in zip(unique, first, strict=True)]
        )
        at = cuts[inverse]
        return np.array(self._shares)[at], np.array(self._children)[at]

    def _cut_once(self, key: bytes, region: int, law: NDArray[np.float64]) -> int:
        if key not in self._memo:
            pieces = self._cut(self._regions[region], tuple(law.tolist()))  # type: ignore[arg-type]
            self._memo[key] = len(self._shares)
            # A slot that is drawn again from the same law shows the same token: what is left over is no history.
            settled = any(share >= INSIDE for share, _ in pieces)
            self._shares.append([float(share >= INSIDE) if settled else share for share, _ in pieces])
            self._children.append([self._remember(region, *piece) for piece in pieces])
        return self._memo[key]

    def _remember(self, parent: int, share: float, region: Interval | Polygon) -> int:
        if share >= INSIDE:
            return parent
        self._regions.append(region)
        return len(self._regions) - 1
