"""Every sum against a slow reading of the same passes, position by position; and what must not change by watching."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from specbench import bench
from specbench.bench import diagnosis, events, probe, registry
from specbench.bench.diagnostics import LAGS, OFFSETS, ROUNDING, watched
from specbench.bench.probe import perturbed, sites
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError
from tests.bench.toy import ToyTarget, write_prompts
from tests.decoding.targets import HashedTarget
from tests.decoding.test_loop import HostWaits

PROMPTS = [Prompt(f"s{i}", f"picture {i}") for i in range(4)]
SAMPLING = Sampling(top_k=12)
METHODS = {
    "jacobi": {"redraft": "independent", "accept": "fresh"},
    "sjd": {"redraft": "independent"},
    "scd": {"redraft": "maximal"},
    "scd_gs": {"redraft": "gumbel", "fill": "above_law"},
    "sjd_pac": {"redraft": "maximal", "tree": "siblings", "children": 2, "depth": 2},
    "sjd_vp": {"redraft": "maximal", "predict": "growth", "growth": 1, "history": 2},
}


def watch(method, window=6, prompts=PROMPTS, target=None, **keywords):
    decoder, onlooker = watched(build_decoder(METHODS[method], window, SAMPLING))
    generation = decoder.decode(target or HashedTarget(drift=0.3), prompts, **keywords)
    return generation, onlooker.rows()


def recorded(method, window):
    """The passes themselves, with the recorded laws as they were at that moment."""
    passes = []
    decoder = build_decoder(METHODS[method], window, SAMPLING)
    decoder = replace(decoder, watch=lambda each: passes.append((each, each.window.q(), each.window.board.committed)))
    decoder.decode(HashedTarget(drift=0.3), PROMPTS)
    return passes


def least(p, q):
    return sum(min(float(a), float(b)) for a, b in zip(p, q, strict=True))


def by_hand(passes, image):  # noqa: C901 – plain on purpose
    """Dictionaries by absolute position, a loop over everything."""
    sums = defaultdict(lambda: defaultdict(float))
    past = []  # latest first: position -> (p, law, before, after, drafted); the refused position; was law not p

    def add(name, *parts, at=None):
        for i, part in enumerate(parts) if at is None else [(at, parts[0])]:
            sums[name][i] += float(part)

    for each, q, committed in passes:
        w = each.window
        start, accepted, now = int(committed[image]), int(each.accepted[image]), {}
        drafted_here, run, length = 0, 1.0, 0.0
        for slot in range(w.position.shape[1]):
            position = int(w.position[image, slot])
            if not w.live[image, slot]:
                continue
            p, law, qs = each.p[image, slot], each.law[image, slot], q[image, slot]
            before, after = int(w.token[image, slot]), int(each.tokens[image, slot])
            drafted = bool(w.drafted[image, slot])
            now[position] = (p, law, before, after, drafted)
            if past and position in past[0][0] and past[0][1] is not None:
                old, refused, _ = past[0]
                kept = all(old[x][2] == old[x][3] for x in range(refused + 1, position))
                if kept and position - refused <= OFFSETS:
                    add("replaced", 1, at=position - refused - 1)
                    add("replaced_moved", 1 - least(p, old[position][0]), at=position - refused - 1)
            if not drafted:
                continue
            drafted_here += 1
            run *= least(p, qs)
            length += run
            add("drafts", 1, at=slot)
            add("overlap", least(p, qs), at=slot)
            add("collision", sum(float(a) * float(b) for a, b in zip(p, qs, strict=True)), at=slot)
            is_open = slot > accepted
            common = least(law, qs)
            equal = sum(float(a) * float(b) for a, b in zip(law, qs, strict=True))
            if is_open:
                add("open", 1, at=slot)
                add("open_changed", before != after, at=slot)
                add("redraft", 1, before != after, equal, common, common / (2 - common))
            seen = past and position in past[0][0]
            if is_open and seen:
                add("redraft_seen", 1, before != after, equal, common, common / (2 - common))
            for lag in range(1, LAGS + 1):
                if is_open and len(past) >= lag and position in past[lag - 1][0]:
                    add(f"hamming_{lag}", 1, after != past[lag - 1][0][position][3])
            chain = [float(p[before])]
            for board, *_ in past[: LAGS + 1]:
                if position not in board:
                    break
                chain.append(float(board[position][0][before]))
            for name, first in (("growth", 0), ("growth_before", 1)):
                for steps in range(1, LAGS + 1):
                    part = chain[first : first + steps + 1]
                    if len(part) < steps + 1:
                        continue
                    rose = all(a > b for a, b in pairwise(part))
                    kind = "accepted" if slot < accepted else "rejected" if slot == accepted else None
                    kind = None if kind == "accepted" and before != after else kind
                    for group in [kind, "drafts"] if kind else ["drafts"]:
                        add(f"{name}_{group}_{steps}", 1, rose)
            if seen:
                then, guess = past[0][0][position][:2]
                add("moved", 1, 1 - least(p, then))
                if past[0][2]:
                    pair = (1, 1 - least(p, then), 1 - least(p, guess))
                    add("predicted", *pair)
                    if 1 - least(guess, then) > ROUNDING:
                        add("predicted_boosted", *pair)
        if drafted_here:
            add("passes", 1)
            add("accepted", accepted)
            add("independent_length", length)
        refused = start + accepted
        replaced = refused in now and now[refused][4] and now[refused][2] != now[refused][3]
        replaced = replaced and all(now[x][2] == now[x][3] for x in range(start, refused))
        past.insert(0, (now, refused if replaced else None, each.law is not each.p))
    return sums


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", [3, 6, 11])
def test_every_sum_is_what_a_slow_reading_of_the_passes_gives(method, window):
    generation, rows = watch(method, window)
    assert generation.trace.committed.T.unique(dim=0).shape[0] > 1, "the images must advance unequally"
    passes = recorded(method, window)
    for image, row in enumerate(rows):
        expected = by_hand(passes, image)
        assert {n for n, sums in row.items() if any(sums)} == {n for n, s in expected.items() if any(s.values())}
        for name, sums in row.items():
            assert sums == pytest.approx([expected[name][i] for i in range(len(sums))], abs=1e-5), name


def test_the_slow_reading_meets_every_case():
    # otherwise the comparison above compares nothing with nothing
    _, rows = watch("sjd_vp", 11)
    pool = diagnosis._Pool(rows, [p.id for p in PROMPTS])
    for name in ("predicted_boosted", "hamming_3", "growth_before_accepted_3", "growth_rejected_2", "moved"):
        assert pool.total[name][0] > 0, name
    _, rows = watch("scd", 11)
    pool = diagnosis._Pool(rows, [p.id for p in PROMPTS])
    assert sum(n > 0 for n in pool.total["replaced"]) >= 4


@pytest.mark.parametrize("method", METHODS)
def test_watching_changes_no_token_and_a_batch_is_its_rows(method):
    together, rows = watch(method)
    plain = build_decoder(METHODS[method], 6, SAMPLING).decode(HashedTarget(drift=0.3), PROMPTS)
    assert torch.equal(together.tokens, plain.tokens)
    assert torch.equal(together.trace.nfe, plain.trace.nfe)
    for image, prompt in enumerate(PROMPTS):
        (alone,) = watch(method, prompts=[prompt])[1]
        for name in {*alone, *rows[image]}:
            held = alone.get(name, [0.0] * len(rows[image].get(name, [])))
            assert rows[image].get(name, [0.0] * len(held)) == pytest.approx(held, abs=1e-5)


def test_independent_drafts_change_as_often_as_collision_says_and_coupled_ones_as_overlap_says():
    prompts = [Prompt(f"m{i}", f"picture {i}") for i in range(160)]
    for method, part in (("sjd", 2), ("scd", 3)):
        pool = diagnosis._Pool(watch(method, prompts=prompts)[1], [p.id for p in prompts])
        # Behind a rejection alone: which slots are open depends on tokens before them, never on their own.
        kept, expected = 1 - pool.mean("redraft", 1), pool.mean("redraft", part)
        assert kept == pytest.approx(expected, abs=4 * (0.25 / pool.total["redraft"][0]) ** 0.5)
    assert pool.mean("redraft", 2) < pool.mean("redraft", 4) < pool.mean("redraft", 3)


def test_ar_and_plugins_have_no_passes_to_watch_and_a_window_of_one_drafts_nothing():
    assert watched(build_decoder({"decoder": "ar"}, None, SAMPLING))[1] is None
    assert watched(object())[1] is None
    _, rows = watch("scd", 1)
    found = diagnosis.summary({(p.id, 0): {"sums": row} for p, row in zip(PROMPTS, rows, strict=True)})
    assert found["redraft"]["changed"] is None
    assert found["accepted_length"]["measured"] is None
    assert found["hamming"] == [None] * 3
    assert found["prediction"] is None
    assert found["slots"]["overlap"] == []
    assert diagnosis.summary({}) is None


def test_watching_waits_for_no_device():
    # Without an onlooker there is one wait a pass; with one there must be no more.
    plain = build_decoder(METHODS["sjd_vp"], 6, SAMPLING)
    seen = []
    for decoder in (plain, watched(plain)[0]):
        with HostWaits() as waits:
            decoder.decode(HashedTarget(drift=0.3), PROMPTS)
        seen.append(waits.seen)
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_perturbed_token_moves_the_laws_it_reaches_and_no_others():
    target = HashedTarget(Grid(6, 6), memory=3)
    tokens = build_decoder({"decoder": "ar"}, None, SAMPLING).decode(target, PROMPTS).tokens
    for row in perturbed(target, SAMPLING, PROMPTS, tokens):
        assert all(x > 0 for x in row["probe"][:3])
        assert not any(row["probe"][3:])
        assert len(row["probe"]) == 15


def test_with_two_codes_the_other_token_is_known_and_so_is_every_distance():
    target = HashedTarget(Grid(5, 4), vocab=2, memory=4)
    sampling = Sampling()
    tokens = build_decoder({"decoder": "ar"}, None, sampling).decode(target, PROMPTS[:2]).tokens
    rows = perturbed(target, sampling, PROMPTS[:2], tokens)
    for image, row in enumerate(rows):
        expected, counts = [0.0] * 15, [0] * 15
        for site in sites(20):
            other = tokens[image].clone()
            other[site] = 1 - other[site]
            p, q = (target.laws(PROMPTS[image], x).softmax(-1) for x in (tokens[image], other))
            for offset in range(1, min(15, 19 - site) + 1):
                expected[offset - 1] += 1 - least(p[site + offset], q[site + offset])
                counts[offset - 1] += 1
        assert row["probe_sites"] == counts
        assert row["probe"] == pytest.approx(expected, abs=1e-5)


def test_a_token_that_is_certain_has_no_other_and_is_not_counted():
    target = HashedTarget(Grid(4, 4))
    greedy = Sampling(top_k=1)
    tokens = build_decoder({"decoder": "ar"}, None, greedy).decode(target, PROMPTS).tokens
    assert all(not any(row["probe_sites"]) for row in perturbed(target, greedy, PROMPTS, tokens))


def test_sites_stand_in_all_columns_and_leave_the_ends_alone():
    assert len({site % 16 for site in sites(256)}) > 8
    assert all(0 < site < size - 1 for size in range(1, 40) for site in sites(size))
    assert sites(256) == sorted(set(sites(256)))
    assert len(sites(256)) == probe.SITES


@pytest.fixture
def toy(monkeypatch):
    for name, empty in (("_models", {}), ("_methods", {}), ("_loaded", set())):
        monkeypatch.setattr(registry, name, empty)
    registry.register_target("toy", ToyTarget, summary="four tokens, for tests")


def run(out, *words, limit=4):
    captions = write_prompts(out.parent / "captions.txt", 8)
    given = ("model=toy", "dtype=float64", "prompts=file", f"prompts.path={captions}", f"prompts.limit={limit}")
    planned = []
    document = bench.run(
        bench.compose([*given, "method=sjd,scd", "window=3", *words]),
        out,
        on_event=lambda event: planned.append(event.total) if isinstance(event, events.Planned) else None,
    )
    return document, planned[0]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.usefixtures("toy")
def test_a_diagnosed_run_makes_the_same_images_times_nothing_and_is_done_once(tmp_path, batch):
    diagnosed, total = run(tmp_path / "a", f"batch={batch}", "diagnostics=true")
    plain, _ = run(tmp_path / "b", f"batch={batch}")
    assert total == 12
    for ours, other in zip(diagnosed["cells"], plain["cells"], strict=True):
        assert ours["id"] == other["id"]
        assert ours["nfe"] == other["nfe"]
        assert ours["latency_s"] is ours["latency_ratio_flat"] is ours["throughput"] is None
        assert "diagnostics" not in other
    ar, *methods = diagnosed["cells"]
    assert set(ar["diagnostics"]) == {"images", "probe"}
    assert all(cell["diagnostics"]["redraft"]["drafts"] > 0 for cell in methods)
    assert diagnosed["cost_curve"] is None
    assert "diagnostics are on, so nothing was timed" in diagnosed["warnings"]
    assert "timing" not in {json.loads(line)["kind"] for line in bench.export(tmp_path / "a")}
    assert list(bench.export(tmp_path / "a", canonical=True)) == list(bench.export(tmp_path / "b", canonical=True))
    assert run(tmp_path / "a", f"batch={batch}", "diagnostics=true")[1] == 0
    more, total = run(tmp_path / "a", f"batch={batch}", "diagnostics=true", limit=6)
    assert total == 6
    assert [cell["diagnostics"]["images"] for cell in more["cells"]] == [6, 6, 6]


@pytest.mark.usefixtures("toy")
def test_timed_images_are_diagnosed_later_and_keep_their_clocks(tmp_path):
    before, _ = run(tmp_path / "a")
    _, total = run(tmp_path / "a", "diagnostics=true")
    assert total == 12
    after, total = run(tmp_path / "a")
    assert total == 0
    clocks = [(cell["latency_s"], cell["latency_ratio"], cell["timed_together"]) for cell in before["cells"]]
    assert clocks == [(cell["latency_s"], cell["latency_ratio"], cell["timed_together"]) for cell in after["cells"]]


@pytest.mark.usefixtures("toy")
def test_sums_of_other_sources_are_made_anew(tmp_path, monkeypatch):
    run(tmp_path / "a", "diagnostics=true")
    monkeypatch.setattr(diagnosis, "code", lambda: "others")
    assert diagnosis.current({("a", 0): {"code": "ours"}}, [("a", 0)]) == {}
    assert run(tmp_path / "a", "diagnostics=true")[1] == 12


@pytest.mark.usefixtures("toy")
def test_diagnostics_is_a_switch():
    with pytest.raises(UsageError, match="diagnostics must be true or false, not 3"):
        bench.compose(["model=toy", "diagnostics=3"])
    rows = {row["key"]: row for row in bench.explain(["model=toy", "diagnostics=true"])}
    assert rows["diagnostics"] == {"key": "diagnostics", "value": True, "source": "command line"}


def test_the_published_figures_are_there_with_their_letters():
    rows = diagnosis.published()
    kinds = {"redraft_changed", "redraft_kept", "growth_accepted", "perturbed_tv", "head_kept"}
    assert {row["metric"] for row in rows} == kinds
    assert all(row["confidence"] in "ABCD" and float(row["value"]) > 0 for row in rows)
