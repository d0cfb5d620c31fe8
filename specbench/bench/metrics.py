"""From stored records to named numbers: counters, clocks, verdicts (definitions: ``docs/metrics.md``).

Knows: which records stand behind which number, and that ratios pair images by prompt and sample.
Refuses to know: where records lie, and how a document or a table is laid out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specbench.bench import stats
from specbench.bench.stats import Interval

if TYPE_CHECKING:
    from specbench.bench.store import Key, Records
    from specbench.decoding.trace import Trace

Timing = Mapping[str, Any]


def merged(traces: Sequence[Mapping[str, Any]]) -> Trace:
    """Stored traces of single images as one :class:`Trace`, so that its metrics are computed in one place only."""
    import torch

    from specbench.decoding.trace import Trace

    passes = max(len(trace["window"]) for trace in traces)

    def per_pass(name: str) -> torch.Tensor:
        return torch.tensor([[*trace[name], *[0] * (passes - len(trace[name]))] for trace in traces]).T

    return Trace(
        window=per_pass("window"),
        drafted=per_pass("drafted"),
        accepted=per_pass("accepted"),
        committed=per_pass("committed"),
        fixed_pass=torch.tensor([trace["fixed_pass"] for trace in traces]),
        changes=torch.tensor([trace["changes"] for trace in traces]),
        row_ends=per_pass("row_ends") if "row_ends" in traces[0] else None,
    )


def nfe(image: Mapping[str, Any]) -> int:
    """Target passes of one stored image."""
    return len(image["trace"]["window"])


def steps(image: Mapping[str, Any]) -> int:
    """The same in the published convention: with the passes that released code spends on row ends alone."""
    return nfe(image) + int(sum(image["trace"].get("row_ends", ())))


def latency(timing: Timing) -> float:
    """Seconds of one image at batch 1: prefill + passes + sampling, pixels excluded."""
    return float(timing["prefill"] + timing["passes"] + timing["sampling"])


def counters(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every number that follows from the traces alone; NaN becomes None."""
    trace = merged([image["trace"] for image in images])
    drafted = bool(trace.drafted.sum() > 0)
    return {
        "nfe": {"mean": float(trace.nfe.double().mean()), "total": int(trace.nfe.sum())},
        "steps_with_row_ends": float(trace.steps_with_row_ends.double().mean()),
        "tokens_per_pass": trace.tokens_per_pass,
        "accept_rate_pooled": finite(trace.accept_rate_pooled),
        "accept_rate_per_image_mean": finite(trace.accept_rate_per_image_mean),
        "accept_rate_at": [finite(rate) for rate in trace.accept_rate_at] if drafted else None,
        "accepted_length": {
            "with_bonus": trace.accepted_length(bonus=True),
            "without_bonus": trace.accepted_length(),
        }
        if drafted
        else None,
        "effective_window": int(trace.window.max()),
    }


def nfe_ratio(baseline: Records, records: Records, keys: Sequence[Key]) -> Interval | None:
    """Σ NFE of AR ÷ Σ NFE of the method over the images both have."""
    both = [key for key in keys if key in baseline.images and key in records.images]
    if not both:
        return None
    return stats.ratio_of_sums(
        [nfe(baseline.images[key]) for key in both],
        [nfe(records.images[key]) for key in both],
        [prompt for prompt, _ in both],
    )


def timed_pairs(
    baseline: Records, records: Records, keys: Sequence[Key], device: str | None = None
) -> dict[Key, tuple[Timing, Timing]]:
    """AR's and the method's timing of each image where one process took both on one device, at batch 1; the latest.

    ``device``: only clocks of this one; None: of any, the same for both.
    """
    pairs: dict[Key, tuple[Timing, Timing]] = {}
    for key in keys:
        ours, theirs = records.timed(key), baseline.timed(key)
        for clock in reversed(ours):
            if clock not in theirs or device not in (None, clock[1]):
                continue
            if ours[clock]["rows"] == theirs[clock]["rows"] == 1:
                pairs[key] = (theirs[clock], ours[clock])
                break
    return pairs


