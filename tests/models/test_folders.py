"""A folder in the real format given as model.path: it works for every family; what is wrong with it is one sentence.

Through the command line, since the exit code and the sentence are what a user meets.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from specbench.bench import registry
from specbench.errors import SpecbenchError
from specbench.models import emu3, janus, llamagen_tiny, lumina, source, tiny
from tests.cli.commands import ROOT, call, one_sentence

MODEL_FILES = {
    "janus": "model.safetensors",
    "lumina": "model.safetensors",
    "llamagen": "t2i_XL_stage1_256.pt",
    "emu3": "model.safetensors",
    "cosmos": "model.pt",
}
"""Family and the file of its language model."""

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """A family's own folder in the sizes that its recipe asks for: copied, so that a test may damage it."""

    def make(family: str) -> Path:
        made = tmp_path / family
        if family in ("lumina", "llamagen"):  # a recipe says how many codes a side has, and how many heads there are
            made.mkdir()
            if family == "lumina":
                tiny.write_lumina(made, side=48)
            else:
                llamagen_tiny.write(made, side=16, heads=20)
            return made
        return Path(shutil.copytree(tiny.cached(family), made))

    return make


def stored(file: Path, change: Change) -> None:
    """Change the tensors of a weight file."""
    if file.suffix == ".safetensors":
        state = load_file(file)
        change(state)
        save_file(state, file)
        return
    whole = torch.load(file, weights_only=True)
    change(whole["model"])
    torch.save(whole, file)


def refused(capsys: pytest.CaptureFixture[str], family: str, folder: Path) -> str:
    """What a run says about a folder, which must be one sentence and exit code 1."""
    words = ("run", f"model={family}", f"model.path={folder}", "method=ar", "prompt=a red ring", "--quiet")
    code, out, err = call(capsys, *words, "--out", str(folder.parent / "runs"))
    assert (code, out) == (1, "")
    assert one_sentence(err), err
    assert "internal error" not in err
    return err


@pytest.mark.parametrize("family", MODEL_FILES)
def test_a_folder_stands_for_the_real_model(folder, family):
    target = registry.load_target(family, path=str(folder(family)))
    assert target.grid.size == {"janus": 64, "lumina": 2304, "llamagen": 256, "emu3": 8100, "cosmos": 144}[family]
    assert not target.random_weights, "nobody can know what a folder holds"


def lose(state: dict[str, Any]) -> None:
    del state[sorted(name for name in state if "layers.1." in name)[0]]


def add(state: dict[str, Any]) -> None:
    state["who.knows.weight"] = torch.zeros(2)


def cut(state: dict[str, Any]) -> None:
    name = sorted(name for name in state if "layers.1." in name and state[name].dim() == 2)[0]
    state[name] = state[name][:-1].clone()


@pytest.mark.parametrize("family", MODEL_FILES)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose, r"do not fit: missing \S*layers\.1\.\S+$"),
        (add, r"do not fit: unexpected who\.knows\.weight$"),
        (cut, r"do not fit: \S*layers\.1\.\S+ is \[\d+, \d+\], expected \[\d+, \d+\]$"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, capsys, family, change, says):
    made = folder(family)
    stored(made / MODEL_FILES[family], change)
    assert re.search(says, refused(capsys, family, made))


