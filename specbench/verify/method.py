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
from specbench.decoding.loop import Jacobi
from specbench.decoding.tree import Chain, Tree
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


def with_tree(method: Mapping[str, Any], tree: tuple[int, int] | None) -> Mapping[str, Any]:
    """``method`` with the (children, depth) of a tree that fits a table, if it grows one and is ours to build."""
    if tree is None or not grows_trees(method) or "build" in method:
        return method
    return {**method, "settings": {**method["settings"], "children": tree[0], "depth": tree[1]}}


def grows_trees(method: Mapping[str, Any]) -> bool:
    """Whether the settings of a method ask for a tree."""
    return bool(method["settings"].get("tree", "none") != "none")


def windows(method: Mapping[str, Any], size: int) -> list[int]:
    """The windows that a method takes on an image of ``size`` tokens: 1…``size``; with a tree 1, and then from the
    first that holds it to as many more than ``size`` as may stand beside the main path.
    """
    tree = _tree(method)
    return [1, *range(tree.nodes, size + tree.side + 1)]


def wide(method: Mapping[str, Any], window: int) -> int:
    """The window whose main path is as long as that of a chain of ``window``."""
    return window + _tree(method).side


def _tree(method: Mapping[str, Any]) -> Tree:
    decoder = decoder_of(method, 1, Sampling()).decoder
    return decoder.tree if isinstance(decoder, Jacobi) else Chain()


def decoder_of(method: Mapping[str, Any], window: int, sampling: Sampling) -> Watched:
    """Build the decoder of ``method``: by its ``build(window, sampling)`` if it brings one, else from ``settings``."""
    build = method.get("build")
    decoder: Decoder = build_decoder(method["settings"], window, sampling) if build is None else build(window, sampling)
    return Watched(decoder)
