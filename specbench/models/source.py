"""Where the weights of a model lie, and what to say when they do not.

Knows: which files a model needs, under which hub ids they are published, and the places that are looked at: a folder
given by hand, a root that holds many models, the hub's own cache.
Refuses to know: torch (it answers before torch is imported), what is in the files, and the network: nothing is fetched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specbench.errors import SpecbenchError

WEIGHTS = "weights"
"""Stands for any of :data:`WEIGHT_FILES` in a list of files."""
WEIGHT_FILES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
ANY_WEIGHTS = "model.safetensors or pytorch_model.bin, or their shards with the index"
CONFIG = "config.json"
POINTER, POINTER_BYTES = b"version https://git-lfs", 1024
"""How a file begins that stands for a large one which was never fetched, and what none of them exceeds."""


@dataclass(frozen=True)
class Bundle:
    """Files that are published together: hub ids (any of them will do), size, licence.

    ``inside`` is the sub-folder that they have where one folder holds everything a model needs, "" for none. ``kinds``
    are the model types that their ``config.json`` may name; none: it is not looked into.
    """

    files: tuple[str, ...]
    hubs: tuple[str, ...]
    gigabytes: float
    licence: str
    inside: str = ""
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Located:
    """One bundle on this machine: the folder (None: none was found) and which of its files are not there."""

    bundle: Bundle
    folder: Path | None
    missing: tuple[str, ...]

    def path(self, name: str) -> Path:
        """A file of the bundle. Some copies leave out the sub-folders of the original."""
        assert self.folder is not None
        return _file(self.folder, name) or self.folder / name

    def lacks(self, name: str) -> list[str]:
        """What is missing of one of the bundle's ``files``; of :data:`WEIGHTS`, every shard."""
        if name != WEIGHTS:
            return [
                each for each in self.missing if each in (name, _unfetched(name)) or each.startswith(_foreign(name))
            ]
        others = [each for file in self.bundle.files if file != WEIGHTS for each in self.lacks(file)]
        return [each for each in self.missing if each not in others]


def bundles(node: Sequence[Mapping[str, Any]]) -> tuple[Bundle, ...]:
    """The ``weights`` entry of a model's YAML file."""
    return tuple(
        Bundle(
            files=tuple(part["files"]),
            hubs=tuple(part["hubs"]),
            gigabytes=float(part["gigabytes"]),
            licence=str(part["licence"]),
            inside=str(part.get("inside", "")),
            kinds=tuple(part.get("kinds", ())),
        )
        for part in node
    )


def locate(parts: Sequence[Bundle], given: str | None = None, root: Path | None = None) -> list[Located]:
    """Look for each bundle. ``given`` is a folder or a hub id; a folder must hold the first bundle, which is the model.

    Raises ``SpecbenchError`` when ``given`` is neither a folder nor shaped like a hub id.
    """
    if given is None:
        return [_best(part, list(_places(part.hubs, root))) for part in parts]
    folder = Path(given).expanduser()
    if folder.is_dir():
        return [
            _best(part, [folder] if i == 0 else [folder / part.inside, *_places(part.hubs, root)])
            for i, part in enumerate(parts)
        ]
    if len(Path(given).parts) != 2 or given.startswith((".", "/", "~")):
        raise SpecbenchError(f"model.path={given}: there is no such folder, and it is no hub id of the form owner/name")
    return [_best(part, list(_places((given,) if i == 0 else part.hubs, root))) for i, part in enumerate(parts)]


def require(model: str, parts: Sequence[Bundle], given: str | None, root: Path | None) -> list[Located]:
    """As :func:`locate`; raises ``SpecbenchError`` that says what is missing and where it goes."""
    found = locate(parts, given, root)
    if find_spec("transformers") is None:
        raise SpecbenchError(f"model={model} needs the package transformers: pip install 'specbench[models]'")
    if any(part.missing for part in found):
        raise SpecbenchError(
            f"model={model} has no weights here: "
            + "; ".join(_advice(p) for p in found if p.missing)
            + "; put each into ROOT/OWNER/NAME, as it is called there, and add --weights-root ROOT, or name one folder "
            f"that holds everything with model.path=FOLDER (specbench doctor model={model} shows every file)"
        )
    return found


def _advice(found: Located) -> str:
    hubs, size = " or ".join(found.bundle.hubs), found.bundle.gigabytes
    where = f"in {found.folder}" if found.folder is not None else "anywhere"
    return (
        f"{', '.join(found.missing)} not found {where}, to be had from {hubs} ({size:g} GB; licence: "
        f"{found.bundle.licence})"
    )


