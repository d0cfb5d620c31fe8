"""Drafts from spatial heads: hidden states guessed for other places of the grid, decoded by the target itself.

Knows: which hidden state each head reads, how its guess becomes a law, and how a draft comes from the law.
Refuses to know: what heads are made of, how drafts are corrected, when blocks are committed.

SSD (Xiang et al. 2026, 2606.20543), section 3. What the paper leaves open is a setting here; whatever is chosen, the
law is put on the board beside the token, and a draft that was *sampled* has that law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from torch import Tensor

from specbench.decoding.interfaces import Key, SpatialHeads, Target
from specbench.decoding.laws import guide, law_of
from specbench.errors import UsageError

if TYPE_CHECKING:
    from specbench.decoding.flight import Flight


class Normed(Protocol):
    """Heads, trained or in training, of which only one thing matters here: on which side of the norm they live."""

    @property
    def post_norm(self) -> bool:
        """As :attr:`specbench.decoding.interfaces.SpatialHeads.post_norm`."""
        ...


def read_by(heads: Normed, target: Target, h: Tensor) -> Tensor:
    """The states [..., d] that ``heads`` read, of pre-norm ones ``h`` [..., d]."""
    return target.norm(h) if heads.post_norm else h


def decoded(heads: Normed, target: Target, state: Tensor) -> Tensor:
    """Logits [..., V] of states [..., d] that ``heads`` predicted: behind the final norm, and only once."""
    return target.head(state if heads.post_norm else target.norm(state))


@dataclass(frozen=True)
class Spatial:
    """How blocks are drafted.

    ``columns`` k_h and ``rows`` k_v: how far to the right and how many rows down heads are used (k_v = 0: never down).
    ``draft``: ``sample`` draws tokens from the heads' law; ``argmax`` takes the likeliest and keeps the soft law, as
    the paper prints it, which no number of rounds makes right again.
    ``source``: vertical head j reads the last ``committed`` row, or the first one reads the ``predicted`` row above.
    ``guide_drafts``: mix the drafts' logits over both branches as the target's are; else the conditional branch alone.
    ``filter_drafts``: give drafts the target's top-k and top-p.
    """

    columns: int = 5
    rows: int = 1
    draft: Literal["sample", "argmax"] = "sample"
    source: Literal["committed", "predicted"] = "committed"
    guide_drafts: bool = True
    filter_drafts: bool = True

    def check(self, heads: SpatialHeads) -> None:
        """Raise ``UsageError`` if the heads do not look as far as these settings ask for."""
        for name, asked, there in (
            ("columns", self.columns, heads.horizontal_offsets),
            ("rows", self.rows, heads.vertical_offsets),
        ):
            if asked > there:
                raise UsageError(
                    f"method.{name}={asked}, but these heads look {there} {name} far: set method.{name}={there} or less"
                )

    def __call__(self, flight: Flight, width: int, need: Tensor) -> None:
        """Draft the ``width`` slots behind what is committed, where ``need`` [B, width] says so."""
        turn = flight.layout.first_down
        across = (flight.board.committed < turn)[:, None]
        if flight.low < turn:
            for slots, hidden in self._across(flight, width):
                self._put(flight, slots, hidden, need & across)
        if flight.high >= turn:
            for slots, hidden in self._down(flight, width):
                self._put(flight, slots, hidden, need & ~across)

    def _across(self, flight: Flight, width: int) -> Iterator[tuple[slice, Tensor]]:
        """Slots, and hidden states [R, B, L, d] guessed for them from the token before the block."""
        h, e = flight.seen((flight.board.committed - 1)[:, None])
        width = min(width, self.columns)
        yield slice(0, width), flight.heads.horizontal(h, e)[:, :, 0, :width]

    def _down(self, flight: Flight, width: int) -> Iterator[tuple[slice, Tensor]]:
        """Slots, and hidden states [R, B, L, d] guessed for them from the row above the block."""
        board, columns = flight.board, flight.layout.grid.columns
        above = board.positions(board.committed - columns, min(width, columns)).clamp(min=0)
        h, e = flight.seen(above)
        if self.source == "committed":
            below = flight.heads.vertical(h, e)[..., : -(-width // columns), :]
            yield slice(0, width), below.transpose(2, 3).flatten(2, 3)[:, :, :width]
            return
        for start in range(0, width, columns):
            h = flight.heads.vertical(h, e)[..., 0, :]
            slots = slice(start, min(start + columns, width))
            yield slots, h[:, :, : slots.stop - start]
            e = flight.embedded(above + start + columns)

    def _put(self, flight: Flight, slots: slice, hidden: Tensor, need: Tensor) -> None:
        """Decode ``hidden`` [R, B, L, d] to laws, draw, and put both on the board."""
        board, target = flight.board, flight.target
        logits = decoded(flight.heads, target, hidden)
        guidance = flight.sampling.guidance
        both = self.guide_drafts and guidance is not None and len(logits) == 2
        mixed = guide(logits[0], logits[1], guidance) if both and guidance is not None else logits[0]
        sampling = flight.sampling if self.filter_drafts else replace(flight.sampling, top_k=None, top_p=None)
        law = law_of(mixed, sampling).to(board.laws.dtype)
        position = board.positions(board.committed, slots.stop)[:, slots]
        where = need[:, slots]
        tokens = law.argmax(-1) if self.draft == "argmax" else flight.noise.draw(law, Key("draft", position), where)
        board.put_tokens(position, tokens, where, len(flight.counters))
        board.put_laws(position, law, where)
