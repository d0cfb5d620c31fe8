"""The two loops: one token per pass, and a window of drafts per pass.

Knows: the order of things within a pass, and that a window of one makes the second loop the first.
Refuses to know: any formula of a method. Those are the parts that :class:`Jacobi` is built from.

    AR                                         Jacobi
    ─────────────────────────────────────      ─────────────────────────────────────────────────────
    read the last token                        read the last token and the drafts behind it
    p = law after it                           p = laws after each of them
                                               keep the drafts that pass, settle the next   (accept)
    draw it on its own Gumbel row              draw the free slot on its own Gumbel row
                                               redraw the drafts that are left              (redraft)
                                               fill the slots that entered the window       (fill)

Images of a batch advance each at its own pace; a finished one takes part with nothing needed of it. The host waits for
the device once per pass, to learn how far the slowest image still has to go and how far the fastest one moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specbench.decoding.accept import Accept, bound
from specbench.decoding.board import Board, Window, look
from specbench.decoding.clock import Clock, device_of
from specbench.decoding.fill import Fill
from specbench.decoding.interfaces import START, Generation, Grid, Noise, Prompt, Target, tell
from specbench.decoding.laws import Sampling, law_of
from specbench.decoding.noise import AddressedNoise, as_prompts
from specbench.decoding.predict import Plain, Predict
from specbench.decoding.redraft import Redraft
from specbench.decoding.trace import Trace, rows_finished, stack
from specbench.decoding.tree import Chain, Tree
from specbench.errors import UsageError


@dataclass(frozen=True)
class AR:
    """Plain autoregressive decoding: the baseline, and the definition of what lossless means."""

    sampling: Sampling = field(default_factory=Sampling)
    window: int = 1
    lossless: bool = True

    @torch.inference_mode()
    def decode(
        self,
        target: Target,
        prompts: Sequence[Prompt | str],
        seed: int = 0,
        sample: int = 0,
        noise: Noise | None = None,
    ) -> Generation:
        """One image per prompt, N passes, no wait for the device."""
        asked, device = as_prompts(prompts), device_of(target)
        noise = noise or AddressedNoise(asked, seed, sample, device)
        size, images = target.grid.size, len(asked)
        clock = Clock(device)
        canvas = target.begin(asked, self.sampling.guidance)
        one = torch.ones(images, dtype=torch.int64, device=device)
        every = one[:, None] > 0
        tokens = [one[:, None] * START]
        for position in range(size):
            noise.advance(1)
            logits = canvas.forward(tokens[-1]).logits
            clock.lap("passes" if position else "prefill")
            law = law_of(logits, self.sampling)
            tokens.append(noise.coupled(law, one[:, None] * position, every))
            canvas.keep(one)
            clock.lap("sampling")
        return Generation(torch.cat(tokens[1:], 1), _one_by_one(images, target.grid, clock.seconds()))


@dataclass
class Pass:
    """One pass as an onlooker sees it, before the board is written to.

    ``window`` (its tokens and recorded laws are those *before* the pass) · ``p`` [B, w, V] the laws that decided ·
    ``law`` [B, w, V] the laws that drafts were drawn from · ``accepted`` [B] · ``tokens`` [B, w] the new ones.
    """

    window: Window
    p: Tensor
    law: Tensor
    accepted: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class Jacobi:
    """Speculation on the image's own earlier passes: SJD, its couplings, replay, by choice of parts.

    A ``tree`` replaces the strict acceptance by the same test of several candidates; a window of one has no draft and
    hence no tree. ``watch``, if any, sees every pass as it is judged (:class:`Pass`); it must change nothing.
    Raises ``UsageError`` if a window above one does not hold the tree: a chain in its stead would be another method.
    """

    accept: Accept
    redraft: Redraft
    fill: Fill
    window: int
    sampling: Sampling = field(default_factory=Sampling)
    predict: Predict = field(default_factory=Plain)
    tree: Tree = field(default_factory=Chain)
    watch: Callable[[Pass], None] | None = None

    def __post_init__(self) -> None:
        if 1 < self.window < self.tree.nodes:
            raise UsageError(
                f"this tree needs a window of at least {self.tree.nodes} tokens (or of 1, which is plain AR), "
                f"not {self.window}"
            )

    @property
    def lossless(self) -> bool:
        """Whether the law of AR is preserved: acceptance can break it, and drafts tested with a law not their own."""
        return self.accept.lossless and self.predict.lossless

    @torch.inference_mode()
    def decode(
        self,
        target: Target,
        prompts: Sequence[Prompt | str],
        seed: int = 0,
        sample: int = 0,
        noise: Noise | None = None,
    ) -> Generation:
        """One image per prompt. Raises ``UsageError`` if the window does not fit the image."""
        asked, device, size = as_prompts(prompts), device_of(target), target.grid.size
        tree = self.tree if self.window > 1 else Chain()
        if not 1 <= self.window <= size + tree.side:
            most = f"{size} tokens" + (f" and the {tree.side} beside its path" if tree.side else "")
            raise UsageError(f"window must lie between 1 and the image's {most}, not {self.window}")
        noise = noise or AddressedNoise(asked, seed, sample, device)
        accept, predict = bound(self.accept, target), bound(self.predict, target)
        redraft, kept = predict.drafting(self.redraft), min(self.sampling.top_k or target.vocab, target.vocab)
        clock = Clock(device)
        canvas = target.begin(asked, self.sampling.guidance)
        clock.lap("prefill")
        board = Board(len(asked), target.grid, target.vocab, self.window, self.fill.look_back(target.grid), device)
        last = torch.full((len(asked), 1), START, device=device)
        counters: list[Tensor] = []
        self._fill(noise, board, board.committed, self.window - 1, board.committed + self.window, 0)

        left, moved = size, 0
        while left:
            noise.advance(moved)
            tell(canvas, moved)
            window = look(board, min(self.window, left), tree.side)
            nodes = tree.grow(noise, window, last)
            clock.lap("sampling")
            logits = canvas.forward(nodes.tokens, nodes.parents).logits
            clock.lap("passes" if counters else "prefill")

            laws = law_of(logits, self.sampling)
            board.laws = board.laws.to(laws.dtype)  # the first pass tells in which precision the target computes
            walk = tree.walk(noise, laws, window, nodes)
            law = predict(walk.p, board, kept)
            accepted, tokens = tree.judge(accept, noise, walk, law, window, redraft)
            settled = torch.minimum(accepted + 1, window.live.sum(1))
            if self.watch is not None:
                self.watch(Pass(window, walk.p, law, accepted, tokens))
            board.remember(walk.p, window.live.sum(1), predict.reach)
            board.put_tokens(window.position, tokens, window.live, len(counters) + 1)
            board.put_laws(window.position, predict.recorded(walk.p, law), window.live)
            canvas.keep(settled, *(() if walk.path is None else (walk.path,)))
            known = board.committed + window.position.shape[1] - board.tree.long()
            drafted = walk.tested.sum(1)
            board.committed = board.committed + settled
            board.tree = accepted < drafted if tree.side else board.tree
            last = board.tokens.gather(1, (board.committed - 1)[:, None])
            counters.append(torch.stack([nodes.live.sum(1), drafted, accepted, settled]))

            left, moved = _progress(size - board.committed, settled, self.window)
            if window.has_free:
                entered = moved - 1 if tree.side == 0 else moved
                self._fill(noise, board, known, entered, board.committed + self.window - 1, len(counters))
        clock.lap("sampling")
        return Generation(board.tokens[:, :size].clone(), _trace(board, counters, clock.seconds()))

    def _fill(self, noise: Noise, board: Board, known: Tensor, most: int, end: Tensor, in_pass: int) -> None:
        """Fill the slots from ``known`` [B] up to ``end`` [B]; no row has more than ``most`` of them."""
        if most < 1:
            return
        position = board.positions(known, most)
        fresh = position < torch.clamp(end, max=board.size)[:, None]
        position = torch.where(fresh, position, board.size)
        self.fill(noise, board, position, fresh, known, in_pass)


def _progress(left: Tensor, settled: Tensor, window: int) -> tuple[int, int]:
    """The most that any image still has to do, and the most that any image just did: one number, one wait."""
    both = left.amax() * (window + 1) + settled.amax()
    return divmod(int(both), window + 1)


def _trace(board: Board, counters: list[Tensor], seconds: dict[str, float]) -> Trace:
    """A wide window of the released loops holds the row ends among its tokens and spends no pass on them alone."""
    since, changes = board.since[:, : board.size], board.changes[:, : board.size]
    window, drafted, accepted, committed = stack(counters)
    row_ends = _row_ends(board.grid, committed) if board.width == 1 else None
    return Trace(window, drafted, accepted, committed, since.clamp(min=1).cpu(), changes.cpu(), seconds, row_ends)


def _row_ends(grid: Grid, committed: Tensor) -> Tensor | None:
    """Where tokens come one by one, released code spends a pass on each row end, as on any other token."""
    return rows_finished(committed, grid.columns) if grid.row_ends else None


def _one_by_one(images: int, grid: Grid, seconds: dict[str, float]) -> Trace:
    """AR's trace."""
    size = grid.size
    ones = torch.ones(size, images, dtype=torch.int64)
    steps = torch.arange(1, size + 1).repeat(images, 1)
    return Trace(ones, ones * 0, ones * 0, ones, steps, steps * 0, seconds, _row_ends(grid, ones))
