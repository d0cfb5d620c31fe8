"""What every target must satisfy before a method runs on it; a model from a plugin gets this suite for free.

Knows: promises that hold for any :class:`~specbench.decoding.interfaces.Target`: a pass over a window has the logits of
single passes whatever was fed and refused before, a tree those of its paths, rows are independent, guidance is the
formula, pictures are pictures.
Refuses to know: architectures, weights, methods. In float64 a broken cache shows as a difference above 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Prompt, Target, VideoTarget
from specbench.errors import UsageError
from specbench.verify.result import Result
from specbench.verify.suite import run_suite

PROMPTS = [Prompt(f"conformance/{i}", text) for i, text in enumerate(("a red circle", "two stars", ""))]
TOKENS, WINDOW = 24, 5
"""How many positions are visited (or as many as the image has), and how wide the uneven passes are."""
NODES, TREES = 7, 4
"""How many nodes the trees have, and how many follow each other."""
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
"""Largest difference of logits that rounding explains."""


def target_conformance(name: str, target: Target) -> Result:
    """Run every check on a loaded target; the result's detail names those that failed and why."""
    return run_suite(name, target, CHECKS)


def windows_equal_single_passes(target: Target) -> str | None:
    """Uneven windows with refused drafts give the logits of one token per pass, row by row."""
    for guidance in _guidances(target):
        single = _one_by_one(target, PROMPTS, guidance)
        worst = _gap(_uneven(target, guidance), single)
        if worst > _tolerance(target):
            plain = _gap(_whole(target, guidance), single)
            where = "in one plain window" if plain > _tolerance(target) else "only behind refused drafts: junk stayed"
            return f"logits differ by {worst:.1e} from single passes at guidance {guidance}, {where}"
    return None


def trees_equal_their_paths(target: Target) -> str | None:
    """Every node has the logits of the chain of its ancestors, alone and from scratch, whatever was kept before.

    Rows have trees of their own, one of them a chain; from pass to pass they keep part of a way, all of it, or nothing.
    A target that evaluates chains only says so and passes.
    """
    for guidance in _guidances(target):
        try:
            worst = _grown(target, guidance)
        except NotImplementedError:
            return None
        if worst > _tolerance(target):
            return f"logits of a node differ by {worst:.1e} from those of its path at guidance {guidance}"
    return None


def rows_are_independent(target: Target) -> str | None:
    """A prompt alone has the logits that it has in a batch."""
    guidance = _guidances(target)[-1]
    together = _one_by_one(target, PROMPTS, guidance)
    for row, prompt in enumerate(PROMPTS):
        gap = _gap(_one_by_one(target, [prompt], guidance, _tokens(target)[row : row + 1]), together[row : row + 1])
        if gap > _tolerance(target):
            return f"logits of row {row} change by {gap:.1e} without the others"
    return None


def guidance_is_the_formula(target: Target) -> str | None:
    """``uncond + g · (cond - uncond)`` is linear in g, and g = 1 is no guidance; where there is none it is refused."""
    if len(_guidances(target)) == 1:
        try:
            target.begin(PROMPTS, 2.0)
        except UsageError:
            return None
        except Exception as error:
            return f"guidance 2 was refused with a {type(error).__name__}, not with specbench.errors.UsageError"
        return "the target takes no guidance, and guidance 2 was not refused"
    none, one, two, three = (_one_by_one(target, PROMPTS, g)[:, :2] for g in (None, 1.0, 2.0, 3.0))
    if _gap(none, one) > _tolerance(target):
        return "guidance 1 differs from no guidance"
    if _gap(three - two, two - one) > 4 * _tolerance(target):
        return "logits are not linear in the guidance"
    return None


def hidden_states_lead_to_the_logits(target: Target) -> str | None:
    """Where a pass returns ``h``, norm and head turn it into the logits."""
    guidance = _guidances(target)[-1]
    out = target.begin(PROMPTS, guidance).forward(_start(target, len(PROMPTS)))
    if out.h is None:
        return None
    cond, *rest = target.head(target.norm(out.h))
    mixed = rest[0] + guidance * (cond - rest[0]) if guidance is not None else cond
    gap = _gap(mixed, out.logits)
    return f"logits differ by {gap:.1e}" if gap > _tolerance(target) else None


def pictures_are_uint8(target: Target) -> str | None:
    """Tokens [B, N] become uint8 [B, 3, H, W], with time behind B for a video; the same every time."""
    tokens = torch.zeros(2, target.grid.size, dtype=torch.int64, device=target.device)
    video = int(isinstance(target, VideoTarget))
    pixels, again = (
        target.frames(tokens, PROMPTS[:2]) if isinstance(target, VideoTarget) else target.pixels(tokens)
        for _ in range(2)
    )
    if pixels.dtype != torch.uint8 or pixels.dim() != 4 + video or (len(pixels), pixels.shape[1 + video]) != (2, 3):
        expected = "(2, frames, 3, height, width)" if video else "(2, 3, height, width)"
        return f"pixels gave {pixels.dtype} {tuple(pixels.shape)}, expected uint8 {expected}"
    return None if torch.equal(pixels, again) else "the same tokens gave different pictures"


CHECKS: tuple[Callable[[Target], str | None], ...] = (
    windows_equal_single_passes,
    trees_equal_their_paths,
    rows_are_independent,
    guidance_is_the_formula,
    hidden_states_lead_to_the_logits,
    pictures_are_uint8,
)


