"""Predicted laws: equal to the definition over the whole codebook, followed by position, drawn from and recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specbench.decoding import options
from specbench.decoding.board import Board
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling, total_variation
from specbench.decoding.predict import PREDICTIONS, Growth, Score
from specbench.errors import UsageError
from specbench.verify.exact import Case, exact, measure
from tests.decoding.targets import HashedTarget
from tests.decoding.test_loop import waits

IMAGES, WIDTH, VOCAB = 3, 6, 40
PROMPTS = [Prompt(f"s{i}", f"picture {i}") for i in range(4)]
CPU = torch.device("cpu")


def random_laws(*shape, seed=0, support=VOCAB):
    """Laws [..., V] whose tokens from ``support`` on have probability zero."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(*shape, VOCAB, generator=generator, dtype=torch.float64) ** 2
    weights[..., support:] = 0
    return weights / weights.sum(-1, keepdim=True)


def board_with_past(passes, seed=0, support=VOCAB):
    """A board whose windows slid by other amounts in every row, and the laws by (row, position), latest first."""
    board = Board(IMAGES, Grid(8, 8), VOCAB, WIDTH, 0, CPU)
    by_position = [{} for _ in range(IMAGES)]
    steps = torch.Generator().manual_seed(seed)
    for number in range(passes):
        laws = random_laws(IMAGES, WIDTH, seed=100 * seed + number, support=support)
        for row in range(IMAGES):
            for slot in range(WIDTH):
                past = by_position[row].setdefault(int(board.committed[row]) + slot, [])
                past.insert(0, laws[row, slot])
        board.remember(laws, torch.full((IMAGES,), WIDTH), 64)
        board.committed = board.committed + torch.randint(1, 4, (IMAGES,), generator=steps)
    return board, by_position


def defined(p, past, rule, kept):
    """p' of one slot over the whole codebook, written down as the paper defines it."""
    laws = [p, *past]
    weights = [rule.decay**k for k in range(min(rule.history, len(past)) + 1)]
    mean = sum(w * law for w, law in zip(weights, laws, strict=False)) / sum(weights)
    score = torch.where(p > 0, torch.log(p) - torch.log(mean), 0)
    mask = torch.full((VOCAB,), len(past) >= rule.growth)
    for k in range(rule.growth if len(past) >= rule.growth else 0):
        mask &= laws[k] > laws[k + 1]
    top = torch.zeros(VOCAB, dtype=torch.bool)
    top[p.argsort(descending=True)[: max(1, round(rule.candidates * kept))]] = True
    raised = torch.where(mask & top, score, 0)
    logits = torch.where(top, raised, -torch.inf) if isinstance(rule, Score) else torch.log(p) + raised
    return torch.where(p > 0, logits, -torch.inf).softmax(-1)


