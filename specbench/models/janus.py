"""Janus-Pro (arXiv 2501.17811): a Llama that draws VQ-16 codes; original and native checkpoints.

Knows: both published layouts and their names, the prompt template and the unconditional row of the released code, the
separate embedding and head of image codes, and what generating does not need.
Refuses to know: methods, sampling filters, image understanding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError
from specbench.models import checkpoint
from specbench.models.prompted import Prefix, PromptedTarget, left_padded
from specbench.models.source import Located, described_by, read_json
from specbench.models.trunk import LAYER_SETTINGS, Trunk
from specbench.models.vqgan import VQConfig, VQDecoder, native_name
from specbench.models.words import Words

BEGIN, PAD, BEGIN_OF_IMAGE = "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<begin_of_image>"

UNUSED = re.compile(
    r"(model\.)?(vision_model|aligner)\.|(language_model\.)?lm_head\."
    r"|gen_vision_model\.(encoder|quant_conv)\.|gen_vision_model\.quantize\.codebook_used$"
)
"""What reading pictures and writing text need, and generating does not."""

NATIVE = (
    ("model.language_model.", "language_model.model."),
    ("model.generation_embeddings.", "gen_embed."),
    ("model.generation_aligner.fc1.", "gen_aligner.layers.0."),
    ("model.generation_aligner.hidden_layers.0.", "gen_aligner.layers.2."),
    ("model.generation_head.proj_out.", "gen_head.output_mlp_projector."),
    ("model.generation_head.vision_head.", "gen_head.vision_head."),
)
"""Beginnings of transformers' names, and the original ones, which are ours."""

LLAMA_SETTINGS = (*LAYER_SETTINGS, "head_dim")


@dataclass(frozen=True)
class JanusConfig:
    """Sizes of one checkpoint."""

    language: dict[str, Any]
    vq: VQConfig
    side: int


def read_config(path: Path) -> JanusConfig:
    """Read ``config.json`` of either layout. What it leaves out is what VQ-16 and the release's Llama have."""
    raw = read_json(path)
    kind = raw.get("model_type")
    if kind == "janus":
        vq, vision, language = raw.get("vq_config", {}), raw.get("vision_config", {}), raw["text_config"]
        names = (
            "num_embeddings",
            "embed_dim",
            "latent_channels",
            "base_channels",
            "channel_multiplier",
            "num_res_blocks",
        )
    elif kind == "multi_modality":
        vq, language = raw["gen_vision_config"].get("params", {}), raw["language_config"]
        vision = raw.get("vision_config", {}).get("params", {})
        vq = {**vq, "codes": vq.get("image_token_size", VQConfig.codes)}
        names = ("codes", "n_embed", "z_channels", "ch", "decoder_ch_mult", "num_res_blocks")
    else:
        raise SpecbenchError(f"{path} is of model_type {kind!r}; Janus has 'multi_modality' or 'janus'")
    base = VQConfig()
    defaults = (base.codes, base.code_dim, base.latent, base.width, base.multiples, base.blocks)
    codes, dim, latent, width, multiples, blocks = (vq.get(n, d) for n, d in zip(names, defaults, strict=True))
    config = VQConfig(codes, dim, latent, width, tuple(multiples), blocks)
    return JanusConfig(language, config, int(vision.get("image_size", 384)) // config.factor)


def our_name(name: str) -> str | None:
    """A name of either layout as ours (the original's); None for what is left out on purpose."""
    if UNUSED.match(name):
        return None
    if name.startswith("model.vqmodel."):
        inner = native_name(name.removeprefix("model.vqmodel."))
        return None if inner is None else f"gen_vision_model.{inner}"
    for native, original in NATIVE:
        if name.startswith(native):
            return original + name.removeprefix(native)
    return name


class _Layers(nn.Module):
    """Linear, GELU, Linear under the names that the checkpoint has."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Linear(out, out))


class _Head(nn.Module):
    def __init__(self, width: int, codes: int) -> None:
        super().__init__()
        self.output_mlp_projector = nn.Linear(width, width)
        self.vision_head = nn.Linear(width, codes)


class JanusNetwork(nn.Module):
    """The parts of Janus that draw, under the original's names."""

    def __init__(self, config: JanusConfig) -> None:
        super().__init__()
        # What the file leaves out (the 7B's names little but its layers) is as in transformers' Llama, which is the 7B.
        settings = LlamaConfig(**{key: config.language[key] for key in LLAMA_SETTINGS if key in config.language})
        kinds, width = (LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding), settings.hidden_size
        self.language_model = nn.ModuleDict({"model": Trunk(settings, kinds)})
        self.gen_embed = nn.Embedding(config.vq.codes, config.vq.code_dim)
        self.gen_aligner = _Layers(config.vq.code_dim, width)
        self.gen_head = _Head(width, config.vq.codes)
        self.gen_vision_model = VQDecoder(config.vq)
        self.table: Tensor | None = None

    @property
    def trunk(self) -> Trunk:
        """The language model without its text head."""
        trunk = self.language_model["model"]
        assert isinstance(trunk, Trunk)
        return trunk

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] to [..., d]: looked up in a table that is computed once."""
        if self.table is None:
            with torch.inference_mode():
                self.table = self.gen_aligner.layers(self.gen_embed.weight)
        return self.table[codes]

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states [..., d] to logits [..., V]."""
        out: Tensor = self.gen_head.vision_head(nn.functional.gelu(self.gen_head.output_mlp_projector(h)))
        return out

    def row_end(self) -> Tensor | None:
        """Rows have no end here."""
        return None


