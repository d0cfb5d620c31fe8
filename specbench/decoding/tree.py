"""A tree of drafts around the place where the last pass failed.

Knows: the layout of a K-ary tree within a fixed number of tokens, how siblings are drawn, how the levels are walked.
Refuses to know: redrafts, fills, predictions, and the loop; behind the tree the plain test of a chain goes on.

    window of 10 tokens, 2 children, depth 3          slot   0      1      2      3      4
                                                      root ─ x₀ ─── x₁ ─── x₂ ─── x₃ ─── x₄     main path: the drafts
    siblings y of a slot are the same wherever             ╲      ╲ y₁                          of a chain, cut short
    they stand, so a level shares its candidates            y₀ ─── x₁
                                                              ╲    y₁

The main path has the columns that it has as a chain, and the side nodes take the columns of the drafts at the far end
of the window. Those drafts stay on the board with their laws, and wait.

Why this is exact: the shape depends on nothing but whether an earlier position was refused; a slot's siblings are drawn
from the law that its draft was drawn from; and the walk tests them with the residual that the refused ones have left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specbench.decoding import options
from specbench.decoding.accept import Accept, Verdict, run, settle
from specbench.decoding.board import Window, at_slot
from specbench.decoding.interfaces import Key, Noise
from specbench.decoding.laws import residual
from specbench.decoding.redraft import Redraft


class Candidates(NamedTuple):
    """What the levels of a tree are tested with, in the order in which it was drawn.

    ``token`` [B, T, K] int64, the first of each slot its draft · ``there`` [B, T, K] bool · ``q``, K laws [B, T, V]:
    what each was drawn from, given those before it.
    """

    token: Tensor
    there: Tensor
    q: list[Tensor]


@dataclass
class Nodes:
    """What one pass evaluates, C columns: ``tokens`` [B, C] int64, their ``parents`` [B, C] (None: a chain), ``live``
    [B, C] bool, whether the position behind a node is in the image. The first ``main`` columns are the main path.
    """

    tokens: Tensor
    parents: Tensor | None
    live: Tensor
    main: int
    candidates: Candidates | None = None


class Way(NamedTuple):
    """How far the levels of a tree have led.

    ``accepted`` [B] levels · ``token`` [B, T] the candidate on the way · ``refused`` [B] whether a level refused all of
    its candidates, and ``rest`` [B, V] what its correction is drawn from then · ``beside`` [B] whether the way has left
    the main path.
    """

    accepted: Tensor
    token: Tensor
    refused: Tensor
    rest: Tensor
    beside: Tensor


@dataclass
class Walk:
    """``p`` [B, w, V] the law of every live slot · ``tested`` [B, w] drafts that can be accepted · ``path`` [B, D] the
    columns on the way through a tree, and the :class:`Way`; None for a chain.
    """

    p: Tensor
    tested: Tensor
    path: Tensor | None = None
    way: Way | None = None


class Tree(Protocol):
    """The shape of a pass: which drafts are evaluated, and how their laws become laws of slots."""

    @property
    def nodes(self) -> int:
        """The smallest window above one."""
        ...

    @property
    def side(self) -> int:
        """How many tokens of a pass may stand beside the main path."""
        ...

    def grow(self, noise: Noise, window: Window, last: Tensor) -> Nodes:
        """Lay out the pass; ``last`` [B, 1] is the token before the window."""
        ...

    def walk(self, noise: Noise, laws: Tensor, window: Window, nodes: Nodes) -> Walk:
        """From the ``laws`` [B, C, V] behind the nodes to those of the live slots. ``laws`` may be written to."""
        ...

    def judge(self, accept: Accept, noise: Noise, walk: Walk, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Accept, correct, redraft. ``law`` [B, w, V] is what redrafts are drawn from; it may be written to."""
        ...


