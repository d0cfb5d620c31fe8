"""A decoder written only to check the enumerator: slow, plain, and deliberately not the production code.

It runs SJD with independent redraws and uniform fill, or plain AR (``window=1``), and can be broken on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch

from specbench.decoding.interfaces import START, Generation, Key


@dataclass
class Throwaway:
    """``broken``: accept | residual | fixed-coin | bias-free (None): what is done wrong."""

    window: int = 3
    broken: str | None = None

    def decode(self, target, prompts, noise):
        batch, size, vocab, width = len(prompts), target.grid.size, target.vocab, self.window
        canvas, rows = target.begin(prompts), torch.arange(batch)
        tokens = torch.zeros(batch, size + width + 1, dtype=torch.int64)
        q = torch.zeros(batch, size + width + 1, vocab, dtype=torch.float64)
        known = torch.zeros(batch, size + width + 1, dtype=torch.bool)  # slots that hold a draft
        done, nfe = torch.zeros(batch, dtype=torch.int64), torch.zeros(batch, dtype=torch.int64)
        while bool((done < size).any()):
            noise.advance()
            nfe += done < size
            position = done[:, None] + torch.arange(width)
            live = (position < size) & (done < size)[:, None]
            draft = live & (torch.arange(width) < width - 1)
            fresh = draft & ~known.gather(1, position)
            uniform = torch.full((batch, width, vocab), 1 / vocab, dtype=torch.float64)
            filled = noise.draw(uniform, Key("fill", position), fresh)
            at = torch.where(fresh, filled, tokens.gather(1, position))
            slot_q = torch.where(fresh[..., None], uniform, q[rows[:, None], position])
            last = torch.where(done == 0, START, tokens[rows, (done - 1).clamp(min=0)])
            p = canvas.forward(torch.cat([last[:, None], at[:, :-1]], 1)).logits.softmax(-1)
            ratio = p.gather(2, at[..., None])[..., 0] / slot_q.gather(2, at[..., None])[..., 0].clamp(min=1e-300)
            coins = noise.accept(ratio.clamp(0, 1), Key("accept", position), draft, lead=True)
            run = ((coins | (self.broken == "accept")) & draft).cumprod(1).sum(1)
            rejected = draft[rows, run] & (done < size)
            residual = (p[rows, run] - slot_q[rows, run]).clamp(min=0)
            residual = residual / residual.sum(-1, keepdim=True).clamp(min=1e-300)
            law = torch.where(rejected[:, None], residual, p[rows, run])
            if self.broken == "residual":
                law = p[rows, run]
            need = (live[rows, run])[:, None]
            law = torch.where(need[..., None], law[:, None], uniform[:, :1])
            fresh_token = noise.draw(law, Key("residual", position[rows, run][:, None]), need & rejected[:, None])
            free_token = noise.coupled(law, position[rows, run][:, None], need & ~rejected[:, None])
            token = torch.where(rejected, fresh_token[:, 0], free_token[:, 0])
            committed = torch.where(done < size, torch.minimum(run + 1, size - done), 0)
            columns = torch.arange(width)
            redraw = live & (columns > run[:, None])
            redrawn = noise.draw(torch.where(redraw[..., None], p, uniform), Key("draft", position), redraw)
            at = torch.where(redraw, redrawn, at)
            at = torch.where((columns == run[:, None]) & need, token[:, None], at)
            tokens.scatter_(1, position, torch.where(live, at, tokens.gather(1, position)))
            for w in range(width):
                q[rows, position[:, w]] = torch.where(live[:, w, None], p[:, w], q[rows, position[:, w]])
                known[rows, position[:, w]] |= live[:, w]
            canvas.keep(committed)
            done = done + committed
        return Generation(tokens[:, :size], SimpleNamespace(nfe=nfe))
