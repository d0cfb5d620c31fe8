"""What a decoder hands back, looked at before anything of it is stored.

Knows: the shapes, types and ranges that the store relies on, and that passes are counted, not believed.
Refuses to know: which method it was and what becomes of a cell whose decoder fails here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from specbench.errors import SpecbenchError

if TYPE_CHECKING:
    from torch import Tensor

    from specbench.models.counted import Counted

PER_PASS = ("window", "drafted", "accepted", "committed")


def check_generation(generation: Any, target: Counted, images: int) -> None:
    """Raise :class:`SpecbenchError` with the first thing wrong with ``generation`` (B = ``images`` rows, N tokens).

    ``tokens`` [B, N] of an integer dtype in 0…V-1 · the trace's counters [T, B], its ``fixed_pass`` and ``changes``
    [B, N], non-negative integers, committed tokens that add up to N · T the passes that ``target`` counted ·
    ``seconds`` finite and not negative.
    """
    size = int(target.grid.size)
    trace = getattr(generation, "trace", None)
    tokens = _whole("tokens", getattr(generation, "tokens", None), (images, size))
    if int(tokens.min()) < 0 or int(tokens.max()) >= target.vocab:
        strange = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise SpecbenchError(f"the decoder returned token {strange}, and the codes are 0 to {target.vocab - 1}")
    if trace is None:
        raise SpecbenchError("the decoder returned no trace")
    for name in PER_PASS:
        _whole(f"trace.{name}", getattr(trace, name, None), (len(trace.window), images))
    for name in ("fixed_pass", "changes"):
        _whole(f"trace.{name}", getattr(trace, name, None), (images, size))
    if any(int(getattr(trace, name).min()) < 0 for name in (*PER_PASS, "fixed_pass", "changes")):
        raise SpecbenchError("the decoder's trace has a negative counter")
    if (complaint := target.complaint(trace)) is not None:
        raise SpecbenchError(f"the decoder miscounts: {complaint}")
    if bool((trace.committed.sum(0) != size).any()):
        raise SpecbenchError(f"the decoder miscounts: its committed tokens do not add up to the image's {size}")
    if not all(isinstance(s, int | float) and math.isfinite(s) and s >= 0 for s in trace.seconds.values()):
        raise SpecbenchError(f"the decoder's trace has impossible seconds: {trace.seconds}")


def _whole(name: str, value: Tensor | None, shape: tuple[int, int]) -> Tensor:
    """``value``, which must be an integer tensor of this shape with something in it."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise SpecbenchError(f"the decoder returned no tensor {name} but {type(value).__name__}")
    if tuple(value.shape) != shape or not value.numel():
        raise SpecbenchError(f"the decoder returned {name} of shape {tuple(value.shape)}, and {shape} was expected")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise SpecbenchError(f"the decoder returned {name} of {value.dtype}, and an integer dtype was expected")
    return value
