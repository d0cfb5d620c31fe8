"""How the tokens of a batch came about, and every counter that follows from it.

Knows: integers per pass and image, and the metrics that are pure functions of them (``docs/metrics.md``).
Refuses to know: clocks of a machine beyond three sums of seconds, baselines, other runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Trace:
    """Counters of one batch: B images of N tokens in T passes.

    [T, B] int64, all zero once an image is finished:
    ``window`` tokens evaluated · ``drafted`` drafts that could have been accepted · ``accepted`` those that were, from
    the front · ``committed`` tokens that became final. Where a window reaches the end of the image every slot left in
    it has a draft: ``drafted`` then equals ``window``, and there is no free token behind the last one.
    [B, N] int64: ``fixed_pass`` the pass, counted from 1, since which the token has its final value (a draft that was
    right before the first pass counts as 1) · ``changes`` how often the position's token changed.
    ``seconds``, of the batch: ``prefill`` (first target pass), ``passes`` (the others), ``sampling`` (all the rest).
    ``row_ends`` [T, B] int64: passes that released code spends behind this one on row ends alone; None without any.
    """

    window: Tensor
    drafted: Tensor
    accepted: Tensor
    committed: Tensor
    fixed_pass: Tensor
    changes: Tensor
    seconds: dict[str, float] = field(default_factory=dict)
    row_ends: Tensor | None = None

    @property
    def nfe(self) -> Tensor:
        """Passes while each image was unfinished, the one that reads the prompt included: [B] int64."""
        return (self.window > 0).sum(0)

    @property
    def steps_with_row_ends(self) -> Tensor:
        """``nfe`` plus the passes that released code spends on row ends: [B] int64. Grids without row ends: ``nfe``."""
        return self.nfe if self.row_ends is None else self.nfe + self.row_ends.sum(0)

    @property
    def batch_passes(self) -> int:
        """Target passes of the whole batch."""
        return int(self.window.shape[0])

    @property
    def tokens_per_pass(self) -> float:
        """Tokens committed per pass and image, pooled over the batch."""
        return _ratio(self.committed.sum(), self.nfe.sum())

    @property
    def accept_rate_pooled(self) -> float:
        """Σ accepted ÷ Σ drafted over all passes and images; NaN if nothing was drafted."""
        return _ratio(self.accepted.sum(), self.drafted.sum())

    @property
    def accept_rate_per_image_mean(self) -> float:
        """Mean over images of each image's Σ accepted ÷ Σ drafted; images without drafts do not count."""
        drafted = self.drafted.sum(0)
        some = drafted > 0
        return float((self.accepted.sum(0)[some] / drafted[some]).double().mean())

    @property
    def accept_rate_at(self) -> list[float]:
        """Entry i: share of the passes with more than i drafts in which draft i was accepted (and all before it)."""
        widest = int(self.drafted.max()) if self.drafted.numel() else 0
        return [_ratio((self.accepted > i).sum(), (self.drafted > i).sum()) for i in range(widest)]

    def accepted_length(self, bonus: bool = False) -> float:
        """Mean run of accepted drafts per pass that had drafts; with ``bonus``, of all tokens it committed."""
        speculative = self.drafted > 0
        what = self.committed if bonus else self.accepted
        return _ratio(what[speculative].sum(), speculative.sum())

    def row(self, image: int) -> dict[str, Any]:
        """One image's part as plain lists, for the store: its own passes only, whatever the batch it ran in."""
        passes = int(self.nfe[image])
        per_pass = ("window", "drafted", "accepted", "committed", *(() if self.row_ends is None else ("row_ends",)))
        return {
            **{name: getattr(self, name)[:passes, image].tolist() for name in per_pass},
            "fixed_pass": self.fixed_pass[image].tolist(),
            "changes": self.changes[image].tolist(),
        }


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part.double() / whole.double()) if whole else float("nan")


def stack(passes: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per-pass counters, one [4, B] tensor per pass, as the four [T, B] fields of a trace, on the host."""
    window, drafted, accepted, committed = torch.stack(passes, 1).cpu()
    return window, drafted, accepted, committed


def rows_finished(committed: Tensor, columns: int) -> Tensor:
    """How many rows of ``columns`` tokens each pass brought to their end: ``committed`` [T, B] int64 to the same."""
    rows = committed.cumsum(0) // columns
    return rows.diff(dim=0, prepend=torch.zeros_like(rows[:1]))
