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
from typing import cast

import torch
from torch import Tensor

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Forward, Grid, Target
from specbench.decoding.laws import Sampling, guide, law_of

METHODS = {
    "sjd": {"redraft": "independent"},
    "scd": {"redraft": "maximal"},
    "scd_gs": {"redraft": "gumbel"},
    "sjd_vp": {"redraft": "independent", "predict": "growth"},
    "scd+vp": {"redraft": "maximal", "predict": "growth"},
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
        rows = (self.position + torch.arange(tokens.shape[1])) % self.rows.shape[1]
        cond, uncond = self.rows[:, rows] + self.jitter[len(self.between) % 4]
        start = time.process_time()
        law_of(guide(cond[None], uncond[None], 3.0), SAMPLING)
        self.alone.append(time.process_time() - start)
        self._left = time.process_time()
        return Forward(guide(cond[None], uncond[None], 3.0))

    def keep(self, n: Tensor) -> None:
        """Move on."""
        self.kept.append(int(n))
        self.position += int(n)


def measure(method: str, vocab: int, window: int, passes: int) -> tuple[float, float, float]:
    """Median milliseconds of a pass, of guidance + filter + softmax alone, and mean tokens committed per pass."""
    target = Replayed(vocab, window, passes)
    with contextlib.suppress(Enough):
        build_decoder(METHODS[method], window, SAMPLING).decode(cast("Target", target), ["bench"])
    skip = 2  # the first passes allocate
    return (
        1000 * statistics.median(target.between[skip:]),
        1000 * statistics.median(target.alone[skip:]),
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
    print(f"{'method':<8}{'V':>7}{'W':>4}{'pass ms':>10}{'law alone ms':>14}{'ratio':>7}{'tokens/pass':>13}")
    for vocab in (8192, 65536):
        for window in (16, 32, 64):
            for method in METHODS:
                whole, alone, kept = measure(method, vocab, window, arguments.passes)
                worst = max(worst, whole / alone)
                print(
                    f"{method:<8}{vocab:>7}{window:>4}{whole:>10.2f}{alone:>14.2f}{whole / alone:>7.2f}{kept:>13.1f}",
                    flush=True,
                )
    print(f"worst ratio {worst:.2f}, target {TARGET:g}")
    if arguments.check and worst > TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
