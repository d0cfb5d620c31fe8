"""Cut slices of what official implementations computed, small enough to be committed: ``tests/models/data``.

    .venv/bin/python scripts/golden_slices.py GOLDEN [tests/models/data]

A slice is a language model with what the official code computed on it. Whole checkpoints are too large, so weights are
rounded to fewer mantissa bits, rows that no compared number depends on are zero, and picture decoders (11 to 60 MB) are
left out. ``unpack`` makes of a slice a folder as it was cut from; ``TOLERANCE`` is what the rounding explains.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

State = dict[str, Any]
DATA = Path(__file__).resolve().parent.parent / "tests" / "models" / "data"
MOST = 300_000
"""Bytes that a family's slice may have."""
TOLERANCE = {"janus": 2e-3, "lumina": 3e-3, "emu3": 1e-4, "llamagen": 1e-1, "cosmos": 3e-4}
"""Largest difference from the official outputs that rounded weights explain, in logits and hidden states: about twice
what was measured. Logits spread by 0.2 to 1.6."""
CODES = 64
"""Of Janus's 512 and LlamaGen's 128 codes the logits of so many are kept."""
SEPARATOR = "|"


class Slice(NamedTuple):
    """Which files are kept, with how many mantissa bits (float32 has 23), and what is left out of them."""

    files: tuple[str, ...]
    bits: int
    prune: Callable[[dict[str, State]], None]


def prune_lumina(files: dict[str, State]) -> None:
    """Words that are read, and logits of words that are codes."""
    gold, weights = files["lumina_tiny/gold.pt"], files["lumina_tiny/model.safetensors"]
    table = files["lumina_tiny/config.json"]["vocabulary_map"]
    codes = torch.tensor([number for name, number in table.items() if name.startswith("IMGIMG")])
    keep_rows(weights, "model.embed_tokens.weight", gold["ids"])
    keep_rows(weights, "lm_head.weight", codes)
    kept = torch.zeros(gold["a"].shape[-1]).index_fill(0, codes, 1)
    gold["a"], gold["b"] = gold["a"] * kept, gold["b"] * kept


def prune_emu3(files: dict[str, State]) -> None:
    """Words that are read, and logits of the last 64 words, which stand in for codes."""
    gold, weights = files["emu3_tiny/gold.pt"], files["emu3_tiny/model.safetensors"]
    keep_rows(weights, "model.embed_tokens.weight", gold["ids"])
    keep_rows(weights, "lm_head.weight", torch.arange(32, 96))
    files["emu3_tiny/gold.pt"] = {name: gold[name] for name in ("ids", "mask", "pos", "a", "b")}


def prune_janus(files: dict[str, State]) -> None:
    """The language model alone, with the codes and words that are read and the logits of the first codes."""
    gold, weights = files["janus_tiny/gold.pt"], files["janus_tiny/pytorch_model.bin"]
    for name in [name for name in weights if name.startswith(("gen_vision_model.", "aligner.", "vision_model."))]:
        del weights[name]
    keep_rows(weights, "language_model.model.embed_tokens.weight", gold["ids"])
    keep_rows(weights, "language_model.lm_head.weight", torch.arange(0))
    keep_rows(weights, "gen_embed.weight", gold["img"])
    keep_rows(weights, "gen_head.vision_head.weight", torch.arange(CODES))
    gold["lg"] = gold["lg"][..., :CODES]
    files["janus_tiny/gold.pt"] = {name: gold[name] for name in ("ids", "img", "h", "lg")}


def prune_llamagen(files: dict[str, State]) -> None:
    """Codes that are read, captions without what is masked, and the logits of the first codes."""
    gold, weights = files["llamagen_tiny/t2i_gold.pt"], files["llamagen_tiny/t2i.pt"]["model"]
    keep_rows(weights, "tok_embeddings.weight", gold["toks"])
    keep_rows(weights, "output.weight", torch.arange(CODES))
    gold["lg"] = gold["lg"][..., :CODES]
    longest = int(gold["em"].sum(1).max())
    weights["cls_embedding.uncond_embedding"][:-longest] = 0
    gold["cond"] = gold["cond"] * gold["em"][..., None]
    files["llamagen_tiny/t2i_gold.pt"] = {name: gold[name] for name in ("cond", "em", "toks", "lg")}


