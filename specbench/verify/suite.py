"""A suite of checks on one subject, a method or a target: run them all, name those that fail.

Knows: that a check returns its complaint or None, and that whatever a plugin raises is a complaint too.
Refuses to know: what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from specbench.errors import SpecbenchError
from specbench.verify.result import Result

Subject = TypeVar("Subject")


def run_suite(name: str, subject: Subject, checks: Sequence[Callable[[Subject], str | None]]) -> Result:
    """Run every check on ``subject``; the result's detail names those that failed and why."""
    failures = []
    for check in checks:
        try:
            complaint = check(subject)
        except (Exception, SystemExit) as error:  # a crash is a failed check, not the end of the others
            complaint = plainly(error)
        if complaint:
            failures.append(f"{check.__name__.replace('_', ' ')}: {complaint}")
    return Result(name, "conformance", passed=not failures, detail="; ".join(failures) or f"{len(checks)} checks")


def plainly(error: BaseException) -> str:
    """An error in one line: its own sentence where it was written for people, else with its type."""
    text = str(error) if isinstance(error, SpecbenchError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
