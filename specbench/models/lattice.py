"""A field on a square lattice whose law is a formula: each code leans towards the one left of it and the one above.

Knows: the Potts law of a code given two neighbours, the coupling that has a stated entropy, and the exact law of a code
when only the row above is known.
Refuses to know: pictures, methods, and anything a file could hold.

Random weights make tokens that do not depend on their neighbours in any way an image's do, so that acceptance on them
says nothing. Here it does: with K codes and coupling J,

    p(c | l, a) ∝ exp(J [c = l] + J [c = a])        left neighbour l, above a; a missing one drops out

Given the row above alone, the law m_x of the code in column x follows from m_{x-1} and a_x in O(K):

    m_x(c) ∝ …  Σ_l m_{x-1}(l) p(c | l, a_x)        (the state that this target hands to a drafter's vertical heads)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.decoding.interfaces import Forward, Grid, Prompt
from specbench.errors import UsageError


@dataclass(frozen=True)
class Lattice:
    """The field on ``side``² positions as a :class:`specbench.decoding.interfaces.Target`, in float64.

    ``states`` False leaves out the hidden states, whose recursion costs more than the laws.
    """

    side: int
    codes: int
    coupling: float
    states: bool = True
    device: torch.device = torch.device("cpu")
    codebook: Tensor | None = None

    @property
    def grid(self) -> Grid:
        """side × side."""
        return Grid(self.side, self.side)

    @property
    def vocab(self) -> int:
        """K."""
        return self.codes

    @property
    def name(self) -> str:
        """For tables."""
        return f"lattice/{self.side}"

    @property
    def weights_hash(self) -> str:
        """The parameters themselves."""
        return f"lattice-{self.side}-{self.codes}-{self.coupling!r}"

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> LatticeCanvas:
        """Every prompt means the same here: under guidance there are two rows, and both are this law."""
        return LatticeCanvas(self, len(prompts), 1 if guidance is None or guidance == 1 else 2)

    def pixels(self, tokens: Tensor) -> Tensor:
        """Codes as shades of grey, [B, 3, side, side] uint8."""
        shade = (tokens * 255 // max(self.codes - 1, 1)).to(torch.uint8).unflatten(1, (self.side, self.side))
        return shade[:, None].expand(-1, 3, -1, -1).contiguous()

    def embed(self, tokens: Tensor) -> Tensor:
        """One-hot codes, with room for the second half of a state: [..., 2K] float64."""
        one = torch.nn.functional.one_hot(tokens.clamp(min=0), 2 * self.codes)
        return one.double()

    def norm(self, h: Tensor) -> Tensor:
        """Nothing: the state is in the head's units already."""
        return h

    def head(self, h: Tensor) -> Tensor:
        """Logits are the first half of a state."""
        return h[..., : self.codes]

    def below(self, law: Tensor, above: Tensor) -> Tensor:
        """m_x from m_{x-1} ``law`` [..., K] and a_x ``above`` [...]: the next column's law given the row above alone.

        A ``law`` of zeros stands for "no left neighbour" and gives p(c | a).
        """
        weight = math.exp(self.coupling)
        same, other, alone = self._norms()
        hit = torch.nn.functional.one_hot(above, self.codes).to(law.dtype)
        stay = (law * hit).sum(-1, keepdim=True)
        rest = law.sum(-1, keepdim=True) - stay
        ground = stay / same + rest / other
        found = ground + law * (weight - 1) / other * (1 - hit)
        found = found + hit * (stay * (weight**2 - 1) / same + rest * (weight - 1) / other)
        first = (1 + (weight - 1) * hit) / alone
        return torch.where(law.sum(-1, keepdim=True) > 0, found, first)

    def _norms(self) -> tuple[float, float, float]:
        """Normalisers: both neighbours alike, both different, one neighbour only."""
        weight = math.exp(self.coupling)
        return weight**2 + self.codes - 1, 2 * weight + self.codes - 2, weight + self.codes - 1


