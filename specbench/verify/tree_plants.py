"""Defects planted in the tree of siblings, one small function each, and the harmless twins of some.

Knows: how candidates of one level may be drawn, ordered, tested and placed wrongly, as released samplers do.
Refuses to know: whether a defect is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from specbench.decoding.board import look
from specbench.decoding.interfaces import Key, Noise
from specbench.decoding.laws import residual
from specbench.decoding.tree import Candidates, Level, Nodes, Siblings, Walk, Way, without
from specbench.verify.plants import Patch, Plant

Change = Callable[[Candidates], Candidates]


def _candidates(change: Change) -> Plant:
    """A plant: the candidates of every pass are changed after they were drawn."""

    def plant(patch: Patch) -> None:
        drawn = Siblings.candidates
        patch(Siblings, "candidates", lambda self, *arguments: change(drawn(self, *arguments)))

    return plant


def _first_law(candidates: Candidates) -> Candidates:
    return candidates._replace(q=[candidates.q[0]] * len(candidates.q))


def _likeliest_first(candidates: Candidates) -> Candidates:
    """Siblings by falling probability; their laws are those of drawing in that order."""
    token, there, q = candidates
    likely = q[0].gather(-1, token)[..., 1:].masked_fill(~there[..., 1:], -1)
    order = torch.cat([torch.zeros_like(token[..., :1]), 1 + likely.argsort(dim=-1, descending=True, stable=True)], -1)
    token, laws = token.gather(-1, order), [q[0]]
    for index in range(1, len(q)):
        laws.append(without(laws[-1], token[..., index - 1]))
    return Candidates(token, there.gather(-1, order), laws)


def _siblings_if(condition: Callable[[Candidates], Tensor]) -> Plant:
    """A plant: siblings are there only where ``condition`` [B, T, K] holds (looked at behind the draft)."""

    def change(candidates: Candidates) -> Candidates:
        draft = torch.arange(len(candidates.q)) == 0
        return candidates._replace(there=candidates.there & (draft | condition(candidates)))

    return _candidates(change)


refused_sibling_stays_in_q = _candidates(_first_law)
siblings_by_probability = _candidates(_likeliest_first)
siblings_pruned_by_their_own_probability = _siblings_if(lambda c: c.q[0].gather(-1, c.token) > 0.3)
siblings_pruned_by_the_draft = _siblings_if(lambda c: (c.token == 0)[..., :1])


class _Draws:
    """Noise whose draws have another key or law."""

    def __init__(self, noise: Any, key: Callable[[Key], Key], law: Callable[[Tensor], Tensor]) -> None:
        self._noise, self._key, self._law = noise, key, law

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """The same draw elsewhere."""
        drawn: Tensor = self._noise.draw(self._law(law), self._key(key), need)
        return drawn


def _drawn(key: Callable[[Key], Key] = lambda key: key, law: Callable[[Tensor], Tensor] = lambda law: law) -> Plant:
    """A plant: siblings are drawn at another key, or from another law than the one that is noted for them."""

    def plant(patch: Patch) -> None:
        draw = Siblings.candidates
        patch(
            Siblings, "candidates", lambda self, noise, *rest: draw(self, cast("Noise", _Draws(noise, key, law)), *rest)
        )

    return plant


def _gained(law: Tensor) -> Tensor:
    """What a law has above the uniform one: the residual of a slot's first redraft, as if the fill had been refused."""
    return residual(law, torch.full_like(law, 1 / law.shape[-1]))


siblings_share_one_number = _drawn(key=lambda key: key._replace(index=0))
siblings_numbered_backwards = _drawn(key=lambda key: key._replace(index=9 - key.index))
siblings_from_the_residual = _drawn(law=_gained)


# --- the test of one level ---------------------------------------------------------------------------------------


def _level(tested: str = "rest", corrected: str = "rest", last_wins: bool = False) -> Plant:
    """A plant: the candidates of a level are tested with, and corrected from, ``rest`` (the residual that the refused
    ones leave, as production does), ``p``, or ``first``, the residual of the draft. ``last_wins``: all are tested.
    """

    def call(
        self: Siblings, noise: Any, law: Tensor, at: Tensor, candidates: Candidates, level: int, need: Tensor
    ) -> Level:
        p = rest = first = law
        digit, found = torch.zeros_like(at[:, 0]), torch.zeros_like(need)
        for index, laws in enumerate(candidates.q):
            token, q = candidates.token[:, level, index, None], laws[:, level]
            open_ = (need & (~found | last_wins) & candidates.there[:, level, index])[:, None]
            against = {"rest": rest, "p": p, "first": first}[tested]
            ratio = against.gather(1, token) / torch.where(open_, q.gather(1, token), 1)
            kept = noise.accept(ratio.clamp(max=1), Key("accept", at, index=index + (index > 0)), open_) & open_
            digit, found = torch.where(kept[:, 0], index, digit), found | kept[:, 0]
            rest = torch.where(open_ & ~kept, residual(rest, q), rest)
            first = residual(p, candidates.q[0][:, level])
        return Level(digit, found, {"rest": rest, "p": p, "first": first}[corrected])

    return lambda patch: patch(Siblings, "level", call)


