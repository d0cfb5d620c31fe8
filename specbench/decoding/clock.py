"""Where the time of a decode goes, at the price of one timestamp per lap.

Knows: host time, and on a GPU the stream's own events, which are read only after the loop so that timing never waits.
Refuses to know: what a lap means.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Target


def device_of(target: Target) -> torch.device:
    """Where a target computes: a plugin may leave it out, and is then taken to be on the CPU."""
    return torch.device(getattr(target, "device", "cpu"))


class Clock:
    """Charges the time since the previous lap to a name."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, torch.cuda.Event | float]] = [("", self._now())]

    def _now(self) -> torch.cuda.Event | float:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self, name: str) -> None:
        """End a stretch of time and call it ``name``."""
        self._marks.append((name, self._now()))

    def seconds(self) -> dict[str, float]:
        """Total seconds per name; on a GPU this waits for the stream."""
        if self._cuda:
            torch.cuda.synchronize()
        total: dict[str, float] = defaultdict(float)
        for (_, before), (name, after) in zip(self._marks, self._marks[1:], strict=False):
            if isinstance(before, float) and isinstance(after, float):
                total[name] += after - before
            else:
                total[name] += before.elapsed_time(after) / 1000  # type: ignore[union-attr, arg-type]
        return dict(total)
