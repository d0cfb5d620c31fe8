"""The suite that a new method gets for free: the six pass it, and each check fails for a decoder that deserves it."""

import pytest
import torch

from specbench.decoding.accept import Strict, Verdict
from specbench.decoding.board import Board
from specbench.decoding.loop import Jacobi
from specbench.decoding.noise import AddressedNoise
from specbench.decoding.trace import Trace
from specbench.verify.conformance import CHECKS, conformance
from specbench.verify.mutants import planted
from specbench.verify.plants import accept_all
from tests.verify.methods import SETTINGS, method


@pytest.mark.parametrize("name", SETTINGS)
def test_the_six_methods_conform(name):
    result = conformance(method(name))
    assert result.passed, result.detail
    assert result.detail == f"{len(CHECKS)} checks"


def numbered_by_row(patch):
    begin = AddressedNoise.__init__

    def init(self, prompts, *rest):
        begin(self, [p._replace(id=str(i)) for i, p in enumerate(prompts)], *rest)

    patch(AddressedNoise, "__init__", init)


def deaf_to_seeds(patch):
    begin = AddressedNoise.__init__
    patch(AddressedNoise, "__init__", lambda self, prompts, seed=0, sample=0, device="cpu": begin(self, prompts))


def miscounts(patch):
    patch(Trace, "nfe", property(lambda self: (self.window >= 0).sum(0)))


def takes_any_window(patch):
    decode = Jacobi.decode

    def lenient(self, target, *rest, **named):
        object.__setattr__(self, "window", min(self.window, target.grid.size))
        return decode(self, target, *rest, **named)

    patch(Jacobi, "decode", lenient)


def finished_images_go_on_counting(patch):
    judge = Strict.__call__

    def call(self, noise, p, law, window, redraft):
        verdict = judge(self, noise, p, law, window, redraft)
        return Verdict(torch.where(window.live.any(1), verdict.accepted, 1), verdict.tokens)

    patch(Strict, "__call__", call)


def rows_share_laws(patch):
    law_at = Board.law_at
    patch(Board, "law_at", lambda self, at, token: law_at(self, at, token).mean(0, keepdim=True).expand(at.shape))


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (numbered_by_row, "batches do not matter"),
        (rows_share_laws, "batches do not matter"),
        (deaf_to_seeds, "seeds decide"),
        (miscounts, "every window works"),
        (finished_images_go_on_counting, "every window works"),
        (takes_any_window, "every window works"),
        (accept_all, "lossless means the law of ar"),
    ],
)
def test_each_check_fails_for_who_deserves_it(plant, check):
    with planted(plant):
        result = conformance(method("sjd"))
    assert result.passed is False
    assert check in result.detail, result.detail


def test_a_window_of_one_that_is_not_ar_fails():
    def other_rows_in_windows(patch):
        free = Jacobi.decode

        def decode(self, target, prompts, seed=0, sample=0, noise=None):
            return free(self, target, prompts, seed + 1, sample, noise)

        patch(Jacobi, "decode", decode)

    with planted(other_rows_in_windows):
        result = conformance(method("scd_gs"))
    assert result.passed is False and "one token windows are ar" in result.detail


def test_a_lossy_method_may_have_another_law():
    with planted(accept_all):
        result = conformance({**method("sjd"), "lossless": False})
    assert "law of ar" not in result.detail
