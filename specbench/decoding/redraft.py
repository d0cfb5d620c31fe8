"""How a draft that is still open gets its next token, once its new law is known.

Knows: couplings of two draws, from the law a draft was drawn from (q) to the law it shall have now (p).
Refuses to know: acceptance, and where p comes from: the law to draw from is an argument, so that a method which
redrafts from a predicted law p' needs no new coupling.

Whatever happens to the token, kept or redrawn, its law afterwards is the *new* one: that is what a coupling means, and
what the next test divides by. (Carrying the old law on kept drafts is biased; SCD, 2510.24211, states the new one.)
Any coupling with the right marginal leaves the method lossless; a better one keeps more drafts from pass to pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specbench.decoding import options
from specbench.decoding.board import Window
from specbench.decoding.interfaces import Key, Noise
from specbench.decoding.laws import residual


class Redraft(Protocol):
    """``law`` [B, w, V] and a mask ``need`` [B, w] to tokens [B, w] int64, meaningful where needed."""

    def __call__(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """Draw the next token of every needed slot. The free slot, if any, is drawn on its own Gumbel row."""
        ...


@dataclass(frozen=True)
class Independent:
    """x' ~ p, whatever x was. SJD (2410.01699).

    Two such draws agree with probability Σ p q: near zero where laws are flat, which is why SJD stops gaining from
    wider windows. ``index`` tells two such draws of one slot and pass apart.
    """

    index: int = 0

    def __call__(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """One fresh uniform per slot."""
        drawn = noise.draw(law, Key("draft", window.position, index=self.index), need & window.drafted)
        return _with_free(noise, law, window, need, drawn)


@dataclass(frozen=True)
class _Mixed:
    """With probability ``alpha``, per slot and pass, the coupled draw, else an independent one. SCD's α-coupling, an
    ablation: α π_coupled + (1 - α) π_independent (2510.24211).

    Either draw has the right law and the coin knows no token, so every mixture is exact. At 1 no coin is thrown.
    Raises ``UsageError`` for ``alpha`` outside [0, 1].
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        options.check(vars(self))

    def __call__(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """The free slot is no draft yet and always drawn on its own row."""
        if self.alpha == 1:
            return self.coupled(noise, law, window, need)
        open_ = need & window.drafted
        chance = torch.full(open_.shape, self.alpha, dtype=law.dtype, device=law.device)
        together = noise.accept(chance, Key("accept", window.position, index=2), open_)
        apart = open_ & ~together
        alone = noise.draw(law, Key("draft", window.position), apart)
        return torch.where(apart, alone, self.coupled(noise, law, window, need & ~apart))

    def coupled(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """As :class:`Redraft`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Maximal(_Mixed):
    """Keep x with probability min(1, p(x) / q(x)), else x' ~ (p - q)₊. SCD (2510.24211), maximal coupling.

    P(x' = x) = Σ min(p, q), the most that any coupling reaches. This is the paper's plain form, with a coin of its
    own, rather than the fused one that recycles the acceptance coins behind the first rejection: the same law and
    the same cost (a coin per slot), and it stays right when the law to draw from is not the law that was tested.
    """

    def coupled(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """One coin per slot, and a residual draw where it says no."""
        open_ = need & window.drafted
        ratio = law.gather(-1, window.token[..., None]).squeeze(-1) / window.q_of_draft()
        keep = noise.accept(ratio.clamp(max=1), Key("accept", window.position, index=1), open_)
        rest = residual(law, window.q())
        drawn = noise.draw(rest, Key("residual", window.position), open_ & ~keep)
        return _with_free(noise, law, window, need, torch.where(keep, window.token, drawn))


@dataclass(frozen=True)
class Gumbel(_Mixed):
    """x' = argmax (log p + g) with the position's own g, the same in every pass. SCD (2510.24211), Gumbel coupling.

    P(x' = x) ≥ (1 - TV) / (1 + TV), between *any* two passes (Daliri et al. 2024, 2408.07978); x itself is not read.
    """

    def coupled(self, noise: Noise, law: Tensor, window: Window, need: Tensor) -> Tensor:
        """The free slot is no special case: its first draw is already this one."""
        return noise.coupled(law, window.position, need)


def _with_free(noise: Noise, law: Tensor, window: Window, need: Tensor, drawn: Tensor) -> Tensor:
    """Put the first token of the free slot behind those of the drafted ones.

    It is drawn on the position's own Gumbel row, as plain AR draws every token: with a window of one, nothing else
    happens and the method *is* AR, token for token.
    """
    if not window.has_free:
        return drawn
    free = noise.coupled(law[:, -1:], window.position[:, -1:], need[:, -1:])
    return torch.cat([drawn[:, :-1], free], 1)


REDRAFTS: dict[str, Redraft] = {
    "independent": Independent(),
    "maximal": Maximal(),
    "gumbel": Gumbel(),
}
