"""Run cells: in rounds, AR and methods in one process, order shuffled, every image kept as it is made.

Knows: the order of work, what is timed and what stays outside, and what happens when a cell fails.
Refuses to know: configuration words, file layouts, statistics.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from specbench.bench.cells import circumstances
from specbench.bench.config import RunRequest
from specbench.bench.document import Outcome, build_document
from specbench.bench.events import CellFailed, Event, ImageDone, Note, Planned, WarmedUp
from specbench.bench.planning import Group, Job, Round, prepare, todo
from specbench.bench.received import check_generation
from specbench.bench.scoring import score_missing
from specbench.bench.store import CellWriter, Writer
from specbench.errors import SpecbenchError, UsageError
from specbench.models.counted import Counted

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Generation, Target

OnEvent = Callable[[Event], None]


def run(requests: Sequence[RunRequest], out: str | Path = "runs", on_event: OnEvent | None = None) -> dict[str, Any]:
    """Decode what is missing of ``requests`` and of their AR cells, and return the run document.

    Batches are runs of prompt indices and noise is addressed, so a run that was killed and resumed, or extended by a
    larger limit, holds the same images as one that was not. A cell that fails is noted and the others go on.
    Raises :class:`SpecbenchError` when the request or the store is at fault (``UsageError``: nothing was written).
    """
    if not requests:
        raise UsageError("there is nothing to run")
    tell = on_event or (lambda event: None)
    groups = prepare(requests)
    with Writer(out) as store:
        work = {job.cell.id: store.cell(job.cell) for g in groups for job in g.jobs}
        rounds = [(g, r, todo(g, work, r.keys)) for g in groups for r in g.rounds()]
        total = sum(len(r.keys) * len(jobs) for _, r, jobs in rounds)
        labels = tuple(job.label for g in groups for job in g.jobs)
        wanted = {(job.cell.id, key) for g in groups for job in g.jobs for key in g.image_keys()}
        tell(Planned(labels, total, sum(key in work[cell].images for cell, key in wanted)))
        outcome = Outcome(total=total)
        runs = [_GroupRun(group, store, tell, outcome) for group in groups]
        if total or any(each.curve_missing(False) for each in runs):
            store.begin_session(circumstances(groups[0].request.device, groups[0].request.batch))
        for each in runs:
            each.run()
        return build_document(groups, store, outcome)


def shuffled(jobs: Sequence[Job], index: int) -> list[Job]:
    """The order of a round, from its index alone: any place and any neighbour as likely, so that drift favours none.

    A mere rotation would put each cell behind the same other one in every round, with that one's caches and heat.
    """
    return random.Random(index).sample(jobs, len(jobs))


def plainly(error: BaseException) -> str:
    """An error as a cell's sentence: its own where it was written for people, else with its type."""
    return str(error) if isinstance(error, SpecbenchError) else f"{type(error).__name__}: {error}"


class _Seen(NamedTuple):
    """What is looked up about new images outside the clock: PNG bytes, nats per token, seconds of all pixels."""

    pictures: list[bytes]
    entropies: list[float | None]
    pixel_seconds: float


