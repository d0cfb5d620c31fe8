"""From names to a decoder: every published chain method is one line here or in a YAML file.

Knows: which parts exist under which name.
Refuses to know: method names, defaults of a benchmark, files.

The methods side by side; what differs is what they differ in:

    ar      one token per pass
    jacobi  redraft independent   accept fresh     a draft stays if a fresh draw from its new law equals it
    replay  redraft gumbel        accept replay    … if AR's own draw at that position equals it
    sjd     redraft independent   accept strict    … with probability min(1, p/q); open drafts are drawn anew
    scd     redraft maximal       accept strict    … the same; open drafts follow their law by maximal coupling
    scd_gs  redraft gumbel        accept strict    … the same; open drafts follow their law by shared Gumbel noise
    sjd_pac redraft maximal       accept strict    … the same, with siblings of the drafts behind a refusal (tree)
    sjd_vp  redraft independent   accept strict    … the same, from a law predicted of the slot's past (predict growth)
    best    redraft maximal       accept strict    … as sjd_pac, from an average of the slot's laws (predict context)
    gsd     redraft independent   accept grouped   … with probability min(1, p/q) of groups of tokens: lossy
    lantern redraft independent   accept lantern   … with probability min(1, (p + S)/q), S of codes nearby: lossy

    ssd     blocks of trained heads, each redrafted in place for some rounds (redraft maximal), then committed: lossy
    mtp     the same with blocks inside a row only: lossy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from specbench.decoding import block_options, options
from specbench.decoding.accept import ACCEPTS
from specbench.decoding.block import Block
from specbench.decoding.correct import Repair, Truncate
from specbench.decoding.fill import FILLS
from specbench.decoding.interfaces import Decoder
from specbench.decoding.laws import Sampling
from specbench.decoding.loop import AR, Jacobi
from specbench.decoding.predict import PREDICTIONS
from specbench.decoding.redraft import REDRAFTS
from specbench.decoding.relax import RELAXED
from specbench.decoding.spatial import Spatial
from specbench.decoding.tree import TREES
from specbench.errors import UsageError, unknown

_SETTINGS = {kind: options.names_of(kind) for kind in ("ar", "jacobi", "block")}
_Part = TypeVar("_Part")


def build_decoder(settings: Mapping[str, Any], window: int | None = None, sampling: Sampling | None = None) -> Decoder:
    """Build the decoder that ``settings`` describe, e.g. ``{"decoder": "jacobi", "redraft": "maximal"}``.

    What is left out has the default of :mod:`specbench.decoding.options` or of the part. ``window`` is required by
    every decoder that has one and ignored by ``ar``, whose window is 1, and by ``block``, whose drafts fill a block of
    the grid; a block decoder comes without its heads, which belong to a target. Raises ``UsageError`` for names that
    do not exist, options that no chosen part reads, and a window below 1; a window beyond the image is refused when
    ``decode`` meets its target.
    """
    kind = str(settings.get("decoder", "jacobi"))
    if kind not in _SETTINGS:
        raise unknown("decoder", kind, _SETTINGS)
    for name in settings:
        if name not in _SETTINGS[kind]:
            raise unknown(f"{kind} setting", str(name), _SETTINGS[kind])
    sampling = sampling or Sampling()
    if kind == "ar":
        return AR(sampling)
    if kind == "block":
        return _block(settings, sampling)
    if window is None:
        raise UsageError("this method needs a window of at least 1, and none is set")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise UsageError(f"window must be a whole number of at least 1, not {window}")
    for name in settings:
        _belongs(name, settings)
    options.combine(settings)
    return Jacobi(
        accept=_part("accept", {**ACCEPTS, **RELAXED}, settings),
        redraft=_part("redraft", REDRAFTS, settings),
        fill=_part("fill", FILLS, settings),
        predict=_part("predict", PREDICTIONS, settings),
        tree=_part("tree", TREES, settings),
        window=window,
        sampling=sampling,
    )


def _block(settings: Mapping[str, Any], sampling: Sampling) -> Block:
    """A block decoder without heads."""
    block_options.check(settings)
    chosen = {**block_options.DEFAULTS, **settings}
    repair = Repair(**{name: chosen[name] for name in block_options.REPAIR})
    return Block(
        spatial=Spatial(**{name: chosen[name] for name in block_options.SPATIAL}),
        correct=Truncate() if chosen["correct"] == "truncate" else repair,
        redraft=REDRAFTS[chosen["redraft"]],
        sampling=sampling,
    )


def _belongs(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse an option that no chosen part reads: it would be set and change nothing."""
    if name == "decoder" or name in options.DEFAULTS or name in options.read(settings):
        return
    readers = [f"{axis}={choice}" for (axis, choice), taken in options.OPTIONS.items() if name in taken]
    raise UsageError(f"the setting {name} belongs to {' or '.join(readers)}, which this method does not have")


def _part(axis: str, choices: Mapping[str, _Part], settings: Mapping[str, Any]) -> _Part:
    """The part that ``settings`` choose on an axis, with the options that it reads."""
    name = settings.get(axis, options.DEFAULTS[axis])
    if name not in choices:
        raise unknown(axis, str(name), choices)
    given = {key: settings[key] for key in options.taken_by(settings)[axis] if key in settings}
    return replace(choices[name], **given) if given else choices[name]  # type: ignore[type-var]
