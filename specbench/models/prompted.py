"""Targets that read a prompt and then draw codes in raster order: one canvas for all families with a language model.

Knows: conditional and unconditional rows, left padding, a cache whose rows stand at different places, and the tokens
that end a row, which are put in where the grid says so and which no method ever sees.
Refuses to know: templates, special tokens, checkpoints, methods.

Slots of the cache: those of the prompt (padding first), then the codes and row ends in order (:mod:`.layout`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from specbench.decoding.interfaces import Forward, Grid, Prompt
from specbench.decoding.laws import guide
from specbench.models import layout as layouts
from specbench.models.trunk import Slab, Trunk, in_steps


class Prefix(NamedTuple):
    """Prompts as the trunk reads them: ``ids`` [rows, P] int64, left-padded, and how many of each row are padding.

    ``hidden`` [rows] int64 counts the padding, which nothing sees; ``padded`` whether there is any. ``states``
    [rows, P, d] stand in for the embeddings of ``ids`` where a prompt is no words of the trunk.
    """

    ids: Tensor
    hidden: Tensor
    padded: bool
    states: Tensor | None = None


class Network(Protocol):
    """What a family's network must offer."""

    trunk: Trunk

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] int64 to [..., d]."""
        ...

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states [..., d] to logits [..., V]."""
        ...

    def row_end(self) -> Tensor | None:
        """Embedding [d] of the token behind each row; None where there is none."""
        ...


def left_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> Prefix:
    """Token ids of different lengths as one prefix; ``pad`` fills what nothing sees."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    hidden = [longest - len(row) for row in rows]
    return Prefix(ids, torch.tensor(hidden, device=device), any(hidden))


@dataclass
class PromptedTarget:
    """A family's network behind the interface of targets; a family adds ``prefix``, and ``pictures`` that draw.

    ``protocol`` is what its recipe says beyond sampling: the template, the unconditional row. ``random_weights`` marks
    a checkpoint whose pictures and counters mean nothing.
    """

    name: str
    grid: Grid
    vocab: int
    network: Any
    codebook: Tensor | None
    weights_hash: str
    protocol: Mapping[str, Any] = field(default_factory=dict)
    random_weights: bool = False
    pictures: Any = field(default=None, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        weight: Tensor = self.network.trunk.embed_tokens.weight
        return weight.device

    def follow(self, protocol: Mapping[str, Any]) -> Self:
        """The same weights under another recipe."""
        return replace(self, protocol=protocol)

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """The rows of these prompts, [conditional…, unconditional…] with guidance."""
        raise NotImplementedError

    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode codes [B, N] to uint8 pictures [B, 3, H, W]."""
        assert self.pictures is not None
        out: Tensor = self.pictures.pixels(tokens.unflatten(1, (self.grid.rows, self.grid.columns)))
        return out

    def positions(self, prompt: Prefix, place: Tensor) -> Tensor:
        """Rotary positions of ``place`` [rows, S], offsets behind the prompt: here one line, padding left out."""
        return (prompt.ids.shape[1] + place - prompt.hidden[:, None]).clamp(min=0)

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> PromptedCanvas:
        """Open a canvas; guidance 1 or None runs without unconditional rows."""
        return PromptedCanvas(self, prompts, guidance)

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings of codes."""
        out: Tensor = self.network.embed(tokens)
        return out

    def norm(self, h: Tensor) -> Tensor:
        """The final norm."""
        out: Tensor = self.network.trunk.norm(h)
        return out

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states to logits over the codes."""
        out: Tensor = self.network.head(h)
        return out


