"""Trains mini's transformer on stored codes.

Knows: the loss (object tokens weigh more at first), the curriculum from clean to textured, two optimisers, checkpoints.
Refuses to know: how pictures were drawn or tokenised, and how trained weights are judged.

Each worker process uses one thread and its own half of the batch; gradients are averaged once a step. That is faster on
a few cores than one process with many threads, and a busy core costs one step's wait, not one per operation.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from specbench.models.mini.training.data import load_codes
from specbench.models.mini.transformer import Config, Transformer

DROP_CAPTION = 0.1
"""Share of captions replaced by padding, so that guidance has an unconditional law (arXiv 2207.12598, §3.2)."""


@dataclass(frozen=True)
class Plan:
    """Settings of a training run. Steps, not epochs: shards may still be growing on disk."""

    folder: str
    steps: int = 3500
    clean_steps: int = 1100
    batch: int = 32
    workers: int = 2
    lr: float = 0.02
    lr_vectors: float = 3e-3
    warmup: int = 100
    decay: float = 0.25
    object_weight: float = 4.0
    average: float = 0.998
    seed: int = 0
    save_every: int = 100


def learning_rate(plan: Plan, step: int) -> float:
    """Warm-up, plateau, then linear decay to zero over the last ``decay`` share; as a factor of the peak."""
    start = plan.steps * (1 - plan.decay)
    return min(1.0, (step + 1) / plan.warmup, max(0.0, (plan.steps - step) / max(plan.steps - start, 1)))


def loss_of(logits: Tensor, codes: Tensor, objects: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy (object tokens count ``weight`` times) and the plain one, nats per token."""
    nll = F.cross_entropy(logits.flatten(0, 1).float(), codes.flatten(), reduction="none").view_as(objects)
    w = torch.where(objects, weight, 1.0)
    return (nll * w).sum() / w.sum(), nll.detach().mean()


def batches(plan: Plan, rank: int, step: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless batches of this worker: clean shards during the curriculum, then textured ones; reread as they grow."""
    folder, share = Path(plan.folder), plan.batch // plan.workers
    generator = torch.Generator().manual_seed(1000 * plan.seed + 10_000_019 * rank + step)
    while True:
        clean = step < plan.clean_steps
        wanted = "texture0.*.npz" if clean else "texture1.*.npz"
        codes, captions, objects = load_codes(sorted(folder.glob(wanted)))
        for _ in range(200):
            index = torch.randint(len(codes), (share,), generator=generator)
            words = captions[index].long()
            dropped = torch.rand(share, generator=generator) < DROP_CAPTION
            words[dropped, :-1] = 0
            yield words, codes[index].long(), objects[index]
            step += 1
            if clean != (step < plan.clean_steps):
                break


def optimisers(model: Transformer, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for embeddings, head and gains."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=plan.lr, weight_decay=0.01),
        torch.optim.AdamW(rest, lr=plan.lr_vectors, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def average_gradients(model: nn.Module, workers: int) -> None:
    """Mean of the gradients over all workers, in place, as one message."""
    if workers > 1:
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        flat /= workers
        for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view_as(grad))


def save(path: Path, value: object) -> None:
    """Write a checkpoint beside ``path`` and move it into place, so that a kill never leaves half a file."""
    part = path.with_suffix(".part")
    torch.save(value, part)
    os.replace(part, path)


class Progress:
    """Rank 0's part: averaged weights, the curve on disk and in ``report``, checkpoints."""

    def __init__(self, plan: Plan, state: dict[str, Any]) -> None:
        self.plan, self.average = plan, state["average"]
        self.started, self.first = time.monotonic(), state["step"]

    def after(self, step: int, model: nn.Module, optims: list[torch.optim.Optimizer], line: dict[str, float]) -> None:
        """Take note of a finished step; ``line`` holds its losses."""
        keep = min(self.plan.average, step / (step + 10))
        for key, value in model.state_dict().items():
            self.average[key].lerp_(value, 1 - keep)
        if step % 20 == 0:
            rate = (step - self.first) * self.plan.batch / (time.monotonic() - self.started)
            line = {"step": step, **{k: round(v, 4) for k, v in line.items()}, "images_per_s": round(rate, 1)}
            with open(Path(self.plan.folder) / "curve.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"step {step}/{self.plan.steps}  {line['nats']:.3f} nats a token  {line['images_per_s']} images/s",
                flush=True,
            )
        if step % self.plan.save_every == 0 or step == self.plan.steps:
            state = {"model": model.state_dict(), "average": self.average, "step": step}
            save(Path(self.plan.folder) / "checkpoint.pt", {**state, "optimisers": [o.state_dict() for o in optims]})


def restore(folder: Path, model: nn.Module, optims: list[torch.optim.Optimizer]) -> dict[str, Any]:
    """Load the checkpoint of ``folder`` into model and optimisers; a fresh state where there is none."""
    path = folder / "checkpoint.pt"
    if not path.exists():
        return {"average": {k: v.clone() for k, v in model.state_dict().items()}, "step": 0}
    state: dict[str, Any] = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optim, saved in zip(optims, state["optimisers"], strict=True):
        optim.load_state_dict(saved)
    return state


def worker(rank: int, plan: Plan, config: Config) -> None:
    """One training process."""
    torch.set_num_threads(1)
    torch.manual_seed(plan.seed)
    folder = Path(plan.folder)
    if plan.workers > 1:
        dist.init_process_group("gloo", f"file://{folder.absolute()}/rendezvous", rank=rank, world_size=plan.workers)
    model = Transformer(config)
    optims = optimisers(model, plan)
    peaks = [o.param_groups[0]["lr"] for o in optims]
    state = restore(folder, model, optims)
    progress, step = Progress(plan, state), state["step"]
    for words, codes, objects in batches(plan, rank, step):
        if step >= plan.steps:
            break
        for optim, peak in zip(optims, peaks, strict=True):
            optim.param_groups[0]["lr"] = peak * learning_rate(plan, step)
        weight = 1 + (plan.object_weight - 1) * max(0.0, 1 - step / (0.7 * plan.steps))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(words, codes)
        loss, plain = loss_of(logits, codes, objects, weight)
        loss.backward()
        average_gradients(model, plan.workers)
        for optim in optims:
            optim.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            progress.after(step, model, optims, {"loss": loss.item(), "nats": plain.item(), "weight": weight})


def train_transformer(plan: Plan, config: Config) -> Path:
    """Train, or go on from the checkpoint in ``plan.folder``; returns the checkpoint's path."""
    folder = Path(plan.folder)
    (folder / "rendezvous").unlink(missing_ok=True)
    # Large tensors come and go every step; returning their pages to the system each time made training 4 times slower.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**32))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**33))
    torch.multiprocessing.spawn(worker, (plan, config), nprocs=plan.workers)
    return folder / "checkpoint.pt"
