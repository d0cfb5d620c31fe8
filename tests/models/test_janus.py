"""Janus-Pro: equal to the official code on its own format, and a well-behaved target."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

pytest.importorskip("transformers")

from specbench.bench import registry
from specbench.bench.config import compose
from specbench.bench.planning import prepare
from specbench.decoding.interfaces import Prompt
from specbench.errors import SpecbenchError
from specbench.models import janus, tiny
from specbench.models.janus import JanusNetwork, JanusTarget, read_config
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
    codes,
    load_folder,
    share_positions,
    start,
    whole,
)

GOLD_CONFIG = {
    "model_type": "multi_modality",
    "language_config": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": 200,
        "max_position_embeddings": 256,
    },
    "gen_vision_config": {"params": {"image_token_size": 512, "n_embed": 8, "decoder_ch_mult": [1, 2]}},
    "vision_config": {"params": {"image_size": 12}},
}


def load(folder: Path, dtype: torch.dtype = torch.float32) -> JanusTarget:
    return load_folder("janus", folder, dtype)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    tiny.write_janus(folder, side=5, codes=32, dtype=torch.float64)
    return folder


@pytest.fixture(scope="module")
def target(small: Path) -> JanusTarget:
    return load(small, torch.float64)


@pytest.fixture
def official(outputs: Official, tmp_path: Path) -> Path:
    """The golden checkpoint as a folder with everything that a real one has; a slice gets some picture decoder."""
    tiny.write_tokenizer(tmp_path, (janus.BEGIN, janus.PAD, janus.BEGIN_OF_IMAGE))
    (tmp_path / "config.json").write_text(json.dumps(GOLD_CONFIG))
    state = torch.load(outputs.folder / "janus_tiny" / "pytorch_model.bin", weights_only=True)
    if not any(name.startswith("gen_vision_model.") for name in state):
        with torch.device("meta"):
            pictures = JanusNetwork(read_config(tmp_path / "config.json")).gen_vision_model
        state |= {f"gen_vision_model.{k}": torch.zeros(v.shape) for k, v in pictures.state_dict().items()}
    torch.save(state, tmp_path / "pytorch_model.bin")
    return tmp_path


def compare_with_gold(target: JanusTarget, outputs: Official, monkeypatch: pytest.MonkeyPatch, record) -> None:
    """A slice has the logits of the first codes alone, and no pixels."""
    gold = torch.load(outputs.folder / "janus_tiny" / "gold.pt", weights_only=True)
    prefix = Prefix(gold["ids"], torch.zeros(2, dtype=torch.int64), False)
    monkeypatch.setattr(JanusTarget, "prefix", lambda *_: prefix)
    canvas, image = target.begin([Prompt("0", ""), Prompt("1", "")]), gold["img"]
    first = canvas.forward(torch.cat([start(2), image[:, :3]], 1))
    canvas.keep(torch.tensor([4, 4]))
    rest = canvas.forward(image[:, 3:])
    logits = torch.cat([first.logits, rest.logits], 1)
    h = target.norm(torch.cat([first.h[0], rest.h[0]], 1))
    outputs.agree(record, "logits", logits[..., : gold["lg"].shape[-1]], gold["lg"][:, 6:])
    outputs.agree(record, "hidden states", h, gold["h"][:, 6:])
    if outputs.rounded:
        return
    pixels = target.network.gen_vision_model.decode(gold["codes"].view(2, 6, 6))
    agree(record, "pixels", pixels, gold["px"])
    shown = ((gold["px"] + 1) / 2 * 255).clamp(0, 255)
    assert (target.pixels(gold["codes"]).float() - shown).abs().max() < 1.01


def test_the_original_layout_computes_what_the_official_code_does(official, outputs, monkeypatch, record_property):
    compare_with_gold(load(official), outputs, monkeypatch, record_property)


def native_name(name: str) -> str:
    """Original to native, written from the table of names and not from the loader's code."""
    for ours, native in (
        (r"^language_model\.model\.", "model.language_model."),
        (r"^language_model\.lm_head", "lm_head"),
        (r"^gen_embed", "model.generation_embeddings"),
        (r"^gen_aligner\.layers\.0", "model.generation_aligner.fc1"),
        (r"^gen_aligner\.layers\.2", "model.generation_aligner.hidden_layers.0"),
        (r"^gen_head\.output_mlp_projector", "model.generation_head.proj_out"),
        (r"^gen_head\.vision_head", "model.generation_head.vision_head"),
        (r"^gen_vision_model", "model.vqmodel"),
        (r"^aligner", "model.aligner"),
        (r"^vision_model", "model.vision_model"),
        (r"(vqmodel\.decoder)\.conv_blocks", r"\1.up"),
        (r"(vqmodel\.encoder)\.conv_blocks", r"\1.down"),
        (r"(vqmodel\..*)\.res\.", r"\1.block."),
        (r"(vqmodel\..*\.mid)\.0\.", r"\1.block_1."),
        (r"(vqmodel\..*\.mid)\.1\.", r"\1.attn_1."),
        (r"(vqmodel\..*\.mid)\.2\.", r"\1.block_2."),
    ):
        name = re.sub(ours, native, name)
    return name


