"""A method as the verifier is given it, and the decoder that it stands for.

Knows: the two ways a method may come: settings that the decoding room can build, or a builder of its own.
Refuses to know: registries, plugins, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Decoder
from specbench.decoding.laws import Sampling


def decoder_of(method: Mapping[str, Any], window: int, sampling: Sampling) -> Decoder:
    """Build the decoder of ``method``: by its ``build(window, sampling)`` if it brings one, else from ``settings``."""
    build = method.get("build")
    if build is None:
        return build_decoder(method["settings"], window, sampling)
    decoder: Decoder = build(window, sampling)
    return decoder
