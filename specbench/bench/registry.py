"""Which methods and models exist: shipped in ``conf/``, from entry points, or from a plugin file.

Knows: names, settings, and who builds a decoder or loads a target.
Refuses to know: torch (until something is built) and how a method works.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.bench import guards, paths
from specbench.errors import SpecbenchError, UsageError, unknown
from specbench.models import declared_weights
from specbench.models.source import Bundle, bundles, require

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
    code: str = ""
    """Hash of the plugin's source: a part of the cell's code fingerprint. Empty for shipped methods."""

    @property
    def is_plugin(self) -> bool:
        """Whether it was registered, and not shipped: then ``verify`` looks at it twice."""
        return bool(self.code)


@dataclass(frozen=True)
class Model:
    """One target: its sampling protocols, and for a plugin its loader."""

    name: str
    summary: str
    protocol: str
    protocols: dict[str, dict[str, Any]]
    source: str = ""
    loader: Callable[..., Target] | None = None
    code: str = ""
    family: str | None = None
    """Who reads the checkpoint of a model whose weights are not shipped."""
    tiny: bool = False
    """Whether that checkpoint is written here, with random weights."""
    weights: tuple[Bundle, ...] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Layers, widths and parameters, where the model's file states them: what memory is estimated from."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Special words around a prompt and behind a row, for people to read: they are no terms of a cell."""

    def sampling(self, protocol: str) -> dict[str, Any]:
        """The four filters of a protocol; whatever else it says is about prompts."""
        return {key: self.protocols[protocol][key] for key in NO_PROTOCOL}

    def recipe(self, protocol: str) -> dict[str, Any]:
        """What a protocol says beyond its filters: template, unconditional row, formula."""
        return {key: value for key, value in self.protocols[protocol].items() if key not in NO_PROTOCOL}


@dataclass(frozen=True)
class _Origin:
    """Who is registering: what to call it, and the file whose source its cells depend on."""

    label: str
    file: Path | None = None


SESSION = "this Python session"
"""Source of what was registered by neither a plugin file nor an entry point: no other process can see it."""

_NOTEBOOK = _Origin(SESSION)
_methods: dict[str, Method] = {}
_models: dict[str, Model] = {}
_loaded: set[Path] = set()
_origin = _NOTEBOOK


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

    Raises :class:`UsageError` when the name cannot be typed on the command line or belongs to a shipped method, when
    ``lossless`` is no truth value or ``window`` no window, or when neither settings nor factory is given.
    """
    guards.check_name("method", name)
    if settings is None and factory is None:
        raise UsageError(f"method {name!r} needs settings or a factory")
    if not isinstance(lossless, bool):
        raise UsageError(f"method {name!r}: lossless must be True or False, not {lossless!r}")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise UsageError(f"method {name!r}: window must be None or a whole number of at least 1, not {window!r}")
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
    code = _code([*labels.values(), *([factory] if factory else [])])
    _methods[name] = Method(name, summary, lossless, window, plain, paper, _origin.label, labels, factory, code)


def register_target(
    name: str,
    loader: Callable[..., Target],
    *,
    summary: str = "",
    sampling: Mapping[str, Any] | None = None,
) -> None:
    """Add a model: ``loader(name, dtype=…, device=…) -> Target``; ``sampling`` is its default protocol."""
    guards.check_name("model", name)
    if name in _shipped_models():
        raise UsageError(f"model {name!r} is shipped with specbench: choose another name")
    protocols = {"default": {**NO_PROTOCOL, **dict(sampling or {})}}
    _models[name] = Model(name, summary, "default", protocols, _origin.label, loader, _code([loader]))


def _code(parts: Sequence[Any]) -> str:
    """Hash of the file that registers; in a session without one, of the source of each part."""
    state = hashlib.sha256()
    if _origin.file is not None:
        state.update(_origin.file.read_bytes())
    for part in parts if _origin.file is None else ():
        try:
            state.update(
                inspect.getsource(part if inspect.isroutine(part) or inspect.isclass(part) else type(part)).encode()
            )
        except (OSError, TypeError) as error:
            raise UsageError(
                f"the source of {part!r} cannot be read, so its images could not be told from another version's: "
                "put it into a file and load that with --plugin"
            ) from error
    return state.hexdigest()[:16]


def load_plugins(plugins: Iterable[str | Path] = ()) -> None:
    """Import entry points and plugin files once; each registers what it brings.

    Raises :class:`UsageError` naming the plugin when it cannot be read or fails while loading.
    """
    _load_entry_points()
    for given in plugins:
        path = Path(given).resolve()
        if path in _loaded:
            continue
        if not path.is_file():
            raise UsageError(f"plugin {str(given)!r} does not exist")
        spec = importlib.util.spec_from_file_location(f"specbench_plugin_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise UsageError(f"plugin {str(given)!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        _guarded(_Origin(str(given), path), lambda: spec.loader.exec_module(module))  # type: ignore[union-attr] # noqa: B023
        _loaded.add(path)


def loaded_plugins() -> tuple[str, ...]:
    """The plugin files that were loaded, for another process to load."""
    return tuple(str(path) for path in sorted(_loaded))


@cache
def _load_entry_points() -> None:
    for group in ("specbench.methods", "specbench.targets"):
        for point in entry_points(group=group):
            _guarded(_Origin(f"{group}:{point.name}", _file_of(point.module)), lambda p=point: _call(p.load()))  # type: ignore[misc]


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _call(loaded: object) -> None:
    """An entry point names a module that registers when imported, or a function that does when called."""
    if callable(loaded):
        loaded()


def _guarded(origin: _Origin, load: Callable[[], object]) -> None:
    global _origin
    _origin = origin
    try:
        load()
    except SpecbenchError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"plugin {origin.label} failed while loading: {type(error).__name__}: {error}") from error
    finally:
        _origin = _NOTEBOOK


@cache
def _shipped_methods() -> dict[str, Method]:
    found = {}
    for choice, node in paths.group("method"):
        found[choice] = Method(
            **{k: node[k] for k in ("name", "summary", "lossless", "window", "settings", "paper")},
            source=f"conf/method/{choice}.yaml",
        )
    return found


@cache
def _shipped_models() -> dict[str, Model]:
    return {
        choice: Model(
            **{k: node[k] for k in ("name", "summary", "protocol", "protocols")},
            source=f"conf/model/{choice}.yaml",
            family=node.get("family"),
            tiny=bool(node.get("tiny", False)),
            weights=bundles(node.get("weights", ())),
            sizes=node.get("sizes", {}),
            tokens=node.get("tokens", {}),
        )
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

    Raises :class:`UsageError` on unknown parts or settings, :class:`SpecbenchError` when a factory builds no decoder,
    and whatever else a plugin's factory raises.
    """
    chosen = method(name)
    width = 1 if window is None else window
    objects = {k: chosen.objects[v] for k, v in settings.items() if isinstance(v, str) and v in chosen.objects}
    if chosen.factory is not None:
        given = {"window": width, "sampling": sampling, **settings, **objects}
        guards.takes(name, chosen.factory, given)
        built = chosen.factory(**given)
        if not callable(getattr(built, "decode", None)):
            raise SpecbenchError(f"the factory of method {name!r} built a {type(built).__name__}, which has no decode")
        return built
    from specbench.decoding.build import build_decoder

    # A plugin's own parts take the place of shipped ones in a decoder that was built without them.
    decoder = build_decoder({k: v for k, v in settings.items() if k not in objects}, width, sampling)
    return replace(decoder, **objects) if objects else decoder  # type: ignore[type-var]