@dataclass(frozen=True)
class Chain:
    """No tree: the drafts of the window, each behind the one before it."""

    nodes = 2
    side = 0

    def grow(self, noise: Noise, window: Window, last: Tensor) -> Nodes:
        """The last committed token and every draft but that of the last slot, which nothing is behind."""
        return Nodes(torch.cat([last, window.token[:, :-1]], 1), None, window.live, window.token.shape[1])

    def walk(self, noise: Noise, laws: Tensor, window: Window, nodes: Nodes) -> Walk:
        """Column j is slot j."""
        return Walk(laws, window.drafted)

    def judge(self, accept: Accept, noise: Noise, walk: Walk, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """The acceptance rule itself."""
        return accept(noise, walk.p, law, window, redraft)


class Level(NamedTuple):
    """One level's outcome: ``digit`` [B] of the candidate that was kept, if any was ``found`` [B]; ``rest`` [B, V]."""

    digit: Tensor
    found: Tensor
    rest: Tensor


@dataclass(frozen=True)
class Siblings:
    """Proactive drafting: after a refusal, ``children`` candidates for each of the next ``depth`` - 1 positions.

    SJD-PAC (2603.18599), proactive drafting and its listing: candidates are drawn without replacement from the slot's
    recorded law and tested one after another, p ← (p - q)₊ normalised and q ← q without the refused one; the first that
    passes wins (SpecInfer, 2305.09781, multi-step speculative sampling, is the same with replacement). ``depth``
    counts the root, as the released code does. A pass after one in which every draft was kept is a plain chain.
    Our choices where the text is silent: the first candidate is the draft that the redraft carries on; all nodes of a
    level share its candidates; the draft behind a side branch is redrawn from the law found there. (The released
    sampler takes the longest accepted row instead of the first accepted sibling, which is not exact: ``verify
    --mutants`` has it.)

    Raises ``UsageError`` unless both are whole numbers from 2 on.
    """

    children: int = 4
    depth: int = 3

    def __post_init__(self) -> None:
        options.check(vars(self))

    @property
    def nodes(self) -> int:
        """Nodes of the tree, root included: the smallest window that holds it."""
        return sum(self.children**level for level in range(self.depth))

    @property
    def side(self) -> int:
        """Those of them that are not on the main path."""
        return self.nodes - self.depth

    def grow(self, noise: Noise, window: Window, last: Tensor) -> Nodes:
        """Draw the siblings of rows with a tree, and put the side nodes where a chain has its last drafts."""
        board, width = window.board, window.position.shape[1]
        main = min(board.width - self.side, width)
        candidates = self.candidates(noise, window, min(self.depth - 1, width))
        level, digit, parent = _side_nodes(self.children, min(self.depth - 1, width - 1), last.device)
        parent = torch.where(parent < 0, level - 1, parent + main)

        column = torch.arange(main + len(level), device=last.device)
        spare = last.new_zeros(len(last), len(column) - width)  # a window that is cut short may be shorter than a tree
        tokens = torch.cat([last, window.token[:, :-1], spare], 1)
        parents, depth = (column - 1).expand_as(tokens), column.expand_as(tokens)
        beside = board.tree[:, None] & (column[main:] >= main)
        tokens = _tail(tokens, beside, candidates.token[:, level - 1, digit])
        parents, depth = _tail(parents, beside, parent), _tail(depth, beside, level)
        live = board.committed[:, None] + depth < board.size
        return Nodes(tokens, parents, live, main, candidates)

    def candidates(self, noise: Noise, window: Window, levels: int) -> Candidates:
        """The draft of each slot and its siblings, drawn one after another without those before them.

        A sibling exists iff its law has that many tokens, so that its being there tells nothing about the others.
        """
        at = window.position[:, :levels]
        token, q = [window.token[:, :levels]], [window.board.law(at)]
        there, support = [window.drafted[:, :levels]], (q[0] > 0).sum(-1)
        grown = there[0] & window.board.tree[:, None]
        for index in range(1, self.children):
            there.append(grown & (support > index))
            q.append(without(q[-1], token[-1]))
            drawn = noise.draw(q[-1], Key("child", at, index=index), there[-1])
            token.append(torch.where(there[-1], drawn, 0))
        return Candidates(torch.stack(token, -1), torch.stack(there, -1), q)

    def walk(self, noise: Noise, laws: Tensor, window: Window, nodes: Nodes) -> Walk:
        """Go down the levels, from the first accepted candidate to the next.

        A slot's law is the one found on the way; where the way has ended, on the way on through the drafts.
        """
        assert nodes.candidates is not None
        board, width, levels = window.board, window.position.shape[1], nodes.candidates.token.shape[1]
        reach, tested, p, rows = board.width - self.side, window.drafted.clone(), laws[:, :width], board.rows[:, 0]
        if width >= reach:
            tested[:, reach - 1] &= ~board.tree  # no law is known behind it, so it is settled without a test

        law, index = p[:, 0], torch.zeros_like(rows)  # index: of the node in its level, its way as digits in base K
        going, refused, rest = rows >= 0, rows < 0, law
        accepted, chosen, path = index, [], [index]
        for level in range(levels):
            need = going & tested[:, level]
            digit, going, left = self.level(noise, law, window.position[:, level, None], nodes.candidates, level, need)
            failed = need & ~going
            refused, rest = refused | failed, torch.where(failed[:, None], left, rest)
            accepted = accepted + going
            chosen.append(digit)
            index = index * self.children + digit
            if level + 1 < width:
                path.append(self._column(level + 1, index, nodes.main))
                law = p[:, level + 1] = laws[rows, path[-1]]
        token = nodes.candidates.token.gather(2, torch.stack(chosen, 1)[..., None]).squeeze(2)
        return Walk(p, tested, torch.stack(path, 1), Way(accepted, token, refused, rest, index > 0))

    def level(self, noise: Noise, law: Tensor, at: Tensor, candidates: Candidates, level: int, need: Tensor) -> Level:
        """Test the candidates of one slot, at ``at`` [B, 1], in the order in which they were drawn.

        ``law`` [B, V] is the slot's law at the node where the way stands. A refused candidate leaves the residual.
        """
        digit, found = torch.zeros_like(at[:, 0]), torch.zeros_like(need)
        for index, laws in enumerate(candidates.q):
            token, q = candidates.token[:, level, index, None], laws[:, level].to(law.dtype)
            open_ = (need & ~found & candidates.there[:, level, index])[:, None]
            ratio = law.gather(1, token) / torch.where(open_, q.gather(1, token), 1)
            key = Key("accept", at, index=index + (index > 0))  # 1 is the coin of a redraft
            kept = noise.accept(ratio.clamp(max=1), key, open_) & open_
            digit, found = torch.where(kept[:, 0], index, digit), found | kept[:, 0]
            law = torch.where(open_ & ~kept, residual(law, q), law)
        return Level(digit, found, law)

    def _column(self, level: int, index: Tensor, main: int) -> Tensor:
        """Column of node ``index`` [B] of ``level``: the main path first, then side nodes level by level."""
        before = sum(self.children**above - 1 for above in range(1, level))
        return torch.where(index == 0, level, main + before + index - 1)

    def judge(self, accept: Accept, noise: Noise, walk: Walk, law: Tensor, window: Window, redraft: Redraft) -> Verdict:
        """Behind a main path that passed all levels go on as in a chain; then correct and redraft as in a chain.

        ``accept`` is strict, and this is its test. A slot that is settled without one is carried over by the redraft,
        from p.
        """
        assert walk.way is not None
        p, way, levels = walk.p, walk.way, walk.way.token.shape[1]
        on = ((way.accepted == levels) & ~way.beside)[:, None]
        tested = walk.tested & (on | (window.slot < levels))
        accepted = way.accepted
        if levels < window.position.shape[1]:
            behind = (tested & on)[:, levels:]
            ratio = p.gather(-1, window.token[..., None]).squeeze(-1) / window.q_of_draft()
            key = Key("accept", window.position[:, levels:])
            passed = noise.accept(ratio[:, levels:].clamp(max=1), key, behind, lead=True)
            accepted = accepted + run(passed & behind)

        plain = residual(at_slot(p, accepted), window.board.law(at_slot(window.position, accepted)))
        rest = torch.where(way.refused[:, None, None], way.rest[:, None], plain)
        if law is not p:
            slot, rows = accepted.clamp(max=law.shape[1] - 1), window.board.rows[:, 0]
            law[rows, slot] = torch.where(at_slot(tested, accepted), law[rows, slot], p[rows, slot])
        ours = window.slot[:levels] < way.accepted[:, None]
        token = torch.cat([torch.where(ours, way.token, window.token[:, :levels]), window.token[:, levels:]], 1)
        return settle(noise, rest, law, replace(window, token=token), redraft, accepted, tested)


def without(law: Tensor, token: Tensor) -> Tensor:
    """``law`` [..., V] given that it is not ``token`` [...]; zero where nothing is left."""
    rest = law.scatter(-1, token[..., None], 0)
    return rest / rest.sum(-1, keepdim=True).clamp(min=torch.finfo(law.dtype).tiny)


def _tail(columns: Tensor, where: Tensor, instead: Tensor) -> Tensor:
    """``columns`` [B, C] with the last S replaced by ``instead`` [B or 1, S] where the mask [B, S] says so."""
    kept = columns.shape[1] - where.shape[1]
    return torch.cat([columns[:, :kept], torch.where(where, instead, columns[:, kept:])], 1)


@cache
def _side_nodes(children: int, levels: int, device: torch.device) -> tuple[Tensor, ...]:
    """Level, candidate and parent [S] each of the side nodes of ``levels`` levels, level by level.

    The parent is a side node's number, or -1 for the node of the main path one level above.
    """
    level, digit, parent, above = [], [], [], 0  # above: how many side nodes stand above the parents' level
    for depth in range(1, levels + 1):
        for index in range(1, children**depth):
            level.append(depth)
            digit.append(index % children)
            parent.append(above + index // children - 1 if index >= children else -1)
        above += children ** (depth - 1) - 1
    return torch.tensor([level, digit, parent], dtype=torch.int64, device=device).unbind(0)


TREES: dict[str, Tree] = {"none": Chain(), "siblings": Siblings()}
