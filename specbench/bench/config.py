"""From ``key=value`` words to requests: what is to be measured, every value checked, and where it came from.

Knows: Hydra's Compose API, the ranges of values, and which file or word each one came from.
Refuses to know: torch, models, and whether anything was measured before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specbench.bench import overrides as words
from specbench.bench import paths, registry
from specbench.decoding import options
from specbench.errors import UsageError, unknown

TEMPERATURE, TOP_P, GUIDANCE = (1e-3, 1e3), (1e-6, 1.0), (0.0, 1e3)
"""Lowest and highest value: beyond them float32 logits overflow, and no law is left to preserve."""
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class PromptRequest:
    """Which captions: a named set, a file, or one text."""

    name: str
    limit: int | None = None
    samples: int = 1
    path: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class RunRequest:
    """One cell as it was asked for: plain values, nothing loaded.

    ``window`` is None where the method has none (AR). ``sampling`` has ``temperature top_k top_p guidance``;
    ``settings`` are the method's parts; ``overridden`` the keys given on the command line.
    """

    model: str
    protocol: str
    method: str
    lossless: bool
    window: int | None
    seed: int
    device: str
    dtype: str
    batch: int
    sampling: dict[str, Any]
    settings: dict[str, Any]
    prompts: PromptRequest
    scorer: str = "auto"
    diagnostics: bool = False
    overridden: tuple[str, ...] = ()
    path: str | None = None
    """Folder or hub id of the model's weights, where they are not looked for by its name."""

    def identity(self) -> str:
        """Two requests with the same identity ask for the same images."""
        plain = asdict(self)
        del plain["overridden"]
        return json.dumps(plain, sort_keys=True)


def compose(overrides: Sequence[str], plugins: Sequence[str | Path] = ()) -> list[RunRequest]:
    """Turn ``key=value`` words into requests, one per point of the sweep; points that ask for the same are folded.

    Raises :class:`UsageError` for unknown keys and values (with the nearest name) and for values out of range.
    """
    registry.load_plugins(plugins)
    requests: dict[str, RunRequest] = {}
    with _hydra() as composed:
        for point in words.combinations(words.parse(overrides)):
            request = _request(composed(point), tuple(key for key, _ in point))
            requests.setdefault(request.identity(), request)
    return list(requests.values())


def refuse_settings(request: RunRequest) -> None:
    """Raise :class:`UsageError` for settings that no decoder can be built from; a plugin's own failure is not ours."""
    from specbench.decoding.laws import Sampling

    try:
        registry.build(request.method, request.settings, 1, Sampling())
    except UsageError:
        raise
    except (Exception, SystemExit):
        return


def explain(overrides: Sequence[str], plugins: Sequence[str | Path] = ()) -> list[dict[str, Any]]:
    """Each value of one cell and where it came from: ``[{"key", "value", "source"}]``.

    Raises :class:`UsageError` as :func:`compose` does, and when the words describe more than one cell.
    """
    registry.load_plugins(plugins)
    parsed = words.parse(overrides)
    for override in parsed:
        if len(override.values) > 1:
            raise UsageError(f"explain takes one cell, and {override.key} has {len(override.values)} values")
    with _hydra() as composed:
        (point,) = words.combinations(parsed)
        node = composed(point)
    request = _request(node, tuple(key for key, _ in point))
    model, method = registry.model(request.model), registry.method(request.method)
    files = {
        "model": model.source,
        "sampling": f"{model.source}, protocol {request.protocol}",
        "protocol": f"{model.source}, protocol {request.protocol}",
        "tokens": model.source,
        "method": method.source,
        "prompts": f"conf/prompts/{request.prompts.name}.yaml",
        "scores": f"conf/scores/{request.scorer}.yaml",
    }
    shown = _flat(node, request)
    shown |= {f"protocol.{key}": value for key, value in model.recipe(request.protocol).items()}
    shown |= {f"tokens.{key}": value for key, value in model.tokens.items()}
    rows = []
    for key, value in shown.items():
        source = "command line" if key in request.overridden else files.get(key.split(".")[0], "conf/config.yaml")
        if key in words.GROUPS and key not in request.overridden:
            source = "conf/config.yaml"
        if key == "window" and key not in request.overridden:
            source = method.source
        rows.append({"key": key, "value": value, "source": source})
    return [*rows, *_effective(node["model"], request)]


def _effective(model: Mapping[str, Any], request: RunRequest) -> list[dict[str, Any]]:
    """What settings that count or share codes come to on this model; nothing where its file does not tell its codes."""
    codes = model.get("codes") or model.get("sizes", {}).get("codes")
    if codes is None:
        return []
    options.check(request.settings)
    kept = min(request.sampling["top_k"] or codes, codes)
    source = f"{codes:,} codes of {request.model}, of which sampling keeps {kept:,}"
    counts = options.effective(request.settings, codes, kept)
    return [{"key": f"effective.{name}", "value": count, "source": source} for name, count in counts.items()]


def _flat(node: Mapping[str, Any], request: RunRequest) -> dict[str, Any]:
    """The settable keys of a composed configuration, in the order people read them."""
    flat: dict[str, Any] = {"model": request.model, "model.protocol": request.protocol, "method": request.method}
    flat |= {"model.path": request.path} if "path" in node["model"] else {}
    flat |= {f"method.{key}": value for key, value in request.settings.items()}
    flat |= {"method.lossless": request.lossless, "window": request.window}
    flat |= {f"sampling.{key}": value for key, value in request.sampling.items()}
    flat |= {"prompts": node["prompts"]["name"]}
    flat |= {f"prompts.{key}": node["prompts"][key] for key in ("limit", "samples", "path")}
    flat |= {key: node[key] for key in ("prompt", "seed", "device", "dtype", "batch")}
    return flat | {"scores": request.scorer, "diagnostics": request.diagnostics}


