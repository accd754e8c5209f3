"""How many examples a property is asked for, by the profile of the run."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]

#: What the usual profile asks of a property that names no number.
_USUAL = 60


def examples(usual: int) -> int:
    """Return the number of examples in this run of a property that usually has `usual`.

    A run on other dependencies has a fifth of them, a thorough one ten times as many.
    """
    return max(1, usual * settings().max_examples // _USUAL)
