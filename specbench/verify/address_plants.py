"""Defects planted in the addresses of the real noise.

Knows: which parts an address has, and how to make production forget one.
Refuses to know: whether a defect is noticed, and what it would do to a law (``defective_noise`` models that).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from specbench.decoding.interfaces import Key
from specbench.decoding.noise import AddressedNoise
from specbench.verify.plants import Patch, Plant


def without(part: str, role: str | None = None) -> Plant:
    """A plant: fresh numbers of the real noise (only those of ``role``, if given) forget one ``part`` of their address.

    A number that forgets its role is taken for a draft's, and a draft's for a coin's.
    """

    def plant(patch: Patch) -> None:
        uniform = AddressedNoise.uniform

        def call(self: AddressedNoise, key: Key) -> Tensor:
            if role not in (None, key.role):
                return uniform(self, key)
            bare = {
                "position": key._replace(position=key.position * 0),
                "role": key._replace(role="accept" if role == "draft" else "draft"),
                "index": key._replace(index=0),
            }.get(part, key)
            hidden = {"pass": "_pass", "image": "_image"}.get(part)
            if hidden is None:
                return uniform(self, bare)
            kept = getattr(self, hidden)
            setattr(self, hidden, kept * 0)
            try:
                return uniform(self, bare)
            finally:
                setattr(self, hidden, kept)

        patch(AddressedNoise, "uniform", call)

    return plant


def gumbel_rows(change: Callable[[AddressedNoise, Tensor], Tensor]) -> Plant:
    """A plant: the Gumbel rows of the real noise are read at ``change(noise, position)``."""

    def plant(patch: Patch) -> None:
        coupled = AddressedNoise.coupled

        def call(self: AddressedNoise, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
            return coupled(self, law, change(self, position), need)

        patch(AddressedNoise, "coupled", call)

    return plant


def gumbel_rows_without_image(patch: Patch) -> None:
    """All images read the same Gumbel rows."""
    coupled = AddressedNoise.coupled

    def call(self: AddressedNoise, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
        kept, self._image = self._image, self._image * 0
        try:
            return coupled(self, law, position, need)
        finally:
            self._image = kept

    patch(AddressedNoise, "coupled", call)
