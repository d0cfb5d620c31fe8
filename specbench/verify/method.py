"""A method as the verifier is given it, and the decoder that it stands for.

Knows: the two ways a method may come: settings that the decoding room can build, or a builder of its own; and that the
passes it tells of are counted at the target, by whoever verifies it and whatever for. Trained heads that it asks for
are seeded ones here: what is verified may not depend on what they say.
Refuses to know: registries, plugins, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specbench.decoding.build import build_decoder
from specbench.decoding.interfaces import Decoder, Generation, Prompt, Target
from specbench.decoding.laws import Sampling
from specbench.models.counted import Counted
from specbench.verify.checks import TraceError
from specbench.verify.spatial import with_heads


@dataclass(frozen=True)
class Watched:
    """A decoder whose every generation is held against the target passes that it really made."""

    decoder: Decoder

    @property
    def lossless(self) -> bool:
        """The decoder's own claim."""
        return self.decoder.lossless

    def decode(self, target: Target, prompts: Sequence[Prompt | str], **options: Any) -> Generation:
        """As the decoder. Raises ``TraceError`` when its trace tells of other passes than were made."""
        counted, decoder = Counted(target), with_heads(self.decoder, target)
        generation = decoder.decode(cast("Target", counted), prompts, **options)
        if (complaint := counted.complaint(generation.trace)) is not None:
            raise TraceError(f"trace: {complaint}")
        return generation


def decoder_of(method: Mapping[str, Any], window: int, sampling: Sampling) -> Watched:
    """Build the decoder of ``method``: by its ``build(window, sampling)`` if it brings one, else from ``settings``."""
    build = method.get("build")
    decoder: Decoder = build_decoder(method["settings"], window, sampling) if build is None else build(window, sampling)
    return Watched(decoder)
