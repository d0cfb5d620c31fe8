"""A sweep's document written by hand, in the contract's words; tests change the part they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image


def ratio(value: float, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def cell(method: str = "scd", window: int | None = 32, **changes: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": f"{method}-{window}",
        "model": "mini",
        "method": method,
        "window": window,
        "seed": 0,
        "lossless": True,
        "images": 16,
        "nfe": {"mean": 256.0, "total": 4096},
        "nfe_ratio": ratio(1.0, 1.0, 1.0),
        "latency_s": {"mean": 1.0},
        "latency_ratio": ratio(1.0, 1.0, 1.0),
        "latency_ratio_flat": 1.0,
        "tokens_per_pass": 1.0,
        "accept_rate_pooled": None,
        "steps_with_row_ends": 256.0,
        "accuracy": ratio(0.5, 0.25, 0.75),
        "entropy": 4.6,
        "timing": {"prefill_s": 0.01, "pass_s": 0.85, "sampling_s": 0.14, "passes": 255},
        "requested": {"sampling": {"top_k": 256}, "method": {"fill": "uniform"}},
        "effective": {"sampling": {"top_k": 256}, "method": {"fill": "uniform"}},
        "state": "done",
        "warnings": [],
        "error": None,
    }
    return out | changes


def document(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    standard = (
        cell("ar", 1),
        cell(
            "sjd", 16, nfe={"mean": 120.0, "total": 1920}, nfe_ratio=ratio(2.13, 2.05, 2.22), steps_with_row_ends=120.0,
            latency_ratio=ratio(1.40, 1.31, 1.50), latency_ratio_flat=2.0, tokens_per_pass=2.13,
        ),
        cell(
            "scd", 64, nfe={"mean": 62.4, "total": 998}, nfe_ratio=ratio(4.10, 3.90, 4.31), steps_with_row_ends=62.4,
            latency_ratio=ratio(0.82, 0.79, 0.86), latency_ratio_flat=3.55, tokens_per_pass=4.1,
            timing={"prefill_s": 0.01, "pass_s": 1.0, "sampling_s": 0.24, "passes": 61.4},
        ),
    )  # fmt: skip
    out: dict[str, Any] = {
        "schema": "specbench/run/1",
        "cells": list(cells or standard),
        "cost_curve": {
            "windows": [1, 16, 64],
            "seconds": [0.003, 0.0048, 0.0141],
            "ratio": [1.0, 1.6, 4.7],
            "here": True,
        },
        "warnings": [],
        "prompts": {"name": "scenes", "count": 16, "hash": "0123"},
        "scorer": "scenes",
    }
    return out | changes


def pictures(doc: dict[str, Any], folder: Path, prompts: int = 2) -> list[dict[str, Any]]:
    """Write one flat PNG a cell and prompt on a 4 × 4 grid, and return the records about them."""
    records = []
    for number, one in enumerate(doc["cells"]):
        for prompt in range(prompts):
            path = folder / f"{one['id']}-{prompt}.png"
            Image.new("RGB", (64, 64), (40 * number, 90, 60 * prompt)).save(path)
            accepted = [0] * 16 if one["method"] == "ar" else [3] * 4
            fixed = list(range(1, 17)) if one["method"] == "ar" else [1 + i // 4 for i in range(16)]
            records.append(
                {
                    "cell": one["id"], "prompt": f"p{prompt}", "text": f"a blue star, number {prompt}", "sample": 0,
                    "nfe": 16 if one["method"] == "ar" else 4, "file": str(path),
                    "accepted": accepted, "committed": [n + 1 for n in accepted],
                    "fixed_pass": fixed, "changes": [n - 1 for n in fixed], "grid": [4, 4, 1],
                }
            )  # fmt: skip
    return records
