"""LlamaGen text to image (arXiv 2406.06525): a Llama of its own make over VQ-16 codes, told what to draw by a T5.

Knows: the released files and what their tensors say about sizes, the layer, positions on two axes that the condition
does not have, the learned condition that stands for no caption.
Refuses to know: methods, sampling filters, how a caption becomes states, class-conditional checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError
from specbench.models import checkpoint
from specbench.models.llamagen_text import LENGTH, Captions
from specbench.models.prompted import Prefix, PromptedTarget
from specbench.models.source import Located
from specbench.models.trunk import Slab, Trunk, attend
from specbench.models.vqgan import VQConfig, VQDecoder

MODEL_FILE, PICTURE_FILE = "t2i_XL_stage1_256.pt", "vq_ds16_t2i.pt"
"""Names of the released files; the second stage's model has another, which its YAML file says."""
NAMES = (
    (r"^tok_embeddings\.", "model.embed_tokens."),
    (r"^(layers\.|norm\.)", r"model.\1"),
    (r"^cls_embedding\.cap_proj\.", "caption."),
    (r"^cls_embedding\.uncond_embedding$", "unconditional"),
)
"""Beginnings of released names, and ours."""
PICTURES_UNUSED = re.compile(r"(encoder|quant_conv)\.|quantize\.codebook_used$")
"""What reading pictures needs, and drawing does not."""
THETA = 10000.0


@dataclass
class LlamaGenConfig:
    """Sizes of one checkpoint, under the names that :class:`Trunk` and its cache ask for."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    side: int
    caption: int
    rms_norm_eps: float = 1e-5

    @property
    def num_key_value_heads(self) -> int:
        """Every head has keys of its own."""
        return self.num_attention_heads


def read_config(file: Path, side: int, heads: int) -> LlamaGenConfig:
    """Sizes from the shapes of a released file, which comes without a configuration; it does not say side and heads.

    Raises ``SpecbenchError`` for a file that is no text-to-image checkpoint of LlamaGen.
    """
    shapes = {name: tuple(value.shape) for name, value in checkpoint.tensors(file)}
    names = ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight", "cls_embedding.uncond_embedding")
    if missing := [name for name in names if name not in shapes]:
        hint = "; it is class-conditional" if "cls_embedding.embedding_table.weight" in shapes else ""
        raise SpecbenchError(f"{file} is no text-to-image checkpoint of LlamaGen: it lacks {', '.join(missing)}{hint}")
    codes, width = shapes[names[0]]
    layers = 1 + max(int(found[1]) for name in shapes if (found := re.match(r"layers\.(\d+)\.", name)))
    if width % (4 * heads):
        raise SpecbenchError(f"{file} is {width} wide, which {heads} heads with two axes of positions cannot share")
    return LlamaGenConfig(codes, width, shapes[names[1]][0], layers, heads, side, shapes[names[2]][1])


def read_pictures(file: Path) -> VQConfig:
    """Sizes of a VQ-16 file from its shapes. Raises ``SpecbenchError`` when it is none."""
    shapes = {name: tuple(value.shape) for name, value in checkpoint.tensors(file)}
    levels = 1 + max((int(f[1]) for n in shapes if (f := re.match(r"decoder\.conv_blocks\.(\d+)\.", n))), default=-1)
    try:
        width = shapes["decoder.norm_out.weight"][0]
        widths = [shapes[f"decoder.conv_blocks.{level}.res.0.conv1.weight"][0] for level in range(levels)]
        codes, dim = shapes["quantize.embedding.weight"]
        latent = shapes["post_quant_conv.weight"][0]
    except KeyError as error:
        raise SpecbenchError(f"{file} is no VQ-16: it lacks {error.args[0]}") from error
    blocks = sum(bool(re.match(r"decoder\.conv_blocks\.0\.res\.\d+\.conv1\.weight", name)) for name in shapes) - 1
    return VQConfig(codes, dim, latent, width, tuple(w // width for w in reversed(widths)), blocks)


class RMSNorm(nn.Module):
    """Scaled to mean square 1 in float32 (or above), rounded, then weighted."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight


