"""How a claim of a published table is judged: intervals and goals in, a status out."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.bench.stats import Interval
from specbench.bench.tables import Claim, Published
from specbench.bench.tables_judge import (
    DIFFERS,
    HOLDS,
    REPRODUCED,
    UNRESOLVED,
    pairs_of,
    reproduces,
    verdict,
    worst,
)


@pytest.mark.parametrize(
    ("kind", "tolerance", "low", "high", "goal", "status"),
    [
        ("greater", 0, 1.1, 1.4, 1, HOLDS),
        ("greater", 0, 0.9, 1.4, 1, UNRESOLVED),
        ("greater", 0, 0.5, 0.9, 1, DIFFERS),
        ("flat", 0.1, 0.95, 1.05, 1, HOLDS),
        ("flat", 0.1, 0.95, 1.2, 1, UNRESOLVED),
        ("flat", 0.1, 1.2, 1.3, 1, DIFFERS),
        ("about", 0.1, 1.75, 1.85, 1.8, HOLDS),
        ("about", 0.1, 1.5, 1.9, 1.8, UNRESOLVED),
        ("about", 0.1, 1.2, 1.5, 1.8, DIFFERS),
        ("about", 0.1, 1.75, 1.85, None, UNRESOLVED),
        ("same", 0.1, -0.05, 0.05, 1, HOLDS),
        ("same", 0.1, -0.2, 0.05, 1, UNRESOLVED),
        ("same", 0.1, 0.15, 0.3, 1, DIFFERS),
        ("greater", 0, float("nan"), float("nan"), 1, UNRESOLVED),
    ],
)
def test_the_status_of_a_pair(kind: str, tolerance: float, low: float, high: float, goal: Any, status: str) -> None:
    claim = Claim(kind, "nfe_ratio", ("a", "b"), "", tolerance)
    assert verdict(claim, Interval((low + high) / 2, low, high), goal) == status
    assert verdict(claim, None, goal) == UNRESOLVED


def test_accuracies_are_ordered_by_the_sign_of_their_difference() -> None:
    claim = Claim("greater", "accuracy", ("a", "b"), "")
    assert verdict(claim, Interval(0.2, 0.1, 0.3), 0.0) == HOLDS
    assert verdict(claim, Interval(0.0, -0.1, 0.1), 0.0) == UNRESOLVED
    assert verdict(claim, Interval(-0.2, -0.3, -0.1), 0.0) == DIFFERS


def test_a_conjunction_is_as_good_as_its_worst_part() -> None:
    assert worst([HOLDS, HOLDS]) == HOLDS
    assert worst([HOLDS, UNRESOLVED]) == UNRESOLVED
    assert worst([UNRESOLVED, DIFFERS]) == DIFFERS


def test_which_rows_a_claim_compares() -> None:
    rows = ("a", "b", "c")
    assert pairs_of(Claim("monotone", "nfe_ratio", rows, "")) == [("b", "a"), ("c", "b")]
    assert pairs_of(Claim("best", "nfe_ratio", rows, "")) == [("a", "b"), ("a", "c")]
    assert pairs_of(Claim("flat", "nfe_ratio", rows, "")) == [("c", "a")]
    assert pairs_of(Claim("greater", "nfe_ratio", ("a", "b"), "")) == [("a", "b")]


def test_what_reproduces_on_the_papers_own_model() -> None:
    two = Published(2.0, "2.00", "A", "")
    assert reproduces(Interval(2.1, 2.0, 2.2), two, 0.0) == REPRODUCED
    assert reproduces(Interval(2.2, 2.1, 2.3), two, 0.1) == REPRODUCED
    assert reproduces(Interval(3.0, 2.9, 3.1), two, 0.1) == DIFFERS
    assert reproduces(Interval(3.0, 1.0, 9.0), two, 0.1) == UNRESOLVED
    assert reproduces(Interval(3.0, float("nan"), float("nan")), two, 0.1) == UNRESOLVED
    assert reproduces(Interval(2.0, 1.9, 2.1), None, 0.1) is None
