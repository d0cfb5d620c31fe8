"""Block decoding: the published pass counts, each open point of the paper as a switch, images apart from each other."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from specbench.bench.metrics import merged
from specbench.decoding import block_options, options
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError
from tests.decoding.spatial import SpatialTarget, block
from tests.decoding.test_loop import waits

JANUS, LUMINA, EMU3 = Grid(24, 24), Grid(48, 48, row_ends=True), Grid(90, 90, row_ends=True)
SMALL = Grid(6, 6)
PROMPTS = [Prompt(f"s{i}", "x" * i) for i in range(5)]
EXACT = {"rounds": "exact"}
FIXED = {"rounds": "exact", "redraft": "gumbel", "stop": "fixed_point"}
STRICT = {"correct": "truncate"}


def ar(grid, prompts=PROMPTS, **named):
    return build_decoder({"decoder": "ar"}).decode(SpatialTarget(grid), prompts, **named)


def decode(grid=SMALL, prompts=PROMPTS, sampling=None, **settings):
    return block(sampling, **settings).decode(SpatialTarget(grid), prompts)


PUBLISHED = [
    *[(JANUS, {"rounds": r}, steps) for r, steps in ((0, 34), (1, 57), (2, 80))],
    *[
        (LUMINA, {"rounds": 5, "staged": 4, "rows": k}, steps)
        for k, steps in zip((1, 2, 3, 4, 5), (304, 281, 273, 269, 267), strict=True)
    ],
    *[(LUMINA, {"rounds": 5, "rows": 2, "staged": i}, steps) for i, steps in ((1, 212), (2, 235), (3, 258), (4, 281))],
    (LUMINA, {"rounds": 9, "rows": 2, "staged": 0}, 285),
    (EMU3, {"rounds": 6}, 661),
]
"""SSD (2606.20543): tables 5, 6 and 10, and table 1's 12.39 of Emu3, which is 8190 / 661."""


@pytest.mark.parametrize(("grid", "settings", "steps"), PUBLISHED)
def test_passes_are_the_published_ones(grid, settings, steps):
    trace = decode(grid, PROMPTS[:1], **settings).trace
    assert trace.steps_with_row_ends.tolist() == [steps]
    assert trace.nfe.tolist() == [steps - grid.row_ends]  # one pass for the end of row 0, and none where there is none
    assert int(trace.committed.sum()) == grid.size


@pytest.mark.parametrize(
    ("grid", "steps", "of_ar", "ratio"), [(JANUS, 231, 576, 2.49), (LUMINA, 1056, 2352, 2.23), (EMU3, 3420, 8190, 2.39)]
)
def test_the_passes_of_1d_mtp_are_the_published_ones(grid, steps, of_ar, ratio):
    trace = decode(grid, PROMPTS[:1], rows=0, rounds=1).trace
    assert trace.steps_with_row_ends.tolist() == [steps]
    assert trace.nfe.tolist() == [steps - (grid.rows if grid.row_ends else 0)]
    if grid is not EMU3:  # 8,100 passes of AR would show the same
        assert ar(grid, PROMPTS[:1]).trace.steps_with_row_ends.tolist() == [of_ar]
    assert round(of_ar / steps - 0.0001, 2) == ratio  # the paper cuts 2.3947 to 2.39


@pytest.mark.parametrize("method", ["jacobi", "sjd", "scd", "scd_gs", "sjd_vp", "sjd_pac"])
def test_jacobi_methods_spend_passes_on_row_ends_only_where_tokens_come_one_by_one(method):
    """At a window of one they are AR in this count too; a wider window of released code holds the row ends itself."""
    from specbench.bench import registry

    settings, grid = registry.method(method).settings, Grid(6, 6, row_ends=True)
    single = build_decoder(settings, 1).decode(SpatialTarget(grid), PROMPTS).trace
    assert single.steps_with_row_ends.tolist() == ar(grid).trace.steps_with_row_ends.tolist() == [42] * 5
    assert merged([single.row(image) for image in range(5)]).steps_with_row_ends.tolist() == [42] * 5
    if method != "sjd_pac":  # a tree needs a target that reads one
        wide = build_decoder(settings, 8).decode(SpatialTarget(grid), PROMPTS).trace
        assert wide.steps_with_row_ends.tolist() == wide.nfe.tolist()
    assert build_decoder(settings, 1).decode(SpatialTarget(SMALL), PROMPTS).trace.row_ends is None


def test_row_ends_are_stored_with_the_image():
    trace = decode(Grid(6, 6, row_ends=True), rows=0, rounds=1).trace
    rows = [trace.row(image) for image in range(len(PROMPTS))]
    assert merged(rows).steps_with_row_ends.tolist() == trace.steps_with_row_ends.tolist() == [6 * 3 + 6] * 5
    assert "row_ends" not in decode().trace.row(0)


