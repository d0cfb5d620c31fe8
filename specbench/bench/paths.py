"""Where the shipped configuration and the tracked results lie.

Knows: an editable checkout keeps ``conf/`` and ``results/`` beside the package; a wheel carries ``conf/`` and the
published values inside it.
Refuses to know: what is in the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from specbench.errors import SpecbenchError

PACKAGE = Path(__file__).resolve().parent.parent
WEIGHTS_ROOT, DATA_ROOT = "SPECBENCH_WEIGHTS_ROOT", "SPECBENCH_DATA_ROOT"


@cache
def conf() -> Path:
    """The folder of Hydra groups. The checkout wins over the wheel's copy, so that edits there are seen."""
    checkout = (PACKAGE.parent / "pyproject.toml").is_file()
    for folder in (PACKAGE.parent / "conf",) * checkout + (PACKAGE / "conf",):
        if (folder / "config.yaml").is_file():
            return folder
    raise SpecbenchError("the configuration folder conf/ is missing from this installation: install specbench again")


def published() -> Path:
    """The folder of published values: the checkout's, else the wheel's copy."""
    beside = conf().parent / "results" / "published"
    if beside.is_dir():
        return beside
    raise SpecbenchError("the published values are missing from this installation: install specbench again")


def verified() -> Path | None:
    """The file with what the tests have shown of the real families: the checkout's, else the wheel's copy, if any."""
    file = conf().parent / "results" / "verified.json"
    return file if file.is_file() else None


def baselines() -> Path:
    """Where ``check`` keeps its baselines: ``results/baselines`` of the checkout, else of the current folder."""
    beside = PACKAGE.parent / "results" / "baselines"
    return beside if beside.is_dir() else Path("results") / "baselines"


def weights_root() -> Path | None:
    """The folder that holds the weights of many models: ``--weights-root``, or the environment variable behind it."""
    named = os.environ.get(WEIGHTS_ROOT)
    return Path(named) if named else None


def data_root() -> Path | None:
    """The folder of prompt sets and references that are not shipped: ``--data-root``, or the variable behind it."""
    named = os.environ.get(DATA_ROOT)
    return Path(named) if named else None


def group(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each choice of a Hydra group and its content, by name; a slash in a choice is a sub-folder."""
    from omegaconf import OmegaConf

    root = conf() / name
    for file in sorted(root.rglob("*.yaml")):
        node = OmegaConf.to_container(OmegaConf.load(file), throw_on_missing=False)
        if isinstance(node, dict):
            yield file.relative_to(root).with_suffix("").as_posix(), {str(k): v for k, v in node.items()}
