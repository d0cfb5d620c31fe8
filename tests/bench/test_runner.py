from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import specbench
from specbench import bench
from specbench.bench import events, registry
from specbench.bench.config import RunRequest
from specbench.bench.planning import prepare
from specbench.bench.runner import shuffled
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Generation, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError
from specbench.report.sentence import cost_sentences

Ask = Callable[..., list[RunRequest]]
CALLS: list[tuple[str, str]] = []


@dataclass
class Spy:
    """SCD that notes each call, and fails at the prompt it is told to."""

    window: int
    sampling: Sampling
    name: str = "spy"
    fail_at: str | int = ""
    error: str = "RuntimeError"
    lossless: bool = True

    def decode(self, target: Target, prompts: Sequence[Prompt], seed: int = 0, sample: int = 0) -> Generation:
        CALLS.append((f"{self.name}{self.window}", " ".join(p.text.split()[-1] for p in prompts)))
        if self.fail_at != "" and any(p.text.endswith(str(self.fail_at)) for p in prompts):
            known = {"RuntimeError": RuntimeError, "MemoryError": MemoryError, "SystemExit": SystemExit}
            raise known[self.error]("told to\nand more")
        parts = {"decoder": "jacobi", "redraft": "maximal"}
        return build_decoder(parts, self.window, self.sampling).decode(target, prompts, seed=seed, sample=sample)


@pytest.fixture
def spies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    CALLS.clear()
    settings = {"name": "spy", "fail_at": "", "error": "RuntimeError"}
    specbench.register_method("spy", lossless=True, factory=Spy, settings=settings, window=2)
    ar = registry.method("ar")
    spied = replace(ar, factory=lambda window, sampling, decoder: Spy(1, sampling, "ar"))
    monkeypatch.setitem(registry._shipped_methods(), "ar", spied)
    return CALLS


def cells(document: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(cell["method"], cell["window"]): cell for cell in document["cells"]}


def test_the_document_is_what_the_contract_says(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=sjd,scd", "window=2,4", limit=6), tmp_path)
    json.dumps(document, allow_nan=False)
    assert next(iter(document)) == "schema"
    found = cells(document)
    assert set(found) == {("ar", 1), ("sjd", 2), ("sjd", 4), ("scd", 2), ("scd", 4)}
    ar = found["ar", 1]
    assert ar["nfe"] == {"mean": 4.0, "total": 24}
    assert ar["nfe_ratio"] == ar["latency_ratio"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert ar["accept_rate_pooled"] is None
    assert ar["entropy"] > 0
    scd = found["scd", 4]
    assert scd["nfe_ratio"]["value"] == pytest.approx(24 / scd["nfe"]["total"])
    assert scd["tokens_per_pass"] == pytest.approx(24 / scd["nfe"]["total"])
    assert scd["effective"] == {"window": 4}
    assert scd["requested"]["method.fill"] == "uniform"
    assert scd["latency_s"]["mean"] > 0
    assert scd["timed_together"] == scd["paired"] == scd["images"] == 6
    assert document["cost_curve"]["windows"] == [1, 2]
    assert document["cost_curve"]["ratio"][0] == 1
    assert document["warmup"] == 5
    assert bench.exit_code(document) == 0


def test_pictures_are_the_decoded_tokens(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=scd", window=2, limit=2), tmp_path)
    pictures = bench.pictures(document)
    assert len(pictures) == 4
    held = {(row["cell"], row["prompt"]): row for row in pictures}
    for line in map(json.loads, bench.export(tmp_path, canonical=True)):
        if line["kind"] == "image":
            row = held[line["cell"], line["prompt"]]
            with Image.open(row["file"]) as picture:
                shades = [picture.getpixel((x, y))[0] for y in range(2) for x in range(2)]
            assert shades == [60 * token for token in line["tokens"]]
            assert row["text"] == line["text"]


def test_a_second_run_decodes_nothing(ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]) -> None:
    first = bench.run(ask("method=spy", window=2), tmp_path)
    spies.clear()
    second = bench.run(ask("method=spy", window=2), tmp_path)
    assert spies == []
    assert second["warmup"] == 0
    assert second["cells"] == first["cells"]


def test_rounds_are_shuffled_and_warm_up_comes_first(ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]) -> None:
    bench.run(ask("method=spy", "window=2,4", limit=24), tmp_path)
    names = ["ar1", "spy2", "spy4"]
    assert spies[:3] == [(name, "0") for name in names]
    orders = [[name for name, prompt in spies[3:] if prompt == str(round_)] for round_ in range(24)]
    assert all(sorted(order) == names for order in orders)
    for name in names:
        assert {order.index(name) for order in orders} == {0, 1, 2}
        before = {order[order.index(name) - 1] for order in orders if order.index(name) > 0}
        assert before == set(names) - {name}


def test_a_round_has_its_own_order_and_always_the_same(ask: Ask) -> None:
    jobs = list(prepare(ask("method=sjd,scd", "window=2,4"))[0].jobs)
    assert all(shuffled(jobs, index) == shuffled(jobs, index) for index in range(5))
    first = [shuffled(jobs, index)[0].cell.id for index in range(400)]
    assert all(50 <= first.count(job.cell.id) <= 110 for job in jobs)


def test_a_larger_limit_extends_a_run(ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]) -> None:
    bench.run(ask("method=spy", window=2, limit=2), tmp_path)
    before = set(bench.export(tmp_path, canonical=True))
    spies.clear()
    document = bench.run(ask("method=spy", window=2, limit=4), tmp_path)
    assert {prompt for _, prompt in spies[2:]} == {"2", "3"}
    assert before < set(bench.export(tmp_path, canonical=True))
    assert cells(document)["spy", 2]["images"] == 4
    smaller = bench.run(ask("method=spy", window=2, limit=3), tmp_path)
    assert cells(smaller)["spy", 2]["images"] == 3


