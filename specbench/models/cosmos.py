"""Cosmos-1 AR 4B (arXiv 2501.03575, section 5): a transformer of our own that continues a video from given frames.

Knows: the published layout and its names, rotary positions in time, row and column, the codes' lattice, and the
TorchScript decoder that turns codes into frames.
Refuses to know: methods, sampling filters, text (the base model reads none), and how files become codes
(:mod:`.cosmos_frames`). The 12B (YaRN) and the video-to-world models (cross-attention) are refused by name.

The grid is that of the frames that are generated; those that are given are the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError, UsageError
from specbench.models import checkpoint
from specbench.models.cosmos_frames import Shape, given_codes, script, uint8_frames
from specbench.models.prompted import Prefix, PromptedCanvas, PromptedTarget
from specbench.models.source import Located, described_by, read_json
from specbench.models.trunk import Slab, attend, scores_of

UNSUPPORTED = ("insert_cross_attn", "apply_abs_pos_emb", "apply_yarn", "fuse_qkv")
"""Settings of other members of the family."""


@dataclass(frozen=True)
class CosmosConfig:
    """Sizes of one checkpoint, called as transformers calls them; the defaults are those of the 4B.

    ``latent``: frames, rows and columns of codes in a whole video. ``levels``: of each digit of a code.
    """

    hidden_size: int = 4096
    num_hidden_layers: int = 16
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    intermediate_size: int = 14336
    vocab_size: int = 64000
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    latent: tuple[int, int, int] = (5, 40, 64)
    levels: tuple[int, ...] = (8, 8, 8, 5, 5, 5)

    @property
    def tokens(self) -> int:
        """Codes of a whole video."""
        return math.prod(self.latent)


def read_config(path: Path) -> CosmosConfig:
    """Read ``config.json``; what it leaves out is as in the 4B. Raises ``SpecbenchError`` for a relative of it."""
    raw = read_json(path)
    if found := [name for name in UNSUPPORTED if raw.get(name)]:
        raise SpecbenchError(f"{path} has {', '.join(found)}; of the Cosmos family, only the base 4B can be read")
    base = CosmosConfig()
    width, heads = raw.get("dim", base.hidden_size), raw.get("n_heads", base.num_attention_heads)
    return CosmosConfig(
        hidden_size=width,
        num_hidden_layers=raw.get("n_layers", base.num_hidden_layers),
        num_attention_heads=heads,
        num_key_value_heads=raw.get("n_kv_heads") or heads if "n_kv_heads" in raw else base.num_key_value_heads,
        head_dim=raw.get("head_dim") or width // heads,
        intermediate_size=raw.get("ffn_hidden_size", base.intermediate_size),
        vocab_size=raw.get("vocab_size", base.vocab_size),
        rms_norm_eps=raw.get("norm_eps", base.rms_norm_eps),
        rope_theta=raw.get("rope_theta", base.rope_theta),
        latent=tuple(raw.get("video_latent_shape", base.latent)),
        levels=tuple(raw.get("fsq_levels", base.levels)),
    )


def our_name(name: str) -> str | None:
    """A stored name as ours; None for the training library's states, which hold no weights."""
    return None if name.endswith("_extra_state") else name.removeprefix("model.")


