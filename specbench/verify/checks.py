"""What the verifier refuses to continue past, each under its own name.

Knows: the ways in which a decoder can break its contract with the noise and the target.
Refuses to know: how they are found. A mutant counts as caught by one of these, never by any other crash.
"""

from __future__ import annotations

from specbench.errors import SpecbenchError


class CheckFailed(SpecbenchError):
    """A decoder broke a promise that every exact method keeps."""


class LawError(CheckFailed):
    """A law with a negative entry, a NaN, or a sum other than one; or a probability outside [0, 1]."""


class KeyReuse(CheckFailed):
    """One address of the noise was read twice where each number may be read once."""


class PoisonRead(CheckFailed):
    """A value was read that the decoder had declared it would not need."""


class TraceError(CheckFailed):
    """Counters that contradict each other or the image."""


class NoiseError(CheckFailed):
    """The real noise repeats itself or does not follow the law it was given."""