class PromptedCanvas:
    """Images in flight on a :class:`PromptedTarget`; rows are stacked [conditional…, unconditional…].

    ``committed`` [B] counts committed codes; the next pass writes from the slot of the last of them on. The host does
    not know it, but that no row has committed more than ``reach``, and in the last ``keep`` no more than ``moved``: a
    pass reads no slot of the cache beyond.
    """

    def __init__(self, target: PromptedTarget, prompts: Sequence[Prompt], guidance: float | None) -> None:
        self.target, self.network, self.guidance = target, target.network, guidance
        self.rows = 1 if guidance is None or guidance == 1 else 2
        self.prompt = target.prefix(prompts, self.rows == 2)
        grid = target.grid
        self.columns = grid.columns if grid.row_ends else None
        self.length = grid.size + (grid.size // grid.columns if grid.row_ends else 0)
        self.committed = torch.zeros(len(prompts), dtype=torch.int64, device=target.device)
        self.cache: Slab | None = None
        self.reach = self.moved = self.width = 0
        self.nodes = 0  # of the tree that the last pass was, 0 if it was a chain

    @torch.inference_mode()
    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """One pass over provisional tokens; see :class:`specbench.decoding.interfaces.Canvas`."""
        width, last = tokens.shape[1], self._last()
        self.reach, self.moved, self.width = min(self.reach + self.moved, self.target.grid.size), 0, width
        if parents is None:
            layout = layouts.chain(last, width, self.columns)
        else:
            layout = layouts.tree(last, parents.repeat(self.rows, 1), self.columns)
        self.nodes = 0 if parents is None else width
        embedded, slot, place = self._embed(tokens.repeat(self.rows, 1), layout), layout.slot, layout.place
        prefix, skip = self.prompt.ids.shape[1], 0
        room = prefix + self.length + slot.shape[1]
        if self.cache is None:  # the first pass reads the prompt
            self.cache, skip = Slab(self.network.trunk, len(last), room), prefix - 1
            before = torch.arange(-prefix, -1, device=slot.device).expand(len(last), -1)
            states = self.prompt.states
            states = self.network.trunk.embed_tokens(self.prompt.ids) if states is None else states
            embedded = torch.cat([states, embedded[:, 1:]], 1)
            slot, place = torch.cat([before, slot], 1), torch.cat([before, place], 1)
        self.cache.reserve(room)
        self.cache.at = prefix + slot
        self.cache.span = in_steps(prefix + layouts.place(self.reach - 1, self.columns) + layout.slot.shape[1])
        position = self.target.positions(self.prompt, place)
        h, tapped = self.network.trunk(embedded, position, self._sees(layout.sees), self.cache, taps)
        h, *rest = (self._read(x[:, skip:], layout) for x in (h, *tapped.values()))
        return Forward(self._logits(h, first=skip > 0), h, dict(zip(tapped, rest, strict=True)))

    def _last(self) -> Tensor:
        """The last committed code of each row [rows]; -1 where there is none."""
        return (self.committed - 1).repeat(self.rows)

    def _embed(self, tokens: Tensor, layout: layouts.Layout) -> Tensor:
        """Embeddings of a pass [rows, S, d], row ends put in. START stands for the prompt and is replaced by it."""
        tokens = tokens.clamp(min=0) if self.cache is None else tokens
        if layout.column is None or layout.end is None:
            return self.network.embed(tokens)
        embedded = self.network.embed(tokens.gather(1, layout.column))
        return torch.where(layout.end[..., None], self.network.row_end(), embedded)

    def _sees(self, within: Tensor | None) -> Tensor:
        """[rows, 1, S, span] bool: a token sees what stands before it and itself; of a tree, its ancestors.

        Padding is seen by nobody but itself (a softmax over nothing is not a number).
        """
        assert self.cache is not None
        key, at = torch.arange(self.cache.span, device=self.cache.at.device), self.cache.at
        if within is None:
            mask = key <= at[..., None]
        else:
            nodes = at[:, -within.shape[1] :]
            mask = key <= torch.minimum(at, nodes[:, :1])[..., None]
            mask[:, -within.shape[1] :].scatter_(2, nodes[:, None].expand_as(within), within)
        if self.prompt.padded:
            mask = (mask & (key >= self.prompt.hidden[:, None, None])) | (key == at[..., None])
        return mask[:, None]

    def _read(self, x: Tensor, layout: layouts.Layout) -> Tensor:
        """The states [R, B, W, d] behind which the next code is predicted, from all of a pass [rows, S, d]."""
        if layout.read is not None:
            x = x.gather(1, layout.read[..., None].expand(-1, -1, x.shape[-1]))
        return x.unflatten(0, (self.rows, -1))

    def _logits(self, h: Tensor, first: bool) -> Tensor:
        """Guided logits [B, W, V], float32 or above."""
        logits = self.target.head(self.target.norm(h))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        mixed = logits[0] if self.rows == 1 else guide(logits[0], logits[1], float(self.guidance or 0))
        few = self.target.protocol.get("first_top_k") if first else None
        if few:  # a released script filters the first code harder than the others
            least = mixed[:, :1].topk(few).values[..., -1:]
            mixed[:, :1] = mixed[:, :1].masked_fill(mixed[:, :1] < least, -math.inf)
        return mixed

    @torch.inference_mode()
    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Commit ``n`` [B] further codes; what was refused is written over by the next pass."""
        if self.nodes and (path is not None or self.columns is not None):
            assert self.cache is not None
            every = torch.arange(self.nodes, device=n.device).expand(len(n), -1)
            if path is None:
                path = every
            elif self.columns is not None:  # row ends move what comes behind the path, too
                path = torch.cat([path, every[:, path.shape[1] :]], 1)
            source, to = layouts.kept(self._last(), path.repeat(self.rows, 1), self.nodes, self.columns)
            prefix = self.prompt.ids.shape[1]
            self.cache.move(prefix + source, prefix + to)
        self.committed, self.moved = self.committed + n, self.width

    def advance(self, moved: int) -> None:
        """No row has kept more than ``moved`` codes since the pass before: less of the cache is then read.

        A loop that knows may say so before a pass. It changes no law.
        """
        self.moved = min(self.moved, moved)