p_not_updated = _level(tested="p", corrected="p")
siblings_tested_independently = _level(tested="p")
correction_from_the_first_residual = _level(corrected="first")
last_accepted_sibling_wins = _level(last_wins=True)
same_test_written_again = _level()


# --- the way through the tree ------------------------------------------------------------------------------------


def _columns(column: Callable[[Siblings, int, Tensor, int], Tensor]) -> Plant:
    """A plant: the node of a way is looked for in another column."""
    return lambda patch: patch(Siblings, "_column", column)


_column = Siblings._column
main_path_law_beside_it = _columns(lambda self, level, index, main: torch.full_like(index, level))
cousin_read_for_sibling = _columns(lambda self, level, index, main: _column(self, level, index ^ (level > 1), main))


def side_nodes_backwards(patch: Patch) -> None:
    """Twin: the side nodes of a tree with one level stand in another order, and are looked for there."""
    grow = Siblings.grow

    def grown(self: Siblings, noise: Any, window: Any, last: Tensor) -> Nodes:
        nodes = grow(self, noise, window, last)
        turned = torch.cat([nodes.tokens[:, : nodes.main], nodes.tokens[:, nodes.main :].flip(1)], 1)
        return replace(nodes, tokens=torch.where(window.board.tree[:, None], turned, nodes.tokens))

    def column(self: Siblings, level: int, index: Tensor, main: int) -> Tensor:
        there = _column(self, level, index, main)
        return torch.where(index > 0, 2 * main + self.side - 1 - there, there)

    patch(Siblings, "grow", grown)
    _columns(column)(patch)


def longest_row_wins(patch: Patch) -> None:
    """Siblings are tested even if the draft passed, and the longest accepted row is taken: ties to the draft.

    As in the released sampler of SJD-PAC; for two children.
    """
    walk, level = Siblings.walk, Siblings.level
    passed: list[Tensor] = []

    class Second(Siblings):
        """The walk of rows whose draft passed, had it not."""

        def level(self, noise: Any, law: Tensor, at: Tensor, candidates: Candidates, depth: int, need: Tensor) -> Level:
            """The usual test, with coins of its own."""
            if depth == 0:
                need, law = need & passed[-1], residual(law, candidates.q[0][:, 0])
                candidates = candidates._replace(there=candidates.there & (torch.arange(2) == 1))
            return level(self, cast("Noise", _OtherCoins(noise)), law, at, candidates, depth, need)

    def call(self: Siblings, noise: Any, laws: Tensor, window: Any, nodes: Nodes) -> Walk:
        again = laws.clone()
        one = walk(self, noise, laws, window, nodes)
        assert one.way is not None
        assert nodes.candidates is not None
        passed.append(one.way.accepted > 0)
        passed[-1] &= one.way.token[:, 0] == nodes.candidates.token[:, 0, 0]
        two = walk(Second(self.children, self.depth), noise, again, window, nodes)
        assert two.way is not None
        longer = two.way.accepted > one.way.accepted

        def pick(a: Tensor, b: Tensor) -> Tensor:
            return torch.where(longer.view(-1, *[1] * (a.dim() - 1)), a, b)

        assert one.path is not None
        assert two.path is not None
        way = Way(*map(pick, two.way, one.way))
        return Walk(pick(two.p, one.p), one.tested, pick(two.path, one.path), way)

    patch(Siblings, "walk", call)


class _OtherCoins:
    """Noise whose coins are others than those already thrown in this pass."""

    def __init__(self, noise: Any) -> None:
        self._noise = noise

    def accept(self, prob: Tensor, key: Key, need: Tensor) -> Tensor:
        """Fifty further on."""
        thrown: Tensor = self._noise.accept(prob, key._replace(index=key.index + 50), need)
        return thrown


def path_kept_as_a_chain(patch: Patch) -> None:
    """The cache keeps the first columns, whatever was accepted."""
    walk = Siblings.walk

    def call(self: Siblings, *arguments: Any, **named: Any) -> Walk:
        walked = walk(self, *arguments, **named)
        assert walked.path is not None
        return replace(walked, path=torch.arange(walked.path.shape[1]).expand_as(walked.path))

    patch(Siblings, "walk", call)


def tree_if_the_second_draft_is_zero(patch: Patch) -> None:
    """Whether a row has a tree depends on the draft at its second slot."""
    _tree_only(patch, lambda window: window.board.tokens.gather(1, 1 + window.board.committed[:, None])[:, 0] == 0)


def tree_at_even_positions(patch: Patch) -> None:
    """Twin: whether a row has a tree depends on how far it is."""
    _tree_only(patch, lambda window: window.position[:, 0] % 2 == 0)


def _tree_only(patch: Patch, condition: Callable[[Any], Tensor]) -> None:
    grow = Siblings.grow

    def call(self: Siblings, noise: Any, window: Any, last: Tensor) -> Nodes:
        board = window.board
        board.tree = board.tree & condition(window)
        fresh = look(board, window.position.shape[1], self.side)
        window.live, window.drafted, window.token = fresh.live, fresh.drafted, fresh.token
        return grow(self, noise, window, last)

    patch(Siblings, "grow", call)
