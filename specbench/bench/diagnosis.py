"""From stored sums to the numbers that say why a method is fast, beside those that papers print.

Knows: which sums stand behind which mean, that intervals resample prompts, and where published figures lie.
Refuses to know: laws and drafts (``diagnostics`` watches them), and how anything is shown.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

from specbench.bench import paths, stats
from specbench.bench.cells import source_hash
from specbench.bench.metrics import interval

Block = Mapping[str, Sequence[float]]
STEPS = (1, 2, 3)


@cache
def code() -> str:
    """Hash of the sources that decide the sums: a block made by others is not read, and is made anew."""
    room = paths.PACKAGE / "bench"
    return source_hash([(name, room / name) for name in ("diagnostics.py", "block_diagnostics.py", "probe.py")])


def shows_its_passes(decoder: object) -> bool:
    """Whether an onlooker can watch this decoder: AR has no drafts, and plugins do not show theirs."""
    from specbench.decoding.block import Block
    from specbench.decoding.loop import Jacobi

    return isinstance(decoder, Jacobi | Block)


def current(blocks: Mapping[Any, Mapping[str, Any]], keys: Sequence[Any]) -> dict[Any, Mapping[str, Any]]:
    """Of the stored records, those of ``keys`` that today's sources made."""
    return {key: blocks[key] for key in keys if key in blocks and blocks[key]["code"] == code()}


def summary(blocks: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any] | None:
    """The document's ``diagnostics`` of a cell from its images' sums (``docs/diagnostics.md``); None without any.

    Means are null where nothing was counted: a window of one drafts nothing.
    """
    if not blocks:
        return None
    pool = _Pool([record["sums"] for record in blocks.values()], [prompt for prompt, _ in blocks])
    found: dict[str, Any] = {"images": len(blocks)}
    if "probe" in pool.total:
        found["probe"] = {"tv": pool.by_place("probe", "probe_sites"), "sites": pool.total["probe_sites"]}
    if "round_drafts" in pool.total:
        found["heads"] = {way: _tests(pool, way) for way in ("right", "below")}
        found["rounds"] = _tests(pool, "round")
    if "drafts" in pool.total:
        found |= _slots(pool) | {
            "redraft": _redraft(pool, "redraft"),
            "redraft_seen": _redraft(pool, "redraft_seen"),
            "growth": _growth(pool, "growth"),
            "growth_before": _growth(pool, "growth_before"),
            "hamming": [pool.share(f"hamming_{lag}", 1) for lag in STEPS],
            "moved": pool.share("moved", 1),
            "prediction": _prediction(pool, "predicted"),
            "prediction_boosted": _prediction(pool, "predicted_boosted"),
            "replaced": {"tv": pool.by_place("replaced_moved", "replaced"), "passes": pool.total.get("replaced", [])},
        }
    return found


@cache
def published() -> list[dict[str, str]]:
    """The published figures, as ``results/published/diagnostics.csv`` has them; none where that file is missing."""
    file = paths.published() / "diagnostics.csv"
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


class _Pool:
    """Sums of several images: ``total`` by name, and means of them."""

    def __init__(self, blocks: Sequence[Block], prompts: Sequence[str]) -> None:
        self.blocks, self.prompts = blocks, prompts
        names = dict.fromkeys(name for block in blocks for name in block)
        self.total = {n: [sum(x) for x in zip(*(b[n] for b in blocks if n in b), strict=True)] for n in names}

    def mean(self, name: str, part: int) -> float | None:
        """Part ÷ count (entry 0) over all images."""
        sums = self.total.get(name)
        return sums[part] / sums[0] if sums and sums[0] else None

    def share(self, name: str, part: int) -> dict[str, float | None] | None:
        """The same with its interval."""
        return self.quotient((name, part), (name, 0))

    def quotient(self, part: tuple[str, int], count: tuple[str, int]) -> dict[str, float | None] | None:
        """One sum ÷ another, with its interval; each is a name and a place. None where nothing was counted."""
        held = [
            (block[part[0]][part[1]], block[count[0]][count[1]], prompt)
            for block, prompt in zip(self.blocks, self.prompts, strict=True)
            if part[0] in block
        ]
        # A prompt in which nothing was counted says nothing, and would leave a resample without a count.
        counted = [each for each in held if each[1]]
        if not counted:
            return None
        top, bottom, prompts = (list(column) for column in zip(*counted, strict=True))
        if not sum(top):
            return {"value": 0.0, "low": None, "high": None}
        found = stats.ratio_of_sums(top, bottom, prompts)
        return interval(found._replace(high=min(found.high, 1.0)))  # every sum counts parts of a whole

    def by_place(self, name: str, count: str) -> list[float | None]:
        """Entry by entry, null where nothing was counted."""
        return [x / n if n else None for x, n in zip(self.total.get(name, []), self.total.get(count, []), strict=True)]


def _slots(pool: _Pool) -> dict[str, Any]:
    """What limits acceptance: the expected acceptance of each slot, and the run it would give."""
    overlap = pool.by_place("overlap", "drafts")
    passes = pool.total["passes"][0]
    measured, independent = (pool.total[name][0] for name in ("accepted", "independent_length"))
    return {
        "slots": {
            "drafts": pool.total["drafts"],
            "overlap": overlap,
            "collision": pool.by_place("collision", "drafts"),
            "changed": pool.by_place("open_changed", "open"),
            "open": pool.total["open"],
        },
        "accepted_length": {
            "measured": measured / passes if passes else None,
            "if_independent": independent / passes if passes else None,
            "if_independent_of_means": sum(accumulate((x or 0.0 for x in overlap), mul)) if passes else None,
        },
    }


def _tests(pool: _Pool, name: str) -> list[dict[str, Any]]:
    """Drafts judged at each place of a block decoder, their mean Σ min(p, q), and the share that was kept."""
    counts = pool.total[f"{name}_drafts"]
    last = max((place + 1 for place, count in enumerate(counts) if count), default=0)
    return [
        {"drafts": int(counts[place])}
        | {part: pool.quotient((f"{name}_{part}", place), (f"{name}_drafts", place)) for part in ("overlap", "kept")}
        for place in range(last)
    ]


def _redraft(pool: _Pool, name: str) -> dict[str, Any]:
    return {
        "drafts": int(pool.total[name][0]),
        "changed": pool.share(name, 1),
        "collision": pool.mean(name, 2),
        "overlap": pool.mean(name, 3),
        "gumbel_at_least": pool.mean(name, 4),
    }


def _growth(pool: _Pool, name: str) -> dict[str, Any]:
    groups = ("accepted", "rejected", "drafts")
    return {group: [pool.share(f"{name}_{group}_{step}", 1) for step in STEPS] for group in groups}


def _prediction(pool: _Pool, name: str) -> dict[str, Any] | None:
    """Mean TV to the next law of the law itself and of its prediction; images weigh alike in the difference."""
    if pool.mean(name, 1) is None:
        return None
    held = [
        (block[name], prompt)
        for block, prompt in zip(pool.blocks, pool.prompts, strict=True)
        if name in block and block[name][0]
    ]
    means = [[sums[part] / sums[0] for sums, _ in held] for part in (1, 2)]
    prompts = [prompt for _, prompt in held]
    difference = stats.mean_difference_of_families(means[1], means[0], prompts, ["all"] * len(held))
    return {
        "drafts": int(pool.total[name][0]),
        "plain": pool.mean(name, 1),
        "predicted": pool.mean(name, 2),
        "difference": interval(difference),
    }
