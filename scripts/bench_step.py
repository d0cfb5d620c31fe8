"""What one pass costs without the network, in milliseconds of processor time: ``make bench``.

Times guidance, filters, laws, acceptance, redraft, noise and bookkeeping of the production loop on made-up logits,
beside guidance + filter + softmax alone on the same tensors, at batch 1 on one thread. The logits change a little from
pass to pass, so that drafts are kept about as often as on a real model.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from specbench.decoding.accept import bound
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Forward, Grid, Target
from specbench.decoding.laws import Sampling, guide, law_of
from specbench.decoding.tree import Siblings
from specbench.models.trees import ancestry

METHODS = {
    "sjd": {"redraft": "independent"},
    "scd": {"redraft": "maximal"},
    "scd_gs": {"redraft": "gumbel"},
    "sjd_pac": {"redraft": "maximal", "tree": "siblings"},
    "sjd_vp": {"redraft": "independent", "predict": "growth"},
    "scd+vp": {"redraft": "maximal", "predict": "growth"},
    "context": {"redraft": "maximal", "predict": "context"},
}
SAMPLING = Sampling(top_k=2000, guidance=3.0)
GRID = Grid(48, 48)
TARGET = 3.0


class Enough(Exception):
    """Ends a decode that has shown what it costs."""


class Replayed:
    """A canvas with the logits of a target that is not there. Notes the seconds that pass between its forwards."""

    def __init__(self, vocab: int, window: int, passes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.grid, self.vocab, self.passes = GRID, vocab, passes
        self.codebook = torch.randn(vocab, 8, generator=torch.Generator().manual_seed(1))
        self.rows = torch.randn(2, window + 32, vocab, generator=generator).mul_(2.5)
        self.jitter = torch.randn(4, window, vocab, generator=generator).mul_(0.6)
        self.position = 0
        self.between: list[float] = []
        self.alone: list[float] = []
        self.kept: list[int] = []
        self._left: float | None = None

    def begin(self, prompts: object, guidance: float | None = None) -> Replayed:
        """Be its own canvas."""
        return self

    def forward(self, tokens: Tensor, parents: Tensor | None = None) -> Forward:
        """Logits of the next positions; guidance is part of what is timed."""
        if self._left is not None:
            self.between.append(time.process_time() - self._left)
        if len(self.between) == self.passes:
            raise Enough
        depth = torch.arange(tokens.shape[1]) if parents is None else ancestry(parents)[1][0]
        rows = (self.position + depth) % self.rows.shape[1]
        cond, uncond = self.rows[:, rows] + self.jitter[len(self.between) % 4]
        start = time.process_time()
        law_of(guide(cond[None], uncond[None], 3.0), SAMPLING)
        self.alone.append(time.process_time() - start)
        self._left = time.process_time()
        return Forward(guide(cond[None], uncond[None], 3.0))

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Move on."""
        self.kept.append(int(n))
        self.position += int(n)


@dataclass(frozen=True)
class Timed:
    """A prediction, and the seconds of each of its calls."""

    predict: Any
    spent: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.predict, name)

    def __call__(self, *arguments: Any) -> Tensor:
        """As the prediction."""
        start = time.process_time()
        law: Tensor = self.predict(*arguments)
        self.spent.append(time.process_time() - start)
        return law

    def bind(self, target: Target) -> Timed:
        """With what the prediction needs of the target."""
        return replace(self, predict=bound(self.predict, target))

    def drafting(self, redraft: Any) -> Any:
        """As the prediction; what it does once the pass is judged (:meth:`refine`) is timed too."""
        made = self.predict.drafting(redraft)
        return made if made is redraft else replace(made, predict=self)

    def refine(self, *arguments: Any) -> None:
        """As the prediction."""
        start = time.process_time()
        self.predict.refine(*arguments)
        self.spent[-1] += time.process_time() - start


def measure(method: str, vocab: int, window: int, passes: int) -> tuple[float, float, float, float]:
    """Median milliseconds of a pass, of guidance + filter + softmax alone, of the prediction; mean tokens per pass."""
    target = Replayed(vocab, window, passes)
    decoder: Any = build_decoder(METHODS[method], window, SAMPLING)
    timed = Timed(decoder.predict)
    with contextlib.suppress(Enough):
        replace(decoder, predict=timed).decode(cast("Target", target), ["bench"])
    skip = 6  # the first passes allocate, and have fewer laws behind them than a prediction reads
    return (
        1000 * statistics.median(target.between[skip:]),
        1000 * statistics.median(target.alone[skip:]),
        1000 * statistics.median(timed.spent[skip:]),
        statistics.mean(target.kept),
    )


def main() -> None:
    """Print the table; exit 1 with ``--check`` if a ratio is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=12, help="passes per configuration")
    parser.add_argument("--check", action="store_true", help="fail if a pass costs more than 3x the law alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    worst = 0.0
    names = f"{'pass ms':>10}{'law alone ms':>14}{'ratio':>7}{'predict ms':>12}{'tokens/pass':>13}"
    print(f"{'method':<8}{'V':>7}{'W':>4}{names}")
    for vocab in (8192, 65536):
        for window in (16, 32, 64):
            for method, settings in METHODS.items():
                if "tree" in settings and window < Siblings().nodes:
                    continue
                whole, alone, predicted, kept = measure(method, vocab, window, arguments.passes)
                worst = max(worst, whole / alone)
                ratio = f"{whole:>10.2f}{alone:>14.2f}{whole / alone:>7.2f}"
                print(f"{method:<8}{vocab:>7}{window:>4}{ratio}{predicted:>12.2f}{kept:>13.1f}", flush=True)
    print(f"worst ratio {worst:.2f}, target {TARGET:g}")
    if arguments.check and worst > TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
