from __future__ import annotations

import json

import pytest
from PIL import Image

from specbench.report.folder import write_report
from specbench.report.labels import names_of, style
from specbench.report.maps import WHAT, acceptance_maps, accepted_positions, kept_positions, maps_over_pictures
from specbench.report.plots import nfe_against_window
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


def test_of_a_block_that_is_repaired_in_place_the_unchanged_drafts_are_the_kept_ones():
    strict = {"accepted": [1, 0], "committed": [2, 1], "changes": [0, 1, 2]}
    assert kept_positions(strict, 3) == [True, False, False]
    repaired = {"accepted": [0, 2, 1, 0], "committed": [1, 0, 0, 3], "changes": [0, 0, 2, 1]}
    assert kept_positions(repaired, 4) == [False, True, False, False]


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


def test_the_nfe_plot_has_the_passes_beside_the_ratio_with_its_interval_turned_over():
    cells = [cell("ar", 1), cell("scd", 16, nfe={"mean": 64.0}, nfe_ratio=ratio(4, 2, 5))]
    left, right = nfe_against_window(cells).axes
    assert bounds(left) == [(2, 5)]
    assert bounds(right) == [(pytest.approx(51.2), pytest.approx(128))]
    assert right.get_ylim()[1] > 256
    assert [text.get_text() for text in right.texts] == ["plain AR"]


def bounds(axes):
    (bars,) = axes.containers[0].lines[2]
    return [(low, high) for (_, low), (_, high) in bars.get_segments()]


def test_cells_of_one_method_that_differ_in_a_setting_are_lines_of_their_own():
    left = cell("scd", 16, requested={"method.fill": "left", "seed": 1})
    cells = [left, cell("scd", 16, requested={"method.fill": "uniform", "seed": 2}), cell("sjd", 16)]
    assert names_of(cells) == ["scd fill=left", "scd fill=uniform", "sjd"]
    figure = nfe_against_window(cells)
    assert len(figure.axes[0].containers) == 3
    looks = [tuple(style(number).values()) for number in range(24)]
    assert len(set(looks)) == 24


def test_the_acceptance_map_lies_on_the_grid(tmp_path):
    doc = document(cell("scd", 16))
    figure = acceptance_maps(doc["cells"], pictures(doc, tmp_path))
    share, fixed = (axes.images[0].get_array() for axes in figure.axes[:2])
    assert share.shape == (4, 4)
    assert share[:, :3].min() == 1
    assert share[:, 3].max() == 0
    assert fixed[2].tolist() == [3, 3, 3, 3]
    changes = figure.axes[2].images[0].get_array()
    assert changes[2].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("what", WHAT)
def test_the_map_over_a_picture_shows_its_own_numbers_over_its_own_pixels(tmp_path, what):
    doc = document()
    records = pictures(doc, tmp_path)
    records[2][what] = [5] * 16
    figure = maps_over_pictures(doc["cells"], records, what)
    tiles = [axes for axes in figure.axes if axes.images]
    assert len(tiles) == 4  # two prompts, two method cells; AR has no map
    grey, heat = tiles[0].images
    assert list(grey.get_extent()) == list(heat.get_extent()) == [0, 4, 4, 0]
    assert set(heat.get_array().flatten()) == {5}
    assert tiles[1].images[1].get_array()[3].tolist() == ([4] * 4 if what == "fixed_pass" else [3] * 4)
    assert heat.get_clim() == tiles[3].images[1].get_clim() == (0, 5)
    assert 0 < heat.get_alpha() < 1


def test_a_map_needs_no_picture_and_without_traces_there_is_none(tmp_path):
    doc = document()
    records = pictures(doc, tmp_path)
    for record in records:
        record["file"] = str(tmp_path / "gone.png")
    tiles = [axes for axes in maps_over_pictures(doc["cells"], records, "changes").axes if axes.images]
    assert all(len(axes.images) == 1 for axes in tiles)
    assert maps_over_pictures(doc["cells"][:1], records, "changes") is None
    film = [{**record, "grid": [2, 2, 4]} for record in records]
    assert maps_over_pictures(doc["cells"], film, "changes").axes[0].images[-1].get_array().shape == (8, 2)


def test_the_report_is_written_whole(tmp_path):
    doc = document()
    files = write_report(doc, pictures(doc, tmp_path), tmp_path / "report", plots=True)
    names = {path.name for path in files}
    assert names == {
        "table.md", "table.csv", "table.tex", "document.json", "sheet.png", "nfe.png", "acceptance.png",
        "map-fixed-pass.png", "map-changes.png",
    }  # fmt: skip
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
