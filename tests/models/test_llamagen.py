"""LlamaGen text to image: equal to the official code on its own format, and a well-behaved target."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from transformers import T5Config, T5EncoderModel

from specbench import bench
from specbench.bench import registry
from specbench.bench.config import compose
from specbench.decoding.interfaces import Grid, Prompt
from specbench.errors import SpecbenchError
from specbench.models import checkpoint, llamagen, llamagen_tiny
from specbench.models.llamagen import LlamaGenNetwork, LlamaGenTarget, read_config
from specbench.models.llamagen_text import LENGTH, clean
from specbench.models.vqgan import VQDecoder
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
    codes,
    load_folder,
    share_positions,
    start,
    whole,
)

REAL = ("llamagen", "llamagen/256", "llamagen/512")


def load(folder: Path, side: int, dtype: torch.dtype = torch.float32) -> LlamaGenTarget:
    return load_folder("llamagen", folder, dtype, side=side, heads=llamagen_tiny.HEADS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    llamagen_tiny.write(folder, side=4, codes=32, dtype=torch.float64)
    return folder


@pytest.fixture(scope="module")
def target(small: Path) -> LlamaGenTarget:
    return load(small, 4, torch.float64)


def gold_network(file: Path) -> LlamaGenNetwork:
    with torch.device("meta"):
        network = LlamaGenNetwork(read_config(file, side=4, heads=4))
    checkpoint.fill(network, [file], llamagen.our_name, lambda _: torch.float32, "cpu")
    return network


WRAPPERS = {
    "as trained": lambda state: {"model": state, "steps": 7, "args": argparse.Namespace(model="GPT-XL")},
    "deepspeed": lambda state: {"module": state},
    "state_dict": lambda state: {"state_dict": state},
    "bare, with angles": lambda state: {**state, "freqs_cis": torch.zeros(136, 8, 2)},
}


@pytest.mark.parametrize("wrapper", list(WRAPPERS))
@pytest.mark.parametrize("slots", [120, 30])
def test_logits_are_the_official_codes(outputs, tmp_path, monkeypatch, record_property, wrapper, slots):
    """Captions of 20 and 30 tokens in the release's 120 slots, and in no more slots than the longer one needs."""
    gold = torch.load(outputs.folder / "llamagen_tiny" / "t2i_gold.pt", weights_only=True)
    state = torch.load(outputs.folder / "llamagen_tiny" / "t2i.pt", weights_only=True)["model"]
    torch.save(WRAPPERS[wrapper](state), tmp_path / "model.pt")
    target = LlamaGenTarget("gold", Grid(4, 4), 128, gold_network(tmp_path / "model.pt"), None, "")
    lengths = gold["em"].sum(1).long().tolist()
    assert lengths == [20, 30]
    states = (gold["cond"] * gold["em"][..., None])[:, LENGTH - slots :]
    monkeypatch.setattr(LlamaGenTarget, "prefix", lambda self, _, guided: self.conditions(states, lengths, guided))
    canvas, image = target.begin([Prompt("0", ""), Prompt("1", "")], 7.5), gold["toks"]
    first = canvas.forward(torch.cat([start(2), image[:, :5]], 1))
    canvas.keep(torch.tensor([6, 6]))
    rest = canvas.forward(image[:, 5:15])
    both = torch.cat([target.head(target.norm(out.h)) for out in (first, rest)], 2).flatten(0, 1)
    kept = gold["lg"].shape[-1]
    outputs.agree(record_property, "logits", both[..., :kept], gold["lg"])
    cond, uncond = gold["lg"].chunk(2)
    guided = torch.cat([first.logits, rest.logits], 1)[..., :kept]
    assert (guided - (uncond + 7.5 * (cond - uncond))).abs().max() <= 14 * outputs.most, "7.5 and 6.5 times"


def test_pictures_are_the_official_ones_of_the_same_decoder_in_janus(golden, tmp_path, record_property):
    """VQ-16's file has Janus's names without their beginning, and what only reading pictures needs beside them."""
    state = torch.load(golden / "janus_tiny" / "pytorch_model.bin", weights_only=True)
    state = {k.removeprefix("gen_vision_model."): v for k, v in state.items() if k.startswith("gen_vision_model.")}
    assert any(name.startswith("encoder.") for name in state)
    torch.save({"model": state}, tmp_path / "vq.pt")
    gold = torch.load(golden / "janus_tiny" / "gold.pt", weights_only=True)
    decoder = VQDecoder(llamagen.read_pictures(tmp_path / "vq.pt"))
    unused = llamagen.PICTURES_UNUSED
    checkpoint.fill(
        decoder, [tmp_path / "vq.pt"], lambda k: None if unused.match(k) else k, lambda _: torch.float32, "cpu"
    )
    agree(record_property, "pixels", decoder.decode(gold["codes"].view(2, 6, 6)), gold["px"])


