"""Laws against a plain reading of their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from specbench.decoding.laws import Sampling, entropy, guide, law_of, residual, total_variation
from specbench.errors import UsageError


def reference(logits, temperature=1.0, top_k=None, top_p=None):
    """One row, in Python floats."""
    scores = [x / temperature for x in logits]
    if top_k is not None:
        kth = sorted(scores, reverse=True)[min(top_k, len(scores)) - 1]
        scores = [x if x >= kth else -math.inf for x in scores]
    top = max(scores)
    weights = [math.exp(x - top) for x in scores]
    if top_p is not None:
        total, mass, least = sum(weights), 0.0, math.inf
        for weight in sorted(weights, reverse=True):
            if mass / total >= top_p:
                break
            mass, least = mass + weight, weight
        weights = [w if w >= least else 0.0 for w in weights]
    return torch.tensor([w / sum(weights) for w in weights], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [None, 1, 5, 40, 1000])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.8, 1.0])
def test_law_of_matches_the_definition(temperature, top_k, top_p):
    logits = torch.randn(6, 40, dtype=torch.float64) * 2
    law = law_of(logits, Sampling(temperature, top_k, top_p))
    expected = torch.stack([reference(row.tolist(), temperature, top_k, top_p) for row in logits])
    assert torch.allclose(law, expected, atol=1e-14)


def test_ties_at_the_kth_place_are_kept():
    law = law_of(torch.tensor([3.0, 1.0, 1.0, 1.0, 0.0]), Sampling(top_k=2))
    assert (law > 0).tolist() == [True, True, True, True, False]


def test_ties_at_the_edge_of_the_nucleus_are_kept():
    law = law_of(torch.tensor([0.4, 0.2, 0.2, 0.2]).log(), Sampling(top_p=0.5))
    assert (law > 0).tolist() == [True, True, True, True]


def test_the_nucleus_never_is_empty_and_takes_the_token_that_crosses():
    logits = torch.tensor([0.6, 0.3, 0.1]).log()
    assert (law_of(logits, Sampling(top_p=1e-9)) > 0).tolist() == [True, False, False]
    assert (law_of(logits, Sampling(top_p=0.61)) > 0).tolist() == [True, True, False]


def test_top_k_comes_before_top_p():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # of the two kept by top-k the first holds 4/7 > 0.5 alone; of all four it would hold 0.4 only
    assert (law_of(logits, Sampling(top_k=2, top_p=0.5)) > 0).tolist() == [True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_laws_are_float32_at_least(dtype):
    law = law_of(torch.randn(3, 10).to(dtype), Sampling(top_k=5))
    assert law.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(law.sum(-1), torch.ones(3, dtype=law.dtype))


def test_law_of_leaves_its_argument_alone():
    logits = torch.randn(3, 10)
    before = logits.clone()
    law_of(logits, Sampling(0.7, 4, 0.9))
    assert torch.equal(logits, before)


def test_guidance_is_the_written_formula():
    cond, uncond = torch.randn(2, 50, dtype=torch.float64)
    for scale in (0.0, 0.3, 1.0, 3.0, 7.5):
        assert torch.allclose(guide(cond, uncond, scale), uncond + scale * (cond - uncond), atol=1e-12)


def test_residual_and_total_variation():
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    assert torch.allclose(residual(p, q), torch.tensor([1.0, 0.0, 0.0]))
    assert torch.allclose(total_variation(p, q), torch.tensor(0.3))
    p, q = torch.rand(2, 100, 20, dtype=torch.float64).softmax(-1)
    kept = torch.minimum(p, q)
    # a draft from q, tested and replaced, has law p: the identity that everything rests on
    mended = kept + (1 - kept.sum(-1, keepdim=True)) * residual(p, q)
    assert torch.allclose(mended, p, atol=1e-15)
    assert torch.allclose(total_variation(p, q), 1 - kept.sum(-1))


def test_residual_of_equal_laws_is_a_law():
    p = torch.rand(4, 9).softmax(-1)
    assert torch.equal(residual(p, p), p)
    assert torch.equal(residual(p, p * 1.0000001), p)


def test_residual_leaves_its_arguments_alone():
    p, q = torch.rand(2, 5, 7).softmax(-1)
    before = p.clone(), q.clone()
    residual(p, q)
    assert torch.equal(p, before[0])
    assert torch.equal(q, before[1])


def test_entropy_in_nats():
    assert torch.allclose(entropy(torch.full((8,), 1 / 8)), torch.tensor(math.log(8)))
    assert entropy(torch.tensor([0.0, 1.0])) == 0


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"temperature": 0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.2}, "top_p"),
        ({"guidance": -1}, "guidance"),
        ({"guidance": math.inf}, "guidance"),
    ],
    ids=str,
)  # fmt: skip
def test_values_that_define_no_law_are_refused(values, name):
    with pytest.raises(UsageError, match=rf"sampling\.{name}"):
        Sampling(**values)
