"""The tree of siblings: its layout, its shape from pass to pass, and that it fits the loop as a chain does."""

from __future__ import annotations

import itertools

import pytest
import torch

from specbench.decoding.board import Board, look
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling
from specbench.decoding.noise import AddressedNoise
from specbench.decoding.tree import Siblings, without
from specbench.errors import UsageError
from specbench.models import load_target
from tests.decoding.targets import HashedTarget
from tests.decoding.test_loop import PROMPTS, SAMPLING, plain, waits

REDRAFTS = ("independent", "maximal", "gumbel")
WINDOWS = [(3, 2, 2), (7, 2, 3), (9, 2, 3), (13, 3, 3), (16, 4, 2), (20, 2, 3), (21, 4, 3)]
"""Window, children, depth: the tree alone, with a chain behind it, and windows beyond the image of 16 tokens."""


def decoder(window, children=2, depth=3, redraft="maximal", sampling=SAMPLING, **more):
    settings = {"redraft": redraft, "tree": "siblings", "children": children, "depth": depth, **more}
    return build_decoder(settings, window, sampling)


def decode(window, children=2, depth=3, prompts=PROMPTS, target=None, sampling=SAMPLING, **more):
    built = decoder(window, children, depth, sampling=sampling, **more)
    return built.decode(target or HashedTarget(), prompts)


@pytest.mark.parametrize("redraft", REDRAFTS)
def test_a_window_of_one_is_ar_token_for_token(redraft):
    assert torch.equal(decode(1, redraft=redraft).tokens, plain().tokens)


@pytest.mark.parametrize("redraft", REDRAFTS)
@pytest.mark.parametrize(("window", "children", "depth"), WINDOWS)
def test_batches_shards_and_order_change_nothing(window, children, depth, redraft):
    whole = decode(window, children, depth, redraft=redraft)
    for part in ([2], [7], [0, 1, 2, 3], [5, 2, 7, 0, 1, 6, 3, 4]):
        some = decode(window, children, depth, [PROMPTS[i] for i in part], redraft=redraft)
        assert torch.equal(some.tokens, whole.tokens[part])
        for row, image in enumerate(part):
            assert some.trace.row(row) == whole.trace.row(image)


@pytest.mark.parametrize("more", [{"fill": "left_law"}, {"fill": "above_law"}, {"predict": "growth", "growth": 1}])
def test_fills_and_predictions_go_with_a_tree(more):
    whole = decode(9, **more)
    assert not torch.equal(whole.tokens, decode(9).tokens)
    assert torch.equal(decode(9, prompts=PROMPTS[3:5], **more).tokens, whole.tokens[3:5])


@pytest.mark.parametrize(("window", "children", "depth"), WINDOWS)
def test_the_shape_follows_from_refusals_and_the_counters_add_up(window, children, depth):
    trace = decode(window, children, depth).trace
    shape = Siblings(children, depth)
    reach = window - shape.side
    left = 16 - (trace.committed.cumsum(0) - trace.committed)
    full = torch.ones(trace.accepted.shape, dtype=torch.bool)
    full[1:] = trace.accepted[:-1] == trace.drafted[:-1]
    assert full[1:].any() or window < 9, "no pass after the first was a chain"
    assert not full.all()
    assert torch.equal(trace.drafted, torch.where(full, left.clamp(max=window - 1), left.clamp(max=reach - 1)))
    slots = torch.where(full, left.clamp(max=window), left.clamp(max=reach))
    assert torch.equal(trace.committed, torch.minimum(trace.accepted + 1, slots))
    beside = sum((children**level - 1) * (left > level) for level in range(1, depth))
    assert torch.equal(trace.window, torch.where(full | (left == 0), slots, slots + beside))


def grown(children, depth, window, size=30, committed=0):
    """A pass of one row with a tree and one without, over distinct drafts 10, 11, …"""
    board = Board(2, Grid(1, size), 50, window, 0, torch.device("cpu"))
    place = torch.arange(window).expand(2, -1)
    board.put_tokens(place, place + 10, place >= 0, 1)
    board.put_laws(place, torch.full((2, window, 50), 1 / 50, dtype=torch.float64), place >= 0)
    board.tree = torch.tensor([True, False])
    noise = AddressedNoise([Prompt("a", ""), Prompt("b", "")])
    noise.advance()
    left = min(window, size)
    shape = Siblings(children, depth)
    return shape, shape.grow(noise, look(board, left, shape.side), torch.tensor([[1], [1]]))


