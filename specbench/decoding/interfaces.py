"""The few interfaces that every other file hangs on.

Knows: what a target, a canvas, a noise source and a decoder promise each other, in shapes and units.
Refuses to know: any model, any method, any file or configuration.

Letters: ``B`` images in flight, ``W`` window, ``V`` codebook size, ``N`` tokens of an image, ``R`` rows per image
(2 with guidance), ``d`` hidden width. A *law* is a normalised distribution over the codebook after guidance,
temperature, top-k and top-p; *logits* are never called laws and laws never logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from specbench.decoding.trace import Trace

START = -1
"""Stands in for "the last committed token" while a row has committed none: the canvas then reads the prompt."""


class Grid(NamedTuple):
    """Rows × columns × frames of image tokens, in raster order (frame, row, column).

    ``row_ends``: the target puts a structural token of its own behind every row. It is forced, never sampled, lives
    inside the target, and released code may spend a pass on it.
    """

    rows: int
    columns: int
    frames: int = 1
    row_ends: bool = False

    @property
    def size(self) -> int:
        """Number of sampled image tokens ``N`` (structural tokens such as row ends are not counted)."""
        return self.rows * self.columns * self.frames


class Prompt(NamedTuple):
    """A caption and the name that addresses its noise: the set's own id, or a hash of the text; never an index."""

    id: str
    text: str


def prompt_id(text: str) -> str:
    """Id of a caption that no set names: a hash of its text, the same in every process and on every machine.

    >>> prompt_id("a red ring")
    'text-08e7a907641d'
    """
    return f"text-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass
class Forward:
    """What one target pass returns.

    ``logits`` [B, W, V], guided and unfiltered, float32 (float64 for a float64 target).
    ``h`` [R, B, W, d], hidden states *before* the final norm (None where a target has none).
    ``taps`` maps a layer index to [R, B, W, d].
    """

    logits: Tensor
    h: Tensor | None = None
    taps: dict[int, Tensor] = field(default_factory=dict)


