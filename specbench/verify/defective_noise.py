"""Noise whose addresses are wrong on purpose: how a defect of the key looks to the law.

Knows: for each known way of sharing random numbers, the change of address that models it in the enumerator. Some are
harmless, and then they are the twins of those that are not.
Refuses to know: how production hashes an address (defects there are planted in the real noise).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specbench.decoding.interfaces import Key
from specbench.verify.enumerate import EnumeratingNoise
from specbench.verify.polygon import Regions

Positions = NDArray[np.int64]


class RowSharedByPositions(EnumeratingNoise):
    """One Gumbel row for two neighbouring positions."""

    def target_row(self, image: int, position: Positions) -> tuple[int, Positions]:
        """Positions 2k and 2k + 1 read row 2k."""
        return image, position // 2 * 2


class RowOfWindowSlot(EnumeratingNoise):
    """Gumbel rows tied to the window's slots instead of to positions."""

    def target_row_of(self, rows: Positions, image: int, position: Positions) -> tuple[int, Positions]:
        """The slot is the distance from the committed tokens."""
        return image, position - self._committed()[rows, image]


class RowsBackwards(EnumeratingNoise):
    """Another numbering of the rows, which changes nothing."""

    def target_row(self, image: int, position: Positions) -> tuple[int, Positions]:
        """Position j reads row N - 1 - j."""
        return image, self.size - 1 - position


class RowsSharedByImages(EnumeratingNoise):
    """All images of a batch read the Gumbel rows of the first."""

    def target_row(self, image: int, position: Positions) -> tuple[int, Positions]:
        """The image is left out of the key."""
        return 0, position


class RowsOfImagesSwapped(EnumeratingNoise):
    """Images read each other's rows, one each: nothing changes."""

    def target_row(self, image: int, position: Positions) -> tuple[int, Positions]:
        """Image i reads the rows of image n - 1 - i."""
        return self.images - 1 - image, position


class ResidualFromRow(EnumeratingNoise):
    """The correction of a refused draft reads the position's own Gumbel row."""

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """Coupled if the role is ``residual``."""
        return self.coupled(law, key.position, need) if key.role == "residual" else super().draw(law, key, need)


class FillFromRow(EnumeratingNoise):
    """The first draft reads the position's own Gumbel row: harmless."""

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """Coupled if the role is ``fill``."""
        return self.coupled(law, key.position, need) if key.role == "fill" else super().draw(law, key, need)


class _SharedCoins(EnumeratingNoise):
    """Coins that come from uniforms which are read more than once: what is left of each is an interval.

    The test (index 0) and the redraft (index 1) have numbers of their own, as in production, unless a subclass says
    otherwise: what is left out of the address must be the defect and nothing else.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.coin_regions = np.zeros((*self.regions.shape[:2], 2 * self.size), dtype=np.int64)
        self.intervals = Regions(2)

    def _interval(self, position: Positions, index: int) -> Positions:
        raise NotImplementedError

    def _coin(
        self, rows: Positions, image: int, p: NDArray[np.float64], key: Key, position: Positions
    ) -> NDArray[np.bool_]:
        at = self._interval(position, key.index)
        shares, children = self.intervals.cut(self.coin_regions[rows, image, at], np.column_stack([p, 1 - p]))
        outcome = self._fork(rows, shares, "accept")
        self.coin_regions[rows, image, at] = children[np.arange(len(rows)), outcome]
        return outcome == 0


class CoinsWithoutPass(_SharedCoins):
    """A position's accept number is the same in every pass. Harmless until a slot is redrafted twice."""

    def _interval(self, position: Positions, index: int) -> Positions:
        return position + index * self.size


class CoinsWithoutPassOrIndex(_SharedCoins):
    """A position's accept number is the same in every pass and for every use: the redraft's coin is tested again."""

    def _interval(self, position: Positions, index: int) -> Positions:
        return position


class CoinsWithoutIndex(CoinsWithoutPassOrIndex):
    """The index alone is left out: harmless, as a slot is either tested in a pass or redrafted."""

    def advance(self, moved: int | None = None) -> None:
        """A new number for the new pass."""
        super().advance(moved)
        self.coin_regions[:] = 0


class OneCoinPerPass(_SharedCoins):
    """All positions of a pass share one accept number."""

    def advance(self, moved: int | None = None) -> None:
        """A new number for the new pass."""
        super().advance(moved)
        self.coin_regions[:] = 0

    def _interval(self, position: Positions, index: int) -> Positions:
        return np.full_like(position, index * self.size)


class OneCoinPerPair(OneCoinPerPass):
    """Neighbouring positions share their accept number."""

    def _interval(self, position: Positions, index: int) -> Positions:
        return position // 2 + index * self.size


class BonusFromFreshNoise(EnumeratingNoise):
    """The draw behind a full run of drafts does not read the position's row (only replay's tokens can tell)."""

    def coupled(self, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
        """The last slot draws afresh."""
        if position.shape[1] == 1:
            return super().coupled(law, position, need)
        before = super().coupled(law[:, :-1], position[:, :-1], need[:, :-1])
        last = self.draw(law[:, -1:], Key("child", position[:, -1:]), need[:, -1:])
        return torch.cat([before, last], 1)
