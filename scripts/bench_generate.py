"""Our plain AR beside transformers' own ``generate`` on the very same layers: is the baseline a straw man?

    .venv/bin/python scripts/bench_generate.py            the Llama of bench_pass.py, float32, one thread
    .venv/bin/python scripts/bench_generate.py --tiny     to try the script

Batch 1, no guidance, top-k 1,000, as many tokens, turn by turn; ``generate`` with the growing cache (its default) and
with the static one, not compiled. First both decode greedily: the tokens must be the same ones (in float32 up to near
ties), so that the same thing is timed. Exit code 1 if they are not, or with ``--check`` if our AR is more than 10 %
slower than the faster of the two.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import bench_pass
import random_targets as make
import torch
from torch import Tensor, nn

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling

CACHES: dict[str, dict[str, Any]] = {
    "growing": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
}
PROMPT = [Prompt("bench", "")]
LIMIT = 1.1


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[[Tensor], Tensor], weight: Tensor) -> None:
        super().__init__()
        self.call, self.weight = call, weight

    def forward(self, x: Tensor) -> Tensor:
        """As the function."""
        return self.call(x)


class Plain:
    """Transformers' causal language model around a target's Llama layers, its codes and its head."""

    def __init__(self, target: Any) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        network, trunk = target.network, target.network.trunk
        self.trunk, self.prefix, self.count = trunk, target.prefix(PROMPT, False).ids, target.grid.size
        given = {key: value for key, value in trunk.config.to_dict().items() if not key.startswith("_")}
        with torch.device("meta"):
            self.model = LlamaForCausalLM(LlamaConfig(**given | {"vocab_size": target.vocab}))
        weight = trunk.embed_tokens.weight
        self.model.model.layers, self.model.model.norm = trunk.layers, trunk.norm
        self.model.model.rotary_emb = trunk.rotary[0].to(weight.device)
        self.model.model.embed_tokens = Call(network.embed, weight)
        self.model.lm_head = Call(network.head, weight)
        self.model.eval()

    @torch.inference_mode()
    def generate(self, cache: str, top_k: int) -> Tensor:
        """Codes [1, N] behind the prompt's words."""
        states = self.trunk.embed_tokens(self.prefix)
        seen = torch.ones_like(self.prefix)
        counts = {"max_new_tokens": self.count, "min_new_tokens": self.count, "pad_token_id": 0, "eos_token_id": None}
        law = {"do_sample": top_k > 1, "top_k": top_k} if top_k > 1 else {"do_sample": False}
        with self._own_attention():
            return self.model.generate(inputs_embeds=states, attention_mask=seen, **counts, **law, **CACHES[cache])

    @contextlib.contextmanager
    def _own_attention(self) -> Iterator[None]:
        """The layers ask the configuration that they were built with: for now, transformers' own attention."""
        config = self.trunk.config
        ours, config._attn_implementation = config._attn_implementation, "sdpa"
        try:
            yield
        finally:
            config._attn_implementation = ours


def fits(target: Any) -> bool:
    """Whether the layers are those of transformers' Llama."""
    return type(getattr(target.network.trunk, "config", None)).__name__ == "LlamaConfig"


def ours(target: Any, top_k: int, seed: int = 0) -> Tensor:
    """Codes [1, N] of our AR."""
    decoder: Any = build_decoder({"decoder": "ar"}, None, Sampling(top_k=top_k))
    return decoder.decode(target, PROMPT, seed=seed).tokens


def equal(target: Any, plain: Plain) -> dict[str, float]:
    """The share of leading greedy tokens that are the same ones, per cache."""
    first = ours(target, 1)
    found = {}
    for cache in CACHES:
        same = (plain.generate(cache, 1) == first)[0]
        found[cache] = float(same.long().cumprod(0).double().mean())
    return found


def in_turn(target: Any, plain: Plain, turns: int, wait: Callable[[], None] = lambda: None) -> dict[str, list[float]]:
    """Seconds of processor time on the CPU, of the wall on a device, of our AR and of ``generate`` per cache."""
    clock = time.process_time if str(target.device) == "cpu" else time.perf_counter
    calls: dict[str, Callable[[], object]] = {"ar": lambda: ours(target, 1000)}
    calls |= {cache: lambda cache=cache: plain.generate(cache, 1000) for cache in CACHES}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            wait()
            start = clock()
            call()
            wait()
            if turn:  # the first one allocates
                spent[name].append(clock() - start)
    return spent


def main() -> int:
    """Print the shares of equal tokens and the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="images that a median is taken of")
    parser.add_argument("--rows", type=int, default=6, help="rows of 24 tokens in an image")
    parser.add_argument("--tiny", action="store_true", help="a model of no size, to try the script")
    parser.add_argument("--check", action="store_true", help=f"fail if our AR costs more than {LIMIT} x")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = bench_pass.TINY if arguments.tiny else bench_pass.SIZES
    target = make.target(make.janus, sizes, Grid(arguments.rows, 24), torch.float32, "cpu")
    plain = Plain(target)
    for cache, share in (shares := equal(target, plain)).items():
        print(f"greedy tokens like ours with the {cache} cache: {share:.0%}")
    spent = in_turn(target, plain, arguments.turns)
    for name, seconds in spent.items():
        ratio = statistics.median(seconds) / statistics.median(spent["ar"])
        print(f"{name:<8} median {statistics.median(seconds):8.3f} s  min {min(seconds):8.3f} s  {ratio:5.2f} x our AR")
    best = min(statistics.median(spent[cache]) for cache in CACHES)
    slow = statistics.median(spent["ar"]) > LIMIT * best
    return int(min(shares.values()) < 0.9 or (arguments.check and slow))


if __name__ == "__main__":
    raise SystemExit(main())
