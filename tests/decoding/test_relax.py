"""Relaxed acceptance: what it adds, what that does to the law, and the budget that bounds it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import specbench
from specbench.decoding import codebook as codebooks
from specbench.decoding import options
from specbench.decoding.accept import bound
from specbench.decoding.board import Board, look
from specbench.decoding.build import build_decoder
from specbench.decoding.codebook import in_units_of_spread, nearest
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling, residual, total_variation
from specbench.decoding.noise import AddressedNoise
from specbench.decoding.relax import Grouped, Lantern
from specbench.errors import UsageError
from specbench.verify.enumerate import law_of
from specbench.verify.exact import BASE, Case, exact
from specbench.verify.tabular import TabularTarget
from tests.decoding.targets import HashedTarget
from tests.decoding.test_loop import waits

VOCAB = 60
PROMPTS = [Prompt(f"s{i}", f"picture {i}") for i in range(4)]


def codes(vocab=VOCAB, seed=0):
    return torch.randn(vocab, 4, generator=torch.Generator().manual_seed(seed))


def laws(*shape, seed=0, vocab=VOCAB):
    weights = torch.rand(*shape, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    return weights / weights.sum(-1, keepdim=True)


class Coded(HashedTarget):
    """The hashed target with a codebook."""

    def __init__(self, **options):
        super().__init__(**options)
        self.codebook = codes(self.vocab)


# --- the codebook ------------------------------------------------------------------------------------------------


def test_nearest_codes_are_nearest_and_never_the_code_itself(monkeypatch):
    monkeypatch.setattr(codebooks, "ROWS", 7)  # more than one block, the last one short
    book = codes()
    distance = torch.cdist(book.double(), book.double()).fill_diagonal_(math.inf)
    assert torch.equal(nearest(book, 9).long(), distance.argsort(dim=1, stable=True)[:, :9])


def test_tables_are_made_once_per_codebook_and_count(monkeypatch):
    book, made = codes(seed=1), []
    topk = torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda self, *a, **k: (made.append(1), topk(self, *a, **k))[1])
    target = Coded()
    target.codebook = book
    for _ in range(3):
        Lantern(neighbours=2).bind(target)
    assert len(made) == 1
    assert Lantern(neighbours=1).bind(target).table.shape == (60, 1) and len(made) == 2


def test_the_unit_of_distance_is_the_mean_over_pairs_whatever_the_scale():
    book = codes()
    scaled = in_units_of_spread(book)
    pairs = torch.pdist(scaled.double()).square()
    assert float(pairs.mean()) == pytest.approx(1, abs=1e-5)
    assert torch.allclose(in_units_of_spread(7 * book), scaled, atol=1e-6)


def test_a_model_without_a_codebook_is_told_so():
    for accept in ("grouped", "lantern"):
        with pytest.raises(UsageError, match="no codebook"):
            build_decoder({"accept": accept}, 4).decode(HashedTarget(), PROMPTS)


# --- the formulas ------------------------------------------------------------------------------------------------


def grouped_by_hand(p, q, x, rule, book):
    """Σ_C p / Σ_C q, one token at a time: rank all tokens, cut the group out, drop what is too different."""
    order = sorted(range(len(p)), key=lambda t: (-float(p[t]), t != x))
    rank = order.index(x)
    window = order[max(0, rank - rule.group // 2) : rank + (rule.group - 1) // 2 + 1]
    unit = float(torch.pdist(book.double()).square().mean())
    group = [
        t
        for t in window
        if abs(float(p[t] - p[x])) <= rule.gap
        and float((book[t] - book[x]).double().square().sum()) / unit <= rule.distance
    ]
    return sum(float(p[t]) for t in group) / sum(float(q[t]) for t in group), len(group)


@pytest.mark.parametrize(
    ("group", "gap", "distance"), [(1, 1, 9), (4, 1, 9), (10, 0.02, 9), (7, 0.05, 0.7), (200, 1, 1)]
)
def test_groups_are_those_of_the_paper(group, gap, distance):
    rule, book = Grouped(group=group, gap=gap, distance=distance), codes()
    target = Coded(vocab=VOCAB)
    target.codebook = book
    p, q = laws(1, VOCAB, seed=1)[:, :1].expand(1, VOCAB, VOCAB), laws(1, VOCAB, seed=2)
    q = q[:, :1].expand(1, VOCAB, VOCAB)
    found = rule.bind(target).ratio(p, q, torch.arange(VOCAB)[None])[0]
    expected = [grouped_by_hand(p[0, 0], q[0, 0], x, rule, book) for x in range(VOCAB)]
    assert found.tolist() == pytest.approx([ratio for ratio, _ in expected], rel=1e-12)
    if group > 1:
        assert max(size for _, size in expected) > 1


def lantern_by_hand(p, x, rule, book):
    """S(x): the longest run of nearest codes whose mass is within the bound."""
    near = torch.cdist(book.double(), book.double()).fill_diagonal_(math.inf)[x].argsort()
    limit = rule.delta if rule.scale is None else (rule.scale - 1) * float(p[x])
    total = 0.0
    for token in near[: options.near(rule.neighbours, len(p))]:
        if total + float(p[token]) > limit:
            break
        total += float(p[token])
    return total


RULES = [Lantern(delta=0.1), Lantern(delta=0.5, neighbours=3), Lantern(scale=2.0), Lantern(scale=3.0, neighbours=5)]


def bound_to(rule, book=None):
    target = Coded(vocab=VOCAB)
    target.codebook = codes() if book is None else book
    return rule.bind(target)


def one_slot(p, q, token):
    """A window whose drafted slots hold ``token`` [n], every one with laws p and q [V]."""
    board = Board(1, Grid(1, len(token) + 1), p.shape[-1], len(token) + 1, 0, torch.device("cpu"))
    where = torch.arange(len(token))[None]
    board.put_tokens(where, token[None], where >= 0, 1)
    board.put_laws(where, q.expand(1, len(token), -1), where >= 0)
    return look(board, len(token) + 1), p.expand(1, len(token) + 1, -1)


def chance(rule, p, q):
    """Probability [V] of keeping each candidate at a slot with laws p and q, read off the production rule."""
    asked = []

    class Listening(AddressedNoise):
        def accept(self, prob, key, need, lead=False):
            asked.append(prob)
            return super().accept(prob, key, need, lead)

    window, everywhere = one_slot(p, q, torch.arange(p.shape[-1]))
    rule(Listening([PROMPTS[0]]), everywhere, everywhere, window, lambda noise, law, window, need: window.token)
    return asked[0][0, :-1]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_relaxed_score_adds_the_longest_run_of_neighbours_within_the_bound(rule):
    p, q, book = laws(seed=3), laws(seed=4), codes()
    kept = chance(bound_to(rule), p, q)
    added = torch.tensor([lantern_by_hand(p, x, rule, book) for x in range(VOCAB)], dtype=torch.float64)
    assert torch.allclose(kept, ((p + added) / q).clamp(max=1), atol=1e-12)
    assert float(added.max()) > 0


# --- what it does to the law -------------------------------------------------------------------------------------


def out_of_one_slot(rule, p, q):
    """The law [V] of what is committed: kept drafts, and corrections from the unrelaxed residual."""
    kept = torch.where(q > 0, q * chance(rule, p, q), 0)
    return kept + (1 - kept.sum()) * residual(p, q)


def forgiven(rule, p, q):
    """Σ min((q - p)₊, S), S from the rule's own chance: what a score above p adds to min(p, q)."""
    return (q * chance(rule, p, q) - torch.minimum(p, q)).sum()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", [*RULES, *(replace(rule, budget="law") for rule in RULES)], ids=str)
