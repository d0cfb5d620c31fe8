"""Defects of predicted laws, mixed couplings and relaxed tests, planted in production code, and harmless twins.

Knows: what can go wrong where a draft comes from another law than the one just computed, or is forgiven.
Refuses to know: whether a defect is noticed.

Relaxed acceptance is lossy, so its law convicts nobody. Its defects are planted where the relaxation is set to nothing
(a bound or a gap of zero) and the method must be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specbench.decoding import context, redraft
from specbench.decoding.board import Board, Past, Window
from specbench.decoding.context import Context
from specbench.decoding.interfaces import Key
from specbench.decoding.predict import Growth, Score
from specbench.decoding.redraft import Maximal
from specbench.decoding.relax import Grouped, Lantern
from specbench.verify.defective_noise import CoinsWithoutIndex, CoinsWithoutPass, Positions
from specbench.verify.enumerate import EnumeratingNoise
from specbench.verify.plants import Patch, Plant

MIXING = 2
"""Index of the coin that chooses between the coupled and the independent draw; 0 tests, 1 keeps."""

# --- predictions -------------------------------------------------------------------------------------------------


def raw_law_of_predicted_drafts(patch: Patch) -> None:
    """Drafts are drawn from p' and tested with p. Its twin is a prediction that never takes effect."""
    patch(Growth, "recorded", lambda self, p, law: p)


def mask_reads_the_slots_own_token(patch: Patch) -> None:
    """The slot's present draft is never boosted."""
    boost = Growth.boost

    def call(self: Growth, now: Tensor, token: Tensor, board: Board) -> Tensor:
        own = board.tokens.gather(1, board.positions(board.committed, token.shape[1]))
        return torch.where(token == own[..., None], 1, boost(self, now, token, board))

    patch(Growth, "boost", call)


def _other_rows_of_the_past(shift: Callable[[Board, Tensor], Tensor]) -> Plant:
    """A plant: the past of a slot is looked up somewhere else, ``shift`` (board, begun) → where a window began."""

    def plant(patch: Patch) -> None:
        boost = Growth.boost

        def call(self: Growth, now: Tensor, token: Tensor, board: Board) -> Tensor:
            kept = board.past
            board.past = [past._replace(start=shift(board, past.start)) for past in kept]
            try:
                return boost(self, now, token, board)
            finally:
                board.past = kept

        patch(Growth, "boost", call)

    return plant


history_of_the_slot_behind = _other_rows_of_the_past(lambda board, begun: begun - 1)
"""The past is that of the position to the right, whose law was computed under the slot's own old token."""
history_by_window_slot = _other_rows_of_the_past(lambda board, begun: board.committed)
"""Twin: slot i takes the laws that slot i of earlier windows had. A wrong prediction, but one that only looks left."""


def free_slot_from_the_prediction(patch: Patch) -> None:
    """The free slot is predicted too, and its token may be committed as it is. Harmless where no past means p' = p."""
    for kind in (Growth, Score):

        def call(self: Any, p: Tensor, board: Board, kept: int, own: Any = kind.__call__) -> Tensor:
            board.width += 1
            try:
                return own(self, p, board, kept)  # type: ignore[no-any-return]
            finally:
                board.width -= 1

        patch(kind, "__call__", call)


# --- predictions from contexts ------------------------------------------------------------------------------------


def raw_law_of_drafts_in_context(patch: Patch) -> None:
    """Drafts are drawn from the average and tested with p. Twin: older laws have no weight."""
    patch(Context, "recorded", lambda self, p, law: p)


def context_with_the_token(beyond: int) -> Plant:
    """A plant: two contexts are also compared at the slot itself (0), or at a slot behind it (1)."""

    def plant(patch: Patch) -> None:
        likeness = Context._likeness

        def call(self: Context, then: Tensor, now: Tensor, position: Tensor) -> Tensor:
            at = position + beyond
            apart = (then.gather(1, at) != now.gather(1, at)).double()
            return likeness(self, then, now, position) - self.sharpness * apart

        patch(Context, "_likeness", call)

    return plant


