"""Emu3-Gen: equal to the official code on its own format, and row ends that no method ever sees."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from specbench.bench import registry
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Prompt
from specbench.decoding.laws import Sampling
from specbench.errors import SpecbenchError
from specbench.models import checkpoint, emu3, emu3_tiny
from specbench.models.emu3 import Emu3Network, Emu3Pictures, Emu3Target
from specbench.models.emu3_words import Emu3Words
from specbench.models.prompted import Prefix
from specbench.verify.targets import target_conformance
from tests.models.families import (
    PROMPTS,
    Official,
    agree,
    check_decodes_wait_once_per_pass,
    check_law_is_that_of_ar,
    check_padding_changes_nothing,
    check_passes_never_wait,
    check_replay_is_ar,
    check_trees_equal_their_paths,
    check_whole_image_is_one_plain_sequence,
    load_folder,
    share_positions,
    start,
)


def load(folder: Path, side: int, dtype: torch.dtype = torch.float32) -> Emu3Target:
    return load_folder("emu3", folder, dtype, side=side)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    emu3_tiny.write(folder, side=4, codes=32, dtype=torch.float64)
    return folder


@pytest.fixture(scope="module")
def target(small: Path) -> Emu3Target:
    return load(small, 4, torch.float64)


def gold_network(folder: Path, first: int, codes: int) -> Emu3Network:
    with torch.device("meta"):
        network = Emu3Network(emu3.read_config(folder / "config.json"), codes, first, end=6)
    files = checkpoint.shards(folder)
    checkpoint.fill(network, files, emu3.our_name, lambda _: torch.float32, "cpu", network.stored)
    return network


def compare_with_gold(folder: Path, outputs: Official, target: Emu3Target, monkeypatch, record_property) -> None:
    """Row 1 is left-padded by 5, its pads are masked; the last 64 words stand in for codes."""
    gold = torch.load(outputs.folder / "emu3_tiny" / "gold.pt", weights_only=True)
    target = target.follow(target.protocol)
    target.network, target.vocab = gold_network(folder, 32, 64), 64
    for length in (6, 13, 20):
        for hidden, logits in ((torch.tensor([0, 5]), gold["b"]), (torch.tensor([0, 0]), gold["a"])):
            prefix = Prefix(gold["ids"][:, :length], hidden, bool(hidden.any()))
            monkeypatch.setattr(Emu3Target, "prefix", lambda *_, prefix=prefix: prefix)
            out = target.begin([Prompt("0", ""), Prompt("1", "")]).forward(start(2))
            outputs.agree(record_property, "logits", out.logits[:, 0], logits[:, length - 1, 32:])


def test_logits_are_the_official_codes(outputs, target, monkeypatch, record_property):
    compare_with_gold(outputs.folder / "emu3_tiny", outputs, target, monkeypatch, record_property)


def test_the_native_layout_computes_the_same(outputs, tmp_path, target, monkeypatch, record_property):
    """Transformers' names of the whole model, its settings under ``text_config``, its vision part beside them."""
    raw = json.loads((outputs.folder / "emu3_tiny" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "emu3", "text_config": raw}))
    state = load_file(outputs.folder / "emu3_tiny" / "model.safetensors")
    state = {re.sub(r"^model\.", "model.text_model.", name): value for name, value in state.items()}
    save_file({**state, "model.vqmodel.encoder.x": torch.zeros(1)}, tmp_path / "model.safetensors")
    compare_with_gold(tmp_path, outputs, target, monkeypatch, record_property)


def test_pictures_are_the_official_decoders(golden, record_property):
    gold = torch.load(golden / "emu3_tiny" / "gold.pt", weights_only=True)
    folder = golden / "emu3_tiny_vq"
    with torch.device("meta"):
        pictures = Emu3Pictures(folder / "config.json")
    pictures.fill([folder / "model.safetensors"], "cpu")
    with torch.inference_mode():
        agree(record_property, "pixels", pictures.eval().decode(gold["codes"]), gold["px"])
    assert pictures.pixels(gold["codes"]).shape == (1, 3, 40, 48)


def test_special_words_have_the_published_numbers(golden):
    words = Emu3Words(golden / "emu3_tok" / emu3.RANKS, golden / "emu3_tok" / emu3.VISION)
    names = (emu3.PAD, emu3.ROW_END, emu3.BEGIN, emu3.IMAGE_TOKEN, emu3.IMAGE_START, emu3.FIRST_CODE)
    assert [words.special(name) for name in names] == [151643, 151846, 151849, 151851, 151852, 151854]
    assert words.size == 184622
    assert words.ids("90*90") == [words.ids(letter)[0] for letter in "90*90"]
    with pytest.raises(SpecbenchError, match="has no token '<nothing>'"):
        words.special("<nothing>")


def test_text_is_joined_by_rank_within_its_pieces(tmp_path):
    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"bc", b"abc", b" a", b"1a", b"12", "é".encode()]
    ranks = "\n".join(f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate(tokens))
    (tmp_path / "ranks").write_text(ranks)
    (tmp_path / "vision").write_text("<|image token|>\n")
    words = Emu3Words(tmp_path / "ranks", tmp_path / "vision")
    a, c, one, two = (ord(letter) for letter in "ac12")
    assert words.ids("abc") == [258]
    assert words.ids("bcab") == [257, 256], "the first join is the one of lowest rank"
    assert words.ids("a ac") == [a, 259, c], "a space belongs to the word behind it"
    assert words.ids("a ab") == [a, 32, 256]
    assert words.ids("12a1") == [one, two, a, one], "digits stand alone"
    assert words.ids("e\u0301") == [262], "composed first"
    assert words.ids("") == []


