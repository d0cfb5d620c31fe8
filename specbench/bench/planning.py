"""From requests to work: targets loaded, cells named, rounds laid out, and what the store already has.

Knows: that every cell needs the AR cell of its terms, that batches are cut from the prompt set by index, and what is
still missing.
Refuses to know: clocks, files, and the order in which a round is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench import drafters
from specbench.bench import diagnosis, metrics, registry, store, weights
from specbench.bench.cells import Cell, cell_of, weights_hash
from specbench.bench.config import PromptRequest, RunRequest
from specbench.bench.events import CellLabel
from specbench.decoding import block_options
from specbench.errors import SpecbenchError, UsageError

if TYPE_CHECKING:
    from specbench.bench.store import Key, Records
    from specbench.decoding.interfaces import Decoder, Generation, Prompt, Target
    from specbench.decoding.laws import Sampling
    from specbench.prompts import PromptSet

SCHEMA = 1


@dataclass(frozen=True)
class Job:
    """One cell ready to run."""

    request: RunRequest
    cell: Cell
    decoder: Decoder
    widths: tuple[int, ...] = (1,)
    """Tokens of a pass, the most last: the window, or what blocks are long."""

    @property
    def label(self) -> CellLabel:
        """How people call it."""
        r = self.request
        return CellLabel(self.cell.id, r.model, r.method, r.window, r.seed)

    @property
    def width(self) -> int:
        """The most tokens that one pass evaluates."""
        return self.widths[-1]


@dataclass(frozen=True)
class Round:
    """Prompts that are decoded together by every cell, one after the other. ``index`` fixes the order."""

    index: int
    sample: int
    prompts: tuple[Prompt, ...]

    @property
    def keys(self) -> list[Key]:
        """What finds this round's images in a cell."""
        return [(prompt.id, self.sample) for prompt in self.prompts]


@dataclass(frozen=True)
class Group:
    """Cells of one AR cell: same model, precision, sampling, prompts, seed and batch. ``jobs[0]`` is AR.

    ``clocks`` says whether anything is to be timed at all; without it only counters and pictures are wanted.
    """

    target: Target
    sampling: Sampling
    prompts: PromptSet
    items: tuple[Prompt, ...]
    jobs: tuple[Job, ...]
    clocks: bool = True

    @property
    def request(self) -> RunRequest:
        """The request of the AR cell: what the group shares."""
        return self.jobs[0].request

    @property
    def timed(self) -> bool:
        """Latency is that of one image: it is measured at batch 1 and nowhere else."""
        return self.clocks and self.request.batch == 1

    @property
    def scorer(self) -> str | None:
        """The prompt set's scorer, unless scoring was switched off or the model never learned what the scorer knows."""
        return None if self.request.scorer == "none" or self.unscored else self.prompts.scorer

    @property
    def unscored(self) -> bool:
        """Whether the prompts have a scorer that has nothing to say here: scenes knows only the drawn world."""
        return self.prompts.scorer == "scenes" and registry.model(self.request.model).family is not None

    def rounds(self) -> Iterator[Round]:
        """All rounds; a batch is a run of prompt indices, whatever the store holds."""
        size = self.request.batch
        batches = [self.items[at : at + size] for at in range(0, len(self.items), size)]
        for sample in range(self.request.prompts.samples):
            for number, batch in enumerate(batches):
                yield Round(sample * len(batches) + number, sample, batch)

    def image_keys(self) -> list[Key]:
        """Every image of a cell, in the order of the rounds."""
        return [key for each in self.rounds() for key in each.keys]


def prepare(requests: Sequence[RunRequest], clocks: bool = True) -> list[Group]:
    """Build decoders, load prompts and targets once each, add the AR cells.

    Raises :class:`UsageError` for unknown parts, a limit beyond the set, a window beyond the image's tokens.
    """
    weights.require(requests)
    from specbench.decoding.laws import Sampling

    grouped: dict[str, list[RunRequest]] = {}
    for request in requests:
        _build(request, Sampling(**request.sampling))
        grouped.setdefault(_shared(request), []).append(request)
    targets: dict[tuple[str, str, str, str | None], tuple[Target, str]] = {}
    groups = []
    for members in grouped.values():
        first = members[0]
        sampling = Sampling(**first.sampling)
        prompts, items = _prompts(first.prompts)
        place = (first.model, first.dtype, first.device, first.path)
        if place not in targets:
            target = registry.load_target(*place)
            targets[place] = (target, weights_hash(target))
        loaded, weights_are = targets[place]
        target = registry.follow(loaded, first.model, first.protocol)
        if first.sampling["guidance"] not in (None, 1) and not getattr(target, "takes_guidance", True):
            raise UsageError(f"{first.model} has no unconditional row: sampling.guidance must be null")
        for request in members:
            if request.window is not None and request.window > target.grid.size:
                raise UsageError(
                    f"window {request.window} is beyond the {target.grid.size} tokens of an image of {request.model}"
                )
        wanted = {request.identity(): request for request in (_baseline(first), *members)}
        jobs = tuple(_job(request, sampling, target, weights_are, prompts.hash) for request in wanted.values())
        # An onlooker takes time of its own: what it watches is never timed.
        groups.append(Group(target, sampling, prompts, items, jobs, clocks and not first.diagnostics))
    return groups


@dataclass(frozen=True)
class _Unbuilt:
    """Stands in for a decoder that a plugin could not build: its cell fails when its turn comes, and no other."""

    error: BaseException
    lossless: bool = False

    def decode(self, *_: Any, **__: Any) -> Generation:
        """Raise what building raised."""
        raise self.error


