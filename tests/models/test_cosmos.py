"""Cosmos-1 AR: equal to the official code on its own format, and videos that continue given frames."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("transformers")

from specbench.bench import registry
from specbench.bench.scoring import decoded, png
from specbench.decoding.interfaces import Prompt, VideoTarget
from specbench.errors import SpecbenchError, UsageError
from specbench.models import cosmos
from specbench.models.cosmos import CosmosConfig, CosmosNetwork, CosmosTarget, angles, lattice
from specbench.models.cosmos_frames import given_codes, pixel_frames
from specbench.models.cosmos_tiny import write_cosmos
from specbench.models.prompted import Prefix
from specbench.verify.targets import target_conformance
from tests.models.families import (
    PROMPTS,
    Official,
    check_decodes_wait_once_per_pass,
    check_law_is_that_of_ar,
    check_passes_never_wait,
    check_replay_is_ar,
    check_trees_equal_their_paths,
    codes,
    load_folder,
    share_positions,
    start,
    whole,
)


def load(folder: Path, dtype: torch.dtype = torch.float32, given: int = 1, noise: bool = True) -> CosmosTarget:
    return load_folder("cosmos", folder, dtype, given=given, noise=noise)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_cosmos(folder, latent=(3, 3, 4), levels=(3, 2, 2), dtype=torch.float64)
    return folder


@pytest.fixture(scope="module")
def target(small: Path) -> CosmosTarget:
    return load(small, torch.float64)


@pytest.fixture
def official(outputs: Official, tmp_path: Path, small: Path) -> tuple[CosmosTarget, dict[str, Tensor]]:
    """The golden checkpoint as a folder with everything that a real one has, and its outputs."""
    gold = torch.load(outputs.folder / "cosmos_tiny" / "base.pt", weights_only=True)
    (tmp_path / "config.json").write_text(json.dumps(gold["p"]))
    torch.save({"model": gold["sd"]}, tmp_path / "model.pt")
    for name in ("encoder.jit", "decoder.jit"):
        (tmp_path / name).symlink_to(small / name)
    return load(tmp_path), gold


def test_logits_are_the_official_codes_from_the_first_token_on(official, outputs, monkeypatch, record_property):
    target, gold = official
    tokens = gold["toks"]
    monkeypatch.setattr(
        CosmosTarget, "prefix", lambda *_: Prefix(tokens[:, :1], torch.zeros(2, dtype=torch.int64), False)
    )
    canvas = target.begin([Prompt("0", ""), Prompt("1", "")])
    first = canvas.forward(torch.cat([start(2), tokens[:, 1:17]], 1))
    canvas.keep(torch.tensor([17, 17]))
    rest = canvas.forward(tokens[:, 17:40])
    outputs.agree(record_property, "logits", torch.cat([first.logits, rest.logits], 1), gold["lg"])


def test_given_frames_from_files_are_the_official_prefix(official, outputs, tmp_path, record_property):
    target, gold = official
    tokens = gold["toks"]
    prompts = []
    for row in range(2):
        np.save(tmp_path / f"{row}.npy", tokens[row].view(3, 4, 6).numpy())
        prompts.append(Prompt(str(row), str(tmp_path / f"{row}.npy")))
    logits = target.begin(prompts).forward(torch.cat([start(2), tokens[:, 24:39]], 1)).logits
    assert target.grid[:3] == (4, 6, 2)
    outputs.agree(record_property, "logits", logits, gold["lg"][:, 23:39])


@pytest.mark.parametrize("relative", ["yarn", "v2w"])
def test_relatives_of_the_family_are_refused_by_what_they_have(outputs, tmp_path, relative):
    gold = torch.load(outputs.folder / "cosmos_tiny" / f"{relative}.pt", weights_only=True)
    (tmp_path / "config.json").write_text(json.dumps(gold["p"]))
    with pytest.raises(SpecbenchError, match="apply_yarn" if relative == "yarn" else "insert_cross_attn"):
        cosmos.read_config(tmp_path / "config.json")


@pytest.mark.parametrize("outputs", ["slice"], indirect=True)
def test_a_slice_sees_positions_that_two_codes_share(official, outputs, monkeypatch, record_property):
    share_positions(monkeypatch, CosmosNetwork)
    with pytest.raises(AssertionError, match="logits"):
        test_logits_are_the_official_codes_from_the_first_token_on(official, outputs, monkeypatch, record_property)


def test_prompts_have_one_length_so_that_nothing_is_padded(target):
    prefix = target.prefix(PROMPTS, False)
    assert prefix.ids.shape == (3, 12)
    assert not prefix.padded
    assert not prefix.hidden.any()


def test_the_suite_of_targets_passes(target):
    result = target_conformance("cosmos/test", target)
    assert result.passed, result.detail


@pytest.mark.parametrize("committed", [[2, 5, 3], [12, 11, 1]])
def test_trees_equal_their_paths_across_frames(target, committed):
    assert check_trees_equal_their_paths(target, committed, rounds=2) < 1e-9


def test_replay_is_ar_token_for_token(target):
    check_replay_is_ar(target)


def test_passes_never_wait_for_the_device(target):
    check_passes_never_wait(target)


def test_decodes_wait_once_per_pass(target):
    check_decodes_wait_once_per_pass(target)


def test_taps_are_the_states_between_layers(target):
    assert whole(target, codes(target)).taps[0].shape == (1, 3, target.grid.size, 64)
    last = target.begin(PROMPTS).forward(start(), taps=(1,))
    assert torch.equal(last.taps[1], last.h), "behind the last layer comes the final norm"


def test_a_place_turns_with_its_frame_row_and_column():
    """The 4B: 22, 21 and 21 of a head's 64 pairs; one step moves the pairs of its own axis by its first speed, 1."""
    table = angles(CosmosConfig(latent=(2, 3, 4)))
    assert table.shape == (24, 64)
    for step, (first, width) in ((12, (0, 22)), (4, (22, 21)), (1, (43, 21))):
        moved = (table[step] - table[0]).nonzero().flatten().tolist()
        assert moved == list(range(first, first + width))
        assert float(table[step, first]) == 1.0


