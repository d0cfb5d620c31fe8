"""The two loops: AR hidden in a window of one, rows that do not see each other, one wait per pass."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Grid, Prompt
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError
from tests.decoding.targets import HashedTarget

METHODS = {
    "jacobi": {"redraft": "independent", "accept": "fresh"},
    "replay": {"redraft": "gumbel", "accept": "replay"},
    "sjd": {"redraft": "independent"},
    "scd": {"redraft": "maximal"},
    "scd_gs": {"redraft": "gumbel"},
}
FILLS = ["uniform", "onehot", "left", "above", "left_law", "above_law"]
PROMPTS = [Prompt(f"s{i}", f"picture {i}") for i in range(8)]
SAMPLING = Sampling(top_k=12)


def decode(method, window, prompts=PROMPTS, fill="uniform", target=None, **keywords):
    settings = {**METHODS[method], "fill": fill}
    decoder = build_decoder(settings, window, SAMPLING)
    return decoder.decode(target or HashedTarget(), prompts, **keywords)


def plain(prompts=PROMPTS, target=None, **keywords):
    return build_decoder({"decoder": "ar"}, None, SAMPLING).decode(target or HashedTarget(), prompts, **keywords)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fill", FILLS)
def test_a_window_of_one_is_ar_token_for_token(method, fill):
    assert torch.equal(decode(method, 1, fill=fill).tokens, plain().tokens)


@pytest.mark.parametrize("window", [2, 5, 16])
@pytest.mark.parametrize("fill", FILLS)
def test_replay_is_ar_at_every_window(window, fill):
    assert torch.equal(decode("replay", window, fill=fill).tokens, plain().tokens)


def test_other_methods_are_not_ar_token_for_token():
    # otherwise the two tests above could not fail
    for method in ("jacobi", "sjd", "scd", "scd_gs"):
        assert not torch.equal(decode(method, 5).tokens, plain().tokens)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("window", "fill"), [(3, "uniform"), (7, "left"), (16, "above_law")])
def test_batches_shards_and_order_change_nothing(method, window, fill):
    whole = decode(method, window, fill=fill)
    for part in [*([i] for i in range(8)), [0, 1, 2, 3], list(range(7)), [5, 2, 7, 0, 1, 6, 3, 4]]:
        some = decode(method, window, prompts=[PROMPTS[i] for i in part], fill=fill)
        assert torch.equal(some.tokens, whole.tokens[part])
        for row, image in enumerate(part):
            assert some.trace.row(row) == whole.trace.row(image)


def test_seed_sample_and_prompt_id_address_the_image():
    base = decode("scd", 4).tokens
    assert torch.equal(base, decode("scd", 4).tokens)
    assert not torch.equal(base, decode("scd", 4, seed=1).tokens)
    assert not torch.equal(base, decode("scd", 4, sample=1).tokens)
    renamed = [Prompt("x" + prompt.id, prompt.text) for prompt in PROMPTS]
    assert not torch.equal(base, decode("scd", 4, prompts=renamed).tokens)


def test_bare_captions_get_a_stable_id():
    texts = ["a red ring", "a blue star"]
    one = build_decoder(METHODS["sjd"], 4, SAMPLING).decode(HashedTarget(), texts)
    two = build_decoder(METHODS["sjd"], 4, SAMPLING).decode(HashedTarget(), texts[::-1])
    assert torch.equal(one.tokens, two.tokens.flip(0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", [1, 2, 3, 9, 16])
def test_the_counters_add_up(method, window):
    target = HashedTarget()
    size = target.grid.size
    generation = decode(method, window, target=target)
    trace, tokens = generation.trace, generation.tokens
    assert tokens.shape == (8, size)
    assert bool(((tokens >= 0) & (tokens < target.vocab)).all())
    assert torch.equal(trace.committed.sum(0), torch.full((8,), size))
    left = size - (trace.committed.cumsum(0) - trace.committed)
    assert torch.equal(trace.window, left.clamp(max=window))
    assert torch.equal(trace.drafted, left.clamp(max=window - 1))
    assert bool((trace.accepted <= trace.drafted).all())
    assert torch.equal(trace.committed, torch.minimum(trace.accepted + 1, left))
    assert trace.batch_passes == int(trace.nfe.max())
    assert bool((trace.nfe <= size).all())
    # a token is fixed no later than the pass that commits it, and never before pass 1
    commits_in = (trace.committed.cumsum(0)[:, :, None] <= torch.arange(size)).sum(0) + 1
    assert bool((trace.fixed_pass <= commits_in).all() and (trace.fixed_pass >= 1).all())
    assert bool((trace.changes < commits_in + 1).all())


@pytest.mark.parametrize("method", METHODS)
def test_speculation_starts_in_the_prompt_pass_and_the_window_shrinks_at_the_end(method):
    canvases = []

    class Watched(HashedTarget):
        def begin(self, prompts, guidance=None):
            canvases.append(super().begin(prompts, guidance))
            return canvases[-1]

    trace = decode(method, 6, target=Watched()).trace
    left = 16 - (trace.committed.cumsum(0) - trace.committed)
    assert canvases[0].widths == left.amax(1).clamp(max=6).tolist()
    assert canvases[0].widths[-1] < 6


def test_couplings_keep_drafts_that_independent_redrafts_lose():
    target = HashedTarget(Grid(8, 8), vocab=64, drift=0.3)
    nfe = {m: decode(m, 16, target=target).trace.nfe.double().mean() for m in METHODS}
    assert nfe["scd"] < 0.8 * nfe["sjd"]
    assert nfe["scd_gs"] < 0.8 * nfe["sjd"]
    assert nfe["replay"] < nfe["jacobi"]
    changes = {m: decode(m, 16, target=target).trace.changes.double().mean() for m in METHODS}
    assert changes["scd"] < 0.5 * changes["sjd"]


class HostWaits(TorchDispatchMode):
    """Counts what would make the host wait for a device: scalar reads, copies to the host, data-dependent shapes."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        boolean_index = name.startswith("index") and any(
            t is not None and t.dtype == torch.bool for t in (args[1] if isinstance(args[1], (list, tuple)) else ())
        )
        if boolean_index or name in {
            "_local_scalar_dense",
            "item",
            "is_nonzero",
            "nonzero",
            "masked_select",
            "_unique2",
            "equal",
        }:  # inference mode hands "item" through whole, other modes as "_local_scalar_dense"
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def waits(run, monkeypatch):
    """Host waits during ``run``, and the passes it made."""
    with HostWaits() as mode, monkeypatch.context() as patch:
        for name in ("tolist", "numpy", "cpu"):  # these read CPU tensors without a dispatch
            original = getattr(torch.Tensor, name)

            def noted(tensor, *args, _original=original, _name=name, **keywords):
                mode.seen.append(_name)
                return _original(tensor, *args, **keywords)

            patch.setattr(torch.Tensor, name, noted)
        generation = run()
    return mode.seen, generation.trace.batch_passes


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fill", FILLS)
def test_the_host_waits_once_per_pass(method, fill, monkeypatch):
    seen, passes = waits(lambda: decode(method, 5, fill=fill, prompts=PROMPTS[:3]), monkeypatch)
    after_the_loop = ["cpu"] * 3  # counters, fixed_pass, changes
    assert sorted(seen) == sorted(["item"] * passes + after_the_loop)


