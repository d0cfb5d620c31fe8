"""Which methods and models exist: shipped in ``conf/``, from entry points, or from a plugin file.

Knows: names, settings, and who builds a decoder or loads a target.
Refuses to know: torch (until something is built) and how a method works.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.bench import paths
from specbench.errors import SpecbenchError, UsageError, unknown

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Decoder, Target
    from specbench.decoding.laws import Sampling

NO_PROTOCOL: Mapping[str, Any] = {"temperature": 1.0, "top_k": None, "top_p": None, "guidance": None}


@dataclass(frozen=True)
class Method:
    """One decoding method: plain settings, and for a plugin the objects or the factory behind them."""

    name: str
    summary: str
    lossless: bool
    window: int | None
    settings: dict[str, Any]
    paper: str | None = None
    source: str = ""
    objects: dict[str, Any] = field(default_factory=dict)
    """Label in ``settings`` → the plugin's own redraft, accept or fill object."""
    factory: Callable[..., Decoder] | None = None


@dataclass(frozen=True)
class Model:
    """One target: its sampling protocols, and for a plugin its loader."""

    name: str
    summary: str
    protocol: str
    protocols: dict[str, dict[str, Any]]
    source: str = ""
    loader: Callable[..., Target] | None = None


_methods: dict[str, Method] = {}
_models: dict[str, Model] = {}
_sources: dict[str, Path] = {}
_loading = "a notebook"


def register_method(
    name: str,
    *,
    lossless: bool,
    summary: str = "",
    settings: Mapping[str, Any] | None = None,
    factory: Callable[..., Decoder] | None = None,
    window: int | None = 32,
    paper: str | None = None,
) -> None:
    """Add a method to list, explain, run, sweep and verify.

    Give ``settings`` (``{"decoder": "jacobi", "redraft": …, "accept": …, "fill": …}``, where each part is a shipped
    name or an object of your own), or a ``factory(window=…, sampling=…, **settings) -> Decoder``, or both.
    ``lossless`` says whether the law of plain AR is preserved; ``verify`` checks it.

    Raises :class:`UsageError` when the name belongs to a shipped method, or when neither is given.
    """
    if settings is None and factory is None:
        raise UsageError(f"method {name!r} needs settings or a factory")
    if name in _shipped_methods():
        raise UsageError(f"method {name!r} is shipped with specbench: choose another name")
    labels: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for key, value in dict(settings or {}).items():
        if value is None or isinstance(value, str | int | float | bool):
            plain[key] = value
        else:
            plain[key] = f"{name}:{type(value).__name__}"
            labels[plain[key]] = value
    _methods[name] = Method(name, summary, lossless, window, plain, paper, _loading, labels, factory)


def register_target(
    name: str,
    loader: Callable[..., Target],
    *,
    summary: str = "",
    sampling: Mapping[str, Any] | None = None,
) -> None:
    """Add a model: ``loader(name, dtype=…, device=…) -> Target``; ``sampling`` is its default protocol."""
    if name in _shipped_models():
        raise UsageError(f"model {name!r} is shipped with specbench: choose another name")
    protocols = {"default": {**NO_PROTOCOL, **dict(sampling or {})}}
    _models[name] = Model(name, summary, "default", protocols, _loading, loader)


def load_plugins(plugins: Iterable[str | Path] = ()) -> None:
    """Import entry points and plugin files once; each registers what it brings.

    Raises :class:`UsageError` naming the plugin when it cannot be read or fails while loading.
    """
    _load_entry_points()
    for given in plugins:
        path = Path(given).resolve()
        if str(path) in _sources:
            continue
        if not path.is_file():
            raise UsageError(f"plugin {str(given)!r} does not exist")
        spec = importlib.util.spec_from_file_location(f"specbench_plugin_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise UsageError(f"plugin {str(given)!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        _guarded(str(given), lambda s=spec, m=module: s.loader.exec_module(m))
        _sources[str(path)] = path


@cache
def _load_entry_points() -> None:
    for group in ("specbench.methods", "specbench.targets"):
        for point in entry_points(group=group):

            def load(point: Any = point) -> None:
                loaded = point.load()
                if callable(loaded):
                    loaded()
                origin = importlib.util.find_spec(point.module)
                if origin is not None and origin.origin:
                    _sources[point.module] = Path(origin.origin)

            _guarded(f"{group}:{point.name}", load)


def _guarded(label: str, load: Callable[[], object]) -> None:
    global _loading
    _loading = label
    try:
        load()
    except SpecbenchError:
        raise
    except Exception as error:
        raise UsageError(f"plugin {label} failed while loading: {type(error).__name__}: {error}") from error
    finally:
        _loading = "a notebook"


def plugin_sources() -> list[Path]:
    """Files that registered something; they belong to the code fingerprint."""
    return sorted(_sources.values())


@cache
def _shipped_methods() -> dict[str, Method]:
    found = {}
    for choice, node in paths.group("method"):
        found[choice] = Method(**{k: node[k] for k in ("name", "summary", "lossless", "window", "settings", "paper")},
                               source=f"conf/method/{choice}.yaml")
    return found


@cache
def _shipped_models() -> dict[str, Model]:
    return {
        choice: Model(node["name"], node["summary"], node["protocol"], node["protocols"], f"conf/model/{choice}.yaml")
        for choice, node in paths.group("model")
    }


def methods() -> dict[str, Method]:
    """All methods by name, shipped ones first."""
    return {**_shipped_methods(), **_methods}


def models() -> dict[str, Model]:
    """All models by name, shipped ones first."""
    return {**_shipped_models(), **_models}


def method(name: str) -> Method:
    """The method called ``name``; :class:`UsageError` with the nearest name otherwise."""
    known = methods()
    if name not in known:
        raise unknown("method", name, known)
    return known[name]


def model(name: str) -> Model:
    """The model called ``name``; :class:`UsageError` with the nearest name otherwise."""
    known = models()
    if name not in known:
        raise unknown("model", name, known)
    return known[name]


def registered_nodes() -> list[tuple[str, str, dict[str, Any]]]:
    """``(group, name, node)`` of everything that has no file in ``conf/``, for Hydra's config store."""
    nodes: list[tuple[str, str, dict[str, Any]]] = []
    for m in _methods.values():
        keys = ("name", "summary", "lossless", "window", "settings", "paper")
        nodes.append(("method", m.name, {key: getattr(m, key) for key in keys}))
    for t in _models.values():
        nodes.append(("model", t.name, {k: getattr(t, k) for k in ("name", "summary", "protocol", "protocols")}))
    return nodes


def build(name: str, settings: Mapping[str, Any], window: int | None, sampling: Sampling) -> Decoder:
    """Build the decoder of method ``name``. ``window`` None: one token per pass.

    Raises :class:`UsageError` on unknown parts or settings.
    """
    chosen = method(name)
    width = 1 if window is None else window
    real = {k: chosen.objects.get(v, v) if isinstance(v, str) else v for k, v in settings.items()}
    if chosen.factory is not None:
        try:
            return chosen.factory(window=width, sampling=sampling, **real)
        except TypeError as error:
            raise UsageError(f"method {name!r} does not take these settings: {error}") from error
    from specbench.decoding.build import build_decoder

    return build_decoder(real, width, sampling)


def load_target(name: str, dtype: str = "float32", device: str = "cpu") -> Target:
    """Load the model called ``name``; :class:`UsageError` with the nearest name when there is none."""
    chosen = model(name)
    if chosen.loader is not None:
        return chosen.loader(name, dtype=dtype, device=device)
    from specbench.models import load_target as load

    return load(name, dtype=dtype, device=device)
