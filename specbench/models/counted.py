"""Any target, with its passes counted from outside, so that no method has to be believed about its own NFE.

Knows: that one call of a canvas's ``forward`` is one pass, and what a trace must therefore say.
Refuses to know: models, methods, clocks. Counting is one addition per pass: it may stay on in timed runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from specbench.decoding.interfaces import Canvas, Forward, Prompt, Target
    from specbench.decoding.trace import Trace


class Counted:
    """A target that counts the passes of every canvas it opens; everything else is the target's own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.counted_passes = 0

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> _CountedCanvas:
        """Open the target's canvas, counted."""
        return _CountedCanvas(self, self._target.begin(prompts, guidance))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def complaint(self, trace: Trace) -> str | None:
        """Why ``trace`` cannot be that of the passes counted here, in one clause; None where they agree.

        An image is charged for the passes of its batch until it is finished, so the last one to finish pays for all.
        """
        made, told = self.counted_passes, trace.batch_passes
        if told != made:
            return f"the trace tells of {told} target passes, and {made} were made"
        most = int(trace.nfe.max())
        return None if most == made else f"{made} target passes were made, and no image's nfe is above {most}"


class _CountedCanvas:
    """A canvas that reports each pass to its target."""

    def __init__(self, counter: Counted, canvas: Canvas) -> None:
        self._counter, self._canvas = counter, canvas

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """The canvas's own pass."""
        self._counter.counted_passes += 1
        return self._canvas.forward(tokens, parents, taps)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._canvas, name)
