"""The JSON document of ``run`` and ``sweep``: the contract that reports, scripts and people read.

Knows: the document's fields, cell states and exit codes.
Refuses to know: how a number is computed (``metrics``) and how it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specbench import drafters
from specbench.bench import diagnosis, metrics, store
from specbench.bench.cells import circumstances
from specbench.bench.config import RunRequest
from specbench.bench.planning import Group, Job, json_document
from specbench.bench.scoring import scorer_code
from specbench.bench.sharing import COMMON, group_rows
from specbench.bench.stats import Interval
from specbench.bench.store import Records, Writer
from specbench.models import declared_weights

SHOWN = 200
"""Characters of a warning about a prompt that are shown: what cannot be read of it may be as long as it is."""

ONE = {"value": 1.0, "low": 1.0, "high": 1.0}


@dataclass
class Outcome:
    """What only the run itself knows: counts, cells that stopped and why, images that came out differently."""

    total: int = 0
    done: int = 0
    warmup: int = 0
    stopped: dict[str, tuple[str, str]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    redrawn: dict[str, int] = field(default_factory=dict)


def build_document(groups: Sequence[Group], written: Writer, outcome: Outcome) -> dict[str, Any]:
    """Everything that is known about ``groups`` after a run, from the store."""
    cells: list[dict[str, Any]] = []
    first = groups[0]
    for number, group in enumerate(groups):
        baseline = written.cell(group.jobs[0].cell)
        for job in group.jobs:
            cells.append({**_cell(group, job, written.cell(job.cell), baseline, outcome), "group": number})
    shared = group_rows(groups, written)
    return json_document(
        cells=cells,
        groups=shared,
        cost_curve=next((row["cost_curve"] for row in shared if row["cost_curve"]), None),
        warmup=outcome.warmup,
        warnings=[
            *_untimed(groups),
            *_unscored(groups),
            *_random(groups),
            *_prompt_warnings(groups),
            *_session_warnings(written, groups),
        ],
        circumstances=circumstances(first.request.device, first.request.batch),
        prompts={
            "name": first.prompts.name,
            "count": len(first.items),
            "samples": first.request.prompts.samples,
            "hash": first.prompts.hash,
            "ids": sorted({prompt.id for group in groups for prompt in group.items}),
        },
        scorer=first.scorer,
        diagnosed=diagnosis.published() if any(group.request.diagnostics for group in groups) else None,
        out=str(written.out),
    )


def _cell(group: Group, job: Job, records: Records, baseline: Records, outcome: Outcome) -> dict[str, Any]:
    request, keys = job.request, group.image_keys()
    have = [key for key in keys if key in records.images]
    state, error = _state(job, len(have), len(keys), outcome)
    cell: dict[str, Any] = {
        "id": job.cell.id,
        "model": request.model,
        "method": request.method,
        "window": job.cell.shown_window,
        "seed": request.seed,
        "lossless": request.lossless,
        "state": state,
        "error": error,
        "images": len(have),
        "images_requested": len(keys),
        "batch": request.batch,
        "grid": list(group.target.grid[:3]),
        "settings": dict(request.settings),
        "requested": requested(request),
        "warnings": _cell_warnings(group, job, outcome),
    }
    counted = metrics.counters([records.images[key] for key in have]) if have else dict.fromkeys(_COUNTERS)
    effective = counted.pop("effective_window", None)
    cell["effective"] = {} if effective is None else {"window": effective}
    cell |= counted | _ratios(group, job, records, baseline)
    cell["accuracy"] = metrics.accuracy(records, have, group.scorer, scorer_code())
    entropies = [records.images[key]["entropy"] for key in have if records.images[key]["entropy"] is not None]
    if request.diagnostics:
        cell["diagnostics"] = diagnosis.summary(diagnosis.current(records.diagnostics, have))
    cell["entropy"] = sum(entropies) / len(entropies) if entropies else None
    return cell


_COUNTERS = (
    "nfe",
    "steps_with_row_ends",
    "tokens_per_pass",
    "accept_rate_pooled",
    "accept_rate_per_image_mean",
    "accept_rate_at",
    "accepted_length",
)


def _ratios(group: Group, job: Job, records: Records, baseline: Records) -> dict[str, Any]:
    """NFE and latency against AR. AR's own are 1 by definition, and carry no interval of width."""
    keys = group.image_keys()
    is_ar = job is group.jobs[0]
    pairs = metrics.timed_pairs(baseline, records, keys, group.request.device) if group.timed else {}
    own = [pair[1] for pair in pairs.values()]
    passes, clocks = metrics.nfe_ratio(baseline, records, keys), metrics.latency_ratio(pairs)
    flat = metrics.latency_ratio_flat(baseline, records, pairs)
    return {
        "paired": sum(key in baseline.images and key in records.images for key in keys),
        "nfe_ratio": _ratio(passes, is_ar),
        "latency_s": {"mean": sum(map(metrics.latency, own)) / len(own)} if own else None,
        "latency_ratio": _ratio(clocks, is_ar),
        "latency_ratio_flat": flat,
        "timed_together": len(pairs),
        "timing": metrics.timing_means(records, own, list(pairs)),
        "throughput": None
        if group.timed
        else metrics.throughput(
            records, [each.keys for each in group.rounds()], group.request.batch, group.request.device
        ),
    }


def _ratio(value: Interval | None, is_ar: bool) -> dict[str, Any] | None:
    if value is None:
        return None
    return dict(ONE) if is_ar else metrics.interval(value)