def lattice(levels: Sequence[int], vocab: int) -> Tensor | None:
    """Codes as vectors [V, digits] float32 in -1…1, first digit fastest; None when the levels make another number.

    Finite scalar quantisation (Mentzer et al. 2023, arXiv 2309.15505, section 3.1): no table is learned.
    """
    if math.prod(levels) != vocab:
        return None
    code, digits = torch.arange(vocab), []
    for level in levels:
        digits.append((code % level - level // 2) / (level // 2))
        code = code // level
    return torch.stack(digits, 1).float()


def angles(config: CosmosConfig) -> Tensor:
    """Rotary angles [tokens, d_head / 2] float32 of every place of a video: [time | row | column] along the last axis.

    A third of the pairs turn with the row, as many with the column (rounded down to whole pairs), the rest with time;
    each part has the frequencies ``θ^(-2j / its width)``.
    """
    frames, rows, columns = config.latent
    side = config.head_dim // 6 * 2
    widths = (config.head_dim - 2 * side, side, side)
    places = torch.cartesian_prod(torch.arange(frames), torch.arange(rows), torch.arange(columns)).float()
    parts = []
    for axis, width in enumerate(widths):
        speed = config.rope_theta ** (-torch.arange(0, width, 2).float() / width)
        parts.append(places[:, axis, None] * speed)
    return torch.cat(parts, 1)


class Attention(nn.Module):
    """Grouped-query attention with normed queries and keys, over our cache."""

    def __init__(self, config: CosmosConfig) -> None:
        super().__init__()
        self.size = config.head_dim
        inner, shared = config.num_attention_heads * self.size, config.num_key_value_heads * self.size
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(*shape, bias=False)
            for shape in (*((config.hidden_size, out) for out in (inner, shared, shared)), (inner, config.hidden_size))
        )
        self.q_norm, self.k_norm = (nn.RMSNorm(self.size, config.rms_norm_eps) for _ in range(2))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], scores: Tensor, cache: Slab, layer: int) -> Tensor:
        """[rows, S, d] to the same; ``scores`` [rows, 1, groups·S, span] are added."""
        query, key, value = (w(x).unflatten(2, (-1, self.size)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        query, key = rotate(self.q_norm(query), turn), rotate(self.k_norm(key), turn)
        keys, values = cache.update(key, value, layer)
        return self.wo(attend(query, keys, values, scores).transpose(1, 2).flatten(2))


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (i, i + d/2) of ``x`` [rows, heads, S, d] by cosines and sines [rows, 1, S, d/2]."""
    (one, two), (cos, sin) = x.chunk(2, -1), turn
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1).to(x.dtype)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(*shape, bias=False) for shape in ((width, inner), (inner, width), (width, inner))
        )

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] to the same."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and feed-forward, each behind its norm."""

    def __init__(self, config: CosmosConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config.hidden_size, config.intermediate_size)
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], scores: Tensor, cache: Slab, layer: int) -> Tensor:
        """[rows, S, d] to the same."""
        x = x + self.attention(self.attention_norm(x), turn, scores, cache, layer)
        return x + self.feed_forward(self.ffn_norm(x))


