"""Tests of the real noise alone, which the enumerator assumes and cannot see.

Knows: what an addressed noise promises. Numbers at two addresses are independent if any part of the address differs
(pass, position, image, role, index, sample, seed); a Gumbel row is the same in every pass; draws have their law.
Refuses to know: how addresses are hashed. Everything is read through the three verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from specbench.decoding.interfaces import Key, Noise, Prompt
from specbench.verify import chisquare
from specbench.verify.checks import NoiseError

MakeNoise = Callable[[Sequence[Prompt], int, int], Noise]
"""``make(prompts, seed, sample)``, e.g. ``AddressedNoise``."""

ROWS, COLUMNS, FINE, COIN_STEPS = 256, 32, 64, 16
ALPHA = 1e-6


@dataclass(frozen=True)
class Address:
    """Everything that a number is keyed by, except position and image, which run over a whole block."""

    seed: int = 0
    sample: int = 0
    passes: int = 1
    role: str = "draft"
    index: int = 0
    shift: int = 0
    images: int = 0


BASE = Address()
ROLES = ("draft", "accept", "residual", "fill", "child")


def elsewhere(base: Address) -> Iterator[Address]:
    """Addresses that differ from ``base`` in one part, the role excepted: none may share its numbers."""
    changes: dict[str, tuple[int, ...]] = {
        "passes": (2, 9),
        "shift": (1, COLUMNS),
        "images": (1, ROWS),
        "index": (1,),
        "sample": (1,),
        "seed": (1,),
    }
    for part, values in changes.items():
        for value in values:
            yield replace(base, **{part: value})  # type: ignore[arg-type]  # every part named here is a number


def check_noise(make: MakeNoise) -> None:
    """Raise ``NoiseError`` with the first broken promise (one in ``ALPHA`` per test by chance; all is seeded)."""
    _fresh_numbers_are_independent(make)
    _gumbel_rows_belong_to_positions_and_images(make)
    _draws_have_their_law(make)
    check_collisions(make)


def _fresh_numbers_are_independent(make: MakeNoise) -> None:
    """Each role with itself elsewhere (a key that loses a part for one role only is a defect too), then with others."""
    found = {role: _quantiles(make, replace(BASE, role=role)) for role in ROLES}
    for role, base in found.items():
        _demand(_even(base), f"{role} numbers are not uniform")
        for one, next_one in ((base[:, :-1], base[:, 1:]), (base[:-1], base[1:])):
            _demand(_independent(one, next_one), f"neighbouring positions or images share their {role} numbers")
        _demand(_no_two_alike(base), f"two positions or images share their {role} numbers")
        for other in elsewhere(replace(BASE, role=role)):
            _demand(_independent(base, _quantiles(make, other)), f"{role} numbers repeat: {_difference(other)}")
    for one_role, other_role in combinations(ROLES, 2):
        independent = _independent(found[one_role], found[other_role])
        _demand(independent, f"{other_role} numbers repeat those of {one_role}: the role is not part of the key")


def _gumbel_rows_belong_to_positions_and_images(make: MakeNoise) -> None:
    base = _race(make, BASE)
    _demand(_even(base), "Gumbel draws are not uniform")
    _demand(_no_two_alike(base), "two positions or images share a Gumbel row")
    _demand(np.array_equal(base, _race(make, replace(BASE, passes=2))), "a Gumbel row changes with the pass")
    _demand(_rows_stay_when_the_window_moves(make, told=False), "a Gumbel row changes when the window moves")
    _demand(_rows_stay_when_the_window_moves(make, told=True), "a Gumbel row changes when the noise is told of a move")
    for role in ROLES:
        _demand(
            _independent(base, _quantiles(make, replace(BASE, role=role))), f"{role} numbers follow the Gumbel rows"
        )
    for other in elsewhere(BASE):
        if other.index == 0 and other.passes == 1:
            _demand(_independent(base, _race(make, other)), f"Gumbel rows repeat: {_difference(other)}")


def _rows_stay_when_the_window_moves(make: MakeNoise, told: bool) -> bool:
    """A window that moves, skips a pass, jumps by its own width and narrows reads what a new noise would give it."""
    moving, at = _noise(make, BASE), 0
    for step, columns in ((0, COLUMNS), (1, COLUMNS), (4, COLUMNS), (3, 0), (27, COLUMNS), (COLUMNS, COLUMNS), (2, 20)):
        moving.advance(step) if told else moving.advance()
        at += step
        if columns:
            seen = moving.coupled(_even_law()[:, :columns], _positions(at)[:, :columns], _all()[:, :columns])
            expected = _race(make, replace(BASE, shift=at))[:, :columns]
            if not np.array_equal(seen.numpy() / FINE, expected):
                return False
    return True


def _draws_have_their_law(make: MakeNoise) -> None:
    law = torch.tensor([0.5, 0.0, 0.24, 0.0, 0.2, 0.05, 0.01, 0.0], dtype=torch.float64)
    laws = law.expand(ROWS, COLUMNS, 8).contiguous()
    for dtype in (torch.float32, torch.float64):
        noise = _noise(make, BASE)
        for verb, tokens in (
            ("draw", noise.draw(laws.to(dtype), Key("draft", _positions(0)), _all())),
            ("coupled", noise.coupled(laws.to(dtype), _positions(0), _all())),
        ):
            counts = torch.bincount(tokens.flatten(), minlength=8).double()
            _demand(not bool(counts[law == 0].any()), f"{verb} chose a token of probability zero")
            expected = (law * tokens.numel())[law > 0]
            statistic = float(((counts[law > 0] - expected) ** 2 / expected).sum())
            _demand(chisquare.tail(statistic, len(expected) - 1) > ALPHA, f"{verb} does not follow its law in {dtype}")
    coins = _noise(make, BASE).accept(torch.full((ROWS, COLUMNS), 0.3), Key("accept", _positions(0)), _all())
    n = coins.numel()
    _demand(abs(float(coins.sum()) - 0.3 * n) < 5 * (n * 0.21) ** 0.5, "coins do not fall with their probability")


def check_collisions(make: MakeNoise) -> None:
    """Two passes draw equal tokens at rate Σ p q; a key without the pass makes them agree far more often.

    Neither the law nor the expected passes of a single method would tell: SJD would quietly become a coupled method.
    """
    generator = torch.Generator().manual_seed(0)
    p, q = torch.rand(2, ROWS, COLUMNS, 16, generator=generator, dtype=torch.float64).pow(3).add(1e-9).unbind(0)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    noise = _noise(make, BASE)
    first = noise.draw(p, Key("draft", _positions(0)), _all())
    noise.advance()
    second = noise.draw(q, Key("draft", _positions(0)), _all())
    rate = (p * q).sum(-1)
    z = float(((first == second).double() - rate).sum() / (rate * (1 - rate)).sum().sqrt())
    _demand(abs(z) < 5, f"successive drafts agree more or less often than Σ p·q ({z:+.0f} standard errors)")


def _noise(make: MakeNoise, address: Address) -> Noise:
    prompts = [Prompt(f"image-{address.images + row}", "") for row in range(ROWS)]
    noise = make(prompts, address.seed, address.sample)
    for _ in range(address.passes):
        noise.advance()
    return noise


def _quantiles(make: MakeNoise, address: Address) -> np.ndarray:
    """The leading bits of one number per image and position, [ROWS, COLUMNS] in [0, 1).

    Read as decoding reads that role: a coin is thrown at rising probabilities, each time with a new noise object.
    """
    key = Key(address.role, _positions(address.shift), address.index)
    if address.role != "accept":
        return _noise(make, address).draw(_even_law(), key, _all()).numpy() / FINE
    steps = range(1, COIN_STEPS)
    thrown = (_noise(make, address).accept(torch.full((ROWS, COLUMNS), s / COIN_STEPS), key, _all()) for s in steps)
    return np.sum([(~coins).numpy() for coins in thrown], axis=0) / COIN_STEPS


def _race(make: MakeNoise, address: Address) -> np.ndarray:
    """The winner of one Gumbel row per image and position, [ROWS, COLUMNS] in [0, 1)."""
    return _noise(make, address).coupled(_even_law(), _positions(address.shift), _all()).numpy() / FINE


def _even_law() -> Tensor:
    return torch.full((ROWS, COLUMNS, FINE), 1 / FINE, dtype=torch.float64)


def _positions(shift: int) -> Tensor:
    return (torch.arange(COLUMNS) + shift).expand(ROWS, COLUMNS)


def _all() -> Tensor:
    return torch.ones(ROWS, COLUMNS, dtype=torch.bool)


def _even(u: np.ndarray, cells: int = 16) -> bool:
    counts = np.bincount((u * cells).astype(int).ravel(), minlength=cells)
    statistic = ((counts - u.size / cells) ** 2).sum() * cells / u.size
    return chisquare.tail(float(statistic), cells - 1) > ALPHA


def _independent(u: np.ndarray, v: np.ndarray, cells: int = 4) -> bool:
    """Chi-square of the joint cells of two arrays whose margins are uniform."""
    grid = np.minimum((u * cells).astype(int), cells - 1) * cells + np.minimum((v * cells).astype(int), cells - 1)
    counts = np.bincount(grid.ravel(), minlength=cells**2)
    statistic = ((counts - u.size / cells**2) ** 2).sum() * cells**2 / u.size
    return chisquare.tail(float(statistic), cells**2 - 1) > ALPHA


def _no_two_alike(u: np.ndarray) -> bool:
    """No two columns and no two rows of [ROWS, COLUMNS] agree in more than half of their entries."""
    columns = (u[:, :, None] == u[:, None, :]).mean(0)
    rows = (u[:, None, :] == u[None, :, :]).mean(2)
    return all((share - np.eye(len(share))).max() < 0.5 for share in (columns, rows))


def _difference(other: Address) -> str:
    return ", ".join(_parts(other)) + " is not part of the key"


def _parts(other: Address) -> Iterator[str]:
    for name in other.__dataclass_fields__:
        if name != "role" and getattr(other, name) != getattr(BASE, name):
            yield {"passes": "the pass", "shift": "the position", "images": "the image"}.get(name, f"the {name}")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NoiseError(otherwise)
