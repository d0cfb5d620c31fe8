"""The closed form of Gumbel noise against sampled Gumbel noise."""

import numpy as np
import pytest

from specbench.errors import UsageError
from specbench.verify.polygon import Regions


@pytest.mark.parametrize("vocab", [2, 3])
def test_repeated_draws_from_one_row_have_the_sampled_joint_law(vocab):
    rng = np.random.default_rng(3)
    laws = rng.dirichlet(np.ones(vocab), size=3)
    noise = rng.exponential(size=(400_000, vocab))
    seen = np.stack([(noise / law).argmin(1) for law in laws], 1)
    sampled = np.bincount(seen @ vocab ** np.arange(3), minlength=vocab**3) / len(noise)
    exact, regions = np.zeros(vocab**3), Regions(vocab)
    todo = [(0, 1.0, ())]
    while todo:
        region, chance, tokens = todo.pop()
        if len(tokens) == 3:
            exact[np.dot(tokens, vocab ** np.arange(3))] += chance
            continue
        shares, children = regions.cut(np.array([region]), laws[None, len(tokens)])
        todo += [(children[0, t], chance * shares[0, t], (*tokens, t)) for t in range(vocab) if shares[0, t] > 0]
    assert exact.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(exact - sampled).sum() / 2 < 0.005
    independent = np.einsum("i,j,k->kji", *laws).ravel()
    assert np.abs(independent - sampled).sum() / 2 > 0.05, "one row is not three independent draws"


@pytest.mark.parametrize("vocab", [2, 3])
def test_the_first_cut_is_the_law_and_the_second_cut_is_certain(vocab):
    law = np.random.default_rng(0).dirichlet(np.ones(vocab))[None]
    regions = Regions(vocab)
    shares, children = regions.cut(np.array([0]), law)
    assert np.allclose(shares, law, atol=1e-14, rtol=0)
    again, same = regions.cut(children[0], np.repeat(law, vocab, 0))
    assert np.allclose(again, np.eye(vocab), atol=1e-12)
    assert (same.diagonal() == children[0]).all(), "a certain token leaves the region as it is"


def test_tokens_without_probability_take_no_noise():
    shares, _ = Regions(3).cut(np.array([0]), np.array([[0.25, 0.0, 0.75]]))
    assert np.allclose(shares, [[0.25, 0, 0.75]], atol=1e-14)


def test_more_than_three_tokens_are_refused():
    with pytest.raises(UsageError, match="2 or 3 tokens, not 4"):
        Regions(4)
