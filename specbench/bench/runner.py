"""Run cells: in rounds, AR and methods in one process, order shuffled, every image kept as it is made.

Knows: the order of work, what is timed and what stays outside, and what happens when a cell fails.
Refuses to know: configuration words, file layouts, statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specbench.bench.cells import circumstances
from specbench.bench.config import RunRequest
from specbench.bench.diagnosis import code as diagnosis_code
from specbench.bench.document import Outcome, build_document
from specbench.bench.events import CellFailed, Event, ImageDone, Note, Planned, WarmedUp
from specbench.bench.making import Failure, Made, make
from specbench.bench.planning import Group, Job, Round, prepare, todo
from specbench.bench.scoring import mend_pictures, score_missing
from specbench.bench.store import CellWriter, Writer
from specbench.bench.workers import Task, decode_in_processes, refuse
from specbench.errors import SpecbenchError, UsageError

OnEvent = Callable[[Event], None]


def run(
    requests: Sequence[RunRequest],
    out: str | Path = "runs",
    on_event: OnEvent | None = None,
    workers: int = 1,
    clocks: bool = True,
) -> dict[str, Any]:
    """Decode what is missing of ``requests`` and of their AR cells, and return the run document.

    Batches are runs of prompt indices and noise is addressed, so a run that was killed and resumed, or extended by a
    larger limit, holds the same images as one that was not. A cell that fails is noted and the others go on.
    ``workers`` above 1 decode side by side, in processes of their own; nothing is timed then, nor where ``clocks`` is
    off: only pictures and counters are kept.
    Raises :class:`SpecbenchError` when the request or the store is at fault (``UsageError``: nothing was written).
    """
    if not requests:
        raise UsageError("there is nothing to run")
    refuse(requests, workers)
    tell = on_event or (lambda event: None)
    groups = prepare(requests, clocks and workers == 1)
    with Writer(out) as store:
        work = {job.cell.id: store.cell(job.cell) for g in groups for job in g.jobs}
        rounds = [(g, r, todo(g, work, r.keys)) for g in groups for r in g.rounds()]
        total = sum(len(r.keys) * len(jobs) for _, r, jobs in rounds)
        labels = tuple(job.label for g in groups for job in g.jobs)
        wanted = {(job.cell.id, key) for g in groups for job in g.jobs for key in g.image_keys()}
        tell(Planned(labels, total, sum(key in work[cell].images for cell, key in wanted)))
        outcome = Outcome(total=total)
        runs = [_GroupRun(group, store, tell, outcome) for group in groups]
        for each in runs:
            each.alike = [other for other in runs if other.memory == each.memory]
        if total or any(each.curve_missing(False) for each in runs):
            found = circumstances(groups[0].request.device, groups[0].request.batch)
            store.begin_session(found if workers == 1 else {**found, "threads": 1, "workers": workers})
        if workers > 1:
            _side_by_side(runs, requests, workers)
        for each in runs:
            each.finish(worked=workers == 1 and each.work())
        return build_document(groups, store, outcome)


def _side_by_side(runs: Sequence[_GroupRun], requests: Sequence[RunRequest], workers: int) -> None:
    """Decode what is missing in processes of their own, the widest windows first, so that no long batch is the last."""
    groups = [each.group for each in runs]
    rounds = [list(group.rounds()) for group in groups]
    tasks, dealt = [], set()
    for at, mine in enumerate(runs):
        for number, each in enumerate(rounds[at]):
            for job in mine.todo(each):
                # A cell may be in two groups, of which one asks for more images: what both want is made once.
                if (job.cell.id, *each.keys) not in dealt:
                    dealt.add((job.cell.id, *each.keys))
                    tasks.append(Task(at, number, groups[at].jobs.index(job), mine.new(job, each)))
                else:
                    mine.outcome.total -= len(each.keys)
    tasks.sort(key=lambda task: -groups[task.group].jobs[task.job].width)

    def skip(task: Task) -> bool:
        mine = runs[task.group]
        dead = groups[task.group].jobs[task.job].cell.id in mine.dead
        mine.outcome.total -= len(rounds[task.group][task.round].keys) * dead
        return dead

    with closing(decode_in_processes(requests, groups, tasks, workers, skip)) as results:
        for task, made in results:
            runs[task.group].take(groups[task.group].jobs[task.job], rounds[task.group][task.round], made)


def shuffled(jobs: Sequence[Job], index: int) -> list[Job]:
    """The order of a round, from its index alone: any place and any neighbour as likely, so that drift favours none.

    A mere rotation would put each cell behind the same other one in every round, with that one's caches and heat.
    """
    return random.Random(index).sample(jobs, len(jobs))


@dataclass
class _GroupRun:
    """One group at work. ``dead`` holds the cells that stopped, ``alike`` the groups whose passes are as large."""

    group: Group
    store: Writer
    tell: OnEvent
    outcome: Outcome
    dead: set[str] = field(default_factory=set)
    alike: Sequence[_GroupRun] = ()

    @property
    def memory(self) -> tuple[object, ...]:
        """What decides, beside the window, how much memory a pass takes."""
        r = self.group.request
        return r.model, r.path, r.dtype, r.device, r.batch, r.sampling["guidance"] in (None, 1)

    def work(self) -> bool:
        """Warm up and go through the rounds; whether there was anything to do."""
        rounds = [(each, jobs) for each in self.group.rounds() if (jobs := self.todo(each))]
        if rounds and self.group.timed:
            self._warm_up({job.cell.id: job for _, jobs in rounds for job in jobs}.values())
        for each, jobs in rounds:
            self._round(each, jobs)
        return bool(rounds)

    def finish(self, worked: bool) -> None:
        """Measure the cost curve where it is due, and score what has no score yet."""
        if self.curve_missing(worked):
            self._cost_curve()
        for job in self.group.jobs:
            self._mend(job)
            score_missing(self.store.cell(job.cell), self.group)

    def _mend(self, job: Job) -> None:
        """Pictures that were deleted or altered are drawn again, and counted."""
        try:
            redrawn = mend_pictures(self.store.cell(job.cell), self.group)
        except SpecbenchError:
            raise
        except Exception as error:
            self.tell(Note(f"damaged pictures could not be drawn again: {type(error).__name__}: {error}"))
            return
        if redrawn:
            self.outcome.redrawn[job.cell.id] = self.outcome.redrawn.get(job.cell.id, 0) + redrawn

    def todo(self, each: Round) -> list[Job]:
        """The jobs of a round that must run and can."""
        have = {job.cell.id: self.store.cell(job.cell) for job in self.group.jobs}
        return todo(self.group, have, each.keys)

    def curve_missing(self, worked: bool) -> bool:
        """Whether to time the passes: beside fresh clocks, or where an earlier run was cut off before it did."""
        ar, device = self.group.jobs[0].cell, self.group.request.device
        have = any(cost.get("device") == device for cost in self.store.cell(ar).costs)
        return self.group.timed and ar.id not in self.dead and (worked or not have)

    def _warm_up(self, jobs: Any) -> None:
        """Decode one image per cell and throw it away: first calls pay for allocations and caches.

        The narrowest pass comes first, so that what runs out of memory spares the wider ones.
        """
        for job in sorted(jobs, key=lambda job: job.width):
            if job.cell.id in self.dead:  # a narrower one ran out of memory
                continue
            made = make(self.group, job, Round(0, 0, self.group.items[:1]), ())
            if isinstance(made, Failure):
                self._fail(job, made)
            else:
                self.outcome.warmup += 1
                self.tell(WarmedUp(job.label))

    def _round(self, each: Round, jobs: Sequence[Job]) -> None:
        for job in shuffled(jobs, each.index):
            if job.cell.id in self.dead:
                self.outcome.total -= len(each.keys)
            else:
                self.take(job, each, make(self.group, job, each, self.new(job, each)))

    def new(self, job: Job, each: Round) -> tuple[int, ...]:
        """The rows of a round that the store does not have yet."""
        writer = self.store.cell(job.cell)
        return tuple(row for row, key in enumerate(each.keys) if key not in writer.images)

    def take(self, job: Job, each: Round, made: Made | Failure) -> None:
        """Keep a batch, or note why there is none: its cell fails, with nothing of the batch stored."""
        if isinstance(made, Failure):
            self.outcome.total -= len(each.keys)
            self._fail(job, made)
        else:
            self._keep(job, each, made)

    def _fail(self, job: Job, failure: Failure) -> None:
        state, sentence = failure.state, failure.error.splitlines()[0]
        writer = self.store.cell(job.cell)
        writer.append("failure", state=state, error=sentence, traceback=failure.traceback, session=self.store.session)
        self._stop(job, state, sentence)
        if job is self.group.jobs[0]:
            for other in self.group.jobs:
                self._stop(other, "skipped", f"its AR baseline is {state}: {sentence}")
        elif state == "oom":
            for each in self.alike:
                each.skip_wider(job)

    def skip_wider(self, than: Job) -> None:
        """Do not try what is sure to run out of memory: passes wider than those of ``than``, which did."""
        for job in self.group.jobs:
            if job.width > than.width:
                self._stop(job, "skipped", f"{than.request.method} ran out of memory at {than.width} tokens a pass")

    def _stop(self, job: Job, state: str, message: str) -> None:
        if job.cell.id in self.dead:
            return
        self.dead.add(job.cell.id)
        self.outcome.stopped[job.cell.id] = (state, message)
        self.tell(CellFailed(job.label, state, message))

    def _keep(self, job: Job, each: Round, made: Made) -> None:
        """Store a batch: new images with picture and record, known ones compared; the timing of all, where timed."""
        writer, looked_at = self.store.cell(job.cell), zip(made.pictures, made.entropies, strict=True)
        fresh = dict(zip(made.new, looked_at, strict=True))
        for row, key in enumerate(each.keys):
            if key not in writer.images:
                self._store_image(writer, each, made, row, *fresh[row])
            elif writer.images[key]["tokens"] != made.tokens[row]:
                self.outcome.changed[job.cell.id] = self.outcome.changed.get(job.cell.id, 0) + 1
        for (prompt, sample), sums in zip(each.keys, made.sums or (), strict=False):
            writer.append("diagnostics", prompt=prompt, sample=sample, code=diagnosis_code(), sums=sums)
        for prompt, sample in each.keys if self.group.clocks else ():
            # Several records of one batch carry its time; session and round tell them apart from several batches.
            writer.append(
                "timing",
                prompt=prompt,
                sample=sample,
                session=self.store.session,
                device=job.request.device,
                round=each.index,
                rows=len(each.keys),
                wall=made.wall,
                **made.seconds,
            )
        latency = sum(made.seconds[name] or 0.0 for name in ("prefill", "passes", "sampling"))
        for row, (prompt, sample) in enumerate(each.keys):
            self.outcome.done += 1
            nfe = made.nfe[row]
            self.tell(ImageDone(job.label, prompt, sample, nfe, latency, self.outcome.done, self.outcome.total))

    def _store_image(
        self, writer: CellWriter, each: Round, made: Made, row: int, data: bytes, entropy: float | None
    ) -> None:
        prompt = each.prompts[row]
        picture = writer.picture(prompt.id, each.sample, data)
        writer.append(
            "image",
            prompt=prompt.id,
            text=prompt.text,
            sample=each.sample,
            tokens=made.tokens[row],
            trace=made.traces[row],
            entropy=None if entropy is None else round(entropy, 6),
            session=self.store.session,
            **picture,
        )

    def _cost_curve(self) -> None:
        from specbench.bench.probe import WINDOWS, cost_curve

        group = self.group
        wanted = {*WINDOWS, *(width for job in group.jobs for width in job.widths)}
        # A pass as wide as one that ran out of memory would end the measuring of all.
        full = [job.width for job in group.jobs if self.outcome.stopped.get(job.cell.id, ("",))[0] == "oom"]
        windows = [width for width in sorted(wanted) if width < min(full, default=width + 1)]
        try:
            curve = cost_curve(group.target, group.sampling, group.items[0], windows, group.request.device)
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
