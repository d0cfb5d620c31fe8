"""The methods as the verifier sees them: a name, a claim and settings.

Where a method predicts, one growth step stands in for three, which never happen on tables this small.
"""

from __future__ import annotations

from typing import Any


def _jacobi(redraft: str, accept: str = "strict", **options: Any) -> dict[str, Any]:
    return {"decoder": "jacobi", "redraft": redraft, "accept": accept, "fill": "uniform", **options}


SETTINGS = {
    "ar": {"decoder": "ar"},
    "jacobi": _jacobi("independent", "fresh"),
    "replay": _jacobi("gumbel", "replay"),
    "sjd": _jacobi("independent"),
    "scd": _jacobi("maximal"),
    "scd_gs": _jacobi("gumbel"),
    "sjd_vp": _jacobi("independent", predict="growth", growth=1),
}
LOSSY = {
    "gsd": _jacobi("independent", "grouped", distance=2.0),
    "gsd_vp": _jacobi("independent", "grouped", distance=2.0, predict="growth", growth=1),
    "lantern": _jacobi("independent", "lantern", delta=0.3),
    "lantern_vp": _jacobi("independent", "lantern", delta=0.3, predict="growth", growth=1),
}
"""Bounds wide enough to be met on three codes."""


def method(name: str, **changes: Any) -> dict[str, Any]:
    """``name`` with some settings changed."""
    settings = {**SETTINGS, **LOSSY}[name]
    return {"name": name, "lossless": name in SETTINGS, "settings": {**settings, **changes}}
