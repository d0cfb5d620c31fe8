"""How an image is cut into the blocks that are drafted together.

Knows: the grid, how far heads look to the right and how many rows they draft at once.
Refuses to know: heads, laws, how a block is corrected.

    row 0        x0 ▕ 1 2 3 4 5 ▏6 7 8 9 10 ▏…      horizontal blocks of k_h, each from the token before it
    rows 1…      ▕ a whole group of k_v rows ▏      vertical blocks, each from the last row before it
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specbench.decoding.interfaces import Grid


@dataclass
class Layout:
    """Blocks of an image of N tokens, by the position that they start from.

    ``columns`` k_h, ``rows`` k_v; with k_v = 0 every block is horizontal. Then a target without row ends lets blocks
    run across them; one with row ends begins each row with a token of its own, as the published counts of 1D-MTP do.
    """

    grid: Grid
    columns: int
    rows: int

    def __post_init__(self) -> None:
        size, width = self.grid.size, self.grid.columns
        position = torch.arange(size + 1)
        row = position // width
        row_end = (row + 1) * width if self.rows or self.grid.row_ends else torch.full_like(position, size)
        across = torch.minimum(position + self.columns, row_end)
        group = (row - 1).div(max(1, self.rows), rounding_mode="floor")
        down = (1 + (group + 1) * max(1, self.rows)) * width
        alone = position == 0
        if not self.rows and self.grid.row_ends:
            alone = position % width == 0
        self.end = torch.where(position < self.first_down, across, down).where(~alone, position + 1).clamp(max=size)
        self.alone = alone
        self.ends: list[int] = self.end.tolist()
        self.solitary: list[bool] = alone.tolist()

    @property
    def widest(self) -> int:
        """Tokens of the longest block, and one behind it."""
        return min(max(self.columns, self.rows * self.grid.columns), self.grid.size) + 1

    @property
    def first_down(self) -> int:
        """The first position whose block is drafted from the row above; beyond the image if there is none."""
        return self.grid.columns if self.rows else self.grid.size + 1

    def lengths(self, start: int, end: int) -> list[int]:
        """The rows, or the one part of a row, that make up the block from ``start`` to ``end``."""
        if start < self.first_down:
            return [end - start]
        return [min(self.grid.columns, end - at) for at in range(start, end, self.grid.columns)]

    def reach(self, low: int, high: int) -> int:
        """A bound on the length of any block that starts between positions ``low`` and ``high``."""
        if low == high:
            return self.ends[low] - low
        across = self.columns if low < self.first_down else 1
        longest = max(across, self.rows * self.grid.columns if high >= self.first_down else 1)
        return min(longest, self.grid.size - low)
