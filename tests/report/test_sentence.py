from __future__ import annotations

from specbench.report.sentence import cost_sentence
from tests.report.documents import cell, document, ratio


def test_the_sentence_says_the_measured_numbers():
    text = cost_sentence(document())
    assert text is not None
    for part in ("64 tokens costs 4.70 single passes", "16 tokens 1.60", "scd at window 64 makes 4.10x fewer passes"):
        assert part in text
    assert "latency ratio is 0.82x (19% of its time goes into sampling)" in text
    assert "flat" in text
    assert "3.55x" in text
    assert text.endswith("fastest here is sjd at window 16 (1.40x).")


def test_the_fastest_is_by_latency_and_never_by_passes():
    doc = document(
        cell("ar", 1),
        cell("scd", 64, nfe_ratio=ratio(5.0), latency_ratio=ratio(0.5)),
        cell("sjd", 16, nfe_ratio=ratio(2.0), latency_ratio=ratio(0.9)),
    )
    assert cost_sentence(doc).endswith("fastest here is sjd at window 16 (0.90x: plain AR is faster still).")


def test_at_the_widest_window_it_follows_the_method_with_the_fewest_passes():
    doc = document(cell("sjd", 64, nfe_ratio=ratio(2.2)), cell("scd", 64, nfe_ratio=ratio(4.1)))
    assert "scd at window 64 makes 4.10x" in cost_sentence(doc)


def test_nothing_measured_is_nothing_said():
    assert cost_sentence(document(cost_curve=None)) is None
    assert cost_sentence(document(cell("ar", 1))) is None
    assert cost_sentence(document(cell("scd", 64, latency_ratio=None))) is None
    assert cost_sentence({"cells": []}) is None


def test_a_width_that_was_not_timed_gets_no_invented_number():
    text = cost_sentence(document(cost_curve={"windows": [1, 16], "seconds": [1, 2], "ratio": [1.0, 2.0]}))
    assert "64 tokens was not timed" in text


def test_without_phase_times_the_share_of_sampling_is_left_out():
    assert "sampling" not in cost_sentence(document(cell("scd", 64, timing=None)))
