"""How far heads see, and what each round of a repair changes: what an onlooker can tell from a block decoder's passes.

Knows: which head drafted a position and how often it has been judged, and per image the sums of Σ min(p, q), of drafts
kept and of drafts changed.
Refuses to know: how blocks are drafted and corrected; it reads each judged pass and changes nothing.

SSD (2606.20543), figure 1, shows acceptance by spatial offset, horizontal against vertical: the *first* test of a
draft, with q the law of its head. Later rounds test the repaired token with the law that it was drawn from last.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.decoding.block import Block
from specbench.decoding.board import Window
from specbench.decoding.correct import Truncate
from specbench.decoding.layout import Layout

ROUNDS = 16
"""Rounds that are told apart; later ones count as this one."""


class BlockOnlooker:
    """Watches one decode of ``block``. Give it to ``Block(watch=…)``, decode, then read :meth:`rows`."""

    def __init__(self, block: Block) -> None:
        self._columns, self._rows = block.spatial.columns, block.spatial.rows
        self._anew = isinstance(block.correct, Truncate)  # what was refused is drafted again, and nothing is repaired
        self._judged: Tensor | None = None
        self._head: Tensor

    def __call__(self, window: Window, p: Tensor, tokens: Tensor) -> None:
        """Take a judged pass in: laws p [B, w, V], new tokens [B, w]; the board still holds the old ones."""
        if self._judged is None:
            self._begin(window)
        assert self._judged is not None
        position = window.position.clamp(max=window.board.size)
        drafted = window.drafted & ~self._alone[position]
        judged = self._judged.gather(1, position)
        fresh = drafted & (judged == 0)
        heads = torch.where(fresh, self._place(window), self._head.gather(1, position))
        self._head.scatter_(1, torch.where(fresh, position, window.board.size), heads)
        overlap = torch.minimum(p, window.q()).sum(-1)
        kept = tokens == window.token
        parts = torch.stack([torch.ones_like(overlap), overlap, kept.to(overlap.dtype)], -1).double()
        self._add(self._by_head, heads, fresh, parts)
        self._add(self._by_round, judged.clamp(max=ROUNDS - 1), drafted, parts)
        if not self._anew:
            self._judged.scatter_add_(1, position, drafted.long())

    def rows(self) -> list[dict[str, list[float]]]:
        """One mapping per image: sums ``right_drafts``, ``…_overlap``, ``…_kept`` by column; ``below_``, ``round_``."""
        if self._judged is None:
            return []
        sums = {
            "right": self._by_head[:, : self._columns],
            "below": self._by_head[:, self._columns :],
            "round": self._by_round,
        }
        host = {name: each.cpu() for name, each in sums.items()}
        parts = ("drafts", "overlap", "kept")
        return [
            {
                f"{name}_{part}": each[image, :, i].tolist()
                for name, each in host.items()
                for i, part in enumerate(parts)
            }
            for image in range(len(self._by_head))
        ]

    def _begin(self, window: Window) -> None:
        board, images, device = window.board, len(window.position), window.position.device
        self._alone = Layout(board.grid, self._columns, self._rows).alone.to(device)
        self._judged = torch.zeros(images, board.size + 1, dtype=torch.int64, device=device)
        self._head = torch.zeros_like(self._judged)
        self._by_head = torch.zeros(images, self._columns + self._rows, 3, dtype=torch.float64, device=device)
        self._by_round = torch.zeros(images, ROUNDS, 3, dtype=torch.float64, device=device)

    def _place(self, window: Window) -> Tensor:
        """The head of each fresh draft [B, w]: columns to the right of the block's source, then rows below it."""
        start, wide = window.position[:, :1], window.board.grid.columns
        across = (window.position - start).clamp(max=self._columns - 1)
        if not self._rows:
            return across
        down = window.position // wide - start // wide
        return torch.where(start < wide, across, self._columns + down.clamp(max=self._rows - 1))

    @staticmethod
    def _add(sums: Tensor, place: Tensor, where: Tensor, parts: Tensor) -> None:
        """Add ``parts`` [B, w, 3] to ``sums`` [B, P, 3] at ``place`` [B, w], where the mask says so."""
        index = torch.where(where, place, 0)[..., None].expand_as(parts)
        sums.scatter_add_(1, index, torch.where(where[..., None], parts, 0.0))
