"""The state of block decoding between two passes, and what a pass does to it.

Knows: the board, the canvas, the hidden states from which committed tokens were sampled, and the counters.
Refuses to know: how a block is drafted or corrected, and the order of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specbench.decoding.board import Board, Window
from specbench.decoding.clock import Clock, device_of
from specbench.decoding.interfaces import START, Noise, Prompt, SpatialHeads, Target, tell
from specbench.decoding.laws import Sampling, law_of
from specbench.decoding.layout import Layout
from specbench.decoding.redraft import Redraft
from specbench.decoding.spatial import Spatial, read_by
from specbench.decoding.trace import Trace, rows_finished, stack
from specbench.errors import UsageError

Watch = Callable[[Window, Tensor, Tensor], None]
"""Sees each judged pass before the board is written to: its window, its laws p [B, w, V], the new tokens [B, w]."""


class Flight:
    """B images in flight, block by block.

    ``low`` and ``high`` are the host's knowledge of how far the slowest and the fastest image are. They are equal
    where images go in step, and then nothing is ever read back.
    """

    def __init__(
        self,
        target: Target,
        prompts: Sequence[Prompt],
        noise: Noise,
        sampling: Sampling,
        spatial: Spatial,
        heads: SpatialHeads,
        redraft: Redraft,
        watch: Watch | None,
    ) -> None:
        device, images = device_of(target), len(prompts)
        self.target, self.noise, self.sampling = target, noise, sampling
        self.spatial, self.heads, self.redraft, self.watch = spatial, heads, redraft, watch
        self.layout = Layout(target.grid, spatial.columns, spatial.rows)
        self.end, self.alone = self.layout.end.to(device), self.layout.alone.to(device)
        self.size = target.grid.size
        self.clock = Clock(device)
        self.canvas = target.begin(prompts, sampling.guidance)
        self.board = Board(images, target.grid, target.vocab, self.layout.widest, 0, device)
        self.last = torch.full((images, 1), START, device=device)
        self.h: Tensor | None = None
        self.low = self.high = self.moved = 0
        self.counters: list[Tensor] = []

    @property
    def block_end(self) -> Tensor:
        """Where each image's present block ends: [B] int64; N for a finished image."""
        return self.end[self.board.committed]

    def seen(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Of tokens at ``position`` [B, L], what heads read: the states [R, B, L, d] they were sampled from, before
        or behind the final norm, and their embeddings [B, L, d].
        """
        assert self.h is not None, "heads read what a pass has computed"
        h = read_by(self.heads, self.target, self.h[:, self.board.rows, position])
        return h, self.embedded(position)

    def embedded(self, position: Tensor) -> Tensor:
        """Embeddings [B, L, d] of the tokens at ``position`` [B, L]."""
        return self.target.embed(self.board.tokens.gather(1, position).clamp(0, self.target.vocab - 1))

    def draft(self, width: int, images: Tensor) -> None:
        """Draft the blocks of ``images`` [B] bool; none is longer than ``width``."""
        position = self.board.positions(self.board.committed, width)
        inside = position < self.block_end[:, None]
        self.spatial(self, width, inside & (images & ~self.alone[self.board.committed])[:, None])

    def evaluate(self, end: Tensor, width: int, states: bool = True) -> tuple[Window, Tensor]:
        """One pass over the ``width`` slots behind what is committed, live up to ``end`` [B].

        Returns the window and the logits [B, width, V]. ``states``: keep the hidden states for the heads.
        """
        board, ahead = self.board, self.board.positions(self.board.committed, width)
        self.noise.advance(self.moved)
        tell(self.canvas, self.moved)
        live = ahead < end[:, None]
        token = torch.where(live, board.tokens.gather(1, ahead), 0).clamp(min=0)
        self.clock.lap("sampling")
        out = self.canvas.forward(torch.cat([self.last, token[:, :-1]], 1))
        self.clock.lap("passes" if self.counters else "prefill")
        if out.h is None:
            raise UsageError(
                f"{type(self.target).__name__} returns no hidden states, and heads draft from nothing else"
            )
        if self.h is None:
            rows, images, _, width_of_h = out.h.shape
            self.h = out.h.new_zeros(rows, images, self.size + 1, width_of_h)
        if states:
            self.h[:, board.rows, torch.where(live, ahead, self.size)] = out.h
        return Window(board, ahead, token, live, live, has_free=False), out.logits

    def law(self, logits: Tensor) -> Tensor:
        """The law of ``logits``; the board takes over its precision."""
        p = law_of(logits, self.sampling)
        self.board.laws = self.board.laws.to(p.dtype)
        return p

    def settle(
        self,
        window: Window,
        tokens: Tensor,
        settled: Tensor,
        drafted: Tensor | None = None,
        accepted: Tensor | None = None,
        where: Tensor | None = None,
    ) -> None:
        """Take over ``tokens`` [B, w] and commit ``settled`` [B] of them; the other counts [B] go into the trace.

        ``where`` [B, w]: only these tokens are final or drafts from now on (None: all that are inside the block).
        """
        board, none = self.board, torch.zeros_like(settled)
        board.put_tokens(window.position, tokens, window.live if where is None else where, len(self.counters) + 1)
        self.canvas.keep(settled)
        board.committed = board.committed + settled
        last = board.tokens.gather(1, (board.committed - 1).clamp(min=0)[:, None])
        self.last = torch.where(board.committed[:, None] > 0, last, START)
        counts = (none if drafted is None else drafted, none if accepted is None else accepted)
        self.counters.append(torch.stack([window.live.sum(1), *counts, settled]))

    def moves(self, count: int) -> None:
        """Tell the host that every image has moved by ``count``: it knows so without looking."""
        self.low, self.high, self.moved = self.low + count, self.high + count, count

    def look(self, settled: Tensor) -> None:
        """Ask the device how far images are and how far any just moved: one number, one wait."""
        base, committed = self.size + 1, self.board.committed
        both = (committed.amin() * base + committed.amax()) * base + settled.amax()
        rest, self.moved = divmod(int(both), base)
        self.low, self.high = divmod(rest, base)

    def trace(self) -> Trace:
        """The trace of all passes so far, on the host."""
        self.clock.lap("sampling")
        seconds = self.clock.seconds()
        window, drafted, accepted, committed = stack(self.counters)
        since = self.board.since[:, : self.size].clamp(min=1).cpu()
        changes = self.board.changes[:, : self.size].cpu()
        return Trace(window, drafted, accepted, committed, since, changes, seconds, self._row_ends(committed))

    def _row_ends(self, committed: Tensor) -> Tensor | None:
        """Passes for row ends alone, where the grid has them.

        The published counts contain one behind row 0, whose blocks are drafted before the row below them exists, and
        none for rows that are drafted whole; where no row is drafted whole (1D-MTP), one behind each.
        """
        if not self.layout.grid.row_ends:
            return None
        ended = rows_finished(committed, self.layout.grid.columns)
        first = ended.cumsum(0) - ended == 0
        return ended.clamp(max=1) * first if self.spatial.rows else ended
