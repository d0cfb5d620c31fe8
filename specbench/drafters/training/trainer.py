"""The loop that trains any drafter on a frozen target: batches, optimiser, checkpoints, resume, curve.

Knows: steps and epochs, the learning rate's course, how to stop anywhere and go on as if nothing had happened.
Refuses to know: what is predicted and how it is judged. That is the task's, one per kind of drafter.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from specbench.decoding.interfaces import Target
from specbench.drafters.training.data import Images, teach
from specbench.errors import SpecbenchError, UsageError

DROP_CAPTION = 0.1
"""Share of images read without their caption, so that heads also see unconditional states (SSD, training section)."""


@dataclass(frozen=True)
class Plan:
    """Settings of a training run. The defaults of rates, betas, decay and warm-up are those that SSD prints.

    ``lr`` falls to ``lr_end`` on a cosine (the paper gives the ends and the warm-up, not the course between them).
    """

    steps: int
    batch: int = 32
    lr: float = 1e-4
    lr_end: float = 1e-5
    warmup: int = 20
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.warmup, self.save_every) < 1:
            raise UsageError("steps, batch, warmup and save_every must be at least 1")
        if not (math.isfinite(self.lr) and 0 <= self.lr_end <= self.lr and self.lr > 0):
            raise UsageError(f"lr={self.lr} and lr_end={self.lr_end} must be finite, with 0 <= lr_end <= lr, lr > 0")

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, …: linear warm-up, then a cosine that ends at ``lr_end``."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        share = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.lr_end + (self.lr - self.lr_end) * (1 + math.cos(math.pi * share)) / 2


class Task(Protocol):
    """What is trained, and its loss."""

    @property
    def module(self) -> nn.Module:
        """Everything that has weights to train."""
        ...

    def loss(self, h: Tensor, e: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Teacher-forced h and e, [B, N, d] each, to the scalar loss and named parts of it for the curve."""
        ...


@dataclass
class States:
    """Teacher-forced states of a set of images; kept in memory once made, as far as ``memory`` bytes go.

    Which captions are dropped is a pure function of seed and image, so an image's states never change.
    """

    target: Target
    images: Images
    seed: int = 0
    memory: float = 2e9
    _kept: dict[int, Tensor] = field(default_factory=dict)
    _bytes: int = 0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed + 77)
        self.dropped = torch.rand(len(self.images), generator=generator) < DROP_CAPTION

    def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """h and e of the ``chosen`` images [B]: [B, N, d] each."""
        missing = [i for i in chosen.tolist() if i not in self._kept]
        fresh: dict[int, Tensor] = {}
        if missing:
            texts = [self.images.texts[i] for i in missing]
            h, _ = teach(self.target, self.images.tokens[missing], texts, self.dropped[missing])
            fresh = dict(zip(missing, h.clone(), strict=True))
            size = h[0].nelement() * h.element_size()
            for i, state in fresh.items():
                if self._bytes + size <= self.memory:
                    self._kept[i] = state.clone()
                    self._bytes += size
        tokens = self.images.tokens[chosen].to(self.target.device)
        h = torch.stack([fresh[i] if i in fresh else self._kept[i] for i in chosen.tolist()])
        return h, self.target.embed(tokens).detach()


def order(step: int, plan: Plan, images: int) -> Tensor:
    """The images of one step [batch]: epochs are shuffled by (seed, epoch), whatever came before."""
    found: list[Tensor] = []
    at, wanted = step * plan.batch, plan.batch
    while wanted:
        epoch, start = divmod(at, images)
        shuffled = torch.randperm(images, generator=torch.Generator().manual_seed(1_000_003 * plan.seed + epoch))
        part = shuffled[start : start + wanted]
        found.append(part)
        at, wanted = at + len(part), wanted - len(part)
    return torch.cat(found)


def save(path: Path, value: object) -> None:
    """Write a checkpoint beside ``path`` and move it into place, so that a kill never leaves half a file.

    ``SpecbenchError`` where the disk does not take it, of which torch says only that a position is unexpected.
    """
    part = path.with_suffix(".part")
    try:
        torch.save(value, part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        raise SpecbenchError(f"cannot write {path} (is the disk full?): {str(error).splitlines()[0]}") from error


def keep_pages() -> None:
    """Let the allocator keep freed memory: large tensors come and go every step, and returning their pages to the
    system each time costs more than the arithmetic. Nothing happens where the C library has no such switch.
    """
    trim, mmap = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for switch in (trim, mmap):
            library.mallopt(switch, 2**31 - 1)


def fit(
    task: Task, states: States, plan: Plan, folder: Path, report: Callable[[str], None] = print, every: int = 10
) -> list[dict[str, float]]:
    """Train ``task`` for ``plan.steps`` steps in ``folder``, or go on from its checkpoint; returns the curve.

    The curve has one line per step, the task's parts and ``lr``; a line goes to ``report`` every so many steps. After
    a stop at any moment at most ``save_every`` steps are made again, with the same batches and so the same numbers.
    Raises UsageError when the checkpoint is of another plan.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keep_pages()
    optimiser = torch.optim.AdamW(task.module.parameters(), plan.lr, plan.betas, weight_decay=plan.weight_decay)
    settings = json.loads(json.dumps({**asdict(plan), "images": len(states.images)}))
    step, curve = _restore(folder, task, optimiser, settings)
    first, started = step, time.monotonic()
    device = states.target.device.type
    while step < plan.steps:
        for group in optimiser.param_groups:
            group["lr"] = plan.rate(step)
        h, e = states.batch(order(step, plan, len(states.images)))
        with torch.autocast(device, torch.bfloat16):
            loss, parts = task.loss(h, e)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        curve.append(
            {"step": step, "lr": plan.rate(step), "loss": loss.item(), **{k: float(v) for k, v in parts.items()}}
        )
        if not math.isfinite(curve[-1]["loss"]):
            raise UsageError(f"the loss is {curve[-1]['loss']} at step {step}: try a smaller lr")
        step += 1
        if step % plan.save_every == 0 or step == plan.steps:
            state = {"module": task.module.state_dict(), "optimiser": optimiser.state_dict()}
            save(folder / "checkpoint.pt", {**state, "step": step, "settings": settings, "curve": curve})
        if step % every == 0 or step == plan.steps:
            rate = (step - first) * plan.batch / (time.monotonic() - started)
            report(f"step {step}/{plan.steps}  loss {curve[-1]['loss']:.4f}  {rate:.1f} images/s")
    (folder / "curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    return curve


def _restore(
    folder: Path, task: Task, optimiser: torch.optim.Optimizer, settings: dict[str, Any]
) -> tuple[int, list[dict[str, float]]]:
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0, []
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise SpecbenchError(f"{path} is damaged: delete it, and the same command trains from the start") from error
    different = [k for k, v in settings.items() if state["settings"].get(k) != v and k != "save_every"]
    if different:
        raise UsageError(f"{path} is of a run with other settings ({', '.join(different)}): choose another out=")
    task.module.load_state_dict(state["module"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["step"]), list(state["curve"])


def plot_curve(curve: Sequence[dict[str, float]], path: Path, title: str) -> Path:
    """Draw every part of the loss against the step, logarithmic, to a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name in [k for k in curve[0] if k not in ("step", "lr", "loss")]:
        axes.plot([x["step"] for x in curve], [x[name] for x in curve], linewidth=0.8, label=name)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)
    return path