def test_codes_are_a_lattice():
    points = lattice((8, 8, 8, 5, 5, 5), 64000)
    assert points is not None
    assert points.shape == (64000, 6)
    assert points.unique(dim=0).shape == points.shape
    assert points[0].tolist() == [-1.0] * 6
    assert points[1, 0] - points[0, 0] == 0.25, "the first digit runs fastest"
    assert points[512, 3] - points[0, 3] == 0.5
    assert lattice((8, 8), 80) is None


def test_no_guidance_is_taken(target):
    assert target.begin(PROMPTS, 1.0).rows == 1
    with pytest.raises(UsageError, match=r"sampling\.guidance must be null, not 3"):
        target.begin(PROMPTS, 3.0)


def test_the_protocol_says_how_many_frames_are_given(target):
    assert target.grid[:3] == (3, 4, 2)
    other = target.follow({**target.protocol, "given": 2})
    assert (other.grid[:3], target.grid[:3]) == ((3, 4, 1), (3, 4, 2))
    assert other.prefix(PROMPTS, False).ids.shape == (3, 24)
    with pytest.raises(SpecbenchError, match="3 of 3 latent frames are given; it must be 1 to 2"):
        target.follow({**target.protocol, "given": 3})


def test_videos_are_animated_files_that_begin_with_the_given_frames(target):
    assert isinstance(target, VideoTarget)
    tokens = codes(target, 2)
    videos, rate = decoded(target, tokens, PROMPTS[:2])
    assert (tuple(videos.shape), rate) == ((2, 17, 3, 48, 64), 25)
    given = target.prefix(PROMPTS[:2], False).ids.view(2, 3, 4)
    table = target.codebook[:, :3]
    shown = ((table[given] + 1) * 127.5).to(torch.uint8)
    assert torch.equal(videos[:, 0, :, ::16, ::16].permute(0, 2, 3, 1), shown)
    assert not torch.equal(videos[0, -1], videos[0, 0])
    data = png(videos[0], rate)
    assert data == png(videos[0], rate)
    with Image.open(io.BytesIO(data)) as file:
        assert file.is_animated
        assert file.n_frames == 18, "17 frames behind the picture for those who see no animation"
        assert np.array_equal(np.array(file.convert("RGB")), videos[0, -1].permute(1, 2, 0).numpy())
        for at in (1, 9, 17):
            file.seek(at)
            assert np.array_equal(np.array(file.convert("RGB")), videos[0, at - 1].permute(1, 2, 0).numpy())
            assert file.info["duration"] == 40
    with pytest.raises(SpecbenchError, match="draws videos"):
        target.pixels(tokens)