def test_the_native_layout_in_shards_computes_the_same(
    official, outputs, tmp_path_factory, monkeypatch, record_property
):
    folder = tmp_path_factory.mktemp("native")
    state = torch.load(official / "pytorch_model.bin", weights_only=True)
    state = {native_name(k): v for k, v in state.items() if not k.startswith("vision") and "codebook_used" not in k}
    names = sorted(state)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: state[name].contiguous() for name in members}, folder / shard)
    index = {"weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    params = GOLD_CONFIG["gen_vision_config"]["params"]
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "janus",
                "text_config": {"model_type": "llama", **GOLD_CONFIG["language_config"]},
                "vq_config": {"num_embeddings": 512, "channel_multiplier": params["decoder_ch_mult"]},
                "vision_config": {"image_size": 12},
            }
        )
    )
    (folder / "tokenizer.json").write_bytes((official / "tokenizer.json").read_bytes())
    compare_with_gold(load(folder), outputs, monkeypatch, record_property)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SpecbenchError, match=r"lists model-00002-of-00002\.safetensors"):
        load(folder)


@pytest.mark.parametrize("outputs", ["slice"], indirect=True)
def test_a_slice_sees_positions_that_two_codes_share(official, outputs, monkeypatch, record_property):
    share_positions(monkeypatch)
    with pytest.raises(AssertionError, match="logits"):
        compare_with_gold(load(official), outputs, monkeypatch, record_property)


def test_a_whole_image_is_one_plain_sequence(target):
    check_whole_image_is_one_plain_sequence(target, target.embed, row_end=None)


def test_padding_changes_nothing(target, monkeypatch):
    check_padding_changes_nothing(target, monkeypatch)


def test_the_suite_of_targets_passes(target):
    result = target_conformance("janus/test", target)
    assert result.passed, result.detail


def test_trees_equal_their_paths(target):
    assert check_trees_equal_their_paths(target, [2, 5, 3]) < 1e-9


def test_a_tree_may_be_the_first_pass(target):
    tokens = codes(target)
    chain = target.begin(PROMPTS, 3.0).forward(torch.cat([start(), tokens[:, :3]], 1)).logits
    parents = torch.tensor([[-1, 0, 1, 2, 0]]).expand(3, -1)
    tree = target.begin(PROMPTS, 3.0).forward(torch.cat([start(), tokens[:, :3], tokens[:, :1]], 1), parents).logits
    assert torch.allclose(chain, tree[:, :4], atol=1e-9)
    assert torch.allclose(tree[:, 1], tree[:, 4], atol=1e-9)


def test_replay_is_ar_token_for_token(target):
    check_replay_is_ar(target)


def test_passes_never_wait_for_the_device(target):
    check_passes_never_wait(target)


def test_decodes_wait_once_per_pass(target):
    check_decodes_wait_once_per_pass(target)


def test_taps_are_the_states_between_layers(target):
    out = whole(target, codes(target))
    assert out.taps[0].shape == out.h.shape
    last = target.begin(PROMPTS, 3.0).forward(start(), taps=(1,))
    assert torch.equal(last.taps[1], last.h), "behind the last layer comes the final norm"


def test_the_unconditional_row_attends_to_pads_as_long_as_its_prompt(target):
    words = target.words
    assert words is not None
    prefix = target.prefix(PROMPTS[:2], guided=True)
    first, pad, image = (words.special(name) for name in (janus.BEGIN, janus.PAD, janus.BEGIN_OF_IMAGE))
    text = [first, *words.ids(f"<|User|>: {PROMPTS[1].text}\n\n<|Assistant|>:"), image]
    length = len(text)
    assert prefix.ids[1].tolist() == text
    assert prefix.ids[3].tolist() == [first, *[pad] * (length - 2), image]
    hidden = length - len(words.ids(f"<|User|>: {PROMPTS[0].text}\n\n<|Assistant|>:")) - 2
    assert prefix.hidden.tolist() == [hidden, 0, hidden, 0]
    assert words.ids("<|User|>") == [words.special("<|User|>")]


def test_the_script_protocol_filters_the_first_code_harder(target):
    script = target.follow({**registry.model("janus").recipe("scd_script"), "first_top_k": 5})
    assert "384x384" in script.protocol["template"]
    canvas = script.begin(PROMPTS)
    logits = canvas.forward(torch.cat([start(), codes(target)[:, :2]], 1)).logits
    assert (logits == -math.inf).sum(-1).tolist() == [[target.vocab - 5, 0, 0]] * 3
    assert script.network is target.network


