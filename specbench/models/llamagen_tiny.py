"""Tiny files in LlamaGen's format: random weights of the model, of VQ-16 and of a T5.

Knows: the names and layouts of the released files.
Refuses to know: how they are read. What is written here is read by the loader of the real thing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Stack

from specbench.models import tiny
from specbench.models.llamagen import MODEL_FILE, PICTURE_FILE, LlamaGenConfig, LlamaGenNetwork
from specbench.models.llamagen_text import END, PAD
from specbench.models.vqgan import VQConfig, VQDecoder

HEADS, CAPTION = 2, 24


def write(
    folder: Path,
    side: int = 8,
    codes: int = 64,
    layers: int = 2,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
) -> None:
    """The released layout: ``{"model": …}`` for the model and VQ-16, a hub folder with the whole T5 for the text."""
    network = LlamaGenNetwork(LlamaGenConfig(codes, 16 * heads, 64, layers, heads, side, CAPTION))
    state = tiny.seeded(network, sharp=("output.weight",), loud=("unconditional",))
    torch.save({"model": {released_name(k): v.to(dtype) for k, v in state.items()}, "steps": 0}, folder / MODEL_FILE)
    pictures = VQDecoder(VQConfig(codes, 8, latent=32, width=32, multiples=(1, 1, 2), blocks=1))
    torch.save({"model": tiny.seeded(pictures, sharp=())}, folder / PICTURE_FILE)
    raw: dict[str, Any] = {
        "model_type": "t5",
        "d_model": CAPTION,
        "d_kv": 8,
        "d_ff": 32,
        "num_heads": 2,
        "num_layers": 2,
        "feed_forward_proj": "gated-gelu",
        "vocab_size": tiny.write_tokenizer(folder, (PAD, END)),
    }
    (folder / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    encoder = tiny.seeded(T5Stack(T5Config(**raw, is_encoder_decoder=False, use_cache=False)), sharp=())
    shared = encoder.pop("embed_tokens.weight")
    whole = {"shared.weight": shared, "lm_head.weight": shared.clone()}
    whole |= {f"{side}.{name}": value.clone() for name, value in encoder.items() for side in ("encoder", "decoder")}
    tiny.save_file({name: value.to(dtype) for name, value in whole.items()}, folder / "model.safetensors")


def released_name(name: str) -> str:
    """A name of ours as the release's."""
    for ours, released in (
        ("model.embed_tokens.", "tok_embeddings."),
        ("model.", ""),
        ("caption.", "cls_embedding.cap_proj."),
        ("unconditional", "cls_embedding.uncond_embedding"),
    ):
        if name.startswith(ours):
            return released + name.removeprefix(ours)
    return name
