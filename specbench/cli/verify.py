"""``specbench verify``: is the picture law still that of plain AR?

Knows: which methods and kinds were asked for, and that one failed verdict fails the command.
Refuses to know: how a law is enumerated or tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specbench.cli import options as o
from specbench.errors import SpecbenchError, UsageError

if TYPE_CHECKING:
    from specbench.bench.config import RunRequest
    from specbench.bench.registry import Method


def command(
    overrides: o.Overrides = None,
    exact: Annotated[bool, typer.Option("--exact", help="Enumerate the production code (the default).")] = False,
    statistical: Annotated[bool, typer.Option("--statistical", help="Real noise on a small transformer.")] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="Plant known defects; every one must be caught.")] = False,
    conformance: Annotated[bool, typer.Option("--conformance", help="What every method must promise.")] = False,
    json: o.Json = False,
    plugin: o.Plugin = None,
    weights_root: o.WeightsRoot = None,
    quiet: o.Quiet = False,
) -> int:
    """Prove or test that methods decode images from the law of plain AR.

    Without arguments: every method, exact. Example: specbench verify method=scd,scd_gs --exact

    A plugin's methods are by default tested under real noise as well: exact speaks for small tables in float64 only.

    With model=NAME: what every target must promise (cache, independent rows, guidance), in float64.

    Lossy methods get their measured distance instead of a verdict. A failed verdict is exit code 1.
    """
    o.roots(weights_root, None)
    flags = {"exact": exact, "statistical": statistical, "mutants": mutants, "conformance": conformance}
    kinds = [kind for kind, wanted in flags.items() if wanted]
    words, plugins = list(overrides or ()), o.plugins(plugin)
    if any(word.startswith("model=") for word in words):
        results = _model_verdicts(words, kinds, plugins)
    else:
        results = _verdicts(_work(chosen_methods(words, plugins), kinds), quiet or json)
    if json:
        from specbench.cli.output import emit_json

        emit_json({"schema": "specbench/verify/1", "results": results})
    else:
        _print(results)
    return 1 if any(result["passed"] is False for result in results) else 0


def chosen_methods(overrides: Sequence[str], plugins: tuple[str, ...]) -> list[dict[str, Any]]:
    """Resolve ``method=…`` and ``method.*=…`` to what the verifier takes; all methods where none is named.

    Raises ``UsageError`` for keys that have no meaning here and for unknown methods.
    """
    from specbench import bench
    from specbench.bench import registry
    from specbench.bench.config import refuse_settings

    for word in overrides:
        key = word.partition("=")[0]
        if key != "method" and not key.startswith("method."):
            raise UsageError(f"verify takes method=…, method.*=… or model=…, not {key!r}")
    words = list(overrides)
    if not any(word.startswith("method=") for word in words):
        names = (entry["name"] for entry in bench.list_methods(plugins=plugins))
        words.insert(0, f"method={','.join(names)}")
    requests = bench.compose(words, plugins=plugins)
    for request in requests:
        refuse_settings(request)
    return [_judged(request, registry.method(request.method)) for request in requests]


def _judged(request: RunRequest, method: Method) -> dict[str, Any]:
    """A method as the verifier takes it. Where settings say it all it builds the decoder itself, with trees that fit
    its tables; parts and factories of a plugin are built by the plugin's own.
    """
    from specbench.bench import registry

    own = method.objects or method.factory is not None
    return {
        "name": request.method,
        "lossless": request.lossless,
        "settings": request.settings,
        **({"build": partial(registry.build, request.method, request.settings)} if own else {}),
        "note": _changed(request),
        "plugin": method.is_plugin,
    }


def _changed(request: RunRequest) -> str:
    """The settings that were given by hand, as they were given: ``fill=left``."""
    given = (key.removeprefix("method.") for key in request.overridden if key.startswith("method."))
    return " ".join(f"{key}={request.settings[key]}" for key in given if key in request.settings)


Work = list[tuple[list[dict[str, Any]], str]]


def _work(methods: list[dict[str, Any]], kinds: list[str]) -> Work:
    """Methods and the kind of verification that each list of them gets."""
    if kinds:
        return [(methods, kind) for kind in kinds]
    plugins = [method for method in methods if method["plugin"]]
    return [(methods, "exact"), *([(plugins, "statistical")] if plugins else [])]


def _model_verdicts(words: list[str], kinds: list[str], plugins: tuple[str, ...]) -> list[dict[str, Any]]:
    """The conformance suite of targets, for ``model=A,B``.

    Raises ``SpecbenchError`` when the weights of one of them are not here, before torch is imported.
    """
    if len(words) > 1 or set(kinds) - {"conformance"}:
        raise UsageError("verify model=… takes nothing beside the names of models, and only --conformance")
    from specbench.bench import registry, weights

    registry.load_plugins(plugins)
    names = words[0].partition("=")[2].split(",")
    for name in names:
        weights.summary(name)  # raises where they are not here: no need to wait for torch to learn it
    from specbench.verify.result import Result
    from specbench.verify.targets import target_conformance

    results = []
    for name in names:
        try:
            results.append(target_conformance(name, registry.load_target(name, "float64", "cpu")).as_dict())
        except UsageError:
            raise
        except SpecbenchError as error:  # a model that does not load has failed, and the others are judged
            results.append(Result(name, "conformance", passed=False, detail=str(error)).as_dict())
    return results


def _verdicts(work: Work, quiet: bool) -> list[dict[str, Any]]:
    from specbench.report.terminal import console
    from specbench.verify import verify_each

    verdicts = chain.from_iterable(verify_each(methods, [kind]) for methods, kind in work)
    out = console(stderr=True)
    results = []
    if quiet or not out.is_terminal:
        return list(verdicts)
    with out.status("verifying") as status:
        for result in verdicts:
            results.append(result)
            status.update(f"verifying: {len(results)} verdicts, last {result['kind']} {result['method']}")
    return results


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    from specbench.cli.output import say
    from specbench.report.table import MISSING, Table
    from specbench.report.terminal import console, print_table

    rows = tuple(
        (
            str(r["method"]),
            str(r["kind"]),
            MISSING if r.get("total_variation") is None else f"{r['total_variation']:.1e}",
            MISSING if r.get("p_value") is None else f"{r['p_value']:.3f}",
            {True: "passed", False: "FAILED", None: "measured"}[r["passed"]],
            str(r.get("detail") or ""),
        )
        for r in results
    )
    headers = ("method", "kind", "total variation", "p value", "verdict", "detail")
    print_table(Table(headers, rows, (False, False, True, True, False, False)), console())
    failed = sum(r["passed"] is False for r in results)
    passed = sum(r["passed"] is True for r in results)
    say(f"{passed} passed, {failed} failed, {len(results) - passed - failed} measured (lossy)")
