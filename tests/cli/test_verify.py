"""``specbench verify``: which kinds a method gets, how a changed setting is shown, what a plugin may do wrong."""

from __future__ import annotations

import json

import pytest

from specbench.cli.verify import chosen_methods
from specbench.verify.exact import LAW_TOLERANCE, Case, measure
from tests.cli.commands import call, one_sentence, plugin_file

PLUGIN = """
import specbench
from specbench.decoding.build import build_decoder

print("hello from a plugin")

def build(window, sampling, speed=1):
    return build_decoder({"redraft": "maximal"}, window, sampling)

def broken(window, sampling):
    raise RuntimeError("no luck")

specbench.register_method("mine", lossless=True, factory=build, settings={"speed": 1}, window=4)
specbench.register_method("unlucky", lossless=True, factory=broken, settings={}, window=4)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    return plugin_file(PLUGIN, tmp_path, monkeypatch)


@pytest.fixture
def judged(monkeypatch):
    """Which (method, kind) is judged, without the minutes that judging takes."""
    seen = []

    def judge(methods, kinds):
        seen.extend((method["name"], kind, method["note"]) for kind in kinds for method in methods)
        return iter(())

    monkeypatch.setattr("specbench.verify.verify_each", judge)
    return seen


def test_a_plugins_methods_are_tested_under_real_noise_too(plugin, judged, capsys):
    assert call(capsys, "verify", "method=mine,scd", "--plugin", plugin, "--json").code == 0
    assert judged == [("mine", "exact", ""), ("scd", "exact", ""), ("mine", "statistical", "")]


def test_what_was_asked_for_is_what_is_done(plugin, judged, capsys):
    call(capsys, "verify", "method=mine,scd", "--plugin", plugin, "--exact")
    assert judged == [("mine", "exact", ""), ("scd", "exact", "")]


def test_a_changed_setting_is_named(judged, capsys):
    call(capsys, "verify", "method=scd", "method.fill=left,above")
    assert judged == [("scd", "exact", "fill=left"), ("scd", "exact", "fill=above")]


def test_a_setting_that_does_not_exist_is_a_mistake_and_no_failed_verdict(judged, capsys):
    outcome = call(capsys, "verify", "method=scd", "method.fill=lft")
    assert (outcome.code, judged) == (2, [])
    assert one_sentence(outcome.err)
    assert "did you mean 'left'" in outcome.err


@pytest.mark.parametrize("name", ["sjd_pac", "best"])
def test_trees_are_judged_at_a_size_that_fits_the_tables(name):
    (method,) = chosen_methods([f"method={name}"], ())
    assert measure(method, Case(window=3, tree=(2, 2))).total_variation <= LAW_TOLERANCE


def test_a_factory_that_raises_is_a_failed_verdict(plugin, capsys):
    outcome = call(capsys, "verify", "method=unlucky,ar", "--plugin", plugin, "--exact", "--json")
    results = {row["method"]: row for row in json.loads(outcome.out)["results"]}
    assert outcome.code == 1
    assert (results["unlucky"]["passed"], results["unlucky"]["detail"]) == (False, "RuntimeError: no luck")
    assert results["ar"]["passed"]
