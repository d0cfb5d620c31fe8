"""Make one batch of one cell: decode it under the clock, look at what came out, hand it on as plain data.

Knows: what is inside the clock and what stays outside, and that whatever goes wrong is this cell's failure.
Refuses to know: the store, the order of work, and in which process it runs (a worker's batch is what the parent's is).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from specbench.bench.planning import Group, Job, Round
from specbench.bench.received import check_generation
from specbench.errors import SpecbenchError
from specbench.models.counted import Counted

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Generation, Target


@dataclass(frozen=True)
class Made:
    """A decoded batch of B images.

    ``tokens``, ``traces`` and ``nfe`` have an entry for each image; ``pictures`` (PNG bytes) and ``entropies`` (nats
    per token, of AR's images) one for each of the rows ``new``. ``seconds`` are the batch's own, ``pixels`` among them
    as if all images were new, or None where none was; ``wall`` is the decoder's time from outside.
    """

    new: tuple[int, ...]
    tokens: list[list[int]]
    traces: list[dict[str, Any]]
    nfe: list[int]
    pictures: list[bytes]
    entropies: list[float | None]
    seconds: dict[str, float | None]
    wall: float
    sums: list[dict[str, Any]] | None = None
    """What ``diagnostics`` counted, an entry for each image; None where it was off or had nothing to look at."""


@dataclass(frozen=True)
class Failure:
    """Why a batch could not be made: ``state`` is ``failed`` or ``oom``."""

    state: str
    error: str
    traceback: str


def make(group: Group, job: Job, each: Round, new: Sequence[int]) -> Made | Failure:
    """Decode the prompts of ``each`` with ``job``; pictures and entropies of the rows ``new`` only."""
    import torch

    from specbench.bench.diagnostics import watched
    from specbench.bench.probe import perturbed

    try:
        decoder, onlooker = watched(job.decoder) if job.request.diagnostics else (job.decoder, None)
        generation, wall = _decode(group, replace(job, decoder=decoder), each)
        made = _look(group, job, each, new, generation, wall)
        if onlooker is not None:
            return replace(made, sums=onlooker.rows())
        if job.request.diagnostics and job is group.jobs[0]:
            seed, sample = job.request.seed, each.sample
            sums = perturbed(group.target, group.sampling, each.prompts, generation.tokens, seed, sample)
            return replace(made, sums=sums)
        return made
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Failure("oom", f"out of memory: {error}".strip(": "), traceback.format_exc())
    except (Exception, SystemExit) as error:  # a plugin that exits must not end the run as a success
        return Failure("failed", plainly(error), traceback.format_exc())


def plainly(error: BaseException) -> str:
    """An error as a cell's sentence: its own where it was written for people, else with its type."""
    return str(error) if isinstance(error, SpecbenchError) else f"{type(error).__name__}: {error}"


def _decode(group: Group, job: Job, each: Round) -> tuple[Generation, float]:
    """The generation, looked at, and the wall seconds of decoding alone."""
    from specbench.bench.probe import synchronize
    from specbench.decoding.interfaces import VideoTarget

    request, target = job.request, cast("Target", counted := Counted(group.target))
    if isinstance(group.target, VideoTarget):
        group.target.prepare(each.prompts)
    synchronize(request.device)
    start = time.perf_counter()
    generation = job.decoder.decode(target, each.prompts, seed=request.seed, sample=each.sample)
    synchronize(request.device)
    wall = time.perf_counter() - start
    check_generation(generation, counted, len(each.prompts))
    return generation, wall


def _look(group: Group, job: Job, each: Round, new: Sequence[int], generation: Generation, wall: float) -> Made:
    """Pictures of the new images, and for AR the entropy of their laws, outside the clock."""
    from specbench.bench.probe import mean_entropy
    from specbench.bench.scoring import decoded, png

    trace, rows, fresh = generation.trace, len(each.prompts), list(new)
    seconds: dict[str, float | None] = {
        name: trace.seconds.get(name, 0.0) for name in ("prefill", "passes", "sampling")
    }
    pictures: list[bytes] = []
    entropies: list[float | None] = [None] * len(fresh)
    seconds["pixels"] = None
    if fresh:
        start = time.perf_counter()
        prompts = [each.prompts[row] for row in fresh]
        pixels, rate = decoded(group.target, generation.tokens[fresh], prompts)
        seconds["pixels"] = (time.perf_counter() - start) * rows / len(fresh)
        pictures = [png(picture, rate) for picture in pixels]
        if job is group.jobs[0]:
            entropies = list(mean_entropy(group.target, group.sampling, prompts, generation.tokens[fresh]))
    return Made(
        new=tuple(fresh),
        tokens=generation.tokens.tolist(),
        traces=[trace.row(row) for row in range(rows)],
        nfe=trace.nfe.tolist(),
        pictures=pictures,
        entropies=entropies,
        seconds=seconds,
        wall=wall,
    )
