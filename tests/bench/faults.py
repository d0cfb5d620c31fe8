"""An ``os`` that fails at its n-th write, rename, sync or open, in the ways that disks and kills do."""

from __future__ import annotations

import errno
import os
from typing import Any

COUNTED = ("write", "fsync", "replace", "open", "makedirs", "ftruncate")


class Killed(BaseException):
    """The process died: nothing that handles errors runs on."""


class FaultyOs:
    """Stands in for ``os`` inside ``specbench.bench.disk``.

    ``how``: ``full`` raises ENOSPC before the n-th call; ``torn`` writes half of the bytes first; ``killed`` dies
    before the call, ``killed-torn`` after half of it, ``killed-after`` after it.
    """

    def __init__(self, n: int, how: str) -> None:
        self.left, self.how, self.fired = n, how, None

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in COUNTED:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left != 0:
                return real(*arguments, **options)
            self.fired = name
            if self.how.endswith("torn") and name == "write":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            if self.how == "killed-after":
                real(*arguments, **options)
            raise Killed if self.how.startswith("killed") else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call
