"""What every method must satisfy before its numbers mean anything; a plugin gets this suite for free.

Knows: promises that hold for any decoder: W = 1 is AR, rows are independent, every window works, counters add up, the
seed decides, lossless means the law of AR.
Refuses to know: how a method works. Everything runs on tabular targets in float64, in a second or two per method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Generation, Prompt
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError
from specbench.verify.exact import LAW_TOLERANCE, Case, cases_for, drafts_blocks, measure
from specbench.verify.method import decoder_of, wide, windows
from specbench.verify.result import Result
from specbench.verify.spatial import HiddenTable
from specbench.verify.suite import run_suite
from specbench.verify.tabular import TabularTarget
from specbench.verify.trace_checks import check_trace

PROMPTS = tuple(Prompt(name, name) for name in ("a", "b", "c", "d", "e", "f", "g"))
SIZE, VOCAB, WINDOW = 7, 4, 3


def conformance(method: Mapping[str, Any]) -> Result:
    """Run every check; the result's detail names those that failed and why."""
    return run_suite(method["name"], method, CHECKS)


def one_token_windows_are_ar(method: Mapping[str, Any]) -> str | None:
    """W = 1 equals AR token for token; blocks have no window."""
    if drafts_blocks(method):
        return None
    for seed in range(3):
        ar = build_decoder({"decoder": "ar"}, None, Sampling()).decode(_target(), PROMPTS, seed=seed)
        if not torch.equal(_decode(method, window=1, seed=seed).tokens, ar.tokens):
            return f"tokens differ from AR at seed {seed}"
    return None


def batches_do_not_matter(method: Mapping[str, Any]) -> str | None:
    """Alone, in threes, backwards: each image and its counters stay the same."""
    together = _decode(method)
    for order in [[i] for i in range(7)] + [[0, 1, 2], [3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]:
        part = _decode(method, prompts=tuple(PROMPTS[i] for i in order))
        for row, image in enumerate(order):
            if not torch.equal(part.tokens[row], together.tokens[image]):
                return f"the image of one prompt changes in a batch of {len(order)}"
            if int(part.trace.nfe[row]) != int(together.trace.nfe[image]):
                return f"nfe of one prompt changes in a batch of {len(order)}"
    return None


def every_window_works(method: Mapping[str, Any]) -> str | None:
    """1…N decode with consistent counters; N + 1 and 0 are refused. A tree asks for at least its nodes, and may have a
    window that is wider than the image by those beside its main path (:func:`windows`). Without a window, the counters
    alone are asked for.

    Blocks may take more passes than AR: rounds cost what they cost, whatever the image's size.
    """
    if drafts_blocks(method):
        check_trace(_decode(method), rounds=True)
        return None
    taken = windows(method, SIZE)
    for window in taken:
        generation = _decode(method, window=window)
        check_trace(generation)
        if bool((generation.trace.nfe > SIZE).any()):
            return f"window {window} takes more passes than AR"
    if method["settings"].get("decoder") == "ar":
        return None
    for window in {0, taken[1] - 1, taken[-1] + 1} - {1}:
        try:
            _decode(method, window=window)
        except UsageError:
            continue
        return f"window {window} of an image of {SIZE} tokens was not refused"
    return None


def seeds_decide(method: Mapping[str, Any]) -> str | None:
    """The same seed and sample repeat an image; another seed or sample gives other images."""
    first = _decode(method).tokens
    if not torch.equal(first, _decode(method).tokens):
        return "the same seed gave different images"
    if torch.equal(first, _decode(method, seed=1).tokens):
        return "another seed gave the same images"
    return "another sample gave the same images" if torch.equal(first, _decode(method, sample=1).tokens) else None


def lossless_means_the_law_of_ar(method: Mapping[str, Any]) -> str | None:
    """The exact distance on one small table, for methods that call themselves lossless."""
    measured = measure(method, Case(columns=2) if drafts_blocks(method) else cases_for(method)[0])
    if method["lossless"] and measured.total_variation > LAW_TOLERANCE:
        return f"total variation {measured.total_variation:.2e} from AR"
    return None


CHECKS: tuple[Callable[[Mapping[str, Any]], str | None], ...] = (
    one_token_windows_are_ar,
    batches_do_not_matter,
    every_window_works,
    seeds_decide,
    lossless_means_the_law_of_ar,
)


def _target(blocks: bool = False) -> TabularTarget:
    return HiddenTable(VOCAB, SIZE, seed=11) if blocks else TabularTarget(VOCAB, SIZE, seed=11)


def _decode(
    method: Mapping[str, Any],
    window: int | None = None,
    prompts: tuple[Prompt, ...] = PROMPTS,
    seed: int = 0,
    sample: int = 0,
) -> Generation:
    decoder = decoder_of(method, wide(method, WINDOW) if window is None else window, Sampling())
    return decoder.decode(_target(drafts_blocks(method)), prompts, seed=seed, sample=sample)