class CosmosNetwork(nn.Module):
    """The transformer under the release's names; it is its own trunk (see :class:`specbench.models.trunk.Trunk`)."""

    def __init__(self, config: CosmosConfig) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        with torch.device("cpu"):  # computed, not loaded, so it must not be built on meta
            angle = angles(config)
        self.turns = (angle.cos(), angle.sin())  # no buffer, so `to(dtype)` leaves its float32 alone

    @property
    def trunk(self) -> Self:
        """The layers."""
        return self

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The table of codes, by the trunk's name."""
        return self.tok_embeddings

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, cache: Slab, taps: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """As :meth:`specbench.models.trunk.Trunk.forward`. Places behind the video's end turn as its last one."""
        self.turns = (self.turns[0].to(x.device), self.turns[1].to(x.device))
        at = position.clamp(max=self.config.tokens - 1)
        turn = (self.turns[0][at][:, None], self.turns[1][at][:, None])
        scores = scores_of(mask, x.dtype, self.config.num_attention_heads // self.config.num_key_value_heads)
        tapped = {}
        for number, layer in enumerate(self.layers):
            x = layer(x, turn, scores, cache, number)
            if number in taps:
                tapped[number] = x
        return x, tapped

    def embed(self, codes: Tensor) -> Tensor:
        """Codes [...] to [..., d]."""
        out: Tensor = self.tok_embeddings(codes)
        return out

    def head(self, h: Tensor) -> Tensor:
        """Normed hidden states [..., d] to logits [..., V]."""
        out: Tensor = self.output(h)
        return out

    def row_end(self) -> Tensor | None:
        """Rows have no end here."""
        return None


@dataclass
class CosmosTarget(PromptedTarget):
    """Cosmos as a target; a prompt's text says which frames are given (:func:`.cosmos_frames.given_codes`).

    ``latent`` is frames, rows and columns of the whole video; the protocol's ``given`` first frames are the prompt.
    """

    latent: Shape = (0, 0, 0)
    encoder: Any = None
    decoder: Any = None
    known: dict[str, Tensor] = field(default_factory=dict)

    takes_guidance = False
    """There is no unconditional row: the base model is never trained without its frames."""
    frames_per_second = 25

    def follow(self, protocol: Mapping[str, Any]) -> Self:
        """The same weights under another recipe, which may give another number of frames."""
        return replace(self, protocol=protocol, grid=_grid(self.latent, protocol), known={})

    def begin(self, prompts: Sequence[Prompt], guidance: float | None = None) -> PromptedCanvas:
        """Open a canvas. Raises ``UsageError`` for guidance and for a prompt that names no frames."""
        if guidance not in (None, 1):
            raise UsageError(f"{self.name} has no unconditional row: sampling.guidance must be null, not {guidance:g}")
        return super().begin(prompts, None)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Read and encode the given frames of these prompts, so that no clock sees it."""
        for prompt in prompts:
            if prompt.text not in self.known:
                codes = given_codes(prompt.text, self.latent, self.protocol, self.vocab, self.encoder)
                self.known[prompt.text] = codes.to(self.device)

    def prefix(self, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        """The codes of the given frames, all of one length; the last of them predicts code 0."""
        self.prepare(prompts)
        ids = torch.stack([self.known[prompt.text] for prompt in prompts])
        return Prefix(ids, torch.zeros(len(ids), dtype=torch.int64, device=self.device), False)

    def pixels(self, tokens: Tensor) -> Tensor:
        """Not without the given frames: use :meth:`frames`. Raises ``SpecbenchError``."""
        raise SpecbenchError(f"{self.name} draws videos: frames(tokens, prompts) decodes them behind the given frames")

    @torch.inference_mode()
    def frames(self, tokens: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        """Decode codes [B, N] behind the given frames to uint8 videos [B, T, 3, H, W], the given frames included."""
        codes = torch.cat([self.prefix(prompts, False).ids, tokens.to(self.device)], 1).unflatten(1, self.latent)
        return torch.cat([uint8_frames(self.decoder, each[None]) for each in codes])


def _grid(latent: Shape, protocol: Mapping[str, Any]) -> Grid:
    """What is generated. Raises ``SpecbenchError`` when nothing is, or nothing is given."""
    given = int(protocol["given"])
    if not 1 <= given < latent[0]:
        raise SpecbenchError(f"{given} of {latent[0]} latent frames are given; it must be 1 to {latent[0] - 1}")
    return Grid(latent[1], latent[2], frames=latent[0] - given)


def load(
    name: str, parts: Sequence[Located], dtype: torch.dtype, device: str, protocol: Mapping[str, Any]
) -> CosmosTarget:
    """Read a checkpoint, the frame encoder and decoder. Raises ``SpecbenchError`` naming every key that does not fit.

    The TorchScript files keep the dtype that they were exported in. They run in TorchScript's own interpreter.
    """
    model, pictures = parts if len(parts) == 2 else [parts[0]] * 2  # a folder may hold everything
    with described_by(model.path("config.json")), torch.device("meta"):
        config = read_config(model.path("config.json"))
        network = CosmosNetwork(config)
    weights = model.path("model.pt")
    checkpoint.fill(network, [weights], our_name, lambda _: dtype, device)
    encoder, decoder = pictures.path("encoder.jit"), pictures.path("decoder.jit")
    return CosmosTarget(
        name=name,
        grid=_grid(config.latent, protocol),
        vocab=config.vocab_size,
        network=network,
        codebook=lattice(config.levels, config.vocab_size),
        weights_hash=checkpoint.fingerprint([weights, model.path("config.json"), encoder, decoder]),
        protocol=protocol,
        latent=config.latent,
        encoder=script(encoder, device),
        decoder=script(decoder, device),
    )