def _guidances(target: Target) -> tuple[float | None, ...]:
    """Without guidance and, where the target has unconditional rows, with it."""
    return (None, 2.5) if getattr(target, "takes_guidance", True) else (None,)


def _tokens(target: Target) -> Tensor:
    """The codes that every walk commits: [rows, visited], the same every time."""
    visited = min(TOKENS, target.grid.size)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(target.vocab, (len(PROMPTS), visited), generator=generator).to(target.device)


def _start(target: Target, rows: int) -> Tensor:
    return torch.full((rows, 1), START, device=target.device)


@torch.inference_mode()
def _one_by_one(target: Target, prompts: list[Prompt], guidance: float | None, tokens: Tensor | None = None) -> Tensor:
    """Logits [rows, visited, V] of one token per pass."""
    tokens = _tokens(target) if tokens is None else tokens
    canvas, one = target.begin(prompts, guidance), torch.ones(len(prompts), dtype=torch.int64, device=target.device)
    fed, logits = _start(target, len(prompts)), []
    for position in range(tokens.shape[1]):
        logits.append(canvas.forward(fed).logits)
        canvas.keep(one)
        fed = tokens[:, position : position + 1]
    return torch.cat(logits, 1)


@torch.inference_mode()
def _whole(target: Target, guidance: float | None) -> Tensor:
    """The same logits from one window of right drafts, nothing refused before."""
    fed = torch.cat([_start(target, len(PROMPTS)), _tokens(target)[:, :-1]], 1)
    return target.begin(PROMPTS, guidance).forward(fed).logits


@torch.inference_mode()
def _uneven(target: Target, guidance: float | None) -> Tensor:
    """The same logits from windows: row r keeps a changing number of right drafts, and wrong ones follow them."""
    tokens = _tokens(target)
    rows, visited = tokens.shape
    canvas, done = target.begin(PROMPTS, guidance), torch.zeros(rows, dtype=torch.int64, device=target.device)
    found = torch.zeros(rows, visited, target.vocab, dtype=torch.float64)
    fed, turn = _start(target, rows), 0
    while bool((done < visited).any()):
        ahead = done[:, None] + torch.arange(WINDOW - 1, device=target.device)
        kept = torch.tensor([(turn + row) % WINDOW + 1 for row in range(rows)], device=target.device)
        kept = torch.minimum(kept, visited - done)
        drafts = tokens.gather(1, ahead.clamp(max=visited - 1))
        wrong = torch.arange(1, WINDOW, device=target.device) >= kept[:, None]
        logits = canvas.forward(torch.cat([fed, torch.where(wrong, (drafts + 1) % target.vocab, drafts)], 1)).logits
        for row in range(rows):
            for slot in range(int(kept[row])):
                found[row, int(done[row]) + slot] = logits[row, slot].double().cpu()
        canvas.keep(kept)
        done, turn = done + kept, turn + 1
        fed = tokens.gather(1, (done - 1).clamp(min=0)[:, None])
    return found


@torch.inference_mode()
def _grown(target: Target, guidance: float | None) -> float:
    """The largest difference between logits of nodes and of paths, over :data:`TREES` trees one behind the other."""
    generator = torch.Generator().manual_seed(1)
    canvas, device = target.begin(PROMPTS, guidance), target.device
    committed: list[list[int]] = [[] for _ in PROMPTS]
    worst = 0.0
    for turn in range(TREES):
        tokens = torch.randint(target.vocab, (len(PROMPTS), NODES), generator=generator)
        tokens[:, 0] = torch.tensor([codes[-1] if codes else START for codes in committed])
        trees = [[-1, *(int(torch.randint(j, (), generator=generator)) for j in range(1, NODES))] for _ in PROMPTS]
        trees[turn % len(PROMPTS)] = list(range(-1, NODES - 1))
        logits = canvas.forward(tokens.to(device), torch.tensor(trees, device=device)).logits
        ways = [[_way(tree, node) for node in range(NODES)] for tree in trees]
        kept = []
        for row, prompt in enumerate(PROMPTS):
            for node in (node for node in range(NODES) if node not in trees[row]):  # leaves
                way = [way for way in ways[row][node] if len(committed[row]) + len(ways[row][way]) <= target.grid.size]
                fed = torch.tensor([[START, *committed[row], *tokens[row, way[1:]].tolist()]], device=device)
                alone = target.begin([prompt], guidance).forward(fed).logits[0]
                worst = max(worst, _gap(logits[row, way], alone[fed.shape[1] - len(way) :])) if way else worst
            longest = max(ways[row], key=len)
            kept.append(longest[: max(turn == 0, (turn + row) % (len(longest) + 1))])
            fresh = int(torch.randint(target.vocab, (), generator=generator))
            committed[row] += [*tokens[row, kept[row][1:]].tolist(), fresh] if kept[row] else []
        unread = [NODES - 1] * NODES
        path = torch.tensor([[*way, *unread][:NODES] for way in kept], device=device)
        canvas.keep(torch.tensor([len(way) for way in kept], device=device), path)
    return worst


def _way(parents: list[int], node: int) -> list[int]:
    """Columns from the root to ``node``."""
    return [*(_way(parents, parents[node]) if node else []), node]


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).abs().max())


def _tolerance(target: Target) -> float:
    logits = target.begin(PROMPTS[:1], None).forward(_start(target, 1)).logits
    return TOLERANCE.get(logits.dtype, 1e-3)
