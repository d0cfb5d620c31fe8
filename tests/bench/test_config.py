from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from specbench import bench
from specbench.bench import paths, registry
from specbench.errors import UsageError

REFUSED = [
    ("method=sdc", "did you mean 'scd'"),
    ("windw=8", "did you mean 'window'"),
    ("sampling.topk=5", "did you mean 'sampling.top_k'"),
    ("method.fil=left", "did you mean 'method.fill'"),
    ("model=mini/tny", "did you mean 'mini/tiny'"),
    ("model=mini/", "did you mean 'mini'"),
    ("prompts=scene", "did you mean 'scenes'"),
    ("model.protocol=defalt", "did you mean 'default'"),
    ("dtype=flot32", "did you mean 'float32'"),
    ("device=gpu", "known: cpu, cuda"),
    ("scores=nun", "did you mean 'none'"),
    ("method.lossless=true", "unknown key"),
    ("+seed=3", "did you mean 'seed'"),
    ("window", "not of the form key=value"),
    ("~method", "not of the form key=value"),
    ("window=", "needs a value"),
    ("window=[", "cannot be read"),
    ("window=0", "at least 1"),
    ("window=-4", "at least 1"),
    ("window=x", "whole number"),
    ("window=1.5", "whole number"),
    ("window=true", "whole number"),
    ("batch=0", "at least 1"),
    ("seed=-1", "at least 0"),
    ("prompts.limit=0", "at least 1"),
    ("prompts.samples=0", "at least 1"),
    ("prompt=", "the prompt is empty"),
    ("prompt='  '", "the prompt is empty"),
    ("prompt=a\udcffb", "the prompt is not UTF-8 text"),  # how Python hands over a byte that is none
    ("sampling.temperature=0", "at least 0.001"),
    ("sampling.temperature=hot", "must be a number"),
    ("sampling.temperature=null", "must be a number"),
    ("sampling.top_k=0", "at least 1"),
    ("sampling.top_p=0", "at least 1e-06"),
    ("sampling.top_p=1.2", "at most 1"),
    ("sampling.guidance=-1", "at least 0"),
    ("sampling.guidance=inf", "at least 0"),
    ("prompts=file", "prompts.path"),
    ("prompts.path=nowhere.txt", "belongs to prompts=file"),
]


@pytest.mark.parametrize(("word", "answer"), REFUSED)
def test_a_wrong_word_is_answered_in_one_sentence(word: str, answer: str) -> None:
    with pytest.raises(UsageError) as caught:
        bench.compose([word])
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="given twice"):
        bench.compose(["window=8", "window=16"])


def test_a_missing_prompt_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"no file 'nowhere\.txt'"):
        bench.compose(["prompts=file", "prompts.path=nowhere.txt"])