def requested(request: RunRequest) -> dict[str, Any]:
    """A cell's settings as they were asked for, under the keys that set them."""
    flat: dict[str, Any] = {"model": request.model, "model.protocol": request.protocol, "method": request.method}
    flat |= {f"method.{key}": value for key, value in request.settings.items()}
    flat |= {f"sampling.{key}": value for key, value in request.sampling.items()}
    flat |= {"window": request.window, "seed": request.seed, "device": request.device, "dtype": request.dtype}
    flat |= {"batch": request.batch, "prompts": request.prompts.name, "prompts.limit": request.prompts.limit}
    return flat | {"prompts.samples": request.prompts.samples, "scores": request.scorer}


def _state(job: Job, have: int, wanted: int, outcome: Outcome) -> tuple[str, str | None]:
    if have == wanted:
        return "done", None
    if job.cell.id in outcome.stopped:
        return outcome.stopped[job.cell.id]
    return "incomplete", f"{wanted - have} of {wanted} images are missing"


def _cell_warnings(group: Group, job: Job, outcome: Outcome) -> list[str]:
    changed, redrawn = outcome.changed.get(job.cell.id, 0), outcome.redrawn.get(job.cell.id, 0)
    images, pictures = f"image{'s' * (changed != 1)}", f"picture{'s' * (redrawn != 1)}"
    doubted = drafters.doubt(getattr(job.decoder, "heads", None), declared_weights(group.target))
    warnings = [] if doubted is None else [doubted]
    if changed:
        dtype = job.request.dtype
        warnings.append(f"{changed} stored {images} came out differently when decoded again (near-ties of {dtype})")
    if redrawn:
        warnings.append(f"{redrawn} stored {pictures} deleted or altered since, and drawn again from the stored tokens")
    return warnings


def _random(groups: Sequence[Group]) -> list[str]:
    """Models whose numbers are about the code and about nothing else."""
    names = {group.request.model for group in groups if getattr(group.target, "random_weights", False)}
    return [
        f"{name} has random weights: its pictures, counters and clocks say nothing about a real model"
        for name in sorted(names)
    ]


def _untimed(groups: Sequence[Group]) -> list[str]:
    return ["diagnostics are on, so nothing was timed"] if any(group.request.diagnostics for group in groups) else []


def _unscored(groups: Sequence[Group]) -> list[str]:
    """Models that were never taught the world whose captions a scorer can check."""
    names = {group.request.model for group in groups if group.unscored and group.request.scorer != "none"}
    return [f"{name} is not scored: the scorer of scenes knows only the drawn world of mini" for name in sorted(names)]


def _prompt_warnings(groups: Sequence[Group]) -> list[str]:
    """What the models cannot read of the prompts, each once, with the number of prompts it concerns."""
    counts: Counter[str] = Counter()
    seen = set()
    for group in groups:
        warn = getattr(group.target, "warnings", None)
        for prompt in group.items if callable(warn) else ():
            if (group.request.model, prompt.id) not in seen:
                seen.add((group.request.model, prompt.id))
                counts.update(text if len(text) <= SHOWN else f"{text[:SHOWN]}…" for text in warn(prompt))  # type: ignore[misc]
    unread = [text if n == 1 else f"{text} ({n} prompts)" for text, n in counts.items()]
    return [*unread, *_held_out(groups)]


def _held_out(groups: Sequence[Group]) -> list[str]:
    """Prompt sets mark captions whose combination the model never saw in training: harder, so they are counted."""
    prompts = {prompt.id: group.prompts.metadata.get(prompt.id, {}) for group in groups for prompt in group.items}
    count = sum(bool(facts.get("held_out")) for facts in prompts.values())
    return [f"{count} of {len(prompts)} prompts combine what was held out of training"] if count else []


def _session_warnings(written: Writer, groups: Sequence[Group]) -> list[str]:
    """A table from several sessions says so where their circumstances differ."""
    names = {
        image["session"]
        for group in groups
        for job in group.jobs
        for key, image in written.cell(job.cell).images.items()
        if key in set(group.image_keys())
    }
    notes = [note for name in sorted(names) if (note := store.session(written.out, name)) is not None]
    differ = [key for key in COMMON if len({str(note.get(key)) for note in notes}) > 1]
    return [f"the images come from {len(notes)} sessions that differ in {', '.join(differ)}"] if differ else []


def exit_code(document: Mapping[str, Any]) -> int:
    """0: every cell is done · 1: one failed, ran out of memory or was skipped for that · 5: images are missing."""
    states = {cell["state"] for cell in document["cells"]}
    if states & {"failed", "oom", "skipped"}:
        return 1
    return 5 if "incomplete" in states else 0


def pictures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The stored pictures of a run document, without those that are gone or altered by now:
    ``cell prompt text sample nfe file accepted committed fixed_pass changes grid``.
    """
    out = Path(document["out"])
    held = store.folders(out)
    rows = []
    for cell in document["cells"]:
        if cell["id"] not in held:
            continue
        shared = document["groups"][cell["group"]] if "groups" in document else document
        ids, samples = shared["prompts"]["ids"], range(shared["prompts"]["samples"])
        records = store.read_cell(held[cell["id"]])
        for prompt, sample in [(prompt, sample) for prompt in ids for sample in samples]:
            image = records.images.get((prompt, sample))
            if image is not None and not records.damaged([(prompt, sample)]):
                rows.append(
                    {
                        "cell": cell["id"],
                        "prompt": prompt,
                        "text": image["text"],
                        "sample": sample,
                        "nfe": metrics.nfe(image),
                        "file": str(records.folder / image["file"]),
                        "accepted": image["trace"]["accepted"],
                        "committed": image["trace"]["committed"],
                        "fixed_pass": image["trace"]["fixed_pass"],
                        "changes": image["trace"]["changes"],
                        "grid": cell["grid"],
                    }
                )
    return rows