def test_a_new_method_is_timed_together_with_ar_again(ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]) -> None:
    bench.run(ask("method=spy", window=2), tmp_path)
    spies.clear()
    document = bench.run(ask("method=spy", "window=2,4"), tmp_path)
    assert {name for name, _ in spies} == {"ar1", "spy4"}
    assert cells(document)["spy", 4]["timed_together"] == 3
    assert cells(document)["ar", 1]["warnings"] == []


def test_batches_are_cut_by_prompt_index_whatever_the_store_holds(
    ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]
) -> None:
    bench.run(ask("method=spy", window=2, limit=3, batch=2), tmp_path)
    assert [prompts for name, prompts in spies if name == "spy2"] == ["0 1", "2"]
    spies.clear()
    bench.run(ask("method=spy", window=2, limit=5, batch=2), tmp_path)
    assert [prompts for name, prompts in spies if name == "spy2"] == ["2 3", "4"]
    assert [row["images"] for row in bench.list_runs(tmp_path)] == [5, 5]


def test_a_batch_changes_no_image_and_gives_throughput_instead_of_latency(ask: Ask, tmp_path: Path) -> None:
    single = bench.run(ask("method=scd", window=2, limit=5), tmp_path / "single")
    batched = bench.run(ask("method=scd", window=2, limit=5, batch=3), tmp_path / "batched")
    export = {name: list(bench.export(tmp_path / name, canonical=True)) for name in ("single", "batched")}
    assert export["single"] == export["batched"]
    one, many = cells(single)["scd", 2], cells(batched)["scd", 2]
    assert one["nfe"] == many["nfe"]
    assert one["latency_ratio"] is not None
    assert one["throughput"] is None
    assert many["latency_ratio"] is many["latency_s"] is None
    assert many["throughput"] > 0
    assert batched["cost_curve"] is None