def test_frames_are_read_from_pictures_and_animations(target, tmp_path):
    """A video that the decoder drew comes back as the codes it was drawn from."""
    tokens = codes(target, 1)
    video = target.frames(tokens, PROMPTS[:1])[0]
    (tmp_path / "video.png").write_bytes(png(video, 25))
    frames = [Image.fromarray(frame.permute(1, 2, 0).numpy()) for frame in video]
    frames[0].save(tmp_path / "video.webp", save_all=True, append_images=frames[1:], lossless=True, duration=40)
    frames[0].resize((128, 96), Image.Resampling.NEAREST).save(tmp_path / "large.png")
    whole_video = torch.cat([target.prefix(PROMPTS[:1], False).ids, tokens], 1).flatten()
    unique = target.codebook[:, :3].unique(dim=0)
    assert len(unique) == target.vocab, "two codes of one colour cannot be told apart"
    two = {**target.protocol, "given": 2}
    found = given_codes(str(tmp_path / "video.webp"), target.latent, two, target.vocab, target.encoder)
    assert torch.equal(found, whole_video[:24])
    found = given_codes(str(tmp_path / "large.png"), target.latent, target.protocol, target.vocab, target.encoder)
    assert torch.equal(found, whole_video[:12])
    with pytest.raises(SpecbenchError, match=r"large\.png has 1 of the 9 frames"):
        given_codes(str(tmp_path / "large.png"), target.latent, two, target.vocab, target.encoder)


def test_what_names_no_frames_is_refused(small, tmp_path):
    real = load(small, noise=False)
    with pytest.raises(UsageError, match="'a red circle' is no file"):
        real.begin(PROMPTS)
    for name, array, says in (
        ("low", np.zeros((1, 2, 4), int), r"holds codes \[1, 2, 4\]; \[1 or more, 3, 4\] needed"),
        ("high", np.full((1, 3, 4), 12), r"holds codes outside 0…11"),
        ("real", np.zeros((1, 3, 4)), r"not whole numbers"),
    ):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(SpecbenchError, match=says):
            real.begin([Prompt("x", str(tmp_path / f"{name}.npy"))])
    (tmp_path / "text.txt").write_text("no picture")
    with pytest.raises(SpecbenchError, match="cannot be read as a picture"):
        real.begin([Prompt("x", str(tmp_path / "text.txt"))])


def test_frames_are_prepared_before_the_clock(target, monkeypatch):
    fresh = target.follow(target.protocol)
    fresh.prepare(PROMPTS)
    monkeypatch.setattr(cosmos, "given_codes", lambda *_: pytest.fail("read again"))
    fresh.begin(PROMPTS).forward(start())


def test_keys_that_do_not_fit_are_named(small, tmp_path):
    for name in ("config.json", "encoder.jit", "decoder.jit"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    state = torch.load(small / "model.pt", weights_only=True)["model"]
    for edit, says in (
        (lambda s: s.pop("model.norm.weight"), "missing norm.weight"),
        (lambda s: s.update(extra=torch.zeros(1)), "unexpected extra"),
        (lambda s: s.update({"model.output.weight": torch.zeros(7, 64)}), "[7, 64], expected [12, 64]"),
    ):
        changed = dict(state)
        edit(changed)
        torch.save(changed, tmp_path / "model.pt")
        with pytest.raises(SpecbenchError, match=re.escape(says)):
            load(tmp_path)
    torch.save(state, tmp_path / "model.pt")
    (tmp_path / "decoder.jit").write_bytes(b"no script")
    with pytest.raises(SpecbenchError, match=r"decoder\.jit cannot be read as TorchScript"):
        load(tmp_path)


def test_the_stated_sizes_are_those_of_the_network():
    sizes = registry.model("cosmos").sizes
    config = CosmosConfig()
    with torch.device("meta"):
        network = CosmosNetwork(config)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(sizes["parameters"], rel=0.002)
    assert (sizes["layers"], sizes["width"], sizes["feedforward"]) == (16, 4096, 14336)
    assert (sizes["heads"], sizes["kv_heads"], sizes["codes"]) == (32, 8, 64000)
    assert sizes["width"] / sizes["heads"] == config.head_dim
    assert sizes["tokens"] + sizes["prompt"] == config.tokens == 12800
    assert pixel_frames(5) == 33


def test_tiny_has_the_protocols_of_the_real_one():
    base = {name: {**p, "noise": True} for name, p in registry.model("cosmos").protocols.items()}
    assert registry.model("cosmos/tiny").protocols == base


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sjd", "scd"])
def test_the_law_is_that_of_ar(tmp_path, method):
    write_cosmos(tmp_path, latent=(2, 4, 4), levels=(4, 3, 2), layers=1)
    check_law_is_that_of_ar(load(tmp_path), method)
