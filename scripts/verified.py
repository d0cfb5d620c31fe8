"""Run the tests of the real families and write what they showed: ``results/verified.json`` and the table of the docs.

    SPECBENCH_GOLDEN=FOLDER .venv/bin/python scripts/verified.py [janus lumina …] [--fast]

Needs the outputs of the official implementations (SPECBENCH_GOLDEN); without them there are only the committed slices,
and the check against official code is on record as passed in part. Families that are not named keep what is on record.
``--fast`` leaves out the statistical tests of the law, which are then not on record. Each family is written when its
tests are through; one with a failed test keeps what is on record, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from specbench.bench import verified
from specbench.models import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
FILE, PAGE = ROOT / "results" / "verified.json", ROOT / "docs" / "models.md"
BEGIN, END = "<!-- from results/verified.json by scripts/verified.py -->", "<!-- end -->"
TESTS = {
    "official": "official",
    "native": "native_layout",
    "suite": "suite_of_targets|padding_changes_nothing|one_plain_sequence",
    "trees": "trees?_equal",
    "replay": "replay_is_ar",
    "waits": "never_wait",
    "law": "law_is_that_of_ar",
}
"""Which tests make up a check: those whose name holds this."""


class Witness:
    """A pytest plugin that remembers outcomes and recorded properties by test name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = defaultdict(list)
        self.differences: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of a test that was skipped in its set-up there is no call."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid.rpartition("::")[2]].append(report.outcome)
        if report.when == "call" and report.outcome == "passed":
            for name, value in report.user_properties:
                self.differences[name] = max(float(value), self.differences.get(name, 0.0))


def record(witness: Witness) -> dict[str, Any]:
    """What one family's tests showed."""
    checks = {}
    for check, pattern in TESTS.items():
        found = {o for name, each in witness.outcomes.items() if re.search(pattern, name) for o in each}
        if found:
            checks[check] = "passed" if found == {"passed"} else "skipped" if "passed" not in found else "in part"
    rounded = {name: float(f"{value:.2e}") for name, value in sorted(witness.differences.items())}
    return {"date": datetime.date.today().isoformat(), "checks": checks, "differences": rounded}


def table(families: dict[str, Any]) -> str:
    """The Markdown table, a row a family."""
    names = ["family", "largest difference to the official code (float32)", *list(verified.CHECKS.values())[1:], "date"]
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join(["---"] * len(names)) + " |"]
    for family, found in sorted(families.items()):
        told = ", ".join(f"{name} {verified.ceiling(value)}" for name, value in found["differences"].items())
        cells = [found["checks"].get(key, "–") for key in verified.CHECKS]
        lines.append(f"| `{family}` | {told or cells[0]} | {' | '.join(cells[1:])} | {found['date']} |")
    return "\n".join(lines)


def page(text: str, families: dict[str, Any]) -> str:
    """The page with the table between its marks replaced."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(families)}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Run, write, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--fast", action="store_true", help="leave out the statistical tests of the law")
    arguments = parser.parse_args()
    known = json.loads(FILE.read_text(encoding="utf-8"))["families"] if FILE.is_file() else {}
    tier, failed = "not slow" if arguments.fast else "slow or not slow", False
    for family in arguments.families:
        witness = Witness()
        if pytest.main([str(ROOT / f"tests/models/test_{family}.py"), "-q", "--durations=3", "-m", tier], [witness]):
            failed = True
            continue
        known[family] = record(witness)
        text = json.dumps({"schema": "specbench/verified/1", "families": dict(sorted(known.items()))}, indent=1)
        FILE.write_text(text + "\n", encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
