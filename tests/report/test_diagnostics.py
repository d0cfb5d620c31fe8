from __future__ import annotations

from specbench.report.diagnostics import diagnostics_page
from specbench.report.folder import write_report
from specbench.report.plots import diagnostic_curves
from tests.report.documents import cell, document, ratio

PUBLISHED = [
    {"metric": "redraft_changed", "value": "94", "unit": "%", "confidence": "B", "method": "SJD", "setting": "about",
     "model": "not stated", "dataset": "not stated", "paper": "SCD", "table": "analysis"},
    {"metric": "perturbed_tv", "value": "0.32", "unit": "TV", "confidence": "B", "method": "-", "setting": "offset 1",
     "model": "image AR", "dataset": "-", "paper": "SJD-PAC", "table": "Figure 4"},
]  # fmt: skip


def redraft(drafts=40, **changes):
    found = {"drafts": drafts, "changed": ratio(0.9, 0.8, 0.95), "collision": 0.06, "overlap": 0.5}
    return found | {"gumbel_at_least": 0.4} | changes


def diagnosed(method="sjd", window=4, **changes):
    growth = {group: [ratio(0.5, 0.4, 0.6), ratio(0.25), None] for group in ("accepted", "rejected", "drafts")}
    found = {
        "images": 2,
        "slots": {"drafts": [9, 9, 8], "overlap": [0.6, 0.7, None], "collision": [0.1, 0.1, None],
                  "changed": [None, 0.9, 0.8], "open": [0, 4, 4]},
        "accepted_length": {"measured": 1.5, "if_independent": 1.25, "if_independent_of_means": 1.02},
        "redraft": redraft(), "redraft_seen": redraft(30), "growth": growth, "growth_before": growth,
        "hamming": [ratio(0.3, 0.2, 0.4), ratio(0.5), None], "moved": ratio(0.4), "prediction": None,
        "prediction_boosted": None, "replaced": {"tv": [0.41, None], "passes": [12, 0]},
    }  # fmt: skip
    return cell(method, window, diagnostics=found | changes)


AR = cell("ar", 1, diagnostics={"images": 2, "probe": {"tv": [0.33, 0.12, 0.05], "sites": [32, 32, 30]}})


def test_the_page_sets_measured_beside_published_with_its_letter():
    page = diagnostics_page(document(AR, diagnosed(), diagnosed("scd"), diagnosed=PUBLISHED))
    assert "| sjd | 4 | all | 40 | 90.0 [80.0, 95.0] | 94.0 | 60.0 | 50.0 |" in page
    assert "Published: 94 % (B), SJD, about" in page
    assert "| 1 | 0.3300 | 32 | 0.4100 | 0.4100 | 0.32 (B) |" in page
    assert "| 3 | 0.0500 | 30 | – | – | – |" in page
    assert "| sjd | 4 | 30.0 [20.0, 40.0] | 50.0 | – |" in page
    assert "Do predicted laws come true?" not in page
    assert "Nothing to diagnose" not in page


def test_predictions_have_a_table_where_a_method_predicts():
    predicted = {"drafts": 7, "plain": 0.4, "predicted": 0.35, "difference": ratio(-0.05, -0.08, -0.02)}
    page = diagnostics_page(document(AR, diagnosed("sjd_vp", prediction=predicted), diagnosed=[]))
    assert "| sjd_vp | 4 | all | 7 | 0.4000 | 0.3500 | -0.0500 [-0.0800, -0.0200] |" in page


def test_a_window_of_one_is_said_to_have_nothing_and_no_diagnostics_no_page(tmp_path):
    empty = {"slots": {"drafts": [], "overlap": [], "collision": [], "changed": [], "open": []}}
    page = diagnostics_page(document(AR, diagnosed("scd", 1, **empty), diagnosed=[]))
    assert "Nothing to diagnose: scd W=1" in page
    assert "| 1 | 0.3300 | 32 | – |" in page
    assert diagnostics_page(document()) is None
    assert "diagnostics.md" not in {path.name for path in write_report(document(), [], tmp_path)}


def test_the_page_and_its_curves_are_files_of_the_report(tmp_path):
    files = write_report(document(AR, diagnosed(), diagnosed=PUBLISHED), [], tmp_path, plots=True)
    assert {"diagnostics.md", "diagnostics.png"} <= {path.name for path in files}


def test_the_curves_are_the_documents_numbers():
    assert diagnostic_curves([cell("sjd", 4)], []) is None
    acceptance, changed, perturbed = diagnostic_curves([AR, diagnosed()], PUBLISHED).axes
    assert acceptance.lines[0].get_ydata()[:2].tolist() == [0.6, 0.7]
    assert changed.lines[0].get_ydata()[1:].tolist() == [0.9, 0.8]
    ours, theirs = perturbed.lines
    assert ours.get_ydata().tolist() == [0.33, 0.12, 0.05]
    assert (theirs.get_xdata()[0], theirs.get_ydata()[0]) == (1, 0.32)
