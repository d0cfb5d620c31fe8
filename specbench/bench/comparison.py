"""Two cells held against each other on the images they share, if their terms allow it.

Knows: which terms must agree, which follow from the method under comparison, and that clocks compare only within one
process.
Refuses to know: targets, decoders; everything is read from the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench.bench import metrics, stats, store
from specbench.bench.cells import Cell
from specbench.bench.planning import json_document
from specbench.bench.scoring import scorer_code
from specbench.bench.store import Key, Records
from specbench.errors import NotComparableError, UsageError, unknown


def compare(a: str, b: str, out: str | Path = "runs", allow: Sequence[str] = ()) -> dict[str, Any]:
    """Hold cell ``a`` against cell ``b`` (id prefixes or paths) on their common prompts and samples.

    Returns a document with the two ``cells`` (ratios against AR of the same terms where the store has it), and
    ``comparison``: ``images`` and ``prompts`` (common ones), ``nfe_ratio`` and ``latency_ratio`` (a ÷ b: above 1, b is
    faster), ``timed_together`` (images behind the latter),
    ``accuracy_difference`` (a − b, of the printed accuracies where both cells are scored), ``identical_images``,
    ``differing`` (terms that were allowed to), ``sentence``.
    Raises :class:`NotComparableError` when terms differ that are neither allowed nor under comparison, or when no image
    is common; :class:`UsageError` for a name that finds no cell or several, and for an unknown ``allow``.
    """
    first, second = find(a, out), find(b, out)
    differing = differing_terms(first.cell, second.cell)
    for field in allow:
        if field not in _fields(first.cell) | _fields(second.cell):
            raise unknown("term", field, _fields(first.cell) | _fields(second.cell))
    refused = {field: pair for field, pair in differing.items() if field not in allow}
    if refused:
        listed = "; ".join(f"{field}: {x} against {y}" for field, (x, y) in refused.items())
        options = " ".join(f"--allow {field}" for field in refused)
        raise NotComparableError(f"the terms differ ({listed}): to compare nevertheless, add {options}")
    common = sorted(set(first.images) & set(second.images))
    if not common:
        raise NotComparableError("the two cells have no image in common (same prompt id and sample)")
    return json_document(
        cells=[_row(cell, common, Path(cell.folder).parent.parent) for cell in (first, second)],
        allowed=[field for field in allow if field in differing],
        comparison=_comparison(first, second, common),
        warnings=_warnings(first, second),
        out=str(out),
    )


def find(name: str, out: str | Path = "runs") -> Records:
    """The cell that ``name`` means: an id prefix in the store, a cell's folder, a store with one method, a document."""
    path = Path(name)
    if (path / "cell.json").is_file():
        return store.read_cell(path)
    if path.is_file():
        return _from_document(path)
    if (path / "store.json").is_file():
        return _only(name, [r for r in store.read(path).values() if r.cell.terms.method != "ar"])
    held = store.folders(out)
    if not held:
        raise UsageError(f"there are no cells at {out}: run something first, or say where with --out")
    matching = [folder for cell, folder in held.items() if name and cell.startswith(name)]
    if not matching:
        raise unknown("cell", name, held)
    return _only(name, [store.read_cell(folder) for folder in matching])


