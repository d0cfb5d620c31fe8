"""The layers of a language model from transformers, run over our own cache: embeddings in, hidden states out.

Knows: transformers' decoder layers (Llama, Chameleon, Emu3), their rotary positions, and the preallocated cache that
they write to at given slots, row by row, and read as far as it can be in use.
Refuses to know: prompts, codes, guidance, and which tokens are committed.

The layers are called one by one instead of through the model's own ``forward``: the hidden state before the final norm
and the taps of any layer are then simply there, and no mask or position is guessed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

LAYER_SETTINGS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "attention_bias",
    "mlp_bias",
)
"""What of a language model's configuration decides what it computes, in every family here; some add to it."""


STEP = 64
"""Slots are allocated and read in steps of so many: few shapes, and whole lines of memory for every kernel."""


def in_steps(slots: int) -> int:
    """``slots`` or the next multiple of the step."""
    return -(-slots // STEP) * STEP


class Slab:
    """Keys and values of every layer, [layers, 2, rows, heads, slots, d_head], allocated once.

    ``at`` [rows, S] are the slots that the pass in progress writes to, ``span`` how many it reads: all that are in use
    lie below. Slots are never shared between tokens of a pass.
    """

    def __init__(self, trunk: Trunk, rows: int, slots: int) -> None:
        config, weight = trunk.config, trunk.embed_tokens.weight
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, rows, heads, in_steps(slots), width)
        # Zeros, not garbage: a masked slot takes part with weight 0, and 0 × NaN is NaN.
        self.kv = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self.row = torch.arange(rows, device=weight.device)[:, None]
        self.at, self.span = self.row, slots

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.kv.shape[4]

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` of them; what is held stays."""
        if slots > self.slots:
            more = self.kv.new_zeros(*self.kv.shape[:4], in_steps(slots) - self.slots, self.kv.shape[5])
            self.kv = torch.cat([self.kv, more], 4)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """What an attention layer calls: store [rows, heads, S, d] each, return the layer's slots that are read."""
        held_keys, held_values = self.kv[layer]
        held_keys[self.row, :, self.at] = keys.transpose(1, 2)
        held_values[self.row, :, self.at] = values.transpose(1, 2)
        return held_keys[:, :, : self.span], held_values[:, :, : self.span]

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy slots ``source`` [rows, D] to slots ``to`` [rows, D], in every layer."""
        self.kv[:, :, self.row, :, to] = self.kv[:, :, self.row, :, source]


def scores_of(mask: Tensor, dtype: torch.dtype, heads: int = 1) -> Tensor:
    """``mask`` [rows, 1, S, span] bool as what is added to scores, 0 or -inf, for ``heads`` queries of one key.

    Once per pass: given a bool mask, every layer would make this of it again. [rows, 1, heads·S, span].
    """
    added = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
    return added.repeat(1, 1, heads, 1)


def attend(query: Tensor, keys: Tensor, values: Tensor, scores: Tensor, scale: float | None = None) -> Tensor:
    """Attention of ``query`` [rows, heads, S, d] over [rows, fewer heads, span, d]: [rows, heads, S, d].

    The queries that share a key head stand one behind the other: keys and values are then read once, not copied for
    each of them. ``scores`` comes from :func:`scores_of`.
    """
    packed = query.reshape(query.shape[0], keys.shape[1], -1, query.shape[3])
    return F.scaled_dot_product_attention(packed, keys, values, attn_mask=scores, scale=scale).reshape(query.shape)


def _attend_in_layer(
    module: nn.Module, query: Tensor, keys: Tensor, values: Tensor, scores: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """:func:`attend` as transformers' layers call it, which want [rows, S, heads, d]."""
    return attend(query, keys, values, scores, scaling).transpose(1, 2), None


ATTENTION = "specbench"
AttentionInterface.register(ATTENTION, _attend_in_layer)


class Trunk(nn.Module):
    """Word embeddings, layers, final norm. ``kinds`` are a family's layer, norm and rotary classes in transformers."""

    def __init__(self, config: Any, kinds: tuple[type[nn.Module], type[nn.Module], type[nn.Module]]) -> None:
        super().__init__()
        layer, norm, rotary = kinds
        config._attn_implementation = ATTENTION
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = norm(config.hidden_size, eps=config.rms_norm_eps)
        with torch.device("cpu"):  # its frequencies are computed, not loaded, so they must not be built on meta
            self.rotary = [rotary(config)]  # in a list: no submodule, so `to(dtype)` leaves its float32 alone

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, cache: Slab, taps: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Hidden states before the final norm, and those after the layers in ``taps``.

        ``x`` [rows, S, d] embeddings · ``position`` [rows, S] rotary positions · ``mask`` [rows, 1, S, span] bool,
        True where a query sees a slot; S tokens are written to ``cache.at``.
        """
        turning = self.rotary[0].to(x.device)(x, position)
        scores = scores_of(mask, x.dtype, self.config.num_attention_heads // self.config.num_key_value_heads)
        tapped = {}
        for number, layer in enumerate(self.layers):
            out = layer(x, attention_mask=scores, position_ids=position, cache=cache, position_embeddings=turning)
            x = out[0] if isinstance(out, tuple) else out
            if number in taps:
                tapped[number] = x
        return x, tapped
