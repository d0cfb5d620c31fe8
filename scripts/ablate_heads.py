"""What heads learn from: training-set sizes and inputs, on one store of images: ``python scripts/ablate_heads.py``.

The analogues of SSD's Table 7 (training samples) and Table 3 (input -> target). As in the paper every run makes three
epochs, so a smaller set also means fewer steps, and the sizes stand to each other as the paper's do. Writes one CSV
line a head (Σ min(p, q) on held-out images, the measure of Figure 1), and the heads themselves, which
``specbench run method=ssd method.heads=ssd-NAME --weights-root DIR`` decodes with: the paper's measure is a benchmark
score of images decoded without verification.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import torch

from specbench.bench import registry
from specbench.decoding.laws import Sampling
from specbench.drafters import file_name
from specbench.drafters.training.data import Images, captions, load_images, write_images
from specbench.drafters.training.recipe import HELD_OUT
from specbench.drafters.training.ssd import INPUTS, SpatialTask, acceptance, offsets
from specbench.drafters.training.trainer import Plan, States, fit, order

ACROSS, DOWN = 5, 1
"""Heads that SSD's decoder needs at its defaults (2606.20543, table 9)."""

EPOCHS = 3


class Part(States):
    """The first so many images of a store, whose states are made once for all runs."""

    def __init__(self, whole: States, count: int) -> None:
        self.target, self.whole = whole.target, whole
        self.images = Images(whole.images.tokens[:count], whole.images.texts[:count])

    def batch(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As the whole store."""
        return self.whole.batch(chosen)


def main() -> None:
    """Train every variant and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--data", type=Path, required=True, help="folder of sampled images; missing ones are drawn")
    parser.add_argument("--sizes", type=int, nargs="+", default=[160, 320, 640, 960, 1920], help="training images")
    parser.add_argument("--inputs", type=int, default=960, help="training images of the runs that compare inputs")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--test", type=int, default=24, help="held-out images")
    parser.add_argument("--weights", type=Path, help="folder for the heads (DIR/drafters of a --weights-root)")
    parser.add_argument("--out", type=Path, default=Path("results/heads.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = registry.model(given.model)
    sampling = Sampling(**model.protocols[model.protocol])
    target = registry.load_target(given.model)
    texts = captions(given.model, None, max(given.sizes) + HELD_OUT, 0)
    stored = load_images(write_images(given.data, target, sampling, texts, 0))
    held = Images(stored.tokens[: given.test], stored.texts[: given.test])
    whole = States(target, Images(stored.tokens[HELD_OUT:], stored.texts[HELD_OUT:]))
    runs = [(given.inputs, reads, raw) for reads, raw in [*((x, False) for x in INPUTS), ("h_pre+e", True)]]
    runs += [(size, "h_pre+e", False) for size in given.sizes if size != given.inputs]
    places = offsets(target.grid, ACROSS, DOWN)
    rows: list[dict[str, Any]] = []
    for size, reads, raw in runs:
        plan = Plan(EPOCHS * size // given.batch, given.batch, given.lr, given.lr / 30)
        states = Part(whole, size)
        task = SpatialTask.fresh(target, states.batch(order(0, plan, size)), places, reads, raw)
        with tempfile.TemporaryDirectory() as folder:
            curve = fit(task, states, plan, Path(folder), report=lambda _: None)
        if given.weights is not None:
            name = f"ssd-{size}" if reads == "h_pre+e" else f"ssd-{reads.replace('+', '_')}"
            heads = task.heads(given.model, str(getattr(target, "weights_hash", "")))
            heads.write(given.weights / file_name(given.model, f"{name}-raw" if raw else name))
        goal = INPUTS[reads][0]
        for offset, found in acceptance(task, held, sampling).items():
            loss = sum(line[offset] for line in curve[-10:]) / len(curve[-10:])
            about = {"model": given.model, "images": size, "input": reads, "target": goal}
            settings = {"steps": plan.steps, "batch": plan.batch, "lr": plan.lr, "offset": offset}
            units = "raw" if raw else "deviation"
            numbers = {"loss": round(loss, 4), **{k: round(v, 4) for k, v in found.items()}}
            rows.append({**about, "units": units, **settings, **numbers})
            print(rows[-1], flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