def test_one_candidate_is_off_by_the_sum_of_effective_relaxations(rule, seed):
    p, q, book = laws(seed=seed), laws(seed=seed + 50), codes()
    off = float(total_variation(out_of_one_slot(bound_to(rule), p, q), p))
    added = torch.tensor([lantern_by_hand(p, x, rule, book) for x in range(VOCAB)], dtype=torch.float64)
    total = float(torch.minimum((q - p).clamp(min=0), added).sum())
    assert off == pytest.approx(min(total, rule.delta) if rule.budget == "law" else total, abs=1e-12)
    assert off == pytest.approx(float(forgiven(bound_to(rule), p, q)), abs=1e-12)


def test_a_bound_on_each_score_bounds_no_law():
    """The counterexample: delta ½ is respected by every candidate, and the outcome shares no token with the target."""
    p, q = torch.zeros(2, 24, dtype=torch.float64)
    p[:2] = 0.5
    q[2:12] = 0.1
    book = torch.arange(24.0)[:, None].repeat(1, 10) * 10
    book[2:12] = torch.eye(10)  # code 0 is at the origin: the nearest neighbour of each of the ten
    rule = Lantern(delta=0.5, neighbours=24)
    bound_rule = bound_to(rule, book)
    window, everywhere = one_slot(p, q, torch.arange(24))
    assert float(bound_rule.added(everywhere, window).max()) <= 0.5
    assert float(total_variation(out_of_one_slot(bound_rule, p, q), p)) == pytest.approx(1)
    budgeted = replace(bound_rule, budget="law")
    assert float(total_variation(out_of_one_slot(budgeted, p, q), p)) == pytest.approx(0.5)


