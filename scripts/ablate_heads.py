"""What heads learn from: training-set sizes and inputs, on one store of images: ``python scripts/ablate_heads.py``.

The analogues of SSD's Table 7 (training samples) and Table 3 (input -> target), with the first head to the right and
the first one below; heads share no weight, so these two are trained as they would be among ten. Every run has the same
number of steps, so that a size says what data does and not what compute does. The measure is Σ min(p, q) on held-out
images (the paper's is a benchmark score of images decoded without verification). Writes one CSV line a head.
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
from specbench.drafters.training.data import Images, captions, load_images, write_images
from specbench.drafters.training.recipe import HELD_OUT
from specbench.drafters.training.ssd import INPUTS, SpatialTask, acceptance
from specbench.drafters.training.trainer import Plan, States, fit, order

PLACES = [(0, 1), (1, 0)]


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
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 192, 384, 864], help="training images")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--test", type=int, default=24, help="held-out images")
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
    most = max(given.sizes)
    runs = [(most, reads, False) for reads in INPUTS] + [(most, "h_pre+e", True)]
    runs += [(size, "h_pre+e", False) for size in given.sizes if size != most]
    plan = Plan(given.steps, given.batch, given.lr, given.lr / 30)
    rows: list[dict[str, Any]] = []
    for size, reads, raw in runs:
        states = Part(whole, size)
        task = SpatialTask.fresh(target, states.batch(order(0, plan, size)), PLACES, reads, raw)
        with tempfile.TemporaryDirectory() as folder:
            curve = fit(task, states, plan, Path(folder), report=lambda _: None)
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
