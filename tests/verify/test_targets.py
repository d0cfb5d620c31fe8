"""The conformance suite of targets passes on ours and notices a broken cache, a coupled batch, a wrong guidance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specbench.decoding.interfaces import START, Prompt
from specbench.models import load_target
from specbench.models.mini.target import MiniCanvas, MiniTarget
from specbench.verify.targets import target_conformance


def tiny() -> MiniTarget:
    target = load_target("mini/tiny", "float64")
    assert isinstance(target, MiniTarget)
    return target


def test_the_tiny_model_conforms() -> None:
    result = target_conformance("mini/tiny", tiny())
    assert result.passed, result.detail


def forgetful(self: MiniCanvas, n: Tensor, path: Tensor | None = None) -> None:
    self.committed += n.amin()


def off_by_one(self: MiniCanvas, n: Tensor, path: Tensor | None = None) -> None:
    self.committed += n + 1


def everything_before_it(mini: MiniCanvas, slots: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
    places, mask = tree(mini, slots, parents)
    return places, torch.arange(mask.shape[2]) <= slots[..., None]


def itself_not(mini: MiniCanvas, slots: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
    places, mask = tree(mini, slots, parents)
    return places, mask.scatter(2, slots[..., None], value=False)


def columns_for_depths(mini: MiniCanvas, slots: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
    _, mask = tree(mini, slots, parents)
    return slots, mask


def trees_of_row_zero(mini: MiniCanvas, slots: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
    return tree(mini, slots, parents[:1].expand_as(parents))


def in_order(self: MiniCanvas, n: Tensor, path: Tensor | None = None) -> None:
    keep(self, n)


def one_row_off(self: MiniCanvas, n: Tensor, path: Tensor | None = None) -> None:
    keep(self, n, path if path is None else (path - 1).clamp(min=0))


def conditional_rows_only(self: MiniCanvas, n: Tensor, path: Tensor | None = None) -> None:
    unmoved = self.cache[:, :, len(n) :].clone()
    keep(self, n, path)
    self.cache[:, :, len(n) :] = unmoved


tree, keep = MiniCanvas._tree, MiniCanvas.keep
DEFECTS = [
    *(("_tree", defect) for defect in (everything_before_it, itself_not, columns_for_depths, trees_of_row_zero)),
    *(("keep", defect) for defect in (in_order, one_row_off, conditional_rows_only)),
]


@pytest.mark.parametrize(("where", "defect"), DEFECTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_tree_seen_placed_or_kept_wrongly_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: str, defect: Callable[..., object]
) -> None:
    monkeypatch.setattr(MiniCanvas, where, defect)
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert result.detail.startswith("trees equal their paths: logits of a node differ")


def test_a_target_of_chains_alone_says_so_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def chains(self: MiniCanvas, slots: Tensor, parents: Tensor) -> None:
        raise NotImplementedError("chains only")

    monkeypatch.setattr(MiniCanvas, "_tree", chains)
    assert target_conformance("mini/tiny", tiny()).passed


def test_a_chain_given_by_its_parents_is_a_chain() -> None:
    target = tiny()
    tokens = torch.randint(target.vocab, (2, 16), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = START
    prompts = [Prompt("0", "a red circle"), Prompt("1", "two stars")]
    line = (torch.arange(16) - 1).expand(2, -1)
    plain = target.begin(prompts, 2.0).forward(tokens).logits
    torch.testing.assert_close(target.begin(prompts, 2.0).forward(tokens, line).logits, plain, rtol=0, atol=1e-12)


def scaled(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    return cond * scale - uncond


def averaged(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    mixed = uncond + scale * (cond - uncond)
    return mixed + 0.01 * mixed.mean(0, keepdim=True)


@pytest.mark.parametrize("keep", [forgetful, off_by_one])
def test_a_cache_at_the_wrong_place_is_noticed(
    monkeypatch: pytest.MonkeyPatch, keep: Callable[[MiniCanvas, Tensor], None]
) -> None:
    monkeypatch.setattr(MiniCanvas, "keep", keep)
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert "windows equal single passes" in result.detail


@pytest.mark.parametrize(("guide", "says"), [(scaled, "guidance"), (averaged, "rows are independent")])
def test_wrong_guidance_and_coupled_rows_are_noticed(
    monkeypatch: pytest.MonkeyPatch, guide: Callable[..., Tensor], says: str
) -> None:
    monkeypatch.setattr("specbench.models.mini.target.guide", guide)
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert says in result.detail


def test_pictures_of_the_wrong_kind_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MiniTarget, "pixels", lambda self, tokens: torch.zeros(len(tokens), 3, 4, 4))
    result = target_conformance("mini/tiny", tiny())
    assert result.passed is False
    assert "uint8" in result.detail
