"""The real noise: quality of its numbers, exactness of its draws, and what its addresses tell apart.

``specbench.verify.noise_checks`` tests the promises through the three verbs for any noise; here the inside is known.
"""

from __future__ import annotations

import math

import pytest
import torch

from specbench.decoding import noise as noise_module
from specbench.decoding.interfaces import Key, Prompt
from specbench.decoding.noise import AddressedNoise, as_prompts, inverse_cdf

IMAGES, COLUMNS = 64, 128


def source(images=IMAGES, seed=0, sample=0, passes=1, kind=AddressedNoise):
    noise = kind([Prompt(f"p{i}", "") for i in range(images)], seed, sample)
    for _ in range(passes):
        noise.advance(0)
    return noise


def places(images=IMAGES, columns=COLUMNS, start=0):
    return torch.arange(start, start + columns).expand(images, columns)


def uniforms(role="draft", index=0, start=0, **keywords):
    return source(**keywords).uniform(Key(role, places(start=start), index))


def chi_square(u, cells=64):
    counts = torch.histc(u.double(), bins=cells, min=0, max=1)
    expected = u.numel() / cells
    return float(((counts - expected) ** 2 / expected).sum() - (cells - 1)) / math.sqrt(2 * (cells - 1))


def correlation(a, b):
    """In standard errors of independence."""
    a, b = a.flatten() - 0.5, b.flatten() - 0.5
    return float((a * b).mean() * 12 * math.sqrt(a.numel()))


def test_uniforms_are_open_even_and_fine():
    u = uniforms()
    assert u.dtype == torch.float64
    assert bool(((u > 0) & (u < 1)).all())
    assert chi_square(u) < 5
    low = (u * 2**32) % 1  # what lies below 32 bits is random too
    assert chi_square(low) < 5
    assert u.unique().numel() == u.numel()