def test_captions_are_encoded_as_transformers_encodes_them_in_120_slots(small, target):
    """Padding on the right under a mask, then what is not padding at the end of the slots, as the release does."""
    texts = ["a red circle", "two stars above a very blue square", ""]
    raw = {k: v for k, v in T5Config.from_pretrained(small).to_dict().items() if k != "dtype"}
    model = T5EncoderModel(T5Config(**raw)).double().eval()
    stored = dict(checkpoint.tensors(small / "model.safetensors"))
    wanted = {k: v for k, v in stored.items() if not k.startswith(("decoder.", "lm_head."))}
    model.load_state_dict({**wanted, "encoder.embed_tokens.weight": wanted["shared.weight"]})
    words, (states, lengths) = target.captions.words, target.captions.states(texts)
    for row, text in enumerate(texts):
        ids = [*words.ids(text), words.special("</s>")]
        padded = torch.tensor([ids + [words.special("<pad>")] * (LENGTH - len(ids))])
        with torch.inference_mode():
            expected = model(input_ids=padded, attention_mask=(torch.arange(LENGTH) < len(ids))[None].long())
        assert lengths[row] == len(ids)
        gap = (states[row, -len(ids) :] - expected.last_hidden_state[0, : len(ids)]).abs().max()
        assert gap < 1e-6
        assert not states[row, : -len(ids)].any()


def test_a_long_caption_is_cut_with_its_end_token(target):
    states, lengths = target.captions.states(["red " * 100])
    assert lengths == [LENGTH]
    assert states.shape[1] == LENGTH


@pytest.mark.parametrize(
    ("caption", "cleaned"),
    [
        ("A red circle above a blue square.", "a red circle above a blue square."),
        ("  Two   stars,three moons ", "two stars, three moons"),
        ("a%20cat+on a <b>mat</b> &amp; a dog", "a cat on a mat a dog"),
        ("“Fresh” — bread, see https://shop.com/x?y or www.shop.com", '"fresh" - bread, see ?y or'),
        ("this-is-my-cute-cat", "this is my cute cat"),
        ("an owl (photo.jpg) #12345 free shipping", "an owl"),
        ("'quoted'", "quoted"),
    ],
)
def test_captions_are_cleaned(caption, cleaned):
    assert clean(caption) == cleaned


@pytest.mark.parametrize("outputs", ["slice"], indirect=True)
def test_a_slice_sees_positions_that_two_codes_share(outputs, tmp_path, monkeypatch, record_property):
    share_positions(monkeypatch)
    with pytest.raises(AssertionError, match="logits"):
        test_logits_are_the_official_codes(outputs, tmp_path, monkeypatch, record_property, "deepspeed", 30)


def test_padding_changes_nothing(target, monkeypatch):
    check_padding_changes_nothing(target, monkeypatch)


def test_the_suite_of_targets_passes(target):
    result = target_conformance("llamagen/test", target)
    assert result.passed, result.detail


def test_trees_equal_their_paths(target):
    assert check_trees_equal_their_paths(target, [2, 5, 3], rounds=2) < 1e-9


def test_replay_is_ar_token_for_token(tmp_path):
    """With few codes, so that some guesses are right."""
    llamagen_tiny.write(tmp_path, side=6, codes=8, dtype=torch.float64)
    check_replay_is_ar(load(tmp_path, 6, torch.float64))


def test_passes_never_wait_for_the_device(target):
    check_passes_never_wait(target)


def test_decodes_wait_once_per_pass(target):
    check_decodes_wait_once_per_pass(target)


def test_more_slots_than_captions_need_change_nothing(target, monkeypatch):
    tokens = codes(target)
    short = whole(target, tokens).logits
    states, lengths = target.captions.states([prompt.text for prompt in PROMPTS])
    padded = torch.nn.functional.pad(states, (0, 0, LENGTH - states.shape[1], 0))
    monkeypatch.setattr(LlamaGenTarget, "prefix", lambda self, _, guided: self.conditions(padded, lengths, guided))
    assert (whole(target, tokens).logits - short).abs().max() < 1e-9


