"""Metrics of a trace that was written by hand."""

from __future__ import annotations

import math

import torch

from specbench.decoding.trace import Trace


def by_hand():
    """Two images of 6 tokens, window 4: the first takes 3 passes, the second 5."""
    return Trace(
        window=torch.tensor([[4, 4], [4, 4], [2, 4], [0, 3], [0, 1]]),
        drafted=torch.tensor([[3, 3], [3, 3], [2, 3], [0, 3], [0, 1]]),
        accepted=torch.tensor([[1, 0], [1, 0], [2, 0], [0, 1], [0, 0]]),
        committed=torch.tensor([[2, 1], [2, 1], [2, 1], [0, 2], [0, 1]]),
        fixed_pass=torch.tensor([[1, 1, 1, 2, 2, 3], [1, 2, 3, 3, 4, 5]]),
        changes=torch.tensor([[0, 0, 1, 1, 2, 1], [0, 1, 2, 1, 2, 3]]),
        seconds={"prefill": 0.1, "passes": 0.5, "sampling": 0.2},
    )


def test_passes():
    trace = by_hand()
    assert trace.nfe.tolist() == [3, 5]
    assert trace.batch_passes == 5
    assert trace.steps_with_row_ends.tolist() == [3, 5]
    assert trace.tokens_per_pass == 12 / 8


def test_acceptance():
    trace = by_hand()
    assert trace.accept_rate_pooled == 5 / 21
    assert math.isclose(trace.accept_rate_per_image_mean, (4 / 8 + 1 / 13) / 2, rel_tol=1e-6)
    # draft 0: 8 passes have one, 4 accept it; draft 1: 7 and 1; draft 2: 6 and 0
    assert trace.accept_rate_at == [4 / 8, 1 / 7, 0 / 6]
    assert trace.accepted_length() == 5 / 8
    assert trace.accepted_length(bonus=True) == 12 / 8


def test_a_trace_without_drafts_has_no_rates():
    zero, one = torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1, dtype=torch.int64)
    trace = Trace(one, zero, zero, one, torch.tensor([[1, 2, 3]]), torch.zeros(1, 3, dtype=torch.int64))
    assert math.isnan(trace.accept_rate_pooled)
    assert math.isnan(trace.accept_rate_per_image_mean)
    assert trace.accept_rate_at == []
    assert math.isnan(trace.accepted_length())


def test_a_row_holds_its_own_passes_only():
    assert by_hand().row(0) == {
        "window": [4, 4, 2], "drafted": [3, 3, 2], "accepted": [1, 1, 2], "committed": [2, 2, 2],
        "fixed_pass": [1, 1, 1, 2, 2, 3], "changes": [0, 0, 1, 1, 2, 1],
    }  # fmt: skip