@dataclass
class _GroupRun:
    """One group at work. ``dead`` holds the cells that stopped."""

    group: Group
    store: Writer
    tell: OnEvent
    outcome: Outcome
    dead: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Warm up, go through the rounds, measure the cost curve, score what has no score yet."""
        cells = {job.cell.id: self.store.cell(job.cell) for job in self.group.jobs}
        rounds = [(each, jobs) for each in self.group.rounds() if (jobs := todo(self.group, cells, each.keys))]
        if rounds and self.group.timed:
            self._warm_up({job.cell.id: job for _, jobs in rounds for job in jobs}.values())
        for each, jobs in rounds:
            self._round(each, jobs)
        if self.curve_missing(bool(rounds)):
            self._cost_curve()
        for job in self.group.jobs:
            score_missing(cells[job.cell.id], self.group)

    def curve_missing(self, worked: bool) -> bool:
        """Whether to time the passes: beside fresh clocks, or where an earlier run was cut off before it did."""
        ar = self.group.jobs[0].cell
        return self.group.timed and ar.id not in self.dead and (worked or not self.store.cell(ar).costs)

    def _warm_up(self, jobs: Any) -> None:
        """Decode one image per cell and throw it away: first calls pay for allocations and caches."""
        for job in jobs:
            if self._decode(job, Round(0, 0, self.group.items[:1])) is not None:
                self.outcome.warmup += 1
                self.tell(WarmedUp(job.label))

    def _round(self, each: Round, jobs: Sequence[Job]) -> None:
        for job in shuffled(jobs, each.index):
            if job.cell.id in self.dead:
                self.outcome.total -= len(each.keys)
                continue
            decoded = self._decode(job, each)
            if decoded is None:
                self.outcome.total -= len(each.keys)
            else:
                self._keep(job, each, *decoded)

    def _decode(self, job: Job, each: Round) -> tuple[Generation, float] | None:
        """Decode one batch under the clock: the generation and its wall seconds, or None when the cell failed."""
        import torch

        from specbench.bench.probe import synchronize

        request, target = job.request, cast("Target", counted := Counted(self.group.target))
        try:
            synchronize(request.device)
            start = time.perf_counter()
            generation = job.decoder.decode(target, each.prompts, seed=request.seed, sample=each.sample)
            synchronize(request.device)
            wall = time.perf_counter() - start
            check_generation(generation, counted, len(each.prompts))
            return generation, wall
        except (MemoryError, torch.OutOfMemoryError) as error:
            self._fail(job, "oom", f"out of memory: {error}".strip(": "))
        except (Exception, SystemExit) as error:  # a plugin that exits must not end the run as a success
            self._fail(job, "failed", plainly(error))
        return None

    def _fail(self, job: Job, state: str, message: str) -> None:
        sentence = message.splitlines()[0]
        writer = self.store.cell(job.cell)
        writer.append(
            "failure", state=state, error=sentence, traceback=traceback.format_exc(), session=self.store.session
        )
        self._stop(job, state, sentence)
        for other in self.group.jobs:
            if other.cell.id in self.dead:
                continue
            if job is self.group.jobs[0]:
                self._stop(other, "skipped", f"its AR baseline is {state}: {sentence}")
            elif state == "oom" and other.cell.width >= job.cell.width:
                self._stop(other, "skipped", f"{job.request.method} ran out of memory at window {job.cell.width}")

    def _stop(self, job: Job, state: str, message: str) -> None:
        self.dead.add(job.cell.id)
        self.outcome.stopped[job.cell.id] = (state, message)
        self.tell(CellFailed(job.label, state, message))

    def _keep(self, job: Job, each: Round, generation: Generation, wall: float) -> None:
        """Store a batch: new images with picture and record, known ones compared; the timing of all."""
        writer = self.store.cell(job.cell)
        tokens = generation.tokens.cpu()
        new = [row for row, key in enumerate(each.keys) if key not in writer.images]
        for row in set(range(len(each.keys))).difference(new):
            if writer.images[each.keys[row]]["tokens"] != tokens[row].tolist():
                self.outcome.changed[job.cell.id] = self.outcome.changed.get(job.cell.id, 0) + 1
        seconds = {name: generation.trace.seconds.get(name, 0.0) for name in ("prefill", "passes", "sampling")}
        try:
            found = self._look(job, each, new, generation)
        except Exception as error:  # the target's own pixels and laws: its cell fails, with nothing of it stored
            self._fail(job, "failed", plainly(error))
            self.outcome.total -= len(each.keys)
            return
        seconds["pixels"] = found.pixel_seconds * len(each.keys) / max(1, len(new))
        self._store_images(writer, each, new, generation, found)
        for prompt, sample in each.keys:
            # Several records of one batch carry its time; session and round tell them apart from several batches.
            writer.append(
                "timing",
                prompt=prompt,
                sample=sample,
                session=self.store.session,
                round=each.index,
                rows=len(each.keys),
                wall=wall,
                **(seconds if new else {**seconds, "pixels": None}),
            )
        for row, (prompt, sample) in enumerate(each.keys):
            self.outcome.done += 1
            latency = seconds["prefill"] + seconds["passes"] + seconds["sampling"]
            nfe = int(generation.trace.nfe[row])
            self.tell(ImageDone(job.label, prompt, sample, nfe, latency, self.outcome.done, self.outcome.total))

    def _look(self, job: Job, each: Round, new: Sequence[int], generation: Generation) -> _Seen:
        """Pictures of the images in rows ``new``, and for AR the entropy of their laws; stores nothing."""
        from specbench.bench.probe import mean_entropy
        from specbench.bench.scoring import png

        if not new:
            return _Seen([], [], 0.0)
        start = time.perf_counter()
        pixels = self.group.target.pixels(generation.tokens[new])
        seconds = time.perf_counter() - start
        entropies: list[float | None] = [None] * len(new)
        if job is self.group.jobs[0]:
            prompts = [each.prompts[row] for row in new]
            entropies = list(mean_entropy(self.group.target, self.group.sampling, prompts, generation.tokens[new]))
        return _Seen([png(picture) for picture in pixels], entropies, seconds)

    def _store_images(
        self, writer: CellWriter, each: Round, new: Sequence[int], generation: Generation, found: _Seen
    ) -> None:
        for row, data, entropy in zip(new, found.pictures, found.entropies, strict=True):
            prompt = each.prompts[row]
            picture = writer.picture(prompt.id, each.sample, data)
            writer.append(
                "image",
                prompt=prompt.id,
                text=prompt.text,
                sample=each.sample,
                tokens=generation.tokens[row].tolist(),
                trace=generation.trace.row(row),
                entropy=None if entropy is None else round(entropy, 6),
                session=self.store.session,
                **picture,
            )

    def _cost_curve(self) -> None:
        from specbench.bench.probe import WINDOWS, cost_curve

        group = self.group
        windows = {*WINDOWS, *(job.cell.width for job in group.jobs)}
        try:
            curve = cost_curve(group.target, group.sampling, group.items[0], sorted(windows), group.request.device)
        except Exception as error:
            self.tell(Note(f"the cost of a pass could not be measured: {type(error).__name__}: {error}"))
            return
        self.store.cell(group.jobs[0].cell).append(
            "cost",
            session=self.store.session,
            device=group.request.device,
            windows=list(curve),
            seconds=list(curve.values()),
        )
