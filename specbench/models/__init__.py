"""Targets by name. Knows: which models exist and which dtypes they run in. Refuses to know: methods and prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from specbench.decoding.interfaces import Target

MODELS = {
    "mini": "text to image, 64×64, 16×16 tokens, 1,024 codes; trained on scenes, shipped with specbench",
    "mini/tiny": "mini's architecture with seeded random weights, 4×4 tokens, 32 codes; for tests",
}
DTYPES = ("float32", "float64", "bfloat16")


def load_target(name: str, dtype: str = "float32", device: str = "cpu") -> Target:
    """Load a target, frozen and in evaluation mode.

    Raises UsageError for an unknown model or dtype and for a device that this machine lacks.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    import torch

    from specbench.models.mini.weights import load_mini, load_tiny

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device={device} was asked for, but this machine has no usable CUDA device; use device=cpu")
    load = load_tiny if name == "mini/tiny" else load_mini
    return load(getattr(torch, dtype), device)
