"""What a registration or a request may get wrong before anything is built, each as one sentence.

Knows: names that can be typed, signatures, devices of this machine.
Refuses to know: which methods and models there are (``registry``) and torch, until a CUDA device is asked for.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from specbench.errors import UsageError

if TYPE_CHECKING:
    from specbench.bench.registry import Method


def check_name(kind: str, name: object) -> None:
    """Raise :class:`UsageError` for a name that cannot be typed on the command line."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*", name):
        raise UsageError(f"a {kind} cannot be called {name!r}: use letters, digits, _ . - and / between them")


def takes(name: str, factory: Callable[..., object], given: Mapping[str, Any]) -> None:
    """Raise :class:`UsageError` when a factory's signature refuses these settings; what it does inside is its own."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C, or an object that hides it: the call will tell
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        raise UsageError(f"method {name!r} does not take these settings: {error}") from error


def has_window(methods: Mapping[str, Method], asked: Iterable[object]) -> None:
    """Raise :class:`UsageError` for a window that none of ``methods`` has: it would be set and change nothing.

    In a sweep those that have one take it. AR may be given the 1 that it is said to have.
    """
    if any(method.window is not None for method in methods.values()):
        return
    kinds = {str(method.settings.get("decoder")) for method in methods.values()}
    if kinds == {"ar"} and {str(window) for window in asked} == {"1"}:
        return
    why = {
        "ar": ": a pass reads one token",
        "block": ": a pass reads a block of the grid (method.columns, method.rows)",
    }
    reason = why.get(kinds.pop(), "") if len(kinds) == 1 else ""
    raise UsageError(f"method {' or '.join(methods)} has no window{reason}")


def has_device(device: str) -> None:
    """Raise :class:`UsageError` for a CUDA device that this machine lacks, whoever loads the model."""
    if not device.startswith("cuda"):
        return
    import torch

    count, number = torch.cuda.device_count() if torch.cuda.is_available() else 0, device.partition(":")[2]
    if int(number or 0) >= count:
        here = f"{count} CUDA device{'s' * (count != 1)}" if count else "no usable CUDA device"
        raise UsageError(f"device={device} was asked for, but this machine has {here}; use device=cpu")
