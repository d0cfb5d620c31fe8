"""The layers of a language model from transformers, run over our own cache: embeddings in, hidden states out.

Knows: transformers' decoder layers (Llama, Chameleon), their rotary positions, and the preallocated cache that they
write to at given slots, row by row.
Refuses to know: prompts, codes, guidance, and which tokens are committed.

The layers are called one by one instead of through the model's own ``forward``: the hidden state before the final norm
and the taps of any layer are then simply there, and no mask or position is guessed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

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


class Slab:
    """Keys and values of every layer, [layers, 2, rows, heads, slots, d_head], allocated once.

    ``at`` [rows, S] are the slots that the pass in progress writes to. Slots are never shared between tokens of a pass.
    """

    def __init__(self, trunk: Trunk, rows: int, slots: int) -> None:
        config, weight = trunk.config, trunk.embed_tokens.weight
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, rows, heads, slots, width)
        # Zeros, not garbage: a masked slot takes part with weight 0, and 0 × NaN is NaN.
        self.kv = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        self.row = torch.arange(rows, device=weight.device)[:, None]
        self.at = self.row

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.kv.shape[4]

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` of them; what is held stays."""
        if slots > self.slots:
            more = self.kv.new_zeros(*self.kv.shape[:4], slots - self.slots, self.kv.shape[5])
            self.kv = torch.cat([self.kv, more], 4)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """What an attention layer calls: store [rows, heads, S, d] each, return all slots of the layer."""
        held_keys, held_values = self.kv[layer]
        held_keys[self.row, :, self.at] = keys.transpose(1, 2)
        held_values[self.row, :, self.at] = values.transpose(1, 2)
        return held_keys, held_values

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy slots ``source`` [rows, D] to slots ``to`` [rows, D], in every layer."""
        self.kv[:, :, self.row, :, to] = self.kv[:, :, self.row, :, source]


class Trunk(nn.Module):
    """Word embeddings, layers, final norm. ``kinds`` are a family's layer, norm and rotary classes in transformers."""

    def __init__(self, config: Any, kinds: tuple[type[nn.Module], type[nn.Module], type[nn.Module]]) -> None:
        super().__init__()
        layer, norm, rotary = kinds
        config._attn_implementation = "sdpa"
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

        ``x`` [rows, S, d] embeddings · ``position`` [rows, S] rotary positions · ``mask`` [rows, 1, S, slots] bool,
        True where a query sees a slot; S tokens are written to ``cache.at``.
        """
        turning = self.rotary[0].to(x.device)(x, position)
        tapped = {}
        for number, layer in enumerate(self.layers):
            out = layer(x, attention_mask=mask, position_ids=position, cache=cache, position_embeddings=turning)
            x = out[0] if isinstance(out, tuple) else out
            if number in taps:
                tapped[number] = x
        return x, tapped
