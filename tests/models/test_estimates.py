"""What a dry run says of memory, held against what torch allocates: on tiny models, and by hand for one real one."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch
from torch.profiler import ProfilerActivity, profile

from specbench.bench import compose, registry, weights
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Prompt
from specbench.decoding.laws import Sampling
from specbench.models import trunk

LLAMA = {"layers": 2, "width": 32, "heads": 2, "kv_heads": 2, "feedforward": 64, "codes": 64, "tokens": 64}
SIZES = {
    "janus/tiny": {**LLAMA, "row_ends": 0},
    "lumina/tiny": {**LLAMA, "row_ends": 8},
    "emu3/tiny": {**LLAMA, "row_ends": 8, "heads": 4},
    "llamagen/tiny": {**LLAMA, "row_ends": 0},
    "cosmos/tiny": {**LLAMA, "row_ends": 0, "heads": 4, "width": 64, "feedforward": 96, "tokens": 144},
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("window", "batch"), [(8, 1), (32, 2)])
def test_the_estimate_is_near_what_torch_allocates(monkeypatch, name, window, batch):
    target, prompts = registry.load_target(name), [Prompt(str(i), "a red ring") for i in range(batch)]
    guidance = registry.model(name).protocols["official"]["guidance"]
    sizes = {**SIZES[name], "prompt": target.prefix(prompts, guidance is not None).ids.shape[1]}
    known = replace(registry.model(name), sizes={**sizes, "parameters": 0, "picture_parameters": 0})
    monkeypatch.setitem(registry._shipped_models(), name, known)
    monkeypatch.setattr(weights, "GIB", 1)  # bytes: nothing is lost in rounding
    (request,) = compose([f"model={name}", "method=scd", f"window={window}", f"batch={batch}"])
    stated = weights.memory(request)
    held: list[torch.Tensor] = []
    build = trunk.Slab.__init__

    def noted(slab, *given):
        build(slab, *given)
        held.append(slab.kv)

    monkeypatch.setattr(trunk.Slab, "__init__", noted)
    decoder = build_decoder(request.settings, window, Sampling(**request.sampling))
    decoder.decode(target, prompts, seed=0)  # tables that are computed once are no part of a pass
    held.clear()
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as seen:
        decoder.decode(target, prompts, seed=0)
    (cache,) = held
    assert 0 <= cache.nbytes - stated["kv_cache"] <= cache.nbytes / cache.shape[4] * 2 * trunk.STEP
    peak = most(seen) - cache.nbytes
    assert peak / 1.1 <= stated["activations"] <= 1.6 * peak, (peak, stated["activations"])


def most(seen: profile) -> int:
    """The most bytes that were allocated at once."""
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def test_lumina_by_hand():
    """48×48 codes and 48 row ends behind 64 words, batch 1, guided (two rows), window 32, bfloat16."""
    (request,) = compose(["model=lumina", "method=scd", "window=32", "dtype=bfloat16"])
    stated = weights.memory(request)
    layer = 4 * 4096**2 + 3 * 4096 * 11008  # queries, keys, values, output; gate, up, down
    language = 32 * layer + 65536 * 4096 + 8192 * 4096  # words in, codes out
    assert stated["weights"] == pytest.approx((2 * language + 4 * 42e6) / 2**30, rel=0.003)
    row = 32 * 2 * 4096 * 2  # bytes of a token: 512 KiB, as models of that size are said to take
    assert row == 512 * 1024
    assert stated["kv_cache"] == pytest.approx(2 * row * (2304 + 48 + 64 + 32) / 2**30, abs=0.001)
    assert stated["total"] == pytest.approx(15.2, abs=0.05)
