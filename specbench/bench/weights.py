"""Weights of real models: are they here, what is missing, and how much memory a run takes.

Knows: the model files' facts about checkpoints and sizes, and the places that are looked at.
Refuses to know: torch, and what is in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specbench.bench import paths, registry
from specbench.bench.config import RunRequest
from specbench.decoding import block_options
from specbench.errors import SpecbenchError
from specbench.models import source

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}
GIB = 2**30


def require(requests: Iterable[RunRequest]) -> None:
    """Raise :class:`SpecbenchError`, before anything heavy is imported, when the weights of a model are not here."""
    for name, path in dict.fromkeys((request.model, request.path) for request in requests):
        chosen = registry.model(name)
        if chosen.family is not None:
            source.require(name, chosen.weights, path, paths.weights_root())


def missing(requests: Iterable[RunRequest]) -> str | None:
    """What :func:`require` would say, as a sentence; None where everything is here."""
    try:
        require(requests)
    except SpecbenchError as error:
        return str(error)
    return None


def examine(name: str, path: str | None = None) -> list[dict[str, Any]]:
    """``name state detail next_step`` of every file that a model needs; one row for a model that needs none."""
    chosen = registry.model(name)
    rows = []
    for found in source.locate(chosen.weights, path, paths.weights_root()):
        part = found.bundle
        for file in part.files:
            gone, where = found.lacks(file), "" if found.folder is None else f" not in {found.folder}"
            rows.append(
                {
                    "name": f"{name}: {Path(part.inside, file)}",
                    "state": "missing" if gone else "ok",
                    "detail": ", ".join(gone) + where if gone else str(found.folder),
                    "next_step": _next_step(found, given=path) if gone else None,
                }
            )
        rows.append(
            {
                "name": f"{name}: licence of {Path(part.inside, part.files[-1])}",
                "state": "ok",
                "detail": f"{part.licence}; {part.gigabytes:g} GB",
                "next_step": None,
            }
        )
    return rows


def _next_step(found: source.Located, given: str | None) -> str:
    part = found.bundle
    if given is not None and found.folder is not None and found.folder.is_relative_to(Path(given).expanduser()):
        return f"download it from {' or '.join(part.hubs)} into {found.folder}"
    return f"download it from {' or '.join(part.hubs)} into ROOT/{part.hubs[0]} and add --weights-root ROOT"


def summary(name: str) -> str:
    """One sentence: where the weights are. Raises :class:`SpecbenchError` when some are missing."""
    chosen = registry.model(name)
    found = source.require(name, chosen.weights, None, paths.weights_root())
    return "; ".join(str(part.folder) for part in found) if found else "written here when first asked for"


def memory(request: RunRequest) -> dict[str, Any] | None:
    """GiB that a cell takes: ``weights``, ``kv_cache``, ``activations`` and their sum ``total``; None if unknown.

    Activations are those of the first pass, which reads the prompt: two layers' worth of hidden states, what hides
    slots from attention (or that of a later pass over the whole cache, if it is more), the logits of both rows in the
    computing dtype, their float32 copies, the guided ones and up to four laws of the same size (target, draft,
    residual, noise). Allocators and libraries take more; it is an estimate, not a promise.
    """
    sizes: Mapping[str, float] = registry.model(request.model).sizes
    if not sizes:
        return None
    width, batch, each = _width(request, sizes), request.batch, BYTES[request.dtype]
    rows = batch * (1 if request.sampling["guidance"] in (None, 1) else 2)
    head = sizes["width"] / sizes["heads"]
    prompt = sizes.get("prompt", PROMPT)
    slots = sizes["tokens"] + sizes["row_ends"] + prompt + width
    weights = sizes["parameters"] * each + sizes["picture_parameters"] * 4
    cache = 2 * sizes["layers"] * rows * sizes["kv_heads"] * head * slots * each
    fed = rows * (prompt + width)
    hidden = fed * (4 * sizes["width"] + 3 * sizes["feedforward"]) * each
    hiding = rows * max((prompt + width) ** 2, width * slots) * (sizes["heads"] / sizes["kv_heads"] * each + each + 2)
    codes = width * sizes["codes"] * (rows * (each + 4) + batch * 5 * 4)
    shown = None if request.settings.get("decoder") == "block" else width
    parts = {"weights": weights / GIB, "kv_cache": cache / GIB, "activations": (hidden + hiding + codes) / GIB}
    return {"model": request.model, "dtype": request.dtype, "window": shown, "batch": batch} | {
        key: round(value, 3) for key, value in {**parts, "total": sum(parts.values())}.items()
    }


def _width(request: RunRequest, sizes: Mapping[str, float]) -> int:
    """The most tokens of a pass: the window, or the longest block of the grid (square where no columns are named)."""
    if request.settings.get("decoder") != "block":
        return request.window or 1
    tokens = int(sizes["tokens"])
    columns = int(sizes.get("columns", math.isqrt(tokens)))
    return block_options.widths(request.settings, columns, tokens, bool(sizes["row_ends"]))[-1]


PROMPT = 64
"""Prompt tokens that the estimate assumes where a model's file does not state them."""


def fits(requests: Iterable[RunRequest]) -> list[dict[str, Any]]:
    """:func:`memory` of every request that has one, each once."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for request in requests:
        found = memory(request)
        if found is not None:
            seen.setdefault(tuple(found.values()), found)
    return list(seen.values())
