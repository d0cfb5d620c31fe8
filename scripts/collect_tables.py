"""Copy the pages of `make tables-mini` into docs/results/tables and write the list of what was found.

    python scripts/collect_tables.py OUT…

Knows: the long CSV form of a table (docs/tables.md), kept in results/tables. Everything it writes is copied from the
stores OUT or counted from those files; tables that no OUT has stay as they are.
"""

from __future__ import annotations

import csv
import shutil
import sys
from collections import Counter
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "docs" / "results" / "tables"
NUMBERS = PAGES.parents[2] / "results" / "tables"
ORDER = ("trend holds", "differs", "unresolved", "not run")
HEAD = """# The papers' tables on mini

`make tables-mini` made these pages: every published table of the Jacobi family and of SSD, with mini in place of the
paper's model; rows that cannot run say why. [tables.md](../../tables.md) says how to read a status. Claims are
orderings and ratios; values of another model are never judged.

"""


def claims(path: Path) -> list[tuple[str, str, str, str]]:
    """(says, metric, measured, status) of every claim in a table's CSV; pairs of one claim are joined."""
    joined: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["kind"] not in ("row", "accuracy"):
                joined.setdefault((line["kind"], line["label"], line["metric"]), []).append(line)
    return [
        (says, metric, ", ".join(map(_measured, lines)), _worst(lines)) for (_, says, metric), lines in joined.items()
    ]


def _measured(line: dict[str, str]) -> str:
    if not line["measured"]:
        return "–"
    return f"{float(line['measured']):.2f} [{float(line['low']):.2f}, {float(line['high']):.2f}]"


def _worst(lines: list[dict[str, str]]) -> str:
    found = {line["status"].split(":")[0] for line in lines}
    return next((status for status in ("not run", "differs", "unresolved") if status in found), "trend holds")


def main(outs: list[Path]) -> None:
    """Copy pages and numbers, then write the list with one section per status."""
    for folder in (PAGES, NUMBERS):
        folder.mkdir(parents=True, exist_ok=True)
    for out in outs:
        for page in (out / "tables").glob("*.md"):
            shutil.copy(page, PAGES / page.name)
            shutil.copy(page.with_suffix(".csv"), NUMBERS / f"{page.stem}.csv")
    rows = [(file.stem, claim) for file in sorted(NUMBERS.glob("*.csv")) for claim in claims(file)]
    counted = Counter(claim[3] for _, claim in rows)
    text = HEAD + " · ".join(f"{status}: {counted[status]}" for status in ORDER) + "\n"
    for status in ORDER:
        text += (
            f"\n## {status.capitalize()}\n\n| table | claim | metric | measured [95 %] |\n| --- | --- | --- | --- |\n"
        )
        for name, (says, metric, measured, found) in rows:
            if found == status:
                text += f"| [{name}]({name}.md) | {says} | {metric} | {measured} |\n"
    (PAGES / "README.md").write_text(text)


if __name__ == "__main__":
    main([Path(out) for out in sys.argv[1:]])
