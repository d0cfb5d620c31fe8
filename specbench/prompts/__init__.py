"""Prompt sets by name.

Knows: where prompts come from, their ids (which address the noise) and the hash of a set's content.
Refuses to know: models, methods and how a picture is judged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specbench.decoding.interfaces import Prompt, prompt_id
from specbench.errors import UsageError, unknown

LONGEST = 10_000
"""Characters of a prompt: more is a mistaken file, and no model here reads a tenth of it."""
SETS = {
    "scenes": "480 captions of drawn scenes, GenEval's six families in turn; the benchmark set of mini",
    "scenes_val": "132 captions of drawn scenes for tuning, apart from the benchmark set",
    "file": "your own prompts, one per line: prompts=file prompts.path=my.txt",
    "text": 'a single prompt: prompt="a blue star above a red ring"',
}


@dataclass(frozen=True)
class PromptSet:
    """Prompts in order, GenEval metadata by id where a scorer can use it, and a hash of the whole set's content."""

    name: str
    items: tuple[Prompt, ...]
    hash: str
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scorer: str | None = None


def _own(texts: list[str]) -> tuple[tuple[Prompt, ...], str]:
    # A repeated line is the same prompt: samples, not repetition, ask for more pictures of it.
    unique = list(dict.fromkeys(texts))
    longest = max(map(len, unique))
    if longest > LONGEST:
        raise UsageError(f"a prompt has {longest:,} characters, and at most {LONGEST:,} are read")
    return tuple(Prompt(prompt_id(t), t) for t in unique), prompt_id("\n".join(unique))


def _read(path: str | None) -> list[str]:
    if not path:
        raise UsageError("prompts=file needs a file with one prompt per line: prompts.path=my.txt")
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()  # some editors begin files with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read prompts from {path}: {reason}") from None
    return [line.strip() for line in lines if line.strip()]


def load_prompts(name: str, limit: int | None = None, path: str | None = None, text: str | None = None) -> PromptSet:
    """Load a prompt set, the first ``limit`` prompts of it when given.

    Raises UsageError for an unknown set, an unreadable file, no prompts, or a limit below 1.
    """
    if name not in SETS:
        raise unknown("prompt set", name, SETS)
    if limit is not None and limit < 1:
        raise UsageError(f"prompts.limit={limit} leaves nothing to do; expected 1 or more")
    if name in ("file", "text"):
        texts = _read(path) if name == "file" else [text.strip()] if text and text.strip() else []
        if not texts:
            raise UsageError(f"no prompts: {path or 'the prompt'} is empty; expected at least one caption")
        items, content = _own(texts)
        return PromptSet(name, items[:limit], content)
    raw = (Path(__file__).parent / "scenes" / f"{name}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in raw.splitlines()]
    items = tuple(Prompt(row["id"], row["prompt"]) for row in rows)
    content = hashlib.sha256(raw.encode()).hexdigest()[:12]
    kept = rows[:limit]
    return PromptSet(name, items[:limit], content, {row["id"]: row for row in kept}, "scenes")