def context_after_the_redraft(patch: Patch) -> None:
    """Drafts are drawn first, from p; the average is of laws whose contexts are like the new drafts."""

    def call(self: Any, noise: Any, law: Tensor, window: Window, need: Tensor) -> Tensor:
        drawn: Tensor = self.redraft(noise, law.clone(), window, need)
        self.predict.refine(law, replace(window, token=torch.where(need, drawn, window.token)))
        return drawn

    patch(context._InContext, "__call__", call)


def weights_do_not_sum_to_one(patch: Patch) -> None:
    """The weights of older laws are added to a whole one of the law now."""
    refine = Context.refine

    def call(self: Context, law: Tensor, window: Window) -> None:
        now = law.clone()
        refine(self, law, window)
        law += torch.where((law == now).all(-1, keepdim=True), 0, now)

    patch(Context, "refine", call)


def no_law_counts_as_the_last_one(patch: Patch) -> None:
    """Twin: a slot that a pass had no law for takes the last law of that pass. A bad guess, but one that looks left."""
    row = Past.row

    def call(self: Past, position: Tensor) -> tuple[Tensor, Tensor]:
        found, had = row(self, position)
        return torch.minimum(found, self.known[:, None] - 1), torch.ones_like(had)

    patch(Past, "row", call)


def settled_slot_in_context(patch: Patch) -> None:
    """The slot that a pass settles is predicted too. Only a tree settles one without a test or a correction."""
    refine = Context.refine

    def call(self: Context, law: Tensor, window: Window) -> None:
        assert window.settled is not None
        refine(self, law, replace(window, settled=window.settled - 1))

    patch(Context, "refine", call)


# --- mixed couplings ---------------------------------------------------------------------------------------------


class MixingCoinIsTheKeepCoin(CoinsWithoutIndex):
    """The coin that chooses the coupling is that with which the coupling keeps its draft: kept drafts are favoured."""

    def _interval(self, position: Positions, index: int) -> Positions:
        return position + (index == 0) * self.size


class MixingCoinIsTheTestCoin(CoinsWithoutIndex):
    """Twin: it is the coin of the test, of which a slot that is redrafted has none in this pass."""

    def _interval(self, position: Positions, index: int) -> Positions:
        return position + (index == 1) * self.size


class MixingCoinWithoutPass(CoinsWithoutPass):
    """Twin: a position mixes alike in every pass. Which coupling it is was settled before any token: no harm."""

    def _coin(self, rows: Positions, image: int, p: Any, key: Key, position: Positions) -> Any:
        shared = key.index == MIXING
        return (super()._coin if shared else partial(EnumeratingNoise._coin, self))(rows, image, p, key, position)

    def _interval(self, position: Positions, index: int) -> Positions:
        return position


def mixing_knows_the_draft(patch: Patch) -> None:
    """Draft 0 is coupled, any other is drawn independently."""

    def call(self: Maximal, noise: Any, law: Tensor, window: Window, need: Tensor) -> Tensor:
        apart = need & window.drafted & (window.token > 0)
        alone = noise.draw(law, Key("draft", window.position), apart)
        return torch.where(apart, alone, self.coupled(noise, law, window, need & ~apart))

    patch(redraft._Mixed, "__call__", call)


# --- relaxed tests -----------------------------------------------------------------------------------------------


def bound_not_looked_at(patch: Patch) -> None:
    """The nearest code's mass is added whatever the bound says."""
    patch(Lantern, "_within", lambda self, around, own: around[..., :1])


def nearest_codes_wrong(patch: Patch) -> None:
    """Twin: where nothing may be added, it does not matter whose mass it would have been."""
    added = Lantern.added

    def call(self: Lantern, p: Tensor, window: Window) -> Tensor:
        assert self.table is not None
        object.__setattr__(self, "table", self.table.flip(0).contiguous())
        return added(self, p, window)

    patch(Lantern, "added", call)


def group_forgets_the_gap(patch: Patch) -> None:
    """Tokens of any probability join the group."""
    members = Grouped.members

    def call(self: Grouped, p: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        found, _ = members(self, p, token)
        return found, torch.ones_like(found, dtype=torch.bool)

    patch(Grouped, "members", call)


def group_in_another_order(patch: Patch) -> None:
    """Twin: the sums over a group do not know its order."""
    members = Grouped.members

    def call(self: Grouped, p: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        found, inside = members(self, p, token)
        return found.flip(-1), inside.flip(-1)

    patch(Grouped, "members", call)
