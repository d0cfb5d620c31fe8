from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.bench import metrics
from specbench.bench.cells import Cell, Terms
from specbench.bench.store import Records


def trace(windows: list[int], drafted: list[int], accepted: list[int], committed: list[int]) -> dict[str, Any]:
    tokens = sum(committed)
    per_pass = {"window": windows, "drafted": drafted, "accepted": accepted, "committed": committed}
    return {**per_pass, "fixed_pass": [1] * tokens, "changes": [0] * tokens}


FAST = trace([3, 3, 1], [2, 2, 0], [1, 2, 0], [2, 3, 1])  # 6 tokens in 3 passes
SLOW = trace([3, 3, 3, 2, 1], [2, 2, 2, 1, 0], [0, 1, 0, 0, 0], [1, 2, 1, 1, 1])  # 6 tokens in 5 passes


def records(nfe: dict[tuple[str, int], int]) -> Records:
    terms = Terms("toy", "w", "float64", {}, "p", 0, "scd", {}, (), 3)
    held = Records(Cell(terms, "code", True, "file"), Path("/nowhere"))
    for (prompt, sample), passes in nfe.items():
        held.images[prompt, sample] = {"trace": trace([1] * passes, [0] * passes, [0] * passes, [1] * passes)}
    return held


def timing(session: str, seconds: float, rows: int = 1, **more: Any) -> dict[str, Any]:
    return {"session": session, "prefill": 0.0, "passes": seconds, "sampling": 0.0, "rows": rows, "pixels": 0, **more}


def test_counters_pool_over_images_and_passes() -> None:
    found = metrics.counters([{"trace": FAST}, {"trace": SLOW}])
    assert found["nfe"] == {"mean": 4.0, "total": 8}
    assert found["tokens_per_pass"] == pytest.approx(12 / 8)
    assert found["accept_rate_pooled"] == pytest.approx((3 + 1) / (4 + 7))
    assert found["accept_rate_per_image_mean"] == pytest.approx((3 / 4 + 1 / 7) / 2)
    assert found["accept_rate_at"] == pytest.approx([3 / 6, 1 / 5])
    assert found["accepted_length"]["without_bonus"] == pytest.approx(4 / 6)
    assert found["effective_window"] == 3


def test_counters_without_drafts_are_absent_and_not_zero() -> None:
    found = metrics.counters([{"trace": trace([1] * 4, [0] * 4, [0] * 4, [1] * 4)}])
    assert found["accept_rate_pooled"] is found["accept_rate_at"] is found["accepted_length"] is None


def test_an_nfe_ratio_uses_common_images_only() -> None:
    ar = records({("a", 0): 10, ("b", 0): 10, ("c", 0): 10})
    method = records({("a", 0): 5, ("b", 0): 2, ("d", 0): 1})
    found = metrics.nfe_ratio(ar, method, [("a", 0), ("b", 0), ("c", 0), ("d", 0)])
    assert found is not None
    assert found.value == pytest.approx(20 / 7)
    assert metrics.nfe_ratio(ar, records({("z", 0): 1}), [("a", 0), ("z", 0)]) is None


def test_clocks_are_paired_within_one_process_only() -> None:
    ar, method = records({}), records({})
    ar.timings = {("a", 0): [timing("one", 8), timing("two", 4)], ("b", 0): [timing("one", 8)]}
    method.timings = {("a", 0): [timing("two", 2)], ("b", 0): [timing("two", 1)]}
    pairs = metrics.timed_pairs(ar, method, [("a", 0), ("b", 0)])
    assert list(pairs) == [("a", 0)]
    found = metrics.latency_ratio(pairs)
    assert found is not None
    assert found.value == 2


def test_batches_of_several_images_are_no_latency_but_a_throughput() -> None:
    ar, method = records({}), records({})
    ar.timings = {("a", 0): [timing("one", 8, rows=2, round=0)]}
    shared = timing("one", 4, rows=2, round=0)
    method.timings = {("a", 0): [shared], ("b", 0): [shared]}
    assert metrics.timed_pairs(ar, method, [("a", 0)]) == {}
    assert metrics.throughput(method, [[("a", 0), ("b", 0)]], 2) == pytest.approx(2 / 4)
    assert metrics.throughput(method, [[("a", 0)]], 2) == pytest.approx(2 / 4)  # a limit cut the batch


def test_a_throughput_is_that_of_its_own_batch_size() -> None:
    method = records({})
    two, four = timing("one", 4, rows=2, round=0), timing("two", 2, rows=4, round=0)
    keys = [(name, 0) for name in "abcd"]
    method.timings = {key: [two, four] if key[0] in "ab" else [four] for key in keys}
    assert metrics.throughput(method, [keys], 4) == pytest.approx(4 / 2)
    assert metrics.throughput(method, [keys[:2], keys[2:]], 2) == pytest.approx(2 / 4)


def test_a_flat_curve_keeps_the_sampling_that_was_measured() -> None:
    ar, method = records({("a", 0): 10}), records({("a", 0): 4})
    plain = {"prefill": 0.5, "passes": 4.5, "sampling": 1.0}
    wide = {"prefill": 3.0, "passes": 9.0, "sampling": 2.0}
    found = metrics.latency_ratio_flat(ar, method, {("a", 0): (plain, wide)})
    assert found == pytest.approx((10 * 0.5 + 1) / (4 * 0.5 + 2))


def test_accuracy_reads_the_verdicts_of_the_present_scorer_only() -> None:
    held = records({})
    for prompt, code, correct in (("a", "new", True), ("b", "new", False), ("c", "old", True)):
        verdict = {"family": "counting", "correct": correct, "reason": ""}
        held.scores[prompt, 0, "scenes", code] = {"verdict": verdict}
    found = metrics.accuracy(held, [("a", 0), ("b", 0), ("c", 0)], "scenes", "new")
    assert found is not None
    assert found["value"] == 0.5
    assert set(found["families"]) == {"counting"}
    assert metrics.accuracy(held, [("a", 0)], None, "new") is None
