"""The state of a batch between two passes, addressed by absolute position.

Knows: for every position its current token (committed or draft), the law that token was drawn from, how often it
changed; for every image how many tokens are committed.
Refuses to know: how tokens are drawn, tested or filled in.

A position keeps its address while the window slides over it, so nothing is ever shifted. Laws are kept in a ring as
long as the window plus whatever a fill looks back on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Grid

EMPTY = START
"""The token of a position that has had none yet."""


class Past(NamedTuple):
    """An earlier pass: ``laws`` [B, w, V] of the positions from ``start`` [B] on, the first ``known`` [B] of which the
    target gave; ``tokens`` [B, N + W], those of the board under which it did.
    """

    start: Tensor
    laws: Tensor
    tokens: Tensor
    known: Tensor

    def row(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of ``laws`` for ``position`` [B, L], and whether that pass had a law there: [B, L] each."""
        row = position - self.start[:, None]
        return row.clamp(max=self.laws.shape[1] - 1), row < self.known[:, None]


class Board:
    """Tokens and laws of B images of N tokens, seen through a window of W.

    ``committed`` [B] int64 · ``tokens``, ``changes``, ``since`` [B, N + W] int64 (positions from N on are scrap) ·
    ``laws`` [B, depth + 1, V] (row ``depth`` is scrap) · ``past`` the passes before this one, latest first (laws are
    references, no copies) · ``tree`` [B] bool which rows spend a part of the next pass on a tree.
    """

    def __init__(self, images: int, grid: Grid, vocab: int, window: int, look_back: int, device: torch.device) -> None:
        self.grid, self.vocab, self.size, self.width = grid, vocab, grid.size, window
        self.depth = window + max(window, look_back)
        self.rows = torch.arange(images, device=device)[:, None]
        self.committed = torch.zeros(images, dtype=torch.int64, device=device)
        self.tokens = torch.full((images, self.size + window), EMPTY, device=device)
        self.changes = torch.zeros_like(self.tokens)
        self.since = torch.zeros_like(self.tokens)
        self.laws = torch.zeros(images, self.depth + 1, vocab, dtype=torch.float64, device=device)
        self.past: list[Past] = []
        self.tree = torch.zeros_like(self.committed, dtype=torch.bool)

    def positions(self, start: Tensor, count: int) -> Tensor:
        """``count`` positions from ``start`` [B]: [B, count] int64."""
        return start[:, None] + torch.arange(count, device=start.device)

    def law(self, position: Tensor) -> Tensor:
        """The recorded laws of ``position`` [B, L]: a copy [B, L, V]."""
        return self.laws[self.rows, position % self.depth]

    def law_at(self, position: Tensor, token: Tensor) -> Tensor:
        """The recorded probability of ``token`` at ``position``: [B, L] each."""
        return self.laws[self.rows, position % self.depth, token]

    def put_laws(self, position: Tensor, laws: Tensor, where: Tensor) -> None:
        """Record ``laws`` [B, L, V] at ``position`` [B, L] where the mask says so."""
        self.laws[self.rows, torch.where(where, position % self.depth, self.depth)] = laws

    def remember(self, laws: Tensor, known: Tensor, passes: int) -> None:
        """Keep the ``laws`` [B, w, V] of this pass, the first ``known`` [B] of them; no more than ``passes`` in all.

        Call before the board is written to: the tokens are those that the laws were computed under.
        """
        if passes:
            self.past = [Past(self.committed, laws, self.tokens.clone(), known), *self.past[: passes - 1]]

    def put_tokens(self, position: Tensor, tokens: Tensor, where: Tensor, in_pass: int) -> None:
        """Give ``position`` [B, L] its ``tokens`` [B, L] where the mask says so, and keep count of changes."""
        old = self.tokens.gather(1, position)
        new = torch.where(where, tokens, old)
        changed = new != old
        self.tokens.scatter_(1, position, new)
        self.changes.scatter_add_(1, position, (changed & (old != EMPTY)).long())
        since = self.since.gather(1, position)
        self.since.scatter_(1, position, torch.where(changed, in_pass, since))


@dataclass
class Window:
    """What the parts see of one pass: w slots from the first uncommitted position on.

    ``position`` [B, w] absolute · ``token`` [B, w] the draft of each slot · ``drafted`` [B, w] whether it has one and
    is live · ``live`` [B, w] whether it is inside the image and gets a law in this pass · ``has_free`` whether the last
    slot (where it is live) is free, which means that it has no draft yet and its first token is about to be drawn ·
    ``settled`` [B] how many slots the pass has settled, once it is judged; ``token`` then holds what it settled.
    """

    board: Board
    position: Tensor
    token: Tensor
    drafted: Tensor
    live: Tensor
    has_free: bool
    settled: Tensor | None = None

    @property
    def slot(self) -> Tensor:
        """Slot numbers [w]."""
        return torch.arange(self.position.shape[1], device=self.position.device)

    def q_of_draft(self) -> Tensor:
        """Probability of each draft under the law it was drawn from: [B, w], positive where there is a draft."""
        found = self.board.law_at(self.position, self.token)
        return torch.where(self.drafted, found, 1)

    def q(self) -> Tensor:
        """Those laws themselves, [B, w, V] (a copy)."""
        return self.board.law(self.position)


def look(board: Board, width: int, side: int = 0) -> Window:
    """The window of ``width`` slots, ``side`` fewer for a row with a tree: its side nodes take their place in the pass.

    The board's own width decides which slot is free, so that a window which is cut short near the end of the image
    (for the whole batch) changes nothing for any row.
    """
    position = board.positions(board.committed, width)
    live = position < board.size
    if side:
        live &= ~board.tree[:, None] | (torch.arange(width, device=live.device) < board.width - side)
    drafted = live & (torch.arange(width, device=live.device) < board.width - 1)
    token = torch.where(drafted, board.tokens.gather(1, position), 0)
    return Window(board, position, token, drafted, live, has_free=width == board.width)


def at_slot(x: Tensor, slot: Tensor) -> Tensor:
    """Entry ``slot`` [B] of ``x`` [B, w, ...], kept as a dimension: [B, 1, ...]. No copy of anything else."""
    return x[torch.arange(x.shape[0], device=x.device), slot.clamp(max=x.shape[1] - 1)][:, None]
