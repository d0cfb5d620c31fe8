"""Shell completion of ``key=value`` overrides.

Knows: how shells hand over a half-typed word.
Refuses to know: which keys and values there are (bench does).
"""

from __future__ import annotations

from collections.abc import Iterable


def complete_override(args: list[str], incomplete: str) -> list[str]:
    """Offer keys, or after ``key=`` the known values of that key; after a comma the values not yet listed.

    Bash hands ``method=s`` over as the three words ``method``, ``=``, ``s`` (``=`` breaks words there) and replaces
    only the last, so in that case values are offered bare. A completion never fails: it offers nothing instead.
    """
    try:
        key, typed, prefix = _split(args, incomplete)
        if key is None:
            return [f"{name}=" for name in _keys() if name.startswith(typed)]
        done, _, last = typed.rpartition(",")
        listed = set(done.split(","))
        head = f"{prefix}{done}," if done else prefix
        return [f"{head}{value}" for value in _values(key) if value.startswith(last) and value not in listed]
    except Exception:
        return []


def _split(args: list[str], incomplete: str) -> tuple[str | None, str, str]:
    """Return the key (None while it is being typed), what is typed of the value, and what to put before an offer."""
    if "=" in incomplete.lstrip("="):
        key, _, typed = incomplete.partition("=")
        return key, typed, f"{key}="
    if incomplete == "=" and args:
        return args[-1], "", ""
    if len(args) >= 2 and args[-1] == "=":
        return args[-2], incomplete, ""
    return None, incomplete, ""


def _keys() -> Iterable[str]:
    from specbench import bench

    return bench.keys()


def _values(key: str) -> Iterable[str]:
    from specbench import bench

    return [str(value) for value in bench.values(key)]
