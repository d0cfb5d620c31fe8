"""Why a method is fast: what an onlooker can tell from the laws and drafts of every pass.

Knows: sums over slots and passes of one decode, per image: overlap and collision of successive laws, drafts that
change, probabilities that grow, predictions that come true, and what one replaced token does to the laws behind it.
Refuses to know: how laws are made and drafts are drawn; it reads each pass and changes nothing. Means, intervals and
published figures are ``diagnosis``'s.

Every number is a sum with its count, so that images pool exactly. Slots count from 0, the first token of the window.
*Open* drafts are those behind the token that the pass settles: they stay drafts, and a redraft chose them. A slot has
been *seen* if the pass before evaluated it too (else its draft is a fill).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specbench.bench.block_diagnostics import BlockOnlooker
from specbench.decoding.block import Block
from specbench.decoding.interfaces import Decoder
from specbench.decoding.loop import Jacobi, Pass

LAGS = 3
"""Passes that Hamming distances and growth look back on (SJD-VP, 2603.27115, section 3.2: N = 3)."""
OFFSETS = 15
"""Slots behind a replaced token whose laws are compared (SJD-PAC, 2603.18599, figure 4: 1 to 15)."""
ROUNDING = 1e-5
"""Laws nearer than this (TV) count as equal: float32 sums over a codebook are no better."""


def watched(decoder: Decoder) -> tuple[Decoder, Onlooker | BlockOnlooker | None]:
    """The same decoder with an onlooker, or as it is and None where there is nothing to watch (AR, plugins)."""
    if isinstance(decoder, Block):
        eyes = BlockOnlooker(decoder)
        return replace(decoder, watch=eyes), eyes
    if not isinstance(decoder, Jacobi):
        return decoder, None
    onlooker = Onlooker()
    return replace(decoder, watch=onlooker), onlooker


@dataclass(frozen=True)
class _Seen:
    """What is kept of a pass: references, and where its rows stand. [B, 1], [B, w, V], [B, w] each."""

    start: Tensor
    live: Tensor
    drafted: Tensor
    p: Tensor
    law: Tensor
    before: Tensor
    after: Tensor
    accepted: Tensor

    @staticmethod
    def of(each: Pass) -> _Seen:
        window = each.window
        return _Seen(
            window.position[:, :1], window.live, window.drafted, each.p, each.law, window.token, each.tokens,
            each.accepted[:, None],
        )  # fmt: skip

    def place(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Where ``position`` [B, w] stood in this pass: column [B, w] (anything if nowhere), and whether it did."""
        column = position - self.start
        inside = column < self.p.shape[1]
        column = torch.where(inside, column, 0)
        return column, inside & self.live.gather(1, column)


