"""The notebook's front door: targets and decoders by name.

Knows: names, and that a decoder without its own sampling takes the model's protocol, as the command line does.
Refuses to know: prompts, stores, tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench.bench import guards, registry
from specbench.decoding import options
from specbench.decoding.interfaces import Decoder, Generation, Noise, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.errors import UsageError, unknown

__all__ = ["Generation", "load_decoder", "load_target"]


def load_target(name: str = "mini", dtype: str = "float32", device: str = "cpu", path: str | None = None) -> Target:
    """Load a model by name, e.g. ``load_target("mini", dtype="float64")``.

    ``path`` is a folder or hub id with the weights of a real model, where its name alone does not lead to them.
    Raises :class:`UsageError` with the nearest name for an unknown model or dtype.
    """
    registry.load_plugins()
    return registry.load_target(name, dtype, device, path)


@dataclass(frozen=True)
class MethodDecoder:
    """A method by name, built when it meets its target: only then is the model's protocol known."""

    method: str
    window: int | None
    settings: dict[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None

    @property
    def lossless(self) -> bool:
        """Whether the law of plain AR is preserved."""
        return options.lossless(self.settings, registry.method(self.method).lossless)

    def decoder(self, target: Target) -> Decoder:
        """The decoder proper, with the sampling that applies to ``target``."""
        sampling = self.sampling or default_sampling(target)
        return registry.bind(registry.build(self.method, self.settings, self.window, sampling), self.settings, target)

    def decode(
        self,
        target: Target,
        prompts: Sequence[Prompt | str],
        seed: int = 0,
        sample: int = 0,
        noise: Noise | None = None,
    ) -> Generation:
        """Generate one image per prompt: ``Generation(tokens [B, N] int64, trace)``."""
        return self.decoder(target).decode(target, prompts, seed=seed, sample=sample, noise=noise)


def load_decoder(
    method: str = "scd", window: int | None = None, sampling: Sampling | None = None, **settings: Any
) -> MethodDecoder:
    """A decoder by method name, e.g. ``load_decoder("scd", window=32, fill="left")``.

    ``window`` defaults to the method's own; ``sampling`` to the target's protocol. Raises :class:`UsageError` for
    unknown names, settings that the method does not have, and a window below 1.
    """
    registry.load_plugins()
    chosen = registry.method(method)
    kind = str(chosen.settings.get("decoder")) if chosen.factory is None else ""
    for key in settings:
        if key not in (takes := {**chosen.settings, **dict.fromkeys(options.names_of(kind))}):
            raise unknown(f"setting of {method}", key, takes)
    if window is not None:
        guards.has_window({method: chosen}, [window])
    width = None if chosen.window is None else chosen.window if window is None else window
    merged = options.in_use({**chosen.settings, **settings}, settings)
    registry.build(method, merged, width, sampling or Sampling())  # unknown parts are refused here, not while decoding
    return MethodDecoder(method, width, merged, sampling)


def default_sampling(target: Target) -> Sampling:
    """The protocol of the model that ``target`` calls its ``name``.

    Raises :class:`UsageError` for a target without one: a law must be stated, not guessed.
    """
    name = getattr(target, "name", None)
    if name not in registry.models():
        raise UsageError(
            f"the target {name or type(target).__name__} has no protocol: say load_decoder(..., sampling=Sampling(...))"
        )
    model = registry.model(str(name))
    return Sampling(**model.sampling(model.protocol))
