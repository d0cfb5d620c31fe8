"""From which law drafts are drawn next: the law just computed, or a guess at the one that will judge them.

Knows: predictions of the next law of a slot from the laws that it has had.
Refuses to know: couplings, acceptance, the loop. Whatever is predicted, a redraft draws from it and the next test
divides by it; that alone keeps a method lossless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specbench.decoding.board import Board


class Predict(Protocol):
    """``p`` [B, w, V], the laws of the slots from ``board.committed`` on, to the laws that drafts are drawn from."""

    lossless: bool
    history: int
    """How many earlier passes' laws the board must keep (``board.past``)."""

    def __call__(self, p: Tensor, board: Board) -> Tensor:
        """[B, w, V] to [B, w, V]. May read laws of the past, never tokens of the slot itself."""
        ...

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """The law that the next test takes for the draft's own."""
        ...


@dataclass(frozen=True)
class Plain:
    """Drafts come from the law just computed. SJD (2410.01699)."""

    lossless = True
    history = 0

    def __call__(self, p: Tensor, board: Board) -> Tensor:
        """p itself."""
        return p

    def recorded(self, p: Tensor, law: Tensor) -> Tensor:
        """The same."""
        return p


PREDICTIONS: dict[str, Predict] = {"none": Plain()}
