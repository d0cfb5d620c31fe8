"""One survivor fails the suite; so does a harmless twin that is caught, and a mutant that merely crashes."""

from dataclasses import replace

import pytest

from specbench.verify import mutants as room
from specbench.verify import plants
from specbench.verify.defective_noise import CoinsWithoutPass
from specbench.verify.exact import BASE, TWICE_REDRAFTED
from specbench.verify.mutants import MUTANTS, SCD, SJD, Experiment, mutants, planted


@pytest.mark.parametrize("name", MUTANTS)
def test_the_defect_is_caught_and_its_twin_is_not(name):
    (result,) = mutants((name,))
    assert result.passed, result.detail


@pytest.mark.parametrize("seed", range(3))
def test_accept_numbers_shared_by_passes_do_harm_only_where_a_slot_is_redrafted_twice(seed):
    """The index is kept, as in production: with a window of three the defect has no effect at all."""
    for case, harmful in ((BASE, False), (TWICE_REDRAFTED, True)):
        caught, distance, _ = Experiment(SCD, noise=CoinsWithoutPass, case=replace(case, seed=seed)).run()
        assert caught is harmful
        assert distance > 1e-3 if harmful else distance < 1e-14


def test_a_survivor_fails(monkeypatch):
    monkeypatch.setitem(MUTANTS, "nothing planted", (Experiment(SJD), None))
    (result,) = mutants(("nothing planted",))
    assert result.passed is False and result.detail.startswith("SURVIVED")


def test_a_twin_that_is_caught_fails(monkeypatch):
    pair = (Experiment(SJD, plants.accept_all), Experiment(SJD, plants.residual_is_p))
    monkeypatch.setitem(MUTANTS, "harmful twin", pair)
    (result,) = mutants(("harmful twin",))
    assert result.passed is False and "twin was caught" in result.detail


def test_a_crash_does_not_count(monkeypatch):
    def crash(patch):
        patch(room.plants.accept, "residual", lambda p, q: 1 / 0)

    monkeypatch.setitem(MUTANTS, "crash", (Experiment(SJD, crash), None))
    (result,) = mutants(("crash",))
    assert result.passed is False and result.detail.startswith("crashed, which does not count: ZeroDivisionError")


def test_what_was_replaced_is_put_back_even_after_an_error():
    before = plants.accept.residual

    def fails():
        with planted(plants.residual_is_p):
            assert plants.accept.residual is not before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert plants.accept.residual is before


def test_every_mutant_says_something_new():
    plants_used = [
        (str(defect.plant), str(getattr(defect, "noise", "")), str(getattr(defect, "settings", "")))
        for defect, _ in MUTANTS.values()
    ]
    assert len(set(plants_used)) == len(MUTANTS) >= 35
