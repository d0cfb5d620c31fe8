"""The regression gate: pass counts and token hashes of a few images against a tracked baseline.

Knows: what is counted, in float64, where the same numbers must come out on every machine.
Refuses to know: clocks, pictures, the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specbench.bench import disk, paths, registry
from specbench.bench.cells import digest
from specbench.bench.config import compose
from specbench.bench.events import CellLabel, Event, ImageDone, Note, Planned
from specbench.bench.planning import Job, json_document, prepare
from specbench.errors import SpecbenchError, UsageError

WORDS = ("dtype=float64", "method=ar,sjd,scd,scd_gs", "prompts=scenes", "prompts.limit=8", "seed=0", "batch=8")
SUITES = {
    "mini/tiny": ("model=mini/tiny", "window=8"),
    "mini": ("model=mini", "window=32"),
}
"""Model → the words of its suite; each has its own baseline file."""


def check(
    update: bool = False,
    on_event: Callable[[Event], None] | None = None,
    baseline: str | Path | None = None,
    models: tuple[str, ...] = ("mini/tiny", "mini"),
) -> dict[str, Any]:
    """Decode 8 prompts with AR, SJD, SCD and SCD-GS and compare NFE totals and token hashes with ``baseline``.

    ``baseline`` is a folder of ``MODEL.json`` files (default: the tracked one). Returns ``schema``, ``passed``,
    ``updated``, ``cells``, ``changes`` (``[{"cell", "field", "baseline", "measured"}]``) and ``skipped`` (models that
    cannot be loaded here and have no baseline either). With ``update`` the measured values become the baseline. Raises
    :class:`UsageError` for a model that has none: a gate without a baseline would never close.
    """
    folder = Path(baseline) if baseline is not None else paths.baselines()
    tell = on_event or (lambda event: None)
    changes: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for model in models:
        file = folder / f"{model.replace('/', '-')}.json"
        if not file.is_file():
            # Only a model that never had a baseline may be missing; with one, its absence is an error below.
            if (missing := _missing(model)) is not None:
                skipped.append({"model": model, "reason": missing})
                tell(Note(f"{model} is not checked: {missing}"))
                continue
            if not update:
                raise UsageError(f"there is no baseline {file}: `specbench check --update` records one")
        measured = _measure(model, tell)
        stored = disk.read_json(file)["cells"] if file.is_file() else []
        changes += _changes(stored, measured)
        cells += measured
        if update:
            disk.make_folder(folder)
            disk.write_atomic(file, _pretty({"schema": 1, "words": [*SUITES[model], *WORDS], "cells": measured}))
    return json_document(passed=not changes or update, updated=update, changes=changes, cells=cells, skipped=skipped)


def _missing(model: str) -> str | None:
    """Why a model cannot be loaded here, or None when it can."""
    try:
        registry.load_target(model, "float64")
    except SpecbenchError as error:
        return str(error)
    return None


def _measure(model: str, tell: Callable[[Event], None]) -> list[dict[str, Any]]:
    (group,) = prepare(compose([*SUITES[model], *WORDS]))
    labels = tuple(job.label for job in group.jobs)
    total = len(group.items) * len(group.jobs)
    tell(Planned(labels, total, 0))
    cells = []
    for number, job in enumerate(group.jobs):
        generation = job.decoder.decode(group.target, group.items, seed=job.request.seed)
        passes = generation.trace.nfe.tolist()
        tokens = generation.tokens.tolist()
        for row, prompt in enumerate(group.items):
            done = number * len(group.items) + row + 1
            tell(ImageDone(job.label, prompt.id, 0, passes[row], 0.0, done, total))
        cells.append(
            {
                "cell": _name(job),
                "model": job.label.model,
                "method": job.label.method,
                "window": job.cell.shown_window,
                "weights": job.cell.terms.weights,
                "prompts": job.cell.terms.prompts,
                "nfe_total": sum(passes),
                "tokens": {p.id: digest(disk.dumps(row))[:16] for p, row in zip(group.items, tokens, strict=True)},
            }
        )
    return cells


def _name(job: Job) -> str:
    label: CellLabel = job.label
    return f"{label.model} {label.method}" + ("" if label.window is None else f" {label.window}")


def _changes(stored: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every field that differs, appeared or disappeared."""
    before = {cell["cell"]: _flat(cell) for cell in stored}
    after = {cell["cell"]: _flat(cell) for cell in measured}
    return [
        {"cell": cell, "field": field, "baseline": old, "measured": new}
        for cell in dict.fromkeys([*before, *after])
        for field in dict.fromkeys([*before.get(cell, {}), *after.get(cell, {})])
        if (old := before.get(cell, {}).get(field)) != (new := after.get(cell, {}).get(field))
    ]


def _flat(cell: dict[str, Any]) -> dict[str, Any]:
    tokens = {f"tokens {prompt}": value for prompt, value in cell["tokens"].items()}
    return {key: cell[key] for key in ("weights", "prompts", "nfe_total")} | tokens


def _pretty(value: dict[str, Any]) -> bytes:
    import json

    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
