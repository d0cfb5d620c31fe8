"""What is there, what is missing, and the next step: the facts behind ``specbench doctor``.

Knows: what each part of the tool needs from this machine.
Refuses to know: how to repair it by itself.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from specbench.bench import paths, registry, store, weights
from specbench.errors import SpecbenchError

PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "typer", "rich", "pillow", "matplotlib", "safetensors")
NEEDED_GB = 1.0


def doctor(out: str | Path = "runs", models: Sequence[str] = (), path: str | None = None) -> list[dict[str, Any]]:
    """``name state detail next_step`` of everything a run needs; ``state`` is ``ok``, ``missing`` or ``broken``.

    With ``models``, of every file of their weights instead; ``path`` is a folder or hub id to look for them in.
    Raises :class:`UsageError` for a model that does not exist.
    """
    if models:
        return [row for name in models for row in _files(name, path)]
    rows = [_row("python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")]
    rows += [_package(name) for name in PACKAGES]
    rows.append(_guarded("device", _device, "install a torch that runs on this machine"))
    rows.append(_guarded("configuration", lambda: str(paths.conf()), "install specbench again"))
    rows += [_weights(name) if model.family else _loaded(name) for name, model in registry.models().items()]
    rows.append(_guarded("store", partial(_store, Path(out)), "choose another folder with --out"))
    return rows


def _row(name: str, ok: bool, detail: str, next_step: str, bad: str = "missing") -> dict[str, Any]:
    return {"name": name, "state": "ok" if ok else bad, "detail": detail, "next_step": None if ok else next_step}


def _package(name: str) -> dict[str, Any]:
    try:
        return _row(name, True, metadata.version(name), "")
    except metadata.PackageNotFoundError:
        return _row(name, False, "not installed", f"pip install {name}")


def _guarded(name: str, look: Callable[[], str], next_step: str) -> dict[str, Any]:
    try:
        return _row(name, True, look(), "")
    except Exception as error:  # a doctor reports every illness, of whatever kind
        sentence = str(error) if isinstance(error, SpecbenchError) else f"{type(error).__name__}: {error}"
        return _row(name, False, sentence, next_step, "broken")


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"cpu with {torch.get_num_threads()} threads, and {torch.cuda.get_device_name()}"
    return f"cpu with {torch.get_num_threads()} threads, no CUDA device"


def _files(name: str, path: str | None) -> list[dict[str, Any]]:
    chosen = registry.model(name)
    rows = [_package("transformers")] if chosen.family else []
    return [*rows, *weights.examine(name, path)] if chosen.weights else [*rows, _loaded(name)]


def _weights(name: str) -> dict[str, Any]:
    """A real model is not loaded to see whether it is there."""
    try:
        return _row(f"model {name}", True, weights.summary(name), "")
    except SpecbenchError:
        return _row(f"model {name}", False, "its weights are not here", f"specbench doctor model={name}")


def _loaded(name: str) -> dict[str, Any]:
    return _guarded(f"model {name}", partial(_model, name), "install specbench again")


def _model(name: str) -> str:
    target = registry.load_target(name)
    return f"{target.grid.rows}×{target.grid.columns} tokens, {target.vocab} codes"


def _store(out: Path) -> str:
    cells = store.read(out)
    images = sum(len(records.images) for records in cells.values())
    there = out if out.exists() else Path.cwd()
    free = shutil.disk_usage(there).free / 1e9
    if free < NEEDED_GB:
        raise SpecbenchError(f"only {free:.1f} GB free at {there}")
    return f"{out}: {len(cells)} cells, {images} images, {free:.0f} GB free"