def first_token(settings, target, window=2):
    """Exact law [V] of the first position under production code, by enumeration."""
    decoder = build_decoder({"decoder": "jacobi", **settings}, window)
    found = law_of(decoder.decode, target)
    return found.law.reshape(target.vocab, -1).sum(1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_the_identity_holds_for_the_enumerated_decode(seed, delta):
    """The first position is tested once, with q uniform: its distance is Σ min((q - p)₊, S), and delta at most with
    the budget for the law."""
    target = TabularTarget(vocab=3, size=3, seed=seed)
    p = torch.from_numpy(target.laws(Prompt("a", "a"), Sampling()))[0]
    q = torch.full_like(p, 1 / 3)
    rule = Lantern(delta=delta)
    added = torch.tensor([lantern_by_hand(p, x, rule, target.codebook) for x in range(3)], dtype=torch.float64)
    total = float(torch.minimum((q - p).clamp(min=0), added).sum())
    for budget, expected in (("score", total), ("law", min(total, delta))):
        law = first_token({"accept": "lantern", "delta": delta, "budget": budget}, target)
        assert np.abs(law - p.numpy()).sum() / 2 == pytest.approx(expected, abs=1e-13)


def test_the_enumerated_identity_met_relaxations():
    distances = []
    for seed in range(5):
        target = TabularTarget(vocab=3, size=3, seed=seed)
        p = target.laws(Prompt("a", "a"), Sampling())[0]
        distances.append(np.abs(first_token({"accept": "lantern", "delta": 0.3}, target) - p).sum() / 2)
    assert max(distances) > 0.01


@pytest.mark.parametrize("budget", ["score", "law"])
@pytest.mark.parametrize("predict", ["none", "growth"])
def test_no_tested_candidate_and_under_budget_no_slot_gets_more_than_delta_on_a_real_decode(budget, predict):
    """Read off the coins that production asks for, on mini with its own codebook."""
    target, delta, asked, spent, added = specbench.load_target("mini"), 0.02, [], [], []
    settings = {"accept": "lantern", "delta": delta, "budget": budget, "predict": predict}
    decoder = build_decoder(settings, 16, Sampling(top_k=512, guidance=2.0))
    rule = bound(decoder.accept, target)

    class Listening(AddressedNoise):
        def accept(self, prob, key, need, lead=False):
            asked.append(prob)
            return super().accept(prob, key, need, lead)

    def watch(one):
        window, p, q = one.window, one.p, one.window.q()
        moved = asked[-1] * window.q_of_draft() - p.gather(-1, window.token[..., None]).squeeze(-1)
        added.append(moved[window.drafted & (asked[-1] < 1)])
        effective = rule.spent(p, q) if budget == "law" else torch.zeros_like(p)
        spent.append(effective.sum(-1)[window.drafted])
        out = torch.minimum(p, q) + effective
        out = out + (1 - out.sum(-1, keepdim=True)) * residual(p, q)
        if budget == "law":
            assert float(total_variation(out, p)[window.drafted].max()) <= delta + 1e-5

    prompts = [Prompt("a", "a red ring"), Prompt("b", "a blue star")]
    noise = Listening(prompts)
    stop = _Stop(watch, 12)
    with pytest.raises(_Enough):
        replace(decoder, watch=stop).decode(target, prompts, noise=noise)
    assert float(torch.cat(added).max()) <= delta + 1e-6
    assert float(torch.cat(added).max()) > delta / 10  # something was forgiven
    if budget == "law":
        assert float(torch.cat(spent).max()) == pytest.approx(delta, rel=1e-4)  # the budget binds


class _Enough(Exception):
    """Ends a decode that has shown what it does."""


class _Stop:
    def __init__(self, watch, passes):
        self.watch, self.left = watch, passes

    def __call__(self, one):
        self.watch(one)
        self.left -= 1
        if not self.left:
            raise _Enough


def test_lossy_methods_report_their_distance_and_pass_no_verdict():
    table = Case(sharpness=0.1)
    for accept in ("grouped", "lantern"):
        settings = {"decoder": "jacobi", "accept": accept, "distance": 4} if accept == "grouped" else {"accept": accept}
        result = exact({"name": accept, "lossless": False, "settings": settings}, (BASE, table))
        assert result.passed is None and result.total_variation > 1e-4, accept
        assert not options.lossless(settings) and not build_decoder(settings, 3).lossless


@pytest.mark.parametrize(
    "settings", [{"accept": "grouped", "distance": 9.0}, {"accept": "lantern", "delta": 0.3}], ids=str
)
def test_relaxed_methods_keep_more_and_do_not_see_other_rows(settings):
    target = Coded(grid=Grid(8, 8), vocab=64, drift=0.3)
    strict = build_decoder({"redraft": "independent"}, 16).decode(target, PROMPTS).trace.nfe.double().mean()
    decoder = build_decoder(settings, 16)
    whole = decoder.decode(target, PROMPTS)
    assert float(whole.trace.nfe.double().mean()) < 0.97 * float(strict)
    for row, prompt in enumerate(PROMPTS):
        assert torch.equal(decoder.decode(target, [prompt]).tokens[0], whole.tokens[row])
    ar = build_decoder({"decoder": "ar"}).decode(target, PROMPTS)
    assert torch.equal(build_decoder(settings, 1).decode(target, PROMPTS).tokens, ar.tokens)


WAITED = [{"accept": "grouped"}, {"accept": "lantern"}, {"accept": "lantern", "budget": "law"}]


@pytest.mark.parametrize("options", WAITED)
def test_the_host_waits_once_per_pass(options, monkeypatch):
    target, decoder = Coded(), build_decoder(options, 5, Sampling(top_k=12))
    decoder.decode(target, PROMPTS[:1])  # the first decode makes the tables
    seen, passes = waits(lambda: decoder.decode(target, PROMPTS), monkeypatch)
    assert sorted(seen) == sorted(["item"] * passes + ["cpu"] * 3)


def test_published_sizes_scale_to_small_codebooks_and_are_left_alone_on_large_ones():
    assert [options.near(1000, vocab) for vocab in (16384, 8192, 1024, 3)] == [1000, 1000, 128, 1]
    assert options.near(10, 1024) == 10
    assert options.effective({"accept": "lantern", "neighbours": 1000}, 1024, 512) == {"neighbours": 128}
    settings = {"accept": "grouped", "group": 10, "predict": "growth", "candidates": 0.1}
    assert options.effective(settings, 1024, 512) == {"candidates": 51, "group": 10}
    assert options.effective({"accept": "strict"}, 1024, 512) == {}


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"accept": "lantern", "delta": 1.5}, "delta must be a number from 0 to 1"),
        ({"accept": "lantern", "scale": 0.5}, "scale must be a number of at least 1"),
        ({"accept": "lantern", "budget": "lawe"}, "did you mean 'law'"),
        ({"accept": "lantern", "neighbours": 0}, "neighbours must be a whole number of at least 1"),
        ({"accept": "grouped", "group": True}, "group must be a whole number"),
        ({"accept": "strict", "delta": 0.1}, "belongs to accept=lantern"),
    ],
)
def test_values_out_of_range_are_answered_in_a_sentence(settings, answer):
    with pytest.raises(UsageError, match=answer):
        build_decoder({"decoder": "jacobi", **settings}, 4)
