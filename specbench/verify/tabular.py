"""Targets small enough to know by heart: a seeded table with one law for every prefix.

Knows: the exact law of plain AR on such a target, by enumeration, and its own reading of temperature, top-k and top-p
(so that the production filters are not checked against themselves).
Refuses to know: decoders and noise.

The canvas caches the very tokens it was fed and looks laws up under them. A decoder that writes a cache row at the
wrong place, forgets to feed a correction or does not roll back gets the law of another prefix: cache faults become
distance.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specbench.decoding.interfaces import START, Forward, Grid, Prompt
from specbench.verify.checks import PoisonRead

if TYPE_CHECKING:
    from specbench.decoding.laws import Sampling


@dataclass
class TabularTarget:
    """A target of ``size`` tokens over ``vocab`` codes whose logits are ``sharpness`` × standard normal, float64.

    The grid has two columns; with an odd ``size`` its last row is short (:class:`RaggedGrid`).
    """

    vocab: int = 3
    size: int = 4
    seed: int = 0
    sharpness: float = 1.0
    grid: Grid = field(init=False)
    codebook: Tensor | None = field(init=False)
    device: torch.device = torch.device("cpu")
    canvas: TabularCanvas | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.grid = RaggedGrid.of(self.size, 2)
        self.codebook = self._codes = torch.randn(self.vocab, 2, generator=_generator(self.seed, "codebook"))
        self._tables: dict[str, Tensor] = {}

    def table(self, name: str) -> Tensor:
        """Logits [contexts, V] of the prompt ``name`` ("" is the unconditional one), ordered by :meth:`context`."""
        if name not in self._tables:
            contexts = sum(self.vocab**length for length in range(self.size)) + 1
            noise = torch.randn(contexts, self.vocab, generator=_generator(self.seed, name), dtype=torch.float64)
            self._tables[name] = self.sharpness * noise
        return self._tables[name]

    def context(self, tokens: Tensor) -> Tensor:
        """Number of the prefix ``tokens`` [..., n] int64: first by length, then as a number in base V."""
        n = tokens.shape[-1]
        place = self.vocab ** torch.arange(n - 1, -1, -1)
        return (tokens * place).sum(-1) + sum(self.vocab**length for length in range(n))

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> TabularCanvas:
        """Open a canvas; the last one opened stays at :attr:`canvas` for the verifier to watch."""
        names = sorted({prompt.id for prompt in prompts})
        tables = torch.stack([self.guided(name, guidance) for name in names])
        which = torch.tensor([names.index(prompt.id) for prompt in prompts])
        self.canvas = TabularCanvas(self, tables, which)
        return self.canvas

    def guided(self, name: str, guidance: float | None) -> Tensor:
        """Logits [contexts, V] ``uncond + g (cond - uncond)``."""
        if guidance is None or guidance == 1:
            return self.table(name)
        return self.table("") + guidance * (self.table(name) - self.table(""))

    def laws(self, prompt: Prompt, sampling: Sampling) -> NDArray[np.float64]:
        """Law [contexts, V] after every prefix, computed here and not by production code."""
        return reference_law(self.guided(prompt.id, sampling.guidance).numpy(), sampling)

    def ar_law(self, prompt: Prompt, sampling: Sampling) -> NDArray[np.float64]:
        """Law [V**N] of whole images under plain AR; an image is numbered in base V, first token first."""
        laws = self.laws(prompt, sampling)
        joint, start = np.ones(1), 0
        for length in range(self.size):
            step = laws[start : start + self.vocab**length]
            joint, start = (joint[:, None] * step).ravel(), start + self.vocab**length
        return joint

    def pixels(self, tokens: Tensor) -> Tensor:
        """One pixel per token, so that anything that wants a picture gets one."""
        pixels = torch.zeros(len(tokens), 3, self.grid.rows, 2, dtype=torch.uint8)
        pixels.flatten(2)[:, :, : self.size] = (tokens * 255 // self.vocab).to(torch.uint8)[:, None]
        return pixels

    def embed(self, tokens: Tensor) -> Tensor:
        """Code vectors [..., 2] (a table has no hidden states; this only has to have the right shape)."""
        return self._codes[tokens]

    def norm(self, h: Tensor) -> Tensor:
        """Identity."""
        return h

    def head(self, h: Tensor) -> Tensor:
        """Similarity to each code [..., V]."""
        return h @ self._codes.T


class TabularCanvas:
    """Caches the tokens it was fed, [B, N] int64, and how many are valid, [B]."""

    def __init__(self, target: TabularTarget, tables: Tensor, which: Tensor):
        self.target, self.tables, self.which = target, tables, which
        self.cache = torch.zeros(len(which), target.size, dtype=torch.int64)
        self.committed = torch.zeros(len(which), dtype=torch.int64)
        """Committed tokens per row, [B] int64: the cache holds all of them but the last."""
        self._fed: Tensor | None = None
        self._nodes: Tensor | None = None

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """Look up the logits [B, W, V] after each provisional token; beyond the image, the table's last row."""
        if taps:
            raise NotImplementedError("a table has no layers to tap")
        column = torch.arange(tokens.shape[1])
        in_line = self.committed[:, None] - 1 + column
        self._fed, self._nodes = self._with(self.cache, in_line, tokens), tokens
        if parents is None:
            self._check(tokens, in_line)
            return Forward(torch.stack([self._after(self._fed, p) for p in in_line.unbind(1)], 1))
        boards, positions = [self.cache], [self.committed - 1]  # of the root's parent, then of each node
        for node, parent in zip(column, parents.unbind(1), strict=True):
            if bool((parent >= node).any()) or bool((parent < -(node == 0).long()).any()):
                raise PoisonRead("a node's parent must stand before it, and only column 0 is a root")
            board = torch.stack(boards, 1)[torch.arange(len(tokens)), parent + 1]
            depth = torch.stack(positions, 1)[torch.arange(len(tokens)), parent + 1] + (node > 0)
            boards.append(self._with(board, depth[:, None], tokens[:, node : node + 1]))
            positions.append(depth)
        self._check(tokens, torch.stack(positions[1:], 1))
        pairs = zip(boards[1:], positions[1:], strict=True)
        return Forward(torch.stack([self._after(board, position) for board, position in pairs], 1))

    def _live(self, position: Tensor) -> Tensor:
        """Which of ``position`` [B, W] an unfinished image has."""
        return (position >= 0) & (position < self.target.size) & (self.committed[:, None] < self.target.size)

    def _with(self, board: Tensor, position: Tensor, tokens: Tensor) -> Tensor:
        """``board`` [B, N] with ``tokens`` [B, W] at ``position`` [B, W], as far as the image has them."""
        row, column = self._live(position).nonzero(as_tuple=True)
        board = board.clone()
        board[row, position[row, column]] = tokens[row, column]
        return board

    def _check(self, tokens: Tensor, position: Tensor) -> None:
        """Refuse tokens that were never drawn, and a first pass that does not read the prompt."""
        if bool((self._live(position) & ((tokens < 0) | (tokens >= self.target.vocab))).any()):
            raise PoisonRead("a token that was never drawn was fed to the target")
        if bool(((position < 0) & (tokens != START)).any()):
            raise PoisonRead("the first pass must be fed START")

    def _after(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Logits [B, V] of the position that follows ``position`` [B]."""
        size, base = self.target.size, self.target.vocab
        known = torch.arange(size) <= position[:, None]
        code = torch.zeros(len(tokens), dtype=torch.int64)
        for k in range(size):
            code = torch.where(known[:, k], code * base + tokens[:, k] + 1, code)
        # Σ (x_k + 1) V^(n-1-k) numbers prefixes by length, then by value: the order of TabularTarget.context
        beyond = position + 1 >= size
        return self.tables[self.which, torch.where(beyond, self.tables.shape[1] - 1, code)]

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Commit ``n`` [B] further positions and keep the tokens that were fed for them; forget the rest.

        What a path keeps is what its columns were fed, one by one, whether or not they are each other's parents.
        """
        assert self._fed is not None, "keep comes after forward"
        assert self._nodes is not None
        fed = self._fed
        if path is not None:
            place = self.committed[:, None] - 1 + torch.arange(path.shape[1])
            fed = self._with(fed, place, self._nodes.gather(1, path))
        self.committed = self.committed + n
        held = torch.arange(self.target.size) < (self.committed - 1)[:, None]
        self.cache = torch.where(held, fed, 0)


class RaggedGrid(Grid):
    """A grid whose last row may be short."""

    _size: int

    @classmethod
    def of(cls, size: int, columns: int) -> RaggedGrid:
        """``size`` tokens in rows of ``columns``."""
        grid = cls(-(-size // columns), columns)
        grid._size = size
        return grid

    @property
    def size(self) -> int:
        """Number of sampled tokens N."""
        return self._size


def reference_law(logits: NDArray[np.float64], sampling: Sampling) -> NDArray[np.float64]:
    """Temperature, top-k (ties kept), top-p, in this order, on guided logits [..., V]: a plain second reading."""
    scaled = logits / sampling.temperature
    weight = np.exp(scaled - scaled.max(-1, keepdims=True))
    if sampling.top_k is not None and sampling.top_k < weight.shape[-1]:
        weight = np.where(weight < np.sort(weight, -1)[..., [-sampling.top_k]], 0, weight)
    if sampling.top_p is not None and sampling.top_p < 1:
        order = np.argsort(-weight, -1, kind="stable")
        ranked = np.take_along_axis(weight, order, -1)
        above = np.cumsum(ranked, -1) - ranked
        drop = above >= sampling.top_p * weight.sum(-1, keepdims=True)
        np.put_along_axis(weight, order, np.where(drop, 0, ranked), -1)
    return weight / weight.sum(-1, keepdims=True)


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