def test_what_does_not_fit_is_named(small, tmp_path):
    for file in small.iterdir():
        (tmp_path / file.name).symlink_to(file)
    model = tmp_path / llamagen.MODEL_FILE
    state = torch.load(model, weights_only=True)["model"]

    def says(changed: dict[str, torch.Tensor]) -> str:
        model.unlink()
        torch.save({"model": changed}, model)
        with pytest.raises(SpecbenchError) as caught:
            load(tmp_path, 4)
        return str(caught.value)

    assert "missing model.norm.weight" in says({k: v for k, v in state.items() if k != "norm.weight"})
    assert "unexpected layers.0.extra" in says({**state, "layers.0.extra": torch.zeros(2)})
    assert "output.weight is [7, 32], expected [32, 32]" in says({**state, "output.weight": torch.zeros(7, 32)})
    fewer = {**state, "tok_embeddings.weight": torch.zeros(16, 32)}
    assert re.search(r"has 16 codes and .* has 32", says(fewer))


def test_class_conditional_checkpoints_are_refused(golden):
    with pytest.raises(SpecbenchError, match=r"lacks cls_embedding\.uncond_embedding; it is class-conditional"):
        read_config(golden / "llamagen_tiny" / "c2i.pt", 4, 4)


def test_other_weights_have_another_hash(small, tmp_path, target):
    assert load(small, 4).weights_hash == target.weights_hash
    llamagen_tiny.write(tmp_path, side=4, codes=32, layers=1)
    assert load(tmp_path, 4).weights_hash != target.weights_hash


@pytest.mark.parametrize("name", REAL)
def test_the_stated_sizes_are_those_of_the_network(name):
    model = registry.model(name)
    sizes, recipe = model.sizes, model.recipe("official")
    config = llamagen.LlamaGenConfig(
        16384, sizes["width"], sizes["feedforward"], sizes["layers"], recipe["heads"], recipe["side"], 2048
    )
    text = T5Config(vocab_size=32128, d_model=2048, d_kv=64, d_ff=5120, num_heads=32, num_layers=24)
    text.feed_forward_proj, text.is_gated_act, text.dense_act_fn = "gated-gelu", True, "gelu_new"
    with torch.device("meta"):
        network, decoder, reader = LlamaGenNetwork(config), VQDecoder(llamagen.VQConfig()), T5EncoderModel(text)
    released = sum(p.numel() for p in network.parameters())
    assert released == pytest.approx(0.778e9, rel=0.005), "as published for XL text to image"
    reading = sum(p.numel() for p in reader.parameters())
    assert released + reading == pytest.approx(sizes["parameters"], rel=0.02)
    assert sum(p.numel() for p in decoder.parameters()) == pytest.approx(sizes["picture_parameters"], rel=0.02)
    assert recipe["side"] ** 2 == sizes["tokens"]
    assert recipe["heads"] == sizes["heads"]
    assert 16 * recipe["side"] == int(re.search(r"(\d+)×", model.summary)[1])


def test_the_sizes_of_one_family_share_their_protocols():
    base = registry.model("llamagen").protocols
    for name in (*REAL, "llamagen/tiny"):
        own = registry.model(name).protocols
        assert {k: {**v, "side": 0, "heads": 0} for k, v in own.items()} == {
            k: {**v, "side": 0, "heads": 0} for k, v in base.items()
        }


def test_the_tiny_model_runs_and_the_real_one_says_what_is_missing(tmp_path, monkeypatch):
    words = ["model=llamagen/tiny", "method=scd", "window=8", "prompt=a red circle", "model.protocol=sjd"]
    document = bench.run(compose(words), out=tmp_path)
    assert [cell["state"] for cell in document["cells"]] == ["done", "done"]
    assert any("llamagen/tiny has random weights" in text for text in document["warnings"])
    monkeypatch.setenv("SPECBENCH_WEIGHTS_ROOT", str(tmp_path))
    rows = {row["name"]: row for row in bench.doctor(models=["llamagen/512"])}
    assert rows["llamagen/512: t2i_XL_stage2_512.pt"]["state"] == "missing"
    assert "google/flan-t5-xl" in rows["llamagen/512: tokenizer.json"]["next_step"]
    with pytest.raises(SpecbenchError, match=r"has no weights here: t2i_XL_stage1_256\.pt not found"):
        bench.run(compose(["model=llamagen"]), out=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sjd", "scd"])
def test_the_law_is_that_of_ar(tmp_path, method):
    llamagen_tiny.write(tmp_path, side=4, codes=24, layers=1)
    check_law_is_that_of_ar(load(tmp_path, 4), method)


def test_what_is_dropped_of_a_caption_is_said(target):
    assert target.warnings(Prompt("a", "a red ring")) == []
    assert "tokens of a caption" in target.warnings(Prompt("a", "a red ring " * 182))[0]
    assert "nothing of the caption is left" in target.warnings(Prompt("a", "http://example.com"))[0]
