"""From which law drafts are drawn next: the law just computed, or a guess at the one that will judge them.

Knows: predictions of the next law of a slot from the laws that it has had.
Refuses to know: couplings, acceptance, the loop. Whatever is predicted, a redraft draws from it and the next test
divides by it; that alone keeps a method lossless.

A slot is a *position*: its past is followed by absolute position while the window slides, however far each image moves,
and is not reset when a draft before it is refused. What is remembered are the target's own laws, never predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.decoding import options
from specbench.decoding.board import Board
from specbench.decoding.context import Context
from specbench.decoding.redraft import Redraft


class Predict(Protocol):
    """``p`` [B, w, V], the laws of the slots from ``board.committed`` on, to the laws that drafts are drawn from.

    ``kept`` is the most tokens that the sampling leaves in a law (top-k, or V). The free slot (column
    ``board.width - 1``) keeps its law p: its token may be committed as it is.
    """

    @property
    def lossless(self) -> bool:
        """Whether the law that is recorded is the one that was drawn from."""
        ...

    @property
    def reach(self) -> int:
        """How many earlier passes' laws the board must keep (``board.past``)."""
        ...

    def __call__(self, p: Tensor, board: Board, kept: int) -> Tensor:
        """[B, w, V] to [B, w, V]. May read laws of the past, never tokens of the slot itself."""
        ...

    def drafting(self, redraft: Redraft) -> Redraft:
        """The redraft to use: its own, or one that goes on predicting once the pass is judged."""
        ...

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """The law that the next test takes for the draft's own."""
        ...


@dataclass(frozen=True)
class Plain:
    """Drafts come from the law just computed. SJD (2410.01699)."""

    lossless = True
    reach = 0

    def __call__(self, p: Tensor, board: Board, kept: int) -> Tensor:
        """p itself."""
        return p

    def drafting(self, redraft: Redraft) -> Redraft:
        """As it is."""
        return redraft

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """The same."""
        return p


@dataclass(frozen=True)
class Growth:
    """p' ∝ p · (p / p̄)^M on the likeliest tokens, p elsewhere. SJD-VP (2603.27115), method section.

    p̄ is the average of the slot's law now (k = 0) and its laws of up to ``history`` passes before, weighted with
    ``decay``^k; M(x) = 1 iff p(x) rose, strictly, in each of the last ``growth`` passes, and 0 while the slot has had
    fewer; ``growth`` 0 means no mask. ``candidates`` is the share of the kept tokens that is considered, at least one
    token. Where the text leaves a choice: N growth steps are N comparisons (as printed the mask needs one law more
    than the history holds), and the base of the 10 % are the kept candidates (its ablation has distinct values at
    30, 50 and 70 %, which shares of the whole codebook could not give).

    ``verify``: the test divides by ``posterior``, the law p' that the draft was drawn from (exact), or by ``raw``,
    the law p (a reading of "verification is unchanged" that is not lossless). The text does not say which.

    Raises ``UsageError`` for values out of range.
    """

    history: int = 3
    decay: float = 0.8
    growth: int = 3
    candidates: float = 0.1
    verify: str = "posterior"

    def __post_init__(self) -> None:
        options.check(vars(self))

    @property
    def lossless(self) -> bool:
        """Not when drafts are tested with a law that they were not drawn from."""
        return self.verify == "posterior"

    @property
    def reach(self) -> int:
        """The average needs ``history`` laws, the mask ``growth``."""
        return max(self.history, self.growth)

    def __call__(self, p: Tensor, board: Board, kept: int) -> Tensor:
        """Reads ``reach`` earlier laws at the candidates only; one pass over p to divide by the new sum."""
        drafted = p[:, : board.width - 1]
        if len(board.past) < max(self.growth, 1) or not drafted.shape[1]:
            return p
        now, token = drafted.topk(options.considered(self.candidates, kept), sorted=False)
        more = now * (self.boost(now, token, board) - 1)
        total = 1 + more.sum(-1, keepdim=True)
        law = p / F.pad(total, (0, 0, 0, p.shape[1] - drafted.shape[1]), value=1.0)
        law[:, : board.width - 1].scatter_(-1, token, (now + more) / total)
        return law

    def boost(self, now: Tensor, token: Tensor, board: Board) -> Tensor:
        """(p / p̄)^M of the candidates ``token`` [B, w, k] whose probabilities are ``now``: [B, w, k], at least 0."""
        position = board.positions(board.committed, token.shape[1])
        mean, weight = now.clone(), torch.ones_like(now[..., :1])
        rising = (now > 0) & (len(board.past) >= self.growth)
        later = now
        for back, past in enumerate(board.past, 1):
            row, had = (found[..., None] for found in past.row(position))
            then = past.laws[board.rows[..., None], row, token]
            if back <= self.history:
                share = had.to(now.dtype) * self.decay**back
                mean, weight = mean + share * then, weight + share
            if back <= self.growth:
                rising, later = rising & had & (later > then), then
        ratio = now * weight / mean.clamp(min=torch.finfo(mean.dtype).tiny)
        return torch.where(rising, ratio, 1)

    def drafting(self, redraft: Redraft) -> Redraft:
        """As it is: p' reads no tokens, and is complete before the pass is judged."""
        return redraft

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """p' or, in ``raw``, p."""
        return law if self.verify == "posterior" else p


@dataclass(frozen=True)
class Score(Growth):
    """Drafts ∝ (p / p̄)^M on the likeliest tokens alone, and nothing else: "S alone". SJD-VP (2603.27115), table 2.

    The table's row has no formula; this is our reading of it. A slot that has had too few laws draws uniformly from
    its candidates (those of positive probability). Exact like :class:`Growth`: any recorded law is.
    """

    def __call__(self, p: Tensor, board: Board, kept: int) -> Tensor:
        """As :class:`Growth`, without the factor p."""
        drafted = p[:, : board.width - 1]
        if not drafted.shape[1]:
            return p
        now, token = drafted.topk(options.considered(self.candidates, kept), sorted=False)
        weight = torch.where(now > 0, self.boost(now, token, board), 0)
        law = torch.zeros_like(drafted).scatter_(-1, token, weight / weight.sum(-1, keepdim=True))
        return torch.cat([law, p[:, board.width - 1 :]], 1)


PREDICTIONS: dict[str, Predict] = {"none": Plain(), "growth": Growth(), "score": Score(), "context": Context()}
