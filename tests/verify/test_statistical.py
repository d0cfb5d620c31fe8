"""The statistical suite: its chi-square, its power on planted distances, and one method end to end."""

import numpy as np
import pytest
import torch

from specbench.models import load_target
from specbench.verify import chisquare, statistical
from specbench.verify.mutants import planted
from specbench.verify.plants import accept_all, residual_is_p
from tests.verify.methods import SETTINGS, method

ROWS, N, V = 4608, 16, 32


def test_chi_square_against_printed_tables():
    assert chisquare.tail(18.307, 10) == pytest.approx(0.05, abs=1e-5)
    assert chisquare.critical(0.01, 1) == pytest.approx(6.6349, abs=1e-4)
    assert chisquare.power(0, 0.05, 7) == pytest.approx(0.05, abs=1e-9)
    # Cohen's table: df 1, alpha .05, power .80 needs a noncentrality of 7.849
    assert chisquare.power(7.849, 0.05, 1) == pytest.approx(0.80, abs=1e-3)


def sampled(distance=0.0, seed=0):
    """Tokens [ROWS, N] from random laws mixed, with the right share, with the laws of other contexts."""
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(V, 0.3), size=(ROWS, N))
    other = np.sort(laws, -1)[..., ::-1]
    other = np.take_along_axis(other, np.argsort(np.argsort(-laws, -1), -1), -1) ** 0.5
    other /= other.sum(-1, keepdims=True)  # flatter: a wrong temperature
    share = distance / (np.abs(other - laws).sum(-1).mean() / 2)
    wrong = laws + share * (other - laws)
    tokens = (rng.random((ROWS, N, 1)) > wrong.cumsum(-1)).sum(-1).clip(max=V - 1)
    return torch.from_numpy(tokens), laws


def smallest_p(distance, seed):
    return min(test.p_value for test in statistical.judge_tokens(*sampled(distance, seed)))


def test_right_laws_pass_and_p_values_are_honest():
    values = [test.p_value for seed in range(3) for test in statistical.judge_tokens(*sampled(seed=seed))]
    assert min(values) > 1e-4
    assert 0.25 < np.mean(values) < 0.75


def test_a_distance_of_two_hundredths_is_seen():
    assert smallest_p(0.02, seed=0) < statistical.ALPHA / 10
    assert chisquare.detectable(ROWS * N // 2, statistical.ALPHA / 10, 8) <= statistical.DETECT


def test_a_token_of_probability_zero_is_seen():
    tokens, laws = sampled()
    laws[0, 0] = np.eye(V)[(int(tokens[0, 0]) + 1) % V]
    (test,) = statistical.judge_tokens(tokens, laws)
    assert test.name == "support" and test.p_value == 0


@pytest.mark.parametrize("which", ["neighbours", "rows"])
def test_shared_noise_is_seen(which):
    """The same quantile read twice, by the next position or by the next image of the batch."""
    rng = np.random.default_rng(1)
    laws = rng.dirichlet(np.full(V, 0.3), size=(ROWS, N))
    laws = np.sort(laws, -1)[..., ::-1]
    u = rng.random((ROWS, N))
    if which == "rows":
        u[1::2] = u[::2]
    else:
        u[:, 1::2] = u[:, ::2]
    tokens = torch.from_numpy((u[..., None] > laws.cumsum(-1)).sum(-1).clip(max=V - 1))
    p_values = {test.name: test.p_value for test in statistical.judge_tokens(tokens, laws)}
    assert p_values[which] < 1e-12
    assert p_values["token"] > 1e-4, "the marginal law is right, which is the point"


def test_sjd_follows_its_law_on_the_tiny_transformer_and_broken_sjd_does_not():
    tiny = load_target("mini/tiny")
    for plant, passes in ((None, True), (residual_is_p, False), (accept_all, False)):
        with planted(plant):
            result = statistical.statistical(method("sjd"), target=tiny, window=4)
        assert result.passed is passes, result.detail
        assert "99 % power" in result.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_method_follows_its_law(name):
    assert statistical.statistical(method(name)).passed


def test_contexts_of_the_sharpened_head_differ():
    _, contrast = statistical.sharpen(load_target("mini/tiny"), statistical.TERMS[0])
    assert contrast >= statistical.CONTRAST