def bind(decoder: Decoder, settings: Mapping[str, Any], target: Target) -> Decoder:
    """Give a decoder what belongs to one target: the trained heads that ``settings["heads"]`` names.

    Decoders without heads, and those that brought their own, come back as they are. Raises :class:`UsageError` when
    nobody has trained such heads for ``target`` (with the command that does), or when they do not look far enough;
    :class:`SpecbenchError` when their file is damaged or belongs to other weights.
    """
    from specbench.decoding.block import Block

    if not isinstance(decoder, Block) or decoder.heads is not None:
        return decoder
    name = getattr(target, "name", None)
    if name is None:
        raise UsageError(f"the target {type(target).__name__} has no name under which heads could be found")
    import torch

    from specbench.drafters import load_heads

    dtype = str(target.embed(torch.zeros(1, dtype=torch.int64, device=target.device)).dtype).removeprefix("torch.")
    variant = str(settings.get("heads", "ssd"))
    weights = declared_weights(target)
    heads = load_heads(str(name), variant=variant, dtype=dtype, device=str(target.device), weights=weights)
    # Heads that this decoder never reads would cost as much as those that it does.
    return decoder.with_heads(heads.nearest(decoder.spatial.columns, decoder.spatial.rows))


def load_target(name: str, dtype: str = "float32", device: str = "cpu", path: str | None = None) -> Target:
    """Load the model called ``name`` under its default protocol; ``path`` is a folder or hub id of other weights.

    Raises :class:`UsageError` with the nearest name when there is none, :class:`SpecbenchError` when its weights are
    not here or a plugin's loader fails.
    """
    chosen = model(name)
    guards.has_device(device)
    if chosen.loader is not None:
        try:
            return chosen.loader(name, dtype=dtype, device=device)
        except SpecbenchError:
            raise
        except (Exception, SystemExit) as error:
            raise SpecbenchError(f"model {name!r} failed to load: {type(error).__name__}: {error}") from error
    if chosen.family is None:
        from specbench.models import load_target as load

        return load(name, dtype=dtype, device=device)
    found = require(name, chosen.weights, path, paths.weights_root())
    import torch

    from specbench.models import load_checkpoint

    recipe = chosen.recipe(chosen.protocol)
    try:
        return load_checkpoint(chosen.family, name, found, dtype, device, recipe, tiny=chosen.tiny and path is None)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise SpecbenchError(
            f"model={name} does not fit into the memory of device={device} in {dtype}: add --dry-run to the run to see "
            f"what it takes, and try dtype=bfloat16 ({' '.join(str(error).split()) or 'out of memory'})"
        ) from error


def follow(target: Target, name: str, protocol: str) -> Target:
    """The same weights under another protocol of the model called ``name``."""
    recipe = model(name).recipe(protocol)
    switch = getattr(target, "follow", None)
    return switch(recipe) if callable(switch) and recipe else target
