"""What happens to a drafted block: repaired in place for some rounds, or cut at its first refusal.

Knows: the order of passes within a block.
Refuses to know: heads, and the formula of a repair, which is a redraft's (:mod:`specbench.decoding.redraft`).

    repair                                              truncate
    ──────────────────────────────────────────────      ──────────────────────────────────────────────
    r times: read the block, p = laws of its tokens     read the block, p = laws of its tokens
             redraft every token from p in place        keep drafts up to the first that fails
             roll the cache back                        commit those and one token more
    commit:  read the block once more and keep it       draft the rest of the row anew

A refusal within a repair leaves what follows where it is: the context of later tokens is then a wrong one, and they are
judged again in the next round. After b rounds a block of b tokens is right: the first token is right after the first
round, and its law never changes again; the second token therefore is right after the second, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from specbench.decoding.accept import Strict
from specbench.decoding.board import Window, at_slot
from specbench.decoding.flight import Flight
from specbench.decoding.interfaces import Noise


class Correct(Protocol):
    """Runs all passes of a batch."""

    def run(self, flight: Flight) -> None:
        """Decode every image to its end."""
        ...


@dataclass(frozen=True)
class Repair:
    """SSD (2606.20543), section 3.3: verify and correct in place, ``rounds`` times, then commit. Cost: r + 1 passes.

    ``rounds``: r, or b where rows are drafted in groups; ``exact`` takes as many as the block has tokens.
    ``first_rounds``: those of row 0's horizontal blocks, where rows are drafted whole.
    ``staged``: i. Of a group of rows the leading one is committed after b rounds; each further row then has i rounds
    of its own with the corrected rows above as context (0: joint). ``commit``: each ``row`` in a pass of its own, as
    the published counts have it, or the ``group`` in one.
    ``law``: a token that stayed or was replaced is tested next with the law of the ``previous`` round, which is the
    one it has; or always with the ``head``'s.
    ``states``: heads read the hidden states of the ``commit`` pass, or of the last round, which saw tokens that it then
    replaced. ``bonus``: a horizontal block also commits the token that its commit pass predicts behind it.
    ``stop``: ``fixed_point`` ends the rounds of an image's block when nothing in it changes; that pass *is* the commit.
    """

    rounds: int | Literal["exact"] = 2
    first_rounds: int = 1
    staged: int = 0
    law: Literal["previous", "head"] = "previous"
    commit: Literal["row", "group"] = "row"
    states: Literal["commit", "round"] = "commit"
    bonus: bool = False
    stop: Literal["never", "fixed_point"] = "never"

    def run(self, flight: Flight) -> None:
        """All images go in step, unless blocks may stop early."""
        if self.stop == "fixed_point":
            _until_fixed(flight)
            return
        everyone = flight.board.committed == 0
        while (start := flight.low) < flight.size:
            end = flight.layout.ends[start]
            if flight.layout.solitary[start]:
                self._alone(flight)
                continue
            flight.draft(end - start, everyone)
            across = start < flight.layout.first_down
            rounds = self._rounds(end - start, across and flight.spatial.rows > 0)
            for number in range(rounds):
                self._round(flight, end, fresh=number == 0)
            parts = [end - start] if self.commit == "group" else flight.layout.lengths(start, end)
            for number, length in enumerate(parts):
                more = self.staged if number else 0
                for _ in range(more):
                    self._round(flight, flight.low + length)
                self._commit(flight, length, self.bonus and across, bool(more or rounds))

    def _rounds(self, length: int, first_row: bool) -> int:
        if self.rounds == "exact":
            return length
        return self.first_rounds if first_row else self.rounds

    def _alone(self, flight: Flight) -> None:
        """A token that no head drafts: drawn as plain AR draws it."""
        window, logits = flight.evaluate(flight.block_end, 1)
        tokens = flight.noise.coupled(flight.law(logits), window.position, window.live)
        flight.settle(window, tokens, window.live.sum(1))
        flight.moves(1)

    def _round(self, flight: Flight, end: int, fresh: bool = False) -> None:
        """Read up to ``end``, redraft in place, roll the cache back. ``fresh``: these are the heads' own drafts."""
        window, logits = flight.evaluate(flight.end.new_full((1,), end), end - flight.low, self.states == "round")
        p = flight.law(logits)
        tokens = flight.redraft(flight.noise, p, window, window.live)
        if flight.watch is not None:
            flight.watch(window, p, tokens)
        if self.law == "previous":
            flight.board.put_laws(window.position, p, window.live)
        kept = ((tokens == window.token) & window.live).sum(1)
        counts = (window.live.sum(1), kept) if fresh else ()
        flight.settle(window, tokens, torch.zeros_like(kept), *counts)
        flight.moves(0)

    def _commit(self, flight: Flight, length: int, bonus: bool, judged: bool) -> None:
        """Read the final tokens and keep them; with ``bonus`` also the one this pass predicts, if the row has it."""
        start = flight.low
        row_end = (start // flight.layout.grid.columns + 1) * flight.layout.grid.columns
        limit = row_end if flight.spatial.rows or flight.layout.grid.row_ends else flight.size
        more = int(bonus and start + length < limit)
        end = flight.end.new_full((1,), start + length + more)
        window, logits = flight.evaluate(end, length + more, self.states == "commit" or not judged or more > 0)
        tokens = window.token
        if more:
            free = flight.noise.coupled(flight.law(logits[:, -1:]), window.position[:, -1:], window.live[:, -1:])
            tokens = torch.cat([tokens[:, :-1], free], 1)
        flight.settle(window, tokens, window.live.sum(1))
        flight.moves(length + more)


def _until_fixed(flight: Flight) -> None:
    """Redraft on the positions' own Gumbel rows until nothing changes: the tokens are then AR's own.

    Every image stops its block by itself. A token that is drawn on its own row from the law after the tokens before it
    is the one AR draws; at a fixed point that holds for all of them at once, and the cache holds them already.
    """
    fresh = flight.board.committed == 0
    while flight.low < flight.size:
        width = flight.layout.reach(flight.low, flight.high)
        if flight.high:
            flight.draft(width, fresh)
        drafted = ~flight.alone[flight.board.committed] & fresh
        end = flight.block_end
        window, logits = flight.evaluate(end, width)
        p = flight.law(logits)
        tokens = flight.redraft(flight.noise, p, window, window.live)
        if flight.watch is not None:
            flight.watch(window, p, tokens)
        length = window.live.sum(1)
        kept = ((tokens == window.token) & window.live).sum(1)
        settled = torch.where(_fixed(window, tokens, end), length, 0)
        flight.settle(window, tokens, settled, length * drafted, kept * drafted)
        flight.look(settled)
        fresh = settled > 0


def _fixed(window: Window, tokens: Tensor, end: Tensor) -> Tensor:
    """Images [B] whose block, up to ``end`` [B], came out as it was fed; its last token is fed by the next pass."""
    fed = window.position < end[:, None] - 1
    return ((tokens == window.token) | ~fed).all(1)


@dataclass(frozen=True)
class Truncate:
    """Speculative sampling on the same drafts: the strict variant of SSD's table 4 (2606.20543).

    The cache of what was accepted is right as it is, so there is no pass for the commit alone.
    """

    def run(self, flight: Flight) -> None:
        """Every image goes at its own pace."""
        everyone = flight.board.committed == 0
        while flight.low < flight.size:
            width = flight.layout.reach(flight.low, flight.high)
            if flight.high:
                flight.draft(width, everyone)
            alone = flight.alone[flight.board.committed]
            last = torch.where(alone, flight.board.committed, flight.block_end)
            window, logits = flight.evaluate((last + 1).clamp(max=flight.size), width + int(flight.high > 0))
            window.drafted = window.live & (window.position < last[:, None])
            p = flight.law(logits)
            accepted, tokens = Strict()(flight.noise, p, p, window, _free_only)
            if flight.watch is not None:
                flight.watch(window, p, tokens)
            settled = torch.minimum(accepted + 1, window.live.sum(1))
            final = window.live & (window.slot < settled[:, None])
            flight.settle(window, tokens, settled, window.drafted.sum(1), accepted, final)
            flight.look(settled)


def _free_only(noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
    """Draw the slot behind the last draft on its own Gumbel row, and nothing else: other drafts are made anew."""
    free = window.drafted.sum(1)
    need = at_slot(need, free) & (free < window.live.sum(1))[:, None]
    return noise.coupled(at_slot(law, free), at_slot(window.position, free), need).expand_as(window.token)


CORRECTS: dict[str, Correct] = {"repair": Repair(), "truncate": Truncate()}
