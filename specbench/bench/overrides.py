"""``key=value`` words from the command line: parsed, checked against what exists, sweeps expanded.

Knows: which keys can be set, Hydra's value grammar, and how to answer a typo with the nearest name.
Refuses to know: what the values mean (``config`` checks ranges).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specbench.bench import guards, paths, registry
from specbench.decoding import options
from specbench.errors import UsageError, unknown

GROUPS = ("model", "method", "prompts", "scores")
SCALARS = ("window", "seed", "device", "dtype", "batch", "prompt", "diagnostics")
FIXED = (
    *GROUPS,
    *SCALARS,
    "model.protocol",
    "model.path",
    *(f"sampling.{name}" for name in ("temperature", "top_k", "top_p", "guidance")),
    *(f"prompts.{name}" for name in ("limit", "samples", "path")),
)
FREE_TEXT = ("prompt", "prompts.path", "model.path")
"""Captions and paths are taken as they are: a comma or a colon in them is neither a sweep nor grammar."""

Combination = tuple[tuple[str, str], ...]
"""One point of a sweep: ``(key, value)`` pairs, each value in Hydra's grammar, or plain text for FREE_TEXT."""


@dataclass(frozen=True)
class Override:
    """One word of the command line: a key and the values it sweeps over (usually one)."""

    key: str
    values: tuple[str, ...]


def choices(group: str) -> list[str]:
    """Names that can be chosen in a Hydra group, plugins included."""
    if group == "method":
        return sorted(registry.methods())
    if group == "model":
        return sorted(registry.models())
    return [choice for choice, _ in paths.group(group)]


def method_keys(names: Iterable[str]) -> set[str]:
    """``method.fill`` and the like: the settings that at least one of these methods can have."""
    known = registry.methods()
    return {f"method.{key}" for name in names for key in _settings(known[name]) if key != "decoder"}


def _settings(method: registry.Method) -> Iterable[str]:
    """A method takes every part and option of its kind, so that a composition needs no file of its own."""
    kind = str(method.settings.get("decoder"))
    return {*method.settings, *(options.names_of(kind) if method.factory is None else ())}


def parse(words: Sequence[str]) -> list[Override]:
    """Parse and check ``key=value`` words.

    Raises :class:`UsageError` for a word without ``=``, an unknown key or group choice, a key given twice, or a value
    outside Hydra's grammar.
    """
    found: dict[str, Override] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals:
            raise UsageError(f"{word!r} is not of the form key=value")
        if key in found:
            raise UsageError(f"{key!r} is given twice: sweep with a comma, as in {key}=A,B")
        found[key] = Override(key, _values(key, text.strip()))
    for group in GROUPS:
        for value in found[group].values if group in found else ():
            if value not in choices(group):
                raise unknown("prompt set" if group == "prompts" else group, value, choices(group))
    chosen = found["method"].values if "method" in found else tuple(registry.methods())
    known = {*FIXED, *method_keys(chosen)}
    if "window" in found and set(found["window"].values) != {"null"}:
        guards.has_window({name: registry.methods()[name] for name in chosen}, found["window"].values)
    for key in found:
        if key in method_keys(registry.methods()) - known:
            raise UsageError(f"method {' or '.join(chosen)} has no setting {key.removeprefix('method.')!r}")
        if key not in known:
            raise unknown("key", key, known)
    return list(found.values())


def _values(key: str, text: str) -> tuple[str, ...]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if key in FREE_TEXT:
        return (_unquoted(text),)
    if not text:
        raise UsageError(f"{key!r} needs a value: {key}=…")
    try:
        override = OverridesParser.create().parse_override(f"{key}={text}")
        if not override.is_sweep_override():
            return (text,)
        return tuple(str(value) for value in override.sweep_string_iterator())
    except (HydraException, ValueError, TypeError) as error:
        raise UsageError(f"the value of {key!r} cannot be read: {text!r}") from error


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def combinations(overrides: Sequence[Override]) -> list[Combination]:
    """Every point of the sweep, the last key varying fastest."""
    spread = [[(o.key, value) for value in o.values] for o in overrides]
    return [tuple(point) for point in itertools.product(*spread)]
