from __future__ import annotations

import csv
import io

import pytest

from specbench.errors import UsageError
from specbench.report.export import export_table
from specbench.report.table import Table, table_of
from tests.report.documents import document

HOSTILE = Table(
    ("a|b", "c_d"), (("<script>x</script>", "=1+1"), ("50 % & \\x", "two\nlines")), (False, True), ("note_1 100 %",)
)


def test_markdown_keeps_one_line_a_row_and_lets_no_tag_through():
    text = export_table(HOSTILE, "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert "<script>" not in text
    assert "a\\|b" in rows[0]
    assert rows[1] == "| --- | ---: |"
    assert "two lines" in text


def test_csv_reads_back_as_the_same_table():
    table = table_of(document())
    assert list(csv.reader(io.StringIO(export_table(table, "csv")))) == [list(table.headers), *map(list, table.rows)]


def test_csv_runs_no_formula_but_leaves_negative_numbers_alone():
    table = Table(("x",), (("=1+1",), ("@cmd",), ("-2.5",), ("-x",)), (False,))
    rows = list(csv.reader(io.StringIO(export_table(table, "csv"))))
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'@cmd", "-2.5", "'-x"]


def test_latex_escapes_what_latex_would_read():
    text = export_table(HOSTILE, "latex")
    assert r"c\_d" in text
    assert r"50 \% \& \textbackslash{}x" in text
    assert text.count(r"\\" + "\n") == 3
    assert text.startswith("% note_1 100 %\n")


def test_an_unknown_format_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'latex'"):
        export_table(HOSTILE, "latx")
