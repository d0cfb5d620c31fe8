"""Defects planted in production functions, one small function each, and the harmless twins of some.

Knows: what has gone wrong in released code and prototypes, and which production function to replace for it.
Refuses to know: whether a defect is noticed.

Each plant takes ``patch(owner, name, replacement)``; the replacement lives until the experiment is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specbench.decoding import accept, fill, loop, redraft
from specbench.decoding.accept import Equality, Strict, Verdict
from specbench.decoding.board import Board, Window
from specbench.decoding.fill import Uniform
from specbench.decoding.interfaces import Key
from specbench.decoding.laws import law_of, residual
from specbench.decoding.redraft import Independent, Maximal
from specbench.decoding.trace import Trace
from specbench.verify.tabular import TabularCanvas

Patch = Callable[[Any, str, Any], None]
Plant = Callable[[Patch], None]
Law = Callable[[dict[str, Any]], Tensor]

# --- which law is recorded ---------------------------------------------------------------------------------------


def stale_law_of_kept_drafts(patch: Patch) -> None:
    """A draft that the coupling keeps goes on with its old law."""
    couple = Maximal.coupled

    def call(self: Maximal, noise: Any, law: Tensor, window: Window, need: Tensor) -> Tensor:
        drawn = couple(self, noise, law, window, need)
        window.board.unrecorded = need & window.drafted & (drawn == window.token)  # type: ignore[attr-defined]
        return drawn

    patch(Maximal, "coupled", call)
    _skip_unrecorded(patch)


def no_law_of_committed_slots(patch: Patch) -> None:
    """Twin: nobody reads the law of a committed slot again (unless a fill does)."""
    judge = Strict.__call__

    def call(self: Strict, noise: Any, p: Tensor, law: Tensor, window: Window, redraft: Any) -> Verdict:
        verdict = judge(self, noise, p, law, window, redraft)
        window.board.unrecorded = window.slot <= verdict.accepted[:, None]  # type: ignore[attr-defined]
        return verdict

    patch(Strict, "__call__", call)
    _skip_unrecorded(patch)


def _skip_unrecorded(patch: Patch) -> None:
    put = Board.put_laws

    def put_laws(self: Any, position: Tensor, laws: Tensor, where: Tensor) -> None:
        skip, self.unrecorded = getattr(self, "unrecorded", None), None
        put(self, position, laws, where if skip is None else where & ~skip)

    patch(Board, "put_laws", put_laws)


def law_of_the_slot_before(patch: Patch) -> None:
    """Laws are recorded one position too late."""
    put = Board.put_laws
    patch(Board, "put_laws", lambda self, at, laws, where: put(self, at, laws.roll(1, 1), where))


def redraft_from_the_right_neighbour(patch: Patch) -> None:
    """Drafts are drawn from a law that was computed under the slot's own old token (and recorded as it is)."""
    judge, put, shifted = Strict.__call__, Board.put_laws, {}

    def call(self: Strict, noise: Any, p: Tensor, law: Tensor, window: Window, redraft: Any) -> Verdict:
        last = p[:, -1:] if window.has_free else p[:, :0]
        drafted = p[:, : p.shape[1] - last.shape[1]]
        law = torch.cat([p[:, 1:][:, : drafted.shape[1]], p[:, -1:]], 1)[:, : p.shape[1]]
        shifted[id(p)] = law
        return judge(self, noise, p, law, window, redraft)

    patch(Strict, "__call__", call)
    patch(Board, "put_laws", lambda self, at, laws, where: put(self, at, shifted.pop(id(laws), laws), where))


# --- drawn from one law, tested with another ---------------------------------------------------------------------


def _draws_and_records(drawn: Law | None, recorded: Law | None) -> Plant:
    """A plant: open drafts are drawn from one law and recorded with another; None stands for the law that decides."""

    def plant(patch: Patch) -> None:
        put = Board.put_laws
        seen: dict[str, Any] = {}

        def law(logits: Tensor, sampling: Any) -> Tensor:
            p = law_of(logits, sampling)
            seen.update(p=p, raw=law_of(logits, replace(sampling, top_k=None)))
            return p

        def call(self: Independent, noise: Any, law: Tensor, window: Window, need: Tensor) -> Tensor:
            source = law if drawn is None else drawn(seen)
            tokens = noise.draw(source, Key("draft", window.position), need & window.drafted)
            seen["free"] = int(window.has_free)
            return redraft._with_free(noise, law, window, need, tokens)

        def put_laws(self: Board, position: Tensor, laws: Tensor, where: Tensor) -> None:
            if recorded is not None and laws is seen.get("p"):
                drafts = laws.shape[1] - seen["free"]
                laws = torch.cat([recorded(seen)[:, :drafts], laws[:, drafts:]], 1)
            put(self, position, laws, where)

        patch(loop, "law_of", law)
        patch(Independent, "__call__", call)
        patch(Board, "put_laws", put_laws)

    return plant


