"""specbench: benchmark and reproduce speculative decoding of autoregressive image models.

Knows: the few names a notebook or a plugin needs, and where each one lives.
Refuses to know: torch, until one of them is used (``import specbench`` must stay instant).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specbench.api import load_decoder, load_target
    from specbench.bench.registry import register_method, register_target
    from specbench.decoding.interfaces import Generation

__version__ = "0.1.0"
__all__ = ["Generation", "__version__", "load_decoder", "load_target", "register_method", "register_target"]

_HOMES = {
    "load_target": "specbench.api",
    "load_decoder": "specbench.api",
    "Generation": "specbench.decoding.interfaces",
    "register_method": "specbench.bench.registry",
    "register_target": "specbench.bench.registry",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'specbench' has no attribute {name!r}")
