from __future__ import annotations

import pytest

from specbench.report.table import failures_of, interval, number, setting, table_of, warnings_of
from tests.report.documents import cell, document, ratio


def column(doc, header):
    table = table_of(doc)
    at = table.headers.index(header)
    return [row[at] for row in table.rows]


def test_the_standing_columns_come_in_the_documented_order():
    assert table_of(document()).headers == (
        "method", "window", "lossless", "NFE", "NFE ratio [95 %]", "latency ratio [95 %]", "tokens per pass",
        "accuracy [95 %]",
    )  # fmt: skip


def test_an_nfe_ratio_never_stands_in_the_latency_column():
    assert column(document(), "NFE ratio [95 %]") == ["1.00", "2.13 [2.05, 2.22]", "4.10 [3.90, 4.31]"]
    assert column(document(), "latency ratio [95 %]") == ["1.00", "1.40 [1.31, 1.50]", "0.82 [0.79, 0.86]"]


def test_a_missing_latency_is_a_dash_and_not_the_nfe_ratio():
    doc = document(cell("scd", 32, nfe_ratio=ratio(3.0, 2.9, 3.1), latency_ratio=None))
    assert column(doc, "latency ratio [95 %]") == ["–"]


@pytest.mark.parametrize("name", ["seed", "model", "dtype"])
def test_a_setting_becomes_a_column_only_where_cells_differ(name):
    same = document(cell(window=16, **{name: "x"}), cell(window=32, **{name: "x"}))
    differ = document(cell(window=16, **{name: "x"}), cell(window=32, **{name: "y"}))
    assert name not in table_of(same).headers
    assert column(differ, name) == ["x", "y"]


def test_the_fill_is_a_column_where_cells_differ_in_it():
    doc = document(cell(effective={"method": {"fill": "left"}}), cell(effective={"method": {"fill": "uniform"}}))
    assert column(doc, "method.fill") == ["left", "uniform"]


def test_what_one_method_was_swept_over_is_a_column_and_what_tells_methods_apart_is_none():
    few, many = ({"method.rounds": n, "method.decoder": "block"} for n in (1, 2))
    scd = cell("scd", 16, requested={"method.decoder": "jacobi", "method.redraft": "maximal"})
    doc = document(cell("ssd", None, requested=few), cell("ssd", None, requested=many), scd)
    assert column(doc, "method.rounds") == ["1", "2", "–"]
    assert not {"method.decoder", "method.redraft"} & set(table_of(doc).headers)


def test_the_number_of_images_is_a_column_only_where_cells_differ_and_a_note_elsewhere():
    assert any("16 images a cell" in note for note in table_of(document()).notes)
    assert column(document(cell(images=16), cell(images=9)), "images") == ["16", "9"]


def test_row_ends_are_a_column_only_where_they_cost_passes():
    assert "steps with row ends" not in table_of(document()).headers
    doc = document(cell(nfe={"mean": 100.0, "total": 1600}, steps_with_row_ends=148.0))
    assert column(doc, "steps with row ends") == ["148.0"]


def test_a_cell_that_is_not_done_shows_its_state_and_its_reason():
    doc = document(cell(), cell(window=64, state="oom", error="out of memory at window 64"))
    assert column(doc, "state") == ["done", "oom"]
    assert failures_of(doc) == ["scd window=64 is oom: out of memory at window 64"]


def test_a_setting_that_took_another_value_than_requested_is_a_warning():
    doc = document(cell(requested={"sampling": {"top_k": 2000}}, effective={"sampling": {"top_k": 1024}}))
    assert warnings_of(doc) == ["sampling.top_k: requested 2000, effective 1024"]


def test_a_default_that_was_not_requested_is_no_warning():
    assert warnings_of(document(cell(requested={"window": None}, effective={"window": 32}))) == []


def test_equal_warnings_are_counted_and_not_repeated():
    doc = document(
        cell(warnings=["2 words unknown"]), cell(window=64, warnings=["2 words unknown"]), warnings=["held out"]
    )
    assert warnings_of(doc) == ["held out", "2 words unknown (2 cells)"]


def test_lossy_methods_are_named_under_the_table():
    notes = table_of(document(cell("gsd", lossless=False))).notes
    assert any("Not lossless" in note and "gsd" in note for note in notes)


def test_each_group_names_its_own_prompts_and_scorer():
    groups = [
        {"prompts": {"name": "scenes", "count": 16}, "scorer": "scenes"},
        {"prompts": {"name": "file", "count": 4}, "scorer": None},
    ]
    notes = table_of(document(cell(group=0), cell(group=1, images=4), groups=groups)).notes
    assert "Prompt set scenes, 16 prompts, 16 images a cell, scored by scenes." in notes
    assert "Prompt set file, 4 prompts, 4 images a cell." in notes


def test_what_the_clocks_leave_out_is_said_under_the_table():
    doc = document(cell("ar", 1, timed_together=16), cell(timed_together=16), cell(timed_together=9), warmup=3)
    notes = " ".join(table_of(doc).notes)
    assert "Warm-up: 3 images" in notes
    assert "the 9 to 16 images a cell that one process timed" in notes
    assert "Warm-up" not in " ".join(table_of(document()).notes)


def test_few_prompts_make_the_level_nominal():
    def nominal(**changes):
        return any("nominal" in note for note in table_of(document(**changes)).notes)

    assert nominal(prompts={"name": "scenes", "count": 9})
    assert not nominal(prompts={"name": "scenes", "count": 10})
    assert nominal(prompts=None, comparison={"sentence": "x", "prompts": 3})


def test_terms_that_were_allowed_to_differ_are_printed_in_the_footer():
    assert any("guidance" in note for note in table_of(document(allowed=["sampling.guidance"])).notes)


def test_what_a_comparison_found_is_said_under_its_table():
    notes = table_of(document(comparison={"sentence": "A needs half the passes of B."})).notes
    assert "A needs half the passes of B." in notes


def test_numbers_and_intervals():
    assert (number(None, 2), number(0.005, 1)) == ("–", "0.0")
    assert interval(ratio(2.0), 2) == "2.00"
    assert interval(ratio(2.0, 1.5, 2.5), 1) == "2.0 [1.5, 2.5]"
    assert interval(ratio(None), 1) == "–"  # type: ignore[arg-type]


def test_a_setting_is_found_in_the_cell_before_its_settings():
    assert setting({"seed": 1, "effective": {"seed": 2}}, "seed") == 1
    assert setting({"effective": {"sampling.top_k": 5}}, "sampling.top_k") == 5
    assert setting({"requested": {"a": {"b": 3}}}, "a.b") == 3


def test_no_cells_is_an_empty_table_and_not_an_error():
    assert table_of({"cells": []}).rows == ()
