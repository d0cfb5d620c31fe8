"""``specbench train``: train what specbench ships, from data it draws itself.

Knows: ``key=value`` words, which target can be trained, and which drafters on any target.
Refuses to know: how training works (``specbench.models``, ``specbench.drafters``).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specbench.errors import SpecbenchError, UsageError, unknown

TARGETS = {"mini": ("specbench.models.mini.training.recipe", "train")}
"""Trainable targets: the module and the function, called with the other words as keyword arguments."""

DRAFTERS = {"ssd": ("specbench.drafters.training.recipe", "train_ssd")}
"""Trainable drafters: the same, called with the loaded target, its protocol and its name before the other words."""


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="target=NAME | drafter=NAME model=NAME [KEY=VALUE]...",
            help="What to train and its settings.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Train a target, or a drafter for a target. Examples: specbench train target=mini, drafter=ssd model=mini"""
    settings = parse(words or ())
    kinds = {"target": TARGETS, "drafter": DRAFTERS}
    named = [kind for kind in kinds if kind in settings]
    if len(named) != 1:
        raise UsageError(f"say what to train: target={'|'.join(TARGETS)}, or drafter={'|'.join(DRAFTERS)} model=NAME")
    kind = named[0]
    name = str(settings.pop(kind))
    if name not in kinds[kind]:
        raise unknown(kind, name, kinds[kind])
    function = _load(kind, name, *kinds[kind][name])
    if kind == "target":
        check_settings(function, settings)
        function(**settings)
        return 0
    model, protocol = str(settings.pop("model", "mini")), settings.pop("protocol", None)
    device, dtype = str(settings.pop("device", "cpu")), str(settings.pop("dtype", "float32"))
    check_settings(function, settings)
    function(*_target(model, protocol, dtype, device), model, **settings)
    return 0


def _load(kind: str, name: str, module: str, function: str) -> Any:
    from importlib import import_module

    found = getattr(import_module(module), function, None)
    if found is None:
        raise SpecbenchError(f"training of the {kind} {name} is not part of this installation")
    return found


def _target(model: str, protocol: Any, dtype: str, device: str) -> tuple[Any, Any]:
    """The loaded target, and the settings of its protocol (by default the one that it runs with)."""
    from specbench.bench import registry

    registry.load_plugins()
    chosen = registry.model(model)
    protocol = chosen.protocol if protocol is None else str(protocol)
    if protocol not in chosen.protocols:
        raise unknown(f"protocol of {model}", protocol, chosen.protocols)
    target = registry.follow(registry.load_target(model, dtype, device), model, protocol)
    return target, chosen.sampling(protocol)


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
    """Raise ``UsageError`` with the nearest name for a setting that ``function`` does not take, or of a wrong type.

    What a setting may be is told by its default: a whole number, a number, true or false, or text.
    """
    import inspect

    known = {
        key: p.default
        for key, p in inspect.signature(function).parameters.items()
        if p.kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    for key, value in settings.items():
        if key not in known:
            raise unknown("setting", key, known)
        if isinstance(known[key], bool | int | float) and not _fits(value, known[key]):
            kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(known[key])]
            raise UsageError(f"{key} must be {kind}, not {value!r}")


def _fits(value: Any, default: bool | int | float) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int) or (isinstance(default, float) and isinstance(value, float))


def _number(text: str) -> float | int | None:
    # YAML 1.1 reads 3e-4 as text, which nobody expects here.
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
