"""Defects planted in block decoding, and the harmless twins of some.

Knows: what can go wrong between the rounds of a block, and which production function to replace for it.
Refuses to know: whether a defect is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specbench.decoding import correct
from specbench.decoding.board import Window
from specbench.decoding.correct import Repair
from specbench.decoding.flight import Flight
from specbench.decoding.spatial import Spatial
from specbench.verify.plants import Patch


def commit_keeps_stale_tokens(patch: Patch) -> None:
    """The commit pass reads the heads' drafts: the cache has other tokens than the image."""
    judge, commit = Repair._round, Repair._commit

    def remember(self: Repair, flight: Any, end: int, fresh: bool = False) -> None:
        if fresh:
            flight.stale = flight.board.tokens.clone()
        judge(self, flight, end, fresh)

    def stale(self: Repair, flight: Any, length: int, bonus: bool, judged: bool) -> None:
        final = flight.board.tokens
        flight.board.tokens = flight.stale
        commit(self, flight, length, bonus, judged)
        flight.board.tokens = final
        flight.last = final.gather(1, (flight.board.committed - 1)[:, None])

    patch(Repair, "_round", remember)
    patch(Repair, "_commit", stale)


def rounds_short_of_the_block(patch: Patch) -> None:
    """One round less than the block has tokens."""
    _rounds(patch, -1)


def rounds_beyond_the_block(patch: Patch) -> None:
    """Twin: one round more, which finds nothing to repair."""
    _rounds(patch, +1)


def _rounds(patch: Patch, more: int) -> None:
    count = Repair._rounds
    patch(Repair, "_rounds", lambda self, length, first_row: count(self, length, first_row) + more)


def law_of_the_round_before_last(patch: Patch) -> None:
    """A round records nothing: what it drew is tested with the law of the drafts before it."""
    judge = Repair._round

    def unrecorded(self: Repair, flight: Flight, end: int, fresh: bool = False) -> None:
        judge(replace(self, law="head"), flight, end, fresh)

    patch(Repair, "_round", unrecorded)


def drafts_are_the_likeliest(patch: Patch) -> None:
    """Drafts are argmaxima, tested with the soft law."""
    draft = Spatial.__call__
    patch(Spatial, "__call__", lambda self, *rest: draft(replace(self, draft="argmax"), *rest))


def drafts_from_a_flat_law(patch: Patch) -> None:
    """Twin: heads that know nothing, whose law says so."""
    target_law = Spatial._put

    def put(self: Spatial, flight: Any, slots: slice, hidden: Tensor, need: Tensor) -> None:
        target_law(self, flight, slots, torch.zeros_like(hidden), need)

    patch(Spatial, "_put", put)


def heads_read_the_token_before(patch: Patch) -> None:
    """Twin: heads get the hidden state of another token of the past. Worse drafts, the same law."""
    seen = Flight.seen
    patch(Flight, "seen", lambda self, position: seen(self, (position - 1).clamp(min=0)))


def fixed_up_to(unread: int) -> Callable[[Patch], None]:
    """A plant: a block counts as fixed when all but its last ``unread`` tokens are (production: 1)."""

    def fixed(window: Window, tokens: Tensor, end: Tensor) -> Tensor:
        read = window.position < end[:, None] - unread
        undrafted = window.position == 0
        return ((tokens == window.token) | ~read | undrafted).all(1)

    return lambda patch: patch(correct, "_fixed", fixed)
