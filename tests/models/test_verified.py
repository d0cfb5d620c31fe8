"""What is on record as verified: written by a test run, shown by the list of models and by the docs, and not stale."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from specbench.bench import list_models, verified
from specbench.models import FAMILIES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("verified_script", ROOT / "scripts" / "verified.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_docs_is_the_record(script):
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page(text, verified.families()) == text


def test_every_family_is_on_record_with_the_checks_that_it_has_tests_for(script):
    assert set(verified.families()) == set(FAMILIES)
    assert set(script.TESTS) == set(verified.CHECKS)
    for family, found in verified.families().items():
        source = (ROOT / f"tests/models/test_{family}.py").read_text()
        tests = re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE)
        exist = {check for check, pattern in script.TESTS.items() if any(re.search(pattern, name) for name in tests)}
        assert found["checks"] == dict.fromkeys(exist, "passed"), family
        assert exist >= set(script.TESTS) - {"native"}, family


def test_a_difference_on_record_is_one_that_the_tests_allow():
    for found in verified.families().values():
        assert all(0 <= value <= 2e-5 for value in found["differences"].values())
        assert (found["checks"].get("official") == "passed") == bool(found["differences"])


def test_models_say_what_was_verified_of_their_family():
    listed = {model["name"]: model["verified"] for model in list_models()}
    assert listed["mini"] is None
    assert listed["janus"] == listed["janus/tiny"]
    assert "official code (≤ " in listed["janus"]
    assert listed["janus"].endswith("the released weights: not")


def test_outcomes_become_a_record(script):
    witness = script.Witness()

    def report(name: str, outcome: str, when: str = "call", **properties: float) -> None:
        told = SimpleNamespace(nodeid=f"x.py::{name}", outcome=outcome, when=when)
        told.user_properties = list(properties.items())
        witness.pytest_runtest_logreport(told)

    report("test_logits_are_the_official_codes", "passed", "setup")
    report("test_logits_are_the_official_codes", "passed", logits=2.345678e-7)
    report("test_logits_are_the_official_codes_again", "passed", logits=1e-7)
    report("test_the_suite_of_targets_passes", "skipped", "setup")
    report("test_the_law_is_that_of_ar[sjd]", "passed")
    report("test_the_law_is_that_of_ar[scd]", "skipped", "setup")
    found = script.record(witness)
    assert found["checks"] == {"official": "passed", "suite": "skipped", "law": "in part"}
    assert found["differences"] == {"logits": 2.35e-07}
    assert "| `x` | logits 3e-07 | – | skipped |" in script.table({"x": found})


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0"), (1e-7, "1e-07"), (7.21e-7, "8e-07"), (9.5e-7, "1e-06")])
def test_differences_are_never_rounded_down(value, shown):
    assert verified.ceiling(value) == shown
