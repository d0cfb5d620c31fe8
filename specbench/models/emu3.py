"""Emu3-Gen (arXiv 2409.18869): one language model over text and picture tokens, with a token that ends each row.

Knows: the original and the native layout, the vocabulary's order, the prompt with its size and the negative prompt of
the release, the picture decoder and its original names.
Refuses to know: methods, sampling filters, pictures as input, videos.

Codes are numbered as the picture decoder numbers them; the vocabulary's own numbers never leave this file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Emu3TextConfig, Emu3VQVAEConfig
from transformers.models.emu3 import modeling_emu3 as emu3

from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError
from specbench.models import checkpoint
from specbench.models.emu3_words import Emu3Words
from specbench.models.prompted import Prefix, PromptedTarget, left_padded
from specbench.models.source import Located, described_by, read_json
from specbench.models.trunk import LAYER_SETTINGS, Trunk

PAD, BEGIN, ROW_END = "<|endoftext|>", "<|extra_203|>", "<|extra_200|>"
IMAGE_START, IMAGE_TOKEN, CODE = "<|image start|>", "<|image token|>", "<|visual token {:06d}|>"
FIRST_CODE = CODE.format(0)
RANKS, VISION = "emu3.tiktoken", "emu3_vision_tokens.txt"
VQ_SETTINGS = {
    "codebook_size": "codebook_size",
    "embed_dim": "embed_dim",
    "z_channels": "latent_channels",
    "ch": "base_channels",
    "ch_mult": "channel_multiplier",
    "num_res_blocks": "num_res_blocks",
    "attn_resolutions": "attn_resolutions",
    "temporal_downsample_factor": "temporal_downsample_factor",
}
"""The original's settings of the picture decoder, and transformers' names for them."""
VQ_NAMES = (
    (r"\.mid\.attn_1\.norm\.", ".mid.attn_norm."),
    (r"\.attn\.(\d+)\.norm\.", r".attn_norms.\1."),
    (r"(\.attn(?:_1|\.\d+))\.([qkv])\.", r"\1.\2_proj."),
    (r"(\.attn(?:_1|\.\d+))\.proj_out\.", r"\1.out_proj."),
    (r"^decoder\.up\.", "decoder.up_block.up."),
    (r"^decoder\.mid\.", "decoder.middle_block."),
)
"""Original names of the decoder, and transformers'."""
PICTURES_UNUSED = re.compile(r"(encoder|quant_conv)\.")
"""What reading pictures needs, and drawing does not."""


def read_config(path: Path) -> dict[str, Any]:
    """Settings of the language model, from either layout. Raises ``SpecbenchError`` when it is another family's."""
    raw = read_json(path)
    if str(raw.get("model_type")).lower() not in ("emu3", "emu3_text_model"):
        raise SpecbenchError(f"{path} is of model_type {raw.get('model_type')!r}; Emu3 has 'Emu3' or 'emu3'")
    raw = raw.get("text_config") or raw
    return {key: raw[key] for key in LAYER_SETTINGS if raw.get(key) is not None}


class Emu3Network(nn.Module):
    """The language model with the rows of its head that are codes."""

    def __init__(self, language: Mapping[str, Any], codes: int, first: int, end: int) -> None:
        super().__init__()
        # Nobody reads the special words here, and transformers warns where a smaller vocabulary lacks its defaults.
        unread = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
        settings = Emu3TextConfig(**{"attention_dropout": 0.0, **unread, **language})
        self.model = Trunk(settings, (emu3.Emu3DecoderLayer, emu3.Emu3RMSNorm, emu3.Emu3RotaryEmbedding))
        self.lm_head = nn.Linear(settings.hidden_size, codes, bias=False)
        self.first, self.codes = first, codes
        self.end = torch.tensor(end, device="cpu")

    @property
    def trunk(self) -> Trunk:
        """The language model without its head."""
        return self.model

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] to [..., d]: they follow each other in the vocabulary."""
        out: Tensor = self.model.embed_tokens(codes + self.first)
        return out

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states [..., d] to logits [..., V]."""
        out: Tensor = self.lm_head(h)
        return out

    def row_end(self) -> Tensor | None:
        """Embedding [d] of the token behind each row."""
        out: Tensor = self.model.embed_tokens(self.end)
        return out

    def stored(self, name: str, value: Tensor) -> Tensor:
        """A tensor of the checkpoint in this network's shape: of the head only the rows of codes are kept."""
        if name == "lm_head.weight" and len(value) >= self.first + self.codes:
            return value[self.first : self.first + self.codes]
        return value


