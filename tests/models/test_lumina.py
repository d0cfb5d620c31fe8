"""Lumina-mGPT: equal to the official code on its own format, and row ends that no method ever sees."""

from __future__ import annotations

import json
import re
from dataclasses import replace
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
from specbench.models import checkpoint, lumina, tiny
from specbench.models.lumina import LuminaNetwork, LuminaTarget, read_config
from specbench.models.prompted import Prefix
from specbench.models.vqgan import VQConfig, VQDecoder, chameleon_name
from specbench.verify.targets import target_conformance
from tests.models.families import (
    PROMPTS,
    agree,
    check_decodes_wait_once_per_pass,
    check_law_is_that_of_ar,
    check_padding_changes_nothing,
    check_passes_never_wait,
    check_replay_is_ar,
    check_trees_equal_their_paths,
    check_whole_image_is_one_plain_sequence,
    codes,
    load_folder,
    share_positions,
    start,
    whole,
)

REAL = ("lumina", "lumina/768", "lumina/1024", "lumina/512")


def load(folder: Path, side: int, dtype: torch.dtype = torch.float32) -> LuminaTarget:
    return load_folder("lumina", folder, dtype, side=side)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    tiny.write_lumina(folder, side=4, codes=32, dtype=torch.float64)
    return folder


@pytest.fixture(scope="module")
def target(small: Path) -> LuminaTarget:
    return load(small, 4, torch.float64)


def test_logits_and_hidden_states_are_the_official_codes(outputs, tmp_path, monkeypatch, record_property):
    """Row 1 is left-padded by 5, its pads are masked: what the canvas does with prompts of unequal length."""
    source = outputs.folder / "lumina_tiny"
    tiny.write_lumina(tmp_path, side=4)
    config = json.loads((source / "config.json").read_text())
    for number, name in enumerate((lumina.SEPARATOR, lumina.ROW_END, lumina.size_token(4)), start=71):
        config["vocabulary_map"][name] = number
    pictures = VQDecoder(
        VQConfig(64, 8, latent=8, width=32, multiples=(1, 1), blocks=1, attention=False, unit_codes=False)
    )
    torch.save({tiny.released_name(k, 2): v for k, v in pictures.state_dict().items()}, tmp_path / "vqgan.ckpt")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to(source / "model.safetensors")
    target, gold = load(tmp_path, 4), torch.load(source / "gold.pt", weights_only=True)
    for length in (6, 13, 20):
        for hidden, logits in ((torch.tensor([0, 5]), gold["b"]), (torch.tensor([0, 0]), gold["a"])):
            prefix = Prefix(gold["ids"][:, :length], hidden, bool(hidden.any()))
            monkeypatch.setattr(LuminaTarget, "prefix", lambda *_, prefix=prefix: prefix)
            out = target.begin([Prompt("0", ""), Prompt("1", "")]).forward(start(2))
            expected = logits[:, length - 1, target.network.words]
            outputs.agree(record_property, "logits", out.logits[:, 0], expected)
            if logits is gold["a"]:
                outputs.agree(record_property, "hidden states", target.norm(out.h[0, :, 0]), gold["h"][:, length - 1])


def test_pictures_are_the_official_decoders(golden, record_property):
    gold = torch.load(golden / "vqgan_tiny" / "gold.pt", weights_only=True)
    facts, file = gold["dd"], golden / "vqgan_tiny" / "vqgan.ckpt"
    rows, width = dict(checkpoint.tensors(file))["quantize.embedding.weight"].shape
    with torch.device("meta"):
        decoder = VQDecoder(
            VQConfig(
                rows,
                width,
                facts["z_channels"],
                facts["ch"],
                tuple(facts["ch_mult"]),
                facts["num_res_blocks"],
                attention=False,
                unit_codes=False,
            )
        )
    checkpoint.fill(decoder, [file], lambda name: chameleon_name(name, 4), lambda _: torch.float32, "cpu")
    with torch.inference_mode():
        agree(record_property, "pixels", decoder.decode(gold["codes"].view(1, 5, 6)), gold["px"], most=2e-5)
    assert decoder.pixels(gold["codes"].view(1, 5, 6)).shape == (1, 3, 40, 48)


def test_a_whole_image_with_its_row_ends_is_one_plain_sequence(target):
    network = target.network
    check_whole_image_is_one_plain_sequence(
        target, lambda code: network.model.embed_tokens(network.words[code]), target.table[lumina.ROW_END]
    )


@pytest.mark.parametrize("outputs", ["slice"], indirect=True)
def test_a_slice_sees_positions_that_two_codes_share(outputs, tmp_path, monkeypatch, record_property):
    share_positions(monkeypatch)
    with pytest.raises(AssertionError, match="logits"):
        test_logits_and_hidden_states_are_the_official_codes(outputs, tmp_path, monkeypatch, record_property)


def test_padding_changes_nothing(target, monkeypatch):
    check_padding_changes_nothing(target, monkeypatch)


def test_the_suite_of_targets_passes(target):
    result = target_conformance("lumina/test", target)
    assert result.passed, result.detail


@pytest.mark.parametrize("committed", [[2, 5, 3], [4, 3, 1], [1, 4, 8]])
def test_trees_equal_their_paths_across_row_ends(target, committed):
    assert check_trees_equal_their_paths(target, committed, rounds=2) < 1e-9