def test_the_prompt_and_its_negative(target):
    words = target.words
    image = [words.special("<|image start|>"), *words.ids("4*4"), words.special("<|image token|>")]
    begin = words.special("<|extra_203|>")
    prefix = target.prefix(PROMPTS[:1], guided=True)
    own, other = (prefix.ids[row, int(prefix.hidden[row]) :].tolist() for row in range(2))
    assert own == [begin, *words.ids("a red circle masterpiece, film grained, best quality."), *image]
    assert other[0] == begin
    assert other[-len(image) :] == image
    text = bytes(other[1 : -len(image)]).decode()
    assert text.startswith("lowres, bad anatomy, bad hands")
    assert text.endswith(
        "worst quality, low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
    )


@pytest.mark.parametrize("outputs", ["slice"], indirect=True)
def test_a_slice_sees_positions_that_two_codes_share(outputs, target, monkeypatch, record_property):
    share_positions(monkeypatch)
    with pytest.raises(AssertionError, match="logits"):
        compare_with_gold(outputs.folder / "emu3_tiny", outputs, target, monkeypatch, record_property)


def test_a_whole_image_with_its_row_ends_is_one_plain_sequence(target):
    first, row_end = (target.words.special(name) for name in ("<|visual token 000000|>", "<|extra_200|>"))
    words = target.network.model.embed_tokens
    check_whole_image_is_one_plain_sequence(target, lambda code: words(code + first), row_end)


def test_padding_changes_nothing(target, monkeypatch):
    check_padding_changes_nothing(target, monkeypatch)


def test_the_suite_of_targets_passes(target):
    result = target_conformance("emu3/test", target)
    assert result.passed, result.detail


def test_trees_equal_their_paths_across_row_ends(target):
    assert check_trees_equal_their_paths(target, [2, 4, 3], rounds=2) < 1e-9


def test_replay_is_ar_token_for_token(tmp_path):
    """With few codes, so that some guesses are right."""
    emu3_tiny.write(tmp_path, side=5, codes=8, dtype=torch.float64)
    check_replay_is_ar(load(tmp_path, 5, torch.float64))


def test_passes_never_wait_for_the_device(target):
    check_passes_never_wait(target)


def test_decodes_wait_once_per_pass(target):
    check_decodes_wait_once_per_pass(target)


def test_both_ways_of_counting_are_reported(target):
    decoded = build_decoder({"decoder": "ar"}, None, Sampling(guidance=3.0)).decode(target, PROMPTS[:1], seed=0)
    assert decoded.trace.nfe.tolist() == [16]
    assert decoded.trace.steps_with_row_ends.tolist() == [20]


def test_what_does_not_fit_is_named(small, tmp_path):
    for file in small.iterdir():
        (tmp_path / file.name).symlink_to(file)
    state = load_file(small / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    kept = state.pop("model.norm.weight")
    save_file({**state, "model.extra": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(SpecbenchError, match=r"unexpected model\.extra; missing model\.norm\.weight"):
        load(tmp_path, 4)
    save_file({**state, "model.norm.weight": kept}, tmp_path / "model.safetensors")
    raw = json.loads((small / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**raw, "vocab_size": 300}))
    with pytest.raises(SpecbenchError, match="belongs to another model"):
        load(tmp_path, 4)
    (tmp_path / "config.json").write_text(json.dumps({**raw, "model_type": "llama"}))
    with pytest.raises(SpecbenchError, match="Emu3 has 'Emu3' or 'emu3'"):
        load(tmp_path, 4)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "vision").unlink()
    with pytest.raises(SpecbenchError, match="put the files of BAAI/Emu3-VisionTokenizer into"):
        load(tmp_path, 4)


def test_the_stated_sizes_are_those_of_the_network(tmp_path):
    model = registry.model("emu3")
    sizes, side = model.sizes, model.recipe("official")["side"]
    language = {
        "vocab_size": 184622,
        "hidden_size": sizes["width"],
        "intermediate_size": sizes["feedforward"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
    }
    vision = {"model_type": "Emu3VisionVQ", "codebook_size": 32768, "embed_dim": 4, "z_channels": 4, "ch": 256}
    vision |= {"ch_mult": [1, 2, 2, 4], "num_res_blocks": 2, "attn_resolutions": [3], "temporal_downsample_factor": 4}
    (tmp_path / "config.json").write_text(json.dumps(vision))
    with torch.device("meta"):
        network = Emu3Network(language, sizes["codes"], 151854, 151846)
        pictures = Emu3Pictures(tmp_path / "config.json")
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(sizes["parameters"], rel=0.02)
    assert sum(p.numel() for p in pictures.parameters()) == pytest.approx(sizes["picture_parameters"], rel=0.02)
    assert (side**2, side) == (sizes["tokens"], sizes["row_ends"])
    assert pictures.factor * side == int(re.search(r"(\d+)×", model.summary)[1])


def test_the_sizes_of_one_family_share_their_protocols():
    base, tiny = (registry.model(name).protocols for name in ("emu3", "emu3/tiny"))
    assert {k: {**v, "side": 0} for k, v in tiny.items()} == {k: {**v, "side": 0} for k, v in base.items()}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sjd", "scd"])
def test_the_law_is_that_of_ar(tmp_path, method):
    """With a short prompt: reading the release's 203 bytes of it is most of the work, and not what is tested."""
    emu3_tiny.write(tmp_path, side=4, codes=24, layers=1)
    check_law_is_that_of_ar(load_folder("emu3", tmp_path, side=4, template="{prompt}", negative="bad"), method)
