"""The law tests: what a method's images are distributed as, and whether that is plain AR.

``verify(methods, kinds)`` is all that the command line calls. Each kind lives in a file of its own:
``exact`` (enumeration of the production code), ``statistical`` (the same code under its real noise on a small
transformer), ``mutants`` (whether the first two would notice), ``conformance`` (what a new method gets for free).
Refuses to know: configuration files, names of methods, terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from specbench.errors import UsageError, unknown

KINDS = ("exact", "statistical", "mutants", "conformance")


def verify(methods: Sequence[Mapping[str, Any]], kinds: Sequence[str] = ("exact",)) -> list[dict[str, Any]]:
    """Verdicts for every method and kind, in order: the ``results`` of the ``--json`` contract.

    A method is a mapping with ``name``, ``lossless`` and ``settings`` (as ``build_decoder`` takes them), and
    where those are not enough (a plugin's own parts) ``build(window, sampling) -> Decoder``; a ``note`` (which
    settings were changed) begins the detail. A method that raises has failed, whatever it raises. ``mutants``
    judges the verifier, not the methods: it is run once, and yields one result per mutant.
    Raises ``UsageError`` for an unknown kind.
    """
    return list(verify_each(methods, kinds))


def verify_each(methods: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """As :func:`verify`, one verdict at a time, for whoever shows progress."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of verification", kind, KINDS)
    if not methods and set(kinds) != {"mutants"}:
        raise UsageError("there is no method to verify")
    for kind in kinds:
        if kind == "mutants":
            from specbench.verify.mutants import mutants

            yield from (result.as_dict() for result in mutants())
        else:
            yield from (_verdict(kind, method) for method in methods)


def _verdict(kind: str, method: Mapping[str, Any]) -> dict[str, Any]:
    """One judgement. A method that breaks down under it has failed it, and the others are judged nevertheless."""
    from specbench.verify.result import Result
    from specbench.verify.suite import plainly

    try:
        result: Result = _judge(kind)(method)
    except (Exception, SystemExit) as error:  # a plugin may raise anything, when built or while decoding
        result = Result(method["name"], kind, passed=False, detail=plainly(error))
    note = method.get("note")
    return {**result.as_dict(), **({"detail": f"{note}: {result.detail}"} if note else {})}


def _judge(kind: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function of one kind, imported only when asked for (it brings torch)."""
    if kind == "exact":
        from specbench.verify.exact import exact

        return exact
    if kind == "statistical":
        from specbench.verify.statistical import statistical

        return statistical
    from specbench.verify.conformance import conformance

    return conformance
