"""mini as a target: a tokenizer and a transformer behind the interface that every decoder sees.

Knows: guidance (a conditional and an unconditional row per image), the preallocated cache, per-row write positions,
trees (a mask per row, positions by depth, and moving the kept nodes together afterwards).
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
from specbench.models.trees import ancestry


class MiniCanvas:
    """Images in flight on a :class:`MiniTarget`; rows are stacked [conditional…, unconditional…].

    ``committed`` [B] counts committed codes. The cache holds the prefix and all committed codes but the last, so the
    next pass writes from slot ``prefix + committed - 1``, one slot per column. Slots of a chain past the image share
    one scratch slot that no live query can see; the first tree makes the cache longer by its width, since the columns
    of a tree outnumber its positions.
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
        """One pass over provisional tokens; see :class:`specbench.decoding.interfaces.Canvas`."""
        if taps:
            raise NotImplementedError("mini has no taps yet; they come with the drafters that need them")
        model, config = self.model, self.model.config
        drafts = tokens.repeat(self.rows, 1)
        if self.started:
            embedded = model.codes(drafts)
        else:
            embedded = torch.cat([model.words(self.prefix), model.codes(drafts[:, 1:])], 1)
        base = self._base() if self.started else torch.zeros_like(self.prefix[:, :1])
        slots = base + torch.arange(embedded.shape[1], device=tokens.device)
        if parents is None:
            slots = slots.clamp(max=config.length)
            places, mask = slots, torch.arange(self.cache.shape[4], device=slots.device) <= slots[..., None]
        else:
            self._make_room(tokens.shape[1])
            places, mask = self._tree(slots, parents.repeat(self.rows, 1))
        h = model.trunk(embedded, places.clamp(max=config.length - 1), self._attend(slots, mask[:, None]))
        h = h if self.started else h[:, config.prefix - 1 :]
        self.started = True
        logits = model.head(model.norm(h)).unflatten(0, (self.rows, -1))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.guidance is None or self.rows == 1:
            return Forward(logits[0], h[None])
        return Forward(guide(logits[0], logits[1], self.guidance), h.unflatten(0, (2, -1)))

    def _base(self) -> Tensor:
        """Slot [R·B, 1] of the last committed token, which is column 0 of a pass."""
        return self.model.config.prefix - 1 + self.committed.repeat(self.rows)[:, None]

    def _make_room(self, width: int) -> None:
        """Let ``width`` columns fit behind any number of committed tokens."""
        missing = self.model.config.length + width - self.cache.shape[4]
        if missing > 0:
            self.cache = F.pad(self.cache, (0, 0, 0, missing))

    def _tree(self, slots: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
        """Sequence places [R·B, S] of tokens at cache ``slots`` [R·B, S], and the slots they see [R·B, S, cache].

        The last W of the S tokens are the nodes; what stands before them in the first pass is the caption.
        """
        width = parents.shape[1]
        sees, depth = ancestry(parents)
        nodes = slots[:, -width:]
        places = torch.cat([slots[:, :-width], nodes[:, :1] + depth], 1)
        mask = torch.arange(self.cache.shape[4], device=slots.device) <= torch.minimum(slots, nodes[:, :1])[..., None]
        mask[:, -width:].scatter_(2, nodes[:, None].expand_as(sees), sees)
        return places, mask

    def _attend(self, slots: Tensor, mask: Tensor) -> Attend:
        """Attention that writes this pass's keys and values at ``slots`` [R·B, S] and reads what ``mask`` shows."""
        row = torch.arange(len(slots), device=slots.device)[:, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.cache[layer]
            keys[row, :, slots] = k.transpose(1, 2)
            values[row, :, slots] = v.transpose(1, 2)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

        return attend

    def keep(self, n: Tensor, path: Tensor | None = None) -> None:
        """Commit ``n`` [B] further codes; slots behind them are overwritten by the next pass."""
        if path is not None:
            base = self._base()
            row = torch.arange(len(base), device=base.device)[:, None]
            fed = base + path.repeat(self.rows, 1)
            kept = base + torch.arange(path.shape[1], device=base.device)
            self.cache[:, :, row, :, kept] = self.cache[:, :, row, :, fed]  # a copy: nothing is overwritten unread
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
