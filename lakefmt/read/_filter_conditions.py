"""Conditions on rows: an exact expression, and one that statistics may evaluate. Pure.

Statistics of floating point columns ignore NaN and the sign of zero. Arrow takes them as bounds of
all values: it drops row groups in which ``not (x > 5)`` is true for NaN. A condition therefore has
two expressions. One selects exactly the rows; the other may be compared with statistics, because it
is true for every selected row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import InvalidFilter

__all__ = ["Condition", "all_of", "any_of", "exactly", "holds_floats"]

#: Arrow builds a deep tree from a chain and walks it recursively; a longer chain overflows the
#: stack.
_MOST_TERMS: Final = 4000

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition on rows.

    Attributes:
        exact: true for exactly the selected rows.
        pruning: true for every selected row, also when evaluated on statistics; None: no pruning.
        may_fail: the exact expression is the caller's and may raise when evaluated.
        terms: the number of joined comparisons.
    """

    exact: pc.Expression
    pruning: pc.Expression | None
    may_fail: bool = False
    terms: int = 1

    @property
    def prunes_exactly(self) -> bool:
        """Whether pruning and exact expression are the same."""
        return self.pruning is self.exact

    def __and__(self, other: Condition) -> Condition:
        return all_of([self, other])

    def __or__(self, other: Condition) -> Condition:
        return any_of([self, other])


def exactly(expression: pc.Expression) -> Condition:
    """Return a condition that statistics may evaluate."""
    return Condition(expression, expression)


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the conjunction of conditions.

    Example:
        >>> both = all_of([exactly(pc.field("a") > 1), Condition(pc.field("b") != 2, None)])
        >>> both.exact, both.pruning
        (<pyarrow.compute.Expression ((a > 1) and (b != 2))>, <pyarrow.compute.Expression (a > 1)>)
    """
    terms = _count(conditions)
    exact = _chain([each.exact for each in conditions], lambda a, b: a & b)
    prunable = [each.pruning for each in conditions if each.pruning is not None]
    pruning = _chain(prunable, lambda a, b: a & b) if prunable else None
    return _joined(conditions, exact, pruning, terms)


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return the disjunction of conditions.

    Example:
        >>> either = any_of([exactly(pc.field("a") > 1), Condition(pc.field("b") != 2, None)])
        >>> either.exact, either.pruning
        (<pyarrow.compute.Expression ((a > 1) or (b != 2))>, None)
    """
    terms = _count(conditions)
    exact = _chain([each.exact for each in conditions], lambda a, b: a | b)
    prunable = [each.pruning for each in conditions if each.pruning is not None]
    pruning = _chain(prunable, lambda a, b: a | b) if len(prunable) == len(conditions) else None
    return _joined(conditions, exact, pruning, terms)


def _count(conditions: Sequence[Condition]) -> int:
    terms = sum(each.terms for each in conditions)
    if terms > _MOST_TERMS:
        raise InvalidFilter(
            f"the filter joins {terms:,} comparisons; at most {_MOST_TERMS:,} are: use `in` for many values"
        )
    return terms


def _joined(
    conditions: Sequence[Condition], exact: pc.Expression, pruning: pc.Expression | None, terms: int
) -> Condition:
    same = all(each.prunes_exactly for each in conditions)
    return Condition(exact, exact if same else pruning, any(each.may_fail for each in conditions), terms)


def _chain(items: Sequence[_Item], join: Callable[[_Item, _Item], _Item]) -> _Item:
    """Return the items joined as a balanced tree: printing or hashing a deep one overflows the stack."""
    level = list(items)
    while len(level) > 1:
        pairs = [join(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def holds_floats(kind: pa.DataType) -> bool:
    """Return whether a type is or contains floating point numbers.

    Example:
        >>> holds_floats(pa.struct([("x", pa.list_(pa.float32()))])), holds_floats(pa.decimal128(4, 2))
        (True, False)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return holds_floats(kind.storage_type)
    if pt.is_dictionary(kind):
        return holds_floats(kind.value_type)
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return bool(pt.is_floating(kind)) or any(map(holds_floats, inner))