@pytest.mark.parametrize("order", [(4, 1), (1, 4), (2, 4), (1, 2, 1)])
def test_each_batch_size_gets_its_own_clocks_whatever_ran_before(
    ask: Ask, tmp_path: Path, spies: list[tuple[str, str]], order: tuple[int, ...]
) -> None:
    for batch in order:
        document = bench.run(ask("method=spy", window=2, limit=5, batch=batch), tmp_path)
        found = cells(document)["spy", 2]
        assert found["state"] == "done"
        assert (found["latency_ratio"] is None, found["throughput"] is None) == (batch > 1, batch == 1)
        assert (document["cost_curve"] is None) == (batch > 1)
    for batch in order:
        spies.clear()
        assert bench.plan(ask("method=spy", window=2, limit=5, batch=batch), tmp_path)["cells"][1]["to_run"] == 0
        bench.run(ask("method=spy", window=2, limit=5, batch=batch), tmp_path)
        assert spies == []


def test_each_group_has_its_own_cost_curve_prompts_and_scorer(ask: Ask, tmp_path: Path) -> None:
    some, more = ask("method=scd", window=2), ask("method=scd", "sampling.top_k=2", "prompts.samples=2", window=2)
    document = bench.run([*some, *more], tmp_path)
    first, second = document["groups"]
    assert [cell["group"] for cell in document["cells"]] == [0, 0, 1, 1]
    assert (first["sampling"]["top_k"], second["sampling"]["top_k"]) == (some[0].sampling["top_k"], 2)
    assert first["cost_curve"]["seconds"] != second["cost_curve"]["seconds"]
    assert first["cost_curve"]["here"] is second["cost_curve"]["here"] is True
    assert document["cost_curve"] == first["cost_curve"]
    assert len(cost_sentences(document)) == 2
    assert len(bench.pictures(document)) == 2 * 3 + 2 * 6


