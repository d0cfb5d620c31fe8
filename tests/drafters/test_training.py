"""Heads train at toy size, stop and go on without a trace, and come back from their file as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from specbench.decoding.interfaces import Grid, SpatialHeads
from specbench.decoding.laws import Sampling
from specbench.drafters import SHIPPED, WEIGHTS, doubt, find, heads, load_heads
from specbench.drafters.heads import Heads, Shape, Stack
from specbench.drafters.training import data, recipe
from specbench.drafters.training.ssd import INPUTS, SpatialTask, offsets, shifted
from specbench.drafters.training.trainer import Plan, States, fit, order, save
from specbench.errors import SpecbenchError, UsageError
from specbench.models import load_target
from tests.cli.commands import call

TINY = {"steps": 12, "images": 8, "batch": 4, "horizontal": 2, "vertical": 1, "lr": 3e-3, "warmup": 2, "save_every": 5}


@pytest.fixture
def captions(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(data, "SHARD", 4)
    monkeypatch.setattr(recipe, "HELD_OUT", 4)
    path = tmp_path / "captions.txt"
    path.write_text("".join(f"a picture of {n} red stars\n" for n in ("two", "three", "four")) * 4)
    return path


@pytest.fixture(scope="module")
def tiny():
    return load_target("mini/tiny")


def images(tiny, count: int = 6) -> data.Images:
    tokens = torch.randint(tiny.vocab, (count, tiny.grid.size), generator=torch.Generator().manual_seed(0))
    return data.Images(tokens, ["a picture of a red star"] * count)


def task(tiny, states: States, reads: str = "h_pre+e", raw: bool = False) -> SpatialTask:
    return SpatialTask.fresh(tiny, states.batch(torch.arange(2)), offsets(tiny.grid, 2, 1), reads, raw)


def test_training_from_the_command_line_learns_and_leaves_heads_a_curve_and_a_card(captions, tmp_path, capsys):
    words = [f"{k}={v}" for k, v in TINY.items()]
    out = tmp_path / "out"
    arguments = ("train", "drafter=ssd", "model=mini/tiny", f"out={out}", f"prompts={captions}", *words)
    outcome = call(capsys, *arguments)
    assert outcome.code == 0, outcome.err
    curve = [json.loads(x) for x in (out / "curve.jsonl").read_text().splitlines()]
    assert [x["step"] for x in curve] == list(range(12))
    assert curve[-1]["loss"] < curve[0]["loss"]
    card = json.loads((out / "card.json").read_text())
    assert set(card["acceptance"]) == set(card["loss"]) == {"right+1", "right+2", "below+1"}
    assert all(0 < x[k] <= 1 for x in card["acceptance"].values() for k in ("heads", "copy", "uniform"))
    heads = Heads.read(out / "mini-tiny-ssd.safetensors")
    assert (heads.target, heads.target_weights, heads.weights_hash) == ("mini/tiny", "tiny-seed-0", card["weights"])
    assert {p.name for p in out.iterdir()} >= {"curve.png", "card.md", "images", "checkpoint.pt"}
    before = (out / "mini-tiny-ssd.safetensors").read_bytes()
    assert call(capsys, *arguments).code == 0  # nothing is left to do, and nothing changes
    assert (out / "mini-tiny-ssd.safetensors").read_bytes() == before


def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(tiny, tmp_path):
    states, plan = States(tiny, images(tiny)), Plan(9, batch=4, lr=1e-3, save_every=3)
    whole, broken = task(tiny, states), task(tiny, states)

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    fit(whole, states, plan, tmp_path / "whole", report=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        fit(broken, states, plan, tmp_path / "broken", report=stop, every=5)
    again = task(tiny, states)
    curve = fit(again, States(tiny, images(tiny)), plan, tmp_path / "broken", report=lambda _: None)
    assert [x["step"] for x in curve] == list(range(9))
    for a, b in zip(whole.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(again.module.out, broken.module.out)


def test_going_on_with_other_settings_is_refused(tiny, tmp_path):
    states = States(tiny, images(tiny))
    fit(task(tiny, states), states, Plan(2), tmp_path, report=lambda _: None)
    with pytest.raises(UsageError, match="other settings \\(lr\\)"):
        fit(task(tiny, states), states, Plan(2, lr=1e-3), tmp_path, report=lambda _: None)


def test_every_image_is_seen_once_an_epoch_wherever_the_run_began():
    plan = Plan(10, batch=4)
    seen = torch.cat([order(step, plan, 10) for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))
    assert seen[:10].tolist() != seen[10:].tolist()


def test_learning_rate_warms_up_and_ends_where_it_should():
    plan = Plan(352)
    assert [plan.rate(0), plan.rate(19)] == pytest.approx([5e-6, 1e-4])
    assert plan.rate(352) == pytest.approx(1e-5)
    assert all(plan.rate(s) > plan.rate(s + 1) for s in range(20, 351))


def test_teacher_forcing_gives_the_states_that_the_laws_come_from(tiny):
    found = images(tiny, 3)
    dropped = torch.tensor([False, True, False])
    h, e = data.teach(tiny, found.tokens, found.texts, dropped)
    one = tiny.begin([data.Prompt("x", found.texts[0])] * 3, 2.0)
    start = torch.full((3, 1), data.START)
    both = one.forward(torch.cat([start, found.tokens[:, :-1]], 1)).h
    assert torch.allclose(h[0], both[0, 0], atol=1e-4)
    assert torch.allclose(h[1], both[1, 1], atol=1e-4)
    assert not torch.allclose(h[1], both[0, 1], atol=1e-2)
    assert torch.equal(e, tiny.embed(found.tokens))


def test_a_tenth_of_the_captions_is_dropped_and_states_are_the_same_with_and_without_memory(tiny):
    many, few = images(tiny, 400), torch.arange(3)
    kept, made = States(tiny, many), States(tiny, many, memory=0)
    assert 20 < int(kept.dropped.sum()) < 60
    for _ in range(2):
        assert torch.equal(kept.batch(few)[0], made.batch(few)[0])
    assert len(kept._kept) == 3 and not made._kept


@pytest.mark.parametrize("place", [(0, 1), (0, 3), (2, 0)])
def test_a_source_is_paired_with_the_token_at_the_offset_and_no_other(place):
    rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    where = torch.stack([rows, columns], -1)[None]
    source, goal = shifted(place)
    assert ((where[goal] - where[source]) == torch.tensor(place)).all()
    assert where[goal].shape[1:3] == (4 - place[0], 4 - place[1])


@pytest.mark.parametrize("reads", sorted(INPUTS))
def test_units_leave_the_heads_what_they_are(tiny, reads):
    states = States(tiny, images(tiny))
    trained = task(tiny, states, reads)
    torch.nn.init.normal_(trained.module.out, std=0.1)
    torch.nn.init.normal_(trained.module.mix, std=0.1)
    h, e = states.batch(torch.arange(2))
    raw = [x * unit for x, unit in zip(trained.parts(h, e), trained.units, strict=False)]
    wanted = trained.module(*trained.parts(h, e)) * trained.units[0]
    found = trained.heads("mini/tiny", "").stack(*raw)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert all(unit != 1 for unit in trained.units)


def test_a_head_is_the_papers_formula():
    stack = Stack(Shape(2, 4, 8, 8), seed=3).double()
    torch.nn.init.normal_(stack.out)
    torch.nn.init.normal_(stack.gain)
    h, e = torch.randn(2, 1, 5, 4).double(), torch.randn(1, 5, 4).double()
    found = stack(h, e)
    assert found.shape == (2, 1, 5, 2, 4)
    z = torch.cat([h, e.expand_as(h)], -1)
    for k in range(2):
        u = z @ stack.mix[k].T
        g = u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt() * stack.gain[k]
        gate = g @ stack.gate[k].T
        wanted = u + (gate * gate.sigmoid() * (g @ stack.value[k].T)) @ stack.out[k].T
        assert torch.allclose(found[..., k, :], wanted)


def test_parameters_are_counted_as_the_paper_counts_them():
    def formula(d: int) -> int:
        return 2 * d * d + 3 * (2 * d) * d

    stack = Stack(Shape(1, 16, 32, 32))
    assert sum(p.numel() for n, p in stack.named_parameters() if n != "gain") == formula(16)
    assert formula(4096) == 134_217_728


def test_a_file_gives_back_what_was_written_in_bfloat16(tmp_path):
    heads = load_heads("mini/tiny")
    path = tmp_path / "x.safetensors"
    heads.write(path)
    again = Heads.read(path)
    for name, weight in again.stack.state_dict().items():
        assert torch.equal(weight, heads.stack.state_dict()[name].to(torch.bfloat16).float())
    assert (again.horizontal_offsets, again.vertical_offsets, again.target) == (3, 3, "mini/tiny")
    again.write(tmp_path / "y.safetensors")
    assert (tmp_path / "y.safetensors").read_bytes() == path.read_bytes()


def test_tiny_heads_keep_the_promise_of_spatial_heads():
    heads = load_heads("mini/tiny", dtype="float64")
    assert isinstance(heads, SpatialHeads)
    h, e = torch.randn(2, 3, 4, 32).double(), torch.randn(3, 4, 32).double()
    right, below = heads.horizontal(h, e), heads.vertical(h, e)
    assert right.shape == below.shape == (2, 3, 4, 3, 32)
    assert torch.allclose(torch.cat([right, below], -2), heads.stack(h, e))
    assert not torch.allclose(right, below)


def test_the_nearest_heads_are_the_first_of_each_direction():
    heads = load_heads("mini/tiny", dtype="float64")
    few = heads.nearest(2, 1)
    assert (few.horizontal_offsets, few.vertical_offsets) == (2, 1)
    assert few.stack.mix.shape[0] == 3 and few.stack.mix.dtype == torch.float64
    h, e = torch.randn(1, 2, 4, 32).double(), torch.randn(2, 4, 32).double()
    assert torch.allclose(few.horizontal(h, e), heads.horizontal(h, e)[..., :2, :])
    assert torch.allclose(few.vertical(h, e), heads.vertical(h, e)[..., :1, :])
    assert heads.nearest(9, 9).stack.mix.shape == heads.stack.mix.shape
    assert heads.nearest(2, 0).vertical(h, e).shape == (1, 2, 4, 0, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lumina", "ssd"), "specbench train drafter=ssd model=lumina"),
        (("mini", "../x"), "named by letters"),
        (("mini", "ssd", "int8"), "float32, float64 or bfloat16"),
    ],
)
def test_heads_that_are_not_there_say_how_to_get_them(arguments, message):
    with pytest.raises(UsageError, match=message):
        load_heads(*arguments)


def test_heads_of_ones_own_are_found_under_the_weights_root_and_damage_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBENCH_WEIGHTS_ROOT", str(tmp_path))
    folder = tmp_path / "drafters"
    folder.mkdir()
    load_heads("mini/tiny").write(folder / "lumina-ssd.safetensors")
    assert find("lumina", "ssd") == folder / "lumina-ssd.safetensors"
    with pytest.raises(SpecbenchError, match="holds heads of mini/tiny, not of lumina"):
        load_heads("lumina")
    whole = (folder / "lumina-ssd.safetensors").read_bytes()
    for damaged in (
        b"nothing",
        b"",
        whole[:-40],
        whole.replace(b"h_pre+e", b"h_pos+e"),
        whole.replace(b"heads", b"haeds"),
    ):
        (folder / "lumina-ssd.safetensors").write_bytes(damaged)
        with pytest.raises(SpecbenchError, match="holds no spatial heads"):
            load_heads("lumina")


def test_heads_of_other_weights_are_refused_and_trained_ones_come_before_untrained(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBENCH_WEIGHTS_ROOT", str(tmp_path))
    folder = tmp_path / "drafters"
    folder.mkdir()
    own = replace(load_heads("mini/tiny"), reads="h_post+e")
    own.write(folder / "mini-tiny-ssd.safetensors")
    assert load_heads("mini/tiny", weights="tiny-seed-0").reads == "h_post+e"
    assert load_heads("mini/tiny").reads == "h_post+e"  # nobody asked
    with pytest.raises(SpecbenchError, match=r"trained on other weights of mini/tiny \(tiny-seed-0\) than are loaded"):
        load_heads("mini/tiny", weights="tiny-seed-1")
    replace(own, target_weights="").write(folder / "mini-tiny-ssd.safetensors")
    unsaid = load_heads("mini/tiny", weights="tiny-seed-1")
    assert "their file names no weights" in (doubt(unsaid, "tiny-seed-1") or "")
    assert "the model declares no weights_hash" in (doubt(own, None) or "")
    assert doubt(own, "tiny-seed-0") is doubt(None, None) is None


def test_untrained_heads_are_no_answer_to_a_name_that_nobody_trained():
    with pytest.raises(UsageError, match="there are no nonsense heads for mini/tiny"):
        load_heads("mini/tiny", "nonsense")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("reads=h_pos", "did you mean 'h_post'"),
        ("horizontal=16", "smaller than the grid"),
        ("horizontal=0 vertical=0", "no heads to train"),
        ("images=0", "images must be at least 1"),
        ("steps=0", "at least 1"),
        ("steps=many", "steps must be a whole number"),
        ("lr=-1", "lr=-1"),
        ("raw=1", "raw must be true or false"),
        ("stepz=3", "did you mean 'steps'"),
        ("model=minni", "did you mean 'mini'"),
        ("protocol=offical", "unknown protocol of mini"),
        ("target=mini", "say what to train"),
        ("prompts=gone.txt", "prompts=gone.txt is not a file"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(word, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = call(capsys, "train", "drafter=ssd", *word.split())
    assert outcome.code == 2
    assert message in outcome.err
    assert not list(tmp_path.iterdir())


def test_shards_of_other_captions_are_not_taken_for_this_runs(tiny, tmp_path, captions):
    data.write_images(tmp_path, tiny, Sampling(), ["a red star"] * 4, 0, report=lambda _: None)
    with pytest.raises(UsageError, match="other captions"):
        data.write_images(tmp_path, tiny, Sampling(), ["a blue star"] * 4, 0, report=lambda _: None)


def test_the_shipped_files_are_the_ones_that_are_named():
    assert set(SHIPPED) == {path.name for path in WEIGHTS.glob("*.safetensors")}
    assert sum(path.stat().st_size for path in WEIGHTS.glob("*.safetensors")) <= 12e6
    for name, digest in SHIPPED.items():
        assert Heads.read(WEIGHTS / name).weights_hash == digest


def test_damage_of_what_a_run_left_behind_is_named_with_its_cure(captions, tmp_path, capsys):
    words = [f"{k}={v}" for k, v in {**TINY, "steps": 2, "dtype": "bfloat16"}.items()]
    out = tmp_path / "out"
    arguments = ("train", "drafter=ssd", "model=mini/tiny", f"out={out}", f"prompts={captions}", *words)
    done = call(capsys, *arguments)
    assert done.code == 0, done.err  # heads of a bfloat16 target are judged in its own precision
    for file in (out / "checkpoint.pt", out / "images" / "images-0001.npz"):
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2]):
            file.write_bytes(damaged)
            outcome = call(capsys, *arguments)
            assert outcome.code == 1
            assert f"{file} is damaged: delete it, and the same command" in outcome.err
        file.unlink()
        again = call(capsys, *arguments)
        assert again.code == 0, again.err
    captions.write_bytes(b"\xff\xfe\x00")
    assert "is no UTF-8 text" in call(capsys, *arguments).err


def test_heads_are_not_trained_on_videos():
    with pytest.raises(UsageError, match="this target makes videos"):
        offsets(Grid(4, 4, frames=2), 1, 1)


def test_a_checkpoint_on_a_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "checkpoint.part").symlink_to("/dev/full")
    with pytest.raises(SpecbenchError, match=r"cannot write .*checkpoint\.pt \(is the disk full"):
        save(tmp_path / "checkpoint.pt", {"weights": torch.zeros(64, 64)})
    assert list(tmp_path.iterdir()) == []


def test_heads_on_a_full_disk_are_one_sentence(tmp_path, monkeypatch):
    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(heads, "save_file", full)
    made = Heads.read(next(WEIGHTS.glob("*.safetensors")))
    with pytest.raises(SpecbenchError, match=r"cannot write .*is the disk full.*No space left"):
        made.write(tmp_path / "heads.safetensors")
    assert list(tmp_path.iterdir()) == []