@dataclass
class JanusTarget(PromptedTarget):
    """Janus-Pro as a target. ``words`` reads text."""

    words: Words | None = None

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """Begin of sentence, the template with the prompt, begin of image; the last of them predicts code 0.

        Unconditional row of the released code (``generation_inference.py``): every token but the first and the last is
        the pad token, which is *attended*; of the same length, so only prompts of different length need padding.
        """
        words = self.words
        assert words is not None
        first, pad, image = (words.special(name) for name in (BEGIN, PAD, BEGIN_OF_IMAGE))
        template = str(self.protocol["template"])
        rows = [[first, *words.ids(template.replace("{prompt}", prompt.text)), image] for prompt in prompts]
        blank = [[first, *[pad] * (len(row) - 2), image] for row in rows]
        return left_padded(rows + blank if guided else rows, pad, self.device)

    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode codes [B, N] to uint8 pictures [B, 3, H, W]."""
        decoder: VQDecoder = self.network.gen_vision_model
        return decoder.pixels(tokens.unflatten(1, (self.grid.rows, self.grid.columns)))


def load(
    name: str, parts: Sequence[Located], dtype: torch.dtype, device: str, protocol: Mapping[str, Any]
) -> JanusTarget:
    """Read a checkpoint of either layout. Raises ``SpecbenchError`` naming every key or token that does not fit.

    The picture decoder stays in float32, whatever the dtype: it draws once per image.
    """
    (found,) = parts
    assert found.folder is not None
    files = checkpoint.shards(found.folder)
    with described_by(found.path("config.json")), torch.device("meta"):
        config = read_config(found.path("config.json"))
        network = JanusNetwork(config)
    checkpoint.fill(
        network,
        files,
        our_name,
        lambda key: torch.float32 if key.startswith("gen_vision_model.") else dtype,
        device,
    )
    words = Words(found.path("tokenizer.json"), (BEGIN, PAD, BEGIN_OF_IMAGE))
    return JanusTarget(
        name=name,
        grid=Grid(config.side, config.side),
        vocab=config.vq.codes,
        network=network,
        codebook=network.gen_vision_model.codebook(),
        weights_hash=checkpoint.fingerprint([*files, found.path("config.json"), found.path("tokenizer.json")]),
        protocol=protocol,
        words=words,
    )
