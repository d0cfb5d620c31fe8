"""The exact law of a method: production code, every history, distance to plain AR to the last bit.

Knows: which small tables are enough, and why. Three tokens, four positions and a window of three show all known
defects but one (a residual over two tokens is always one-hot; a window of two never redrafts; a kept draft needs a
third pass to do harm). A window of four shows that one: numbers shared by two *redrafts* of a slot, since with three
a drafted slot is redrafted at most once.
Refuses to know: how a method works. Replay is the one case that a law cannot settle: its law is right even with a
broken bonus draw, so its tokens must also be those that AR reads from the same noise (the region check).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from specbench.decoding import options
from specbench.decoding.accept import bound
from specbench.decoding.interfaces import Prompt
from specbench.decoding.laws import Sampling
from specbench.decoding.loop import Jacobi
from specbench.verify.checks import CheckFailed
from specbench.verify.enumerate import EnumeratingNoise, Enumeration, law_of
from specbench.verify.method import Watched, decoder_of, grows_trees, with_tree
from specbench.verify.onlooker import Onlooker
from specbench.verify.result import Result
from specbench.verify.spatial import HiddenTable
from specbench.verify.tabular import TabularTarget
from specbench.verify.trace_checks import check_trace

LAW_TOLERANCE = 1e-12
"""Exact methods land at 1e-16 and the subtlest known defect at 1e-4: anything between would be news."""
PATH_TOLERANCE = 1e-9
"""Expected positions off the AR path: polygon areas carry a relative 4e-13, defects of replay reach 1e-2."""


@dataclass(frozen=True)
class Case:
    """One table and the terms it is decoded under. ``images`` > 1 asks for their joint law.

    ``predict`` replaces settings of the prediction: a history of three laws never fills on tables this small.
    ``columns`` > 0 asks for a table with hidden states and this many columns: what blocks are drafted from.
    ``tree`` replaces children and depth of a tree.
    """

    vocab: int = 3
    size: int = 4
    window: int = 3
    seed: int = 0
    sharpness: float = 1.0
    images: int = 1
    sampling: Sampling = Sampling()
    predict: tuple[tuple[str, float], ...] = ()
    columns: int = 0
    tree: tuple[int, int] | None = None

    @property
    def target(self) -> TabularTarget:
        """The seeded table."""
        if self.columns:
            return HiddenTable(self.vocab, self.size, self.seed, self.sharpness, columns=self.columns)
        return TabularTarget(self.vocab, self.size, self.seed, self.sharpness)

    @property
    def prompts(self) -> list[Prompt]:
        """As many prompts as images, each with a table of its own."""
        return [Prompt(name, name) for name in "abcdef"[: self.images]]


BASE = Case()
CASES: tuple[Case, ...] = (
    *(replace(BASE, seed=seed) for seed in range(3)),
    Case(vocab=2, size=6, window=4),  # a window of four over three rows of the grid: left and above differ
    replace(BASE, sharpness=4.0),
    replace(BASE, sharpness=0.1),
    replace(BASE, sampling=Sampling(temperature=0.8, top_k=2, guidance=2.0)),
    replace(BASE, sampling=Sampling(top_p=0.7)),
    Case(vocab=2, size=3, window=3, images=2),
    Case(vocab=2, size=4, window=2, images=2),
)
TWICE_REDRAFTED = Case(window=4)
"""A slot may be redrafted twice. Not for equality rules: what those commit is a draw of its own, never a draft."""
FILL_CASE = Case(vocab=3, size=5, window=3)
"""The last row of the grid is short. Only for fills that look at their neighbours: others learn nothing new here."""


def _predicted(growth: int, history: int, candidates: float, **case: Any) -> Case:
    return Case(**case, predict=(("growth", growth), ("history", history), ("candidates", candidates)))


PREDICTED_CASES: tuple[Case, ...] = (
    _predicted(1, 1, 0.1),
    _predicted(1, 2, 0.7, seed=1),
    _predicted(1, 2, 0.1, window=4),
    _predicted(2, 2, 1.0, window=4),
    _predicted(1, 1, 0.5, vocab=2, size=6, window=4),
    _predicted(2, 2, 1.0, vocab=2, size=6, window=4),
)
"""Only for methods that predict: one, two and three candidates, one and two growth steps, which must take effect."""


def _in_context(history: int, decay: float, sharpness: float, **case: Any) -> Case:
    return Case(**case, predict=(("history", history), ("decay", decay), ("sharpness", sharpness)))


CONTEXT_CASES: tuple[Case, ...] = (
    _in_context(1, 0.6, 5.0),
    _in_context(1, 1.0, 0.0, seed=1),  # every context is as good as any: a plain average
    _in_context(2, 1.0, 1.0, window=4),
    _in_context(2, 0.3, 5.0, vocab=2, size=6, window=4),
    _in_context(2, 1.0, 0.0, vocab=2, size=4, window=3, images=2),
)
"""Only for methods that weigh earlier laws by their context: one and two laws, which must take effect."""
TUNED = {"growth": PREDICTED_CASES, "score": PREDICTED_CASES, "context": CONTEXT_CASES}
"""Prediction to the cases that are tuned for it."""


BLOCK = Case(columns=4)
"""A horizontal block of three behind the first token: the shortest in which one repair waits for another."""
ROW = Case(columns=2)
"""One token to the right, then a row of two from the row above."""
BLOCK_CASES: tuple[Case, ...] = (
    *(replace(BLOCK, seed=seed) for seed in range(3)),
    *(replace(ROW, seed=seed) for seed in range(3)),
    Case(columns=1, seed=1),  # rows of one token: groups of rows are blocks of their number
    Case(vocab=2, size=6, columns=3),
    Case(vocab=2, size=6, columns=2),
    Case(vocab=2, size=5, columns=2),  # the last row is short
    replace(BLOCK, sharpness=4.0),
    replace(ROW, sharpness=0.1),
    replace(ROW, sampling=Sampling(temperature=0.8, top_k=2, guidance=2.0)),
    replace(ROW, sampling=Sampling(top_p=0.7)),
    Case(vocab=2, size=3, columns=3, images=2),
    Case(vocab=2, size=4, columns=2, images=2),
)
"""For methods that draft in blocks."""


TREE = Case(window=4, tree=(3, 2))
"""Three candidates for the next position: two siblings behind the draft, the third of which is the last code left."""
TREE_CASES: tuple[Case, ...] = (
    *(replace(TREE, seed=seed) for seed in range(3)),
    *(replace(TREE, seed=seed, tree=(2, 2)) for seed in range(2)),  # the test goes on along the chain behind the tree
    Case(window=3, tree=(2, 2)),
    Case(window=7, tree=(2, 3)),  # two levels, and one slot behind them
    Case(vocab=2, size=5, window=8, tree=(2, 3)),
    replace(TREE, sharpness=4.0),
    replace(TREE, sharpness=0.1),
    replace(TREE, sampling=Sampling(temperature=0.8, top_k=2, guidance=2.0)),  # fewer codes than candidates
    replace(TREE, sampling=Sampling(top_p=0.7)),
    Case(vocab=2, size=3, window=3, images=2, tree=(2, 2)),
    Case(vocab=2, size=4, window=3, images=2, tree=(2, 2)),
)
"""For methods that grow a tree. A window counts the nodes beside the main path too, and may exceed N by them."""


def drafts_blocks(method: Mapping[str, Any]) -> bool:
    """Whether a method drafts in blocks, which have no window and are repaired in rounds."""
    return bool(method["settings"].get("decoder") == "block")


RELAXED_CASES: tuple[Case, ...] = tuple(replace(BASE, seed=seed, sharpness=0.5) for seed in (5, 7))
"""Only for relaxed acceptance: two of the three codes are near each other, as on none of the others."""


def cases_for(method: Mapping[str, Any]) -> tuple[Case, ...]:
    """The tables that a method is judged on."""
    settings = method["settings"]
    if drafts_blocks(method):
        return BLOCK_CASES
    plain = settings.get("fill", "uniform") in ("uniform", "onehot")
    equality = settings.get("accept") in ("fresh", "replay")
    tuned = TUNED.get(str(settings.get("predict")), ())
    if grows_trees(method):
        more = (*(() if plain else (FILL_CASE,)), *(case for case in tuned if case.images == 1))
        return (*TREE_CASES, *(replace(case, tree=(2, 2)) for case in more))
    more = (*(() if equality else (TWICE_REDRAFTED,)), *(() if plain else (FILL_CASE,)))
    relaxed = ("accept", settings.get("accept")) in options.LOSSY
    return (*CASES, *more, *tuned, *(RELAXED_CASES if relaxed else ()))


@dataclass(frozen=True)
class Measured:
    """Distance of one case: to the law of AR, and of the tokens from AR's own path (NaN where it is not asked for).

    ``predicted``: redrafts, over all histories, that were drawn from another law than the one just computed.
    """

    total_variation: float
    off_path: float
    enumeration: Enumeration
    predicted: int = 0


def measure(method: Mapping[str, Any], case: Case, noise: type[EnumeratingNoise] = EnumeratingNoise) -> Measured:
    """Enumerate ``method`` (a mapping with ``settings``) on ``case``. Raises ``CheckFailed`` on a broken promise."""
    target, sampling = case.target, case.sampling
    decoder, onlooker = _watched(decoder_of(with_tree(method, case.tree), case.window, sampling), case)
    found = law_of(
        decoder.decode,
        target,
        case.prompts,
        noise=noise,
        ar_path=sampling if follows_ar(method) else None,
        inspect=partial(check_trace, rounds=drafts_blocks(method)),
    )
    laws = [target.ar_law(prompt, sampling) for prompt in case.prompts]
    joint = reduce(lambda a, b: np.outer(a, b).ravel(), laws)
    return Measured(found.total_variation(joint), found.off_path, found, onlooker.predicted if onlooker else 0)


def _watched(held: Watched, case: Case) -> tuple[Watched, Onlooker | None]:
    """The decoder with the case's prediction, and with an onlooker where its loop lets one in."""
    decoder = held.decoder
    if not isinstance(decoder, Jacobi):
        return held, None
    onlooker = Onlooker(bound(decoder.accept, case.target))
    predict: Any = replace(decoder.predict, **dict(case.predict)) if case.predict else decoder.predict  # type: ignore[type-var]
    return Watched(replace(decoder, predict=predict, watch=onlooker)), onlooker