@pytest.mark.parametrize(
    "other",
    [
        {"passes": 2}, {"seed": 1}, {"sample": 1}, {"start": 1}, {"start": COLUMNS}, {"index": 1},
        {"role": "accept"}, {"role": "residual"}, {"role": "fill"}, {"role": "child"},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_of_an_address_counts(other):
    a, b = uniforms(), uniforms(**other)
    assert abs(correlation(a, b)) < 5
    assert not bool((a == b).any())


def test_neighbours_are_independent():
    u = uniforms()
    for step in (1, 2, 3, 16, 64):
        assert abs(correlation(u[:, :-step], u[:, step:])) < 5
        assert abs(correlation(u[:-1], u[1:])) < 5


def test_one_flipped_bit_flips_half_of_the_hash():
    x = torch.arange(1000) * 977 + 12345
    for bit in (0, 1, 7, 31, 62):
        flipped = noise_module._mix(x.clone()) ^ noise_module._mix(x ^ (1 << bit))
        ones = sum(((flipped >> k) & 1).double().mean() for k in range(64))
        assert abs(float(ones) - 32) < 1


def test_the_row_in_the_batch_is_no_part_of_an_address():
    prompts = [Prompt(f"p{i}", "") for i in range(5)]
    law = torch.rand(5, 8, 32, dtype=torch.float64)
    law = law / law.sum(-1, keepdim=True)
    whole, part = AddressedNoise(prompts), AddressedNoise([prompts[3], prompts[1]])
    key, some = Key("draft", places(5, 8)), Key("draft", places(2, 8))
    need = torch.ones(5, 8, dtype=torch.bool)
    pick = [3, 1]
    assert torch.equal(whole.draw(law, key, need)[pick], part.draw(law[pick], some, need[pick]))
    assert torch.equal(whole.accept(law[..., 0], key, need)[pick], part.accept(law[pick][..., 0], some, need[pick]))
    assert torch.equal(whole.coupled(law, key.position, need)[pick], part.coupled(law[pick], some.position, need[pick]))


def test_the_numbers_are_pinned():
    # a change here changes every image ever recorded: it must be meant
    u = AddressedNoise([Prompt("p0", "")], seed=3, sample=1).uniform(Key("fill", torch.tensor([[0, 7]]), 2))
    assert [f"{x:.12f}" for x in u.flatten().tolist()] == PINNED


PINNED = ["0.439102800785", "0.341295650319"]


def test_bare_captions_are_named_by_their_text():
    (a, b), (c,) = as_prompts(["x", Prompt("id", "x")]), as_prompts(["x"])
    assert a == c
    assert b.id == "id"
    assert a.id != as_prompts(["y"])[0].id


@pytest.mark.parametrize("vocab", [2, 3, 7, 12, 1000, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_match_a_plain_cumulative_sum(vocab, dtype):
    law = torch.rand(4, 500, vocab, dtype=dtype).masked_fill_(torch.rand(4, 500, vocab) < 0.5, 0)
    law[..., vocab // 2] += 0.01
    law /= law.sum(-1, keepdim=True)
    u = torch.rand(4, 500, dtype=torch.float64)
    token = inverse_cdf(law, u)
    cdf = law.double().cumsum(-1)
    upper = cdf.gather(-1, token[..., None]).squeeze(-1)
    lower = upper - law.gather(-1, token[..., None]).squeeze(-1).double()
    slack = 1e-6 if dtype == torch.float32 else 1e-12
    assert bool((lower - slack <= u).all() and (u <= upper + slack).all())


@pytest.mark.parametrize("vocab", [3, 16, 1000])
def test_impossible_tokens_never_come_out_at_any_quantile(vocab):
    edges = torch.tensor([2.0**-53, 1e-9, 0.25, 0.5, 0.75, 1 - 1e-9, 1 - 2.0**-53], dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            law = torch.zeros(1, 1, vocab, dtype=dtype)
            some = torch.randperm(vocab, generator=generator)[: 1 + seed % 3]
            law[..., some] = torch.rand(len(some), generator=generator).to(dtype) + 1e-30
            law = (law / law.sum()).expand(1, len(edges), vocab).contiguous()
            token = inverse_cdf(law, edges[None])
            assert bool((law.gather(-1, token[..., None]) > 0).all())
            coupled = source(1).coupled(law, places(1, len(edges)), torch.ones(1, 1))
            assert bool((law.gather(-1, coupled[..., None]) > 0).all())


def test_an_expanded_law_is_drawn_like_its_copy():
    row = torch.rand(1, 1, 24, dtype=torch.float64)
    law = (row / row.sum()).expand(3, 50, 24)
    u = torch.rand(3, 50, dtype=torch.float64)
    assert torch.equal(inverse_cdf(law, u), inverse_cdf(law.contiguous(), u))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_follow_their_law(dtype):
    law = torch.tensor([0.4, 0, 0.3, 0.2, 0.08, 0.02], dtype=dtype)
    laws = law.expand(IMAGES, COLUMNS, 6).contiguous()
    n = IMAGES * COLUMNS
    for tokens in (
        source().draw(laws, Key("draft", places()), laws[..., 0] > 0),
        source().coupled(laws, places(), laws[..., 0] > 0),
    ):
        counts = torch.bincount(tokens.flatten(), minlength=6).double()
        keep = law > 0
        expected = law[keep].double() * n
        assert float(((counts[keep] - expected) ** 2 / expected).sum()) < 30  # 4 degrees of freedom: p = 5e-6
        assert counts[~keep].sum() == 0


def test_float32_races_resolve_the_winner_of_a_large_codebook():
    # the winner of V racers has E near 1/V; 24 bits at the far end of u would leave a few hundred values of it
    values = 1 / source(1)._hash(places(1, 4), 65536, torch.float32)
    smallest = values.flatten().sort().values[:64]
    assert smallest.unique().numel() == 64
    exact = 1 / source(1)._hash(places(1, 4), 65536, torch.float64)
    assert torch.allclose(values.double()[exact < 1], exact[exact < 1], rtol=2e-6, atol=0)
    assert torch.allclose((-values.double()).exp(), (-exact).exp(), rtol=0, atol=2e-7)
    assert chi_square(torch.exp(-exact)) < 5


def test_the_ring_returns_what_hashing_anew_would():
    ring, positions = source(3), torch.tensor([0, 0, 0])
    moves = torch.randint(0, 6, (40, 3), generator=torch.Generator().manual_seed(1))
    law = torch.rand(3, 12, 20, dtype=torch.float64)
    width = 12
    for step, move in enumerate(moves):
        position = positions[:, None] + torch.arange(width)
        again = ring._races(position, law[:, :width])
        assert torch.equal(again, ring._hash(position, 20, torch.float64))
        positions = positions + move
        ring.advance(int(move.max()))
        if step % 7 == 3:
            ring.advance(0)  # a pass that asked for no row
        if step == 30:
            width = 5


def test_the_ring_hashes_only_what_is_new(monkeypatch):
    hashed = []
    original = AddressedNoise._hash
    monkeypatch.setattr(AddressedNoise, "_hash", lambda s, p, *r: (hashed.append(p.shape[1]), original(s, p, *r))[1])
    noise, law = source(1), torch.rand(1, 8, 10)
    for start, moved in ((0, 0), (3, 3), (4, 1), (4, 0), (12, 8)):
        noise.advance(moved)
        noise.coupled(law, places(1, 8, start), law[..., 0] > 0)
    assert hashed == [8, 3, 1, 8]


def test_an_understated_move_would_be_seen():
    # the ring trusts `moved`; this is the test that could catch a loop which reports it wrong
    noise, law = source(1), torch.rand(1, 8, 10)
    noise.coupled(law, places(1, 8, 0), law[..., 0] > 0)
    noise.advance(1)
    assert not torch.equal(noise._races(places(1, 8, 4), law), noise._hash(places(1, 8, 4), 10, law.dtype))


def laws(images=IMAGES, columns=COLUMNS, vocab=16):
    generator = torch.Generator().manual_seed(5)
    p, q = torch.rand(2, images, columns, vocab, generator=generator, dtype=torch.float64).pow(4)
    return p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)


def collisions(kind=AddressedNoise):
    """Agreement of two successive fresh drafts with p, then q, minus Σ p q, in standard errors."""
    p, q = laws()
    noise, need = source(kind=kind), torch.ones(IMAGES, COLUMNS, dtype=torch.bool)
    first = noise.draw(p, Key("draft", places()), need)
    noise.advance(0)
    second = noise.draw(q, Key("draft", places()), need)
    rate = (p * q).sum(-1)
    return float(((first == second).double() - rate).sum() / (rate * (1 - rate)).sum().sqrt())


class NoPass(AddressedNoise):
    def advance(self, moved=None):
        super().advance(moved)
        self._pass = 0


class NoPosition(AddressedNoise):
    def uniform(self, key):
        return super().uniform(key._replace(position=key.position * 0))


class NoImage(AddressedNoise):
    def __init__(self, prompts, seed=0, sample=0, device="cpu"):
        super().__init__([Prompt("same", "")] * len(prompts), seed, sample, device)


def test_successive_fresh_drafts_collide_at_the_rate_of_chance():
    assert abs(collisions()) < 5
    assert collisions(NoPass) > 20  # the planted defect: SJD would silently be a coupled method


def test_planted_keys_without_position_or_image_are_caught():
    for kind, axis in ((NoPosition, 1), (NoImage, 0)):
        u = source(kind=kind).uniform(Key("draft", places()))
        one, two = u.narrow(axis, 0, u.shape[axis] - 1), u.narrow(axis, 1, u.shape[axis] - 1)
        assert correlation(one, two) > 20


def test_coupled_draws_agree_at_least_as_often_as_their_bound():
    p, q = laws()
    noise, need = source(), torch.ones(IMAGES, COLUMNS, dtype=torch.bool)
    first = noise.coupled(p, places(), need)
    noise.advance(0)
    second = noise.coupled(q, places(), need)
    tv = (p - q).abs().sum(-1) / 2
    bound = ((1 - tv) / (1 + tv)).mean()
    agreed = (first == second).double().mean()
    assert bound - 0.02 < agreed < 1 - tv.mean() + 0.02
