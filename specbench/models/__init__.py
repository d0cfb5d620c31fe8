"""Targets by name. Knows: which models exist and which dtypes they run in. Refuses to know: methods and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from specbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Target
    from specbench.models.source import Located

MODELS = {
    "mini": "text to image, 64×64, 16×16 tokens, 1,024 codes; trained on scenes, shipped with specbench",
    "mini/tiny": "mini's architecture with seeded random weights, 4×4 tokens, 32 codes; for tests",
}
FAMILIES = {
    "janus": "specbench.models.janus",
    "lumina": "specbench.models.lumina",
    "cosmos": "specbench.models.cosmos",
    "llamagen": "specbench.models.llamagen",
    "emu3": "specbench.models.emu3",
}
"""Who reads which checkpoints; imported when needed, since they bring transformers."""
DTYPES = ("float32", "float64", "bfloat16")


def load_target(name: str, dtype: str = "float32", device: str = "cpu") -> Target:
    """Load a target, frozen and in evaluation mode.

    Raises UsageError for an unknown model or dtype and for a device that this machine lacks.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    import torch

    from specbench.models.mini.weights import load_mini, load_tiny

    precision = _precision(dtype, device)
    load = load_tiny if name == "mini/tiny" else load_mini
    return load(getattr(torch, precision), device)


def load_checkpoint(
    family: str,
    name: str,
    parts: Sequence[Located],
    dtype: str,
    device: str,
    recipe: Mapping[str, Any],
    tiny: bool = False,
) -> Target:
    """Load a real model's checkpoint from the files in ``parts``, or the family's tiny one (written if need be).

    Raises UsageError for an unknown dtype or absent device, SpecbenchError naming what does not fit.
    """
    if family not in FAMILIES:
        raise unknown("model family", family, FAMILIES)
    import torch

    from specbench.models.source import Bundle, Located

    precision = getattr(torch, _precision(dtype, device))
    if tiny:
        from specbench.models.tiny import cached

        parts = [Located(Bundle((), (), 0.0, ""), cached(family), ())]
    target = import_module(FAMILIES[family]).load(name, parts, precision, device, recipe)
    target.random_weights = tiny
    loaded: Target = target
    return loaded


def declared_weights(target: Target) -> str | None:
    """The hash of its weights that a target declares as ``weights_hash`` (text, or a function of nothing), or None."""
    declared = getattr(target, "weights_hash", None)
    return None if declared is None else str(declared() if callable(declared) else declared)


def _precision(dtype: str, device: str) -> str:
    """Check that this machine can compute so."""
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device={device} was asked for, but this machine has no usable CUDA device; use device=cpu")
    return dtype
