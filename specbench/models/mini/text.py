"""How mini reads a caption: words to ids, one id per slot of a fixed-length prefix.

Knows: the vocabulary and the shape of the prefix: words, padding, then one begin-of-image slot.
Refuses to know: embeddings, pictures, and the grammar of captions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

PREFIX = 16
"""Slots of the prefix, the begin-of-image slot included."""

PAD, BEGIN, UNKNOWN = 0, 1, 2
# fmt: off
WORDS = (
    "a", "picture", "of", "and", "left", "right", "above", "below", "one", "two", "three", "four",
    "red", "yellow", "green", "cyan", "blue", "purple", "black", "white",
    "circle", "square", "triangle", "star", "ring", "cross",
    "circles", "squares", "triangles", "stars", "rings", "crosses",
)
# fmt: on
"""The words that the weights know, in the order of their ids: a new word needs new weights."""
_IDS = {word: 3 + i for i, word in enumerate(WORDS)}
VOCABULARY = 3 + len(WORDS)


TEMPLATE = ("a", "picture", "of")
"""How every training caption began. A caption that begins otherwise is read as if it began so."""


def words(text: str) -> list[str]:
    """Lower-case words of a caption behind :data:`TEMPLATE`, punctuation dropped; nothing for an empty caption.

    >>> words("a red ring")
    ['a', 'picture', 'of', 'a', 'red', 'ring']
    """
    found = re.findall(r"\w+", text.lower())
    return found if not found or tuple(found[:3]) == TEMPLATE else [*TEMPLATE, *found]


def warnings(text: str) -> list[str]:
    """What mini cannot read of ``text``: unknown words (read as one unknown token), words beyond the prefix (dropped).

    >>> warnings("a red dragon")
    ["mini does not know the word 'dragon'"]
    """
    found = words(text)
    unknown = sorted({w for w in found if w not in _IDS})
    out = [f"mini does not know the word {w!r}" for w in unknown]
    if len(found) >= PREFIX:
        out.append(f"mini reads {PREFIX - 1} words; {len(found) - PREFIX + 1} were dropped")
    return out


def encode(texts: Sequence[str]) -> Tensor:
    """Prefix ids [B, PREFIX] int64. The empty text is the unconditional prefix: padding only."""
    out = torch.full((len(texts), PREFIX), PAD)
    out[:, -1] = BEGIN
    for row, text in enumerate(texts):
        ids = [_IDS.get(w, UNKNOWN) for w in words(text)][: PREFIX - 1]
        out[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return out
