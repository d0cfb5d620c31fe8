"""``specbench train drafter=ssd model=NAME``: from a frozen target to its heads, in stages that each resume.

Knows: the order of the stages, where each leaves its files, and the figures of the card.
Refuses to know: the loss (``ssd``), the loop (``trainer``), and how images are decoded with heads.
"""

from __future__ import annotations

import json
import time
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

HELD_OUT = SHARD
"""Images that no head is trained on: acceptance is measured there."""


def train_ssd(
    target: Target,
    sampling: Sampling,
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
    texts = captions(name, prompts, images + HELD_OUT, seed)
    paths = write_images(Path(data) if data else folder / "images", target, sampling, texts, seed)
    stored = load_images(paths)
    held = Images(stored.tokens[:HELD_OUT], stored.texts[:HELD_OUT])
    states = States(target, Images(stored.tokens[HELD_OUT:], stored.texts[HELD_OUT:]), seed)
    sample = states.batch(torch.arange(min(16, images)))
    task = SpatialTask.fresh(target, sample, places, reads, raw, seed)
    started = time.monotonic()
    curve = fit(task, states, plan, folder)
    heads = task.heads(name, str(getattr(target, "weights_hash", "")))
    path = folder / file_name(name, "ssd")
    heads.write(path)
    print(f"curve: {plot_curve(curve, folder / 'curve.png', f'heads of {name}: SmoothL1 by offset')}")
    figures = {
        "target": name,
        "target_weights": heads.target_weights,
        "weights": Heads.read(path).weights_hash,
        "plan": vars(plan),
        "images": images,
        "reads": reads,
        "units": task.units,
        "parameters": sum(p.numel() for p in task.module.parameters()),
        "seconds_this_run": round(time.monotonic() - started, 1),
        "loss": _last(curve),
        "acceptance": acceptance(task, held, sampling),
    }
    write_card(folder, figures)
    print(f"card: {folder / 'card.md'}\nheads: {path}")
    return path


def _last(curve: list[dict[str, float]], steps: int = 20) -> dict[str, float]:
    """Mean of each part over the last steps."""
    tail = curve[-steps:]
    return {k: round(sum(x[k] for x in tail) / len(tail), 4) for k in curve[-1] if k not in ("step", "lr", "loss")}


def write_card(folder: Path, figures: dict[str, Any]) -> None:
    """Write ``card.json`` and the same for readers, ``card.md``."""
    (folder / "card.json").write_text(json.dumps(figures, indent=1) + "\n")
    rows = [
        f"| {offset} | {figures['loss'][offset]:.4f} | {x['heads']:.3f} | {x['copy']:.3f} | {x['uniform']:.3f} |"
        for offset, x in figures["acceptance"].items()
    ]
    plan, units = figures["plan"], ", ".join(f"{u:.4g}" for u in figures["units"])
    lines = [
        f"# Spatial heads of {figures['target']}",
        "",
        f"Target weights {figures['target_weights']}, heads {figures['weights']}: {figures['parameters']:,} of them. "
        f"Each reads {figures['reads']} (units {units}); {figures['images']} images, {plan['steps']} steps of "
        f"{plan['batch']}, AdamW, lr {plan['lr']:g} to {plan['lr_end']:g}, seed {plan['seed']}.",
        "",
        "| offset | SmoothL1 | Σ min(p, q) | copy of the source's law | uniform |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
    ]
    (folder / "card.md").write_text("\n".join(lines) + "\n")