def _raw(seen: dict[str, Any]) -> Tensor:
    return seen["raw"]


def _clamped(seen: dict[str, Any]) -> Tensor:
    return seen["p"].clamp(min=1e-300)  # a draft that the filter excludes is refused, where 0 / 0 would give it away


def _half(seen: dict[str, Any]) -> Tensor:
    rounded = seen["p"].to(torch.bfloat16).to(seen["p"].dtype)
    return rounded / rounded.sum(-1, keepdim=True)


filtered_drafts_raw_law = _draws_and_records(None, _raw)
raw_drafts_filtered_law = _draws_and_records(_raw, _clamped)
raw_drafts_raw_law = _draws_and_records(_raw, _raw)
half_precision_drafts = _draws_and_records(_half, None)
half_precision_drafts_and_law = _draws_and_records(_half, _half)

# --- fills -------------------------------------------------------------------------------------------------------


def copied_drafts_uniform_law(patch: Patch) -> None:
    """A copied or one-hot token is tested as if it had been drawn uniformly."""
    patch(fill, "_points", lambda tokens, where, like: like)


def softened_point_masses(patch: Patch) -> None:
    """A uniformly drawn token is recorded as half its point mass, half uniform."""
    points = fill._points
    patch(fill, "_points", lambda tokens, where, like: (points(tokens, where, like) + like) / 2)


def one_fill_token_for_all(patch: Patch) -> None:
    """One uniform draw fills every new slot, each with the uniform law."""
    _fill_all_with_one_token(patch, lambda tokens, fresh, law: law)


def one_fill_token_for_all_recorded_as_copied(patch: Patch) -> None:
    """Twin: behind the first slot the token is known already, and a point mass says so."""

    def points(tokens: Tensor, fresh: Tensor, law: Tensor) -> Tensor:
        return torch.cat([law[:, :1], fill._points(tokens, fresh, law)[:, 1:]], 1)

    _fill_all_with_one_token(patch, points)