def _from_document(path: Path) -> Records:
    try:
        document = json.loads(path.read_text())
        ids = [cell["id"] for cell in document["cells"] if cell["method"] != "ar"]
        held = store.folders(_store_of(path, str(document["out"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a run document") from error
    return _only(str(path), [store.read_cell(held[name]) for name in ids if name in held])


def _store_of(document: Path, out: str) -> Path:
    """The store that a document is about: the one it lies in, wherever that was moved to, else where it says."""
    inside = document.resolve().parent.parent
    if (inside / "store.json").is_file():
        return inside
    beside = document.resolve().parent / out
    return beside if (beside / "store.json").is_file() else Path(out)


def _only(name: str, found: list[Records]) -> Records:
    if len(found) != 1:
        listed = ", ".join(_called(r.cell) for r in found) or "none"
        raise UsageError(f"{name!r} must mean one cell, and it means {len(found)}: {listed}")
    return found[0]


def _called(cell: Cell) -> str:
    window = "" if cell.shown_window is None else f", window {cell.shown_window}"
    return f"{cell.id} ({cell.terms.method}{window})"


def _fields(cell: Cell) -> set[str]:
    return set(_flat(cell))


def _flat(cell: Cell) -> dict[str, Any]:
    """The terms under the keys that set them."""
    terms = cell.terms
    flat: dict[str, Any] = {
        "model": terms.model,
        "weights": terms.weights,
        "dtype": terms.dtype,
        "prompts": terms.prompts,
    }
    flat |= {"seed": terms.seed, "window": terms.window}
    flat |= {f"sampling.{key}": value for key, value in terms.sampling.items()}
    flat |= {f"protocol.{key}": value for key, value in terms.recipe.items()}
    return flat | {f"method.{key}": value for key, value in terms.settings.items()}


def differing_terms(a: Cell, b: Cell) -> dict[str, tuple[Any, Any]]:
    """Terms in which two cells differ, as ``{field: (a, b)}``.

    Under comparison, hence not listed: the method, and the settings that follow from its name. A setting that was set
    by hand on either side is listed. A window counts where both have one (AR has none), a setting where both have it.
    """
    ours, theirs = _flat(a), _flat(b)
    by_hand = {f"method.{key}" for key in (*a.terms.overridden, *b.terms.overridden)}
    same_method = a.terms.method == b.terms.method
    differing = {}
    for field in ours:
        if field not in theirs or ours[field] == theirs[field]:
            continue
        if field == "window" and None in (ours[field], theirs[field]):
            continue
        if field.startswith("method.") and not (same_method or field in by_hand):
            continue
        differing[field] = (ours[field], theirs[field])
    return differing


def _comparison(a: Records, b: Records, common: Sequence[Key]) -> dict[str, Any]:
    passes = metrics.nfe_ratio(a, b, common)
    pairs = metrics.timed_pairs(a, b, common)
    clocks = metrics.latency_ratio(pairs)
    assert passes is not None
    same = sum(a.images[key]["tokens"] == b.images[key]["tokens"] for key in common)
    return {
        "images": len(common),
        "prompts": len({prompt for prompt, _ in common}),
        "nfe_ratio": metrics.interval(passes),
        "latency_ratio": None if clocks is None else metrics.interval(clocks),
        "timed_together": len(pairs),
        "accuracy_difference": accuracy_difference(a, b, common),
        "identical_images": same,
        "differing": {field: list(pair) for field, pair in differing_terms(a.cell, b.cell).items()},
        "sentence": _sentence(a, b, len(common), passes, clocks, len(pairs)),
    }


def _sentence(a: Records, b: Records, n: int, passes: stats.Interval, clocks: stats.Interval | None, timed: int) -> str:
    def name(records: Records) -> str:
        return records.cell.terms.method + (
            "" if records.cell.terms.window is None else f" at window {records.cell.terms.window}"
        )

    text = f"Over {n} common image{'s' * (n != 1)}, {name(a)} needs {_span(passes)} times the passes of {name(b)}"
    if clocks is None:
        return f"{text}; their clocks do not compare, since no process timed both."
    return f"{text}, and {_span(clocks)} times its time{'' if timed == n else f' (over the {timed} timed together)'}."


def _span(value: stats.Interval) -> str:
    if metrics.finite(value.low) is None:
        return f"{value.value:.2f}"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def accuracy_difference(a: Records, b: Records, common: Sequence[Key]) -> dict[str, Any] | None:
    """Accuracy of ``a`` minus that of ``b`` with its interval, over the common images that a scorer judged in both."""
    scorer = _scorer(a)
    if scorer is None:
        return None
    pairs = [(key[0], _verdict(a, key, scorer), _verdict(b, key, scorer)) for key in common]
    both = [(prompt, x, y) for prompt, x, y in pairs if x is not None and y is not None]
    if not both:
        return None
    return metrics.interval(
        stats.mean_difference_of_families(
            [float(bool(x["correct"])) for _, x, _ in both],
            [float(bool(y["correct"])) for _, _, y in both],
            [prompt for prompt, _, _ in both],
            [x["family"] for _, x, _ in both],
        )
    )


def _scorer(records: Records) -> str | None:
    names = {scorer for _, _, scorer, code in records.scores if code == scorer_code()}
    return min(names) if names else None


def _verdict(records: Records, key: Key, scorer: str) -> dict[str, Any] | None:
    score = records.scores.get((*key, scorer, scorer_code()))
    return None if score is None else score["verdict"]


def _row(records: Records, common: Sequence[Key], out: Path) -> dict[str, Any]:
    """One cell as a row of the table, over the common images; ratios against AR where the store has it."""
    terms = records.cell.terms
    counted = metrics.counters([records.images[key] for key in common])
    effective = {"window": counted.pop("effective_window")}
    baseline = _baseline(records, out)
    passes = metrics.nfe_ratio(baseline, records, common) if baseline else None
    clocks = metrics.latency_ratio(metrics.timed_pairs(baseline, records, common)) if baseline else None
    return {
        "id": records.cell.id,
        "model": terms.model,
        "method": terms.method,
        "window": records.cell.shown_window,
        "seed": terms.seed,
        "lossless": records.cell.lossless,
        "state": "done",
        "images": len(common),
        "settings": dict(terms.settings),
        "requested": {**_flat(records.cell), "prompts": records.cell.prompt_set},
        "effective": effective,
        **counted,
        "nfe_ratio": None if passes is None else metrics.interval(passes),
        "latency_ratio": None if clocks is None else metrics.interval(clocks),
        "accuracy": metrics.accuracy(records, common, _scorer(records), scorer_code()),
    }


def _baseline(records: Records, out: Path) -> Records | None:
    """The AR cell of the same terms in the same store."""
    for folder in store.folders(out).values():
        other = store.description(folder)
        if other.terms.method == "ar" and other.code == records.cell.code and not differing_terms(other, records.cell):
            return store.read_cell(folder)
    return None


def _warnings(a: Records, b: Records) -> list[str]:
    if a.cell.code == b.cell.code:
        return []
    return [f"the code differs: {a.cell.id} was made by {a.cell.code}, {b.cell.id} by {b.cell.code}"]
