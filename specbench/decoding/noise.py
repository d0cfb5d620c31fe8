"""All randomness of decoding, addressed instead of consumed.

Knows: how an address (seed, sample, prompt id, role, pass, position, index) becomes a random number, and the three
ways in which decoding uses one: a coin, a fresh draw, a draw on the position's own Gumbel row.
Refuses to know: methods, windows, models, and the row a picture happens to have in its batch.

Because a number is a pure function of its address, shuffling, sharding, batching and resuming cannot change an image.
The hash is integer arithmetic, identical on every device; its quality is tested in ``tests/decoding/test_noise.py``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.decoding.interfaces import Key, Prompt, prompt_id
from specbench.errors import UsageError

_GAMMA = -7046029254386353131  # 2^64 / golden ratio, odd: the step of a splitmix stream
_MUL1 = -4658895280553007687
_MUL2 = -7723592293110705685


def as_prompts(prompts: Sequence[Prompt | str]) -> list[Prompt]:
    """Give every bare caption its id. Raises ``UsageError`` for a bare string, and where there is no prompt."""
    if isinstance(prompts, str) or not prompts:
        raise UsageError("prompts must be a list with at least one prompt")
    return [Prompt(prompt_id(p), p) if isinstance(p, str) else p for p in prompts]


class AddressedNoise:
    """The seeded noise of production: :class:`specbench.decoding.interfaces.Noise` for a batch of prompts.

    Roles in use: ``target`` (the position's own Gumbel row; never the pass), ``draft``, ``accept``, ``residual``,
    ``fill``, ``child`` (all with the pass). One address must be asked for one purpose only: the verbs ``accept`` and
    ``draw`` read the same uniform when given the same key.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int = 0,
        sample: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self._image = torch.tensor([[_word("image", seed, sample, prompt.id)] for prompt in prompts], device=device)
        self._pass = 0
        self._rows = torch.arange(len(prompts), device=device)[:, None]
        self._ring: Tensor | None = None
        self._held = 0  # trailing columns of the window whose Gumbel rows the ring holds
        self._moved: int | None = None  # how far the window may have moved since they were read

    def advance(self, moved: int | None = None) -> None:
        """Begin the next pass; no image's window has moved by more than ``moved`` since the last (None: unknown)."""
        self._pass += 1
        self._moved = None if moved is None or self._moved is None else self._moved + moved

    def accept(self, prob: Tensor, key: Key, need: Tensor, lead: bool = False) -> Tensor:
        """Coins [B, L]: True with probability ``prob`` [B, L] (1 always, 0 never)."""
        return self.uniform(key) < prob

    def draw(self, law: Tensor, key: Key, need: Tensor) -> Tensor:
        """Fresh tokens [B, L] from ``law`` [B, L, V], one uniform each."""
        return inverse_cdf(law, self.uniform(key))

    def coupled(self, law: Tensor, position: Tensor, need: Tensor) -> Tensor:
        """Gumbel-max tokens [B, L] from ``law`` [B, L, V] on the rows of ``position`` [B, L].

        With E = exp(-g) exponential, ``argmax(log p + g)`` is ``argmax(p / E)``: no logarithm of the law is taken,
        a zero probability scores zero, and a row costs one product.
        """
        return (law * self._races(position, law)).argmax(-1)

    def uniform(self, key: Key) -> Tensor:
        """Uniforms [B, L] float64 in the open unit interval, on the odd multiples of 2^-53."""
        word = _word(key.role, key.index, self._pass)
        return _unit(_mix(self._image + key.position * _GAMMA + word), torch.float64)

    def _races(self, position: Tensor, law: Tensor) -> Tensor:
        """``1 / E`` [B, L, V] of the rows of ``position``; rows that an earlier pass hashed come from the ring.

        The ring holds one row per window position, addressed by position modulo its length. Only the trailing
        columns into which the window may have moved are hashed; the bound comes with ``advance``, so no length
        depends on data.
        """
        columns, vocab = position.shape[1], law.shape[-1]
        if columns == 1:
            return self._hash(position, vocab, law.dtype)
        if self._ring is None or self._ring.shape[1] < columns:
            self._ring = law.new_empty(law.shape[0], columns, vocab)
            self._held = 0
        new = columns if columns > self._held or self._moved is None else min(self._moved, columns)
        place = position % self._ring.shape[1]
        if new:
            fresh = self._hash(position[:, columns - new :], vocab, law.dtype)
            self._ring[self._rows, place[:, columns - new :]] = fresh
        self._held, self._moved = columns, 0
        return self._ring[self._rows, place]

    def _hash(self, position: Tensor, vocab: int, dtype: torch.dtype) -> Tensor:
        """``1 / E`` [B, L, V] from the address (image, ``target``, position, token)."""
        start = _mix(self._image + position * _GAMMA + _word("target", 0, 0))
        token = torch.arange(1, vocab + 1, device=start.device) * _GAMMA
        # E from the small end of u, where floats are dense: the winner of a race is a small E.
        unit = _unit(_mix(start[..., None] + token), dtype)
        return unit.neg_().log1p_().neg_().reciprocal_()


def inverse_cdf(law: Tensor, u: Tensor) -> Tensor:
    """The token at quantile ``u`` [..., ] of ``law`` [..., V]; never one of probability zero.

    Two levels of about √V: one plain sum over the law, then two short cumulative sums in float64. A law that is an
    expanded view of one row (a uniform fill) is summed once.
    """
    if law.dim() == 3 and law.stride(0) == law.stride(1) == 0:
        law = law[:1, :1]
    blocks = law.unflatten(-1, (-1, _block(law.shape[-1])))  # [..., n, m]
    n, m = blocks.shape[-2:]
    steps = blocks.sum(-1).double().cumsum(-1).expand(*u.shape, n)
    point = u[..., None] * steps[..., -1:]
    block = _locate(steps, point)
    upper, lower = steps.gather(-1, block), steps.gather(-1, (block - 1).clamp(min=0))
    rest = torch.where(block > 0, (point - lower) / (upper - lower), point / upper)

    chosen = block[..., None].expand(*u.shape, 1, m)
    inside = blocks.expand(*u.shape, n, m).gather(-2, chosen).squeeze(-2).double().cumsum(-1)
    within = _locate(inside, rest * inside[..., -1:])
    return torch.add(within, block, alpha=m).squeeze(-1)


def _locate(cdf: Tensor, point: Tensor) -> Tensor:
    """The step of ``cdf`` [..., n] that holds ``point`` [..., 1], as [..., 1].

    The first step strictly above the point has mass of its own; should rounding put the point on the far edge, the
    step that first reaches the total has.
    """
    cdf = cdf.contiguous()
    edge = torch.searchsorted(cdf, cdf[..., -1:].contiguous())
    return torch.minimum(torch.searchsorted(cdf, point, right=True), edge)


def _block(vocab: int) -> int:
    """The largest divisor of ``vocab`` not above its square root."""
    return next(m for m in range(math.isqrt(vocab), 0, -1) if vocab % m == 0)


def _word(*parts: object) -> int:
    """A signed 64-bit hash of a tuple, on the host."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def _mix(x: Tensor) -> Tensor:
    """The 64-bit finaliser of splitmix (Steele, Lea & Flood, OOPSLA 2014; constants: Stafford's variant 13)."""
    x = (x ^ _shift(x, 30)).mul_(_MUL1)
    x = x.bitwise_xor_(_shift(x, 27)).mul_(_MUL2)
    return x.bitwise_xor_(_shift(x, 31))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's own keeps the sign)."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _unit(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Random int64 to uniforms of the open unit interval: odd multiples of 2^-53, rounded to ``dtype``."""
    below_one = 1 - torch.finfo(dtype).eps / 2
    return _shift(x, 11).bitwise_or_(1).to(dtype).mul_(2.0**-53).clamp_(max=below_one)