def test_a_tree_that_keeps_its_first_columns_is_the_chain(target):
    """Without a path the first columns stay, and row ends are where they belong for the next pass."""
    tokens = codes(target)
    parents = torch.tensor([[-1, 0, 1, 2, 3, 0]]).expand(3, -1)
    canvas = target.begin(PROMPTS, 3.0)
    canvas.forward(torch.cat([start(), tokens[:, :4], tokens[:, :1]], 1), parents)
    canvas.keep(torch.tensor([5, 4, 3]))
    kept = torch.tensor([5, 4, 3])
    after = canvas.forward(tokens.gather(1, kept[:, None] - 1)).logits
    expected = whole(target, tokens).logits
    assert (after[:, 0] - expected[torch.arange(3), kept]).abs().max() < 1e-9


def test_replay_is_ar_token_for_token(target):
    check_replay_is_ar(target, window=7)


def test_passes_never_wait_for_the_device(target):
    check_passes_never_wait(target)


def test_decodes_wait_once_per_pass(target):
    check_decodes_wait_once_per_pass(target)


def test_both_ways_of_counting_are_reported(target):
    decoded = build_decoder({"decoder": "ar"}, None, Sampling(guidance=3.0)).decode(target, PROMPTS, seed=0)
    assert decoded.trace.nfe.tolist() == [16] * 3
    assert decoded.trace.steps_with_row_ends.tolist() == [20] * 3


def test_the_prompt_and_its_unconditional_rows(target):
    number, words = target.table, target.words
    size = number[lumina.size_token(4)]
    image = [number[lumina.BEGIN_OF_IMAGE], size, size]
    text = "Generate an image of 16x16 according to the following prompt:\na red circle"
    expected = [number["<s>"], *words.ids(text), number[lumina.SEPARATOR], *image]
    official = target.prefix(PROMPTS[:1], guided=True)
    assert official.ids[0].tolist() == expected
    assert official.ids[1, int(official.hidden[1]) :].tolist() == image
    sjd = target.follow({**target.protocol, "unconditional": "separator"}).prefix(PROMPTS[:1], guided=True)
    assert sjd.ids[1, int(sjd.hidden[1]) :].tolist() == [number[lumina.SEPARATOR], *image]


def test_special_words_have_the_published_numbers():
    """Ids of the release are those of its reserved words plus 4: separator 8710, row end 8803, 768 pixels 8828."""
    names = (lumina.SEPARATOR, lumina.ROW_END, lumina.size_token(32), lumina.size_token(48), lumina.size_token(64))
    assert [int(re.sub(r"\D", "", name)) + 4 for name in names] == [8710, 8803, 8820, 8828, 8836]
    assert lumina._code("IMGIMGFDZ") == 53


def test_the_vocabulary_table_decides_which_words_are_codes(small, tmp_path):
    config = json.loads((small / "config.json").read_text())
    table = config["vocabulary_map"]
    table["IMGIMGAZ"], table["IMGIMGBZ"] = table["IMGIMGBZ"], table["IMGIMGAZ"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "model.safetensors", "vqgan.ckpt"):
        (tmp_path / name).symlink_to(small / name)
    swapped, plain = load(tmp_path, 4, torch.float64), load(small, 4, torch.float64)
    first, second = (t.begin(PROMPTS[:1]).forward(start(1)).logits[0, 0] for t in (swapped, plain))
    assert torch.equal(first[[1, 0]], second[:2])
    assert torch.equal(first[2:], second[2:])
    del table["IMGIMGAZ"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecbenchError, match="must name the codes 0…31; it names 31"):
        load(tmp_path, 4)


def test_a_missing_key_and_a_missing_special_word_are_named(small, tmp_path):
    for name in ("config.json", "tokenizer.json", "vqgan.ckpt"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    state = load_file(small / "model.safetensors")
    gone = state.pop("model.layers.1.self_attn.q_norm.bias")
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(SpecbenchError, match=r"missing model\.layers\.1\.self_attn\.q_norm\.bias"):
        load(tmp_path, 4)
    save_file({**state, "model.layers.1.self_attn.q_norm.bias": gone}, tmp_path / "model.safetensors")
    with pytest.raises(SpecbenchError, match="vocabulary_map lacks <reserved08804>"):
        load(tmp_path, 8)


def test_norms_of_a_parallel_training_run_repeat_for_neighbouring_heads(small):
    network = load(small, 4).network
    network.model.config.num_attention_heads = 4
    stored = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert network.stored("model.layers.0.self_attn.q_norm.weight", stored).tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]


@pytest.mark.parametrize("name", REAL)
def test_the_stated_sizes_are_those_of_the_network(name, small):
    model = registry.model(name)
    sizes, base = model.sizes, read_config(small / "config.json")
    language = {
        "vocab_size": 65536,
        "hidden_size": sizes["width"],
        "intermediate_size": sizes["feedforward"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
    }
    vq = VQConfig(8192, 256, attention=False, unit_codes=False)
    config = replace(base, language=language, vq=vq, codes=tuple(range(4, 8196)))
    with torch.device("meta"):
        network, decoder = LuminaNetwork(config), VQDecoder(vq)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(sizes["parameters"], rel=0.02)
    assert sum(p.numel() for p in decoder.parameters()) == pytest.approx(sizes["picture_parameters"], rel=0.02)
    side = model.recipe("official")["side"]
    assert (side**2, side) == (sizes["tokens"], sizes["row_ends"])
    assert vq.factor * side == int(re.search(r"(\d+)×", model.summary)[1])


def test_the_sizes_of_one_family_share_their_protocols():
    base = registry.model("lumina").protocols
    for name in (*REAL, "lumina/tiny"):
        own = registry.model(name).protocols
        assert {k: {**v, "side": 0} for k, v in own.items()} == {k: {**v, "side": 0} for k, v in base.items()}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sjd", "scd"])
def test_the_law_is_that_of_ar(tmp_path, method):
    tiny.write_lumina(tmp_path, side=4, codes=24, layers=1)
    check_law_is_that_of_ar(load(tmp_path, 4), method)