def test_a_block_counts_drafts_once_and_commits_them_in_a_pass_of_its_own():
    trace = decode(Grid(3, 6)).trace
    assert trace.window[:, 0].tolist() == [1, 5, 5, *[6] * 6]
    assert trace.drafted[:, 0].tolist() == [0, 5, 0, 6, 0, 0, 6, 0, 0]
    assert trace.committed[:, 0].tolist() == [1, 0, 5, 0, 0, 6, 0, 0, 6]
    assert bool((trace.accepted <= trace.drafted).all()) and 0 < trace.accept_rate_pooled < 1


@pytest.mark.parametrize(("grid", "rows"), [(SMALL, 1), (Grid(6, 6, row_ends=True), 0)])
def test_a_bonus_token_never_begins_a_row(grid, rows):
    after = decode(grid, bonus=True, columns=3, rows=rows).trace.committed[:, 0].cumsum(0).tolist()
    assert {5, *range(6, 37, 6)} <= set(after)


SWITCHES = [
    {"draft": "argmax"},
    {"law": "head"},
    {"states": "round"},
    {"guide_drafts": False},
    {"filter_drafts": False},
    {"columns": 3},
    {"rows": 2},
    {"rows": 2, "staged": 2},
    {"rows": 2, "source": "predicted"},
    {"rows": 2, "commit": "group"},
    {"bonus": True, "columns": 2},
    {"first_rounds": 2},
    {"rounds": 3},
    {"rows": 0},
    EXACT,
    {"redraft": "gumbel"},
    STRICT,
]


def test_every_switch_changes_a_number():
    """Passes, or tokens at equal passes: no two choices are the same decoder in disguise."""
    sampling = Sampling(top_k=4, guidance=2.0)
    seen: dict[tuple, dict] = {}
    for settings in ({}, {"columns": 2}, *SWITCHES):
        found = decode(sampling=sampling, **settings)
        key = (tuple(found.trace.nfe.tolist()), tuple(found.tokens.flatten().tolist()))
        assert key not in seen, f"{settings} decodes as {seen[key]} does"
        seen[key] = settings


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({}, 1 + 2 + 5 * 3),  # 35 tokens behind the first: one block of 5, then five rows of 2 + 1
        ({"columns": 2}, 1 + 3 * 2 + 5 * 3),
        ({"bonus": True, "columns": 2}, 1 + 2 * 2 + 5 * 3),  # blocks of two and a token that the commit pass adds
        ({"rows": 2}, 1 + 2 + 2 * (2 + 2) + 3),
        ({"rows": 2, "commit": "group"}, 1 + 2 + 3 * 3),
        ({"rows": 5, "staged": 1}, 1 + 2 + 2 + 1 + 4 * 2),
        (EXACT, 1 + 6 + 5 * 7),
        ({"rows": 0, "rounds": 1}, 1 + 7 * 2),
        ({"rows": 0, "rounds": 0, "columns": 1}, 36),
    ],
)
def test_passes_by_setting(more, passes):
    assert decode(**more).trace.nfe.tolist() == [passes] * len(PROMPTS)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rows": 2},
        {"rows": 2, "staged": 1},
        {"rows": 5, "commit": "group"},
        {"rows": 3, "rounds": 0},
        {"rows": 3, "rounds": 0, "commit": "group"},
        {"rows": 0, "rounds": 1},
        {"rows": 0, "bonus": True, "columns": 2},
        {"rows": 0, "rounds": 0, "columns": 1},
        {"bonus": True, "columns": 3},
        EXACT,
        FIXED,
        {**FIXED, "rows": 2},
        STRICT,
        {"rows": 0, **STRICT},
    ],
)
@pytest.mark.parametrize("grid", [SMALL, Grid(8, 4), Grid(6, 6, row_ends=True)])
def test_widths_are_those_of_the_passes(grid, settings):
    """Every width that is announced is read by some pass, none is wider, and most passes have one of them."""
    told = block_options.widths(settings, grid.columns, grid.size, grid.row_ends)
    read = decode(grid, **settings).trace.window.flatten().tolist()
    assert max(told) == max(read)
    assert set(told) <= set(read)
    assert told == sorted(told)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("grid", [SMALL, Grid(6, 6, row_ends=True)])
def test_shared_noise_and_enough_rounds_give_the_tokens_of_ar(grid, rows):
    expected = ar(grid).tokens
    assert torch.equal(decode(grid, rows=rows, rounds="exact", redraft="gumbel").tokens, expected)
    stopped = decode(grid, rows=rows, **FIXED)
    assert torch.equal(stopped.tokens, expected)
    every = decode(grid, rows=rows, rounds="exact", redraft="gumbel").trace.nfe
    assert bool((stopped.trace.nfe < every).all())
    assert not torch.equal(decode(grid, rows=rows, rounds=1, redraft="gumbel").tokens, expected)


@pytest.mark.parametrize("settings", [{}, {"rows": 2, "staged": 1}, {"rows": 0, "bonus": True}, EXACT, FIXED, STRICT])
def test_batches_and_order_change_nothing(settings):
    for grid in (SMALL, Grid(6, 6, row_ends=True)):
        whole = decode(grid, **settings)
        for part in ([0], [3], [4, 1], [2, 0, 3, 1, 4]):
            some = decode(grid, [PROMPTS[i] for i in part], **settings)
            assert torch.equal(some.tokens, whole.tokens[part])
            assert [some.trace.row(row) for row in range(len(part))] == [whole.trace.row(image) for image in part]


