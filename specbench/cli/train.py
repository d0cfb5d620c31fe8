"""``specbench train``: train what specbench ships, from data it draws itself.

Knows: ``key=value`` words and which target can be trained.
Refuses to know: how training works (``specbench.models``).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specbench.errors import SpecbenchError, UsageError, unknown

TARGETS = {"mini": ("specbench.models.mini.training.recipe", "train")}
"""Trainable targets: the module and the function, called with the other words as keyword arguments."""


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="target=NAME [KEY=VALUE]...", help="What to train and its settings.", show_default=False
        ),
    ] = None,
) -> int:
    """Train a target. Example: specbench train target=mini"""
    settings = parse(words or ())
    target = settings.pop("target", None)
    if target is None:
        raise UsageError(f"say what to train: target={'|'.join(TARGETS)}")
    if target not in TARGETS:
        raise unknown("target", str(target), TARGETS)
    from importlib import import_module

    module, name = TARGETS[str(target)]
    function = getattr(import_module(module), name, None)
    if function is None:
        raise SpecbenchError(f"training of {target} is not part of this installation")
    check_settings(function, settings)
    function(**settings)
    return 0


def parse(words: list[str] | tuple[()]) -> dict[str, Any]:
    """Read ``key=value`` words; values are YAML scalars (``1000``, ``3e-4``, ``true``, text).

    Raises ``UsageError`` for a word that is not of that form, or given twice.
    """
    import yaml

    settings: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"{word!r} is not of the form key=value")
        if key in settings:
            raise UsageError(f"{key!r} is given twice")
        settings[key] = _number(text) if _number(text) is not None else yaml.safe_load(text)
    return settings


def check_settings(function: Any, settings: dict[str, Any]) -> None:
    """Raise ``UsageError`` with the nearest name for a setting that ``function`` does not take."""
    import inspect

    known = list(inspect.signature(function).parameters)
    for key in settings:
        if key not in known:
            raise unknown("setting", key, known)


def _number(text: str) -> float | int | None:
    # YAML 1.1 reads 3e-4 as text, which nobody expects here.
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
