"""Text to token ids as Emu3 does it, from its two vocabulary files.

Knows: ranked byte pairs (``emu3.tiktoken``), how text is cut before they apply, and how special tokens are numbered.
Refuses to know: templates, models.

The files are those of the release; the encoding is byte-pair encoding by rank (Sennrich et al. 2016, arXiv 1508.07909),
run on pieces of text: contractions, words, single digits, punctuation, white space.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import regex

from specbench.errors import SpecbenchError

PIECES = regex.compile(
    r"(?i:'(?:s|t|re|ve|m|ll|d))"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXTRAS = 205
"""``<|extra_0|>`` and so on; three other special tokens come before them, those of the vision file after them."""


class Emu3Words:
    """The release's tokenizer. Raises ``SpecbenchError`` for a file that cannot be read."""

    def __init__(self, ranks: Path, vision: Path) -> None:
        try:
            pairs = (line.split() for line in ranks.read_bytes().splitlines() if line.strip())
            self._ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
        except (OSError, ValueError) as error:
            raise SpecbenchError(f"{ranks} cannot be read as ranked byte pairs: {error}") from error
        listed = [line.strip() for line in vision.read_text(encoding="utf-8").splitlines() if line.strip()]
        first = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(EXTRAS))]
        begin = max(self._ranks.values()) + 1
        self.specials: Mapping[str, int] = {name: begin + i for i, name in enumerate([*first, *listed])}
        self._file = vision

    @property
    def size(self) -> int:
        """How many ids there are."""
        return max(self.specials.values()) + 1

    def special(self, name: str) -> int:
        """The id of a special token."""
        if name not in self.specials:
            raise SpecbenchError(f"{self._file} has no token {name!r}")
        return self.specials[name]

    def ids(self, text: str) -> list[int]:
        """Token ids of ``text``, which is text only: special tokens written in it are spelled out."""
        found: list[int] = []
        for piece in PIECES.findall(unicodedata.normalize("NFC", text)):
            found += self._merged(piece.encode("utf-8"))
        return found

    def _merged(self, piece: bytes) -> list[int]:
        """Join the neighbours of lowest rank until no join is a token."""
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 1:
            ranks = [self._ranks.get(a + b) for a, b in pairwise(parts)]
            known = [rank for rank in ranks if rank is not None]
            if not known:
                break
            at = ranks.index(min(known))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._ranks[part] for part in parts]