@pytest.mark.parametrize(("children", "depth", "window"), [(2, 2, 5), (2, 3, 9), (3, 3, 20), (4, 3, 21), (2, 4, 17)])
def test_every_way_through_the_candidates_is_a_way_through_the_nodes(children, depth, window):
    shape, nodes = grown(children, depth, window)
    tokens, parents = nodes.tokens[0].tolist(), nodes.parents[0].tolist()
    candidates = nodes.candidates.token[0].tolist()
    assert all(len(set(level)) == children for level in candidates)

    def way(column):
        return [*(way(parents[column]) if column else []), tokens[column]]

    ways = [way(column) for column in range(len(tokens))]
    main = window - shape.side
    assert ways[main - 1] == [1, *range(10, 10 + main - 1)]
    for levels in range(1, depth):
        for digits in itertools.product(range(children), repeat=levels):
            wanted = [1, *(candidates[level][digit] for level, digit in enumerate(digits))]
            index = sum(digit * children ** (levels - 1 - at) for at, digit in enumerate(digits))
            column = int(shape._column(levels, torch.tensor([index]), nodes.main))
            assert ways[column] == wanted
    assert len(set(map(tuple, ways))) == len(tokens) == window
    assert nodes.tokens[1].tolist() == [1, *range(10, 9 + window)]
    assert nodes.parents[1].tolist() == list(range(-1, window - 1))


def test_siblings_are_drawn_without_those_before_them_and_end_with_their_law():
    target, sampling = HashedTarget(), Sampling(top_k=2)
    assert decode(13, 3, 3, target=target, sampling=sampling).tokens.shape == (8, 16)
    law = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]], dtype=torch.float64)
    rest = without(law, torch.tensor([0, 1]))
    torch.testing.assert_close(rest, torch.tensor([[0, 0.6, 0.4], [0, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("redraft", REDRAFTS)
def test_the_host_waits_once_per_pass(redraft, monkeypatch):
    decode(9, prompts=PROMPTS[:3], redraft=redraft)  # the layout's small tables are made once
    seen, passes = waits(lambda: decode(9, prompts=PROMPTS[:3], redraft=redraft), monkeypatch)
    assert sorted(seen) == sorted(["item"] * passes + ["cpu"] * 3)


def test_siblings_save_passes_that_a_chain_as_long_as_the_main_path_needs():
    target = HashedTarget(Grid(6, 6), vocab=12)
    chain = build_decoder({"redraft": "maximal"}, 5, SAMPLING).decode(target, PROMPTS).trace.nfe.double().mean()
    assert decode(23, 4, 3, target=target).trace.nfe.double().mean() < 0.9 * chain


def test_a_tree_goes_through_a_real_cache():
    """Images of a batch, at different progress, with trees and chains, are those of the images alone."""
    tiny, sampling = load_target("mini/tiny", dtype="float64"), Sampling(top_k=20, guidance=2.0)
    texts = ["a red circle", "two blue squares", "a green ring above a yellow star"]
    together = decode(12, prompts=texts, target=tiny, sampling=sampling)
    for image, text in enumerate(texts):
        alone = decode(12, prompts=[text], target=tiny, sampling=sampling)
        assert torch.equal(alone.tokens[0], together.tokens[image])
        assert alone.trace.row(0) == together.trace.row(image)


@pytest.mark.parametrize("window", [2, 20])
def test_a_window_that_does_not_hold_the_tree_is_refused(window):
    with pytest.raises(UsageError, match=f"at least 21 tokens .* not {window}"):
        decoder(window, 4, 3)


def test_a_window_beyond_image_and_tree_is_refused():
    with pytest.raises(UsageError, match="the image's 16 tokens and the 4 beside its path, not 21"):
        decode(21, 2, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accept": "replay"}, "accept=strict, and cannot be combined with accept=replay"),
        ({"children": 1}, "children must be a whole number from 2"),
        ({"depth": 2.5}, "depth must be a whole number from 2"),
        ({"tree": "sibling"}, "did you mean 'siblings'"),
        ({"tree": "none", "children": 3}, "children belongs to tree=siblings"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        build_decoder({"tree": "siblings", **settings}, 32, SAMPLING)
