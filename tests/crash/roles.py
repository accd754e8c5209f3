"""What effects do, whichever instant, file group and partition they do it for: after two of one role readers find alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakefmt.testing.store_wrapper import Effect

__all__ = ["first_of_each_role", "role_of"]

#: What tells effects of one role apart: times, numbers, file ids and the partition.
_WHICH_ONE = re.compile(r"city=\w+/|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


def role_of(effect: Effect) -> str:
    """What an effect does."""
    return f"{effect.kind} {_WHICH_ONE.sub('', effect.name)}"


def first_of_each_role(effects: Sequence[Effect]) -> list[int]:
    """The numbers, from one, of the effects that are the first of their role."""
    first: dict[str, int] = {}
    for number, effect in enumerate(effects, 1):
        first.setdefault(role_of(effect), number)
    return list(first.values())
