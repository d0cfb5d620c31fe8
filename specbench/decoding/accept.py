"""When a draft becomes part of the image, and what is committed where one does not.

Knows: acceptance rules. Each looks at the window from the left, keeps a run of drafts and settles the first slot
behind it; the slots after that are handed to the redraft.
Refuses to know: the redraft's formula, fills, the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from specbench.decoding.board import Window, at_slot
from specbench.decoding.interfaces import Key, Noise, Target
from specbench.decoding.laws import residual
from specbench.decoding.redraft import Gumbel, Independent, Redraft

Part = TypeVar("Part")


class Verdict(NamedTuple):
    """``accepted`` [B]: drafts kept from the front. ``tokens`` [B, w]: the token of every slot from now on.

    Slots before ``accepted`` and that slot itself (if it is inside the image) are final, the others drafts.
    """

    accepted: Tensor
    tokens: Tensor


class Accept(Protocol):
    """``p`` [B, w, V] is the law that decides; ``law`` [B, w, V] the one that redrafts are drawn from.

    A rule that needs more of the target than its laws has a method ``bind(target) -> Accept`` (:func:`bound`).
    """

    lossless: bool

    def __call__(self, noise: Noise, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Judge one pass."""
        ...


def bound(part: Part, target: Target) -> Part:
    """``part``, with what it needs of ``target`` (a codebook) at hand. Asked for once per decode."""
    bind: Callable[[Target], Part] | None = getattr(part, "bind", None)
    return part if bind is None else bind(target)


@dataclass(frozen=True)
class Strict:
    """Keep x with probability min(1, p(x) / q(x)); at the first refusal commit a draw from (p - q)₊.

    Speculative sampling (Leviathan et al. 2023, 2211.17192, algorithm 1; Chen et al. 2023, 2302.01318, theorem 1),
    with the slot's previous law as q: SJD (2410.01699). If every draft is kept, the token of the free
    slot is committed as well.
    """

    lossless = True

    def __call__(self, noise: Noise, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Test with the plain ratio."""
        ratio = p.gather(-1, window.token[..., None]).squeeze(-1) / window.q_of_draft()
        return judge(noise, ratio, p, law, window, redraft)


def judge(noise: Noise, ratio: Tensor, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
    """Test with ``ratio`` [B, w] (above 1: always kept), correct, redraft: in this order, so that only what is read
    is drawn. The correction comes from (p - q)₊, whatever the ratio was.
    """
    passed = noise.accept(ratio.clamp(max=1), Key("accept", window.position), window.drafted, lead=True)
    accepted = run(passed & window.drafted)
    rest = residual(at_slot(p, accepted), window.board.law(at_slot(window.position, accepted)))
    return settle(noise, rest, law, window, redraft, accepted, window.drafted)


def settle(
    noise: Noise, rest: Tensor, law: Tensor, window: Window, redraft: Redraft, accepted: Tensor, tested: Tensor
) -> Verdict:
    """Give every slot from ``accepted`` [B] on its token. If that slot was ``tested`` [B, w] it was refused, and gets a
    correction from ``rest`` [B, 1, V]; if not, it is the free slot or has a draft that the redraft may carry over.
    """
    where = at_slot(window.position, accepted)
    refused = at_slot(tested, accepted) & (accepted < tested.shape[1])[:, None]
    correction = noise.draw(rest, Key("residual", where), refused)

    corrected = (window.slot == accepted[:, None]) & tested
    behind = (window.slot >= accepted[:, None]) & window.live & ~corrected
    settled = replace(window, token=torch.where(corrected, correction, window.token), settled=accepted + 1)
    again = redraft(noise, law, settled, behind)
    return Verdict(accepted, torch.where(behind, again, settled.token))


@dataclass(frozen=True)
class Equality:
    """Keep x iff a draw from p equals it, and commit that draw either way: the draft only decides whether to go on.

    With a fresh draw this is Jacobi decoding with sampling (the Jacobi baseline of SJD, 2410.01699); with
    the position's own Gumbel row it is *replay*, whose tokens are those of AR whatever the drafts were. If the redraft
    would make the same draw again, the draw is taken over; if not, ``apart`` draws instead, on numbers that no redraft
    reads.
    """

    draws: Redraft
    apart: Redraft
    lossless = True

    def __call__(self, noise: Noise, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Draw everywhere, then compare."""
        shared = redraft == self.draws and law is p
        drawn = (self.draws if shared else self.apart)(noise, p, window, window.live)
        accepted = run((drawn == window.token) & window.drafted)
        if shared:
            return Verdict(accepted, drawn)
        behind = (window.slot > accepted[:, None]) & window.live
        token = torch.where(window.live & ~behind, drawn, window.token)  # drawn means nothing where it was not needed
        settled = replace(window, token=token, settled=accepted + 1)
        return Verdict(accepted, torch.where(behind, redraft(noise, law, settled, behind), token))


def run(passed: Tensor) -> Tensor:
    """Length of the leading run of True: [B, w] bool to [B] int64."""
    return passed.long().cumprod(1).sum(1)


ACCEPTS: dict[str, Accept] = {
    "strict": Strict(),
    "fresh": Equality(Independent(), Independent(index=1)),
    "replay": Equality(Gumbel(), Gumbel()),
}
