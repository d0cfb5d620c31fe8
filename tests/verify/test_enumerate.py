"""Who checks the enumerator: a plain throwaway decoder, sampled noise, and decoders that break one promise each."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specbench.decoding.interfaces import START, Generation, Key, Prompt
from specbench.decoding.laws import Sampling
from specbench.verify.checks import CheckFailed, KeyReuse, LawError, PoisonRead
from specbench.verify.enumerate import law_of
from specbench.verify.tabular import TabularTarget
from tests.verify.sampling_noise import FreshNoise
from tests.verify.throwaway import Throwaway

A, B = Prompt("a", "a"), Prompt("b", "b")
PLAIN = Sampling()


@pytest.mark.parametrize(("vocab", "size", "window"), [(2, 3, 1), (2, 4, 3), (3, 4, 3), (2, 5, 4)])
def test_a_correct_decoder_has_the_law_of_ar(vocab, size, window):
    target = TabularTarget(vocab, size, seed=1)
    found = law_of(Throwaway(window).decode, target, [A])
    assert found.total_variation(target.ar_law(A, PLAIN)) < 1e-14
    assert found.nfe[0] == pytest.approx(size) if window == 1 else found.nfe[0] < size


@pytest.mark.parametrize("broken", [None, "accept", "residual"])
def test_enumerated_laws_right_or_wrong_are_those_that_sampling_shows(broken):
    target, decoder, batch = TabularTarget(3, 4, seed=2), Throwaway(3, broken), 100_000
    found = law_of(decoder.decode, target, [A])
    generation = decoder.decode(target, [A] * batch, FreshNoise(batch, 4, 3, seed=5))
    code = (generation.tokens * 3 ** torch.arange(3, -1, -1)).sum(1).numpy()
    counts = np.bincount(code, minlength=81)
    cells = found.law > 0
    chi2 = ((counts - batch * found.law)[cells] ** 2 / (batch * found.law[cells])).sum()
    assert not counts[~cells].any()
    assert chi2 < 80 + 5 * np.sqrt(160), f"chi2 {chi2:.0f} on at most 80 degrees of freedom"
    nfe = generation.trace.nfe.double()
    assert abs(nfe.mean() - found.nfe[0]) < 4 * nfe.std() / batch**0.5 + 1e-9
    distance = found.total_variation(target.ar_law(A, PLAIN))
    assert distance < 1e-14 if broken is None else distance > 0.1


def test_two_rows_jointly_have_the_product_law():
    target = TabularTarget(2, 3, seed=0)
    found = law_of(Throwaway(3).decode, target, [A, B])
    product = np.outer(target.ar_law(A, PLAIN), target.ar_law(B, PLAIN)).ravel()
    assert found.total_variation(product) < 1e-14


def test_the_order_and_size_of_batches_change_nothing():
    target = TabularTarget(3, 4, seed=0)
    whole, pieces = (law_of(Throwaway(3).decode, target, [A], rows=rows) for rows in (16384, 37))
    assert whole.histories == pieces.histories
    assert np.abs(whole.law - pieces.law).max() < 1e-15


def test_plain_ar_stays_on_its_own_path_and_redrawing_decoders_leave_it():
    target = TabularTarget(3, 4, seed=0)
    assert law_of(Throwaway(1).decode, target, [A], ar_path=PLAIN).off_path == 0
    assert law_of(Throwaway(3).decode, target, [A], ar_path=PLAIN).off_path > 0.1


def one_pass(body):
    """A decoder of a one-token image that does ``body(noise, law, position, need)`` and emits what it returns."""

    def decode(target, prompts, noise):
        batch = len(prompts)
        canvas = target.begin(prompts)
        noise.advance()
        law = canvas.forward(torch.full((batch, 1), START)).logits.softmax(-1)
        position, need = torch.zeros(batch, 1, dtype=torch.int64), torch.ones(batch, 1, dtype=torch.bool)
        tokens = body(noise, law, position, need, canvas)
        return Generation(tokens, SimpleNamespace(nfe=torch.ones(batch)))

    return decode


def negative(noise, law, position, need, canvas):
    return noise.draw(law * torch.tensor([-1.0, 1.0]), Key("draft", position), need)


def unnormalised(noise, law, position, need, canvas):
    return noise.draw(law / 2, Key("draft", position), need)


def not_finite(noise, law, position, need, canvas):
    return noise.coupled(law * float("nan"), position, need)


def too_likely(noise, law, position, need, canvas):
    return noise.accept(law[..., 0] + 1, Key("accept", position), need).long()


def read_twice(noise, law, position, need, canvas):
    noise.draw(law, Key("draft", position), need)
    return noise.draw(law, Key("draft", position), need)


def committed_row(noise, law, position, need, canvas):
    canvas.keep(torch.ones(len(need), dtype=torch.int64))
    return noise.coupled(law, position, need)


def beyond_the_image(noise, law, position, need, canvas):
    return noise.draw(law, Key("draft", position + 1), need)


def unread(noise, law, position, need, canvas):
    return noise.draw(law, Key("draft", position), ~need)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (negative, LawError),
        (unnormalised, LawError),
        (not_finite, LawError),
        (too_likely, LawError),
        (read_twice, KeyReuse),
        (committed_row, KeyReuse),
        (beyond_the_image, PoisonRead),
        (unread, PoisonRead),
    ],
)
def test_each_broken_promise_has_its_own_check(body, error):
    with pytest.raises(error):
        law_of(one_pass(body), TabularTarget(2, 1), [A])


def test_a_fresh_number_may_be_read_again_in_the_next_pass():
    def twice(noise, law, position, need, canvas):
        noise.draw(law, Key("draft", position), need)
        noise.advance()
        return noise.draw(law, Key("draft", position), need)

    target = TabularTarget(2, 1)
    assert law_of(one_pass(twice), target, [A]).total_variation(target.ar_law(A, PLAIN)) < 1e-15


def test_a_provisional_token_that_was_never_drawn_is_refused():
    def feeds_poison(noise, law, position, need, canvas):
        canvas.keep(torch.ones(len(need), dtype=torch.int64))
        canvas.forward(torch.full_like(position, canvas.target.vocab))
        return noise.draw(law, Key("draft", position), need)

    with pytest.raises(PoisonRead, match="never drawn"):
        law_of(one_pass(feeds_poison), TabularTarget(2, 2), [A])


def test_rows_that_watch_each_other_are_noticed():
    def watches(noise, law, position, need, canvas):
        return noise.draw((law.log() * len(law)).softmax(-1), Key("draft", position), need)

    with pytest.raises(CheckFailed, match="rows are not independent"):
        law_of(one_pass(watches), TabularTarget(3, 1), [A])


def test_the_table_is_ordered_as_its_canvas_reads_it():
    target = TabularTarget(3, 4, seed=7)
    tokens = torch.randint(0, 3, (20, 4))
    canvas = target.begin([A] * 20)
    fed = torch.cat([torch.full((20, 1), START), tokens[:, :3]], 1)
    logits = canvas.forward(fed).logits
    for n in range(4):
        assert torch.equal(logits[:, n], target.table("a")[target.context(tokens[:, :n])])


def test_the_reference_filters_are_those_of_the_definition():
    from specbench.verify.tabular import reference_law

    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert np.allclose(reference_law(logits, Sampling(top_k=2)), [4 / 7, 3 / 7, 0, 0])
    assert np.allclose(reference_law(logits, Sampling(top_p=0.65)), [4 / 7, 3 / 7, 0, 0])
    assert np.allclose(reference_law(logits, Sampling(top_p=0.75)), [4 / 9, 3 / 9, 2 / 9, 0])
    assert np.allclose(reference_law(logits, Sampling(temperature=0.5)), np.array([16, 9, 4, 1]) / 30)