@runtime_checkable
class Canvas(Protocol):
    """A batch of images in flight; every row has its own committed length.

    Invariant: the cache holds every committed token except the last one, and ``forward``'s first token is that one
    (:data:`START` while nothing is committed: that pass reads the prompt, counts as one pass, and its first
    output is the law of position 0).
    """

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """Evaluate provisional ``tokens`` [B, W] int64 in one pass.

        Column 0 is the last committed token, columns 1…W-1 are drafts for the next positions. They form a chain when
        ``parents`` is None, else a tree: ``parents`` [B, W] int64 gives each node's parent column, which stands before
        its own; -1 for column 0, the root. Rows may have different trees, chains among them. A node stands at the
        position of its depth behind the root and attends to what is committed, to its ancestors and to itself, so its
        logits are those of the chain of its ancestors. Output column j is the logits of the position *after* token j.
        Tokens at positions beyond N are ignored by the caller; the canvas must accept any code there. A canvas that
        evaluates chains only raises ``NotImplementedError`` for parents.
        """
        ...

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Commit ``n`` [B] int64 further positions: the cache now holds ``n`` of the tokens fed in the last
        ``forward``, one per position (0 leaves a row as it was before that pass), and nothing else of it. The token
        sampled last is fed by the next pass.

        Which ones: columns 0…n-1; with ``path`` [B, D] int64 the i-th is column ``path[:, i]`` while i < D, and column
        i from there on. Columns of a path are a node, its child, its child's child …, from column 0 on; entries from
        ``n`` on are not read. (A canvas moves at most D cache rows, whatever the window.)
        """
        ...


def tell(canvas: Canvas, moved: int) -> None:
    """Say before a pass that no row has kept more than ``moved`` codes since the last one.

    Heard by a canvas with a method ``advance(moved)``, which may then read less of its cache. Nobody must be told, and
    no law changes by it: whoever is not must reckon with every code that was fed.
    """
    advance = getattr(canvas, "advance", None)
    if advance is not None:
        advance(moved)


@runtime_checkable
class Target(Protocol):
    """The autoregressive model whose law must be preserved."""

    grid: Grid
    vocab: int
    """Codebook size V: the alphabet that is sampled."""
    codebook: Tensor | None
    """Code vectors [V, e] float32, or None."""
    device: torch.device
    """Where the weights are; tokens, laws and noise live there too."""

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> Canvas:
        """Open a canvas for these prompts. ``guidance`` g mixes ``uncond + g·(cond - uncond)``; None or 1: off.

        A target without unconditional rows has ``takes_guidance = False`` and raises ``UsageError`` for any other g.
        """
        ...

    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode ``tokens`` [B, N] to uint8 pictures [B, 3, height, width]."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings of codes: [...] int64 to [..., d]."""
        ...

    def norm(self, h: Tensor) -> Tensor:
        """The frozen final norm, [..., d] to [..., d]."""
        ...

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden state [..., d] to logits [..., V]."""
        ...


@runtime_checkable
class VideoTarget(Protocol):
    """What a target whose grid has frames offers beside :class:`Target`, in place of ``pixels``."""

    frames_per_second: int

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Read what these prompts name, such as given frames, before any clock runs."""
        ...

    def frames(self, tokens: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        """Decode ``tokens`` [B, N] to uint8 videos [B, T, 3, height, width], given frames included."""
        ...


@runtime_checkable
class SpatialHeads(Protocol):
    """Trained heads that guess hidden states at other places of the grid (SSD, 2606.20543, section 3).

    ``h`` [R, B, L, d] is the hidden state *from which* a token was sampled, which is the target's output one slot
    before it; ``e`` [B, L, d] that token's input embedding (``target.embed``). The results are predicted hidden states,
    which the target's own norm and head turn into logits.
    """

    @property
    def post_norm(self) -> bool:
        """Whether the states that go in and come out are those behind the target's final norm, not before it."""
        ...

    @property
    def horizontal_offsets(self) -> int:
        """k_h: the furthest column to the right."""
        ...

    @property
    def vertical_offsets(self) -> int:
        """k_v: the furthest row below."""
        ...

    def horizontal(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, k_h, d]: the hidden states of the tokens 1…k_h columns further in the same row."""
        ...

    def vertical(self, h: Tensor, e: Tensor) -> Tensor:
        """[R, B, L, k_v, d]: the hidden states of the tokens 1…k_v rows below in the same column."""
        ...


class Key(NamedTuple):
    """Where a random number is used: its role and the absolute positions it belongs to.

    ``role`` is one of ``draft accept residual fill child``; ``position`` [B, L] int64. ``index`` numbers several
    numbers of one role at one position (siblings). The noise object adds seed, sample, prompt id and the image's own
    pass count.
    """

    role: str
    position: Tensor
    index: int = 0  # type: ignore[assignment]  # shadows tuple.index, which nobody wants of a key


class Noise(Protocol):
    """The only randomness of decoding. ``need`` [B, L] bool masks what is really read."""

    def advance(self, moved: int | None = None) -> None:
        """Begin the next target pass. Called once before each pass by the loop.

        ``moved``: no image's window has moved by more positions than this since the pass before (None: unknown). It
        changes no number; it tells production how many Gumbel rows are new without reading anything back.
        """
        ...

    def accept(self, prob: Tensor, key: Key, need: Tensor, lead: bool = False) -> Tensor:
        """Independent coins: [B, L] probabilities to [B, L] bool. ``lead``: only the leading run of True is read."""
        ...

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """Fresh draws from ``law`` [B, L, V] (one uniform each, inverse CDF) to [B, L] int64; unread outside need.

        ``law`` may be an expanded view of a single row.
        """
        ...

    def coupled(self, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
        """Gumbel-max draws on the slots' own ``target`` rows, ``position`` [B, L]: no pass, no role in the key."""
        ...


@dataclass
class Generation:
    """What a decoder returns: ``tokens`` [B, N] int64 and the trace of how they came about."""

    tokens: Tensor
    trace: Trace


@runtime_checkable
class Decoder(Protocol):
    """A method with all its settings, ready to run on any target."""

    @property
    def lossless(self) -> bool:
        """Whether the images have the law of plain AR under the same sampling."""
        ...

    def decode(
        self,
        target: Target,
        prompts: Sequence[Prompt | str],
        seed: int = 0,
        sample: int = 0,
        noise: Noise | None = None,
    ) -> Generation:
        """Generate one image per prompt. ``noise`` replaces the seeded noise (the verifier enumerates through it)."""
        ...
