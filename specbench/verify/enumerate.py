"""Every history of a decoder, and the exact law of what it makes.

Knows: that all randomness of decoding enters through the three verbs of ``Noise``. A *history* is a script: one outcome
for each number that is really read (``need``). The production ``decode`` is run unchanged, as a black box, on a batch
whose rows are histories; each run completes its scripts with first outcomes and files every other outcome of
positive probability as a new script, until none is left. Each complete history is met exactly once, so the weights
add up to the exact law (and to one, which is checked).
Refuses to know: methods, caches and anything else inside the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specbench.decoding.interfaces import Generation, Key, Prompt
from specbench.verify.checks import CheckFailed, KeyReuse, LawError, PoisonRead
from specbench.verify.polygon import Regions
from specbench.verify.tabular import TabularTarget

if TYPE_CHECKING:
    from specbench.decoding.laws import Sampling

Decode = Callable[..., Generation]
"""``decode(target, prompts, noise=...)``: a bound ``Decoder.decode`` will do."""

NEGLIGIBLE = 1e-15
"""Outcomes below this are rounding (1 - (1 - 1e-16)), not histories."""
SLACK = 1e-9
"""How far a law may miss a sum of one, or a probability leave [0, 1], before it is called wrong rather than rounded."""


class EnumeratingNoise:
    """Noise that follows scripts. One history spans ``images`` consecutive rows of the batch.

    ``scripts`` [S, C] int8 holds the outcomes that are forced, ``forced`` [S] how many they are.
    ``weight`` [S] becomes the probability of each completed history; ``branches()`` the scripts still to be run.
    Subclasses may change which row a slot reads, and where coins come from: that is how defects of a key are modelled.
    """

    def __init__(self, target: TabularTarget, scripts: NDArray[np.int8], forced: NDArray[np.int64], images: int):
        self.target, self.images, self.vocab, self.size = target, images, target.vocab, target.size
        histories = len(forced)
        self.scripts, self.forced = scripts, forced
        self.weight = np.ones(histories)
        self.cursor = np.zeros(histories, dtype=np.int64)
        self.taken = scripts.copy()
        self.passes = 0
        self.before = np.zeros((histories, images), dtype=np.int64)
        self.regions = np.zeros((histories, images, self.size), dtype=np.int64)
        self._filed: list[tuple[NDArray[np.int8], NDArray[np.int64]]] = []
        self._last_read: dict[tuple[str, int], NDArray[np.int64]] = {}
        self.geometry = Regions(self.vocab)

    def target_row(self, image: int, position: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
        """Which Gumbel row a slot of ``image`` at ``position`` [M] reads."""
        return image, position

    def target_row_of(
        self, rows: NDArray[np.int64], image: int, position: NDArray[np.int64]
    ) -> tuple[int, NDArray[np.int64]]:
        """As :meth:`target_row`, for a defect that looks at the histories ``rows`` [M] themselves."""
        return self.target_row(image, position)

    def advance(self, moved: int | None = None) -> None:
        """Begin the next pass: fresh numbers may be read again. A promise about how far windows moved is checked."""
        committed = self._committed() if self.target.canvas is not None else np.zeros_like(self.before)
        if moved is not None and self.passes and int((committed - self.before).max()) > moved:
            raise KeyReuse("a window moved further than the noise was told: it would reuse rows of other positions")
        self.before = committed
        self.passes += 1

    def accept(self, prob: Tensor, key: Key, need: Tensor, lead: bool = False) -> Tensor:
        """Coins; with ``lead`` nothing is read (and nothing forks) behind the first False."""
        prob_, position, need_ = self._rows(prob), self._rows(key.position), self._rows(need)
        coins = np.ones(need_.shape, dtype=bool)  # an unread coin says yes: reading it would accept what was not tested
        alive = np.ones(need_.shape[:2], dtype=bool)
        for image, slot in self._sites(need_):
            rows = np.flatnonzero(need_[:, image, slot] & (alive[:, image] | (not lead)))
            if not len(rows):
                continue
            p = prob_[rows, image, slot]
            coins[rows, image, slot] = self._coin(rows, image, p, key, position[rows, image, slot])
            alive[rows, image] &= coins[rows, image, slot]
        return torch.from_numpy(coins.reshape(need.shape))

    def _coin(
        self, rows: NDArray[np.int64], image: int, p: NDArray[np.float64], key: Key, position: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        self._once(rows, image, key, position)
        return self._fork(rows, np.column_stack([p, 1 - p]), "accept") == 0

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """Fresh draws; outside ``need`` a poison token V that no table and no gather accepts."""
        law_, position, need_ = self._rows(law), self._rows(key.position), self._rows(need)
        tokens = np.full(need_.shape, self.vocab, dtype=np.int64)
        for image, slot in self._sites(need_):
            rows = np.flatnonzero(need_[:, image, slot])
            if len(rows):
                self._once(rows, image, key, position[rows, image, slot])
                tokens[rows, image, slot] = self._fork(rows, law_[rows, image, slot], f"draw for {key.role}")
        return torch.from_numpy(tokens.reshape(need.shape))

    def coupled(self, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
        """Gumbel-max draws: each one cuts the region of noise that is still possible for its row."""
        law_, position_, need_ = self._rows(law), self._rows(position), self._rows(need)
        tokens = np.full(need_.shape, self.vocab, dtype=np.int64)
        for image, slot in self._sites(need_):
            rows = np.flatnonzero(need_[:, image, slot])
            if not len(rows):
                continue
            self._not_committed(rows, image, position_[rows, image, slot])
            laws = law_[rows, image, slot]
            _check_laws(laws, "coupled draw")
            row_image, address = self.target_row_of(rows, image, position_[rows, image, slot])
            shares, children = self.geometry.cut(self.regions[rows, row_image, address], laws)
            token = self._fork(rows, shares, "coupled draw")
            self.regions[rows, row_image, address] = children[np.arange(len(rows)), token]
            tokens[rows, image, slot] = token
        return torch.from_numpy(tokens.reshape(need.shape))

    def branches(self) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Scripts [M, C] and forced lengths [M] of the histories that this run passed by."""
        width = self.taken.shape[1]
        scripts = [np.pad(s, ((0, 0), (0, width - s.shape[1]))) for s, _ in self._filed]
        if not scripts:
            return np.zeros((0, width), dtype=np.int8), np.zeros(0, dtype=np.int64)
        return np.concatenate(scripts), np.concatenate([f for _, f in self._filed])

    def _fork(self, rows: NDArray[np.int64], chances: NDArray[np.float64], what: str) -> NDArray[np.int64]:
        """Outcome [M] of one number per history in ``rows`` [M], from ``chances`` [M, K]; the others are filed."""
        _check_laws(chances, what)
        at = self.cursor[rows]
        if int(at.max()) >= self.taken.shape[1]:
            self.taken = np.pad(self.taken, ((0, 0), (0, 16)))
            self.scripts = np.pad(self.scripts, ((0, 0), (0, 16)))
        possible = chances > NEGLIGIBLE
        free = at >= self.forced[rows]
        outcome = np.where(free, possible.argmax(1), self.scripts[rows, at]).astype(np.int64)
        self.taken[rows, at] = outcome
        for other in range(1, chances.shape[1]):
            passed_by = free & possible[:, other] & (outcome != other)
            if passed_by.any():
                script = self.taken[rows[passed_by]]
                script[np.arange(len(script)), at[passed_by]] = other
                self._filed.append((script, at[passed_by] + 1))
        self.weight[rows] *= chances[np.arange(len(rows)), outcome]
        self.cursor[rows] = at + 1
        return outcome

    def _once(self, rows: NDArray[np.int64], image: int, key: Key, position: NDArray[np.int64]) -> None:
        """Refuse a fresh key that was already read in this pass, and positions that no longer or do not exist."""
        self._not_committed(rows, image, position)
        last = self._last_read.setdefault((key.role, key.index), np.zeros(self.regions.shape, dtype=np.int64))
        if (last[rows, image, position] == self.passes + 1).any():
            raise KeyReuse(f"the {key.role} number of one position was read twice in pass {self.passes}")
        last[rows, image, position] = self.passes + 1

    def _not_committed(self, rows: NDArray[np.int64], image: int, position: NDArray[np.int64]) -> None:
        if (position >= self.size).any() or (position < 0).any():
            raise PoisonRead("noise was needed at a position that the image does not have")
        if (position < self._committed()[rows, image]).any():
            raise KeyReuse("noise of a position whose token is committed was read again")

    def _committed(self) -> NDArray[np.int64]:
        """Committed tokens [S, images], as the target's canvas has them."""
        assert self.target.canvas is not None
        return self.target.canvas.committed.numpy().reshape(-1, self.images)

    def _rows(self, tensor: Tensor) -> NDArray:
        """[B, L, ...] to [S, images, L, ...]."""
        return tensor.detach().numpy().reshape(-1, self.images, *tensor.shape[1:])

    @staticmethod
    def _sites(need: NDArray[np.bool_]) -> list[tuple[int, int]]:
        return [(image, slot) for slot in range(need.shape[2]) for image in range(need.shape[1])]


