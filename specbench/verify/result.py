"""One verdict, as tables and ``--json`` show it. Knows its fields; refuses to know how they came about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """``passed`` is None for a lossy method, which reports its distance instead of a verdict."""

    method: str
    kind: str
    total_variation: float | None = None
    p_value: float | None = None
    passed: bool | None = None
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The mapping of the ``--json`` contract."""
        return asdict(self)
