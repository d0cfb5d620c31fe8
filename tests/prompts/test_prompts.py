"""Prompt sets: balanced, stored as built, addressed by stable ids; bad requests are refused in one sentence."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from specbench.decoding.interfaces import prompt_id
from specbench.errors import UsageError
from specbench.prompts import load_prompts
from specbench.prompts.scenes import sets
from specbench.prompts.scenes.world import FAMILIES


@pytest.mark.parametrize(("name", "size"), [("scenes", 480), ("scenes_val", 132)])
def test_sets_are_balanced_at_any_limit_and_ids_are_unique(name: str, size: int) -> None:
    whole = load_prompts(name)
    assert len(whole.items) == len({p.id for p in whole.items}) == size
    assert set(Counter(m["tag"] for m in whole.metadata.values()).values()) == {size // len(FAMILIES)}
    some = load_prompts(name, limit=12)
    assert Counter(m["tag"] for m in some.metadata.values()) == dict.fromkeys(FAMILIES, 2)
    assert some.hash == whole.hash


@pytest.mark.parametrize("name", sets.PER_FAMILY)
def test_stored_sets_are_what_the_rules_build(name: str) -> None:
    stored = (Path(sets.__file__).parent / f"{name}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in stored] == sets.build(name)


def test_benchmark_and_tuning_share_captions_only_where_there_are_too_few() -> None:
    shared = {p.text for p in load_prompts("scenes").items} & {p.text for p in load_prompts("scenes_val").items}
    meta = [m for m in load_prompts("scenes").metadata.values() if m["prompt"] in shared]
    assert {m["tag"] for m in meta} == {"single_object", "counting"}


def test_held_out_pairs_are_asked_for_in_the_benchmark_only() -> None:
    assert sum(m["held_out"] for m in load_prompts("scenes").metadata.values()) >= 20
    assert not any(m["held_out"] for m in load_prompts("scenes_val").metadata.values())


def test_own_prompts_have_ids_from_their_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("a red ring\n\n  a blue star \na red ring\n")
    own = load_prompts("file", path=str(path))
    assert [p.text for p in own.items] == ["a red ring", "a blue star"]
    assert own.items[0].id == prompt_id("a red ring")
    assert load_prompts("text", text="a red ring").items[0] == own.items[0]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"name": "scnes"}, "did you mean 'scenes'"),
        ({"name": "scenes", "limit": 0}, "limit=0"),
        ({"name": "file"}, "prompts.path"),
        ({"name": "file", "path": "/nowhere/x.txt"}, "cannot read prompts"),
        ({"name": "text", "text": "  "}, "empty"),
    ],
)
def test_bad_requests_are_refused(request_: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_prompts(**request_)  # type: ignore[arg-type]


def test_an_empty_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("empty.txt", "binary.txt"):
        with pytest.raises(UsageError):
            load_prompts("file", path=str(tmp_path / name))
