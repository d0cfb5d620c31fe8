"""Writes the stored prompt sets of the scenes world. Run after a change of ``specbench/prompts/scenes/sets.py``."""

import json
from pathlib import Path

from specbench.prompts.scenes import sets

for name in sets.PER_FAMILY:
    path = Path(sets.__file__).parent / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sets.build(name)))
    print(f"{path}: {sum(1 for _ in path.open())} prompts")