@contextmanager
def _hydra() -> Iterator[Any]:
    """Hydra's Compose API on ``conf/``: yields a function from a sweep point to a plain, resolved mapping."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    for group, name, node in registry.registered_nodes():
        ConfigStore.instance().store(group=group, name=name, node=node, package=group)

    def composed(point: words.Combination) -> dict[str, Any]:
        typed = [(key, value) for key, value in point if key not in words.FREE_TEXT and _applies(key, point)]
        node = hydra_compose("config", overrides=[f"{_location(key)}={value}" for key, value in typed])
        for key in set(words.FREE_TEXT).intersection(dict(point)):
            if key == "model.path" and "path" not in node.model:
                raise UsageError(f"model {node.model.name} comes with its weights and takes no model.path")
            OmegaConf.update(node, key, dict(point)[key].replace("${", "\\${"))
        protocol, known = node.model.protocol, list(node.model.protocols)
        if protocol not in known:
            raise unknown(f"protocol of {node.model.name}", str(protocol), known)
        if OmegaConf.is_missing(node.prompts, "path"):
            raise UsageError("prompts=file needs the file: prompts.path=my.txt")
        plain = OmegaConf.to_container(node, resolve=True)
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}

    with initialize_config_dir(config_dir=str(paths.conf()), version_base="1.3"):
        yield composed


def _location(key: str) -> str:
    """``method.fill`` is short for the part inside the method's settings, which may not have named it so far."""
    return key.replace("method.", "++method.settings.", 1) if key.startswith("method.") else key


def _applies(key: str, point: words.Combination) -> bool:
    """A method's setting is left out at the points of a sweep whose method does not have it (AR has no fill)."""
    if not key.startswith("method."):
        return True
    name = dict(point).get("method")
    return name is None or key in words.method_keys([name])


def _request(node: dict[str, Any], overridden: tuple[str, ...]) -> RunRequest:
    method, prompts = node["method"], node["prompts"]
    window = method["window"] if node["window"] is None else node["window"]
    dtype = node["dtype"]
    if dtype not in DTYPES:
        raise unknown("dtype", str(dtype), DTYPES)
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", str(node["device"])):
        raise unknown("device", str(node["device"]), ("cpu", "cuda", "cuda:0"))
    if window is not None:  # refused where a method has none, too: a sweep may hold both kinds
        _whole("window", window, 1)
    if node["prompt"] is not None and (named := _named_beside(prompts, overridden)):
        raise UsageError(f"prompt=… is a single caption and {named} names others: give one of them")
    asked = [key.removeprefix("method.") for key in overridden if key.startswith("method.")]
    return RunRequest(
        model=node["model"]["name"],
        protocol=node["model"]["protocol"],
        method=method["name"],
        lossless=options.lossless(method["settings"], method["lossless"]),
        window=None if method["window"] is None else _whole("window", window, 1),
        seed=_whole("seed", node["seed"], 0),
        device=str(node["device"]),
        dtype=dtype,
        batch=_whole("batch", node["batch"], 1),
        sampling=_sampling(node["sampling"]),
        settings=options.in_use(method["settings"], asked),
        prompts=_prompts(prompts, node["prompt"]),
        scorer=node["scores"]["name"],
        diagnostics=_switch("diagnostics", node["diagnostics"]),
        overridden=overridden,
        path=node["model"].get("path"),
    )


def _named_beside(prompts: dict[str, Any], overridden: tuple[str, ...]) -> str | None:
    """The prompt set or file that was asked for by hand, as it was; None where there is none but the caption."""
    if "prompts.path" in overridden:
        return f"prompts.path={prompts['path']}"
    return f"prompts={prompts['name']}" if "prompts" in overridden else None


def _prompts(node: dict[str, Any], text: object) -> PromptRequest:
    limit = None if node["limit"] is None else _whole("prompts.limit", node["limit"], 1)
    samples = _whole("prompts.samples", node["samples"], 1)
    if text is not None:
        if not str(text).strip():
            raise UsageError('the prompt is empty: give a caption, as in prompt="a blue star above a red ring"')
        if any("\ud800" <= letter <= "\udfff" for letter in str(text)):
            raise UsageError("the prompt is not UTF-8 text")
        return PromptRequest("text", None, samples, None, str(text).strip())
    if node["path"] is not None and node["name"] != "file":
        raise UsageError(f"prompts.path belongs to prompts=file, not to prompts={node['name']}")
    path = None if node["path"] is None else str(node["path"])
    if path is not None and not Path(path).is_file():
        raise UsageError(f"prompts.path: no file {path!r}")
    return PromptRequest(node["name"], limit, samples, path)


def _sampling(node: dict[str, Any]) -> dict[str, Any]:
    top_k, top_p, guidance = node["top_k"], node["top_p"], node["guidance"]
    return {
        "temperature": _real("sampling.temperature", node["temperature"], *TEMPERATURE),
        "top_k": None if top_k is None else _whole("sampling.top_k", top_k, 1),
        "top_p": None if top_p is None else _real("sampling.top_p", top_p, *TOP_P),
        "guidance": None if guidance is None else _real("sampling.guidance", guidance, *GUIDANCE),
    }


def _whole(key: str, value: object, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{key} must be a whole number, not {value!r}")
    if value < low:
        raise UsageError(f"{key} must be at least {low}, not {value}")
    return value


def _switch(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false, not {value!r}")
    return value


def _real(key: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{key} must be a number, not {value!r}")
    if not low <= value <= high:
        raise UsageError(f"{key} must be at least {low:g} and at most {high:g}, not {value:g}")
    return float(value)