def latency_ratio(pairs: Mapping[Key, tuple[Timing, Timing]]) -> Interval | None:
    """Σ latency of AR ÷ Σ latency of the method over the images that were timed together."""
    if not pairs:
        return None
    return stats.ratio_of_sums(
        [latency(ar) for ar, _ in pairs.values()],
        [latency(own) for _, own in pairs.values()],
        [prompt for prompt, _ in pairs],
    )


def latency_ratio_flat(baseline: Records, records: Records, pairs: Mapping[Key, tuple[Timing, Timing]]) -> float | None:
    """The latency ratio if each of the method's passes cost what AR's cost beside it, sampling as measured."""
    if not pairs:
        return None
    flat = 0.0
    for key, (ar, own) in pairs.items():
        single_pass = float(ar["prefill"] + ar["passes"]) / nfe(baseline.images[key])
        flat += nfe(records.images[key]) * single_pass + float(own["sampling"])
    return sum(latency(ar) for ar, _ in pairs.values()) / flat


def timing_means(records: Records, timings: Sequence[Timing], keys: Sequence[Key]) -> dict[str, float | None] | None:
    """Mean seconds per image of each phase, and mean passes."""
    if not timings:
        return None

    def mean(name: str) -> float | None:
        values = [float(timing[name]) for timing in timings if timing[name] is not None]
        return sum(values) / len(values) if values else None

    passes = [nfe(records.images[key]) for key in keys if key in records.images]
    return {
        "prefill_s": mean("prefill"),
        "pass_s": mean("passes"),
        "sampling_s": mean("sampling"),
        "pixels_s": mean("pixels"),
        "passes": sum(passes) / len(passes) if passes else None,
    }


def batches(
    records: Records, keys: Sequence[Key], fewest: int, most: int, device: str | None = None
) -> dict[tuple[str, int], Timing]:
    """The batches of ``fewest`` to ``most`` images that hold one of ``keys``, each once, by session and round.

    ``device``: only those that ran there.
    """
    return {
        (timing["session"], timing["round"]): timing
        for key in keys
        for timing in records.timings.get(key, ())
        if fewest <= timing["rows"] <= most and device in (None, timing.get("device"))
    }


def throughput(
    records: Records, rounds: Sequence[Sequence[Key]], batch: int, device: str | None = None
) -> float | None:
    """Images per second over whole batches of more than one image, each batch counted once.

    A cell may hold clocks of several batch sizes. A round counts the batches that are at least as long as itself and
    not beyond ``batch``: longer than itself where a smaller limit cut it, never those of another setting.
    """
    found: dict[tuple[str, int], Timing] = {}
    for keys in rounds:
        found |= batches(records, keys, max(2, len(keys)), batch, device)
    seconds = sum(latency(timing) for timing in found.values())
    return sum(timing["rows"] for timing in found.values()) / seconds if seconds else None


def accuracy(records: Records, keys: Sequence[Key], scorer: str | None, code: str) -> dict[str, Any] | None:
    """Mean of the families' accuracies with its interval, and each family, over the images that have a verdict."""
    correct: dict[str, dict[str, list[bool]]] = {}
    for prompt, sample in keys:
        score = records.scores.get((prompt, sample, str(scorer), code))
        if score is not None:
            verdict = score["verdict"]
            correct.setdefault(verdict["family"], {}).setdefault(prompt, []).append(bool(verdict["correct"]))
    if not correct:
        return None
    overall, families = stats.mean_of_families(correct)
    return {**interval(overall), "families": {name: interval(value) for name, value in families.items()}}


def interval(value: Interval) -> dict[str, float | None]:
    """An interval as the document writes it."""
    return {"value": finite(value.value), "low": finite(value.low), "high": finite(value.high)}


def finite(value: float) -> float | None:
    """None for NaN: a value that cannot be had."""
    return None if math.isnan(value) else value
