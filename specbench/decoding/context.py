"""Predict the law of a slot by remembering under which tokens its earlier laws were computed.

Knows: how alike two contexts of a slot are, and that a refused draft has been replaced by then.
Refuses to know: couplings and acceptance.

A pass computes the law of a slot under the drafts before it, and then the first refused draft among them becomes
another token. The law just computed is the newest, but it was computed under the token that is gone; an earlier pass
may have seen a token like the new one. So the law that drafts are drawn from is an average of the slot's laws, each
weighted by how near its context was to the one that is on the board now. Ours.

Why this is exact: the weights read tokens *before* the slot, and the laws are old ones of the slot; its own tokens
enter nowhere. Whatever law comes out, drafts are drawn from it and tested with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specbench.decoding import options
from specbench.decoding.board import Board, Window
from specbench.decoding.codebook import in_units_of_spread
from specbench.decoding.interfaces import Noise, Target
from specbench.decoding.redraft import Redraft

LEFT = (1.0, 0.5, 0.25, 0.125)
"""Weight of a difference 1, 2, 3, 4 positions before the slot."""
ABOVE = (0.25, 0.5, 0.25)
"""The same one row above: left of the slot, at its column, right of it (in a grid of one column the slot before)."""


@dataclass(frozen=True)
class Context:
    """q ∝ Σ_k w_k p_k, the average of the slot's law now (k = 0) and its laws of up to ``history`` passes before.

    w_k = ``decay``^k · exp(-``sharpness`` · D_k); D_k adds the squared distances, in units of the codebook's spread,
    between the tokens that law k was computed under and those on the board now, over four positions before the slot
    and three above it (:data:`LEFT`, :data:`ABOVE`). A target without a codebook tells only equal from different.
    The drafts behind the correction count as they were in the pass just made: those that follow are being drawn.

    Raises ``UsageError`` for values out of range.
    """

    history: int = 5
    decay: float = 0.6
    sharpness: float = 11.0
    codes: Tensor | None = None
    """Code vectors [V, e], scaled; with ``columns`` bound from the target."""
    columns: int = 1

    lossless = True

    def __post_init__(self) -> None:
        options.check(vars(self))

    @property
    def reach(self) -> int:
        """One law per pass of the history."""
        return self.history

    def bind(self, target: Target) -> Context:
        """With the target's grid, and its codebook if it has one."""
        codes = None if target.codebook is None else in_units_of_spread(target.codebook)
        return replace(self, codes=codes, columns=target.grid.columns)

    def __call__(self, p: Tensor, board: Board, kept: int) -> Tensor:
        """A copy of p: the prediction waits until the pass is judged (:meth:`drafting`)."""
        return p.clone() if board.past else p

    def drafting(self, redraft: Redraft) -> Redraft:
        """The redraft, preceded by the prediction."""
        return _InContext(self, redraft)

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """The prediction, which the redraft has written into ``law``."""
        return law

    def refine(self, law: Tensor, window: Window) -> None:
        """Write predictions over ``law`` [B, w, V], the laws just computed, at the drafts behind what was settled.

        ``window.token`` holds what the pass has settled, and behind it the drafts of that pass.
        """
        board, position = window.board, window.position[:, : window.board.width - 1]
        width = position.shape[1]
        if not board.past or not width or window.settled is None:
            return
        held = board.tokens.gather(1, window.position)
        now = board.tokens.scatter(1, window.position, torch.where(window.live, window.token, held))
        scores, rows = [self._likeness(board.tokens, now, position)], []
        for back, past in enumerate(board.past, 1):
            row, had = past.row(position)
            score = self._likeness(past.tokens, now, position) + back * math.log(max(self.decay, 1e-30))
            scores.append(score.masked_fill(~had, -torch.inf))
            rows.append(row)
        weight = torch.stack(scores).to(law.dtype).softmax(0)[..., None]
        mean = weight[0] * law[:, :width]
        for share, row, past in zip(weight[1:], rows, board.past, strict=True):
            mean.addcmul_(share, past.laws[board.rows, row])
        behind = window.drafted[:, :width] & (window.slot[:width] >= window.settled[:, None])
        law[:, :width] = torch.where(behind[..., None], mean, law[:, :width])

    def _likeness(self, then: Tensor, now: Tensor, position: Tensor) -> Tensor:
        """-sharpness · D [B, w] for the tokens ``then`` and ``now`` [B, N + W] before the slots at ``position``.

        In float64 and without a matrix product, so that no image depends on the batch it is in.
        """
        places = [*enumerate(LEFT, 1), *((max(1, self.columns + 1 - i), share) for i, share in enumerate(ABOVE))]
        far, width = max(offset for offset, _ in places), position.shape[1]
        span = position[:, :1] + torch.arange(-far, width, device=position.device)
        old, new = then.gather(1, span.clamp(min=0)), now.gather(1, span.clamp(min=0))
        apart = (old != new).double()
        if self.codes is not None:
            between = (self.codes[old.clamp(min=0)] - self.codes[new.clamp(min=0)]).double().square().sum(-1)
            apart = torch.where((old < 0) | (new < 0), apart, between)
        apart = apart * (span >= 0)
        score = torch.zeros_like(apart[:, far:])
        for offset, share in places:
            score -= self.sharpness * share * apart[:, far - offset : far - offset + width]
        return score


@dataclass(frozen=True)
class _InContext:
    """A redraft from predicted laws, which it leaves in ``law``."""

    predict: Context
    redraft: Redraft

    def __call__(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """Predict, then draw."""
        self.predict.refine(law, window)
        return self.redraft(noise, law, window, need)
