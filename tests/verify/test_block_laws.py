"""The laws of block decoding by enumeration: what rounds buy, which choices never get there, which are exact."""

from __future__ import annotations

from itertools import pairwise

import pytest

from specbench.decoding.block import Block
from specbench.decoding.correct import Repair
from specbench.decoding.redraft import Gumbel, Independent, Maximal
from specbench.errors import UsageError
from specbench.verify import verify
from specbench.verify.exact import BLOCK, LAW_TOLERANCE, ROW, Case, by_rounds, follows_ar, measure
from specbench.verify.spatial import HiddenTable

EXACT = {"rounds": "exact"}
FIXED = {"rounds": "exact", "redraft": "gumbel", "stop": "fixed_point"}
LONGER = Case(vocab=2, size=5, columns=5)
"""A block of four."""


def method(lossless=False, **settings):
    return {"name": "block", "lossless": lossless, "settings": {"decoder": "block", "correct": "repair", **settings}}


def distance(case, **settings):
    return measure(method(**settings), case).total_variation


def distances(case, rounds, **settings):
    return [distance(case, rounds=r, first_rounds=r, **settings) for r in rounds]


@pytest.mark.parametrize(("case", "length"), [(ROW, 2), (BLOCK, 3), (LONGER, 4)])
@pytest.mark.parametrize("redraft", ["maximal", "gumbel"])
def test_every_round_brings_the_law_nearer_and_as_many_as_tokens_reach_it(case, length, redraft):
    found = distances(case, range(length + 2), redraft=redraft)
    assert all(after < before for before, after in pairwise(found[:length])), found
    assert found[length - 1] > LAW_TOLERANCE >= max(found[length:])
    if length > 2 and redraft == "maximal":  # of these tables; how near a round short of it is depends on the heads
        assert found[length - 1] < 0.05


def test_with_the_law_of_the_heads_more_rounds_do_harm():
    one, two, four = distances(Case(size=3, columns=3), (1, 2, 4), law="head")
    assert one < two < four


def test_likeliest_drafts_level_off():
    found = distances(BLOCK, range(6), draft="argmax")
    assert found[-1] == pytest.approx(found[-2], abs=1e-3) and found[-1] > 0.2
    assert distance(ROW, correct="truncate", draft="argmax") > 0.1


@pytest.mark.parametrize("case", [ROW, BLOCK, Case(vocab=2, size=5, columns=2), Case(columns=1)], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        EXACT,
        {**EXACT, "rows": 3},
        {**EXACT, "rows": 3, "source": "predicted", "commit": "group"},
        {**EXACT, "rows": 0, "bonus": True, "columns": 1},
        {**EXACT, "states": "round", "guide_drafts": False, "filter_drafts": False},
        {**EXACT, "redraft": "gumbel", "draft": "argmax"},
        FIXED,
        {**FIXED, "rows": 2},
        {"correct": "truncate"},
        {"correct": "truncate", "rows": 0},
    ],
    ids=str,
)
def test_lossless_settings_have_the_law_of_ar(settings, case):
    found = measure(method(**settings), case)
    assert found.total_variation <= LAW_TOLERANCE
    assert follows_ar(method(**settings)) is (settings.get("redraft") == "gumbel")
    if follows_ar(method(**settings)):
        assert found.off_path < 1e-15  # the tokens are AR's, one by one


@pytest.mark.parametrize(
    ("redraft", "kept"),
    [(Maximal(), True), (Gumbel(), True), (Independent(), False), (Maximal(alpha=0.5), False), (Gumbel(0.5), False)],
    ids=str,
)
def test_rounds_are_exact_only_if_a_token_of_the_same_law_stays(redraft, kept):
    """Parts that no setting names can be put together all the same, and must not be called lossless."""
    decoder = Block(redraft=redraft, correct=Repair(rounds="exact"))
    found = measure({**method(), "build": lambda window, sampling: decoder}, ROW)
    assert decoder.lossless is (found.total_variation <= LAW_TOLERANCE) is kept


def test_a_fixed_point_is_no_end_for_drafts_that_are_tested():
    assert Block(redraft=Gumbel(), correct=Repair(rounds="exact", stop="fixed_point")).lossless
    assert not Block(redraft=Maximal(), correct=Repair(rounds="exact", stop="fixed_point")).lossless


def test_stopping_at_the_fixed_point_saves_passes():
    dear, cheap = (measure(method(**s), BLOCK).enumeration.nfe[0] for s in ({**EXACT, "redraft": "gumbel"}, FIXED))
    assert cheap < dear - 1


def test_later_rounds_of_a_group_do_what_rounds_do():
    case = Case(vocab=2, size=6, columns=2)
    joint, one, two = (distance(case, rows=2, rounds=1, staged=i) for i in range(3))
    assert two < one < joint


def test_a_further_row_of_a_group_is_right_after_as_many_rounds_of_its_own_as_it_has_tokens():
    case = Case(vocab=2, size=6, columns=2)
    enough, short = (distance(case, rows=2, rounds=2, staged=i) for i in (2, 1))
    assert enough <= LAW_TOLERANCE < short


def test_verify_prints_the_distance_by_rounds_and_passes_the_exact_ones(monkeypatch):
    monkeypatch.setattr("specbench.verify.exact.BLOCK_CASES", (ROW, BLOCK))
    lossy, strict = verify([method(rounds=2), method(lossless=True, **EXACT)])
    assert lossy["passed"] is None and lossy["total_variation"] > 0.01
    assert "by rounds 0: 5.1e-01, 1: 2.3e-01, 2: 3.2e-02, 3: " in lossy["detail"]
    assert strict["passed"] is True and strict["total_variation"] <= LAW_TOLERANCE and "rounds" not in strict["detail"]
    assert by_rounds(method(rows=0, rounds=1)) == by_rounds(method())


@pytest.mark.parametrize("settings", [{}, EXACT, FIXED, {"correct": "truncate"}, {"rows": 0, "bonus": True}], ids=str)
def test_blocks_conform(settings):
    (result,) = verify([method(**settings)], ["conformance"])
    assert result["passed"], result["detail"]


def test_a_method_that_asks_for_more_than_heads_give_is_told_so():
    from specbench.decoding.laws import Sampling
    from specbench.verify.method import decoder_of

    with pytest.raises(UsageError, match="these heads look 5 columns far"):
        decoder_of(method(columns=9), 1, Sampling()).decode(HiddenTable(), ["a"])
