"""The suite that a new method gets for free: the six pass it, and each check fails for a decoder that deserves it."""

from types import SimpleNamespace

import pytest
import torch

from specbench.decoding.accept import Strict, Verdict
from specbench.decoding.board import Board
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import START
from specbench.decoding.loop import Jacobi
from specbench.decoding.noise import AddressedNoise
from specbench.decoding.trace import Trace
from specbench.verify import verify
from specbench.verify.conformance import CHECKS, conformance
from specbench.verify.exact import Case, exact
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


def test_a_decoder_that_keeps_a_pass_to_itself_is_found_out_by_the_count():
    class Hides:
        lossless = True

        def __init__(self, window, sampling):
            self.honest = build_decoder(SETTINGS["sjd"], window, sampling)

        def decode(self, target, prompts, **options):
            target.begin(prompts).forward(torch.full((len(prompts), 1), START))
            return self.honest.decode(target, prompts, **options)

    hidden = {**method("sjd"), "build": Hides}
    (small,) = (exact(hidden, (Case(vocab=2, size=3, window=2),)),)
    assert small.passed is False
    assert "target passes, and" in small.detail
    assert "target passes, and" in conformance(hidden).detail


@pytest.mark.parametrize("error", [RuntimeError("no luck"), SystemExit(3), KeyError("x")])
@pytest.mark.parametrize("when", ["built", "decoding"])
@pytest.mark.parametrize("kind", ["exact", "conformance", "statistical"])
def test_a_method_that_raises_fails_its_own_verdict(kind, when, error):
    def fail(*_, **__):
        raise error

    build = fail if when == "built" else lambda window, sampling: SimpleNamespace(decode=fail, lossless=True)
    (result,) = verify([{**method("sjd"), "build": build, "note": "fill=left"}], [kind])
    assert result["passed"] is False
    assert type(error).__name__ in result["detail"]
    assert result["detail"].startswith("fill=left: ")
