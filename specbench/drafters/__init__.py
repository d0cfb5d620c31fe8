"""Trained heads by name, and what their files hold; how they are trained is a room of its own (``training``).

Knows: where weights lie, and which are shipped. Refuses to know: decoding and training.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.errors import SpecbenchError, UsageError

if TYPE_CHECKING:
    from specbench.drafters.heads import Heads

WEIGHTS = Path(__file__).parent / "weights"
ROOT = "SPECBENCH_WEIGHTS_ROOT"
"""Environment variable (``--weights-root``): its folder ``drafters/`` holds heads that are not shipped."""

SHIPPED: dict[str, str] = {"mini-ssd.safetensors": "87da0523d0a9ef29"}
"""Shipped files and the hash of each: a stored image depends on the source of this file, and so on the weights."""


def load_heads(target_name: str, variant: str = "ssd", dtype: str = "float32", device: str = "cpu") -> Heads:
    """Load the spatial heads ``variant`` of a target, e.g. ``load_heads("mini")``, frozen.

    ``mini/tiny`` has seeded untrained heads of each variant, for tests. Raises UsageError when the target has no such
    heads and names the command that trains them, SpecbenchError when a file is damaged.
    """
    import torch

    from specbench.drafters.heads import Heads, untrained

    kind = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}.get(dtype)
    if kind is None:
        raise UsageError(f"heads run in float32, float64 or bfloat16, not {dtype!r}")
    if target_name == "mini/tiny":
        return untrained(width=32, horizontal=3, vertical=3, weights=f"untrained-{variant}").to(kind, device)
    path = find(target_name, variant)
    heads = Heads.read(path)
    expected = SHIPPED.get(path.name) if path.parent == WEIGHTS else None
    if expected is not None and heads.weights_hash != expected:
        raise SpecbenchError(f"{path} is not the file that was shipped ({expected}): reinstall specbench")
    if heads.target != target_name:
        raise SpecbenchError(f"{path} holds heads of {heads.target}, not of {target_name}")
    return heads.to(kind, device)


def file_name(target_name: str, variant: str) -> str:
    """Name of the file of one target's heads; a slash in a name becomes a dash. UsageError for anything stranger."""
    name = f"{target_name.replace('/', '-')}-{variant}"
    if not re.fullmatch(r"[\w-]+", name):
        raise UsageError(f"heads are named by letters, digits, - and _, not {target_name!r}, {variant!r}")
    return f"{name}.safetensors"


def find(target_name: str, variant: str) -> Path:
    """The file of these heads: the shipped one, else the one under ``--weights-root``; UsageError if there is none."""
    name = file_name(target_name, variant)
    roots = [WEIGHTS, *([Path(os.environ[ROOT]) / "drafters"] if os.environ.get(ROOT) else [])]
    for root in roots:
        if (root / name).is_file():
            return root / name
    raise UsageError(
        f"there are no {variant} heads for {target_name}: train them with `specbench train drafter=ssd "
        f"model={target_name}`, put the file into a folder DIR/drafters and give --weights-root DIR"
    )
