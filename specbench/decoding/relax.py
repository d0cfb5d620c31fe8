"""Acceptance that forgives a draft for standing beside the token that the target meant. Lossy, and measured.

Knows: the two published relaxations, what each of them adds to the tested token's score, and a budget that bounds
what the relaxation does to the law.
Refuses to know: the loop, redrafts, whether a picture still looks right.

A draft x ~ q is kept with probability min(1, (p(x) + S(x)) / q(x)) instead of min(1, p(x) / q(x)), and a refused one is
replaced from the unrelaxed (p - q)₊. For one candidate the law of the outcome is then off by exactly

    TV(out, p) = Σ_x min((q(x) - p(x))₊, S(x)),

since q min(1, (p + S) / q) = p - (p - q)₊ + min((q - p)₊, S). A bound on each S(x) bounds no such sum: with S ≤ ½ and
q spread over ten tokens that p excludes, TV = 1 (tested).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specbench.decoding import options
from specbench.decoding.accept import Accept, Verdict, judge
from specbench.decoding.board import Window
from specbench.decoding.codebook import codebook_of, in_units_of_spread, nearest
from specbench.decoding.interfaces import Noise, Target
from specbench.decoding.redraft import Redraft


@dataclass(frozen=True)
class Grouped:
    """Keep x with probability min(1, Σ_C p / Σ_C q), C the group of x. GSD (2508.07747), dynamic clustering.

    C holds x and its nearest tokens in the ranking by p, ``group`` in all, half of them on each side (fewer at the
    ends; among equals x ranks first), without those whose probability is further than ``gap`` from p(x) or whose code
    is further than ``distance``. The paper's distance is an absolute one on one model's embeddings; here it is the
    squared distance of code vectors in units of their mean over all pairs, so that no scale of a codebook
    changes it.

    Raises ``UsageError`` for values out of range, and on a target without a codebook.
    """

    group: int = 10
    gap: float = 0.15
    distance: float = 0.5
    codes: Tensor | None = field(default=None, repr=False, compare=False)
    """[V, e], once bound."""

    lossless = False

    def __post_init__(self) -> None:
        options.check(vars(self))

    def bind(self, target: Target) -> Grouped:
        """With the target's codes in units of their spread."""
        return replace(self, codes=in_units_of_spread(codebook_of(target)))

    def __call__(self, noise: Noise, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Test with the ratio of groups."""
        return judge(noise, self.ratio(p, window.q(), window.token), p, law, window, redraft)

    def ratio(self, p: Tensor, q: Tensor, token: Tensor) -> Tensor:
        """Σ_C p / Σ_C q of the groups of ``token`` [B, w], for laws [B, w, V] each: [B, w], at least 0."""
        members, inside = self.members(p, token)
        mass = torch.where(inside, p.gather(-1, members), 0).sum(-1)
        drafted = torch.where(inside, q.gather(-1, members), 0).sum(-1)
        return mass / drafted.clamp(min=torch.finfo(p.dtype).tiny)

    def members(self, p: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, w, G'] among which the group is, and whether each is in it; ``token`` itself comes first."""
        assert self.codes is not None, "bind comes first"
        own, place = token[..., None], torch.arange(p.shape[-1], device=p.device)
        mine = p.gather(-1, own)
        likelier = p > mine
        above, below = self.group // 2, (self.group - 1) // 2
        up = torch.where(likelier, p, torch.inf).topk(min(above, p.shape[-1]), largest=False)
        down = torch.where(likelier | (place == own), -torch.inf, p).topk(min(below, p.shape[-1]))
        members = torch.cat([own, up.indices, down.indices], -1)
        apart = torch.cat([torch.zeros_like(mine), up.values - mine, mine - down.values], -1)
        far = (self.codes[members] - self.codes[own]).square().sum(-1)
        return members, (apart <= self.gap) & (far <= self.distance)


@dataclass(frozen=True)
class Lantern:
    """Keep x with probability min(1, (p(x) + S(x)) / q(x)), S the mass of nearby codes. LANTERN (2410.03355).

    Of the ``neighbours`` nearest codes v₁, v₂, … of x, S(x) = p(v₁) + … + p(v_j) with the largest j for which that is
    at most ``delta``; with ``scale`` λ at most (λ - 1) p(x) instead, LANTERN++ (2502.06352). On a small codebook
    the number of neighbours is cut to an eighth of it (:func:`specbench.decoding.options.near`).

    ``budget``: ``score``, as published, bounds what is added to the one token that is tested. ``law`` (ours) bounds the
    law: the *effective* relaxations min((q - p)₊, S) of a slot are all multiplied by
    min(1, delta / Σ min((q - p)₊, S)), which leaves the slot's outcome within TV ``delta`` of p. It needs
    S of every token, V × neighbours sums per slot.

    Raises ``UsageError`` for values out of range, and on a target without a codebook.
    """

    neighbours: int = 1000
    delta: float = 0.1
    scale: float | None = None
    budget: str = "score"
    table: Tensor | None = field(default=None, repr=False, compare=False)
    """[V, k] int32, once bound: the nearest codes of each."""

    lossless = False

    def __post_init__(self) -> None:
        options.check(vars(self))

    def bind(self, target: Target) -> Lantern:
        """With the nearest codes of the target's codebook."""
        codebook = codebook_of(target)
        return replace(self, table=nearest(codebook, options.near(self.neighbours, len(codebook))))

    def __call__(self, noise: Noise, p: Tensor, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Test with the relaxed ratio."""
        relaxed = p.gather(-1, window.token[..., None]).squeeze(-1) + self.added(p, window)
        return judge(noise, relaxed / window.q_of_draft(), p, law, window, redraft)

    def added(self, p: Tensor, window: Window) -> Tensor:
        """What the relaxation adds to the score of each draft: [B, w]."""
        own = window.token[..., None]
        if self.budget == "law":
            return self.spent(p, window.q()).gather(-1, own).squeeze(-1)
        assert self.table is not None, "bind comes first"
        around = self.table[window.token].long()  # [B, w, k]
        return self._within(p.gather(-1, around), p.gather(-1, own)).squeeze(-1)

    def spent(self, p: Tensor, q: Tensor) -> Tensor:
        """Effective relaxations of all tokens under ``budget`` ``law``: [..., V], of sum at most ``delta``."""
        assert self.table is not None, "bind comes first"
        each = self._within(p[..., self.table], p[..., None]).squeeze(-1)
        effective = torch.minimum((q - p).clamp(min=0), each)
        total = effective.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        return effective * (self.delta / total).clamp(max=1)

    def _within(self, around: Tensor, own: Tensor) -> Tensor:
        """The largest of the sums S_j of ``around`` [..., k] that the bound allows, 0 if none: [..., 1]."""
        sums = around.cumsum(-1)
        bound = self.delta if self.scale is None else (self.scale - 1) * own
        return torch.where(sums <= bound, sums, 0).amax(-1, keepdim=True)


RELAXED: dict[str, Accept] = {"grouped": Grouped(), "lantern": Lantern()}
