"""``specbench train drafter=ssd model=NAME``: from a frozen target to its heads, in stages that each resume.

Knows: the order of the stages, where each leaves its files, and the figures of the card.
Refuses to know: the loss (``ssd``), the loop (``trainer``), and how images are decoded with heads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from specbench.decoding.interfaces import Target
from specbench.decoding.laws import Sampling
from specbench.drafters import file_name
from specbench.drafters.heads import Heads
from specbench.drafters.training.data import SHARD, Images, captions, load_images, write_images
from specbench.drafters.training.ssd import INPUTS, SpatialTask, acceptance, offsets
from specbench.drafters.training.trainer import Plan, States, fit, plot_curve
from specbench.errors import UsageError, unknown
from specbench.models import declared_weights

HELD_OUT = SHARD
"""Images that no head is trained on: acceptance is measured there."""


def train_ssd(
    target: Target,
    protocol: Mapping[str, Any],
    name: str,
    /,
    out: str | None = None,
    steps: int = 400,
    images: int = 1920,
    batch: int = 32,
    horizontal: int = 5,
    vertical: int = 5,
    reads: str = "h_pre+e",
    lr: float = 1e-4,
    lr_end: float | None = None,
    warmup: int = 20,
    raw: bool = False,
    prompts: str | None = None,
    data: str | None = None,
    seed: int = 0,
    save_every: int = 50,
) -> Path:
    """Train heads for ``target`` in folder ``out`` and return their file. Run again to go on where it stopped.

    ``images`` are sampled and trained on, and a shard more for the card; ``data`` is their folder (default:
    ``out``/images), which runs may share. ``prompts`` is a file of captions, one a line, for targets without captions
    of their own. ``raw`` measures states in the target's own units, as the paper does, instead of their deviation.
    """
    plan = Plan(steps, batch, lr, lr / 10 if lr_end is None else lr_end, warmup, seed=seed, save_every=save_every)
    if images < 1:
        raise UsageError(f"images must be at least 1, not {images}")
    places = offsets(target.grid, horizontal, vertical)
    if reads not in INPUTS:
        raise unknown("input of heads", reads, INPUTS)
    folder = Path(out or f"train-{file_name(name, 'ssd').removesuffix('.safetensors')}")
    sampling = Sampling(**protocol)
    texts = captions(name, prompts, images + HELD_OUT, seed)
    stored = load_images(write_images(Path(data) if data else folder / "images", target, sampling, texts, seed))
    held = Images(stored.tokens[:HELD_OUT], stored.texts[:HELD_OUT])
    states = States(target, Images(stored.tokens[HELD_OUT:], stored.texts[HELD_OUT:]), seed)
    task = SpatialTask.fresh(target, states.batch(torch.arange(min(16, images))), places, reads, raw, seed)
    started = time.monotonic()
    curve = fit(task, states, plan, folder)
    spent = time.monotonic() - started
    path = folder / file_name(name, "ssd")
    task.heads(name, declared_weights(target) or "").write(path)
    print(f"curve: {plot_curve(curve, folder / 'curve.png', f'heads of {name}: SmoothL1 by offset')}")
    card = {"images": images, "plan": vars(plan), "seconds_this_run": round(spent, 1), "loss": _last(curve)}
    write_card(folder, path, task, {**card, "acceptance": acceptance(task, held, sampling)})
    print(f"card: {folder / 'card.md'}\nheads: {path}")
    return path


def _last(curve: list[dict[str, float]], steps: int = 20) -> dict[str, float]:
    """Mean of each part over the last steps."""
    tail = curve[-steps:]
    return {k: round(sum(x[k] for x in tail) / len(tail), 4) for k in curve[-1] if k not in ("step", "lr", "loss")}


def write_card(folder: Path, path: Path, task: SpatialTask, card: Mapping[str, Any]) -> None:
    """Write ``card.json`` and the same for readers, ``card.md``: what the heads at ``path`` are and came from."""
    heads = Heads.read(path)
    figures = {
        "target": heads.target,
        "target_weights": heads.target_weights,
        "weights": heads.weights_hash,
        "parameters": sum(p.numel() for p in task.module.parameters()),
        "reads": task.reads,
        "units": task.units,
        **card,
    }
    (folder / "card.json").write_text(json.dumps(figures, indent=1) + "\n")
    rows = [
        f"| {offset} | {figures['loss'][offset]:.4f} | {x['heads']:.3f} | {x['copy']:.3f} | {x['uniform']:.3f} |"
        for offset, x in figures["acceptance"].items()
    ]
    plan, units = figures["plan"], ", ".join(f"{u:.4g}" for u in figures["units"])
    lines = [
        f"# Spatial heads of {figures['target']}",
        "",
        f"Target weights {figures['target_weights']}, heads {figures['weights']} ({figures['parameters']:,} weights). "
        f"Each reads {figures['reads']} (units {units}); {figures['images']} images, {plan['steps']} steps of "
        f"{plan['batch']}, AdamW, lr {plan['lr']:g} to {plan['lr_end']:g}, seed {plan['seed']}.",
        "",
        "| offset | SmoothL1 | Σ min(p, q) | copy of the source's law | uniform |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
    ]
    (folder / "card.md").write_text("\n".join(lines) + "\n")