def _places(hubs: Sequence[str], root: Path | None) -> Iterator[Path]:
    """Folders that may hold one of these hub ids, in order; only those that exist."""
    for hub in hubs:
        for folder in (root / hub, root / hub.rpartition("/")[2]) if root is not None else ():
            if folder.is_dir():
                yield folder
    for hub in hubs:
        yield from _snapshots(hub_cache() / f"models--{hub.replace('/', '--')}")


def hub_cache() -> Path:
    """The hub library's cache folder, by its own environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else cache_home() / "huggingface") / "hub"


def cache_home() -> Path:
    """Where a user's caches lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()


def _snapshots(repository: Path) -> Iterator[Path]:
    """What the cache has of one repository: the revision called main first."""
    main = repository / "refs" / "main"
    names = [main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    folder = repository / "snapshots"
    names += sorted(path.name for path in folder.iterdir() if path.name not in names) if folder.is_dir() else []
    yield from (folder / name for name in names if (folder / name).is_dir())


def _best(part: Bundle, places: Sequence[Path]) -> Located:
    """The first place that has everything, else the one that has most."""
    found = [Located(part, place, _missing(place, part)) for place in places]
    if not found:
        return Located(part, None, tuple(ANY_WEIGHTS if file == WEIGHTS else file for file in part.files))
    return min(found, key=lambda each: len(each.missing))


def _missing(folder: Path, part: Bundle) -> tuple[str, ...]:
    lacking: list[str] = []
    for name in part.files:
        if name == WEIGHTS:
            lacking += _missing_weights(folder)
        elif (file := _file(folder, name)) is None:
            lacking.append(name)
        elif _is_pointer(file):
            lacking.append(_unfetched(name))
        elif name == CONFIG and part.kinds and (kind := _kind(file)) and kind.lower() not in map(str.lower, part.kinds):
            lacking.append(f"{_foreign(name)} {' or '.join(part.kinds)} ({file} says {kind!r})")
    return tuple(lacking)


def _kind(file: Path) -> str | None:
    """What a ``config.json`` calls its model; None where it does not say, or cannot be read (loading says so)."""
    try:
        kind = read_json(file).get("model_type")
    except SpecbenchError:
        return None
    return kind if isinstance(kind, str) else None


def _foreign(name: str) -> str:
    return f"{name} of model_type"


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / Path(name).name) if path.is_file()), None)


def _missing_weights(folder: Path) -> list[str]:
    """The shards that an index lists and the folder lacks; one entry for all where there is not even an index."""
    name = next((name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if name is None:
        return [ANY_WEIGHTS]
    try:
        listed = listed_shards(folder / name) if name.endswith(".index.json") else [name]
    except SpecbenchError:
        return [f"a readable {name}"]
    gone = [shard for shard in listed if not (folder / shard).is_file()]
    return gone + [_unfetched(shard) for shard in listed if shard not in gone and _is_pointer(folder / shard)]


def listed_shards(index: Path) -> list[str]:
    """File names that an index of shards lists, sorted. Raises ``SpecbenchError`` when it is no such index."""
    found = read_json(index).get("weight_map")
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found.values()):
        raise SpecbenchError(f"{index} is no index of shards: it has no weight_map from names to files")
    return sorted(set(found.values()))


def _is_pointer(file: Path) -> bool:
    """Whether a file only says which large file belongs there: a clone without Git LFS leaves such ones."""
    with file.open("rb") as stream:
        return file.stat().st_size <= POINTER_BYTES and stream.read(len(POINTER)) == POINTER


def _unfetched(name: str) -> str:
    return f"{name} (what is there is a Git LFS pointer, not the file)"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object. Raises ``SpecbenchError`` when it cannot be read as one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecbenchError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise SpecbenchError(f"{path} holds no JSON object")
    return found


@contextmanager
def described_by(path: Path) -> Iterator[None]:
    """While a model is built from what ``path`` says: whatever goes wrong is that file's fault, and said so.

    Raises ``SpecbenchError`` naming the setting that is missing, or what could not be built.
    """
    try:
        yield
    except SpecbenchError:
        raise
    except KeyError as error:
        raise SpecbenchError(f"{path} lacks {error.args[0]!r}") from error
    except Exception as error:  # libraries refuse settings with errors of every kind
        raise SpecbenchError(f"{path} describes no model that can be built: {' '.join(str(error).split())}") from error
