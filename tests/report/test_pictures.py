from __future__ import annotations

import json

from PIL import Image

from specbench.report.folder import write_report
from specbench.report.plots import acceptance_maps, accepted_positions, nfe_against_window
from specbench.report.sheet import GAP, TILE, contact_sheet
from tests.report.documents import cell, document, pictures, ratio


def test_the_sheet_has_a_column_a_cell_and_a_row_a_prompt_with_ar_first(tmp_path):
    doc = document(cell("scd", 32), cell("ar", 1))
    records = pictures(doc, tmp_path)
    sheet = contact_sheet(doc["cells"], records)
    assert sheet.width == GAP + 2 * (TILE + GAP)
    ar, scd = Image.open(records[2]["file"]).getpixel((0, 0)), Image.open(records[0]["file"]).getpixel((0, 0))
    rows = [y for y in range(sheet.height) if sheet.getpixel((GAP, y)) == ar]
    assert len(rows) == TILE
    middle = rows[len(rows) // 2]
    assert sheet.getpixel((GAP + TILE // 2, middle)) == ar
    assert sheet.getpixel((2 * GAP + TILE + TILE // 2, middle)) == scd


def test_a_missing_picture_leaves_a_hole_and_not_an_error(tmp_path):
    doc = document()
    records = pictures(doc, tmp_path)
    records[0]["file"] = str(tmp_path / "gone.png")
    assert contact_sheet(doc["cells"], records[1:] + [records[0]]) is not None


def test_no_pictures_no_sheet():
    assert contact_sheet(document()["cells"], []) is None


def test_captions_may_hold_anything(tmp_path):
    doc = document()
    records = pictures(doc, tmp_path)
    records[0]["text"] = "ein blauer Stern\n$x_1$ <b> " + "sehr " * 80
    assert contact_sheet(doc["cells"], records) is not None


def test_every_pass_commits_its_accepted_drafts_and_one_token_of_its_own():
    assert accepted_positions([3, 0], 5) == [True, True, True, False, False]
    assert accepted_positions([0] * 4, 4) == [False] * 4
    assert accepted_positions([5], 5) == [True] * 5


def test_plots_are_none_where_there_is_nothing_to_draw(tmp_path):
    only_ar = document(cell("ar", 1))
    assert nfe_against_window(only_ar["cells"]) is None
    assert acceptance_maps(only_ar["cells"], pictures(only_ar, tmp_path)) is None
    assert acceptance_maps(document()["cells"], []) is None


def test_the_nfe_plot_draws_the_measured_points():
    figure = nfe_against_window([cell("scd", 16, nfe_ratio=ratio(3, 2.5, 3.5)), cell("scd", 64, nfe_ratio=ratio(4))])
    line = figure.axes[0].containers[0].lines[0]
    assert list(line.get_xdata()) == [16, 64]
    assert list(line.get_ydata()) == [3, 4]


def test_the_acceptance_map_lies_on_the_grid(tmp_path):
    doc = document(cell("scd", 16))
    figure = acceptance_maps(doc["cells"], pictures(doc, tmp_path))
    share, fixed = (axes.images[0].get_array() for axes in figure.axes[:2])
    assert share.shape == (4, 4)
    assert share[:, :3].min() == 1
    assert share[:, 3].max() == 0
    assert fixed[2].tolist() == [3, 3, 3, 3]


def test_the_report_is_written_whole(tmp_path):
    doc = document()
    files = write_report(doc, pictures(doc, tmp_path), tmp_path / "report", plots=True)
    names = {path.name for path in files}
    assert names == {"table.md", "table.csv", "table.tex", "document.json", "sheet.png", "nfe.png", "acceptance.png"}
    assert {path.name for path in (tmp_path / "report").iterdir()} == names
    assert json.loads((tmp_path / "report" / "document.json").read_text()) == doc


def test_what_stands_under_the_table_on_a_terminal_stands_under_it_in_files_too(tmp_path):
    doc = document(warnings=["2 words unknown"])
    write_report(doc, [], tmp_path)
    text = (tmp_path / "table.md").read_text()
    for part in ("above 1 is faster", "a pass over 64 tokens costs 4.70 single passes", "Warning: 2 words unknown."):
        assert part in text


def test_two_models_get_a_sheet_each_with_safe_names(tmp_path):
    doc = document(cell("ar", 1), cell("scd", 16, model="mini/../tiny", id="b"))
    files = write_report(doc, pictures(doc, tmp_path), tmp_path / "report")
    assert {p.name for p in files if p.suffix == ".png"} == {"sheet-mini-0.png", "sheet-mini-..-tiny-0.png"}
    assert all(p.parent == tmp_path / "report" for p in files)
