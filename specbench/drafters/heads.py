"""Spatial heads: from a token and the hidden state it was sampled from to the hidden states of its neighbours.

Knows: the formula of one head, heads stacked so that all of them run as a few products, and their file.
Refuses to know: laws, tokens, grids' edges, training.

SSD (2606.20543), predictor and its parameter count (134 M at d = 4096, so m = 2d):

    z = [h; e]   u = W0 z   g = RMSNorm(u)   f = u + W2 (SiLU(W1 g) ⊙ W3 g)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from specbench.errors import SpecbenchError

EPSILON = 1e-6

INPUTS: Mapping[str, tuple[str, ...]] = {
    "e": ("e",),
    "h_pre": ("h_pre",),
    "h_post": ("h_post",),
    "h_pre+e": ("h_pre", "e"),
    "h_post+e": ("h_post", "e"),
}
"""What a head can read (SSD, Table 3): the token's embedding, the state it was sampled from before or behind the final
norm. It predicts its first part, at the offset position. A predicted embedding is decoded as if it were a state before
the norm; the paper does not say how else."""


def is_post_norm(reads: str) -> bool:
    """Whether heads of this input read and predict states behind the target's final norm."""
    return INPUTS[reads][0] == "h_post"


def parts(reads: str, state: Tensor, e: Tensor) -> tuple[Tensor, ...]:
    """The parts of z: ``e`` and ``state``, both [..., d], the state on the side of the norm that ``reads`` says."""
    return tuple(e if name == "e" else state for name in INPUTS[reads])


@dataclass(frozen=True)
class Shape:
    """Sizes of a stack: ``heads`` of them, ``width`` d, ``hidden`` m, ``inputs`` (2d for [h; e], d for one alone)."""

    heads: int
    width: int
    hidden: int
    inputs: int


