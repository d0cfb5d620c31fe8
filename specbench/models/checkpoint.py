"""Weights from files into modules: safely, frugally, and nothing missing or left over in silence.

Knows: safetensors and pickled checkpoints, single files and sharded ones, dtypes and devices, the hash of a checkpoint.
Refuses to know: architectures (they say how a file's names map to their own) and where files come from.

Modules are built on the meta device, so that nothing is allocated twice. Files are mapped into memory: a tensor that is
kept as stored is never copied, one that changes dtype or device is copied once. Pickles are read with ``weights_only``.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import mmap
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specbench.errors import SpecbenchError
from specbench.models.source import WEIGHT_FILES, listed_shards

BLOCK, BLOCKS = 1 << 16, 64
"""Bytes and number of the pieces of a large file that its hash reads."""


def shards(folder: Path) -> list[Path]:
    """The weight files of a checkpoint folder, in the order of :data:`WEIGHT_FILES`' preference.

    Raises ``SpecbenchError`` when there is none, or naming a shard that the index lists and the folder lacks.
    """
    for name in WEIGHT_FILES:
        file = folder / name
        if not file.is_file():
            continue
        if not name.endswith(".index.json"):
            return [file]
        found = [folder / shard for shard in listed_shards(file)]
        if missing := [shard.name for shard in found if not shard.is_file()]:
            raise SpecbenchError(f"{file} lists {', '.join(missing)}, which {folder} lacks")
        return found
    raise SpecbenchError(f"{folder} holds no weights: none of {', '.join(WEIGHT_FILES)}")


def tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and memory-mapped tensors of one file; a pickle may hold them under a wrapper's name.

    The options of a training run may lie beside them (a bare ``argparse.Namespace``): they are read, and left out.

    Raises ``SpecbenchError`` for a file that cannot be read, or not without running code from it.
    """
    try:
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(file, "pt") as reader:
                for name in reader.keys():  # noqa: SIM118 (not a dict)
                    yield name, reader.get_tensor(name)
            return
        # Only zip archives can be mapped; what was written before PyTorch 1.6 is no such thing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded: Any = torch.load(file, map_location="cpu", mmap=zipfile.is_zipfile(file), weights_only=True)
    except SpecbenchError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).split(". ")[0] or type(error).__name__
        raise SpecbenchError(f"{file} cannot be read as weights (is it complete?): {reason}") from error
    for wrapper in ("state_dict", "model", "module"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    yield from ((str(name), value) for name, value in loaded.items() if torch.is_tensor(value))


def fill(
    module: nn.Module,
    files: Iterable[Path],
    rename: Callable[[str], str | None],
    place: Callable[[str], torch.dtype],
    device: str,
    reshape: Callable[[str, Tensor], Tensor] | None = None,
) -> None:
    """Give a module on the meta device the tensors of ``files``, frozen and in evaluation mode.

    ``rename`` maps a file's name to the module's, or to None for what is left out on purpose; ``place`` gives the dtype
    of a parameter; ``reshape`` turns a stored tensor into the module's shape where a format differs.
    Raises ``SpecbenchError`` naming every key that is missing, unexpected, doubled, or of another shape.
    """
    wanted = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    state: dict[str, Tensor] = {}
    seen: set[str] = set()
    faults: list[str] = []
    where = ""
    for file in files:
        where, mapped = where or str(file), file.suffix == ".safetensors" or zipfile.is_zipfile(file)
        for stored, value in tensors(file):
            name = rename(stored)
            if name is None:
                continue
            if name not in wanted:
                faults.append(f"unexpected {stored}")
                continue
            shaped = reshape(name, value) if reshape is not None else value
            if tuple(shaped.shape) != wanted[name]:
                faults.append(f"{stored} is {list(value.shape)}, expected {list(wanted[name])}")
            elif name in seen:
                faults.append(f"{stored} is there twice")
            else:
                state[name] = shaped.to(device=device, dtype=place(name))
                if mapped and state[name].data_ptr() != value.data_ptr():
                    forget(value)
            seen.add(name)
    faults += [f"missing {name}" for name in wanted if name not in seen]
    if faults:
        shown = "; ".join(faults[:8]) + (f"; and {len(faults) - 8} more" if len(faults) > 8 else "")
        raise SpecbenchError(f"the weights in {where} do not fit: {shown}")
    module.load_state_dict(state, assign=True)
    module.eval().requires_grad_(False)


def forget(mapped: Tensor) -> None:
    """Drop the pages of a memory-mapped tensor that has been copied, so that source and copy are not both in memory.

    They are read from the file again if anybody looks. Where the system has no ``madvise`` nothing happens.
    """
    page, begin, size = mmap.PAGESIZE, mapped.data_ptr(), mapped.numel() * mapped.element_size()
    first, last = -(-begin // page) * page, (begin + size) // page * page  # whole pages of its own only
    advise = getattr(ctypes.CDLL(None), "madvise", None) if os.name == "posix" else None
    if advise is not None and last > first:
        advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), ctypes.c_int(mmap.MADV_DONTNEED))


def fingerprint(files: Iterable[Path]) -> str:
    """Sixteen hex digits that tell checkpoints apart: names, sizes, and 64 pieces of each file (all of a small one).

    Reading 64 evenly spaced pieces of 64 KiB instead of gigabytes: training changes every tensor, so two different
    sets of weights differ in them.
    """
    state = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        size = file.stat().st_size
        state.update(f"{file.name} {size}\0".encode())
        with file.open("rb") as stream:
            if size <= BLOCK * BLOCKS:
                state.update(stream.read())
                continue
            for piece in range(BLOCKS):
                stream.seek(piece * (size - BLOCK) // (BLOCKS - 1))
                state.update(stream.read(BLOCK))
    return state.hexdigest()[:16]
