from __future__ import annotations

import io

from rich.console import Console

from specbench.report.terminal import console, print_report
from tests.report.documents import cell, document


def printed(doc, width=200, **settings) -> str:
    out = io.StringIO()
    print_report(doc, Console(file=out, width=width, **settings))
    return out.getvalue()


def test_table_sentence_failures_and_warnings_are_shown_with_their_number():
    doc = document(
        cell("ar", 1), cell("scd", 64, warnings=["fell back to dense"]), cell("sjd", 64, state="failed", error="boom")
    )
    text = printed(doc)
    assert "4.10 [3.90, 4.31]" in text or "lossless" in text
    assert "On this machine a pass over 64 tokens costs 4.70" in text
    assert "not done: 1\n  - sjd window=64 is failed: boom" in text
    assert "warnings: 1\n  - fell back to dense" in text


def test_on_eighty_columns_an_interval_stands_under_its_value_and_nothing_is_broken():
    lines = printed(document(), width=80).splitlines()
    assert any("4.10" in line and "[3.90" not in line for line in lines)
    assert any("[3.90, 4.31]" in line and "[0.79, 0.86]" in line for line in lines)


def test_names_in_brackets_stay_names():
    assert "[bold]mine[/bold]" in printed(document(cell("[bold]mine[/bold]")))


def test_a_pipe_gets_no_escape_codes_and_no_broken_cells(capsys):
    print_report(document(), console())
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "4.10 [3.90, 4.31]" in text


def test_no_color_means_no_colour_on_a_terminal(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(document(warnings=["w"]), force_terminal=True)
    assert "\x1b[33m" not in text
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[33m" in printed(document(warnings=["w"]), force_terminal=True, color_system="standard")
