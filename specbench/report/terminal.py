"""The same table on a terminal: Rich where there is one, plain aligned lines where there is not.

Knows: how wide and how colourful the output may be.
Refuses to know: what is in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table as RichTable

from specbench.report.sentence import cost_sentences
from specbench.report.table import Table, failures_of, table_of, warnings_of

PLAIN_WIDTH = 200
"""Columns assumed where output goes to a file or a pipe: wide enough that no cell is broken."""


def console(stderr: bool = False) -> Console:
    """Open a console that honours NO_COLOR and never wraps a table that goes into a pipe."""
    out = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return out if out.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH, color_system=None)


def rich_table(table: Table, narrow: bool = False) -> RichTable:
    """Turn a :class:`Table` into a Rich one; every text is escaped, so a name in brackets stays a name.

    ``narrow`` sets an interval under its value instead of beside it.
    """
    out = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if narrow else 1), header_style="bold")
    for header, numeric in zip(table.headers, table.numeric, strict=True):
        label = header.replace(" [95 %]", "\n[95 %]").replace(" ratio", "\nratio").replace(" per ", "\nper ")
        out.add_column(escape(label), justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        out.add_row(*(escape(text.replace(" [", "\n[") if narrow else text) for text in row))
    return out


def print_table(table: Table, out: Console) -> None:
    """Print ``table`` as wide as it likes to be, or narrow where the terminal is."""
    wide = rich_table(table)
    unbounded = out.options.update(max_width=10 * PLAIN_WIDTH)
    fits = Measurement.get(out, unbounded, wide).maximum <= out.width
    out.print(wide if fits else rich_table(table, narrow=True))


def print_report(document: Mapping[str, Any], out: Console) -> None:
    """Print table, notes, the sentences on cost, then failures and warnings with their number."""
    table = table_of(document)
    print_table(table, out)
    for note in table.notes:
        out.print(escape(note), style="dim", soft_wrap=True)
    for sentence in cost_sentences(document):
        out.print()
        out.print(escape(sentence), soft_wrap=True)
    _print_list("not done", failures_of(document), "red", out)
    _print_list("warnings", warnings_of(document), "yellow", out)


def _print_list(title: str, lines: list[str], style: str, out: Console) -> None:
    if lines:
        out.print()
        out.print(f"{title}: {len(lines)}", style=style)
        for line in lines:
            out.print(f"  - {escape(line)}", soft_wrap=True)
