"""Scores by name. Knows: which scorers exist. Refuses to know: which method made a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specbench.errors import unknown

if TYPE_CHECKING:
    from torch import Tensor

SCORERS = {"scenes": "exact GenEval-style scorer of the drawn world that mini was trained on"}


def score_images(scorer: str, pixels: Tensor, metadata: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Score pictures uint8 [B, 3, H, W], one metadata each: ``{"correct": bool, "reason": str, "family": str}``.

    Raises UsageError for an unknown scorer.
    """
    if scorer not in SCORERS:
        raise unknown("scorer", scorer, SCORERS)
    from specbench.scores.scenes import score_scenes

    return score_scenes(pixels, metadata)
