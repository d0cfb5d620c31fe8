"""Lumina-mGPT (arXiv 2408.02657): a Chameleon that draws row by row, with a token that ends each row.

Knows: the published layout, the vocabulary table that says which words are codes, the prompt with its size tokens, the
unconditional rows of the releases, and that a row end follows every row.
Refuses to know: methods, sampling filters, pictures as input.

Codes are numbered as the picture decoder numbers them; the vocabulary's own numbers never leave this file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ChameleonConfig
from transformers.models.chameleon import modeling_chameleon as chameleon

from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError
from specbench.models import checkpoint
from specbench.models.prompted import Prefix, PromptedTarget, left_padded
from specbench.models.source import Located, described_by, read_json
from specbench.models.trunk import LAYER_SETTINGS, Trunk
from specbench.models.vqgan import VQConfig, VQDecoder, chameleon_name
from specbench.models.words import Words

BEGIN, PAD, BEGIN_OF_IMAGE = "<s>", "<pad>", "<racm3:break>"
SEPARATOR, ROW_END = "<reserved08706>", "<reserved08799>"
UNUSED = re.compile(r"model\.vqmodel\.")
"""A picture encoder that some copies carry."""
CHAMELEON_SETTINGS = (*LAYER_SETTINGS, "swin_norm", "model_parallel_size")


def size_token(tokens: int) -> str:
    """The word for a side of ``tokens`` codes: the size in steps of 32 pixels, two codes each."""
    return f"<reserved{8800 + tokens // 2:05d}>"


@dataclass(frozen=True)
class LuminaConfig:
    """Sizes of one checkpoint, its vocabulary table, and the words of the codes in their order."""

    language: dict[str, Any]
    vq: VQConfig
    table: dict[str, int]
    codes: tuple[int, ...]


def read_config(path: Path) -> LuminaConfig:
    """Read ``config.json``. Raises ``SpecbenchError`` when it is another family's, or its codes have gaps."""
    raw = read_json(path)
    if raw.get("model_type") != "chameleon":
        raise SpecbenchError(f"{path} is of model_type {raw.get('model_type')!r}; Lumina-mGPT has 'chameleon'")
    base, vq = VQConfig(8192, 256, attention=False, unit_codes=False), raw.get("vq_config") or {}
    config = VQConfig(
        codes=vq.get("num_embeddings", base.codes),
        code_dim=vq.get("embed_dim", base.code_dim),
        latent=vq.get("latent_channels", base.latent),
        width=vq.get("base_channels", base.width),
        multiples=tuple(vq.get("channel_multiplier", base.multiples)),
        blocks=vq.get("num_res_blocks", base.blocks),
        attention=False,
        unit_codes=False,
    )
    table: dict[str, int] = raw.get("vocabulary_map") or {}
    words = {_code(name): number for name, number in table.items() if name.startswith("IMGIMG")}
    if sorted(words) != list(range(config.codes)):
        raise SpecbenchError(f"{path}: vocabulary_map must name the codes 0…{config.codes - 1}; it names {len(words)}")
    ordered = tuple(words[code] for code in range(config.codes))
    return LuminaConfig({key: raw[key] for key in CHAMELEON_SETTINGS if key in raw}, config, table, ordered)


def _code(name: str) -> int:
    """The code in a word such as IMGIMGFDZ: decimal digits written as letters, here 53."""
    return int("".join(str("ABCDEFGHIJ".index(letter)) for letter in name.removeprefix("IMGIMG").removesuffix("Z")))


