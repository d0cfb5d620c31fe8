"""What there is: methods, models, prompt sets, runs, tables, and the keys and values of the command line.

Knows: where each kind is listed.
Refuses to know: torch, Hydra, and how lists are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench.bench import overrides, paths, registry, store, verified
from specbench.bench.config import DTYPES
from specbench.errors import unknown


def list_methods(plugins: Sequence[str | Path] = ()) -> list[dict[str, Any]]:
    """``name lossless window summary paper settings source`` of every method."""
    registry.load_plugins(plugins)
    fields = ("name", "lossless", "window", "summary", "paper", "settings", "source")
    return [{key: getattr(method, key) for key in fields} for method in registry.methods().values()]


def list_models(plugins: Sequence[str | Path] = ()) -> list[dict[str, Any]]:
    """``name summary protocols source verified`` of every model; protocols map a name to its sampling.

    ``verified`` is what tests have shown of a family whose weights are not shipped, in one line; None for others.
    """
    registry.load_plugins(plugins)
    fields = ("name", "summary", "protocols", "source")
    return [
        {**{key: getattr(model, key) for key in fields}, "verified": verified.sentence(model.family)}
        for model in registry.models().values()
    ]


def list_prompts() -> list[dict[str, Any]]:
    """``name summary source`` of every prompt set."""
    from specbench.prompts import SETS

    return [
        {"name": choice, "summary": SETS.get(choice, ""), "source": f"conf/prompts/{choice}.yaml"}
        for choice, _ in paths.group("prompts")
    ]


def list_tables() -> list[dict[str, Any]]:
    """``name summary model source`` of every published table; ``model`` is the paper's, by our name."""
    from specbench.bench import tables

    return tables.summaries()


def list_runs(out: str | Path = "runs") -> list[dict[str, Any]]:
    """``id model method window seed dtype prompts images timed code`` of every cell in a store."""
    rows = []
    for name, records in store.read(out).items():
        terms = records.cell.terms
        rows.append(
            {
                "id": name,
                "model": terms.model,
                "method": terms.method,
                "window": records.cell.shown_window,
                "seed": terms.seed,
                "dtype": terms.dtype,
                "sampling": terms.sampling,
                "prompts": records.cell.prompt_set,
                "images": len(records.images),
                "timed": len(records.timings),
                "code": records.cell.code,
            }
        )
    return rows


def keys(plugins: Sequence[str | Path] = ()) -> list[str]:
    """Every key that can be set on the command line."""
    registry.load_plugins(plugins)
    return sorted({*overrides.FIXED, *overrides.method_keys(registry.methods())})


def values(key: str, plugins: Sequence[str | Path] = ()) -> list[str]:
    """The known values of a key, for completion; empty where it takes any number or text.

    Raises :class:`UsageError` with the nearest key when there is none of this name.
    """
    known = keys(plugins)
    if key not in known:
        raise unknown("key", key, known)
    if key in overrides.GROUPS:
        return overrides.choices(key)
    if key == "model.protocol":
        return sorted({name for model in registry.models().values() for name in model.protocols})
    if key.startswith("method."):
        name = key.removeprefix("method.")
        return sorted({str(m.settings[name]) for m in registry.methods().values() if name in m.settings} | _fills(name))
    return {"dtype": sorted(DTYPES), "device": ["cpu", "cuda"], "diagnostics": ["false", "true"]}.get(key, [])


def _fills(setting: str) -> set[str]:
    """Fills are chosen by hand more than any other part, so all of them are offered, used by a method or not."""
    return {"uniform", "onehot", "left", "above", "left_law", "above_law"} if setting == "fill" else set()
