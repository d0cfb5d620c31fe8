"""The committed slices of official outputs: small, complete, and what the golden folder still says."""

from __future__ import annotations

import numpy as np
import pytest

from scripts import golden_slices
from specbench.models import FAMILIES


def test_every_family_has_a_slice_that_is_small():
    assert set(golden_slices.SLICES) == set(golden_slices.TOLERANCE) == set(FAMILIES)
    assert {file.name for file in golden_slices.DATA.iterdir()} == {f"{family}.npz" for family in FAMILIES}
    assert all(file.stat().st_size <= golden_slices.MOST for file in golden_slices.DATA.iterdir())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slice_is_what_is_cut_from_the_golden_folder(golden, family):
    fresh = golden_slices.cut(golden, family)
    with np.load(golden_slices.DATA / f"{family}.npz") as kept:
        assert set(kept.files) == set(fresh)
        assert all(np.array_equal(kept[name], value) for name, value in fresh.items())


@pytest.mark.parametrize("bits", [7, 15, 23])
def test_rounding_keeps_so_many_bits(bits):
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    found = golden_slices.rounded(values, bits)
    assert (np.abs(found - values) <= np.abs(values) * 2.0 ** -(bits + 1)).all()
    assert not (found.view(np.int32) & ((1 << (23 - bits)) - 1)).any()
    assert np.array_equal(found, values) == (bits == 23)
