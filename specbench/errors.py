"""Errors that a person reads, and the exit code each one stands for.

Knows: exit codes and how to name the nearest valid choice.
Refuses to know: who raises them and how they are printed (the command line prints one sentence, never a traceback).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecbenchError(Exception):
    """Something failed, and the message says what and what to do. Exit code 1."""

    exit_code = 1


class UsageError(SpecbenchError):
    """The request cannot be carried out as it was put. Exit code 2."""

    exit_code = 2


class NotComparableError(SpecbenchError):
    """Two results do not share their terms. Exit code 3."""

    exit_code = 3


class RegressionError(SpecbenchError):
    """A counter differs from its baseline. Exit code 4."""

    exit_code = 4


class IncompleteError(SpecbenchError):
    """Some images of the request are missing. Exit code 5."""

    exit_code = 5


def unknown(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """Build the error for an unknown ``name``: what was expected, and the nearest valid one.

    >>> print(unknown("method", "sdc", ["sjd", "scd", "ar"]))
    unknown method 'sdc': did you mean 'scd'? (known: ar, scd, sjd)
    """
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=len(known) or 1, cutoff=0.5)
    # Among the close ones a transposition comes first: 'sdc' is 'scd' mistyped, not 'sjd'.
    near.sort(key=lambda other: sorted(other) != sorted(name))
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {kind} {name!r}: {hint}(known: {', '.join(known)})")
