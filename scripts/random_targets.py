"""Targets with random weights at sizes of one's choice, made in memory: for clocks, never for pictures.

Knows: the networks of the families, how to fill one that was built on meta, and a prompt of a given length.
Refuses to know: checkpoints, tokenizers, pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from specbench.decoding.interfaces import Grid
from specbench.models.cosmos import CosmosConfig, CosmosNetwork
from specbench.models.emu3 import Emu3Network
from specbench.models.janus import JanusConfig, JanusNetwork
from specbench.models.llamagen import LlamaGenConfig, LlamaGenNetwork
from specbench.models.lumina import LuminaConfig, LuminaNetwork
from specbench.models.prompted import Prefix, PromptedTarget
from specbench.models.vqgan import VQConfig

SMALL_VQ = VQConfig(codes=64, code_dim=8, latent=32, width=32, multiples=(1, 1), blocks=1)
"""Decoders are not timed here."""


def filled(build: Callable[[], nn.Module], dtype: torch.dtype, device: str) -> Any:
    """A network built without memory, then given random weights of unit gain and unit norms."""
    with torch.device("meta"):
        network = build()
    network.to(dtype=dtype).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() < 2:
                weight.fill_(float(name.endswith("weight")))
            else:
                weight.normal_(std=1.0 if "embed" in name else weight[0].numel() ** -0.5, generator=generator)
    return network.eval().requires_grad_(False)


def janus(width: int, layers: int, heads: int, feedforward: int, codes: int, grid: Grid) -> Callable[[], Any]:
    """Janus's network: a Llama with a head of codes."""
    language = {"hidden_size": width, "intermediate_size": feedforward, "num_hidden_layers": layers}
    language |= {"num_attention_heads": heads, "vocab_size": 1024, "rms_norm_eps": 1e-6}
    vq = VQConfig(codes, 8, 32, 32, (1, 1), 1)
    return lambda: JanusNetwork(JanusConfig(language, vq, grid.rows))


def lumina(width: int, layers: int, heads: int, feedforward: int, codes: int, grid: Grid) -> Callable[[], Any]:
    """Lumina-mGPT's network: a Chameleon with row ends. The codes are the vocabulary's first words."""
    language = {"hidden_size": width, "intermediate_size": feedforward, "num_hidden_layers": layers}
    language |= {"num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": codes + 1}
    vq = VQConfig(codes, 8, 32, 32, (1, 1), 1, attention=False, unit_codes=False)
    return lambda: LuminaNetwork(LuminaConfig(language, vq, {}, tuple(range(codes))))


def cosmos(width: int, layers: int, heads: int, feedforward: int, codes: int, grid: Grid) -> Callable[[], Any]:
    """Cosmos's network: four queries share a key."""
    latent = (grid.frames + 1, grid.rows, grid.columns)
    return lambda: CosmosNetwork(
        CosmosConfig(
            width, layers, heads, max(1, heads // 4), width // heads, feedforward, codes, latent=latent, levels=(codes,)
        )
    )


def llamagen(width: int, layers: int, heads: int, feedforward: int, codes: int, grid: Grid) -> Callable[[], Any]:
    """LlamaGen's network, for a square picture that holds ``grid``."""
    side = max(grid.rows, grid.columns)
    return lambda: LlamaGenNetwork(LlamaGenConfig(codes, width, feedforward, layers, heads, side, caption=64))


def emu3(width: int, layers: int, heads: int, feedforward: int, codes: int, grid: Grid) -> Callable[[], Any]:
    """Emu3's network with row ends: four queries share a key. 64 words stand before the codes; the first ends rows."""
    language = {"hidden_size": width, "intermediate_size": feedforward, "num_hidden_layers": layers}
    language |= {"num_attention_heads": heads, "num_key_value_heads": max(1, heads // 4), "vocab_size": 64 + codes}
    return lambda: Emu3Network(language, codes, first=64, end=0)


def target(
    family: Callable[..., Callable[[], Any]],
    sizes: dict[str, int],
    grid: Grid,
    dtype: torch.dtype,
    device: str,
    prompt: int = 64,
) -> PromptedTarget:
    """A target of ``family`` whose every prompt is ``prompt`` words; unconditional rows are the same."""
    network = filled(family(grid=grid, **sizes), dtype, device)
    for name in ("words", "end"):  # numbers of the vocabulary, which are no weights and stand on the host as built
        if isinstance(getattr(network, name, None), Tensor):
            setattr(network, name, getattr(network, name).to(device))
    made = PromptedTarget(family.__name__, grid, sizes["codes"], network, None, "random", random_weights=True)
    words = torch.arange(prompt, device=device) % 64

    def prefix(prompts: Any, guided: bool) -> Prefix:
        rows = len(prompts) * (2 if guided else 1)
        return Prefix(words.expand(rows, -1), torch.zeros(rows, dtype=torch.int64, device=device), False)

    made.prefix = prefix  # type: ignore[method-assign]
    return made


def linear_layers(network: Any) -> list[nn.Linear]:
    """The linear layers that every pass runs: those of the layers, and those of the head."""
    found = [m for m in network.trunk.layers.modules() if isinstance(m, nn.Linear)]
    heads = [getattr(network, name, None) for name in ("gen_head", "lm_head", "output")]
    return found + [m for head in heads if head is not None for m in head.modules() if isinstance(m, nn.Linear)]


def floor(network: Any, width: int) -> Callable[[], Tensor]:
    """A call of all of them, one behind the other, on ``width`` tokens: what reading the weights alone costs."""
    layers = linear_layers(network)
    inputs = {
        n: torch.randn(1, width, n, device=w.device, dtype=w.dtype)
        for n, w in {x.in_features: x.weight for x in layers}.items()
    }

    def call() -> Tensor:
        for layer in layers:
            out = layer(inputs[layer.in_features])
        return out

    return call