@pytest.mark.parametrize("family", MODEL_FILES)
def test_files_that_are_cut_short_or_were_never_fetched_are_named(folder, capsys, family):
    made, name = folder(family), MODEL_FILES[family]
    whole = (made / name).read_bytes()
    for rest in (len(whole) // 2, 0):
        (made / name).write_bytes(whole[:rest])
        assert f"{made / name} cannot be read as weights (is it complete?): " in refused(capsys, family, made)
    (made / name).write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{0:064}\nsize 9976576152\n")
    said = refused(capsys, family, made)
    assert f"{name} (what is there is a Git LFS pointer, not the file) not found in {made}" in said


@pytest.mark.parametrize("family", MODEL_FILES)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{not json", "cannot be read as JSON: "),
        ("\udcff", "cannot be read as JSON: "),
        ("[]", "holds no JSON object"),
        ('{"model_type": "gpt2", "insert_cross_attn": true}', "gpt2|insert_cross_attn"),
    ],
)
def test_a_configuration_that_is_none_is_named(folder, capsys, family, text, says):
    made = folder(family)
    (made / "config.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    said = refused(capsys, family, made)
    assert str(made / "config.json") in said
    assert re.search(says, said)


@pytest.mark.parametrize(
    ("family", "change", "says"),
    [
        ("janus", lambda raw: raw.pop("gen_vision_config"), "config.json lacks 'gen_vision_config'"),
        ("janus", lambda raw: raw["language_config"].update(hidden_size="wide"), "describes no model that can be"),
        ("emu3", lambda raw: raw.update(vocab_size="many"), "describes no model that can be built: "),
        ("lumina", lambda raw: raw.update(num_attention_heads=0), "describes no model that can be built: "),
        ("llamagen", lambda raw: raw.update(d_model="x"), "describes no model that can be built: "),
        ("cosmos", lambda raw: raw.update(n_heads="four"), "describes no model that can be built: "),
    ],
)
def test_settings_that_build_no_model_are_the_files_fault(folder, capsys, family, change, says):
    made = folder(family)
    raw = json.loads((made / "config.json").read_text())
    change(raw)
    (made / "config.json").write_text(json.dumps(raw))
    assert says in refused(capsys, family, made)


@pytest.mark.parametrize("family", MODEL_FILES)
def test_a_missing_file_is_named_alone(folder, capsys, family):
    """And ``doctor`` shows exactly that one, with the folder it belongs into."""
    made = folder(family)
    (made / "config.json").unlink()
    said = refused(capsys, family, made)
    assert f"config.json not found in {made}, to be had from " in said
    assert said.count("not found") == 1
    code, out, _ = call(capsys, "doctor", f"model={family}", f"model.path={made}", "--json")
    rows = {row["name"]: row for row in json.loads(out)["findings"] if row["state"] != "ok"}
    assert code == 1
    assert list(rows) == [f"{family}: config.json"]
    assert rows[f"{family}: config.json"]["detail"] == f"config.json not in {made}"
    assert rows[f"{family}: config.json"]["next_step"].endswith(f" into {made}")


@pytest.mark.parametrize("text", ["{nope", "[]", '{"weight_map": {"a": 3}}', '{"weight_map": []}', "{}"])
def test_an_index_of_shards_that_is_none_is_named(folder, capsys, text):
    made = folder("janus")
    (made / "model.safetensors.index.json").write_text(text)
    assert "a readable model.safetensors.index.json not found in " in refused(capsys, "janus", made)


def test_codes_that_the_vocabulary_does_not_list_are_refused(folder, capsys):
    made = folder("emu3")
    listed = (made / emu3.VISION).read_text().splitlines()
    (made / emu3.VISION).write_text("\n".join(listed[:-1]))
    assert "has no token '<|visual token 000063|>'" in refused(capsys, "emu3", made)
    (made / emu3.VISION).write_text("\n".join([*listed[:-2], "<|another|>", *listed[-2:]]))
    assert "does not list the codes 0…63 one behind the other" in refused(capsys, "emu3", made)


def test_the_vision_tokenizer_may_lie_under_the_root(folder, tmp_path):
    """Both parts of Emu3 have a config.json and weights: those of the model must not be taken for the other's."""
    made = folder("emu3")
    apart = tmp_path / "root" / "BAAI" / "Emu3-VisionTokenizer"
    shutil.copytree(made / "vision", apart)
    inside = source.locate(registry.model("emu3").weights, str(made), tmp_path / "root")
    assert inside[2].folder == made / "vision"
    shutil.rmtree(made / "vision")
    found = source.locate(registry.model("emu3").weights, str(made), tmp_path / "root")
    assert [part.missing for part in found] == [(), (), ()]
    assert found[2].folder == apart


def specials(name: str) -> set[str]:
    """The special words that a family's code looks up, for one model of it."""
    family, side = registry.model(name).family, registry.model(name).recipe("official").get("side")
    if family == "janus":
        return {janus.BEGIN, janus.PAD, janus.BEGIN_OF_IMAGE}
    if family == "lumina":
        words = {lumina.BEGIN, lumina.PAD, lumina.SEPARATOR, lumina.BEGIN_OF_IMAGE, lumina.ROW_END}
        return words | {lumina.size_token(int(side or 0))}
    if family == "emu3":
        return {emu3.BEGIN, emu3.PAD, emu3.IMAGE_START, emu3.IMAGE_TOKEN, emu3.ROW_END}
    return {"</s>", "<pad>"} if family == "llamagen" else set()


@pytest.mark.parametrize("name", sorted(name for name, model in registry.models().items() if model.family))
def test_explain_names_the_words_that_the_code_looks_up(name):
    """The YAML files are for people; this keeps them true to the code."""
    tokens = registry.model(name).tokens
    assert set(re.findall(r"<[^>]*>", " ".join(tokens.values()))) == specials(name)
    recipe = registry.model(name).recipe("official")
    assert ("forced behind every" in tokens["row_end"]) == (registry.model(name).family in ("lumina", "emu3"))
    if "forced" in tokens["row_end"]:
        assert f"every {recipe['side']} codes" in tokens["row_end"]


@pytest.mark.parametrize("family", ["janus", "lumina", "emu3"])
def test_explain_names_them_in_the_order_of_a_prompt(family):
    from specbench.decoding.interfaces import Prompt

    target, stated = registry.load_target(f"{family}/tiny"), registry.model(f"{family}/tiny").tokens["prompt"]
    row = target.prefix([Prompt("a", "x")], False).ids[0].tolist()
    number = target.table.__getitem__ if family == "lumina" else target.words.special
    named = {number(word): word for word in re.findall(r"<[^>]*>", stated)}
    assert [named[i] for i in row if i in named] == re.findall(r"<[^>]*>", stated)


def test_every_model_without_weights_is_refused_before_anything_heavy_is_imported(tmp_path):
    """In a process of its own, where an import would be seen."""
    named = {name: model.weights for name, model in registry.models().items() if model.weights}
    code = (
        "import sys; from specbench.cli.main import run_cli\n"
        "for words in (['run'], ['explain']):\n"
        f"    for name in {list(named)}:\n"
        "        code = run_cli([*words, f'model={name}', 'method=scd'])\n"
        "        assert code == (words == ['run']), (words, name, code)\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules), 'imported for nothing'"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "SPECBENCH_WEIGHTS_ROOT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = dict(zip(named, done.stderr.splitlines(), strict=True))
    for name, parts in named.items():
        assert said[name].startswith(f"specbench: model={name} has no weights here: ")
        assert "add --weights-root ROOT" in said[name]
        for part in parts:
            assert (
                f"to be had from {' or '.join(part.hubs)} ({part.gigabytes:g} GB; licence: {part.licence})"
                in said[name]
            )
            assert all(file in said[name] for file in part.files if file != source.WEIGHTS)


@pytest.mark.parametrize("page", ["README.md", "docs/models.md"])
def test_the_pages_name_what_to_fetch(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, model in registry.models().items():
        for part in model.weights:
            assert part.hubs[0] in text or name in ("lumina/1024", "lumina/512", "janus/1b"), (name, part.hubs[0])
            assert f"{part.gigabytes:g}" in text or part.gigabytes < 0.1, (name, part)


@pytest.mark.parametrize("error", [SafetensorError("I/O error: No space left"), RuntimeError("failed writing file")])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors and torch raise errors of their own where a disk is full, not OSError."""

    def full(folder: Path) -> None:
        (folder / "config.json").write_text("{", encoding="utf-8")
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(tiny.WRITERS, "janus", full)
    with pytest.raises(SpecbenchError, match=f"cannot be written to .*: {error}"):
        tiny.cached("janus")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
