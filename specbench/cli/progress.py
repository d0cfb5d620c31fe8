"""Live progress on stderr: a bar with an ETA on a terminal, plain lines elsewhere, nothing when asked for nothing.

Knows: the runner's events, by their names.
Refuses to know: what makes them happen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLAIN_INTERVAL = 10.0
"""Seconds between two plain progress lines, so that a log stays readable."""


class Tally:
    """What the run has told so far: enough to say what is kept when it is interrupted."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0
        self.stored = 0

    def note(self, event: Any) -> None:
        """Count one event."""
        if type(event).__name__ == "Planned":
            self.total, self.stored = event.total, event.stored
        elif type(event).__name__ == "ImageDone":
            self.done, self.total = event.done, event.total


@contextmanager
def progress(tally: Tally, quiet: bool = False) -> Iterator[Callable[[Any], None]]:
    """Yield the function to hand to the runner as ``on_event``; the bar is gone when the block ends."""
    from specbench.report.terminal import console

    out = console(stderr=True)
    show: Callable[[Any], None]
    if quiet:
        yield tally.note
        return
    if not out.is_terminal:
        show = plain_lines(lambda text: out.print(text, markup=False, soft_wrap=True))
        yield _both(tally.note, show)
        return
    with _bar(out) as show:
        yield _both(tally.note, show)


def plain_lines(write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[Any], None]:
    """Return an event handler that writes a line at the start, every ten seconds, at failures and at the end."""
    start = last = clock()

    def show(event: Any) -> None:
        nonlocal start, last
        kind = type(event).__name__
        if kind == "ImageDone":
            now = clock()
            if event.done < event.total and now - last < PLAIN_INTERVAL:
                return
            last = now
            write(
                f"{event.done}/{event.total} images, {label(event.cell)}, {eta(event.done, event.total, now - start)}"
            )
        elif kind == "WarmedUp":
            # Loading and warming up say nothing about the pace of images.
            start = last = clock()
        else:
            write(sentence(event))

    return show


def sentence(event: Any) -> str:
    """Say in one line what an event means."""
    kind = type(event).__name__
    if kind == "Planned":
        cells = event.cells if isinstance(event.cells, int) else len(event.cells)
        stored = f", {event.stored} of them stored already" if event.stored else ""
        return f"{cells} cells, {event.total} images{stored}"
    if kind == "ImageDone":
        return f"{label(event.cell)}: {event.prompt_id}"
    if kind == "CellFailed":
        return f"{label(event.cell)} {event.state}: {event.message}"
    if kind == "WarmedUp":
        return f"{label(event.cell)}: warmed up"
    return str(getattr(event, "message", kind))


def label(cell: Any) -> str:
    """Name a cell in a few letters."""
    return str(cell.method) + (f" window={cell.window}" if cell.window is not None else "")


def eta(done: int, total: int, elapsed: float) -> str:
    """Say how much time the rest takes at the pace so far."""
    if done >= total:
        return f"done in {_clock(elapsed)}"
    return f"about {_clock(elapsed / max(done, 1) * (total - done))} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def handle(event: Any) -> None:
        first(event)
        second(event)

    return handle


@contextmanager
def _bar(out: Any) -> Iterator[Callable[[Any], None]]:
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    # Drawn between images and never by a thread of its own, which would run inside what is being timed.
    with Progress(*columns, console=out, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("loading", total=None)
        bar.refresh()

        def show(event: Any) -> None:
            kind = type(event).__name__
            if kind == "Planned":
                bar.update(task, total=event.total, description="warming up")
            elif kind == "ImageDone":
                bar.update(task, total=event.total, completed=event.done, description=escape(label(event.cell)))
            elif kind in ("CellFailed", "Note"):
                bar.console.print(escape(sentence(event)), soft_wrap=True)
            bar.refresh()

        yield show