def _fill_all_with_one_token(patch: Patch, recorded: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    def call(
        self: Uniform, noise: Any, board: Board, position: Tensor, fresh: Tensor, known: Tensor, in_pass: int
    ) -> None:
        law = fill._uniform(board, position)
        token = noise.draw(law[:, :1], Key("fill", position[:, :1]), fresh[:, :1])
        tokens = token.expand_as(position)
        board.put_tokens(position, tokens, fresh, in_pass)
        board.put_laws(position, recorded(tokens, fresh, law), fresh)

    patch(Uniform, "__call__", call)


# --- residuals and acceptance ------------------------------------------------------------------------------------


def residual_without_clamp(patch: Patch) -> None:
    """``p - q`` is used as it is."""
    patch(accept, "residual", lambda p, q: (p - q) / (p - q).clamp(min=1e-300).sum(-1, keepdim=True))


def residual_absolute(patch: Patch) -> None:
    """``|p - q|`` instead of its positive part."""
    patch(accept, "residual", lambda p, q: _normalised((p - q).abs(), p))


def residual_is_p(patch: Patch) -> None:
    """A refused draft is replaced by a draw from p."""
    patch(accept, "residual", lambda p, q: p)


def redraft_residual_is_p(patch: Patch) -> None:
    """A redraft keeps the draft if a coin says so and draws from p otherwise: conditioned on acceptance."""
    patch(redraft, "residual", lambda p, q: p)


def residual_of_nothing_is_uniform(patch: Patch) -> None:
    """Twin: where p = q nothing is ever refused, so any law may stand there."""

    def uniform_instead(p: Tensor, q: Tensor) -> Tensor:
        empty = (p - q).clamp(min=0).sum(-1, keepdim=True) <= 0
        return torch.where(empty, torch.full_like(p, 1 / p.shape[-1]), residual(p, q))

    patch(accept, "residual", uniform_instead)


def accept_all(patch: Patch) -> None:
    """Every draft passes."""
    patch(Window, "q_of_draft", lambda self: torch.full(self.token.shape, 1e-300, dtype=torch.float64))


def mismatch_commits_the_draft(patch: Patch) -> None:
    """Where the draft differs from the draw, the draft is committed."""
    _old_drafts_stay(patch, lambda slot, accepted: slot == accepted)


def no_redraft_behind_a_mismatch(patch: Patch) -> None:
    """Twin: drafts behind the mismatch stay as they are, and the draw alone is committed."""
    _old_drafts_stay(patch, lambda slot, accepted: slot > accepted)


def _old_drafts_stay(patch: Patch, where: Callable[[Tensor, Tensor], Tensor]) -> None:
    judge = Equality.__call__

    def call(self: Equality, noise: Any, p: Tensor, law: Tensor, window: Window, redraft: Any) -> Verdict:
        verdict = judge(self, noise, p, law, window, redraft)
        stays = where(window.slot, verdict.accepted[:, None]) & window.drafted
        return Verdict(verdict.accepted, torch.where(stays, window.token, verdict.tokens))

    patch(Equality, "__call__", call)


def minimum_over_pairs(redrawn: str, old_law: bool = False) -> Plant:
    """A plant: both images of a pair commit the smaller run, and some of what a row puts back is redrawn from p.

    ``redrawn``: ``refused`` keeps the accepted drafts for the next pass (biased: they are those that p liked);
    ``nothing`` keeps them together with the correction, which has law p again; ``everything`` keeps none.
    ``old_law``: what is kept is tested again with the law that it was first drawn from, rather than with p.
    """

    def plant(patch: Patch) -> None:
        judge = Strict.__call__

        def call(self: Strict, noise: Any, p: Tensor, law: Tensor, window: Window, redraft: Any) -> Verdict:
            own, tokens = judge(self, noise, p, law, window, redraft)
            running = torch.where(window.live.any(1), own, window.slot.shape[0])
            least = torch.minimum(own, running.view(-1, 2).amin(1).repeat_interleave(2))
            behind = (window.slot > least[:, None]) & window.drafted
            which = {
                "refused": behind & (window.slot == own[:, None]),
                "everything": behind & (window.slot <= own[:, None]),
            }
            if redrawn in which:
                again = noise.draw(p, Key("child", window.position), which[redrawn])
                tokens = torch.where(which[redrawn], again, tokens)
            if old_law:
                window.board.unrecorded = behind & (window.slot < own[:, None])  # type: ignore[attr-defined]
            return Verdict(least, tokens)

        patch(Strict, "__call__", call)
        if old_law:
            _skip_unrecorded(patch)

    return plant


def _normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    mass = weights.sum(-1, keepdim=True)
    return torch.where(mass > 1e-300, weights / mass.clamp(min=1e-300), otherwise)


# --- cache and counters ------------------------------------------------------------------------------------------


def cache_not_rolled_back(patch: Patch) -> None:
    """Positions that were ever written keep their first token: nothing that was refused leaves the cache."""
    _stale_feed(patch, slice(None))


def correction_never_fed(patch: Patch) -> None:
    """The cache keeps the refused draft where the correction belongs."""
    _stale_feed(patch, slice(0, 1))


def _stale_feed(patch: Patch, columns: slice) -> None:
    forward = TabularCanvas.forward

    def stale(self: Any, tokens: Tensor, *rest: Any) -> Any:
        size = self.target.size
        if not hasattr(self, "written"):
            self.written = torch.full((len(tokens), size), -1)
        at = self.committed[:, None] - 1 + torch.arange(tokens.shape[1])
        inside = (at >= 0) & (at < size)
        old = self.written.gather(1, at.clamp(0, size - 1))
        fed = tokens.clone()
        fed[:, columns] = torch.where(inside & (old >= 0), old, tokens)[:, columns]
        row, column = inside.nonzero(as_tuple=True)
        self.written[row, at[row, column]] = fed[row, column]
        return forward(self, fed, *rest)

    patch(TabularCanvas, "forward", stale)


def rolled_back_by_overwriting(patch: Patch) -> None:
    """Twin: refused tokens stay in the cache until the next pass writes over them."""

    def keep(self: TabularCanvas, n: Tensor) -> None:
        self.committed = self.committed + n
        assert self._fed is not None
        self.cache = self._fed

    patch(TabularCanvas, "keep", keep)


def cache_written_where_row_zero_is(patch: Patch) -> None:
    """One write position for the whole batch."""
    forward = TabularCanvas.forward

    def at_row_zero(self: TabularCanvas, tokens: Tensor, *rest: Any) -> Any:
        own, self.committed = self.committed, self.committed[:1].expand_as(self.committed)
        try:
            return forward(self, tokens, *rest)
        finally:
            self.committed = own

    patch(TabularCanvas, "forward", at_row_zero)


def finished_images_count_passes(patch: Patch) -> None:
    """``nfe`` is the batch's number of passes for every image."""
    patch(Trace, "nfe", property(lambda self: torch.full(self.window.shape[1:], self.batch_passes)))
