"""``specbench verify model=…``: targets of a plugin, right and wrong ones, and models that are not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.commands import call, plugin_file

PLUGIN = """
import torch
import specbench
from specbench.decoding.interfaces import Forward, Grid
from specbench.errors import UsageError

CODES, SIDE = 5, 4


class Sums:
    "Logits are the sum of a row per code so far; the prompt's length is what a row begins with."
    name, grid, vocab, codebook, weights_hash = "sums", Grid(SIDE, SIDE), CODES, None, "sums"
    device, takes_guidance = torch.device("cpu"), False

    def __init__(self, junk):
        self.junk = junk
        self.table = torch.randn(CODES + 1, CODES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def begin(self, prompts, guidance=None):
        if guidance not in (None, 1):
            raise UsageError("no guidance here")
        return Canvas(self, torch.tensor([len(prompt.text) / 50 for prompt in prompts], dtype=torch.float64))

    def pixels(self, tokens):
        return torch.zeros(len(tokens), 3, SIDE, SIDE, dtype=torch.uint8)


class Canvas:
    def __init__(self, target, first):
        self.target, self.cache = target, first[:, None].expand(-1, CODES)

    def forward(self, tokens, parents=None, taps=()):
        if parents is not None:
            raise NotImplementedError("chains only")
        self.rows = self.target.table[tokens]
        return Forward(self.cache[:, None] + self.rows.cumsum(1), None, {})

    def keep(self, n, path=None):
        kept = n if not self.target.junk else torch.full_like(n, self.rows.shape[1])
        inside = torch.arange(self.rows.shape[1]) < kept[:, None]
        self.cache = self.cache + (self.rows * inside[..., None]).sum(1)


specbench.register_target("sums", lambda name, **_: Sums(junk=False))
specbench.register_target("junk", lambda name, **_: Sums(junk=True))
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    return plugin_file(PLUGIN, tmp_path, monkeypatch)


def test_a_right_target_passes_and_one_that_keeps_refused_drafts_does_not(plugin, capsys):
    outcome = call(capsys, "verify", "model=sums,junk", "--conformance", "--plugin", plugin, "--json")
    assert outcome.code == 1
    right, wrong = json.loads(outcome.out)["results"]
    assert (right["method"], right["kind"], right["passed"]) == ("sums", "conformance", True), right["detail"]
    assert (wrong["method"], wrong["passed"]) == ("junk", False)
    assert wrong["detail"].startswith("windows equal single passes: logits differ by ")
    assert wrong["detail"].endswith("only behind refused drafts: junk stayed")


def test_an_unknown_model_is_a_usage_error_with_the_nearest_name(capsys):
    outcome = call(capsys, "verify", "model=lumna/tiny", "--conformance")
    assert outcome.code == 2
    assert "did you mean 'lumina/tiny'?" in outcome.err


@pytest.mark.parametrize("kind", ["--exact", "--statistical", "--mutants"])
def test_other_kinds_are_for_methods(capsys, kind):
    outcome = call(capsys, "verify", "model=mini/tiny", kind)
    assert outcome.code == 2
    assert "only --conformance" in outcome.err


@pytest.mark.parametrize("family", ["janus", "lumina", "llamagen", "emu3", "cosmos"])
def test_a_family_without_weights_says_so_before_torch_is_imported(tmp_path, family):
    script = (
        "import sys; from specbench.cli.main import run_cli; "
        f"code = run_cli(['verify', 'model={family}', '--conformance', '--weights-root', {str(tmp_path)!r}]); "
        "print(code, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == ["1", "False"], done.stderr
    assert done.stderr.startswith(f"specbench: model={family} has no weights here: ")
    assert len(done.stderr.strip().splitlines()) == 1