@pytest.mark.parametrize("settings", [{"rows": 0, **STRICT}, {"rows": 0, **FIXED}])
def test_batches_change_nothing_where_images_drift_apart_within_rows(settings):
    grid = Grid(6, 6, row_ends=True)
    whole = decode(grid, **settings)
    assert torch.equal(decode(grid, PROMPTS[2:3], **settings).tokens, whole.tokens[2:3])


@pytest.mark.parametrize(("settings", "most"), [({}, 0), ({"rows": 2, "staged": 1}, 0), (FIXED, 1), (STRICT, 1)])
def test_the_host_waits_at_most_once_per_pass(settings, most, monkeypatch):
    seen, passes = waits(lambda: decode(**settings), monkeypatch)
    setup = ["tolist"] * 2  # the layout, once
    after = ["cpu"] * 3  # counters, fixed_pass, changes
    assert sorted(seen) == sorted([*["item"] * (passes * most), *setup, *after])


def test_an_onlooker_sees_every_round_and_changes_nothing():
    kept = []

    def watch(window, p, tokens):
        kept.append((tuple(p.shape), float((tokens == window.token).double().mean())))

    seen = replace(block(rounds=3), watch=watch).decode(SpatialTarget(SMALL), PROMPTS)
    assert torch.equal(seen.tokens, decode(rounds=3).tokens)
    assert [shape for shape, _ in kept] == [(5, 5, 8), *[(5, 6, 8)] * 15]


def test_lossless_is_the_same_in_words_and_in_parts():
    checked = 0
    words = {
        "correct": ("repair", "truncate"),
        "redraft": ("maximal", "gumbel"),
        "draft": ("sample", "argmax"),
        "law": ("previous", "head"),
        "rounds": (2, "exact"),
    }
    for values in itertools.product(*words.values()):
        settings = {"decoder": "block", **dict(zip(words, values, strict=True))}
        try:
            decoder = build_decoder(settings)
        except UsageError:
            continue
        assert decoder.lossless == options.lossless(settings, declared=False) == options.lossless(settings)
        checked += decoder.lossless
    assert checked == 4  # exact · exact by Gumbel, drafts of either kind · truncate; and nothing else


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"rounds": "exakt"}, "rounds must be a whole number of at least 0, or exact"),
        ({"rounds": -1}, "at least 0"),
        ({"columns": 0}, "columns must be a whole number of at least 1, not 0"),
        ({"draft": "armax"}, "did you mean 'argmax'"),
        ({"bonus": 1}, "bonus must be true or false"),
        ({"colums": 3}, "did you mean 'columns'"),
        ({"rounds": "exact", "draft": "argmax"}, "draft=argmax has no meaning with rounds=exact"),
        ({"rounds": "exact", "law": "head"}, "law=head has no meaning with rounds=exact"),
        ({"redraft": "gumbel", "law": "head"}, "law=head has no meaning with redraft=gumbel"),
        ({"rows": 0, "staged": 2}, "staged=2 has no meaning with rows=0"),
        ({"correct": "truncate", "rounds": 3}, "rounds=3 has no meaning with correct=truncate"),
        ({"correct": "truncate", "rows": 2}, "set method.rows=1"),
        ({"stop": "fixed_point"}, "set method.rounds=exact and method.redraft=gumbel"),
        ({**FIXED, "bonus": True}, "bonus=True has no meaning with stop=fixed_point"),
        ({"bonus": True, "states": "round"}, "states=round has no meaning with bonus=true"),
        ({"commit": "group", "staged": 1}, "staged=1 has no meaning with commit=group"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, complaint):
    with pytest.raises(UsageError, match=complaint):
        build_decoder({"decoder": "block", **settings})


def test_heads_are_asked_for_and_measured():
    with pytest.raises(UsageError, match="needs trained heads"):
        build_decoder({"decoder": "block"}).decode(SpatialTarget(SMALL), PROMPTS)
    with pytest.raises(UsageError, match="columns=6, but these heads look 5 columns far"):
        build_decoder({"decoder": "block", "columns": 6}).with_heads(block().heads)
    with pytest.raises(UsageError, match="returns no hidden states"):
        block().decode(SpatialTarget(SMALL, hidden=False), PROMPTS)


def test_shipped_methods_are_in_step_with_the_defaults():
    from specbench.bench import registry

    known = {"decoder": "block", **block_options.DEFAULTS}
    for name in ("ssd", "mtp"):
        method = registry.method(name)
        assert method.window is None and method.lossless is options.lossless(method.settings) is False
        assert {key for key, value in method.settings.items() if known[key] != value} <= {"rows", "rounds"}
        build_decoder(method.settings)
    assert {**known, **registry.method("ssd").settings} == known
