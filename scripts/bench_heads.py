"""What drafting and verifying many tokens costs, in AR steps: ``python scripts/bench_heads.py``.

The analogue of SSD's Figures 3 and 4a (2606.20543): the time of the vertical heads, with the target's norm and head
behind them, and the time of one pass over as many tokens, each divided by the time of a pass over one token. Passes
start at several rows of the image: a longer cache makes every pass dearer, and the ratio smaller or larger. Batch 1,
one thread, processor time, median of rounds in which the sizes take turns. Writes a CSV.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch

from specbench.bench import registry
from specbench.decoding.interfaces import START, Prompt, Target
from specbench.decoding.laws import guide
from specbench.drafters import load_heads


def clocked(call: Callable[[], object]) -> float:
    """Processor milliseconds of one call."""
    start = time.process_time()
    call()
    return 1000 * (time.process_time() - start)


@torch.inference_mode()
def measure(
    target: Target, variant: str, sizes: list[int], rows: list[int], rounds: int, guidance: float | None
) -> dict[tuple[str, int, int], float]:
    """Median milliseconds by (what, start row, tokens); a pass over one token is ``("pass", row, 1)``."""
    heads = load_heads(str(getattr(target, "name", "")), variant).nearest(0, 1)
    taken: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in rows:
        canvas, first = target.begin([Prompt("bench", "a picture of a red star")], guidance), row * target.grid.columns
        canvas.forward(torch.full((1, first + 1), START).masked_fill(torch.arange(first + 1) > 0, 0))
        canvas.keep(torch.tensor([first + 1]))
        for turn in range(rounds + 2):
            for size in sizes:
                tokens = torch.zeros(1, size, dtype=torch.int64)
                out = canvas.forward(tokens)
                assert out.h is not None

                def draft(h: torch.Tensor = out.h, tokens: torch.Tensor = tokens) -> object:
                    # One head's offset per token: the first row below, as k_v = 1 drafts it.
                    guessed = heads.vertical(h, target.embed(tokens))[..., 0, :]
                    logits = target.head(target.norm(guessed))
                    return guide(logits[0], logits[-1], guidance or 1.0)

                for what, call in (("pass", lambda c=canvas, t=tokens: c.forward(t)), ("heads", draft)):
                    spent = clocked(call)
                    if turn > 1:  # the first rounds allocate
                        taken[what, row, size].append(spent)
    return {key: statistics.median(values) for key, values in taken.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--variant", default="ssd")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64, 112])
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 4, 8])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/heads-cost.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = registry.model(given.model)
    guidance = model.protocols[model.protocol]["guidance"]
    sizes = sorted({1, *given.sizes})
    target = registry.load_target(given.model)
    found = measure(target, given.variant, sizes, given.rows, given.rounds, guidance)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "what", "start_row", "tokens", "milliseconds", "ar_steps", "threads"])
        for (what, row, size), spent in sorted(found.items()):
            steps = spent / found["pass", row, 1]
            writer.writerow([given.model, what, row, size, round(spent, 3), round(steps, 3), torch.get_num_threads()])
            print(f"{what:<6} row {row:<3} {size:>4} tokens {spent:8.2f} ms  {steps:6.2f} AR steps")


if __name__ == "__main__":
    main()
