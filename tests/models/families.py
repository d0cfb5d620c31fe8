"""What every real family must show, said once: the checks that need a target of that family and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from specbench.bench import registry
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import START, Forward, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.models.prompted import Prefix
from specbench.models.source import Bundle, Located
from specbench.models.trunk import Slab, Trunk
from specbench.verify.statistical import statistical
from tests.decoding.test_loop import HostWaits, waits

PROMPTS = [Prompt("a", "a red circle"), Prompt("b", "two stars above a very blue square"), Prompt("c", "")]


def load_folder(family: str, folder: Path, dtype: torch.dtype = torch.float32, **recipe: Any) -> Any:
    """The target that a family reads from one folder, under its official protocol and what ``recipe`` changes."""
    protocol, part = registry.model(family).recipe("official") | recipe, Located(Bundle((), (), 0, ""), folder, ())
    return import_module(f"specbench.models.{family}").load(f"{family}/test", [part], dtype, "cpu", protocol)


def codes(target: Target, rows: int = len(PROMPTS)) -> Tensor:
    return torch.randint(target.vocab, (rows, target.grid.size), generator=torch.Generator().manual_seed(1))


def start(rows: int = len(PROMPTS)) -> Tensor:
    return torch.full((rows, 1), START)


def agree(record: Callable[[str, float], None], what: str, got: Tensor, official: Tensor, most: float = 1e-5) -> None:
    """Nothing differs from the official code by more than ``most``; by how much is put on record (``verified.py``)."""
    worst = float((got - official).abs().max())
    record(what, worst)
    assert worst <= most, what


class Official(NamedTuple):
    """A folder as the golden one, and how far from what official code computed its weights may lead."""

    folder: Path
    most: float
    rounded: bool

    def agree(self, record: Callable[[str, float], None], what: str, got: Tensor, official: Tensor) -> None:
        """:func:`agree`; differences that rounding explains are not put on record."""
        agree(record if not self.rounded else lambda *_: None, what, got, official, self.most)


def guided(target: Target, guidance: float | None = 3.0) -> float | None:
    """The guidance, if the target takes any."""
    return guidance if getattr(target, "takes_guidance", True) else None


def whole(target: Target, tokens: Tensor, guidance: float | None = 3.0) -> Forward:
    """One pass over the whole of known images."""
    fed = torch.cat([start(len(tokens)), tokens[:, :-1]], 1)
    return target.begin(PROMPTS[: len(tokens)], guided(target, guidance)).forward(fed, taps=(0,))


def advanced(target: Target, tokens: Tensor, committed: list[int], guidance: float | None = 3.0):
    """A canvas whose rows have committed different numbers of ``tokens``, and the last code of each row."""
    canvas, most = target.begin(PROMPTS, guided(target, guidance)), max(committed)
    canvas.forward(torch.cat([start(), tokens[:, : most - 1]], 1))
    canvas.keep(torch.tensor(committed))
    return canvas, tokens.gather(1, torch.tensor(committed)[:, None] - 1)


def check_trees_equal_their_paths(target: Target, committed: list[int], width: int = 11, rounds: int = 3) -> float:
    """Random trees, each followed by keeping a path and by what comes then. Returns the worst difference."""
    tokens, worst = codes(target), 0.0
    canvas, last = advanced(target, tokens, committed)
    generator, done = torch.Generator().manual_seed(2), torch.tensor(committed)
    for _ in range(rounds):
        parents = torch.stack(
            [torch.tensor([-1] + [int(torch.randint(j, (), generator=generator)) for j in range(1, width)])] * 3
        )
        drafts = torch.randint(target.vocab, (3, width), generator=generator)
        drafts[:, :1] = last
        got = canvas.forward(drafts, parents)
        for row in range(3):
            for node in range(width):
                path = [node]
                while parents[row, path[0]] >= 0:
                    path.insert(0, int(parents[row, path[0]]))
                if int(done[row]) + len(path) > target.grid.size:
                    continue
                line = torch.cat([tokens[row, : done[row] - 1], drafts[row, path]])
                alone = target.begin([PROMPTS[row]], guided(target)).forward(torch.cat([start(1), line[None]], 1))
                worst = max(worst, float((alone.logits[0, -1] - got.logits[row, node]).abs().max()))
        path = [width - 1]
        while parents[0, path[0]] >= 0:
            path.insert(0, int(parents[0, path[0]]))
        for row in range(3):  # the codes that were kept replace the known ones
            tokens[row, done[row] : done[row] + len(path) - 1] = drafts[row, path[1:]]
        canvas.keep(torch.full((3,), len(path)), torch.tensor([path] * 3))
        done = done + len(path)
        last = tokens.gather(1, done[:, None] - 1)
    return worst


def check_padding_changes_nothing(target: Target, monkeypatch: pytest.MonkeyPatch, pads: int = 3) -> None:
    """Further padding on the left, of all rows: the same logits in a pass over everything and in trees behind it."""
    tokens, drafts, parents = codes(target), torch.tensor([[0, 1, 2, 3]] * 3), torch.tensor([[-1, 0, 0, 1]] * 3)
    prefix = type(target).prefix

    def logits() -> list[Tensor]:
        canvas, last = advanced(target, tokens, [3, 5, 4])
        return [whole(target, tokens).logits, canvas.forward(torch.cat([last, drafts[:, 1:]], 1), parents).logits]

    def longer(self: Target, prompts: Sequence[Prompt], guided: bool) -> Prefix:
        own = prefix(self, prompts, guided)
        states = None if own.states is None else pad(own.states, (0, 0, pads, 0))
        return Prefix(pad(own.ids, (pads, 0)), own.hidden + pads, True, states)

    assert len(prefix(target, PROMPTS, False).hidden.unique()) == 3, "prompts of unequal length are what this is about"
    before = logits()
    monkeypatch.setattr(type(target), "prefix", longer)
    assert max(float((a - b).abs().max()) for a, b in zip(before, logits(), strict=True)) < 1e-9


def check_whole_image_is_one_plain_sequence(
    target: Any, embedding: Callable[[Tensor], Tensor], row_end: int | None
) -> None:
    """As the model was trained: prompt, codes and written-out row ends in one causal pass without any cache logic."""
    tokens, network, columns = codes(target), target.network, target.grid.columns
    got, prefix, words = whole(target, tokens, guidance=None), target.prefix(PROMPTS, guided=False), network.trunk
    for row in range(len(PROMPTS)):
        prompt = prefix.ids[row, int(prefix.hidden[row]) :]
        parts, reads, length = [words.embed_tokens(prompt)], [], len(prompt)
        for at, code in enumerate(tokens[row]):
            reads.append(length - 1)
            parts.append(embedding(code)[None])
            if row_end is not None and at % columns == columns - 1:
                parts.append(words.embed_tokens(torch.tensor([row_end])))
            length = sum(len(part) for part in parts)
        assert length == len(prompt) + target.grid.size + (target.grid.rows if row_end is not None else 0)
        slab = Slab(network.trunk, 1, length)
        slab.at = torch.arange(length)[None]
        causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        with torch.inference_mode():
            h, _ = network.trunk(torch.cat(parts)[None], slab.at, causal, slab)
            logits = target.head(target.norm(h))[0, reads]
        assert (logits - got.logits[row]).abs().max() < 1e-9


def check_law_is_that_of_ar(target: Target, method: str) -> None:
    """Statistical tests on thousands of images of a model so small that they take seconds of CPU each."""
    settings = {"decoder": "jacobi", "redraft": {"sjd": "independent", "scd": "maximal"}[method], "accept": "strict"}
    result = statistical({"name": method, "lossless": True, "settings": settings}, target=target)
    assert result.passed, result.detail


def share_positions(monkeypatch: pytest.MonkeyPatch, trunk: type[nn.Module] = Trunk) -> None:
    """A defect: of two neighbours the second stands where the first does."""
    right = trunk.forward

    def forward(self: nn.Module, x: Tensor, position: Tensor, *rest: Any, **more: Any) -> Any:
        return right(self, x, position - position % 2, *rest, **more)

    monkeypatch.setattr(trunk, "forward", forward)


def check_replay_is_ar(target: Target, window: int = 12) -> None:
    """Token for token, in float64, with every row at its own pace."""
    sampling = Sampling(guidance=guided(target))
    ar = build_decoder({"decoder": "ar"}, None, sampling).decode(target, PROMPTS, seed=3)
    settings = {"decoder": "jacobi", "redraft": "gumbel", "accept": "replay"}
    replay = build_decoder(settings, window, sampling).decode(target, PROMPTS, seed=3)
    assert torch.equal(ar.tokens, replay.tokens)
    assert int(replay.trace.nfe.max()) < target.grid.size, "replay saved no pass: the check sees nothing"


def check_passes_never_wait(target: Target) -> None:
    """A pass and what is kept of it cost no wait, chain or tree: the one per pass that there may be is the loop's."""
    tokens = codes(target)
    canvas, last = advanced(target, tokens, [3, 5, 4])
    with HostWaits() as waiting:
        canvas.forward(torch.cat([last, tokens[:, 6:9]], 1))
        canvas.keep(torch.tensor([1, 2, 3]))
        parents = torch.tensor([[-1, 0, 0, 1]]).expand(3, -1)
        canvas.forward(torch.cat([last, tokens[:, 6:9]], 1), parents)
        canvas.keep(torch.tensor([1, 2, 3]), torch.tensor([[0, 1, 3]]).expand(3, -1))
    assert waiting.seen == []
    with HostWaits() as waiting, torch.inference_mode():  # as a pass runs: the counter must see a read there
        int(last.sum())
    assert waiting.seen == ["item"], "the counter sees nothing"


def check_decodes_wait_once_per_pass(target: Target) -> None:
    """Whole images: AR waits for nothing, a window and a tree for one number per pass.

    What reading the prompts waits for comes on top: LlamaGen's text encoder looks at its masks, once per image.
    """
    sampling, jacobi = Sampling(guidance=guided(target)), {"decoder": "jacobi", "redraft": "maximal"}
    ways = [({"decoder": "ar"}, None), (jacobi, 12), (jacobi | {"tree": "siblings", "children": 2, "depth": 2}, 12)]
    target.begin(PROMPTS, sampling.guidance).forward(start())  # tables that are made once, given frames that are read
    with HostWaits() as reading:
        target.begin(PROMPTS, sampling.guidance)
    for settings, window in ways:
        decoder = build_decoder(settings, window, sampling)
        seen, passes = waits(lambda decoder=decoder: decoder.decode(target, PROMPTS, seed=1), pytest.MonkeyPatch)
        loop = [] if window is None else ["item"] * passes + ["cpu"] * 3  # counters, fixed_pass, changes: at the end
        assert sorted(seen) == sorted(reading.seen + loop), settings