class Emu3Pictures(nn.Module):
    """The decoder of Emu3's vision tokenizer (MoVQ with three-dimensional convolutions), from transformers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        raw = read_json(path)
        if raw.get("model_type") != "Emu3VisionVQ":
            raise SpecbenchError(f"{path} is of model_type {raw.get('model_type')!r}; the tokenizer has 'Emu3VisionVQ'")
        named = {ours: raw[theirs] for theirs, ours in VQ_SETTINGS.items() if theirs in raw}
        settings = Emu3VQVAEConfig(**named, num_attention_heads=1)
        settings.hidden_size = settings.base_channels * settings.channel_multiplier[-1]
        self.net: Any = emu3.Emu3VQVAE(settings)
        for unused in ("encoder", "quant_conv"):
            setattr(self.net, unused, nn.Identity())
        self.factor = 2 ** (len(settings.channel_multiplier) - 1)

    def codebook(self) -> Tensor:
        """The vectors that are decoded, [codes, d] float32."""
        rows: Tensor = self.net.quantize.embedding.weight
        return rows.float()

    def decode(self, codes: Tensor) -> Tensor:
        """Codes [B, h, w] int64 to [B, 3, H, W], about -1…1: the first frame of a video of one latent frame."""
        out: Tensor = self.net.decode(codes)
        return out

    @torch.inference_mode()
    def pixels(self, codes: Tensor) -> Tensor:
        """Codes [B, h, w] int64 to uint8 [B, 3, H, W]: ``(x + 1) / 2 · 255``, clamped, rounded; one at a time."""
        drawn = torch.cat([self.decode(one).float() for one in codes.split(1)])
        return ((drawn + 1) * 127.5).clamp(0, 255).round().to(torch.uint8)

    def fill(self, files: Sequence[Path], device: str) -> None:
        """Read the weights, float32 whatever the run's dtype."""
        checkpoint.fill(self.net, files, picture_name, lambda _: torch.float32, device, self._stored)

    def _stored(self, name: str, value: Tensor) -> Tensor:
        """Attention is stored as 1 × 1 convolutions."""
        return value.flatten(1) if re.search(r"_proj\.weight$", name) else value


def picture_name(name: str) -> str | None:
    """A name of the original vision tokenizer as transformers'; None for what only reading pictures needs."""
    if PICTURES_UNUSED.match(name):
        return None
    for original, native in VQ_NAMES:
        name = re.sub(original, native, name)
    return name


def our_name(name: str) -> str | None:
    """A name of either layout as ours (the original's); None for the picture part of a native checkpoint."""
    if name.startswith(("model.vqmodel.", "vqmodel.")):
        return None
    return re.sub(r"^model\.text_model\.", "model.", name)


@dataclass
class Emu3Target(PromptedTarget):
    """Emu3-Gen as a target. ``words`` reads text."""

    words: Emu3Words | None = None
    pictures: Emu3Pictures | None = field(default=None, repr=False)

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """Begin, template with prompt, start of image, its size in codes, image token, which predicts code 0.

        Unconditional rows are the negative prompt of the release with the same image part (``prepare_inputs`` of its
        processor, mode ``G``; the example in transformers' documentation leaves that part out).
        """
        words = self.words
        assert words is not None
        size = words.ids(f"{self.grid.rows}*{self.grid.columns}")
        image = [words.special(IMAGE_START), *size, words.special(IMAGE_TOKEN)]
        begin, template = words.special(BEGIN), str(self.protocol["template"])
        rows = [[begin, *words.ids(template.replace("{prompt}", prompt.text)), *image] for prompt in prompts]
        blank = [begin, *words.ids(str(self.protocol["negative"])), *image]
        return left_padded(rows + [blank] * len(rows) if guided else rows, words.special(PAD), self.device)


def load(
    name: str, parts: Sequence[Located], dtype: torch.dtype, device: str, protocol: Mapping[str, Any]
) -> Emu3Target:
    """Read the model, the vocabulary and the vision tokenizer. Raises ``SpecbenchError`` naming what does not fit.

    ``protocol["side"]`` is the number of codes along a side. The picture decoder stays in float32, whatever the dtype.
    """
    model, vocabulary, vision = parts if len(parts) == 3 else [parts[0]] * 3  # a folder may hold everything
    vision = _apart(vision) if vision.folder == model.folder else vision
    words = Emu3Words(vocabulary.path(RANKS), vocabulary.path(VISION))
    assert model.folder is not None
    assert vision.folder is not None
    files, drawn = checkpoint.shards(model.folder), checkpoint.shards(vision.folder)
    with described_by(vision.path("config.json")), torch.device("meta"):
        pictures = Emu3Pictures(vision.path("config.json"))
        codes = pictures.net.config.codebook_size
    with described_by(model.path("config.json")), torch.device("meta"):
        language = read_config(model.path("config.json"))
        network = Emu3Network(language, codes, words.special(FIRST_CODE), words.special(ROW_END))
    if words.special(CODE.format(codes - 1)) - network.first != codes - 1:
        raise SpecbenchError(f"{vocabulary.path(VISION)} does not list the codes 0…{codes - 1} one behind the other")
    if network.first + codes > network.trunk.config.vocab_size:
        raise SpecbenchError(
            f"{model.path('config.json')} has {network.trunk.config.vocab_size} words, but codes reach to "
            f"{network.first + codes}: the vocabulary or the vision tokenizer belongs to another model"
        )
    checkpoint.fill(network, files, our_name, lambda _: dtype, device, network.stored)
    network.end = network.end.to(device)
    pictures.fill(drawn, device)
    pictures.eval().requires_grad_(False)
    side = int(protocol["side"])
    read = [model.path("config.json"), vocabulary.path(RANKS), vocabulary.path(VISION)]
    return Emu3Target(
        name=name,
        grid=Grid(side, side, row_ends=True),
        vocab=codes,
        network=network,
        codebook=pictures.codebook(),
        weights_hash=checkpoint.fingerprint([*files, *drawn, *read]),
        protocol=protocol,
        words=words,
        pictures=pictures,
    )


def _apart(found: Located) -> Located:
    """In a folder that holds everything the vision tokenizer has one of its own: both parts have a config.json."""
    assert found.folder is not None
    folder = found.folder / "vision"
    if not (folder / "config.json").is_file():
        raise SpecbenchError(
            f"{found.folder} holds the language model; put the files of BAAI/Emu3-VisionTokenizer into {folder}"
        )
    return Located(found.bundle, folder, ())
