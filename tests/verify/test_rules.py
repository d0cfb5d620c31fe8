"""When a draft is exact: each rule that methods are built on, beside a counterexample that is not.

A draft at j may be tested with q iff it has law q given all that happened before j. What follows varies what q, the
existence of the slot, and the redraft may look at.
"""

from dataclasses import replace

import pytest
import torch

from specbench.decoding.accept import Strict
from specbench.decoding.board import Board
from specbench.verify.exact import BASE, LAW_TOLERANCE, measure
from specbench.verify.mutants import GS, SCD, SJD, planted

COUPLINGS = {"independent": SJD, "maximal": SCD, "gumbel": GS}


def distance(settings, plant, case=BASE):
    with planted(plant):
        return max(measure({"settings": settings}, replace(case, seed=seed)).total_variation for seed in range(2))


def redraft_from(make_law, recorded=True):
    """A plant: open drafts get their next token from ``make_law(p, window)``, and that law is recorded (or p is)."""

    def plant(patch):
        judge, put, made = Strict.__call__, Board.put_laws, {}

        def call(self, noise, p, law, window, redraft):
            drafts = p.shape[1] - window.has_free
            made[id(p)] = torch.cat([make_law(p, window)[:, :drafts], p[:, drafts:]], 1)
            return judge(self, noise, p, made[id(p)], window, redraft)

        def put_laws(self, at, laws, where):
            law = made.pop(id(laws), laws)
            put(self, at, law if recorded else laws, where)

        patch(Strict, "__call__", call)
        patch(Board, "put_laws", put_laws)

    return plant


def predicted(p, window):
    """One step further along the change of the slot's law: 2p - (its previous law), made a law."""
    ahead = (2 * p - window.q()).clamp(min=0)
    return ahead / ahead.sum(-1, keepdim=True)


def slot_exists_if(condition):
    """A plant: a draft is tested only while ``condition(window)`` [B, w] holds; behind that the window is cut."""

    def plant(patch):
        judge = Strict.__call__

        def call(self, noise, p, law, window, redraft):
            there = window.drafted & condition(window).long().cumprod(1).bool()
            cut = replace(window, drafted=there)
            return judge(self, noise, p, law, cut, lambda n, q, _, need: redraft(n, q, window, need))

        patch(Strict, "__call__", call)

    return plant


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_law_predicted_from_the_slots_earlier_laws_is_exact_if_it_is_the_one_recorded(coupling):
    assert distance(COUPLINGS[coupling], redraft_from(predicted)) <= LAW_TOLERANCE


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_testing_with_p_what_was_drawn_from_the_prediction_is_not(coupling):
    assert distance(COUPLINGS[coupling], redraft_from(predicted, recorded=False)) > 1e-4


def by_own_token(window):
    return window.q_of_draft() > 0.3


def by_own_law(window):
    return window.q().amax(-1) > 0.4


def by_left_token(window):
    return torch.cat([torch.ones_like(window.token[:, :1]), window.token[:, :-1]], 1) != 0


@pytest.mark.parametrize("condition", [by_own_law, by_left_token])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_whether_a_slot_exists_may_depend_on_its_law_and_on_tokens_before_it(coupling, condition):
    assert distance(COUPLINGS[coupling], slot_exists_if(condition)) <= LAW_TOLERANCE


@pytest.mark.parametrize("coupling", ["independent", "gumbel"])
def test_whether_a_slot_exists_may_not_depend_on_its_own_token(coupling):
    assert distance(COUPLINGS[coupling], slot_exists_if(by_own_token)) > 1e-3


def test_unless_the_dropped_token_is_carried_over_by_the_maximal_coupling():
    """Which is the acceptance test again under another name, so that nothing was dropped."""
    assert distance(SCD, slot_exists_if(by_own_token)) <= LAW_TOLERANCE


def right_neighbour(p, window):
    return torch.cat([p[:, 1:], p[:, -1:]], 1)


def test_a_law_that_saw_the_slots_own_old_token_is_harmless_only_without_a_coupling():
    plant = redraft_from(right_neighbour)
    assert distance(SJD, plant) <= LAW_TOLERANCE
    assert distance(SCD, plant) > 1e-3
    assert distance(GS, plant) > 1e-4


def test_a_law_mixed_from_any_earlier_pass_is_exact():
    """The ring keeps laws of other prefixes; mixing them in changes speed, not the law."""
    assert distance(SCD, redraft_from(lambda p, window: (p + window.q()) / 2)) <= LAW_TOLERANCE


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_redraft_may_be_anything_that_has_its_recorded_law(coupling):
    uniform = redraft_from(lambda p, window: torch.full_like(p, 1 / p.shape[-1]))
    assert distance(COUPLINGS[coupling], uniform) <= LAW_TOLERANCE