def _job(request: RunRequest, sampling: Sampling, target: Target, weights_are: str, prompts: str) -> Job:
    """One cell with its decoder. Heads that did not come with the package are a term: images depend on them."""
    decoder = _build(request, sampling, target)
    hashed = str(getattr(getattr(decoder, "heads", None), "weights_hash", ""))
    named = request
    if hashed and not hashed.startswith("untrained") and hashed not in drafters.SHIPPED.values():
        named = replace(request, settings={**request.settings, "heads": f"{request.settings['heads']}@{hashed}"})
    grid = target.grid
    blocks = request.settings.get("decoder") == "block"
    lengths = block_options.widths(request.settings, grid.columns, grid.size, grid.row_ends) if blocks else ()
    return Job(request, cell_of(named, weights_are, prompts), decoder, (*lengths,) or (request.window or 1,))


def _build(request: RunRequest, sampling: Sampling, target: Target | None = None) -> Decoder:
    """The decoder of ``request``, for ``target`` once that is known.

    Raises :class:`UsageError` where the request, not the plugin, is at fault, :class:`SpecbenchError` where a file of
    trained heads is.
    """
    try:
        decoder = registry.build(request.method, request.settings, request.window, sampling)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        return _Unbuilt(error)
    try:
        return decoder if target is None else registry.bind(decoder, request.settings, target)
    except SpecbenchError:
        raise
    except (Exception, SystemExit) as error:
        return _Unbuilt(error)


def _shared(request: RunRequest) -> str:
    """What the cells of one group have in common: everything but the method, its window and its settings."""
    return _baseline(request).identity()


def _baseline(request: RunRequest) -> RunRequest:
    ar = registry.method("ar")
    return replace(request, method="ar", lossless=True, window=None, settings=dict(ar.settings), overridden=())


def _prompts(request: PromptRequest) -> tuple[PromptSet, tuple[Prompt, ...]]:
    from specbench.prompts import load_prompts

    prompts = load_prompts(request.name, path=request.path, text=request.text)
    count = len(prompts.items)
    if count == 0:
        raise UsageError(f"the prompt set {request.path or request.name} is empty")
    if request.limit is not None and request.limit > count:
        raise UsageError(f"prompts.limit={request.limit}, but {request.name} has {count} prompts")
    return prompts, tuple(prompts.items[: request.limit])


def pending(group: Group, job: Job, records: Records, baseline: Records, keys: Sequence[Key]) -> bool:
    """Whether ``job`` has to decode these images: one is missing, or the store lacks the clock this batch size is for.

    Batch and device are circumstances and no terms, so a cell holds clocks of all of them: which count is asked here
    with the same words as in ``metrics``, or a run would be called done and show no time.
    """
    if any(key not in records.images for key in keys):
        return True
    if job.request.diagnostics and (job is group.jobs[0] or diagnosis.shows_its_passes(job.decoder)):
        return len(diagnosis.current(records.diagnostics, keys)) < len(keys)
    if not group.clocks:
        return False
    if group.timed:
        return len(metrics.timed_pairs(baseline, records, keys, group.request.device)) < len(keys)
    # A rest of one image is no batch: throughput leaves it out.
    most, device = group.request.batch, group.request.device
    return len(keys) > 1 and any(not metrics.batches(records, [key], len(keys), most, device) for key in keys)


def todo(group: Group, held: Mapping[str, Records], keys: Sequence[Key]) -> list[Job]:
    """The jobs of a round that must run. Where one is to be timed, AR runs with it, in the same process."""
    ar, *others = group.jobs
    baseline = held[ar.cell.id]
    waiting = [job for job in others if pending(group, job, held[job.cell.id], baseline, keys)]
    if (waiting and group.timed) or pending(group, ar, baseline, baseline, keys):
        return [ar, *waiting]
    return waiting


def held(groups: Sequence[Group], out: str | Path) -> dict[str, Records]:
    """What the store has of each cell; nothing for a new one. Reads, and writes nothing."""
    store.check_layout(out)
    folder = Path(out) / "cells"
    return {job.cell.id: store.Records(job.cell, folder / job.cell.id) for group in groups for job in group.jobs}


def plan(requests: Sequence[RunRequest], out: str | Path = "runs", clocks: bool = True) -> dict[str, Any]:
    """What :func:`specbench.bench.run` would do, without doing it: see ``docs/architecture.md``."""
    memory = weights.fits(requests)
    if (missing := weights.missing(requests)) is not None:
        # What a run would take is worth knowing before gigabytes are downloaded for it.
        return json_document(cells=[], prompts=None, memory=memory, missing=missing)
    groups = prepare(requests, clocks)
    have = held(groups, out)
    cells = []
    for group in groups:
        runs = dict.fromkeys((job.cell.id for job in group.jobs), 0)
        for each in group.rounds():
            for job in todo(group, have, each.keys):
                runs[job.cell.id] += len(each.keys)
        for job in group.jobs:
            label = job.label
            wanted = group.image_keys()
            cells.append(
                {
                    "id": label.id,
                    "model": label.model,
                    "method": label.method,
                    "window": job.cell.shown_window,
                    "seed": label.seed,
                    "tokens": group.target.grid.size,
                    "images": len(wanted),
                    "stored": sum(key in have[label.id].images for key in wanted),
                    "to_run": runs[label.id],
                }
            )
    return json_document(cells=cells, prompts=sum(len(group.items) for group in groups), memory=memory, missing=None)


def json_document(**fields: Any) -> dict[str, Any]:
    """A document with its schema version first; it must survive JSON."""
    document = {"schema": SCHEMA, **fields}
    json.dumps(document, allow_nan=False)
    return document
