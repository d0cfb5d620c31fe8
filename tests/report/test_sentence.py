from __future__ import annotations

from specbench.report.sentence import cost_sentences
from tests.report.documents import cell, document, ratio


def cost_sentence(doc):
    sentences = cost_sentences(doc)
    assert len(sentences) < 2
    return sentences[0] if sentences else None


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


def test_a_method_without_a_window_is_named_by_its_widest_pass():
    blocks = cell("ssd", None, effective={"window": 16}, nfe_ratio=ratio(4.9), latency_ratio=ratio(1.6))
    text = cost_sentence(document(cell("ar", 1), blocks))
    assert "16 tokens costs 1.60 single passes" in text
    assert "ssd (up to 16 tokens a pass) makes 4.90x" in text
    assert "window" not in text


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


def test_each_group_gets_the_sentence_of_its_own_curve():
    def group(top_k, ratio, here=True):
        curve = {"windows": [1, 16], "seconds": [1, ratio], "ratio": [1.0, ratio], "here": here}
        return {"model": "mini", "sampling": {"top_k": top_k, "top_p": 1.0}, "cost_curve": curve}

    slow, fast = cell("scd", 16, group=0, latency_ratio=ratio(0.7)), cell("sjd", 16, group=1, latency_ratio=ratio(1.9))
    doc = document(slow, fast, groups=[group(10, 5.0), group(50, 1.25, here=False)])
    first, second = cost_sentences(doc)
    assert first.startswith("sampling.top_k=10: On this machine a pass over 16 tokens costs 5.00 ")
    assert first.endswith("fastest here is scd at window 16 (0.70x: plain AR is faster still).")
    assert second.startswith("sampling.top_k=50: Where this was timed")
    assert "1.25 single passes" in second
    assert "fastest there is sjd at window 16 (1.90x)" in second
    assert "this machine" not in second


def test_a_curve_of_unknown_origin_is_not_of_this_machine():
    text = cost_sentence(document(cost_curve={"windows": [1, 64], "seconds": [1, 2], "ratio": [1.0, 2.0]}))
    assert "this machine" not in text
    assert "fastest there is" in text