class Stack(nn.Module):
    """K independent heads with their weights side by side; head k reads the same z as the others.

    ``mix`` [K, d, inputs] is W0, ``gate`` and ``value`` [K, m, d] are W1 and W3, ``out`` [K, d, m] is W2; ``gain``
    [K, d] belongs to the RMSNorm. No biases.
    """

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        k, d, m, n = shape.heads, shape.width, shape.hidden, shape.inputs

        def normal(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, generator=generator) * size[-1] ** -0.5)

        self.mix, self.gate, self.value = normal(k, d, n), normal(k, m, d), normal(k, m, d)
        self.out = nn.Parameter(torch.zeros(k, d, m))
        self.gain = nn.Parameter(torch.ones(k, d))

    def start_as_copy(self) -> None:
        """Let every head begin by repeating the state it reads: W0 = [1 0]. W2 is zero already."""
        with torch.no_grad():
            self.mix.zero_()[:, :, : self.shape.width] = torch.eye(self.shape.width)

    def forward(self, *parts: Tensor) -> Tensor:
        """The parts of z, [..., d] each and broadcastable, to the predicted states [..., K, d].

        The parts are never joined: W0 [h; e] is a sum, and what two rows of an image share is multiplied once.
        """
        columns = self.mix.split(self.shape.inputs // len(parts), -1)
        u = sum(torch.einsum("...i,kdi->...kd", x, w) for x, w in zip(parts, columns, strict=True))
        assert isinstance(u, Tensor)
        flat = u.flatten(0, -3).transpose(0, 1)  # [K, M, d]
        g = F.rms_norm(flat, (self.shape.width,), eps=EPSILON) * self.gain[:, None]
        inner = F.silu(g @ self.gate.mT) * (g @ self.value.mT)
        return u + (inner @ self.out.mT).transpose(0, 1).unflatten(0, u.shape[:-2])


@dataclass(frozen=True)
class Heads:
    """Horizontal and vertical heads as :class:`specbench.decoding.interfaces.SpatialHeads`.

    The first ``horizontal_offsets`` heads of ``stack`` look to the right, the other ``vertical_offsets`` down.
    ``target_weights`` is the hash of the weights they were trained on, ``weights_hash`` their own.
    """

    stack: Stack
    horizontal_offsets: int
    vertical_offsets: int
    target: str
    target_weights: str
    reads: str = "h_pre+e"
    weights_hash: str = ""

    @property
    def post_norm(self) -> bool:
        """Whether these heads read and predict states behind the target's final norm."""
        return is_post_norm(self.reads)

    def horizontal(self, h: Tensor, e: Tensor) -> Tensor:
        """States 1…k_h columns to the right: h [R, B, L, d], e [B, L, d] to [R, B, L, k_h, d]."""
        return self._run(h, e, slice(0, self.horizontal_offsets))

    def vertical(self, h: Tensor, e: Tensor) -> Tensor:
        """States 1…k_v rows below: h [R, B, L, d], e [B, L, d] to [R, B, L, k_v, d]."""
        return self._run(h, e, slice(self.horizontal_offsets, None))

    def _run(self, h: Tensor, e: Tensor, which: slice) -> Tensor:
        chosen = {name: weight[which] for name, weight in self.stack.named_parameters()}
        found: Tensor = torch.func.functional_call(self.stack, chosen, parts(self.reads, h, e))
        return found.expand(*h.shape[:-1], *found.shape[-2:])  # embeddings are the same in both rows of an image

    def nearest(self, horizontal: int, vertical: int) -> Heads:
        """Only the first so many heads of each direction, so that no pass runs one that a method does not read."""
        k = self.horizontal_offsets
        keep = [*range(min(horizontal, k)), *range(k, k + min(vertical, self.vertical_offsets))]
        shape = self.stack.shape
        with torch.device("meta"):
            stack = Stack(Shape(len(keep), shape.width, shape.hidden, shape.inputs))
        stack.load_state_dict({name: w[keep] for name, w in self.stack.state_dict().items()}, assign=True)
        stack.eval().requires_grad_(False)
        return replace(
            self,
            stack=stack,
            horizontal_offsets=min(horizontal, k),
            vertical_offsets=min(vertical, self.vertical_offsets),
        )

    def to(self, dtype: torch.dtype, device: str | torch.device) -> Heads:
        """The same heads in another precision or place, frozen (in place)."""
        self.stack.to(device=device, dtype=dtype).eval().requires_grad_(False)
        return self

    def write(self, path: Path) -> None:
        """Store the heads in bfloat16, with their description in the file's header; SpecbenchError if it cannot be."""
        tensors = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in self.stack.state_dict().items()}
        about = {k: v for k, v in vars(self).items() if k not in ("stack", "weights_hash")}
        part = path.with_suffix(".part")
        try:
            save_file(tensors, part, metadata={"heads": json.dumps({**about, "shape": asdict(self.stack.shape)})})
        except (SafetensorError, OSError) as error:
            part.unlink(missing_ok=True)
            raise SpecbenchError(f"cannot write {path} (is the disk full?): {error}") from error
        part.chmod(0o644)  # the writer of safetensors leaves it readable to its owner only
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Heads:
        """Read a file of :meth:`write` as float32; SpecbenchError if it is no such file."""
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["heads"])
                state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118 (not a dict)
            shape = Shape(**about.pop("shape"))
            with torch.device("meta"):  # what a header asks for is allocated by nobody
                stack = Stack(shape)
            stack.load_state_dict(state, assign=True)
            found = cls(stack, **about, weights_hash=hashlib.sha256(path.read_bytes()).hexdigest()[:16])
            if found.reads not in INPUTS or shape.inputs != len(INPUTS[found.reads]) * shape.width:
                raise ValueError(f"{shape.inputs} inputs are not those of heads that read {found.reads!r}")
            if found.horizontal_offsets + found.vertical_offsets != shape.heads or found.vertical_offsets < 0:
                raise ValueError(f"its {shape.heads} heads are counted wrongly")
            return found
        except (SafetensorError, OSError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise SpecbenchError(f"{path} holds no spatial heads: {' '.join(str(error).split())}") from error


def untrained(width: int, horizontal: int, vertical: int, weights: str = "untrained", seed: int = 0) -> Heads:
    """Seeded random heads, for tests: they predict something, and nothing well."""
    stack = Stack(Shape(horizontal + vertical, width, 2 * width, 2 * width), seed)
    torch.nn.init.normal_(stack.out, std=0.1, generator=torch.Generator().manual_seed(seed + 1))
    return Heads(stack, horizontal, vertical, "mini/tiny", "tiny-seed-0", weights_hash=weights)
