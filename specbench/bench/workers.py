"""Decoding in several processes: batches dealt out as workers come free, results handed back in plain data.

Knows: that a worker is a fresh interpreter with one thread, what it must be told, and how it can die.
Refuses to know: the store (its one writer is the parent) and clocks (processes side by side disturb each other's).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from specbench.bench import registry
from specbench.bench.config import RunRequest
from specbench.bench.making import Failure, Made, make
from specbench.errors import SpecbenchError, UsageError

if TYPE_CHECKING:
    from specbench.bench.planning import Group

STOP_S = 5.0
"""Seconds a worker has to end by itself before it is killed."""


@dataclass(frozen=True)
class Task:
    """One batch of one cell, by its place in what ``prepare`` returns; ``new`` are the rows that are not stored yet."""

    group: int
    round: int
    job: int
    new: tuple[int, ...]


def refuse(requests: Sequence[RunRequest], workers: int) -> None:
    """Raise :class:`UsageError` where ``requests`` cannot be decoded by ``workers`` processes."""
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    if workers == 1:
        return
    if any(request.batch == 1 for request in requests):
        raise UsageError(
            "at batch=1 the clock runs, and workers beside each other would disturb it: give batch=16, or one worker"
        )
    for request in requests:
        for kind, found in (("method", registry.method(request.method)), ("model", registry.model(request.model))):
            if found.source == registry.SESSION:
                raise UsageError(
                    f"{kind} {found.name!r} was registered in this Python session, where a worker process cannot see "
                    "it: put it into a file and load that with --plugin"
                )


def decode_in_processes(
    requests: Sequence[RunRequest],
    groups: Sequence[Group],
    tasks: Sequence[Task],
    workers: int,
    skip: Callable[[Task], bool],
) -> Generator[tuple[Task, Made | Failure], None, None]:
    """Decode ``tasks`` in ``workers`` spawned processes; yields each result as it comes, in no fixed order.

    ``skip`` is asked when a task's turn comes. A worker that dies fails the task it was at and is replaced. Whatever
    ends the generator ends the workers. Raises :class:`SpecbenchError` when a worker cannot get ready.
    """
    queue = deque(tasks)
    ids = [[job.cell.id for job in group.jobs] for group in groups]
    pool: list[_Worker] = []
    try:
        pool += [_Worker(requests) for _ in range(min(workers, len(queue)))]
        for worker in pool:
            worker.expect(ids)
        while True:
            for worker in pool:
                while worker.task is None and queue:
                    if not skip(task := queue.popleft()):
                        worker.give(task)
            busy = [worker for worker in pool if worker.task is not None]
            if not busy:
                return
            ready = set(wait([worker.pipe for worker in busy]))
            for worker in busy:
                if worker.pipe in ready:
                    task, result = worker.take()
                    if not worker.alive:
                        worker.end()
                        pool[pool.index(worker)] = fresh = _Worker(requests)
                        fresh.expect(ids)
                    yield task, result
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """One process and the task it is at."""

    def __init__(self, requests: Sequence[RunRequest]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.task: Task | None = None
        self.alive = True
        self._process = context.Process(
            target=_serve, args=(theirs, list(requests), registry.loaded_plugins()), daemon=True
        )
        with _quiet_single_threaded():
            self._process.start()
        theirs.close()  # so that the death of the worker is the end of the pipe

    def expect(self, ids: list[list[str]]) -> None:
        """Wait until it has loaded everything, and make sure that it means the same cells."""
        answer: Any = None
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(STOP_S)
            answer = f"it ended with code {self._process.exitcode}"
        if isinstance(answer, str):
            raise SpecbenchError(f"a worker process could not start: {answer}")
        if answer != ids:
            raise SpecbenchError("the sources changed while this run was starting: give the same command again")

    def give(self, task: Task) -> None:
        """Hand it a task; one that died meanwhile is found out when its answer is read."""
        self.task = task
        try:
            self.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):
            self.alive = False

    def take(self) -> tuple[Task, Made | Failure]:
        """Its answer, or the failure that its death is."""
        task, self.task = self.task, None
        assert task is not None
        try:
            return task, self.pipe.recv()
        except (EOFError, OSError):
            self.alive = False
            self._process.join(STOP_S)
            code = self._process.exitcode
            killed = code is not None and code < 0
            how = f"was killed by signal {-code}" if killed and code is not None else f"ended with code {code}"
            hint = " (for want of memory?)" if killed else ""
            return task, Failure("failed", f"its worker process {how}{hint}", "")

    def end(self) -> None:
        """End the process, whatever it is at."""
        self.pipe.close()
        self._process.terminate()
        self._process.join(STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


@contextmanager
def _quiet_single_threaded() -> Iterator[None]:
    """What a process that starts now inherits: one thread per library, and no ear for Ctrl-C (its parent ends it)."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _serve(pipe: Connection, requests: list[RunRequest], plugins: tuple[str, ...]) -> None:
    """A worker's life: load, say which cells that makes, then decode what it is given until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for threads of libraries that clear the mask they inherited
    import torch

    from specbench.bench.planning import prepare

    os.dup2(2, 1)  # what a plugin prints here must not end up in the parent's JSON
    torch.set_num_threads(1)
    try:
        registry.load_plugins(plugins)
        groups = prepare(requests, clocks=False)
        rounds = [list(group.rounds()) for group in groups]
        answer: Any = [[job.cell.id for job in group.jobs] for group in groups]
    except (Exception, SystemExit) as error:
        answer = f"{type(error).__name__}: {error}"
    try:
        pipe.send(answer)
        while not isinstance(answer, str):
            task: Task = pipe.recv()
            group = groups[task.group]
            pipe.send(make(group, group.jobs[task.job], rounds[task.group][task.round], task.new))
    except (EOFError, OSError):  # the parent has ended, or no longer wants it
        return
