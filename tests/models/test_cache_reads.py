"""A pass reads the cache as far as it can be in use and no further: cheaper, and without a trace in any number."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from specbench.api import load_target
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Generation
from specbench.decoding.laws import Sampling
from specbench.models import trunk
from specbench.models.prompted import PromptedCanvas
from tests.models.families import PROMPTS, guided

JACOBI = {"decoder": "jacobi", "redraft": "maximal"}
TREE = JACOBI | {"tree": "siblings", "children": 2, "depth": 2}
WAYS = [({"decoder": "ar"}, None), (JACOBI, 9), (TREE, 12)]
MODELS = ["janus/tiny", "lumina/tiny"]  # without and with row ends


@pytest.fixture(scope="module", params=MODELS)
def target(request: pytest.FixtureRequest) -> Any:
    return load_target(request.param, dtype="float64")


def decode(target: Any, settings: dict[str, Any], window: int | None, images: int) -> Generation:
    decoder = build_decoder(settings, window, Sampling(guidance=guided(target)))
    return decoder.decode(target, PROMPTS[:images], seed=5)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Of each pass: slots read, slots in use, slots there are; steps of one slot."""
    monkeypatch.setattr(trunk, "STEP", 1)
    seen, store = [], trunk.Slab.update

    def update(slab: trunk.Slab, keys, values, layer, *rest, **named):
        out = store(slab, keys, values, layer, *rest, **named)
        if layer == 0:
            seen.append((out[0].shape[2], int(slab.at.max()) + 1, slab.slots))
        return out

    monkeypatch.setattr(trunk.Slab, "update", update)
    return seen


@pytest.mark.parametrize(("settings", "window"), WAYS, ids=["ar", "chain", "tree"])
def test_one_image_reads_exactly_what_is_in_use(target, reads, settings, window):
    decode(target, settings, window, 1)
    assert all(read == used for read, used, _ in reads)
    assert sum(read for read, _, _ in reads) < 0.8 * sum(there for _, _, there in reads)


@pytest.mark.parametrize(("settings", "window"), WAYS, ids=["ar", "chain", "tree"])
def test_what_is_not_read_changes_no_token(target, reads, monkeypatch, settings, window):
    """Images at their own pace: tokens as over the whole cache, whether or not the loop tells how far they are."""
    short = decode(target, settings, window, 3).tokens
    assert all(used <= read <= there for read, used, there in reads)
    told = sum(read for read, _, _ in reads)
    reads.clear()
    monkeypatch.setattr(PromptedCanvas, "advance", lambda self, moved: None)
    assert torch.equal(decode(target, settings, window, 3).tokens, short)
    untold = sum(read for read, _, _ in reads)
    assert told == untold if window is None else told < untold
    reads.clear()
    monkeypatch.setattr(trunk, "STEP", 4096)
    assert torch.equal(decode(target, settings, window, 3).tokens, short)
    assert all(read == there for read, _, there in reads)


def test_a_bound_that_is_too_low_would_be_seen(target, reads):
    """A canvas that is told a lie reads less than is in use, or fails: what the others assert can fail."""
    tokens = torch.randint(target.vocab, (1, 12), generator=torch.Generator().manual_seed(1))
    canvas = target.begin(PROMPTS[:1])
    canvas.forward(tokens)
    canvas.keep(torch.tensor([8]))
    canvas.advance(2)
    canvas.forward(tokens)
    read, used, _ = reads[-1]
    assert read < used


def test_steps_are_whole():
    assert [trunk.in_steps(slots) for slots in (0, 1, 64, 65)] == [0, 64, 64, 128]
