"""mini as a target: its cache is exact, its rows are independent, and it says which words it cannot read."""

from __future__ import annotations

import pytest
import torch

from specbench.decoding.interfaces import START, Canvas, Prompt, Target
from specbench.errors import UsageError
from specbench.models import load_target
from specbench.models.mini import text, weights
from specbench.models.mini.target import MiniTarget

PROMPTS = [Prompt("0", "a picture of a red circle"), Prompt("1", "a star above a ring"), Prompt("2", "")]


def tiny(dtype: str = "float64") -> MiniTarget:
    target = load_target("mini/tiny", dtype)
    assert isinstance(target, MiniTarget)
    assert isinstance(target, Target)
    return target


def teacher_forced(target: MiniTarget, tokens: torch.Tensor, guidance: float | None) -> torch.Tensor:
    cond = target.transformer(text.encode([p.text for p in PROMPTS]), tokens)
    if guidance is None:
        return cond
    uncond = target.transformer(text.encode([""] * len(PROMPTS)), tokens)
    return uncond + guidance * (cond - uncond)


@pytest.mark.parametrize("guidance", [None, 2.5])
@pytest.mark.parametrize("window", [1, 3, 16])
def test_windows_at_uneven_progress_give_the_logits_of_one_full_pass(guidance: float | None, window: int) -> None:
    target = tiny()
    generator = torch.Generator().manual_seed(window)
    tokens = torch.randint(target.vocab, (3, 16), generator=generator)
    whole = teacher_forced(target, tokens, guidance)
    canvas = target.begin(PROMPTS, guidance)
    assert isinstance(canvas, Canvas)
    done = torch.zeros(3, dtype=torch.int64)
    first = True
    while (done < 16).any():
        last = tokens.gather(1, (done - 1).clamp(min=0)[:, None])
        ahead = (done[:, None] + torch.arange(window - 1)).clamp(max=15)
        # Rejected drafts of earlier passes must leave no trace: feed wrong tokens behind the kept part.
        kept = torch.minimum(torch.randint(1, window + 1, (3,), generator=generator), 16 - done)
        drafts = tokens.gather(1, ahead)
        wrong = torch.arange(1, window)[None] >= kept[:, None]
        drafts = torch.where(wrong, (drafts + 1) % target.vocab, drafts)
        fed = torch.cat([torch.full_like(last, START) if first else last, drafts], 1)
        logits = canvas.forward(fed).logits
        for row in range(3):
            for j in range(int(kept[row])):
                torch.testing.assert_close(logits[row, j], whole[row, done[row] + j], rtol=0, atol=1e-10)
        canvas.keep(kept)
        done, first = done + kept, False


def test_hidden_states_lead_to_the_logits_through_norm_and_head() -> None:
    target = tiny()
    out = target.begin(PROMPTS, 2.0).forward(torch.full((3, 1), START))
    assert out.h is not None
    assert out.h.shape == (2, 3, 1, target.transformer.config.width)
    cond, uncond = target.head(target.norm(out.h))
    torch.testing.assert_close(uncond + 2.0 * (cond - uncond), out.logits)


def test_the_tiny_model_has_contexts_that_differ_and_is_the_same_every_time() -> None:
    one, two = tiny(), tiny()
    tokens = torch.randint(one.vocab, (3, 16), generator=torch.Generator().manual_seed(0))
    law = teacher_forced(one, tokens, None).softmax(-1)
    assert torch.equal(law, teacher_forced(two, tokens, None).softmax(-1))
    distance = (law[0] - law[1]).abs().sum(-1).mean() / 2
    assert distance > 0.3


def test_loading_the_tiny_model_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    tiny()
    assert torch.equal(before, torch.random.get_rng_state())


def test_captions_become_one_id_per_word_and_unread_words_are_reported() -> None:
    ids = text.encode(["A red ring!", ""])
    assert ids.shape == (2, text.PREFIX)
    assert (ids[1] == torch.tensor([text.PAD] * (text.PREFIX - 1) + [text.BEGIN])).all()
    assert len({int(i) for i in ids[0][3:6]}) == 3
    assert torch.equal(ids[0], text.encode(["a picture of a red ring"])[0])
    assert text.warnings("a red ring") == []
    assert "dragon" in text.warnings("a red dragon")[0]
    assert "'2'" in text.warnings("2 rings")[0]
    assert "dropped" in text.warnings(" ".join(["a"] * 20))[0]


@pytest.mark.parametrize(
    ("name", "dtype", "device", "says"),
    [("minni", "float32", "cpu", "did you mean 'mini'"), ("mini/tiny", "float23", "cpu", "did you mean 'float32'")],
)
def test_unknown_names_are_answered_with_the_nearest(name: str, dtype: str, device: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_target(name, dtype, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device_is_refused() -> None:
    with pytest.raises(UsageError, match="no usable CUDA device"):
        load_target("mini/tiny", device="cuda")


@pytest.mark.skipif(not weights.PATH.exists(), reason="mini's weights are not trained yet")
def test_the_shipped_weights_are_small_and_of_the_stated_size() -> None:
    target = load_target("mini")
    assert isinstance(target, MiniTarget)
    assert weights.PATH.stat().st_size <= 15_000_000
    assert 4e6 <= sum(p.numel() for p in target.transformer.parameters()) <= 6e6
    assert target.vocab >= 1024
    assert target.grid.size == 256
