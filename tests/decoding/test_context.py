"""Laws averaged by likeness of context: equal to the definition, deaf to the slot's own token, alike in any batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from specbench.decoding.board import EMPTY, Board, look
from specbench.decoding.build import build_decoder
from specbench.decoding.codebook import in_units_of_spread
from specbench.decoding.context import Context
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling, total_variation
from specbench.errors import UsageError
from specbench.verify.exact import CONTEXT_CASES, Case, cases_for, exact
from tests.decoding.targets import HashedTarget
from tests.decoding.test_loop import waits

IMAGES, WIDTH, VOCAB = 3, 6, 20
PROMPTS = [Prompt(f"s{i}", f"picture {i}") for i in range(7)]
BEST = {"redraft": "maximal", "predict": "context", "sharpness": 2.0}
TREE = {**BEST, "tree": "siblings", "children": 3, "depth": 2}


class Coded(HashedTarget):
    """With code vectors."""

    codebook = torch.randn(16, 3, generator=torch.Generator().manual_seed(5))


def random_laws(*shape, generator):
    weights = torch.rand(*shape, VOCAB, generator=generator, dtype=torch.float64) ** 2
    return weights / weights.sum(-1, keepdim=True)


def judged_board(rule, columns, passes=4, dtype=torch.float64, seed=0):
    """A board some passes on, whose rows moved by different amounts, its judged window and the laws just computed."""
    generator = torch.Generator().manual_seed(seed)
    board = Board(IMAGES, Grid(40 // columns, columns), VOCAB, WIDTH, 0, torch.device("cpu"))

    def draft():
        position = board.positions(board.committed, WIDTH - 1)
        board.tokens.scatter_(1, position, torch.randint(0, VOCAB, position.shape, generator=generator))

    draft()
    for _ in range(passes):
        known = torch.randint(WIDTH - 1, WIDTH + 1, (IMAGES,), generator=generator)
        board.remember(random_laws(IMAGES, WIDTH, generator=generator).to(dtype), known, rule.reach)
        draft()  # the free slot stays empty now and then, as a tree leaves it
        board.committed = board.committed + torch.randint(1, 4, (IMAGES,), generator=generator)
        draft()
    window = look(board, WIDTH)
    settled = torch.tensor([1, 2, 4])
    token = torch.where(window.slot < settled[:, None], (window.token + 7) % VOCAB, window.token)
    return replace(window, token=token, settled=settled), random_laws(IMAGES, WIDTH, generator=generator).to(dtype)


def defined(rule, window, law, row, slot):
    """The average of one slot, written down as its docstring has it; p where nothing may be predicted."""
    board, position = window.board, int(window.position[row, slot])
    if slot < int(window.settled[row]) or slot == WIDTH - 1:
        return law[row, slot]
    now = board.tokens[row].tolist()
    for there, token, live in zip(window.position[row].tolist(), window.token[row], window.live[row], strict=True):
        now[there] = int(token) if live else now[there]
    columns = rule.columns
    above = [min(position - columns + step, position - 1) for step in (-1, 0, 1)]
    weighted = [*zip((1, 0.5, 0.25, 0.125), (position - i for i in (1, 2, 3, 4)), strict=True)]
    weighted += [*zip((0.25, 0.5, 0.25), above, strict=True)]

    def apart(tokens):
        total = 0.0
        for weight, there in weighted:
            a, b = (int(tokens[there]), now[there]) if there >= 0 else (0, 0)
            far = float(a != b)
            if rule.codes is not None and a >= 0 and b >= 0:
                far = float((rule.codes[a] - rule.codes[b]).double().square().sum())
            total += weight * far
        return total

    laws, weights = [law[row, slot]], [math.exp(-rule.sharpness * apart(board.tokens[row]))]
    for back, past in enumerate(board.past, 1):
        at = position - int(past.start[row])
        if at < int(past.known[row]):
            laws.append(past.laws[row, at])
            weights.append(rule.decay**back * math.exp(-rule.sharpness * apart(past.tokens[row])))
    return sum(w * p.double() for w, p in zip(weights, laws, strict=True)) / sum(weights)


@pytest.mark.parametrize("columns", [1, 2, 5, 40])
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize(("history", "decay", "sharpness"), [(1, 0.6, 1.0), (3, 1.0, 0.0), (5, 0.6, 0.4), (2, 0.0, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_law_is_that_of_the_definition(columns, coded, history, decay, sharpness, dtype):
    codes = in_units_of_spread(torch.randn(VOCAB, 4, generator=torch.Generator().manual_seed(1))) if coded else None
    rule = Context(history=history, decay=decay, sharpness=sharpness, codes=codes, columns=columns)
    for passes in (1, 4):  # after one pass the context still reaches before the image and into empty slots
        window, law = judged_board(rule, columns, passes, dtype, seed=passes)
        found = law.clone()
        rule.refine(found, window)
        for row in range(IMAGES):
            for slot in range(WIDTH):
                expected = defined(rule, window, law, row, slot).to(dtype)
                assert torch.allclose(found[row, slot], expected, atol=10 * torch.finfo(dtype).eps, rtol=0)
        moved = float(total_variation(found, law).max())
        assert moved < 1e-12 if decay == 0 else moved > 1e-3


def test_a_token_that_was_empty_is_different_from_any():
    rule = Context(sharpness=1.0, columns=5, codes=torch.zeros(VOCAB, 2))
    then, now = torch.full((1, 12), 3), torch.full((1, 12), 3)
    then[0, 6] = EMPTY
    score = rule._likeness(then, now, torch.tensor([[6, 7, 8]]))
    assert torch.equal(score, -torch.tensor([[0.0, 1.0, 0.5]]).double())


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_tokens_at_the_slot_and_behind_it_are_not_read(columns):
    rule = Context(sharpness=0.5, columns=columns, codes=torch.randn(VOCAB, 2))

    def laws(first, change):
        """Predictions after ``change`` to every token from slot ``first`` on, on the board, now and then."""
        window, law = judged_board(rule, columns)
        inside = torch.arange(window.board.tokens.shape[1]) >= window.position[:, :1] + first
        for tokens in (window.board.tokens, *(past.tokens for past in window.board.past)):
            tokens[inside] = change(tokens[inside])
        window.token[:, first:] = change(window.token[:, first:])
        rule.refine(law, window)
        return law

    same = laws(0, lambda tokens: tokens)
    for slot in range(WIDTH):
        for change in (lambda tokens: (tokens * 7 + 3) % VOCAB, lambda tokens: tokens.flip(-1)):
            assert torch.equal(laws(slot, change)[:, : slot + 1], same[:, : slot + 1])
    assert not torch.equal(laws(2, lambda tokens: (tokens * 7 + 3) % VOCAB)[:, 3], same[:, 3])


@pytest.mark.parametrize("settings", [BEST, TREE, {**BEST, "accept": "fresh"}], ids=str)
def test_settled_and_free_slots_keep_p_and_drafts_do_not(settings):
    differ = 0

    def watch(one):
        nonlocal differ
        apart, slot = total_variation(one.p, one.law) > 1e-9, one.window.slot
        keeps = (slot <= one.accepted[:, None]) | (slot == one.window.board.width - 1)
        assert not bool((apart & keeps & one.window.live).any())
        differ += int((apart & one.window.drafted).sum())

    replace(build_decoder(settings, 7, Sampling(top_k=12)), watch=watch).decode(Coded(), PROMPTS[:4])
    assert differ > 10


@pytest.mark.parametrize("settings", [BEST, TREE, {**TREE, "redraft": "gumbel", "fill": "above_law"}], ids=str)
@pytest.mark.parametrize("target", [HashedTarget(), Coded(), Coded(Grid(16, 1)), Coded(Grid(8, 2))])
def test_batches_change_nothing(settings, target):
    decoder = build_decoder(settings, 7)
    whole = decoder.decode(target, PROMPTS)
    for rows in ([0], [3, 6, 1, 5]):
        part = decoder.decode(target, [PROMPTS[row] for row in rows])
        assert torch.equal(part.tokens, whole.tokens[rows])
        assert part.trace.nfe.tolist() == whole.trace.nfe[rows].tolist()


def test_a_window_of_one_is_ar():
    plain = build_decoder({"decoder": "ar"}).decode(Coded(), PROMPTS)
    assert torch.equal(build_decoder(TREE, 1).decode(Coded(), PROMPTS).tokens, plain.tokens)


@pytest.mark.parametrize("settings", [BEST, TREE], ids=str)
def test_the_host_waits_once_per_pass(settings, monkeypatch):
    decoder = build_decoder(settings, 7, Sampling(top_k=12))
    seen, passes = waits(lambda: decoder.decode(Coded(), PROMPTS[:3]), monkeypatch)
    assert sorted(seen) == sorted(["item"] * passes + ["cpu"] * 3)


@pytest.mark.parametrize("redraft", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("fill", ["uniform", "above_law"])
def test_it_is_exact_with_any_coupling_and_fill(redraft, fill):
    settings = {"decoder": "jacobi", "redraft": redraft, "fill": fill, "predict": "context"}
    result = exact({"name": "composed", "lossless": True, "settings": settings}, CONTEXT_CASES[:1])
    assert result.passed, result.detail


def test_its_verdict_has_tables_on_which_it_must_take_effect():
    method = {"name": "idle", "lossless": True, "settings": {"decoder": "jacobi", "predict": "context"}}
    assert set(CONTEXT_CASES) <= set(cases_for(method))
    assert all(case.tree for case in cases_for({**method, "settings": {**method["settings"], "tree": "siblings"}}))
    idle = exact(method, (Case(predict=(("history", 1), ("decay", 0.0))),))
    assert idle.passed is False and "nothing was ever predicted" in idle.detail


@pytest.mark.parametrize(("name", "value"), [("history", 0), ("decay", 1.5), ("sharpness", -1), ("sharpness", "high")])
def test_values_out_of_range_are_answered_in_a_sentence(name, value):
    with pytest.raises(UsageError, match=f"the setting {name} must be"):
        build_decoder({"predict": "context", name: value}, 4)