class LuminaNetwork(nn.Module):
    """Chameleon's language model with the rows of its head that are codes, and the picture decoder."""

    def __init__(self, config: LuminaConfig) -> None:
        super().__init__()
        settings = ChameleonConfig(**config.language)
        layer = chameleon.ChameleonSwinDecoderLayer if settings.swin_norm else chameleon.ChameleonDecoderLayer
        self.model = Trunk(settings, (layer, chameleon.ChameleonRMSNorm, chameleon.ChameleonRotaryEmbedding))
        self.lm_head = nn.Linear(settings.hidden_size, config.vq.codes, bias=False)
        self.words = torch.tensor(config.codes, device="cpu")
        self.end = torch.zeros((), dtype=torch.int64, device="cpu")

    @property
    def trunk(self) -> Trunk:
        """The language model without its head."""
        return self.model

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] to [..., d]."""
        out: Tensor = self.model.embed_tokens(self.words[codes])
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
        """A tensor of the checkpoint in this network's shape.

        Of the head only the rows of codes are kept. Norms of queries and keys are stored once per part of the parallel
        training run, each for as many neighbouring heads.
        """
        if name == "lm_head.weight" and len(value) > int(self.words.max()):
            return value[self.words.to(value.device)]
        if re.search(r"\.[qk]_norm\.", name):
            settings = self.model.config
            heads = settings.num_attention_heads if ".q_norm." in name else settings.num_key_value_heads
            if value.dim() == 2 and heads % len(value) == 0:
                return value.repeat_interleave(heads // len(value), 0)
        return value


@dataclass
class LuminaTarget(PromptedTarget):
    """Lumina-mGPT as a target. ``table`` numbers the special words, ``words`` reads text."""

    words: Words | None = None
    table: Mapping[str, int] | None = None
    pictures: VQDecoder | None = None

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """Begin, the template with the prompt, separator, begin of image, height, width; the last predicts code 0.

        The released generation lets the model say the last three; they are forced here, as in the parallel mode of
        LANTERN. Unconditional rows see the image alone (``official``; with a separate cache in the release, masked
        here), or the separator before it (``separator``: the masked batch of SJD, SCD and GSD).
        """
        assert self.words is not None and self.table is not None
        number, grid = self.table, self.grid
        image = [number[BEGIN_OF_IMAGE], number[size_token(grid.rows)], number[size_token(grid.columns)]]
        factor = self.pictures.config.factor if self.pictures is not None else 16
        template = str(self.protocol["template"]).replace("{width}", str(grid.columns * factor))
        template = template.replace("{height}", str(grid.rows * factor))
        texts = [self.words.ids(template.replace("{prompt}", prompt.text)) for prompt in prompts]
        rows = [[number[BEGIN], *text, number[SEPARATOR], *image] for text in texts]
        blank = [number[SEPARATOR], *image] if self.protocol["unconditional"] == "separator" else image
        return left_padded(rows + [blank] * len(rows) if guided else rows, number[PAD], self.device)


def load(
    name: str, parts: Sequence[Located], dtype: torch.dtype, device: str, protocol: Mapping[str, Any]
) -> LuminaTarget:
    """Read a checkpoint, the picture decoder and the tokenizer. Raises ``SpecbenchError`` naming what does not fit.

    ``protocol["side"]`` is the number of codes along a side: the weights do not say for which size they were tuned. The
    picture decoder stays in float32, whatever the dtype.
    """
    model, words, pictures = parts if len(parts) == 3 else [parts[0]] * 3  # a folder may hold everything
    assert model.folder is not None
    files = checkpoint.shards(model.folder)
    with described_by(model.path("config.json")), torch.device("meta"):
        config = read_config(model.path("config.json"))
        network, decoder = LuminaNetwork(config), VQDecoder(config.vq)
    checkpoint.fill(
        network, files, lambda key: None if UNUSED.match(key) else key, lambda _: dtype, device, network.stored
    )
    network.words, network.end = network.words.to(device), torch.tensor(config.table[ROW_END], device=device)
    vqgan, levels = pictures.path("original_tokenizers/vqgan.ckpt"), len(config.vq.multiples)
    checkpoint.fill(decoder, [vqgan], lambda key: chameleon_name(key, levels), lambda _: torch.float32, device)
    side = int(protocol["side"])
    _check(config.table, (BEGIN, PAD, BEGIN_OF_IMAGE, SEPARATOR, ROW_END, size_token(side)), model.path("config.json"))
    tokenizer = words.path("tokenizer.json")
    return LuminaTarget(
        name=name,
        grid=Grid(side, side, row_ends=True),
        vocab=config.vq.codes,
        network=network,
        codebook=decoder.codebook(),
        weights_hash=checkpoint.fingerprint([*files, model.path("config.json"), tokenizer, vqgan]),
        protocol=protocol,
        words=Words(tokenizer),
        table=config.table,
        pictures=decoder,
    )


def _check(table: Mapping[str, int], names: Sequence[str], path: Path) -> None:
    if absent := [name for name in names if name not in table]:
        raise SpecbenchError(f"{path}: vocabulary_map lacks {', '.join(absent)}")