class Onlooker:
    """Watches one decode. Give it to ``Jacobi(watch=…)``, decode, then read :meth:`rows`. No wait for the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._past: deque[_Seen] = deque(maxlen=LAGS + 1)

    def __call__(self, each: Pass) -> None:
        """Take a pass in: one copy of the recorded laws, and three or four sums over laws."""
        now = _Seen.of(each)
        places = [old.place(each.window.position) for old in self._past]
        slot = each.window.slot
        is_open = now.drafted & (slot > now.accepted)
        self._redrafts(each, now, is_open, places[0][1] if places else torch.zeros_like(now.live))
        self._growth(each, now, places)
        self._hamming(now, is_open, places)
        if places:
            self._against_the_last(each, now, *places[0])
        self._past.appendleft(now)

    def rows(self) -> list[dict[str, list[float]]]:
        """One mapping per image: name → sums, as ``docs/diagnostics.md`` defines them. Empty before the first pass."""
        host = {name: sums.cpu().tolist() for name, sums in self._sums.items()}
        images = len(next(iter(host.values()))) if host else 0
        return [{name: [_short(x) for x in sums[row]] for name, sums in host.items()} for row in range(images)]

    def _redrafts(self, each: Pass, now: _Seen, is_open: Tensor, seen: Tensor) -> None:
        """Drafts against their new laws: what a test can keep, what a redraft could, and what it did.

        Two independent draws from q and p agree with probability Σ p q, the best coupling with Σ min(p, q) = 1 - TV,
        the Gumbel coupling with at least (1 - TV) / (1 + TV) (SCD, 2510.24211, sections 3 and 4; Daliri et al. 2024).
        """
        q, width = each.window.q(), each.window.board.width - 1
        overlap, collision = _overlap(now.p, q), _collision(now.p, q)
        self._add("drafts", now.drafted, width=width)
        self._add("overlap", now.drafted, overlap, width)
        self._add("collision", now.drafted, collision, width)
        run = torch.where(now.drafted, overlap, 0).cumprod(1).sum(1, keepdim=True)
        self._add("passes", now.drafted.any(1, keepdim=True))
        self._add("accepted", now.drafted.any(1, keepdim=True), now.accepted)
        self._add("independent_length", now.drafted.any(1, keepdim=True), run)

        if now.law is not now.p:  # a redraft follows the law it draws from
            overlap, collision = _overlap(now.law, q), _collision(now.law, q)
        changed = now.after != now.before
        self._add("open", is_open, width=width)
        self._add("open_changed", is_open, changed, width)
        for name, where in (("redraft", is_open), ("redraft_seen", is_open & seen)):
            parts = (changed.double(), collision, overlap, overlap / (2 - overlap))
            self._total(name, where, torch.ones_like(overlap), *parts)

    def _growth(self, each: Pass, now: _Seen, places: list[tuple[Tensor, Tensor]]) -> None:
        """Drafts whose probability rose in each of N steps, ending with the test (``growth``) or before it.

        SJD-VP (2603.27115), section 3.1 and figure 2(b); a step is a comparison of successive passes.
        """
        slot = each.window.slot
        groups = {
            "accepted": now.drafted & (slot < now.accepted) & (now.before == now.after),  # no sibling in its place
            "rejected": now.drafted & (slot == now.accepted),
            "drafts": now.drafted,
        }
        values = [now.p.gather(-1, now.before[..., None]).squeeze(-1)]
        known = [now.drafted]
        for old, (column, there) in zip(self._past, places, strict=True):
            values.append(old.p[each.window.board.rows, column, now.before])
            known.append(known[-1] & there)
        for name, first in (("growth", 0), ("growth_before", 1)):
            rose = torch.ones_like(now.drafted)
            for step in range(LAGS):
                last = first + step + 1
                if last >= len(values):
                    break
                rose = rose & (values[last - 1] > values[last])
                for group, members in groups.items():
                    where = members & known[last]
                    self._total(f"{name}_{group}_{step + 1}", where, torch.ones_like(rose), rose)

    def _hamming(self, now: _Seen, is_open: Tensor, places: list[tuple[Tensor, Tensor]]) -> None:
        """Open drafts that differ from the draft after the pass 1, 2, 3 earlier, at the same absolute position."""
        for lag, (old, (column, there)) in enumerate(zip(self._past, places, strict=True), 1):
            if lag <= LAGS:
                differ = old.after.gather(1, column) != now.after
                self._total(f"hamming_{lag}", is_open & there, torch.ones_like(differ), differ)

    def _against_the_last(self, each: Pass, now: _Seen, column: Tensor, there: Tensor) -> None:
        """TV of a slot's law to the one it had a pass ago, to what was predicted of it, and behind a replaced token."""
        old, where = self._past[0], now.drafted & there
        index = column[..., None].expand(*column.shape, now.p.shape[-1])
        then = old.p.gather(1, index)
        moved = 1 - _overlap(now.p, then)
        self._total("moved", where, torch.ones_like(moved), moved)
        if old.law is not old.p:
            guess = old.law.gather(1, index)
            missed = 1 - _overlap(now.p, guess)
            boosted = 1 - _overlap(guess, then) > ROUNDING
            self._total("predicted", where, torch.ones_like(moved), moved, missed)
            self._total("predicted_boosted", where & boosted, torch.ones_like(moved), moved, missed)

        refused = old.accepted.clamp(max=old.p.shape[1] - 1)
        kept = old.before == old.after
        slot = torch.arange(kept.shape[1], device=kept.device)
        replaced = (old.drafted & ~kept).gather(1, refused) & (old.accepted < len(slot))
        replaced &= (kept | (slot >= old.accepted)).all(1, keepdim=True)  # a sibling replaces a draft that is passed
        same = kept.gather(1, column) & there
        only = torch.cat([torch.ones_like(same[:, :1]), same[:, :-1]], 1).long().cumprod(1) > 0
        alone = replaced & only & there & now.live
        self._add("replaced", alone, width=OFFSETS)
        self._add("replaced_moved", alone, moved, OFFSETS)

    def _total(self, name: str, where: Tensor, *parts: Tensor) -> None:
        """Add [B, w] ``parts`` over all slots of a mask: one sum each."""
        masked = torch.stack([torch.where(where, part, 0).sum(1, dtype=torch.float64) for part in parts], 1)
        self._put(name, masked)

    def _add(self, name: str, where: Tensor, value: Tensor | None = None, width: int = 1) -> None:
        """Add ``value`` [B, w] (1 where none) by slot, for the first ``width`` slots."""
        masked = torch.where(where, 1.0 if value is None else value.double(), 0.0)[:, :width].double()
        self._put(name, torch.nn.functional.pad(masked, (0, width - masked.shape[1])))

    def _put(self, name: str, sums: Tensor) -> None:
        held = self._sums.get(name)
        self._sums[name] = sums if held is None else held + sums


def _overlap(p: Tensor, q: Tensor) -> Tensor:
    """Σ min(p, q) = 1 - TV: [..., V] each to [...]."""
    return torch.minimum(p, q).sum(-1)


def _collision(p: Tensor, q: Tensor) -> Tensor:
    """Σ p q, [..., V] each to [...], without the product in memory."""
    products: Tensor = torch.linalg.vecdot(p, q)
    return products


def _short(value: float) -> float:
    """Six decimals; a count stays whole."""
    return int(value) if value == int(value) else round(value, 6)