@pytest.mark.parametrize("kind", [Growth, Score])
@pytest.mark.parametrize("passes", [1, 2, 3, 5])
@pytest.mark.parametrize("growth", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(("history", "candidates", "support"), [(1, 1.0, VOCAB), (3, 0.3, VOCAB), (2, 0.5, 12)])
def test_the_law_is_that_of_the_definition_at_the_slots_own_position(
    kind, passes, growth, history, candidates, support
):
    rule = kind(history=history, growth=growth, candidates=candidates)
    board, by_position = board_with_past(passes, seed=passes, support=support)
    assert len(set((board.committed).tolist())) > 1 or passes == 1  # rows moved by different amounts
    p = random_laws(IMAGES, WIDTH, seed=99, support=support)
    law = rule(p, board, support)
    for row in range(IMAGES):
        for slot in range(WIDTH - 1):
            past = by_position[row].get(int(board.committed[row]) + slot, [])[: rule.reach]
            expected = defined(p[row, slot], past, rule, support)
            assert torch.allclose(law[row, slot], expected, atol=1e-13, rtol=0)
    assert torch.equal(law[:, -1], p[:, -1])  # the free slot's token may be committed as it is
    assert torch.allclose(law.sum(-1), torch.ones(()).double(), atol=1e-13)


def test_the_definition_above_predicts_something():
    rule = Growth(history=2, growth=1, candidates=0.5)
    board, _ = board_with_past(3)
    p = random_laws(IMAGES, WIDTH, seed=99)
    assert float(total_variation(rule(p, board, VOCAB), p)[:, :-1].max()) > 0.01


def test_a_past_read_by_window_slot_is_not_the_past_of_the_position():
    """Harmless to the law (a twin among the mutants), so that only equality with the definition shows it."""
    rule = Growth(history=2, growth=1, candidates=1.0)
    board, _ = board_with_past(3)
    p = random_laws(IMAGES, WIDTH, seed=99)
    right = rule(p, board, VOCAB)
    board.past = [past._replace(start=board.committed) for past in board.past]
    assert float(total_variation(rule(p, board, VOCAB), right).max()) > 0.01


def test_a_boosted_token_gains_at_most_the_inverse_weight_of_the_present():
    """With a decay of 0.8 and three past laws at most 2.952 (fulltext of the paper: no clip is needed)."""
    rule = Growth()
    board, _ = board_with_past(4)
    p = random_laws(IMAGES, WIDTH, seed=99)
    now, token = p.topk(VOCAB)
    boost = rule.boost(now, token, board)
    assert float(boost.max()) <= sum(0.8**k for k in range(4)) and float(boost.min()) >= 1


def test_no_more_laws_are_kept_than_are_read():
    assert Growth().reach == 3 and Growth(history=2, growth=4).reach == 4 and PREDICTIONS["none"].reach == 0
    seen = []
    decoder = build_decoder({"decoder": "jacobi", "predict": "growth"}, 4, Sampling())
    replace(decoder, watch=lambda one: seen.append(len(one.window.board.past))).decode(HashedTarget(), PROMPTS)
    assert max(seen) == 3 and seen[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("predict", ["growth", "score"])
@pytest.mark.parametrize("redraft", ["independent", "maximal", "gumbel"])
def test_drafts_come_from_the_law_that_is_recorded_for_them(predict, redraft):
    """Whatever is recorded in one pass is what the next one finds at that position, and it is not p."""
    settings = {"decoder": "jacobi", "predict": predict, "growth": 1, "redraft": redraft}
    before, differ = {}, 0

    def watch(one):
        nonlocal differ
        q = one.window.q()
        for row, start in enumerate(one.window.position[:, 0].tolist()):
            for slot in range(q.shape[1]):
                if bool(one.window.drafted[row, slot]) and (row, start + slot) in before:
                    law, p = before.pop((row, start + slot))
                    assert torch.equal(q[row, slot], law)
                    assert float(law[one.window.token[row, slot]]) > 0
                    differ += not torch.equal(law, p)
                before[row, start + slot] = one.law[row, slot].clone(), one.p[row, slot].clone()

    decoder = build_decoder(settings, 5, Sampling(top_k=12))
    replace(decoder, watch=watch).decode(HashedTarget(), PROMPTS)
    assert differ > 10


@pytest.mark.parametrize(
    "options", [{"predict": "growth"}, {"predict": "score"}, {"redraft": "gumbel", "alpha": 0.5}], ids=str
)
def test_the_host_waits_once_per_pass(options, monkeypatch):
    decoder = build_decoder({"redraft": "maximal", **options}, 5, Sampling(top_k=12))
    seen, passes = waits(lambda: decoder.decode(HashedTarget(), PROMPTS), monkeypatch)
    assert sorted(seen) == sorted(["item"] * passes + ["cpu"] * 3)


def test_a_window_of_one_is_ar_and_batches_change_nothing():
    for predict in ("growth", "score"):
        settings = {"decoder": "jacobi", "predict": predict, "growth": 1, "redraft": "maximal"}
        plain = build_decoder({"decoder": "ar"}).decode(HashedTarget(), PROMPTS)
        assert torch.equal(build_decoder(settings, 1).decode(HashedTarget(), PROMPTS).tokens, plain.tokens)
        whole = build_decoder(settings, 5).decode(HashedTarget(), PROMPTS)
        for row, prompt in enumerate(PROMPTS):
            alone = build_decoder(settings, 5).decode(HashedTarget(), [prompt])
            assert torch.equal(alone.tokens[0], whole.tokens[row])


@pytest.mark.parametrize("redraft", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("predict", ["growth", "score"])
@pytest.mark.parametrize("fill", ["uniform", "onehot", "above_law"])
def test_predictions_are_exact_with_any_coupling_and_fill(redraft, predict, fill):
    method = {"name": "composed", "lossless": True}
    method["settings"] = {"decoder": "jacobi", "redraft": redraft, "predict": predict, "fill": fill}
    tuned = (("growth", 1), ("history", 2), ("candidates", 0.7))
    result = exact(method, (Case(predict=tuned), Case(vocab=2, size=5, window=4, predict=tuned)))
    assert result.passed, result.detail


def test_without_a_mask_the_free_slot_keeps_its_law():
    settings = {"decoder": "jacobi", "redraft": "maximal", "predict": "growth", "growth": 0}
    result = exact({"name": "no mask", "lossless": True, "settings": settings}, (Case(), Case(vocab=2, window=4)))
    assert result.passed, result.detail


def test_testing_with_the_raw_law_is_lossy_and_measured():
    settings = {"decoder": "jacobi", "predict": "growth", "growth": 1, "history": 1, "candidates": 1.0}
    raw = {"name": "raw", "lossless": False, "settings": {**settings, "verify": "raw"}}
    assert measure(raw, Case()).total_variation > 1e-4
    assert measure({**raw, "settings": settings}, Case()).total_variation <= 1e-12
    assert not build_decoder(raw["settings"], 3).lossless and build_decoder(settings, 3).lossless
    assert not options.lossless(raw["settings"]) and options.lossless(settings)


def test_a_prediction_that_never_takes_effect_fails_its_verdict():
    """At the published history of three nothing is ever predicted on such a table: no proof of anything."""
    method = {"name": "sjd_vp", "lossless": True, "settings": {"decoder": "jacobi", "predict": "growth"}}
    idle = exact(method, (Case(predict=(("growth", 3), ("history", 3))),))
    assert idle.passed is False and "nothing was ever predicted" in idle.detail


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("redraft", ["maximal", "gumbel"])
def test_a_mixture_of_coupled_and_independent_redrafts_is_exact(redraft, alpha):
    settings = {"decoder": "jacobi", "redraft": redraft, "alpha": alpha}
    result = exact({"name": "mixed", "lossless": True, "settings": settings}, (Case(), Case(vocab=2, window=4)))
    assert result.passed, result.detail


def test_alpha_goes_from_independent_to_coupled():
    target = HashedTarget(Grid(8, 8), vocab=64, drift=0.3)
    changes = {}
    for alpha in (0.0, 0.5, 1.0):
        decoder = build_decoder({"redraft": "maximal", "alpha": alpha}, 16)
        changes[alpha] = float(decoder.decode(target, PROMPTS).trace.changes.double().mean())
    assert changes[0.0] > 1.2 * changes[0.5] > 1.2 * 1.2 * changes[1.0]
    independent = build_decoder({"redraft": "independent"}, 16).decode(target, PROMPTS)
    assert torch.equal(
        build_decoder({"redraft": "maximal", "alpha": 0}, 16).decode(target, PROMPTS).tokens, independent.tokens
    )


@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("history", 0, "whole number from 1 to 64"),
        ("growth", 1.5, "whole number from 0"),
        ("decay", 1.2, "number from 0 to 1"),
        ("candidates", "many", "number from 0 to 1"),
        ("verify", "row", "did you mean 'raw'"),
    ],
)
def test_values_out_of_range_are_answered_in_a_sentence(name, value, answer):
    with pytest.raises(UsageError, match=answer):
        build_decoder({"decoder": "jacobi", "predict": "growth", name: value}, 4)
    with pytest.raises(UsageError, match="from 0 to 1"):
        build_decoder({"decoder": "jacobi", "redraft": "maximal", "alpha": -0.1}, 4)
