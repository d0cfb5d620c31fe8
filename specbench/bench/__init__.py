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
    from specbench.bench.tables_run import chosen_tables, plan_tables, run_table

_HOMES = {
    "check": "gate",
    "chosen_tables": "tables_run",
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
    "plan_tables": "tables_run",
    "run": "runner",
    "run_table": "tables_run",
    "export": "store",
}
__all__ = [
    "RunRequest",
    "check",
    "chosen_tables",
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
    "plan_tables",
    "run",
    "run_table",
    "values",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'specbench.bench' has no attribute {name!r}")
    # No file may be called like one of these functions: the imported submodule would shadow it.
    return getattr(import_module(f"specbench.bench.{_HOMES[name]}"), name)
