"""The lattice is the field that its formula says, whatever window it is read through."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specbench.decoding.interfaces import START, Prompt, SpatialHeads, Target
from specbench.decoding.laws import Sampling
from specbench.decoding.loop import AR
from specbench.errors import UsageError
from specbench.models.lattice import Lattice, LatticeHeads, mean_entropy, with_entropy
from specbench.verify.targets import target_conformance

SMALL = Lattice(3, 3, 1.2)


def law(left: int | None, above: int | None, codes: int = 3, coupling: float = 1.2) -> torch.Tensor:
    weight = [math.exp(coupling * ((c == left) + (c == above))) for c in range(codes)]
    return torch.tensor(weight, dtype=torch.float64) / sum(weight)


def test_it_is_a_target():
    assert isinstance(SMALL, Target)
    result = target_conformance("lattice", Lattice(5, 7, 1.0))
    assert result.passed, result.detail


def test_the_law_of_a_code_leans_on_its_two_neighbours():
    tokens = torch.tensor([[2, 0, 0, 1, 1, 0, 2, 2, 0]])
    out = SMALL.begin([Prompt("x", "")]).forward(torch.cat([torch.tensor([[START]]), tokens[:, :-1]], 1))
    found = out.logits.softmax(-1)[0]
    for place in range(9):
        left = int(tokens[0, place - 1]) if place % 3 else None
        above = int(tokens[0, place - 3]) if place >= 3 else None
        assert torch.allclose(found[place], law(left, above))


def test_the_state_and_the_vertical_head_give_the_exact_marginal_of_the_row_below():
    row = [2, 0, 0]
    out = SMALL.begin([Prompt("x", "")]).forward(torch.tensor([[START, *row[:-1]]]))
    heads = LatticeHeads(SMALL)
    assert isinstance(heads, SpatialHeads)
    guessed = heads.vertical(out.h, SMALL.embed(torch.tensor([row])))
    q = SMALL.head(SMALL.norm(guessed))[0, 0, :, 0].softmax(-1)
    marginal = torch.zeros(3, 3, dtype=torch.float64)
    for below in itertools.product(range(3), repeat=3):
        chance = torch.stack([law(below[x - 1] if x else None, row[x])[below[x]] for x in range(3)]).prod()
        for x in range(3):
            marginal[x, below[x]] += chance
    assert torch.allclose(q, marginal)


def test_the_horizontal_heads_give_the_exact_law_of_the_first_row():
    out = SMALL.begin([Prompt("x", "")]).forward(torch.tensor([[START]]))
    guessed = LatticeHeads(SMALL, horizontal_offsets=2).horizontal(out.h, SMALL.embed(torch.tensor([[1]])))
    q = SMALL.head(guessed)[0, 0, 0].softmax(-1)
    step = torch.stack([law(left, None) for left in range(3)])
    assert torch.allclose(q, torch.stack([step[1], (step @ step)[1]]))


def test_a_window_sees_what_single_passes_see_states_included():
    tokens = torch.randint(3, (2, 9), generator=torch.Generator().manual_seed(1))
    fed = torch.cat([torch.full((2, 1), START), tokens[:, :-1]], 1)
    whole = SMALL.begin([Prompt("a", ""), Prompt("b", "")]).forward(fed)
    canvas, at = SMALL.begin([Prompt("a", ""), Prompt("b", "")]), 0
    for width in (2, 4, 3):
        drafts = fed[:, at : at + width]
        canvas.forward(torch.cat([drafts, (drafts + 1) % 3], 1))  # drafts that are taken back
        part = canvas.forward(drafts)
        assert torch.allclose(part.h, whole.h[:, :, at : at + width])
        canvas.keep(torch.full((2,), width))
        at += width


def test_the_stated_entropy_is_the_entropy_of_what_is_sampled():
    target = with_entropy(24, 16, 2.0)
    tokens = AR(Sampling()).decode(target, [f"p{i}" for i in range(8)], seed=3).tokens
    fed = torch.cat([torch.full((8, 1), START), tokens[:, :-1]], 1)
    p = target.begin([Prompt(str(i), "") for i in range(8)]).forward(fed).logits.softmax(-1)
    inside = p.unflatten(1, (24, 24))[:, 1:, 1:]
    assert float(torch.special.entr(inside).sum(-1).mean()) == pytest.approx(2.0, abs=0.03)
    assert mean_entropy(16, 0.0, side=4) == pytest.approx(math.log(16))


@pytest.mark.parametrize("nats", [0.0, 5.0])
def test_an_entropy_that_no_coupling_has_is_refused(nats):
    with pytest.raises(UsageError, match="between 0 and"):
        with_entropy(8, 16, nats)
