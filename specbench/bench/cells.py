"""What makes two measurements the same cell: terms and code, hashed; and what is only noted beside them.

Knows: which facts are terms (they must agree for a comparison) and which are circumstances (stored, shown, ignored).
Refuses to know: how a cell is run or stored.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.bench import disk, paths, registry
from specbench.bench.config import RunRequest
from specbench.errors import SpecbenchError
from specbench.models import declared_weights

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Target

ROOMS = ("decoding", "models", "drafters")
"""Rooms of the package whose sources decide what image comes out; folders named ``training`` in them do not."""


@dataclass(frozen=True)
class Terms:
    """What must agree for a comparison, except what is compared. Hashes are hex digests.

    ``prompts`` is the content hash of the whole set, not of the limit; ``overridden`` names the settings that were set
    away from the method's own file (the others follow from the method's name).
    """

    model: str
    weights: str
    dtype: str
    sampling: dict[str, Any]
    prompts: str
    seed: int
    method: str
    settings: dict[str, Any]
    overridden: tuple[str, ...]
    window: int | None
    recipe: dict[str, Any] = field(default_factory=dict)
    """What the model's protocol says beyond sampling: template, unconditional row."""


@dataclass(frozen=True)
class Cell:
    """One point of a grid. ``code`` is the fingerprint of the sources that made its images."""

    terms: Terms
    code: str
    lossless: bool
    prompt_set: str

    @property
    def id(self) -> str:
        """Sixteen hex digits: the hash of terms and code."""
        plain = asdict(self.terms)
        del plain["overridden"]
        return digest(disk.dumps([plain, self.code]))[:16]

    @property
    def shown_window(self) -> int | None:
        """What reports say: 1 of AR, None of every other method without a window (blocks differ in size)."""
        return 1 if self.terms.method == "ar" else self.terms.window

    def plain(self) -> dict[str, Any]:
        """The cell as it is stored."""
        return {"id": self.id, **asdict(self)}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Cell:
        """The inverse of :meth:`plain`."""
        terms = dict(plain["terms"])
        terms["overridden"] = tuple(terms["overridden"])
        return Cell(Terms(**terms), plain["code"], plain["lossless"], plain["prompt_set"])


def cell_of(request: RunRequest, weights: str, prompts: str) -> Cell:
    """The cell that ``request`` asks for, given the weights' and the prompt set's hashes."""
    own = registry.method(request.method).settings
    terms = Terms(
        model=request.model,
        weights=weights,
        dtype=request.dtype,
        sampling=dict(request.sampling),
        prompts=prompts,
        seed=request.seed,
        method=request.method,
        settings=dict(request.settings),
        overridden=tuple(sorted(k for k, v in request.settings.items() if own.get(k) != v)),
        window=request.window,
        recipe=registry.model(request.model).recipe(request.protocol),
    )
    return Cell(terms, code_fingerprint(request.method, request.model), request.lossless, request.prompts.name)


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def code_fingerprint(method: str | None = None, model: str | None = None) -> str:
    """Hash of the sources under ``decoding``, ``models`` and ``drafters``, and of the plugins behind method and model.

    A plugin enters the cells of what it registers and no others, so that loading one leaves the AR baseline alone.
    """
    plugins = [registry.method(method).code if method else "", registry.model(model).code if model else ""]
    if not any(plugins):
        return _shipped_fingerprint()
    return digest("".join([_shipped_fingerprint(), *plugins]).encode())[:16]


@cache
def _shipped_fingerprint() -> str:
    files = [file for room in ROOMS for file in sorted((paths.PACKAGE / room).rglob("*.py"))]
    named = ((file.relative_to(paths.PACKAGE), file) for file in files)
    return source_hash((name.as_posix(), file) for name, file in named if "training" not in name.parts)


def source_hash(files: Iterable[tuple[str, Path]]) -> str:
    """Hash of names and contents, in the given order; sixteen hex digits."""
    state = hashlib.sha256()
    for name, file in files:
        state.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def weights_hash(target: Target) -> str:
    """Hash of a target's weights: what it declares as ``weights_hash``, else that of its tensors by name.

    Raises :class:`SpecbenchError` for a target that has neither, since its images could not be told from another's.
    """
    if (declared := declared_weights(target)) is not None:
        return declared
    state_dict = getattr(target, "state_dict", None)
    if not callable(state_dict):
        raise SpecbenchError(
            f"the target {type(target).__name__} declares no weights_hash, so its images could not be told from those "
            "of other weights: add the attribute weights_hash (a string)"
        )
    import torch

    state = hashlib.sha256()
    for name, tensor in sorted(state_dict().items()):
        raw = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode() + raw)
    return state.hexdigest()[:16]


def circumstances(device: str, batch: int) -> dict[str, Any]:
    """Machine, threads, versions, git: stored beside the images and shown, not part of the terms."""
    import torch

    gpu = torch.cuda.get_device_name() if device.startswith("cuda") and torch.cuda.is_available() else None
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": gpu,
        "device": device,
        "batch": batch,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "specbench")},
        "git": _git(),
        "code": code_fingerprint(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


@cache
def _git() -> dict[str, Any] | None:
    """Commit of the checkout that specbench runs from, and whether it has changes; None outside a checkout."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(paths.PACKAGE), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "dirty": bool(git("status", "--porcelain"))}
