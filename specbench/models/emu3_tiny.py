"""A tiny checkpoint in Emu3-Gen's format: random weights of the model and of the vision tokenizer's decoder.

Knows: the names and layouts of the release, and the order of its vocabulary.
Refuses to know: how they are read. What is written here is read by the loader of the real thing.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import torch
from torch import Tensor

from specbench.models import tiny
from specbench.models.emu3 import FIRST_CODE, RANKS, ROW_END, VISION, Emu3Network, Emu3Pictures
from specbench.models.emu3_words import Emu3Words

ORIGINAL = (
    (r"\.mid\.attn_norm\.", ".mid.attn_1.norm."),
    (r"\.attn_norms\.(\d+)\.", r".attn.\1.norm."),
    (r"\.([qkv])_proj\.", r".\1."),
    (r"\.out_proj\.", ".proj_out."),
)
"""Names of transformers' decoder, and the original ones."""


def write(folder: Path, side: int = 8, codes: int = 64, layers: int = 2, dtype: torch.dtype = torch.float32) -> None:
    """The original layout, the vision tokenizer in ``vision``; 256 bytes as words. ``side`` is in no file."""
    ranks = b"".join(base64.b64encode(bytes([i])) + f" {i}\n".encode() for i in range(256))
    (folder / RANKS).write_bytes(ranks)
    listed = ["<|image token|>", "<|image start|>", "<|image end|>"]
    listed += [f"<|visual token {code:06d}|>" for code in range(codes)]
    (folder / VISION).write_text("\n".join(listed) + "\n", encoding="utf-8")
    words = Emu3Words(folder / RANKS, folder / VISION)
    language = {
        "vocab_size": words.size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": layers,
        "max_position_embeddings": 9216,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
    }
    raw = {"model_type": "Emu3", "attention_dropout": 0.1, "rope_scaling": None, **language}
    (folder / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    first = words.special(FIRST_CODE)
    state = tiny.seeded(Emu3Network(language, codes, first, words.special(ROW_END)), sharp=("lm_head.weight",))
    head = torch.zeros(words.size, 32)
    head[first : first + codes] = state["lm_head.weight"]
    state["lm_head.weight"] = head
    tiny.save_file({name: value.to(dtype) for name, value in state.items()}, folder / "model.safetensors")
    write_vision(folder / "vision", codes)


def write_vision(folder: Path, codes: int) -> None:
    """The decoder of the vision tokenizer: 4 pixels per code along a side."""
    folder.mkdir()
    raw = {
        "model_type": "Emu3VisionVQ",
        "codebook_size": codes,
        "embed_dim": 4,
        "z_channels": 4,
        "ch": 32,
        "ch_mult": [1, 1, 2],
        "num_res_blocks": 1,
        "attn_resolutions": [2],
        "temporal_downsample_factor": 4,
    }
    (folder / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    state = tiny.seeded(Emu3Pictures(folder / "config.json").net, sharp=(), loud=("quantize.embedding.weight",))
    for name in [name for name in state if name.endswith("running_var")]:
        state[name] = torch.ones_like(state[name])
    tiny.save_file({original(k): _convolution(k, v) for k, v in state.items()}, folder / "model.safetensors")


def original(name: str) -> str:
    """A name of transformers' vision tokenizer as the original's."""
    name = name.replace("decoder.up_block.up.", "decoder.up.").replace("decoder.middle_block.", "decoder.mid.")
    for native, released in ORIGINAL:
        name = re.sub(native, released, name)
    return name


def _convolution(name: str, value: Tensor) -> Tensor:
    return value[..., None, None].contiguous() if name.endswith("_proj.weight") else value
