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
    from specbench.decoding.interfaces import SpatialHeads
    from specbench.drafters.heads import Heads

WEIGHTS = Path(__file__).parent / "weights"
ROOT = "SPECBENCH_WEIGHTS_ROOT"
"""Environment variable (``--weights-root``): its folder ``drafters/`` holds heads that are not shipped."""

SHIPPED: dict[str, str] = {"mini-ssd.safetensors": "9d42ca8e50a0a60c"}
"""Shipped files and the hash of each: a stored image depends on the source of this file, and so on the weights."""


def load_heads(
    target_name: str,
    variant: str = "ssd",
    dtype: str = "float32",
    device: str = "cpu",
    weights: str | None = None,
) -> Heads:
    """Load the spatial heads ``variant`` of a target, e.g. ``load_heads("mini")``, frozen.

    ``weights`` is the hash of the target's weights, which the heads must have been trained on; None asks for no such
    agreement. ``mini/tiny`` has seeded untrained heads, for tests, where nobody has trained any. Raises UsageError when
    the target has no such heads and names the command that trains them, SpecbenchError when a file is damaged or
    belongs to another target or to other weights of it.
    """
    import torch

    from specbench.drafters.heads import Heads, untrained

    kind = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}.get(dtype)
    if kind is None:
        raise UsageError(f"heads run in float32, float64 or bfloat16, not {dtype!r}")
    path = _look(target_name, variant)
    if path is None and (target_name, variant) == ("mini/tiny", "ssd"):
        return untrained(width=32, horizontal=3, vertical=3).to(kind, device)
    path = path or find(target_name, variant)
    heads = Heads.read(path)
    expected = SHIPPED.get(path.name) if path.parent == WEIGHTS else None
    if expected is not None and heads.weights_hash != expected:
        raise SpecbenchError(f"{path} is not the file that was shipped ({expected}): reinstall specbench")
    if heads.target != target_name:
        raise SpecbenchError(f"{path} holds heads of {heads.target}, not of {target_name}")
    if weights and heads.target_weights and heads.target_weights != weights:
        raise SpecbenchError(
            f"{path} holds heads that were trained on other weights of {target_name} ({heads.target_weights}) than are "
            f"loaded ({weights}): train them again with `specbench train drafter=ssd model={target_name}`"
        )
    return heads.to(kind, device)


def doubt(heads: SpatialHeads | None, weights: str | None) -> str | None:
    """Why it cannot be told whether ``heads`` belong to a target whose weights have this hash; None where it can.

    Heads of a plugin's own say nothing of weights, and are its own affair.
    """
    trained_on = getattr(heads, "target_weights", None)
    if trained_on is None or (trained_on and weights):
        return None
    why = "their file names no weights" if not trained_on else "the model declares no weights_hash"
    return f"its heads may have been trained on other weights: {why}"


def file_name(target_name: str, variant: str) -> str:
    """Name of the file of one target's heads; a slash in a name becomes a dash. UsageError for anything stranger."""
    name = f"{target_name.replace('/', '-')}-{variant}"
    if not re.fullmatch(r"[\w-]+", name):
        raise UsageError(f"heads are named by letters, digits, - and _, not {target_name!r}, {variant!r}")
    return f"{name}.safetensors"


def find(target_name: str, variant: str) -> Path:
    """The file of these heads: the shipped one, else the one under ``--weights-root``; UsageError if there is none."""
    path = _look(target_name, variant)
    if path is not None:
        return path
    captions = "" if target_name == "mini" else " prompts=FILE"
    raise UsageError(
        f"there are no {variant} heads for {target_name}: train them with `specbench train drafter=ssd "
        f"model={target_name}{captions}`, put their file into DIR/drafters as {file_name(target_name, variant)} "
        "and give --weights-root DIR"
    )


def _look(target_name: str, variant: str) -> Path | None:
    name = file_name(target_name, variant)
    roots = [WEIGHTS, *([Path(os.environ[ROOT]) / "drafters"] if os.environ.get(ROOT) else [])]
    return next((root / name for root in roots if (root / name).is_file()), None)
