"""mini's weights as package data: one bf16 safetensors file holding transformer and tokenizer, and its JSON card.

Knows: the file layout, the hash that identifies the weights, and the seeded ``tiny`` variant that tests use.
Refuses to know: training and decoding.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specbench.errors import SpecbenchError
from specbench.models.mini import text
from specbench.models.mini.target import MiniTarget
from specbench.models.mini.tokenizer import Tokenizer
from specbench.models.mini.transformer import Config, Transformer

PATH = Path(__file__).parent / "mini.safetensors"

TINY = Config(
    codes=32, vocabulary=text.VOCABULARY, prefix=text.PREFIX, grid=(4, 4), width=32, depth=2, heads=2, hidden=48
)


def save_weights(path: Path, transformer: Transformer, tokenizer: Tokenizer) -> None:
    """Store both networks in bfloat16; the stored values are the weights. The config is kept in the file's header."""
    parts = {"transformer": transformer.state_dict(), "tokenizer": tokenizer.state_dict()}
    tensors = {f"{p}.{k}": v.to(torch.bfloat16).contiguous() for p, state in parts.items() for k, v in state.items()}
    save_file(tensors, path, metadata={"config": json.dumps(transformer.config.to_dict())})


@cache
def fingerprint(path: Path) -> str:
    """First 16 hex digits of the SHA-256 of a weights file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def load_mini(dtype: torch.dtype, device: str, path: Path = PATH) -> MiniTarget:
    """Load the shipped weights (or another file of the same layout).

    Raises SpecbenchError when the file is missing, or names the keys that do not match.
    """
    if not path.exists():
        raise SpecbenchError(f"mini's weights are missing: expected {path}; reinstall specbench or train them")
    with safe_open(path, "pt") as file:
        raw = json.loads(file.metadata()["config"])
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    transformer = Transformer(Config(**{**raw, "grid": tuple(raw["grid"])}))
    tokenizer = Tokenizer()
    for name, module in (("transformer", transformer), ("tokenizer", tokenizer)):
        own = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
        different = sorted(set(own) ^ set(module.state_dict()))
        if different:
            raise SpecbenchError(f"{path.name} does not fit mini's {name}: {', '.join(different)}")
        module.load_state_dict(own)
    return _target("mini", transformer, tokenizer, fingerprint(path), dtype, device)


def load_tiny(dtype: torch.dtype, device: str, seed: int = 0) -> MiniTarget:
    """A seeded random transformer of mini's make with a sharpened head: 4×4 grid, 32 codes, 16×16 pictures."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    transformer, tokenizer = Transformer(TINY), Tokenizer(codes=TINY.codes, width=16, dim=8)
    for weight in transformer.residual_outputs():
        torch.nn.init.normal_(weight, std=0.3)
    torch.nn.init.normal_(transformer.head.weight, std=0.4)
    torch.random.set_rng_state(state)
    return _target("mini/tiny", transformer, tokenizer, f"tiny-seed-{seed}", dtype, device)


def _target(
    name: str, transformer: Transformer, tokenizer: Tokenizer, weights: str, dtype: torch.dtype, device: str
) -> MiniTarget:
    transformer.to(device=device, dtype=dtype).eval().requires_grad_(False)
    tokenizer.to(device=device).eval().requires_grad_(False)
    return MiniTarget(name, transformer, tokenizer, weights)
