"""The loops on a real transformer with a real cache (seeded, tiny, float64)."""

from __future__ import annotations

import pytest
import torch

from specbench.decoding.build import build_decoder
from specbench.decoding.laws import Sampling
from specbench.models import load_target

SAMPLING = Sampling(top_k=20, guidance=2.0)
PROMPTS = ["a red circle", "two blue squares", "a green ring above a yellow star"]
STRICT = {"sjd": "independent", "scd": "maximal", "scd_gs": "gumbel"}


@pytest.fixture(scope="module")
def tiny():
    return load_target("mini/tiny", dtype="float64")


def ar(target, prompts=PROMPTS):
    return build_decoder({"decoder": "ar"}, None, SAMPLING).decode(target, prompts).tokens


@pytest.mark.parametrize("window", [1, 4, 16])
def test_replay_repeats_ar_through_the_cache(tiny, window):
    decoder = build_decoder({"redraft": "gumbel", "accept": "replay"}, window, SAMPLING)
    assert torch.equal(decoder.decode(tiny, PROMPTS).tokens, ar(tiny))


@pytest.mark.parametrize("method", STRICT)
def test_a_window_of_one_is_ar_and_batches_change_nothing(tiny, method):
    one = build_decoder({"redraft": STRICT[method]}, 1, SAMPLING)
    assert torch.equal(one.decode(tiny, PROMPTS).tokens, ar(tiny))
    wide = build_decoder({"redraft": STRICT[method]}, 6, SAMPLING)
    together = wide.decode(tiny, PROMPTS)
    for image, prompt in enumerate(PROMPTS):
        alone = wide.decode(tiny, [prompt])
        assert torch.equal(alone.tokens[0], together.tokens[image])
        assert alone.trace.row(0) == together.trace.row(image)
