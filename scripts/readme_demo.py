"""Puts a finished demo's table and picture into the README, so that neither is ever typed by hand.

Usage: python scripts/readme_demo.py [demo]. Knows: two markers in the README and two files of a report. Refuses to
know: the numbers.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs") / "images" / "demo.png"
PLACE = re.compile(r"(<!-- demo:begin[^\n]*-->\n).*?(<!-- demo:end -->)", re.DOTALL)


def filled(readme: str, table: str) -> str:
    """Return ``readme`` with ``table`` and the picture between its markers. Raises ``SystemExit`` without markers."""
    body = f"\n{table.strip()}\n\n![AR beside the methods at equal seeds]({PICTURE.as_posix()})\n\n"
    text, found = PLACE.subn(lambda match: match[1] + body + match[2], readme)
    if found != 1:
        raise SystemExit("README.md has no place for the demo (<!-- demo:begin … --> … <!-- demo:end -->)")
    return text


def main(folder: str = "demo") -> None:
    """Fill the README from ``folder/report``."""
    report, readme = Path(folder) / "report", ROOT / "README.md"
    if not (report / "table.md").is_file():
        raise SystemExit(f"{report / 'table.md'} is not there: run `make demo` first")
    text = filled(readme.read_text(encoding="utf-8"), (report / "table.md").read_text(encoding="utf-8"))
    (ROOT / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(report / "sheet.png", ROOT / PICTURE)
    readme.write_text(text, encoding="utf-8")
    print(f"README.md and {PICTURE.as_posix()} now show {report}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
