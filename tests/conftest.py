"""What every test shares.

The slow tier is left out unless a marker expression asks for it, and torch stays on one thread.
"""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked slow unless ``-m`` was given or the test was named by its node id."""
    if config.option.markexpr or any("::" in arg for arg in config.args):
        return
    skip = pytest.mark.skip(reason="slow: run with -m slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