def change(folder: Path, tmp_path: Path, edit) -> Path:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, tmp_path / "model.safetensors")
    return tmp_path


def drop(state: dict[str, Tensor]) -> None:
    del state["gen_embed.weight"]


def add(state: dict[str, Tensor]) -> None:
    state["language_model.model.layers.9.extra"] = torch.zeros(2)


def cut(state: dict[str, Tensor]) -> None:
    state["gen_head.vision_head.weight"] = state["gen_head.vision_head.weight"][:7].clone()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (drop, "missing gen_embed.weight"),
        (add, "unexpected language_model.model.layers.9.extra"),
        (cut, "gen_head.vision_head.weight is [7, 32], expected [32, 32]"),
    ],
)
def test_a_key_that_does_not_fit_is_named(small, tmp_path, edit, says):
    with pytest.raises(SpecbenchError, match=re.escape(says)):
        load(change(small, tmp_path, edit))


def test_code_in_a_pickle_is_not_run(small, tmp_path):
    folder = change(small, tmp_path, lambda state: None)
    (folder / "model.safetensors").unlink()
    torch.save({"gen_embed.weight": Path("x")}, folder / "pytorch_model.bin")
    with pytest.raises(SpecbenchError, match=r"pytorch_model\.bin cannot be read as weights"):
        load(folder)


def test_a_tokenizer_without_its_special_tokens_is_refused(small, tmp_path):
    folder = change(small, tmp_path, lambda state: None)
    tiny.write_tokenizer(folder, (janus.BEGIN, janus.PAD))
    with pytest.raises(SpecbenchError, match="has no token '<begin_of_image>'"):
        load(folder)


def test_other_weights_have_another_hash(small, tmp_path, target):
    assert load(small).weights_hash == target.weights_hash

    def nudge(state: dict[str, Tensor]) -> None:
        state["gen_embed.weight"][0, 0] += 1

    assert load(change(small, tmp_path, nudge)).weights_hash != target.weights_hash


@pytest.mark.parametrize(("name", "vocab"), [("janus", 102400), ("janus/1b", 102400)])
def test_the_stated_sizes_are_those_of_the_network(tmp_path, name, vocab):
    sizes = registry.model(name).sizes
    language = {
        "hidden_size": sizes["width"],
        "intermediate_size": sizes["feedforward"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "vocab_size": vocab,
    }
    config = {"model_type": "multi_modality", "language_config": language, "gen_vision_config": {"params": {}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_config(tmp_path / "config.json")
    with torch.device("meta"):
        network = JanusNetwork(read)
    pictures = sum(p.numel() for p in network.gen_vision_model.parameters())
    assert sum(p.numel() for p in network.parameters()) - pictures == pytest.approx(sizes["parameters"], rel=0.02)
    assert pictures == pytest.approx(sizes["picture_parameters"], rel=0.02)
    assert read.side**2 == sizes["tokens"] == 576
    assert read.vq.codes == sizes["codes"]


def test_what_a_config_leaves_out_is_the_7b(tmp_path):
    """The release's own file: most sizes are those of the Llama it was built from, and not written down."""
    language = {"model_type": "llama", "num_hidden_layers": 30, "vocab_size": 102400, "torch_dtype": "bfloat16"}
    vision = {"cls": "VQ-16", "params": {"image_token_size": 16384, "n_embed": 8}}
    config = {"model_type": "multi_modality", "language_config": language, "gen_vision_config": vision}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        network = JanusNetwork(read_config(tmp_path / "config.json"))
    assert network.gen_head.vision_head.weight.shape == (16384, 4096)
    assert network.trunk.layers[29].mlp.up_proj.weight.shape == (11008, 4096)
    assert network.trunk.config.rms_norm_eps == 1e-6


def test_the_sizes_of_one_family_share_their_protocols():
    for name in ("janus/1b", "janus/tiny"):
        assert registry.model(name).protocols == registry.model("janus").protocols


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sjd", "scd"])
def test_the_law_is_that_of_ar(tmp_path, method):
    tiny.write_janus(tmp_path, side=4, codes=24, layers=1)
    check_law_is_that_of_ar(load(tmp_path), method)


def test_the_scorer_of_the_drawn_world_says_nothing_about_models_that_were_not_taught_it():
    (group,) = prepare(compose(["model=janus/tiny", "method=ar", "prompts=scenes", "prompts.limit=1"]))
    assert group.prompts.scorer == "scenes" and group.unscored and group.scorer is None
    (own,) = prepare(compose(["model=mini/tiny", "method=ar", "prompts=scenes", "prompts.limit=1"]))
    assert own.scorer == "scenes"