def _check_laws(laws: NDArray[np.float64], what: str) -> None:
    if not np.isfinite(laws).all():
        raise LawError(f"{what}: the law is not finite")
    if (laws < -SLACK).any() or (np.abs(laws.sum(1) - 1) > SLACK).any():
        raise LawError(f"{what}: the law has a negative entry or does not sum to one")


@dataclass
class Enumeration:
    """The exact outcome of a decoder on a tabular target.

    ``law`` [V**(N·images)]: probability of each image (or tuple of images), numbered in base V, first token first.
    ``nfe`` [images]: expected passes. ``histories``: how many there were. ``off_path`` (NaN unless asked for): expected
    number of positions whose token is not the one that AR reads from the same Gumbel row.
    """

    law: NDArray[np.float64]
    nfe: NDArray[np.float64]
    histories: int
    off_path: float

    def total_variation(self, other: NDArray[np.float64]) -> float:
        """Half the summed absolute difference to another law of the same images."""
        return float(np.abs(self.law - other).sum() / 2)


def law_of(
    decode: Decode,
    target: TabularTarget,
    prompts: Sequence[Prompt] = (Prompt("a", "a"),),
    *,
    noise: type[EnumeratingNoise] = EnumeratingNoise,
    ar_path: Sampling | None = None,
    inspect: Callable[[Generation], None] | None = None,
    rows: int = 16384,
) -> Enumeration:
    """Enumerate ``decode`` on ``target``: one image per prompt, jointly.

    ``ar_path``: also measure how far the tokens leave plain AR under this sampling (the region check).
    ``inspect`` is called with every generation (all its rows are complete histories). ``rows`` bounds one batch.
    Raises ``CheckFailed`` when the decoder breaks its contract with the noise.
    """
    images, outcomes = len(prompts), target.vocab ** (target.size * len(prompts))
    law, nfe, histories, off_path = np.zeros(outcomes), np.zeros(images), 0, 0.0
    place = target.vocab ** np.arange(target.size * images - 1, -1, -1)
    ar_laws = None if ar_path is None else [target.laws(prompt, ar_path) for prompt in prompts]
    waiting = [(np.zeros((1, 16), dtype=np.int8), np.zeros(1, dtype=np.int64))]
    geometry: Regions | None = None
    while waiting:
        scripts, forced = _next_batch(waiting, max(1, rows // images))
        source = noise(target, scripts, forced, images)
        source.geometry = geometry = geometry or source.geometry
        generation = decode(target, list(prompts) * len(forced), noise=source)
        if inspect is not None:
            inspect(generation)
        tokens = generation.tokens.numpy().reshape(len(forced), -1)
        if ((tokens < 0) | (tokens >= target.vocab)).any():
            raise PoisonRead("the image holds a token that was never drawn")
        law += np.bincount(tokens @ place, weights=source.weight, minlength=outcomes)
        nfe += source.weight @ generation.trace.nfe.numpy().reshape(-1, images)
        histories += len(forced)
        if ar_laws is not None:
            off_path += _off_path(source, tokens.reshape(len(forced), images, -1), ar_laws)
        left = source.branches()
        if len(left[1]):
            waiting.append(left)
    if abs(law.sum() - 1) > 1e-12:
        raise CheckFailed(f"the histories weigh {law.sum():.15f} together, not 1: rows are not independent")
    return Enumeration(law, nfe, histories, off_path if ar_laws is not None else float("nan"))


def _next_batch(
    waiting: list[tuple[NDArray[np.int8], NDArray[np.int64]]], histories: int
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Take up to ``histories`` scripts off the list, the latest found first (which keeps the list short)."""
    taken: list[tuple[NDArray[np.int8], NDArray[np.int64]]] = []
    room = histories
    while waiting and room:
        scripts, forced = waiting.pop()
        if len(forced) > room:
            waiting.append((scripts[room:], forced[room:]))
        taken.append((scripts[:room], forced[:room]))
        room -= len(taken[-1][1])
    width = max(s.shape[1] for s, _ in taken)
    padded = [np.pad(s, ((0, 0), (0, width - s.shape[1]))) for s, _ in taken]
    return np.concatenate(padded), np.concatenate([f for _, f in taken])


def _off_path(source: EnumeratingNoise, tokens: NDArray[np.int64], ar_laws: list[NDArray[np.float64]]) -> float:
    """Expected number of positions whose noise region sticks out of the cell of the emitted token."""
    total = 0.0
    for image, laws in enumerate(ar_laws):
        context = np.zeros(len(tokens), dtype=np.int64)
        for position in range(source.size):
            token = tokens[:, image, position]
            shares, _ = source.geometry.cut(source.regions[:, image, position], laws[context])
            inside = shares[np.arange(len(token)), token]
            total += float(source.weight @ np.where(inside >= 1 - SLACK, 0.0, 1 - inside))
            context = context * source.vocab + token + 1
    return total
