"""The worked examples of the metrics page and the docstrings of bench say what the code does."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import specbench.bench

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
MODULES = [f"specbench.bench.{module.name}" for module in pkgutil.iter_modules(specbench.bench.__path__)]


def test_the_metrics_page_computes_what_it_says() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried >= 12
    assert failed == 0


@pytest.mark.parametrize("name", [*MODULES, "specbench.errors"])
def test_docstrings_compute_what_they_say(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_page_names_every_counter_of_the_document() -> None:
    from specbench.bench.document import _COUNTERS

    text = PAGE.read_text()
    assert [name for name in _COUNTERS if f"`{name}" not in text] == []
