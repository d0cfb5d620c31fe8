"""The tree of siblings has exactly the law of AR, with every redraft, fill and prediction. Golden numbers of passes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specbench.errors import UsageError
from specbench.verify.conformance import conformance
from specbench.verify.exact import LAW_TOLERANCE, TREE, TREE_CASES, Case, cases_for, describe, measure
from specbench.verify.method import wide, windows
from specbench.verify.mutants import planted
from specbench.verify.statistical import statistical
from specbench.verify.tree_plants import siblings_tested_independently

SJD_PAC = {"redraft": "maximal", "fill": "uniform", "tree": "siblings", "children": 4, "depth": 3}
BEST = {"predict": "context", "history": 5, "decay": 0.6, "sharpness": 11.0, "depth": 2}
GOLDEN = json.loads((Path(__file__).parent / "golden_nfe.json").read_text())
SMALL = Case(window=3, tree=(2, 2))
DEEP = Case(vocab=2, size=5, window=8, tree=(2, 3))


def method(**changes):
    return {"name": "sjd_pac", "lossless": True, "settings": {**SJD_PAC, **changes}}


@pytest.mark.parametrize("case", TREE_CASES, ids=describe)
def test_the_law_is_that_of_ar(case):
    assert measure(method(), case).total_variation <= LAW_TOLERANCE


@pytest.mark.parametrize("case", [SMALL, DEEP], ids=describe)
@pytest.mark.parametrize(
    "changes",
    [
        {"redraft": "independent"},
        {"redraft": "gumbel"},
        {"redraft": "gumbel", "alpha": 0.5},
        {"fill": "left_law"},
        {"fill": "onehot"},
        {"redraft": "gumbel", "fill": "above_law"},
        {"predict": "growth", "growth": 1, "history": 1, "candidates": 0.7},
        {"predict": "growth", "growth": 1, "history": 1, "candidates": 0.7, "redraft": "gumbel"},
        {"predict": "context"},  # a slot that a tree leaves no room for has no law of that pass
    ],
    ids=str,
)
def test_a_tree_goes_with_every_redraft_fill_and_prediction(changes, case):
    measured = measure(method(**changes), case)
    assert measured.total_variation <= LAW_TOLERANCE
    assert "predict" not in changes or measured.predicted


@pytest.mark.parametrize(("name", "changes", "tree"), [("sjd_pac", {}, (3, 2)), ("best", BEST, (2, 2))])
def test_expected_passes_are_golden(name, changes, tree):
    for seed, expected in enumerate(GOLDEN[name]):
        found = measure(method(**changes), replace(TREE, seed=seed, tree=tree)).enumeration.nfe[0]
        assert found == pytest.approx(expected, abs=1e-12), f"seed {seed}"


def test_tables_have_trees_that_fit_them_whatever_is_configured():
    assert all(case.tree for case in cases_for(method(fill="left_law", predict="growth")))
    with pytest.raises(UsageError, match="at least 21 tokens"):
        measure(method(), Case())


def test_windows_count_the_nodes_beside_the_main_path():
    assert windows(method(), 7) == [1, 21, 22, 23, 24, 25]
    assert wide(method(), 3) == 21
    plain = method(tree="none")
    del plain["settings"]["children"], plain["settings"]["depth"]
    assert windows(plain, 4) == [1, 2, 3, 4] and wide(plain, 3) == 3


def test_the_method_as_configured_conforms():
    result = conformance(method())
    assert result.passed, result.detail


@pytest.mark.slow
def test_the_method_follows_its_law_through_a_real_cache_and_notices_a_defect():
    assert statistical(method()).passed
    with planted(siblings_tested_independently):
        assert statistical(method()).passed is False