class LatticeCanvas:
    """Images in flight on a lattice: the tokens fed so far, and the marginal of the row below at every position."""

    def __init__(self, target: Lattice, images: int, copies: int = 1) -> None:
        self.target, self.copies = target, copies
        size, side, device = target.grid.size, target.side, target.device
        self.known = torch.zeros(images, 2 * size + side + 1, dtype=torch.int64, device=device)
        self.under = torch.zeros(images, 2 * size + side + 1, target.codes, dtype=torch.float64, device=device)
        self.committed = torch.zeros(images, dtype=torch.int64, device=device)
        self.rows = torch.arange(images, device=device)[:, None]
        self.wide = side  # where position 0 is stored: whole rows of nothing come before it

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """Logits by formula; ``h`` [R, B, W, 2K] is [logits; marginal of the row below left of the position]."""
        if parents is not None or taps:
            raise NotImplementedError("the lattice evaluates chains only")
        target, side = self.target, self.target.side
        position = self.committed[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        place = position + self.wide
        self.known[self.rows, place - 1] = tokens.clamp(min=0)
        column, row = position % side, position // side
        logits = torch.zeros(*tokens.shape, target.codes, dtype=torch.float64, device=tokens.device)
        for there, back in (((column > 0), 1), ((row > 0), side)):
            neighbour = self.known[self.rows, place - back]
            logits.scatter_add_(-1, neighbour[..., None], (there * target.coupling)[..., None].double())
        if not target.states:
            return Forward(logits)
        state = torch.cat([logits, self._under(position, column, place)], -1)
        return Forward(logits, state.expand(self.copies, *state.shape))

    def _under(self, position: Tensor, column: Tensor, place: Tensor) -> Tensor:
        """For each position the law of the code below its *left* neighbour, given its row up to there; zeros at x = 0.

        A recursion along the row: one step per column, as a recurrent model has it.
        """
        for slot in range(position.shape[1]):
            at = place[:, slot : slot + 1]
            law = self.target.below(self.under[self.rows, at - 1], self.known[self.rows, at - 1])
            self.under[self.rows, at] = torch.where(column[:, slot : slot + 1, None] > 0, law, 0)
        return self.under[self.rows, place]

    def keep(self, n: Tensor) -> None:
        """Commit ``n`` [B] further codes."""
        self.committed = self.committed + n


@dataclass(frozen=True)
class LatticeHeads:
    """Heads in closed form, as :class:`specbench.decoding.interfaces.SpatialHeads`: the best that one row can know.

    Down: the law of the code below given the row above up to this column (exact, k_v = 1). Right: the law j columns on
    in a row that has none above it, p_j = [c = l] λ^j + (1 - λ^j) / K with λ the first step's lean; below the first
    row what stands above is not used.
    """

    target: Lattice
    horizontal_offsets: int = 5
    vertical_offsets: int = 1
    post_norm: bool = False

    def horizontal(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, 2K] and [B, L, 2K] to [R, B, L, k_h, 2K]."""
        codes = self.target.codes
        alone = self.target._norms()[2]
        lean = (math.exp(self.target.coupling) - 1) / alone
        share = lean ** torch.arange(1, self.horizontal_offsets + 1, dtype=h.dtype, device=h.device)[:, None]
        law = share * e[..., None, :codes] + (1 - share) / codes
        return self._states(law.expand(*h.shape[:-1], *law.shape[-2:]))

    def vertical(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, 2K] and [B, L, 2K] to [R, B, L, 1, 2K]."""
        codes = self.target.codes
        law = self.target.below(h[..., codes:], e[..., :codes].argmax(-1).expand(h.shape[:-1]))
        return self._states(law[..., None, :])

    @staticmethod
    def _states(law: Tensor) -> Tensor:
        return torch.cat([law.log(), torch.zeros_like(law)], -1)


def mean_entropy(codes: int, coupling: float, side: int = 32, images: int = 32, seed: int = 0) -> float:
    """Mean entropy in nats of the law of a code inside a sampled ``side``² field (edges left out)."""
    weight = math.exp(coupling)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(codes, (images, side, side), generator=generator)
    alike = 0.0
    for row in range(1, side):
        for column in range(1, side):
            left, above = tokens[:, row, column - 1], tokens[:, row - 1, column]
            law = torch.ones(images, codes).scatter_(1, left[:, None], weight)
            law.scatter_(1, above[:, None], torch.where(left == above, weight**2, weight)[:, None])
            tokens[:, row, column] = law.multinomial(1, generator=generator)[:, 0]
            alike += float((left == above).double().mean())
    alike /= (side - 1) ** 2
    laws = [[weight**2] + [1.0] * (codes - 1), [weight] * 2 + [1.0] * (codes - 2)]
    one, two = (float(torch.special.entr(x / x.sum()).sum()) for x in map(torch.tensor, laws))
    return alike * one + (1 - alike) * two


def with_entropy(side: int, codes: int, nats: float) -> Lattice:
    """The lattice whose codes have ``nats`` of entropy given their neighbours (to about 0.01, by bisection).

    Raises UsageError unless 0 < nats < log K.
    """
    if not 0 < nats < math.log(codes):
        raise UsageError(f"{codes} codes have between 0 and {math.log(codes):.2f} nats of entropy, not {nats}")
    low, high = 0.0, 3 * math.log(codes)
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_entropy(codes, middle) > nats else (low, middle)
    return Lattice(side, codes, (low + high) / 2)
