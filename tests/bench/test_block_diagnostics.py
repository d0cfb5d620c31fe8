"""What an onlooker counts of a block decoder, against a slow reading of the same passes position by position."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from specbench.bench import diagnosis
from specbench.bench.block_diagnostics import ROUNDS
from specbench.bench.diagnostics import watched
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling
from specbench.report.diagnostics import diagnostics_page
from tests.decoding.spatial import SpatialTarget, block

GRID = Grid(5, 4, 1)
PROMPTS = [Prompt(f"s{i}", "a" * i) for i in range(1, 4)]
SETTINGS = {
    "ssd": {"columns": 3, "rounds": 2},
    "groups": {"columns": 3, "rows": 2, "rounds": 2, "staged": 1},
    "mtp": {"columns": 3, "rows": 0, "rounds": 2},
    "strict": {"columns": 3, "correct": "truncate"},
    "fixed": {"columns": 3, "redraft": "gumbel", "rounds": "exact", "stop": "fixed_point"},
}


def decoder(name):
    return block(Sampling(), **SETTINGS[name])


def by_hand(name, image):
    """Dictionaries by position, a loop over everything. Blocks start where the window does when a draft is new."""
    passes = []

    def watch(window, p, tokens):
        passes.append((window, p.clone(), window.q(), tokens.clone()))

    replace(decoder(name), watch=watch).decode(SpatialTarget(GRID), PROMPTS)
    sums, judged = defaultdict(lambda: defaultdict(float)), defaultdict(int)
    head = {}
    for window, p, q, tokens in passes:
        start = int(window.position[image, 0])
        for slot in range(window.position.shape[1]):
            position = int(window.position[image, slot])
            if not window.drafted[image, slot] or position == 0:
                continue
            if not judged[position]:
                across = name == "mtp" or start < GRID.columns
                head[position] = ("right", position - start) if across else (
                    "below", position // GRID.columns - start // GRID.columns)  # fmt: skip
            overlap = sum(min(float(a), float(b)) for a, b in zip(p[image, slot], q[image, slot], strict=True))
            kept = int(tokens[image, slot] == window.token[image, slot])
            tests = [("round", judged[position])] + ([head[position]] if not judged[position] else [])
            for way, place in tests:
                for part, value in (("drafts", 1), ("overlap", overlap), ("kept", kept)):
                    sums[f"{way}_{part}"][place] += value
            if name != "strict":
                judged[position] += 1
    return sums


@pytest.mark.parametrize("name", SETTINGS)
def test_every_sum_is_that_of_a_slow_reading(name):
    seen, onlooker = watched(decoder(name))
    generation = seen.decode(SpatialTarget(GRID), PROMPTS)
    assert torch.equal(generation.tokens, decoder(name).decode(SpatialTarget(GRID), PROMPTS).tokens)
    rows = onlooker.rows()
    assert len(rows) == len(PROMPTS)
    for image, row in enumerate(rows):
        slow = by_hand(name, image)
        assert sum(slow["round_drafts"].values()) > GRID.size / 2
        for key, values in row.items():
            for place, value in enumerate(values):
                assert value == pytest.approx(slow[key][place], abs=1e-9), (key, place)
        assert {key for key in slow if slow[key]} <= set(row)


def test_the_summary_and_its_page_name_heads_and_rounds():
    seen, onlooker = watched(decoder("groups"))
    seen.decode(SpatialTarget(GRID), PROMPTS)
    sums = onlooker.rows()
    found = diagnosis.summary({(prompt.id, 0): {"sums": row} for prompt, row in zip(PROMPTS, sums, strict=True)})
    assert [len(found["heads"][way]) for way in ("right", "below")] == [3, 2]
    assert len(found["rounds"]) == 3 < ROUNDS  # two rounds for the group, one more for its second row
    count = sum(row["below_drafts"][1] for row in sums)
    assert found["heads"]["below"][1]["drafts"] == count
    kept = found["heads"]["below"][1]["kept"]
    assert kept["value"] == pytest.approx(sum(row["below_kept"][1] for row in sums) / count)
    cell = {"id": "x", "method": "ssd", "window": None, "settings": {}, "diagnostics": found}
    page = diagnostics_page({"cells": [cell], "diagnosed": diagnosis.published()})
    assert "| ssd | below +2 |" in page and "43.27" in page and "Nothing to diagnose" not in page
