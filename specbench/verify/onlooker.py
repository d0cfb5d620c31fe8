"""What the verifier wants to know of a pass that the law alone does not tell.

Knows: whether a prediction differed from the law it predicts (an experiment in which it never does proves nothing),
and the bound that a relaxed acceptance promises for every draft it tests.
Refuses to know: how either comes about. It looks on through ``Jacobi.watch`` and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.decoding.accept import Accept
from specbench.decoding.laws import total_variation
from specbench.decoding.loop import Pass
from specbench.decoding.relax import Lantern
from specbench.verify.checks import CheckFailed

ROUNDING = 1e-9


@dataclass
class Onlooker:
    """``predicted`` counts the redrafts that were drawn from another law than p. ``accept`` is the bound rule."""

    accept: Accept
    predicted: int = 0

    def __call__(self, seen: Pass) -> None:
        """Raises ``CheckFailed`` where a relaxation adds more to a tested score than it may."""
        window = seen.window
        redrafted = window.drafted & (window.slot > seen.accepted[:, None])
        self.predicted += int(((total_variation(seen.p, seen.law) > ROUNDING) & redrafted).sum())
        if isinstance(self.accept, Lantern):
            self._bounded(self.accept, seen)

    @staticmethod
    def _bounded(rule: Lantern, seen: Pass) -> None:
        own = seen.p.gather(-1, seen.window.token[..., None]).squeeze(-1)
        most = rule.delta if rule.scale is None else (rule.scale - 1) * own
        if bool(((rule.added(seen.p, seen.window) > most + ROUNDING) & seen.window.drafted).any()):
            raise CheckFailed("a relaxation added more to the tested token's score than its bound")
