"""Shell completion of ``key=value`` overrides.

Knows: how shells hand over a half-typed word.
Refuses to know: which keys and values there are (bench does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def complete_override(incomplete: str) -> list[str]:
    """Offer keys, or after ``key=`` the known values of that key; after a comma the values not yet listed.

    A completion never fails: where something goes wrong it offers nothing.
    """
    key, equals, typed = incomplete.partition("=")
    try:
        if not equals:
            return [f"{name}=" for name in _keys() if name.startswith(key)]
        return [f"{key}={value}" for value in _offers(key, typed)]
    except Exception:
        return []


def complete_table(incomplete: str) -> list[str]:
    """Offer the names of tables; a completion never fails."""
    try:
        from specbench import bench

        return [name for name in [*(str(table["name"]) for table in bench.list_tables()), "all"]
                if name.startswith(incomplete)]  # fmt: skip
    except Exception:
        return []


def bash_values(environment: Mapping[str, str]) -> list[str] | None:
    """Values for a ``key=value`` word as bash sees it; None where bash is not completing such a word.

    ``=`` breaks words in bash: ``method=s`` arrives as ``method``, ``=``, ``s``, and what is offered replaces only the
    ``s``. So values are offered bare here, while other shells hand the word over whole and get it back whole.
    """
    if environment.get("_SPECBENCH_COMPLETE") != "complete_bash":
        return None
    words, at = environment.get("COMP_WORDS", "").split("\n"), int(environment.get("COMP_CWORD", "0"))
    typed = words[at] if at < len(words) else ""
    if typed == "=":
        at, typed = at + 1, ""
    if at < 3 or words[at - 1] != "=":
        return None
    try:
        return _offers(words[at - 2], typed)
    except Exception:
        return []


def _offers(key: str, typed: str) -> list[str]:
    done, comma, last = typed.rpartition(",")
    listed = set(done.split(","))
    return [f"{done}{comma}{value}" for value in _values(key) if value.startswith(last) and value not in listed]


def _keys() -> Iterable[str]:
    from specbench import bench

    return bench.keys()


def _values(key: str) -> Iterable[str]:
    from specbench import bench

    return [str(value) for value in bench.values(key)]
