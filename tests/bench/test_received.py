"""What a plugin's decoder or target gets wrong fails its own cell with a sentence, and nothing of it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import specbench
from specbench import bench
from specbench.bench import registry
from specbench.bench.config import RunRequest
from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Generation, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.errors import SpecbenchError
from tests.bench.toy import ToyTarget

Ask = Callable[..., list[RunRequest]]
Change = Callable[[Generation], Any]


class Liar:
    """SCD whose result is changed before it is handed back."""

    lossless = True

    def __init__(self, window: int, sampling: Sampling, change: Change) -> None:
        self.honest, self.change = build_decoder({"redraft": "maximal"}, window, sampling), change

    def decode(self, target: Target, prompts: Sequence[Prompt], seed: int = 0, sample: int = 0) -> Any:
        return self.change(self.honest.decode(target, prompts, seed=seed, sample=sample))


def changed(**fields: Any) -> Change:
    def change(generation: Generation) -> Generation:
        new = {name: make(generation) for name, make in fields.items()}
        tokens = new.pop("tokens", generation.tokens)
        return Generation(tokens, replace(generation.trace, **new))

    return change


def one_pass_less(generation: Generation) -> Generation:
    t = generation.trace
    cut = {name: getattr(t, name)[:-1] for name in ("window", "drafted", "accepted", "committed")}
    cut["committed"] = cut["committed"].clone()
    cut["committed"][0] += t.committed[-1]
    return Generation(generation.tokens, replace(t, **cut))


def idle_pass(generation: Generation) -> Generation:
    return Generation(generation.tokens, replace(generation.trace, window=generation.trace.window.clone().fill_(0)))


LIES = [
    (one_pass_less, "target passes, and"),
    (idle_pass, "no image's nfe is above 0"),
    (changed(tokens=lambda g: g.tokens[:, :-1]), "tokens of shape"),
    (changed(tokens=lambda g: g.tokens[:0]), "tokens of shape"),
    (changed(tokens=lambda g: g.tokens.double()), "tokens of torch.float64"),
    (changed(tokens=lambda g: g.tokens > 0), "tokens of torch.bool"),
    (changed(tokens=lambda g: g.tokens + 4), "the codes are 0 to 3"),
    (changed(tokens=lambda g: g.tokens - 4), "the codes are 0 to 3"),
    (changed(tokens=lambda g: g.tokens.tolist()), "no tensor tokens but list"),
    (changed(committed=lambda g: g.trace.committed * 2), "do not add up to the image's 4"),
    (changed(accepted=lambda g: g.trace.accepted - 9), "negative counter"),
    (changed(fixed_pass=lambda g: g.trace.fixed_pass[:, :2]), "trace.fixed_pass of shape"),
    (changed(seconds=lambda g: {"passes": float("nan")}), "impossible seconds"),
    (lambda g: Generation(g.tokens, None), "no trace"),  # type: ignore[arg-type]
    (lambda g: None, "no tensor tokens but NoneType"),
]


@pytest.mark.parametrize(("change", "says"), LIES)
@pytest.mark.parametrize("batch", [1, 3])
def test_what_cannot_be_true_fails_its_cell_and_is_not_stored(
    ask: Ask, tmp_path: Path, change: Change, says: str, batch: int
) -> None:
    specbench.register_method(
        "liar", lossless=True, factory=lambda window, sampling: Liar(window, sampling, change), settings={}, window=2
    )
    document = bench.run(ask("method=liar,scd", window=2, batch=batch), tmp_path)
    found = {cell["method"]: cell for cell in document["cells"]}
    assert (found["liar"]["state"], found["liar"]["images"]) == ("failed", 0)
    assert says in found["liar"]["error"]
    assert found["scd"]["state"] == found["ar"]["state"] == "done"
    assert bench.exit_code(document) == 1
    assert not list((tmp_path / "cells" / found["liar"]["id"]).glob("*.png"))


def test_an_honest_plugin_is_believed(ask: Ask, tmp_path: Path) -> None:
    specbench.register_method(
        "honest", lossless=True, factory=lambda window, sampling: Liar(window, sampling, lambda g: g), settings={}
    )
    document = bench.run(ask("method=honest", window=2, batch=2), tmp_path)
    assert {cell["state"] for cell in document["cells"]} == {"done"}


@pytest.mark.parametrize("error", [RuntimeError("no luck"), TypeError("inside"), SystemExit(0), KeyError("x")])
def test_a_factory_that_raises_fails_its_own_cell(ask: Ask, tmp_path: Path, error: BaseException) -> None:
    def factory(window: int, sampling: Sampling) -> Any:
        raise error

    specbench.register_method("unlucky", lossless=True, factory=factory, settings={}, window=2)
    found = {cell["method"]: cell for cell in bench.run(ask("method=unlucky,scd", window=2), tmp_path)["cells"]}
    assert found["unlucky"]["state"] == "failed"
    assert type(error).__name__ in found["unlucky"]["error"]
    assert found["scd"]["state"] == "done"


def test_a_factory_that_builds_nothing_is_named(ask: Ask, tmp_path: Path) -> None:
    specbench.register_method("empty", lossless=True, factory=lambda window, sampling: None, settings={}, window=2)
    found = {cell["method"]: cell for cell in bench.run(ask("method=empty", window=2), tmp_path)["cells"]}
    assert found["empty"]["error"] == "the factory of method 'empty' built a NoneType, which has no decode"


def test_a_loader_that_raises_is_one_sentence(tmp_path: Path) -> None:
    def loader(name: str, dtype: str, device: str) -> Any:
        raise OSError("weights are gone")

    registry.register_target("gone", loader)
    with pytest.raises(SpecbenchError, match="model 'gone' failed to load: OSError: weights are gone"):
        bench.run(bench.compose(["model=gone", "method=ar", "prompt=a star"]), tmp_path)


@pytest.mark.parametrize("pixels", [lambda self, tokens: 1 / 0, lambda self, tokens: torch.rand(len(tokens), 3, 2, 2)])
def test_pictures_that_cannot_be_made_fail_the_cell_with_nothing_stored(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: Any
) -> None:
    monkeypatch.setattr(ToyTarget, "pixels", pixels)
    found = {cell["method"]: cell for cell in bench.run(ask("method=scd", window=2), tmp_path)["cells"]}
    assert found["ar"]["state"] == "failed"
    assert found["scd"]["state"] in ("failed", "skipped")  # whichever had its turn first
    assert not [line for line in bench.export(tmp_path, canonical=True) if '"image"' in line]
