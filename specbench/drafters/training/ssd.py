"""SSD's heads as a training task: what each reads, what it predicts, and how near it comes.

Knows: the loss (SSD, 2606.20543, training section), the five pairs of input and target of the paper's Table 3, and the
acceptance by offset of its Figure 1.
Refuses to know: optimisers, checkpoints, how an image is decoded with heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specbench.decoding.interfaces import START, Grid, Prompt, Target
from specbench.decoding.laws import Sampling, guide, law_of
from specbench.decoding.spatial import decoded, read_by
from specbench.drafters.heads import INPUTS, Heads, Shape, Stack, is_post_norm, parts
from specbench.drafters.training.data import Images
from specbench.errors import UsageError, unknown


def offsets(grid: Grid, horizontal: int, vertical: int) -> list[tuple[int, int]]:
    """(rows below, columns to the right) of every head, in the order of a stack. UsageError if one leaves the grid."""
    if grid.frames > 1:
        raise UsageError("heads look to the right and down in one picture, and this target makes videos")
    if min(horizontal, vertical) < 0 or horizontal + vertical < 1:
        raise UsageError(f"horizontal={horizontal} and vertical={vertical} leave no heads to train")
    if horizontal >= grid.columns or vertical >= grid.rows:
        raise UsageError(
            f"horizontal={horizontal} and vertical={vertical} must be smaller than the grid of {grid.rows} rows and "
            f"{grid.columns} columns"
        )
    return [(0, j) for j in range(1, horizontal + 1)] + [(i, 0) for i in range(1, vertical + 1)]


def label(offset: tuple[int, int]) -> str:
    """Name of a head in curves and tables: ``right+2``, ``below+1``."""
    rows, columns = offset
    return f"below+{rows}" if rows else f"right+{columns}"


@dataclass
class SpatialTask:
    """Heads at ``places`` of one target's grid; each is trained as if it were alone, for they share no weight."""

    target: Target
    module: Stack
    places: list[tuple[int, int]]
    reads: str = "h_pre+e"
    units: tuple[float, ...] = (1.0, 1.0)

    @classmethod
    def fresh(
        cls,
        target: Target,
        sample: tuple[Tensor, Tensor],
        places: list[tuple[int, int]],
        reads: str = "h_pre+e",
        raw: bool = False,
        seed: int = 0,
    ) -> SpatialTask:
        """New heads that begin as copies of what they read. UsageError for an unknown input.

        ``sample`` is one batch of h and e. Unless ``raw``, each part is measured in its mean deviation there: a unit
        of the loss and of the optimiser, which :meth:`heads` multiplies back into the weights.
        """
        if reads not in INPUTS:
            raise unknown("input of heads", reads, INPUTS)
        width = sample[1].shape[-1]
        stack = Stack(Shape(len(places), width, 2 * width, width * len(INPUTS[reads])), seed).to(target.device)
        stack.start_as_copy()
        task = cls(target, stack, places, reads)
        if not raw:
            task.units = tuple(float((x - x.mean((0, 1))).abs().mean()) for x in task.parts(*sample))
        return task

    @property
    def post_norm(self) -> bool:
        """Whether states are read and predicted behind the target's final norm."""
        return is_post_norm(self.reads)

    def parts(self, h: Tensor, e: Tensor) -> list[Tensor]:
        """What the heads read, in their units, from pre-norm states h and embeddings e."""
        read = parts(self.reads, read_by(self, self.target, h), e)
        return [part / unit for part, unit in zip(read, self.units, strict=False)]

    def loss(self, h: Tensor, e: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum over heads of SmoothL1 between predicted and true states, mean over the sources inside the grid."""
        parts = self.parts(h, e)
        wanted = self._image(parts[0])
        found = self._image(self.module(*parts).float())
        losses = {}
        for head, place in enumerate(self.places):
            source, goal = shifted(place)
            losses[label(place)] = F.smooth_l1_loss(found[(*source, ..., head, slice(None))], wanted[goal])
        return torch.stack(list(losses.values())).sum(), {k: v.detach() for k, v in losses.items()}

    def heads(self, name: str, weights: str) -> Heads:
        """The trained heads as they are stored, with the units multiplied into W0 and W2.

        In units c of the first part and c' of the other, c f(h/c, e/c') has the form of f again: W0 becomes
        [W0_h, W0_e c/c'], W2 becomes c W2, and RMSNorm does not see a common factor.
        """
        state = {key: weight.clone() for key, weight in self.module.state_dict().items()}
        width = self.module.shape.width
        for part, unit in enumerate(self.units[: self.module.shape.inputs // width]):
            state["mix"][:, :, part * width : (part + 1) * width] *= self.units[0] / unit
        state["out"] *= self.units[0]
        stack = Stack(self.module.shape)
        stack.load_state_dict(state)
        across = sum(rows == 0 for rows, _ in self.places)
        return Heads(stack, across, len(self.places) - across, name, weights, self.reads)

    def _image(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.target.grid.rows, self.target.grid.columns))


Where = tuple[slice, slice, slice]


def shifted(place: tuple[int, int]) -> tuple[Where, Where]:
    """Sources that have a goal inside the grid, and those goals, as indices into [B, rows, columns]."""
    rows, columns = place
    every = slice(None)
    source = (every, slice(None, -rows or None), slice(None, -columns or None))
    return source, (every, slice(rows, None), slice(columns, None))


@torch.inference_mode()
def acceptance(task: SpatialTask, images: Images, sampling: Sampling, batch: int = 8) -> dict[str, dict[str, float]]:
    """Figure 1: the mean of Σ min(p, q) by head, over all sources of ``images`` that it can be read from.

    p is the target's law there given everything before, q the head's: guidance on both rows' predicted states, then the
    same filters. Beside it ``copy``, the same for the law of the source itself, and ``uniform`` (q = 1/V): what the two
    reach that know nothing of the offset. Σ min(p, q) is the chance that a draft from q survives its first test.
    """
    total: dict[str, dict[str, float]] = {label(p): {"heads": 0.0, "copy": 0.0, "uniform": 0.0} for p in task.places}
    for start in range(0, len(images), batch):
        tokens = images.tokens[start : start + batch].to(task.target.device)
        texts = images.texts[start : start + batch]
        canvas = task.target.begin([Prompt("teach", text) for text in texts], sampling.guidance)
        out = canvas.forward(torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, :-1]], 1))
        assert out.h is not None
        e = task.target.embed(tokens).expand_as(out.h)
        p = task._image(law_of(out.logits, sampling))
        for place, drafted in zip(task.places, drafts(task, out.h, e, sampling), strict=True):
            source, goal = shifted(place)
            q = task._image(drafted)[source]
            wanted = p[goal]
            flat = torch.full_like(wanted, 1 / wanted.shape[-1])
            for name, law in (("heads", q), ("copy", p[source]), ("uniform", flat)):
                mean = torch.minimum(wanted, law).sum(-1).mean()
                total[label(place)][name] += float(mean) * len(texts) / len(images)
    return total


def drafts(task: SpatialTask, h: Tensor, e: Tensor, sampling: Sampling) -> Iterator[Tensor]:
    """What each head drafts from, head by head: its law q [B, N, V], from pre-norm h and embeddings e [R, B, N, d]."""
    weights = task.module.mix.dtype  # training keeps float32 whatever the target computes in
    guessed = task.module(*(part.to(weights) for part in task.parts(h, e))) * task.units[0]
    for state in guessed.to(h.dtype).unbind(-2):
        logits = decoded(task, task.target, state).float()
        mixed = logits[0] if len(logits) == 1 else guide(logits[0], logits[1], sampling.guidance or 1.0)
        yield law_of(mixed, sampling)