class Axes(nn.Module):
    """Rotary angles of positions 0 (the condition) and 1 + k (code k, in raster order).

    The first half of a head's pairs turns with the row, the second with the column. Cosine *and* sine of the condition
    are 0 in the release (``precompute_freqs_cis_2d``): its queries and keys vanish, so that it attends evenly and codes
    attend to it with a score of 0. That is what was trained.
    """

    turns: Tensor

    def __init__(self, config: LlamaGenConfig) -> None:
        super().__init__()
        pairs = config.hidden_size // config.num_attention_heads // 4
        speed = THETA ** -(torch.arange(pairs, dtype=torch.float32) / pairs)
        angle = torch.arange(config.side, dtype=torch.float32)[:, None] * speed
        grid = (config.side, config.side, pairs)
        both = torch.cat([angle[:, None].expand(grid), angle[None].expand(grid)], -1).flatten(0, 1)
        self.register_buffer("turns", F.pad(torch.stack([both.cos(), both.sin()]), (0, 0, 1, 0)), persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """[2, rows, 1, S, d_head / 2]: cosine and sine; slots behind the last code repeat its position."""
        return self.turns[:, position.clamp(max=self.turns.shape[1] - 1)][:, :, None]


def turn(x: Tensor, turns: Tensor) -> Tensor:
    """Neighbouring entries of ``x`` [rows, heads, S, d_head] as pairs, turned in float32 or above."""
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = turns[0], turns[1]
    return torch.stack([first * cosine - second * sine, second * cosine + first * sine], -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Queries, keys and values from one matrix, stacked in that order."""

    def __init__(self, config: LlamaGenConfig, number: int) -> None:
        super().__init__()
        self.heads, self.number = config.num_attention_heads, number
        self.wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, scores: Tensor, cache: Slab, turns: Tensor) -> Tensor:
        """[rows, S, d] to the same."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.wqkv(x).chunk(3, -1))
        keys, values = cache.update(turn(k, turns), v, self.number)
        out = attend(turn(q, turns), keys, values, scores)
        mixed: Tensor = self.wo(out.transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] to the same."""
        out: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return out


class Layer(nn.Module):
    """One block, called as :class:`Trunk` calls those of transformers."""

    def __init__(self, config: LlamaGenConfig, number: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config, number)
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.feed_forward = FeedForward(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, attention_mask: Tensor, cache: Slab, position_embeddings: Tensor, **_: Any) -> Tensor:
        """[rows, S, d] to the same."""
        x = x + self.attention(self.attention_norm(x), attention_mask, cache, position_embeddings)
        out: Tensor = x + self.feed_forward(self.ffn_norm(x))
        return out


class CaptionMLP(nn.Module):
    """States of the text encoder to embeddings: Linear, GELU (tanh), Linear, no biases."""

    def __init__(self, caption: int, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(caption, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """[..., caption] to [..., d]."""
        out: Tensor = self.fc2(F.gelu(self.fc1(states), approximate="tanh"))
        return out


class LlamaGenNetwork(nn.Module):
    """The language model with what turns a caption into its first tokens."""

    def __init__(self, config: LlamaGenConfig) -> None:
        super().__init__()
        self.model = Trunk(config, (Layer, RMSNorm, Axes))
        self.caption = CaptionMLP(config.caption, config.hidden_size)
        self.unconditional = nn.Parameter(torch.empty(LENGTH, config.caption))
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def trunk(self) -> Trunk:
        """The layers."""
        return self.model

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] to [..., d]."""
        out: Tensor = self.model.embed_tokens(codes)
        return out

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states [..., d] to logits [..., V]."""
        out: Tensor = self.output(h)
        return out

    def row_end(self) -> Tensor | None:
        """Rows have no end here."""
        return None


@dataclass
class LlamaGenTarget(PromptedTarget):
    """LlamaGen as a target. ``captions`` reads text, ``pictures`` draws."""

    captions: Captions | None = None
    pictures: VQDecoder | None = field(default=None, repr=False)

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """The encoded captions, at the end of their slots; the last slot predicts code 0.

        An unconditional row is the end of the learned condition, as long as the caption of its conditional row and
        masked like it (``generate`` of the release). The release has 120 slots, whatever the caption: those that no
        caption of the batch needs are seen by nothing, and are left out here.
        """
        assert self.captions is not None
        states, lengths = self.captions.states([prompt.text for prompt in prompts])
        return self.conditions(states, lengths, guided)

    def warnings(self, prompt: Prompt) -> list[str]:
        """What the model cannot read of this prompt."""
        assert self.captions is not None
        return self.captions.unread(prompt.text)

    def conditions(self, states: Tensor, lengths: Sequence[int], guided: bool) -> Prefix:
        """States of the text encoder [B, T, caption], of which each row has ``lengths`` at the end, as a prefix."""
        network: LlamaGenNetwork = self.network
        (batch, longest), weight = states.shape[:2], network.unconditional
        if guided:
            states = torch.cat([states.to(weight.dtype), weight[-longest:].expand(batch, -1, -1)])
        hidden = [longest - n for n in lengths] * (2 if guided else 1)
        with torch.inference_mode():
            embedded = network.caption(states.to(weight.dtype))
        ids = torch.zeros(embedded.shape[:2], dtype=torch.int64, device=embedded.device)
        return Prefix(ids, torch.tensor(hidden, device=embedded.device), any(hidden), embedded)

    def positions(self, prompt: Prefix, place: Tensor) -> Tensor:
        """0 for the condition, 1 + k for code k; see :class:`Axes`."""
        return (place + 1).clamp(min=0)


def our_name(name: str) -> str | None:
    """A released name as ours; None for rotary angles, which some files carry and which are computed here."""
    if name == "freqs_cis":
        return None
    for released, ours in NAMES:
        name, found = re.subn(released, ours, name)
        if found:
            break
    return name


def load(
    name: str, parts: Sequence[Located], dtype: torch.dtype, device: str, protocol: Mapping[str, Any]
) -> LlamaGenTarget:
    """Read the model, VQ-16 and the text encoder. Raises ``SpecbenchError`` naming what does not fit.

    ``protocol`` says what the weights do not: ``side``, the number of codes along a side, and ``heads``. The picture
    decoder stays in float32, whatever the dtype.
    """
    model, pictures, words = parts if len(parts) == 3 else [parts[0]] * 3  # a folder may hold everything
    file = model.path(model.bundle.files[0] if model.bundle.files else MODEL_FILE)
    config, drawn = read_config(file, int(protocol["side"]), int(protocol["heads"])), pictures.path(PICTURE_FILE)
    vq = read_pictures(drawn)
    if vq.codes != config.vocab_size:
        raise SpecbenchError(
            f"{file} has {config.vocab_size} codes and {drawn} has {vq.codes}: they do not belong together"
        )
    with torch.device("meta"):
        network, decoder = LlamaGenNetwork(config), VQDecoder(vq)
    checkpoint.fill(network, [file], our_name, lambda _: dtype, device)
    checkpoint.fill(
        decoder, [drawn], lambda key: None if PICTURES_UNUSED.match(key) else key, lambda _: torch.float32, device
    )
    captions = Captions(words, dtype, device)
    return LlamaGenTarget(
        name=name,
        grid=Grid(config.side, config.side),
        vocab=config.vocab_size,
        network=network,
        codebook=decoder.codebook(),
        weights_hash=checkpoint.fingerprint([file, drawn, *captions.files]),
        protocol=protocol,
        captions=captions,
        pictures=decoder,
    )
