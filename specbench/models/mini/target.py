"""mini as a target: a tokenizer and a transformer behind the interface that every decoder sees.

Knows: guidance (a conditional and an unconditional row per image), the preallocated cache, per-row write positions.
Refuses to know: sampling filters, methods, and how the weights came about.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specbench.decoding.interfaces import Forward, Grid, Prompt
from specbench.decoding.laws import guide
from specbench.models.mini import text
from specbench.models.mini.tokenizer import Tokenizer
from specbench.models.mini.transformer import Attend, Transformer


class MiniCanvas:
    """Images in flight on a :class:`MiniTarget`; rows are stacked [conditional…, unconditional…].

    ``committed`` [B] counts committed codes. The cache holds the prefix and all committed codes but the last, so the
    next pass writes from slot ``prefix + committed - 1``. Slots past the image share one scratch slot that no live
    query can see.
    """

    def __init__(self, model: Transformer, prompts: Sequence[Prompt], guidance: float | None) -> None:
        self.model, self.guidance = model, guidance
        weight = model.head.weight
        texts = [p.text for p in prompts]
        self.rows = 1 if guidance is None or guidance == 1 else 2
        self.prefix = text.encode(texts + ([""] * len(texts) if self.rows == 2 else [])).to(weight.device)
        config = model.config
        head = config.width // config.heads
        shape = (config.depth, 2, len(self.prefix), config.heads, config.length + 1, head)
        self.cache = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self.committed = torch.zeros(len(texts), dtype=torch.int64, device=weight.device)
        self.started = False

    def forward(self, tokens: Tensor, parents: Tensor | None = None, taps: Sequence[int] = ()) -> Forward:
        """One pass over a chain of provisional tokens; see :class:`specbench.decoding.interfaces.Canvas`."""
        if parents is not None or taps:
            raise NotImplementedError("mini evaluates chains only; trees and taps come with the methods that need them")
        model, config = self.model, self.model.config
        drafts = tokens.repeat(self.rows, 1)
        if self.started:
            embedded = model.codes(drafts)
            base = config.prefix - 1 + self.committed.repeat(self.rows)[:, None]
        else:
            embedded = torch.cat([model.words(self.prefix), model.codes(drafts[:, 1:])], 1)
            base = torch.zeros_like(self.prefix[:, :1])
        slots = (base + torch.arange(embedded.shape[1], device=tokens.device)).clamp(max=config.length)
        h = model.trunk(embedded, slots.clamp(max=config.length - 1), self._attend(slots))
        h = h if self.started else h[:, config.prefix - 1 :]
        self.started = True
        logits = model.head(model.norm(h)).unflatten(0, (self.rows, -1))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.guidance is None or self.rows == 1:
            return Forward(logits[0], h[None])
        return Forward(guide(logits[0], logits[1], self.guidance), h.unflatten(0, (2, -1)))

    def _attend(self, slots: Tensor) -> Attend:
        """Attention that writes this pass's keys and values at ``slots`` [R·B, S] and reads the whole cache."""
        row = torch.arange(len(slots), device=slots.device)[:, None]
        mask = (torch.arange(self.cache.shape[4], device=slots.device) <= slots[..., None])[:, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.cache[layer]
            keys[row, :, slots] = k.transpose(1, 2)
            values[row, :, slots] = v.transpose(1, 2)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

        return attend

    def keep(self, n: Tensor) -> None:
        """Commit ``n`` [B] further codes; rejected slots are overwritten by the next pass."""
        self.committed += n


class MiniTarget:
    """The embedded text-to-image model as a :class:`specbench.decoding.interfaces.Target`."""

    def __init__(self, name: str, transformer: Transformer, tokenizer: Tokenizer, weights_hash: str) -> None:
        self.name, self.transformer, self.tokenizer = name, transformer, tokenizer
        self.weights_hash = weights_hash
        self.grid = Grid(*transformer.config.grid)
        self.vocab = transformer.config.codes
        self.codebook: Tensor | None = tokenizer.codebook.float()
        self.device = transformer.head.weight.device

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> MiniCanvas:
        """Open a canvas; guidance 1 or None runs without unconditional rows."""
        return MiniCanvas(self.transformer, prompts, guidance)

    def warnings(self, prompt: Prompt) -> list[str]:
        """What the model cannot read of this prompt."""
        return text.warnings(prompt.text)

    @torch.inference_mode()
    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode codes [B, N] to uint8 pictures [B, 3, H, W]."""
        return self.tokenizer.decode(tokens, self.grid.columns)

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings of codes."""
        return self.transformer.codes(tokens)

    def norm(self, h: Tensor) -> Tensor:
        """The final norm."""
        return self.transformer.norm(h)

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states to logits over the codes."""
        return self.transformer.head(h)