def test_clocks_of_other_circumstances_are_not_called_this_machines(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=scd", window=2), tmp_path)
    (session,) = tmp_path.glob("sessions/*.json")
    session.write_text(json.dumps({**json.loads(session.read_text()), "threads": 99}))
    again = bench.run(ask("method=scd", window=2), tmp_path)
    assert again["groups"][0]["cost_curve"]["here"] is False
    assert "this machine" not in " ".join(cost_sentences(again))


def test_a_run_that_was_cut_off_before_the_cost_curve_gets_it_later(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=scd", window=2), tmp_path)
    for journal in tmp_path.glob("cells/*/records.jsonl"):
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(line for line in lines if json.loads(line)["kind"] != "cost"))
    document = bench.run(ask("method=scd", window=2), tmp_path)
    assert document["warmup"] == 0
    assert document["cost_curve"]["ratio"][0] == 1


def test_samples_of_a_prompt_are_different_images(ask: Ask, tmp_path: Path) -> None:
    document = bench.run(ask("method=ar", "prompts.samples=3", limit=4), tmp_path)
    assert cells(document)["ar", 1]["images"] == 12
    images = [json.loads(line) for line in bench.export(tmp_path, canonical=True)][1:]
    by_prompt: dict[str, set[str]] = {}
    for image in images:
        by_prompt.setdefault(image["prompt"], set()).add(str(image["tokens"]))
    assert max(len(different) for different in by_prompt.values()) > 1
    assert len({image["file"] for image in images}) == 12


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
def test_a_failing_cell_is_recorded_and_the_others_go_on(
    ask: Ask, tmp_path: Path, spies: list[tuple[str, str]], error: str
) -> None:
    told: list[events.Event] = []
    words = ("method=spy,scd", "method.fail_at=1", f"method.error={error}")
    document = bench.run(ask(*words, window=2), tmp_path, told.append)
    found = cells(document)
    assert (found["spy", 2]["state"], found["spy", 2]["error"]) == ("failed", f"{error}: told to")
    assert found["spy", 2]["images"] == 1
    assert found["spy", 2]["nfe_ratio"]["low"] is None
    assert found["scd", 2]["state"] == found["ar", 1]["state"] == "done"
    assert bench.exit_code(document) == 1
    assert [event.state for event in told if isinstance(event, events.CellFailed)] == ["failed"]
    failures = [line for line in map(json.loads, bench.export(tmp_path)) if line["kind"] == "failure"]
    assert "Traceback" in failures[0]["traceback"]


def test_out_of_memory_skips_the_wider_windows(ask: Ask, tmp_path: Path, spies: list[tuple[str, str]]) -> None:
    words = ("method=spy", "window=1,2,4", "method.fail_at=1", "method.error=MemoryError")
    requests = [r if r.window == 2 else replace(r, settings={**r.settings, "fail_at": ""}) for r in ask(*words)]
    found = cells(bench.run(requests, tmp_path))
    assert {key: cell["state"] for key, cell in found.items()} == {
        ("ar", 1): "done",
        ("spy", 1): "done",
        ("spy", 2): "oom",
        ("spy", 4): "skipped",
    }
    assert "ran out of memory at 2 tokens a pass" in found["spy", 4]["error"]


def test_a_failed_baseline_skips_what_is_compared_with_it(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spies: list[tuple[str, str]]
) -> None:
    broken = replace(registry.method("ar"), factory=lambda window, sampling, decoder: Spy(1, sampling, "ar", "1"))
    monkeypatch.setitem(registry._shipped_methods(), "ar", broken)
    found = cells(bench.run(ask("method=scd", window=2), tmp_path))
    assert found["ar", 1]["state"] == "failed"
    assert found["scd", 2]["state"] == "skipped"


def test_progress_counts_every_image_once(ask: Ask, tmp_path: Path) -> None:
    told: list[events.Event] = []
    bench.run(ask("method=scd", window=2, limit=4), tmp_path, told.append)
    planned = [event for event in told if isinstance(event, events.Planned)]
    done = [event for event in told if isinstance(event, events.ImageDone)]
    assert [(event.total, event.stored) for event in planned] == [(8, 0)]
    assert [event.done for event in done] == list(range(1, 9))
    assert {event.total for event in done} == {8}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ({"window": 5}, "window 5 is beyond the 4 tokens of an image of toy"),
        ({"limit": 25}, "prompts.limit=25, but file has 24 prompts"),
        ({"method.fill": "lft"}, "did you mean 'left'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    ask: Ask, tmp_path: Path, words: dict[str, Any], answer: str
) -> None:
    with pytest.raises(UsageError, match=answer):
        bench.run(ask("method=scd", **{"window": 2, **words}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_an_empty_prompt_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UsageError, match="is empty"):
        bench.run(
            bench.compose(["model=toy", "prompts=file", f"prompts.path={tmp_path / 'empty.txt'}"]), tmp_path / "out"
        )


def test_a_dry_run_says_what_is_left_and_writes_nothing(ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = bench.plan(ask("method=scd", window=2, limit=4), out)
    assert [(cell["images"], cell["stored"], cell["to_run"]) for cell in plan["cells"]] == [(4, 0, 4), (4, 0, 4)]
    assert not out.exists()
    bench.run(ask("method=scd", window=2, limit=3), out)
    plan = bench.plan(ask("method=scd", window=2, limit=4), out)
    assert [(cell["stored"], cell["to_run"]) for cell in plan["cells"]] == [(3, 1), (3, 1)]


def test_words_that_the_model_cannot_read_are_counted(tmp_path: Path) -> None:
    document = bench.run(bench.compose(["model=toy", "method=ar", "prompt=an unreadable star"]), tmp_path)
    assert document["warnings"] == ["toy cannot read"]


def test_a_changed_image_is_counted_when_it_is_decoded_again(ask: Ask, tmp_path: Path) -> None:
    bench.run(ask("method=ar"), tmp_path)
    (journal,) = tmp_path.glob("cells/*/records.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    next(line for line in lines if line["kind"] == "image")["tokens"][0] ^= 1
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = cells(bench.run(ask("method=scd", window=2), tmp_path))
    assert found["ar", 1]["warnings"][0].startswith("1 stored image")
