"""The six methods as the verifier sees them: a name, a claim and settings."""

from __future__ import annotations

from typing import Any


def _jacobi(redraft: str, accept: str = "strict") -> dict[str, Any]:
    return {"decoder": "jacobi", "redraft": redraft, "accept": accept, "fill": "uniform"}


SETTINGS = {
    "ar": {"decoder": "ar"},
    "jacobi": _jacobi("independent", "fresh"),
    "replay": _jacobi("gumbel", "replay"),
    "sjd": _jacobi("independent"),
    "scd": _jacobi("maximal"),
    "scd_gs": _jacobi("gumbel"),
}


def method(name: str, **changes: Any) -> dict[str, Any]:
    """``name`` with some settings changed."""
    return {"name": name, "lossless": True, "settings": {**SETTINGS[name], **changes}}
