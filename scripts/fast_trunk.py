"""A trunk whose layers run through ``torch.compile`` or as CUDA graphs, and the proof that it computes the same.

Knows: that a pass's layers are a function of four tensors and of the cache, whose memory must not move under a graph.
Refuses to know: families, methods, clocks.

Graphs are recorded per shape, when a shape comes for the second time; the pass that reads a prompt runs as it is. What
cannot be compiled, recorded or trusted says so in a sentence, and the caller goes on with the layers as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Prompt

PROMPT = [Prompt("gpu", "")]
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Largest difference of logits of unit size that another order of summation explains."""
WAYS = ("compile", "graphs")


class Unfit(Exception):
    """Why faster layers are not used, in one sentence."""


def record(call: Callable[[], Tensor], pool: Any) -> tuple[Callable[[], object], Tensor]:
    """A CUDA graph of ``call``: what replays it, and the tensor that a replay fills.

    Two runs beforehand, on a stream of their own as recording wants it, let libraries take their memory and copy what
    they keep on the device; nothing of that may happen while recording.
    """
    here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        for _ in range(2):
            call()
    here.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = call()
    return graph.replay, out


class Layers:
    """A trunk with another way to run its layers; everything else is the trunk's own."""

    def __init__(self, trunk: Any) -> None:
        self.trunk = trunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trunk, name)


class Compiled(Layers):
    """Through ``torch.compile``."""

    def __init__(self, trunk: Any) -> None:
        super().__init__(trunk)
        self.call = torch.compile(trunk, dynamic=True)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As the trunk."""
        return self.call(*given, **named)


class Graphed(Layers):
    """As CUDA graphs over buffers of our own: one cache for all images, and copies of what a pass is given."""

    def __init__(self, trunk: Any) -> None:
        super().__init__(trunk)
        self.kv: Tensor | None = None
        self.graphs: dict[Any, tuple[Callable[[], object], Tensor, list[Tensor]]] = {}
        self.met: Counter[Any] = Counter()
        self.pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def __call__(self, x: Tensor, position: Tensor, mask: Tensor, cache: Any, taps: Any = ()) -> Any:
        """As the trunk."""
        self._settle(cache)
        key = (tuple(x.shape), tuple(mask.shape))
        self.met[key] += 1
        if taps or self.met[key] < 2:
            return self.trunk(x, position, mask, cache, taps)
        given = [x, position, mask, cache.at]
        if key not in self.graphs:
            held = [tensor.clone() for tensor in given]
            self.graphs[key] = (*self._recorded(held, cache), held)
        replay, out, held = self.graphs[key]
        for buffer, tensor in zip(held, given, strict=True):
            buffer.copy_(tensor)
        replay()
        return out.clone(), {}  # the next replay writes over it

    def _settle(self, cache: Any) -> None:
        """Let ``cache`` live where the graphs write to; where it has another size, they are of no more use."""
        if cache.kv is self.kv:
            return
        if self.kv is None or self.kv.shape != cache.kv.shape:
            self.kv = cache.kv
            self.graphs.clear()
            self.met.clear()
        else:
            self.kv.copy_(cache.kv)
            cache.kv = self.kv

    def _recorded(self, held: list[Tensor], cache: Any) -> tuple[Callable[[], object], Tensor]:
        x, position, mask, at = held
        span = mask.shape[3]

        def call() -> Tensor:
            own, cache.at, before = cache.at, at, cache.span
            cache.span = span
            out: Tensor = self.trunk(x, position, mask, cache)[0]
            cache.at, cache.span = own, before
            return out

        return record(call, self.pool)


class Network:
    """A network with another trunk."""

    def __init__(self, network: Any, trunk: Any) -> None:
        self._network, self.trunk = network, trunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


@torch.inference_mode()
def logits(target: Any, passes: int = 4, width: int = 8) -> Tensor:
    """Logits [passes, width, V] of equal passes at moving places behind the prompt."""
    device = target.device
    canvas = target.begin(PROMPT)
    canvas.forward(torch.full((1, 1), START, device=device))
    found = []
    for number in range(passes):
        canvas.keep(torch.full((1,), 2 if number else 1, device=device))
        fed = (torch.arange(width, device=device)[None] + 3 * number) % target.vocab
        found.append(canvas.forward(fed).logits[0])
    return torch.stack(found)


def hasten(target: Any, way: str) -> float:
    """Put faster layers into ``target``; returns the largest difference of logits to those without.

    Raises ``Unfit`` with the reason, ``target`` left as it was, if they differ by more than rounding or cannot be had.
    """
    if way == "graphs" and target.device.type != "cuda":
        raise Unfit("CUDA graphs: not run, there is no GPU")
    network, dtype = target.network, target.network.trunk.embed_tokens.weight.dtype
    eager = logits(target)
    target.network = Network(network, (Graphed if way == "graphs" else Compiled)(network.trunk))
    try:
        gap = float((logits(target) - eager).abs().max())
    except RuntimeError as error:
        target.network = network
        raise Unfit(f"{way}: not possible here ({str(error).strip().splitlines()[0]})") from error
    if not gap <= TOLERANCE[dtype]:
        target.network = network
        raise Unfit(f"{way}: refused, logits differ from the eager ones by {gap:.2g} (limit {TOLERANCE[dtype]:g})")
    return gap
