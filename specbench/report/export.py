"""The table as Markdown, CSV or LaTeX, every cell escaped for its language.

Knows: three markup languages.
Refuses to know: what the columns mean.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from specbench.errors import unknown
from specbench.report.table import Table

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "÷": r"$\div$",
    "′": r"$'$",
    "–": "--",
}


MARKDOWN = str.maketrans({**{char: "\\" + char for char in "\\`*|"}, "<": "&lt;", ">": "&gt;"})


def markdown(table: Table) -> str:
    """Write a GitHub table; notes follow as a list."""
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    lines = [[_md(h) for h in table.headers], rule, *([_md(v) for v in row] for row in table.rows)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "\n".join(f"- {_md(note)}" for note in table.notes)
    return body + "\n" + (f"\n{notes}\n" if notes else "")


def comma_separated(table: Table) -> str:
    """Write CSV by RFC 4180: headers and rows, no notes.

    A cell that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv(h) for h in table.headers])
    writer.writerows([[_csv(v) for v in row] for row in table.rows])
    return out.getvalue()


def latex(table: Table) -> str:
    """Write a booktabs ``tabular``; notes become comments."""
    align = "".join("r" if numeric else "l" for numeric in table.numeric)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", _tex_row(table.headers), r"\midrule"]
    lines += [_tex_row(row) for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*(f"% {' '.join(note.split())}" for note in table.notes), *lines]) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "csv": comma_separated, "latex": latex}
SUFFIXES = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


def export_table(table: Table, form: str) -> str:
    """Write ``table`` in the named format. Raises ``UsageError`` for an unknown one."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](table)


def _md(text: str) -> str:
    return " ".join(text.split()).translate(MARKDOWN).replace("](", "]\\(")


def _csv(text: str) -> str:
    return "'" + text if text[:1] in ("=", "+", "@", "\t", "\r") or (text[:1] == "-" and not _is_number(text)) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tex_row(cells: tuple[str, ...]) -> str:
    return " & ".join("".join(LATEX.get(char, char) for char in " ".join(cell.split())) for cell in cells) + r" \\"
