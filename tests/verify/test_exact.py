"""Every method has exactly the law of AR, with every fill; its expected passes are golden numbers."""

import json
from pathlib import Path

import pytest

from specbench.errors import UsageError
from specbench.verify import KINDS, verify
from specbench.verify.exact import (
    BASE,
    FILL_CASE,
    LAW_TOLERANCE,
    TWICE_REDRAFTED,
    Case,
    cases_for,
    describe,
    exact,
    measure,
)
from specbench.verify.mutants import planted
from specbench.verify.plants import residual_is_p
from tests.verify.methods import LOSSY, SETTINGS, method

GOLDEN = json.loads((Path(__file__).parent / "golden_nfe.json").read_text())
FILLS = ("onehot", "left", "above", "left_law", "above_law")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_law_is_that_of_ar(name):
    (result,) = verify([method(name)], ["exact"])
    assert result["passed"] is True, result["detail"]
    assert result["total_variation"] <= LAW_TOLERANCE
    assert result["kind"] == "exact" and result["p_value"] is None


MIXED = [("independent", "replay"), ("maximal", "replay"), ("maximal", "fresh"), ("gumbel", "fresh")]
"""Redraft and acceptance that no named method combines, and that are lossless all the same."""


@pytest.mark.parametrize("name", ["jacobi", "sjd", "scd", "scd_gs", "replay"])
@pytest.mark.parametrize("fill", FILLS)
def test_every_fill_is_exact(name, fill):
    for case in (Case(vocab=2, size=6, window=4), FILL_CASE if name not in ("jacobi", "replay") else BASE):
        measured = measure(method(name, fill=fill), case)
        assert measured.total_variation <= LAW_TOLERANCE
        if name == "replay":
            assert measured.off_path == 0


@pytest.mark.parametrize("case", [Case(vocab=2, window=4), Case(size=3)], ids=describe)
@pytest.mark.parametrize(("redraft", "accept"), MIXED)
def test_any_redraft_is_exact_under_any_equality_rule(redraft, accept, case):
    measured = measure(method("jacobi", redraft=redraft, accept=accept), case)
    assert measured.total_variation <= LAW_TOLERANCE
    assert accept == "fresh" or measured.off_path == 0


@pytest.mark.parametrize(
    "parts",
    [
        {"redraft": "independent", "predict": "growth", "history": 1, "growth": 1},
        {"redraft": "independent", "predict": "context"},
        {"redraft": "maximal", "alpha": 0.5},
    ],
    ids=str,
)
def test_a_fresh_test_shares_no_number_with_the_redraft(parts):
    """Both draw anew at one slot in one pass: from different laws, and hence not one draw for both."""
    measured = measure(method("jacobi", accept="fresh", **parts), Case(vocab=2, window=3))
    assert measured.total_variation <= LAW_TOLERANCE


def test_couplings_are_judged_where_a_slot_is_redrafted_twice():
    for name in SETTINGS:
        assert (TWICE_REDRAFTED in cases_for(method(name))) is (name not in ("jacobi", "replay"))


def test_fills_differ_where_they_should():
    """Equal expected passes would mean that one fill is another in disguise."""
    passes = {fill: measure(method("scd", fill=fill), FILL_CASE).enumeration.nfe[0] for fill in ("uniform", *FILLS)}
    assert len({round(nfe, 9) for nfe in passes.values()}) == 6, passes


@pytest.mark.parametrize("name", [*SETTINGS, *LOSSY])
def test_expected_passes_are_golden(name):
    for seed, expected in enumerate(GOLDEN[name]):
        found = measure(method(name), Case(seed=seed)).enumeration.nfe[0]
        assert found == pytest.approx(expected, abs=1e-12), f"{name}, seed {seed}"


def test_only_ar_and_replay_stay_on_the_path_of_ar():
    """The region check tells a method with AR's tokens from one with AR's law."""
    settings = method("scd_gs")["settings"]
    claims = {"settings": {**settings, "accept": "replay"}}
    assert measure(claims, BASE).off_path == 0
    with planted(_strict_under_the_name_of_replay):
        assert measure(claims, BASE).off_path > 0.01


def _strict_under_the_name_of_replay(patch):
    from specbench.decoding.accept import Equality, Strict

    strict = Strict()
    patch(Equality, "__call__", lambda self, *arguments: strict(*arguments))


def test_a_wrong_method_fails_and_a_lossy_one_only_reports():
    with planted(residual_is_p):
        claims = exact(method("sjd"), (BASE,))
        admits = exact({**method("sjd"), "lossless": False}, (BASE,))
    assert claims.passed is False and admits.passed is None
    assert claims.total_variation == admits.total_variation > 0.01
    assert "worst at" in claims.detail


def test_a_broken_promise_fails_with_the_table_it_was_broken_on():
    from specbench.verify.plants import residual_without_clamp

    with planted(residual_without_clamp):
        (result,) = verify([method("sjd")])
    assert result["passed"] is False and result["total_variation"] is None
    assert "V=3 N=4 W=3 seed 0" in result["detail"] and "negative" in result["detail"]


def test_unknown_kinds_are_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'exact'"):
        verify([method("sjd")], ["exakt"])
    with pytest.raises(UsageError, match="no method"):
        verify([], ["exact"])
    assert KINDS == ("exact", "statistical", "mutants", "conformance")
