"""How a slot that just entered the window gets its first draft.

Knows: six fills, the law each one's token really has, and what they do at the edges of the grid.
Refuses to know: what happens to the draft afterwards.

Exactness: a fill may use anything at positions before the slot, tokens and laws, and laws recorded at any earlier
time; never the slot's own later fate. A copied token carries a point mass at itself, a drawn one the law it was drawn
from.

Edges: a slot without a neighbour on the side that the fill copies from (first column for ``left…``, first row of a
frame for ``above…``) is filled uniformly, token and law. Where the neighbour is itself new, its own neighbour stands
in, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from specbench.decoding.board import Board
from specbench.decoding.interfaces import Grid, Key, Noise

Side = Literal["left", "above"]


class Fill(Protocol):
    """Fills slots of a board; ``look_back`` says how far behind the window it reads laws."""

    def look_back(self, grid: Grid) -> int:
        """Positions behind the window whose laws must be kept."""
        ...

    def __call__(
        self, noise: Noise, board: Board, position: Tensor, fresh: Tensor, known: Tensor, in_pass: int
    ) -> None:
        """Put tokens and laws at ``position`` [B, F] where ``fresh`` [B, F] says so.

        Every position before ``known`` [B] has a token.
        """
        ...


@dataclass(frozen=True)
class Uniform:
    """x ~ uniform over the codebook, q = 1/V. Kept with probability Σ min(p, 1/V), far above the point mass's 1/V.

    ``point_mass`` records the drawn token's point mass instead, as the released code of SJD, GSD and SCD does.
    """

    point_mass: bool = False

    def look_back(self, grid: Grid) -> int:
        """Nothing."""
        return 0

    def __call__(
        self, noise: Noise, board: Board, position: Tensor, fresh: Tensor, known: Tensor, in_pass: int
    ) -> None:
        """One uniform draw per slot."""
        law = _uniform(board, position)
        tokens = noise.draw(law, Key("fill", position), fresh)
        board.put_tokens(position, tokens, fresh, in_pass)
        board.put_laws(position, _points(tokens, fresh, law) if self.point_mass else law, fresh)


@dataclass(frozen=True)
class Copy:
    """x = the token on that side, q = its point mass. SJD (2410.01699), spatial initialisation (repeat)."""

    side: Side

    def look_back(self, grid: Grid) -> int:
        """Nothing: tokens stay on the board."""
        return 0

    def __call__(
        self, noise: Noise, board: Board, position: Tensor, fresh: Tensor, known: Tensor, in_pass: int
    ) -> None:
        """Uniform draws at the edge first, since others copy them."""
        source, edge = _source(board.grid, self.side, position, known)
        law = _uniform(board, position)
        drawn = noise.draw(law, Key("fill", position), fresh & edge)
        board.put_tokens(position, drawn, fresh & edge, in_pass)
        copied = board.tokens.gather(1, torch.where(fresh, source, 0))
        board.put_tokens(position, copied, fresh & ~edge, in_pass)
        points = _points(copied, fresh & ~edge, law)
        board.put_laws(position, torch.where(edge[..., None], law, points), fresh)


@dataclass(frozen=True)
class FromLaw:
    """x ~ the law last recorded on that side, which is then also q; never the neighbour's token.

    The neighbour's law may stem from an earlier pass and from a prefix that was rejected since: it is known before the
    slot's token is drawn, and that is all that exactness asks for.
    """

    side: Side

    def look_back(self, grid: Grid) -> int:
        """A row of the grid if the neighbour is a row away."""
        return grid.columns if self.side == "above" else 1

    def __call__(
        self, noise: Noise, board: Board, position: Tensor, fresh: Tensor, known: Tensor, in_pass: int
    ) -> None:
        """One draw per slot; a neighbour that is itself an edge slot of this fill has the uniform law."""
        source, edge = _source(board.grid, self.side, position, known)
        recorded = (fresh & ~edge & (source < known[:, None]))[..., None]
        law = torch.where(recorded, board.law(source), 1 / board.vocab)
        tokens = noise.draw(law, Key("fill", position), fresh)
        board.put_tokens(position, tokens, fresh, in_pass)
        board.put_laws(position, law, fresh)


def _source(grid: Grid, side: Side, position: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """The position [B, F] that stands on ``side``, and whether the slot is an edge slot (then its own source).

    That is the nearest one on that side which has a token before this fill, or else the edge itself: all sources have
    a token once the edges are drawn, without walking along the slots one by one.
    """
    row = position // grid.columns % grid.rows
    stride, most = (1, position % grid.columns) if side == "left" else (grid.columns, row)
    beyond = position - known[:, None]  # 0 for the first slot that has nothing yet
    steps = (beyond // stride + 1).clamp(min=1)
    steps = torch.minimum(steps, most)
    return position - steps * stride, most == 0


def _uniform(board: Board, position: Tensor) -> Tensor:
    """The uniform law [B, F, V] as a view of one row."""
    row = torch.full((), 1 / board.vocab, dtype=board.laws.dtype, device=board.laws.device)
    return row.expand(1, 1, board.vocab).contiguous().expand(*position.shape, board.vocab)


def _points(tokens: Tensor, where: Tensor, like: Tensor) -> Tensor:
    """Point masses [B, F, V] at ``tokens`` [B, F] (anything outside the mask)."""
    points = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    return points.scatter_(-1, torch.where(where, tokens, 0)[..., None], 1)


FILLS: dict[str, Fill] = {
    "uniform": Uniform(),
    "onehot": Uniform(point_mass=True),
    "left": Copy("left"),
    "above": Copy("above"),
    "left_law": FromLaw("left"),
    "above_law": FromLaw("above"),
}
