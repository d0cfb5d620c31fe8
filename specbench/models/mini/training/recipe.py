"""``specbench train target=mini``: from nothing to mini's weights, in four stages that each resume.

Knows: the order of the stages, where each leaves its files, and the figures of the model card.
Refuses to know: losses and optimisers (``train``, ``train_tokenizer``) and how the weights are benchmarked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from specbench.errors import UsageError
from specbench.models.mini import text
from specbench.models.mini.tokenizer import Tokenizer
from specbench.models.mini.training.data import write_codes
from specbench.models.mini.training.tokenizer import train_tokenizer
from specbench.models.mini.training.transformer import Plan, save, train_transformer
from specbench.models.mini.transformer import Config, Transformer
from specbench.models.mini.weights import save_weights

CLEAN_TEXTURE = 0.15
"""Strength of the texture in the first stage of the curriculum."""


def tokenizer_stage(folder: Path, steps: int, seed: int) -> Tokenizer:
    """Train the tokenizer, or load it; weights are rounded to bfloat16, as they are shipped, before use."""
    path = folder / "tokenizer.pt"
    if not path.exists():
        save(path, train_tokenizer(steps, seed=seed).to(torch.bfloat16).state_dict())
    tokenizer = Tokenizer().to(torch.bfloat16)
    tokenizer.load_state_dict(torch.load(path, weights_only=True))
    return tokenizer.float().eval().requires_grad_(False)


def plot_curve(folder: Path) -> Path:
    """Draw the training curve (nats per token against step) to ``curve.png``."""
    from matplotlib.figure import Figure

    lines = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([x["step"] for x in lines], [x["nats"] for x in lines], linewidth=0.8)
    axes.set(xlabel="step", ylabel="nats per token", title="mini's transformer, training loss (unweighted)")
    axes.grid(alpha=0.3)
    figure.savefig(folder / "curve.png", dpi=120)
    return folder / "curve.png"


def export(folder: Path, tokenizer: Tokenizer) -> Path:
    """Write the averaged weights of the last checkpoint as one bfloat16 safetensors file."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    transformer = Transformer(Config(vocabulary=text.VOCABULARY))
    transformer.load_state_dict(state["average"])
    save_weights(folder / "mini.safetensors", transformer, tokenizer)
    return folder / "mini.safetensors"


def train(
    out: str = "train-mini",
    steps: int = 3500,
    clean_steps: int = 1100,
    batch: int = 32,
    workers: int | None = None,
    tokenizer_steps: int = 550,
    clean_shards: int = 10,
    shards: int = 36,
    seed: int = 0,
) -> Path:
    """Train mini in folder ``out`` and return its weights file. Run again to go on where it stopped.

    ``shards`` hold 2,000 pictures each. ``workers`` processes of one thread each share a batch (default: one per core,
    as far as they divide the batch).
    """
    if steps < 1 or not 0 <= clean_steps <= steps or min(batch, tokenizer_steps, clean_shards, shards) < 1:
        raise UsageError("steps, batch, tokenizer_steps and shards must be at least 1, clean_steps between 0 and steps")
    cores = min(os.cpu_count() or 1, batch)
    workers = workers or next(n for n in range(cores, 0, -1) if batch % n == 0)
    if workers < 1 or batch % workers:
        raise UsageError(f"batch={batch} cannot be shared by workers={workers}; choose workers that divide it")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_stage(folder, tokenizer_steps, seed)
    write_codes(folder, tokenizer, clean_shards, seed, CLEAN_TEXTURE)
    write_codes(folder, tokenizer, shards, seed, 1.0)
    plan = Plan(str(folder), steps, clean_steps, batch, workers, seed=seed)
    train_transformer(plan, Config(vocabulary=text.VOCABULARY))
    if (folder / "curve.jsonl").exists():
        print(f"curve: {plot_curve(folder)}")
    path = export(folder, tokenizer)
    print(f"weights: {path}")
    return path
