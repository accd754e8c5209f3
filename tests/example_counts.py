"""How many examples a property is asked for, by the profile of the run."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]

#: Numbers are chosen beside so many of a property that names none.
_BESIDE = 60


def examples(usual: int) -> int:
    """Return the number of examples in this run of a property that is worth `usual` of them.

    The usual run has two thirds of them, one on other dependencies a fifth, a thorough one ten times as many.
    """
    return max(1, usual * settings().max_examples // _BESIDE)