def follows_ar(method: Mapping[str, Any]) -> bool:
    """Whether a method claims AR's very tokens, and not only their law."""
    settings = method["settings"]
    repeats = settings.get("redraft") == "gumbel" and settings.get("rounds") == "exact"
    return bool(settings.get("decoder") == "ar" or settings.get("accept") == "replay" or repeats)


def by_rounds(method: Mapping[str, Any], most: int = 3) -> str:
    """How far a method that repairs is from AR after 0…``most`` rounds, on a block of three."""
    settings = method["settings"]
    if settings.get("correct") != "repair" or settings.get("rounds") == "exact":
        return ""
    name = "first_rounds" if settings.get("rows", 1) else "rounds"  # the block of three is in the first row
    found = [measure({"settings": {**settings, name: r}}, BLOCK).total_variation for r in range(most + 1)]
    return "TV on a block of three by rounds " + ", ".join(f"{r}: {tv:.1e}" for r, tv in enumerate(found))


def exact(method: Mapping[str, Any], cases: tuple[Case, ...] | None = None) -> Result:
    """The verdict over all ``cases`` (by default :func:`cases_for` the method).

    A lossless method passes at TV <= 1e-12, replay only if it stays on AR's path, and a prediction that was tuned for
    a case only if it took effect on one such case at least.
    """
    cases = cases or cases_for(method)
    effect: dict[tuple[tuple[str, float], ...], int] = {}
    started, distances, off_path, histories = time.perf_counter(), [0.0], 0.0, 0
    for case in cases:
        try:
            measured = measure(method, case)
        except CheckFailed as error:
            return Result(method["name"], "exact", passed=False, detail=f"{describe(case)}: {error}")
        distances.append(measured.total_variation)
        off_path = max(off_path, measured.off_path) if follows_ar(method) else 0.0
        histories += measured.enumeration.histories
        effect[case.predict[:1]] = effect.get(case.predict[:1], 0) + measured.predicted
    idle = [dict(tuned) for tuned, times in effect.items() if tuned and not times]
    if idle:
        return Result(method["name"], "exact", passed=False, detail=f"nothing was ever predicted with {idle[0]}")
    worst = max(distances)
    right = worst <= LAW_TOLERANCE and off_path <= PATH_TOLERANCE
    notes = [f"{len(cases)} tables, {histories:,} histories, {time.perf_counter() - started:.1f} s"]
    if follows_ar(method):
        notes.append("tokens are AR's" if off_path <= PATH_TOLERANCE else f"{off_path:.1e} tokens off AR's path")
    if not method["lossless"] and worst <= LAW_TOLERANCE:
        notes.append("none of these tables makes it differ from AR, which proves nothing of others")
    if not right and worst > LAW_TOLERANCE:
        notes.append(f"worst at {describe(cases[int(np.argmax(distances)) - 1])}")
    if drafts_blocks(method) and (rounds := by_rounds(method)):
        notes.append(rounds)
    return Result(method["name"], "exact", worst, passed=right if method["lossless"] else None, detail="; ".join(notes))


def describe(case: Case) -> str:
    """``V=3 N=4 W=3 seed 0``, and what else is unusual about the case."""
    window = "" if case.columns else f" W={case.window}"
    text = f"V={case.vocab} N={case.size}{window} seed {case.seed}"
    extras = [f"sharpness {case.sharpness:g}"] if case.sharpness != 1 else []
    extras += [f"{case.columns} columns"] if case.columns else []
    extras += [f"{case.images} images"] if case.images > 1 else []
    extras += [f"{key} {value:g}" for key, value in case.predict]
    extras += [f"{case.tree[0]} children, depth {case.tree[1]}"] if case.tree else []
    extras += [str(case.sampling)] if case.sampling != Sampling() else []
    return ", ".join([text, *extras])
