"""The papers' trend, recomputed on mini: SJD stops gaining from wider windows, couplings go on (SCD, 2510.24211).

Published on Lumina-mGPT at a window of 64: SJD 2.31 and SCD 4.21 times fewer passes than AR, SJD flat from 16 on.
"""

from __future__ import annotations

import numpy as np
import pytest

from specbench import load_decoder, load_target
from specbench.bench.stats import Interval, ratio_of_sums
from specbench.models.mini import weights
from specbench.prompts import load_prompts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not weights.PATH.exists(), reason="mini's weights are not trained yet"),
]
PROMPTS = 24


@pytest.fixture(scope="module")
def passes() -> dict[tuple[str, int], np.ndarray]:
    """NFE of every image by (method, window)."""
    target, prompts = load_target("mini"), load_prompts("scenes", limit=PROMPTS).items
    found = {}
    for method in ("sjd", "scd", "scd_gs"):
        for window in (16, 64):
            decoder = load_decoder(method, window=window)
            found[method, window] = decoder.decode(target, list(prompts), seed=0).trace.nfe.numpy()
    return found


def ratio(over: np.ndarray, under: np.ndarray) -> Interval:
    """How many times more passes ``over`` took, paired by prompt."""
    return ratio_of_sums(over.tolist(), under.tolist(), [str(i) for i in range(len(over))])


def test_sjd_flattens_as_the_window_grows(passes: dict[tuple[str, int], np.ndarray]) -> None:
    gain = ratio(passes["sjd", 16], passes["sjd", 64])
    print(f"sjd, window 64 against 16: {gain}")
    assert gain.value < 1.15


@pytest.mark.parametrize("method", ["scd", "scd_gs"])
def test_couplings_keep_gaining(passes: dict[tuple[str, int], np.ndarray], method: str) -> None:
    gain = ratio(passes[method, 16], passes[method, 64])
    print(f"{method}, window 64 against 16: {gain}")
    assert gain.low > 1


@pytest.mark.parametrize("method", ["scd", "scd_gs"])
def test_couplings_need_far_fewer_passes_than_sjd(passes: dict[tuple[str, int], np.ndarray], method: str) -> None:
    factor = ratio(passes["sjd", 64], passes[method, 64])
    print(f"sjd over {method} at window 64: {factor}")
    assert factor.value >= 1.5
    assert factor.low > 1
