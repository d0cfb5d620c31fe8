"""Text to token ids, from a ``tokenizer.json``.

Knows: the tokenizers library, and that special tokens are found by their string: their ids differ between releases of
the same model, and between sources that describe them.
Refuses to know: templates and models. Nothing is added to a text that it does not say.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from specbench.errors import SpecbenchError


class Words:
    """A tokenizer. Raises ``SpecbenchError`` when the file cannot be read or lacks one of ``specials``."""

    def __init__(self, file: Path, specials: Iterable[str] = ()) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exceptions
            raise SpecbenchError(f"{file} cannot be read as a tokenizer: {error}") from error
        self._file = file
        for name in specials:
            self.special(name)

    def ids(self, text: str) -> list[int]:
        """Token ids of ``text``; special tokens written in it are recognised, none is added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def special(self, name: str) -> int:
        """The id of a special token."""
        found = self._tokenizer.token_to_id(name)
        if found is None:
            raise SpecbenchError(f"{self._file} has no token {name!r}")
        return int(found)
