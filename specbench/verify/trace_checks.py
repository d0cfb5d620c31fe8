"""Counters that must agree with each other and with the image, whatever the method.

Knows: the trace's definitions. Refuses to know: methods. Called on every enumerated history, so it holds for all.
"""

from __future__ import annotations

import torch

from specbench.decoding.interfaces import Generation
from specbench.verify.checks import TraceError


def check_trace(generation: Generation, rounds: bool = False) -> None:
    """Raise ``TraceError`` with the first contradiction in ``generation.trace``.

    A pass of an unfinished image commits its accepted drafts and one token more, except that the pass which ends the
    image may find no position left for it; a finished image does nothing. ``fixed_pass`` lies in 1…pass of commitment.
    ``rounds``: a pass may also be a round of repair, which keeps drafts and commits none.
    """
    trace, size = generation.trace, generation.tokens.shape[1]
    committed, accepted, drafted, window = trace.committed, trace.accepted, trace.drafted, trace.window
    after = committed.cumsum(0)
    unfinished = after - committed < size
    bonus = committed - accepted
    _demand((committed.sum(0) == size).all(), "committed tokens do not add up to the image")
    _demand(((accepted >= 0) & (accepted <= drafted)).all(), "more drafts were accepted than drafted")
    _demand((drafted <= window).all(), "more drafts were tested than tokens were evaluated")
    if rounds:
        _demand((committed <= window).all(), "more tokens were committed than evaluated")
    else:
        _demand((committed >= 1)[unfinished].all(), "a pass of an unfinished image committed nothing")
        _demand(((bonus == 1) | ((bonus == 0) & (after == size)))[unfinished].all(), "committed is not accepted + 1")
    counters = torch.stack([committed, accepted, drafted])
    _demand((counters[:, ~unfinished] == 0).all(), "a finished image went on counting")
    _demand((trace.nfe == unfinished.sum(0)).all(), "nfe is not the number of passes while the image was unfinished")
    positions = torch.arange(size)
    commit_pass = 1 + (after[:, :, None] <= positions).sum(0)
    fixed = trace.fixed_pass
    _demand(((fixed >= 1) & (fixed <= commit_pass)).all(), "a token is fixed outside 1…the pass that commits it")
    _demand(((trace.changes >= 0) & (trace.changes <= fixed)).all(), "more changes than passes to change in")


def _demand(holds: torch.Tensor, otherwise: str) -> None:
    if not bool(holds):
        raise TraceError(f"trace: {otherwise}")
