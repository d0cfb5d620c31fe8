"""Block decoding: whole rows of the grid drafted at once by trained heads (SSD), or several tokens of a row (1D-MTP).

Knows: what such a decoder is made of, and when it is lossless.
Refuses to know: any formula, how heads were trained or found.

    SSD      Block(heads, Spatial(columns=5, rows=1), redraft=Maximal(), correct=Repair(rounds=2))
    1D-MTP   Block(heads, Spatial(columns=5, rows=0), redraft=Maximal(), correct=Repair(rounds=1))

A round of SSD's verify-and-correct is SCD's redraft of every token from the law just computed (2510.24211, maximal
coupling: keep with probability min(1, p/q), else a draw from the residual), without committing anything in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from specbench.decoding.clock import device_of
from specbench.decoding.correct import Correct, Repair, Truncate
from specbench.decoding.flight import Flight, Watch
from specbench.decoding.interfaces import Generation, Noise, Prompt, SpatialHeads, Target
from specbench.decoding.laws import Sampling
from specbench.decoding.noise import AddressedNoise, as_prompts
from specbench.decoding.redraft import Gumbel, Maximal, Redraft
from specbench.decoding.spatial import Spatial
from specbench.errors import UsageError


@dataclass(frozen=True)
class Block:
    """SSD (Xiang et al. 2026, 2606.20543), section 3, and its variants.

    ``heads`` belong to one target; without them the decoder can be built and described, and decodes nothing.
    ``watch``, if any, sees every judged pass; it must change nothing.
    """

    spatial: Spatial = field(default_factory=Spatial)
    correct: Correct = field(default_factory=Repair)
    redraft: Redraft = field(default_factory=Maximal)
    sampling: Sampling = field(default_factory=Sampling)
    heads: SpatialHeads | None = None
    watch: Watch | None = None

    @property
    def lossless(self) -> bool:
        """Whether the law of AR is preserved: by as many rounds as tokens, or by cutting at the first refusal.

        Rounds lead there only if a token whose law stays the same stays too: what comes later was read behind it. An
        independent draw, or a mixture with one, moves it in the last round (TV 0.20 and 0.10 on a block of two).
        """
        sampled = self.spatial.draft == "sample"
        if isinstance(self.correct, Truncate):
            return sampled
        if not isinstance(self.correct, Repair) or self.correct.rounds != "exact":
            return False
        if self.redraft == Gumbel():
            return True
        return self.redraft == Maximal() and sampled and (self.correct.law, self.correct.stop) == ("previous", "never")

    def with_heads(self, heads: SpatialHeads) -> Block:
        """The same decoder with these heads. Raises ``UsageError`` if they do not look as far as it drafts."""
        self.spatial.check(heads)
        return replace(self, heads=heads)

    @torch.inference_mode()
    def decode(
        self,
        target: Target,
        prompts: Sequence[Prompt | str],
        seed: int = 0,
        sample: int = 0,
        noise: Noise | None = None,
    ) -> Generation:
        """One image per prompt. Raises ``UsageError`` without heads."""
        asked = as_prompts(prompts)
        if self.heads is None:
            raise UsageError("block decoding needs trained heads, and none were given to this decoder")
        noise = noise or AddressedNoise(asked, seed, sample, device_of(target))
        flight = Flight(target, asked, noise, self.sampling, self.spatial, self.heads, self.redraft, self.watch)
        self.correct.run(flight)
        return Generation(flight.board.tokens[:, : flight.size].clone(), flight.trace())