def prune_cosmos(files: dict[str, State]) -> None:
    """Of its relatives, which are refused, the facts alone."""
    for name in ("cosmos_tiny/yarn.pt", "cosmos_tiny/v2w.pt"):
        files[name] = {"p": files[name]["p"]}


SLICES = {
    "janus": Slice(("janus_tiny/gold.pt", "janus_tiny/pytorch_model.bin"), 11, prune_janus),
    "lumina": Slice(
        ("lumina_tiny/gold.pt", "lumina_tiny/config.json", "lumina_tiny/model.safetensors"), 11, prune_lumina
    ),
    "emu3": Slice(("emu3_tiny/gold.pt", "emu3_tiny/config.json", "emu3_tiny/model.safetensors"), 15, prune_emu3),
    "llamagen": Slice(("llamagen_tiny/t2i_gold.pt", "llamagen_tiny/t2i.pt"), 7, prune_llamagen),
    "cosmos": Slice(("cosmos_tiny/base.pt", "cosmos_tiny/yarn.pt", "cosmos_tiny/v2w.pt"), 14, prune_cosmos),
}


def keep_rows(state: State, name: str, rows: Tensor) -> None:
    """Zero all rows of a matrix but these."""
    state[name] = torch.zeros_like(state[name]).index_copy(0, rows.unique(), state[name][rows.unique()])


def rounded(value: np.ndarray, bits: int) -> np.ndarray:
    """float32 to the nearest number with ``bits`` bits of mantissa."""
    step = 1 << (23 - bits)
    return ((value.view(np.int32).astype(np.int64) + step // 2) // step * step).astype(np.int32).view(np.float32)


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Tensors and other values of nested dictionaries by their way, separated by bars."""
    if isinstance(value, Mapping) and any(isinstance(each, Tensor | Mapping) for each in value.values()):
        for name, each in value.items():
            yield from leaves(each, f"{path}{SEPARATOR}{name}")
    else:
        yield path, value


def read(golden: Path, name: str) -> State:
    """A file of the golden folder as nested dictionaries."""
    path = golden / name
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)


def cut(golden: Path, family: str) -> dict[str, np.ndarray]:
    """The arrays of one family's slice. Weights and outputs lie as planes of bytes: equal ones then compress."""
    chosen, arrays, texts = SLICES[family], {}, {}
    files = {name: read(golden, name) for name in chosen.files}
    chosen.prune(files)
    for name, state in files.items():
        for path, value in leaves(state, name):
            if not isinstance(value, Tensor):
                texts[path] = value
            elif value.dtype == torch.float32:
                official = path.rpartition(SEPARATOR)[2] in ("a", "b", "h", "lg")
                array = rounded(value.contiguous().numpy(), 18 if official else chosen.bits)
                arrays[path] = np.moveaxis(array.view(np.uint8).reshape(*array.shape, 4), -1, 0).copy()
            else:
                arrays[path] = value.numpy().astype(np.int32)
    arrays["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    return arrays


def unpack(file: Path, folder: Path) -> None:
    """Write the files that a slice was cut from into ``folder``."""
    files: dict[str, State] = {}
    with np.load(file) as arrays:
        found: dict[str, Any] = json.loads(arrays["texts"].tobytes())
        for path in arrays.files:
            if path != "texts":
                array = arrays[path]
                if array.dtype == np.uint8:
                    array = np.moveaxis(array, 0, -1).copy().view(np.float32)[..., 0]
                else:
                    array = array.astype(np.int64)
                found[path] = torch.from_numpy(array.copy())
    for path, value in found.items():
        name, *way = path.split(SEPARATOR)
        if not way:
            files[name] = value
            continue
        state = files.setdefault(name, {})
        for step in way[:-1]:
            state = state.setdefault(step, {})
        state[way[-1]] = value
    for name, state in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text(json.dumps(state), encoding="utf-8")
        elif path.suffix == ".safetensors":
            save_file(state, path)
        else:
            torch.save(state, path)


def main() -> int:
    """Cut every family's slice. Exit code 1 if one is too large to be committed."""
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    golden, folder = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else DATA
    folder.mkdir(parents=True, exist_ok=True)
    large = False
    for family in SLICES:
        path = folder / f"{family}.npz"
        np.savez_compressed(path, **cut(golden, family))
        size = path.stat().st_size
        large = large or size > MOST
        print(f"{family:10} {size / 1024:5.0f} KiB, {SLICES[family].bits} bits of mantissa")
    return int(large)


if __name__ == "__main__":
    raise SystemExit(main())
