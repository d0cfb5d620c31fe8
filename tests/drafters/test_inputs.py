"""The five inputs of Table 3 (SSD, 2606.20543): for each of them heads decode with the laws that training judged."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import START, Prompt
from specbench.decoding.laws import Sampling, guide, law_of
from specbench.drafters.heads import INPUTS, Heads
from specbench.drafters.training.ssd import SpatialTask, drafts
from specbench.models import load_target

PROMPTS = [Prompt("one", "a picture of two red stars"), Prompt("two", "a blue ring")]
PLACES = [(0, 1), (0, 2), (1, 0), (2, 0)]
SAMPLING = Sampling(temperature=0.7, top_k=8, guidance=2.0)


@pytest.fixture(scope="module")
def target():
    """mini/tiny with a final norm of its own gain: to norm twice is then not the same as once."""
    own = copy.deepcopy(load_target("mini/tiny", dtype="float64"))
    with torch.no_grad():
        own.transformer.norm.weight.uniform_(0.3, 3, generator=torch.Generator().manual_seed(2))
    return own


def trained(target, reads: str) -> SpatialTask:
    """Heads as after training: of no special weights, and in units."""
    generator = torch.Generator().manual_seed(4)
    sample = [torch.randn(2, 16, 32, generator=generator, dtype=torch.float64) * x for x in (3.0, 0.5)]
    task = SpatialTask.fresh(target, tuple(sample), PLACES, reads)
    task.module.double()
    with torch.no_grad():
        for weight in (task.module.mix, task.module.out):
            weight += 0.15 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return task


def drafted(target, heads: Heads, **settings) -> tuple[torch.Tensor, list]:
    """The tokens [B, N] of a decode, and (positions, drafts, their laws) of each block as the heads drafted it."""
    seen = []

    def watch(window, p, tokens):
        seen.append((window.position, window.token, window.q()))

    decoder = build_decoder({"decoder": "block", "columns": 2, "rounds": 1, **settings}, None, SAMPLING)
    return replace(decoder, heads=heads, watch=watch).decode(target, PROMPTS).tokens, seen


def taught(target, tokens) -> tuple[torch.Tensor, torch.Tensor]:
    """Pre-norm h [R, B, N, d] and e [R, B, N, d] of finished images."""
    canvas = target.begin(PROMPTS, SAMPLING.guidance)
    h = canvas.forward(torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, :-1]], 1)).h
    return h, target.embed(tokens).expand_as(h)


def worst(target, task: SpatialTask, heads: Heads, rows: int = 1) -> float:
    """The largest difference between a law that a draft was drawn from and the one that training judges heads by."""
    tokens, seen = drafted(target, heads, rows=rows)
    with torch.inference_mode():
        right, right2, *below = drafts(task, *taught(target, tokens), SAMPLING)
    difference = 0.0
    for position, _, q in seen:
        start, width = int(position[0, 0]), position.shape[1]
        if start < 4:
            wanted = torch.stack([right[:, start - 1], right2[:, start - 1]], 1)[:, :width]
        else:
            wanted = torch.cat([law[:, start - 4 : start] for law in below[:rows]], 1)[:, :width]
        difference = max(difference, float((q - wanted).abs().max()))
    assert len(seen) == {1: 5, 2: 4}[rows]  # columns 1 and 2, column 3, then three rows: each alone, or two and one
    return difference


@pytest.mark.parametrize("reads", sorted(INPUTS))
def test_drafts_have_the_laws_that_training_judges_heads_by(target, reads, monkeypatch):
    task = trained(target, reads)
    heads = task.heads("mini/tiny", "").to(torch.float64, "cpu")
    for rows in (1, 2):  # of two rows the second one comes from the second head, and both from the row above them
        assert worst(target, task, heads, rows) < 1e-5  # training's logits are float32
    own = heads.post_norm
    monkeypatch.setattr(Heads, "post_norm", property(lambda _: not own))
    assert worst(target, task, heads) > 1e-2  # the wrong side of the norm shows


@pytest.mark.parametrize("reads", sorted(INPUTS))
def test_the_laws_are_those_of_the_formula(target, reads):
    """Norm, parts and guidance written out; for a second row drafted from the first one's prediction, too."""
    heads = trained(target, reads).heads("mini/tiny", "").to(torch.float64, "cpu")
    tokens, seen = drafted(target, heads, rows=2, source="predicted", columns=1)
    h, e = (x[:, :, :4] for x in taught(target, tokens))
    position, draft, q = next(each for each in seen if int(each[0][0, 0]) == 4)

    def below(state, e):
        z = {"e": [e], "h_pre": [state], "h_post": [state], "h_pre+e": [state, e], "h_post+e": [state, e]}[reads]
        return heads.stack(*z)[..., 2, :]

    def law(state):
        normed = state if reads.startswith("h_post") else target.norm(state)
        cond, uncond = target.head(normed)
        return law_of(guide(cond, uncond, 2.0), SAMPLING)

    with torch.inference_mode():
        first = below(target.norm(h) if reads.startswith("h_post") else h, e)
        second = below(first, target.embed(draft[:, :4]).expand_as(first))
        wanted = torch.cat([law(first), law(second)], 1)
    assert position[0].tolist() == list(range(4, 12))
    assert torch.allclose(q, wanted, atol=1e-9)