def test_a_setting_that_the_method_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="method ar has no setting 'fill'"):
        bench.compose(["method=ar", "method.fill=left"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=ssd", "window=16"], "method ssd has no window: a pass reads a block of the grid (method.columns"),
        (["method=mtp,ssd", "window=16"], "method mtp or ssd has no window: a pass reads a block"),
        (["method=ar", "window=16,32"], "method ar has no window: a pass reads one token"),
        (["method=ar,ssd", "window=16"], "method ar or ssd has no window"),
    ],
)
def test_a_window_that_no_method_has_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        bench.compose(words)
    with pytest.raises(UsageError, match="has no window"):
        bench.explain([word.split(",")[0] for word in words])
    assert bench.compose([words[0], "window=null"])
    assert bench.compose(["method=ar", "window=1"])[0].window is None
    ssd, scd = bench.compose(["method=ssd,scd", "window=16"])
    assert (ssd.window, scd.window) == (None, 16)


def test_commas_sweep_and_points_that_ask_for_the_same_are_folded() -> None:
    requests = bench.compose(["method=ar,scd", "window=8,16,32"])
    assert [(r.method, r.window) for r in requests] == [("ar", None), ("scd", 8), ("scd", 16), ("scd", 32)]


def test_a_swept_setting_reaches_the_methods_that_have_it() -> None:
    ar, scd = bench.compose(["method=ar,scd", "method.fill=left"])
    assert "fill" not in ar.settings
    assert scd.settings["fill"] == "left"


def test_the_window_defaults_to_the_methods_own() -> None:
    (request,) = bench.compose(["method=sjd"])
    assert request.window == registry.method("sjd").window


def test_sampling_follows_the_models_protocol_and_null_switches_a_filter_off() -> None:
    protocol = registry.model("mini").protocols["default"]
    assert bench.compose([])[0].sampling == protocol
    assert protocol["top_k"] is not None
    assert bench.compose(["sampling.top_k=null"])[0].sampling == {**protocol, "top_k": None}


@pytest.mark.parametrize("text", ["a, b: c", "it's a 'red' ring", '"x" and ${y}', "50% (half) \\ more", "???", "null"])
def test_a_caption_is_taken_as_it_is(text: str) -> None:
    (request,) = bench.compose([f"prompt={text}"])
    assert request.prompts.text == text
    assert request.prompts.name == "text"


def test_a_slash_is_a_size() -> None:
    assert bench.compose(["model=mini/tiny"])[0].model == "mini/tiny"


def test_explain_names_the_source_of_every_value() -> None:
    rows = {row["key"]: row for row in bench.explain(["method=scd", "sampling.top_k=5", "method.fill=left"])}
    assert rows["sampling.top_k"] == {"key": "sampling.top_k", "value": 5, "source": "command line"}
    assert rows["method.fill"]["source"] == "command line"
    assert rows["method.redraft"]["source"] == "conf/method/scd.yaml"
    assert rows["window"]["source"] == "conf/method/scd.yaml"
    assert rows["sampling.guidance"]["source"] == "conf/model/mini.yaml, protocol default"
    assert rows["seed"]["source"] == "conf/config.yaml"
    assert rows["prompts"]["source"] == "conf/config.yaml"
    with pytest.raises(UsageError, match="one cell"):
        bench.explain(["window=8,16"])


def test_explain_shows_what_published_numbers_come_to_on_the_model() -> None:
    def effective(*words: str) -> dict[str, int]:
        rows = [row for row in bench.explain(words) if row["key"].startswith("effective.")]
        assert all("1,024 codes of mini, of which sampling keeps 512" in row["source"] for row in rows)
        return {row["key"].removeprefix("effective."): row["value"] for row in rows}

    assert effective("method=lantern") == {"neighbours": 128}
    assert effective("method=lantern", "method.neighbours=10") == {"neighbours": 10}
    assert effective("method=gsd_vp") == {"group": 10, "candidates": 51}
    assert effective("method=sjd") == {}


@pytest.mark.parametrize("name", ["mini", "mini/tiny"])
def test_the_codes_that_a_model_file_tells_are_those_of_the_model(name: str) -> None:
    from omegaconf import OmegaConf

    from specbench.models import load_target

    node = OmegaConf.load(Path(__file__).parents[2] / "conf" / "model" / f"{name}.yaml")
    assert node.codes == load_target(name).vocab


def test_every_key_and_value_that_completion_offers_is_accepted() -> None:
    for group in ("method", "model", "scores", "dtype"):
        assert len(bench.compose([f"{group}={','.join(bench.values(group))}"])) == len(bench.values(group))
    assert len(bench.compose([f"method.fill={','.join(bench.values('method.fill'))}"])) == 6
    assert set(bench.keys()) >= {"window", "sampling.top_p", "prompts.samples", "method.fill"}
    with pytest.raises(UsageError, match="did you mean 'method'"):
        bench.values("methd")


def test_the_wheels_copy_of_conf_is_found_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "specbench"
    (package / "conf").mkdir(parents=True)
    (package / "conf" / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("somebody: else\n")
    monkeypatch.setattr(paths, "PACKAGE", package)
    assert paths.conf.__wrapped__() == package / "conf"


def test_composing_imports_no_torch() -> None:
    code = "import sys; from specbench import bench; bench.compose([]); bench.keys(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_options_of_a_part_that_is_not_chosen_any_more_fall_away_unless_asked_for() -> None:
    [request] = bench.compose(["method=best", "method.tree=none"])
    assert "children" not in request.settings and request.settings["predict"] == "context"
    [request] = bench.compose(["method=best", "method.predict=none", "method.children=2"])
    assert "sharpness" not in request.settings and request.settings["children"] == 2
    [request] = bench.compose(["method=scd", "method.children=2"])
    assert request.settings["children"] == 2  # for building to refuse