def test_ar_never_waits(monkeypatch):
    seen, passes = waits(lambda: plain(prompts=PROMPTS[:3]), monkeypatch)
    assert passes == 16
    assert seen == []


def test_the_count_of_waits_sees_planted_ones(monkeypatch):
    x = torch.arange(6)
    plants = [lambda: x.sum().item(), lambda: bool(x.sum() > 1), x.nonzero, lambda: x[x > 2], lambda: x.tolist()]
    plants += [torch.inference_mode()(plant) for plant in plants]
    for plant in plants:
        with pytest.MonkeyPatch.context() as patch:
            seen, _ = waits(lambda plant=plant: (plant(), plain(prompts=PROMPTS[:1]))[1], patch)
        assert len(seen) == 1, plant


@pytest.mark.parametrize("window", [0, -1, 2.5, None, True])
def test_windows_that_make_no_sense_are_refused(window):
    with pytest.raises(UsageError, match="window"):
        build_decoder(METHODS["sjd"], window, SAMPLING)


def test_a_window_beyond_the_image_is_refused():
    with pytest.raises(UsageError, match="between 1 and the image's 16 tokens, not 17"):
        decode("sjd", 17)


def test_no_prompts_are_refused():
    for prompts in ([], "a star"):
        with pytest.raises(UsageError, match="prompts"):
            decode("sjd", 4, prompts=prompts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decoder": "jacobbi"}, "did you mean 'jacobi'"),
        ({"redraft": "maximall"}, "did you mean 'maximal'"),
        ({"accept": "stict"}, "did you mean 'strict'"),
        ({"fill": "uniforme"}, "did you mean 'uniform'"),
        ({"redrafting": "maximal"}, "did you mean 'redraft'"),
        ({"decoder": "ar", "fill": "left"}, "fill"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(settings, message):
    with pytest.raises(UsageError, match=message):
        build_decoder(settings, 4, SAMPLING)


def test_float32_and_float64_take_the_same_path_but_for_near_ties():
    exact = decode("scd_gs", 5).tokens
    rounded = decode("scd_gs", 5, target=HashedTarget(dtype=torch.float32)).tokens
    assert (exact != rounded).double().mean() < 0.05


def test_time_is_charged_to_three_names_and_adds_up():
    generation = decode("scd", 5)
    assert set(generation.trace.seconds) == {"prefill", "passes", "sampling"}
    assert all(seconds > 0 for seconds in generation.trace.seconds.values())
    assert set(plain().trace.seconds) == {"prefill", "passes", "sampling"}


def test_ragged_windows_meet_every_edge_of_the_grid():
    for grid, window in itertools.product([Grid(3, 5), Grid(1, 7), Grid(7, 1), Grid(2, 2, 3)], [2, 3, 6, None]):
        for fill in FILLS:
            target = HashedTarget(grid)
            tokens = decode("replay", min(window or grid.size, grid.size), fill=fill, target=target).tokens
            assert torch.equal(tokens, plain(target=target).tokens)
