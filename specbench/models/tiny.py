"""Tiny checkpoints of the real families: random weights in the real format, written here when first asked for.

Knows: the layout that each family is published in, and a seed.
Refuses to know: how a checkpoint is read. What is written here is read by the loader of the real thing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from specbench.errors import SpecbenchError, unknown
from specbench.models.cosmos_tiny import write_cosmos
from specbench.models.source import cache_home
from specbench.models.vqgan import VQDecoder, released_name

SHARPNESS = 5.0
"""Factor of the head's weights: laws of random weights are otherwise nearly uniform, and test little."""


def cached(family: str) -> Path:
    """The folder of a family's tiny checkpoint, written if it is not there; a change of its writer makes a new one."""
    if family not in WRITERS:
        raise unknown("tiny checkpoint", family, WRITERS)
    sources = sorted(Path(__file__).parent.glob("*tiny.py"))
    version = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:8]
    folder = cache_home() / "specbench" / "tiny" / f"{family}-{version}"
    if folder.is_dir():
        return folder
    fresh = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{family}-"))
        WRITERS[family](fresh)
        os.replace(fresh, folder)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch and safetensors have their own for a full disk
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        if folder.is_dir():  # another process was faster
            return folder
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise SpecbenchError(
            f"the tiny checkpoint cannot be written to {folder}: {why} (is the disk full? XDG_CACHE_HOME moves it)"
        ) from error
    return folder


def write_janus(
    folder: Path, side: int = 8, codes: int = 64, layers: int = 2, dtype: torch.dtype = torch.float32
) -> None:
    """Janus in the original's layout: ``side`` × ``side`` tokens, 4·side pixels; two heads of 16."""
    from specbench.models.janus import BEGIN, BEGIN_OF_IMAGE, PAD, JanusNetwork, read_config

    marks = (BEGIN, "<｜end▁of▁sentence｜>", PAD, BEGIN_OF_IMAGE, "<end_of_image>", "<|User|>", "<|Assistant|>")
    words = write_tokenizer(folder, marks)
    config = {
        "model_type": "multi_modality",
        "language_config": {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "num_hidden_layers": layers,
            "max_position_embeddings": 16384,
            "vocab_size": words,
        },
        "gen_vision_config": {
            "cls": "VQ-16",
            "params": {
                "image_token_size": codes,
                "n_embed": 8,
                "z_channels": 32,
                "ch": 32,
                "decoder_ch_mult": [1, 1, 2],
                "num_res_blocks": 1,
            },
        },
        "vision_config": {"params": {"image_size": 4 * side}},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    network = JanusNetwork(read_config(folder / "config.json"))
    state = seeded(network, sharp=("gen_head.vision_head.weight",), loud=("gen_embed.weight",))
    save_file({name: value.to(dtype) for name, value in state.items()}, folder / "model.safetensors")


def write_lumina(
    folder: Path, side: int = 8, codes: int = 64, layers: int = 2, dtype: torch.dtype = torch.float32
) -> None:
    """Lumina-mGPT in the release's layout: norms stored once for all heads, ``vqgan.ckpt`` beside the model."""
    from specbench.models import lumina

    marks = [lumina.BEGIN, lumina.PAD, "</s>", "<unk>"]
    names = [f"IMGIMG{''.join('ABCDEFGHIJ'[int(digit)] for digit in str(code))}Z" for code in range(codes)]
    special = ["<eoss>", lumina.BEGIN_OF_IMAGE, lumina.SEPARATOR, "<image>", lumina.ROW_END, lumina.size_token(side)]
    words = write_tokenizer(folder, [*marks, *names, *special])
    # The table numbers words as the tokenizer does; both begin with the special ones there, with bytes here.
    table = {name: words - len(marks + names + special) + i for i, name in enumerate([*marks, *names, *special])}
    config = {
        "model_type": "chameleon",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-5,
        "vocab_size": words,
        "vocabulary_map": table,
        "vq_config": {
            "num_embeddings": codes,
            "embed_dim": 16,
            "latent_channels": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 2],
            "num_res_blocks": 1,
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    read = lumina.read_config(folder / "config.json")
    state = seeded(lumina.LuminaNetwork(read), sharp=("lm_head.weight",))
    head = torch.zeros(words, state["lm_head.weight"].shape[1])
    head[list(read.codes)] = state["lm_head.weight"]
    state["lm_head.weight"] = head
    for name in [name for name in state if re.search(r"\.[qk]_norm\.", name)]:
        state[name] = torch.full_like(state[name][:1], float(name.endswith("weight")))
    save_file({name: value.to(dtype) for name, value in state.items()}, folder / "model.safetensors")
    pictures = seeded(VQDecoder(read.vq), sharp=())
    levels = len(read.vq.multiples)
    torch.save({"state_dict": {released_name(k, levels): v for k, v in pictures.items()}}, folder / "vqgan.ckpt")


def seeded(network: nn.Module, sharp: Iterable[str], loud: Iterable[str] = ()) -> dict[str, Tensor]:
    """Random weights: matrices of unit gain (``sharp`` ones larger, entries of ``loud`` ones of size 1), unit norms."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, value in network.state_dict().items():
        if value.dim() < 2:
            state[name] = torch.ones_like(value) if name.endswith("weight") else torch.zeros_like(value)
            continue
        gain = 1.0 if "embed" in name or name in loud else value[0].numel() ** -0.5
        scale = SHARPNESS * gain if name in sharp else gain
        state[name] = torch.randn(value.shape, generator=generator) * scale
    return state


def write_tokenizer(folder: Path, marks: Iterable[str]) -> int:
    """A byte-level ``tokenizer.json`` without merges: 256 bytes, then ``marks`` as special tokens. Returns its size."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    tokenizer.save(str(folder / "tokenizer.json"))
    return int(tokenizer.get_vocab_size())


def write_llamagen(folder: Path) -> None:
    """LlamaGen text to image, as released."""
    from specbench.models.llamagen_tiny import write

    write(folder)


def write_emu3(folder: Path) -> None:
    """Emu3-Gen, in the original's layout."""
    from specbench.models.emu3_tiny import write

    write(folder)


WRITERS: Mapping[str, Callable[[Path], Any]] = {
    "janus": write_janus,
    "lumina": write_lumina,
    "cosmos": write_cosmos,
    "llamagen": write_llamagen,
    "emu3": write_emu3,
}
