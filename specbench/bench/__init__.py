"""The front door of bench: configuration, cells, the store, the runner, resume, statistics.

Knows: which file answers which call (``docs/architecture.md``, "Front door of bench").
Refuses to know: torch and Hydra, until a call needs them; and how anything is printed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specbench.bench.comparison import compare
    from specbench.bench.config import RunRequest, compose, explain
    from specbench.bench.document import exit_code, pictures
    from specbench.bench.gate import check
    from specbench.bench.health import doctor
    from specbench.bench.listing import (
        keys,
        list_methods,
        list_models,
        list_prompts,
        list_runs,
        list_tables,
        values,
    )
    from specbench.bench.planning import plan
    from specbench.bench.runner import run
    from specbench.bench.store import export

_HOMES = {
    "check": "gate",
    "compare": "comparison",
    "RunRequest": "config",
    "compose": "config",
    "explain": "config",
    "doctor": "health",
    "exit_code": "document",
    "keys": "listing",
    "list_methods": "listing",
    "list_models": "listing",
    "list_prompts": "listing",
    "list_runs": "listing",
    "list_tables": "listing",
    "pictures": "document",
    "values": "listing",
    "plan": "planning",
    "run": "runner",
    "export": "store",
}
__all__ = [
    "RunRequest",
    "check",
    "compare",
    "compose",
    "doctor",
    "exit_code",
    "explain",
    "export",
    "keys",
    "list_methods",
    "list_models",
    "list_prompts",
    "list_runs",
    "list_tables",
    "pictures",
    "plan",
    "run",
    "values",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'specbench.bench' has no attribute {name!r}")
    # No file may be called like one of these functions: the imported submodule would shadow it.
    return getattr(import_module(f"specbench.bench.{_HOMES[name]}"), name)
