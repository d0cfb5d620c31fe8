"""One survivor fails the suite; so does a harmless twin that is caught, and a mutant that merely crashes."""

from dataclasses import replace
from pathlib import Path
from types import FunctionType

import pytest

from specbench.verify import address_plants as addresses
from specbench.verify import mutants as room
from specbench.verify import plants
from specbench.verify.defective_noise import CoinsWithoutPass
from specbench.verify.enumerate import EnumeratingNoise
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


@pytest.mark.parametrize("name", [name for name, (_, twin) in MUTANTS.items() if twin is not None])
def test_a_harmless_twin_is_planted_and_runs(monkeypatch, name):
    """A twin that changes nothing passes whatever the verifier does."""
    twin, calls = MUTANTS[name][1], []

    def counted(function):
        def call(*arguments, **named):
            calls.append(function)
            return function(*arguments, **named)

        return call

    plant = twin.plant
    if plant is not None:
        twin = replace(twin, plant=lambda patch: plant(lambda owner, at, new: patch(owner, at, counted(new))))
    for kind in getattr(twin, "noise", EnumeratingNoise).__mro__:
        if kind is EnumeratingNoise:
            break
        for at, function in list(vars(kind).items()):
            if callable(function) and at != "__init__":
                monkeypatch.setattr(kind, at, counted(function))
    assert twin.run()[0] is False
    assert calls


def test_a_filter_forgotten_in_one_of_two_places_shows_in_the_law():
    """And not only as 0 / 0, which an implementation that clamps would never meet."""
    (result,) = mutants(("drafts raw, law filtered",))
    assert result.total_variation > 1e-3


def meaning(thing):
    """What a function does, where ``str`` would tell one closure's address from another's."""
    if not isinstance(thing, FunctionType):
        return repr(thing)
    held = tuple(meaning(cell.cell_contents) for cell in thing.__closure__ or ())
    code = thing.__code__
    return code.co_code, repr(code.co_names), tuple(map(meaning, code.co_consts)), held


def test_every_mutant_says_something_new():
    said = {}
    for name, (defect, _) in MUTANTS.items():
        where = (repr(getattr(defect, "noise", "")), repr(getattr(defect, "settings", "")))
        said.setdefault((meaning(defect.plant), *where), []).append(name)
    assert not [names for names in said.values() if len(names) > 1]


def test_the_same_plant_made_twice_is_seen_as_one():
    assert meaning(addresses.without("pass")) == meaning(addresses.without("pass"))
    assert meaning(addresses.without("pass")) != meaning(addresses.without("pass", role="draft"))
    assert meaning(addresses.gumbel_rows(lambda _, at: at * 0)) != meaning(addresses.gumbel_rows(lambda _, at: at * 1))


def test_the_documented_number_of_defects_is_theirs():
    page = Path(__file__).parents[2] / "docs" / "verification.md"
    assert f"plants {len(MUTANTS)} defects" in page.read_text()
