"""Redrafts, fills and the board, each alone."""

from __future__ import annotations

import pytest
import torch

from specbench.decoding.board import EMPTY, Board, look
from specbench.decoding.fill import FILLS, _source
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import total_variation
from specbench.decoding.noise import AddressedNoise
from specbench.decoding.redraft import REDRAFTS

IMAGES, WIDTH, VOCAB = 512, 9, 16
CPU = torch.device("cpu")


def two_laws():
    generator = torch.Generator().manual_seed(2)
    p, q = torch.rand(2, WIDTH, VOCAB, generator=generator, dtype=torch.float64).pow(3)
    return p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)


def redrafted(name):
    """Old and new tokens of the drafted slots, [IMAGES, WIDTH - 1], with laws q and p."""
    p, q = (law.expand(IMAGES, WIDTH, VOCAB).contiguous() for law in two_laws())
    noise = AddressedNoise([Prompt(f"p{i}", "") for i in range(IMAGES)])
    board = Board(IMAGES, Grid(4, 8), VOCAB, WIDTH, 0, CPU)
    noise.advance(0)
    before, need = look(board, WIDTH), torch.ones(IMAGES, WIDTH, dtype=torch.bool)
    old = REDRAFTS["gumbel" if name == "gumbel" else "independent"](noise, q, before, need)
    board.put_tokens(before.position, old, need, 1)
    board.put_laws(before.position, q, need)
    noise.advance(0)
    new = REDRAFTS[name](noise, p, look(board, WIDTH), need)
    return old[:, :-1], new[:, :-1]


@pytest.mark.parametrize("name", REDRAFTS)
def test_a_redraft_has_the_new_law(name):
    p, _ = two_laws()
    _, new = redrafted(name)
    shares = torch.nn.functional.one_hot(new, VOCAB).double().mean(0)
    error = (shares - p[:-1]) / (p[:-1] * (1 - p[:-1]) / IMAGES).sqrt().clamp(min=1e-3)
    assert float(error.abs().max()) < 5


def test_redrafts_collide_as_their_coupling_promises():
    p, q = (law[:-1] for law in two_laws())
    tv = total_variation(p, q)
    agreed = {name: (lambda a, b: (a == b).double().mean(0))(*redrafted(name)) for name in REDRAFTS}
    error = 5 * 0.5 / IMAGES**0.5
    assert torch.allclose(agreed["maximal"], torch.minimum(p, q).sum(-1), atol=error)
    assert torch.allclose(agreed["independent"], (p * q).sum(-1), atol=error)
    assert bool((agreed["gumbel"] > (1 - tv) / (1 + tv) - error).all())
    assert bool((agreed["gumbel"] < 1 - tv + error).all())
    assert float(agreed["maximal"].mean() - agreed["independent"].mean()) > 0.2  # or nothing was tested


def board_with_history(columns=4, rows=4, width=6, known=7, columns_back=4):
    """Positions before ``known`` hold token = position and a point mass there; the rest is empty."""
    size = columns * rows
    board = Board(1, Grid(rows, columns), size + 1, width, columns_back, CPU)
    place = torch.arange(known)[None]
    board.put_tokens(place, place, place >= 0, 1)
    late = place[:, max(0, known - board.depth) :]
    board.put_laws(late, torch.nn.functional.one_hot(late, size + 1).double(), late >= 0)
    return board


def fill(name, board, known=7, count=5):
    noise = AddressedNoise([Prompt("p", "")])
    position = torch.arange(known, known + count)[None]
    FILLS[name](noise, board, position, position < board.size, torch.tensor([known]), 2)
    return board.tokens[0, known : known + count].tolist(), board.law(position)[0]


def test_left_copies_along_the_row_and_starts_rows_afresh():
    tokens, laws = fill("left", board_with_history())
    assert tokens[0] == 6  # position 7 ends its row: its left neighbour is known
    assert tokens[1] == tokens[2] == tokens[3] == tokens[4]  # 8 starts a row, 9 to 11 copy it
    assert torch.allclose(laws[1], torch.full((17,), 1 / 17, dtype=torch.float64))
    for slot in (0, 2, 3, 4):
        assert laws[slot, tokens[slot]] == 1
        assert laws[slot].sum() == 1


def test_above_copies_the_row_above():
    tokens, laws = fill("above", board_with_history())
    assert tokens == [3, 4, 5, 6, 3]  # 11 stands below 7, which is new itself and stands below 3
    assert all(laws[slot, token] == 1 for slot, token in enumerate(tokens))


def test_above_in_the_first_row_is_uniform():
    tokens, laws = fill("above", board_with_history(columns=8, rows=2, known=3, columns_back=8), known=3, count=4)
    assert torch.allclose(laws, torch.full_like(laws, 1 / 17))
    assert len(set(tokens)) > 1


def test_laws_are_taken_from_the_neighbour():
    tokens, laws = fill("left_law", board_with_history())
    assert tokens[0] == 6
    assert laws[0, 6] == 1
    assert torch.allclose(laws[1:], torch.full_like(laws[1:], 1 / 17))
    tokens, laws = fill("above_law", board_with_history())
    assert tokens == [3, 4, 5, 6, 3]
    assert all(laws[slot, token] == 1 for slot, token in enumerate(tokens))


def test_uniform_and_one_hot_draw_the_same_token_under_another_law():
    soft, hard = fill("uniform", board_with_history()), fill("onehot", board_with_history())
    assert soft[0] == hard[0]
    assert torch.allclose(soft[1], torch.full_like(soft[1], 1 / 17))
    assert all(hard[1][slot, token] == 1 for slot, token in enumerate(hard[0]))


@pytest.mark.parametrize("side", ["left", "above"])
@pytest.mark.parametrize("grid", [Grid(4, 4), Grid(2, 3, 3), Grid(1, 9), Grid(9, 1)])
def test_sources_are_what_walking_slot_by_slot_finds(side, grid):
    for known in range(grid.size):
        for position in range(known, grid.size):
            walk = position
            while True:
                row, column = walk // grid.columns % grid.rows, walk % grid.columns
                if (column if side == "left" else row) == 0 or (walk < known):
                    break
                walk -= 1 if side == "left" else grid.columns
                if walk < known:
                    break
            source, edge = _source(grid, side, torch.tensor([[position]]), torch.tensor([known]))
            assert int(source) == walk
            assert bool(edge) == (walk == position)


def test_the_board_counts_changes_and_remembers_since_when():
    board = Board(1, Grid(1, 4), 8, 4, 0, CPU)
    place = torch.arange(4)[None]
    for in_pass, tokens in enumerate([[1, 2, 3, 4], [1, 5, 3, 4], [1, 2, 3, 6]], start=1):
        board.put_tokens(place, torch.tensor([tokens]), place != 3, in_pass)
    assert board.changes[0, :4].tolist() == [0, 2, 0, 0]
    assert board.since[0, :4].tolist() == [1, 3, 1, 0]
    assert board.tokens[0, 3] == EMPTY  # masked out: never written


def test_a_shortened_window_hides_no_draft():
    board = Board(1, Grid(4, 4), 8, 6, 0, CPU)
    board.committed += 13  # three positions left, all of which a window of six has drafts for
    window = look(board, 3)
    assert window.drafted.tolist() == [[True, True, True]]
    assert not window.has_free
    board.committed -= 8
    assert look(board, 6).drafted.tolist() == [[True] * 5 + [False]]
    assert look(board, 6).has_free
