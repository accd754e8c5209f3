"""Conditions on rows: an exact expression, and one that statistics may evaluate. Pure.

Statistics of floating point columns ignore NaN and the sign of zero. Arrow takes them as bounds of
all values: it drops row groups in which ``not (x > 5)`` is true for NaN. A condition therefore has
two expressions. One selects exactly the rows; the other may be compared with statistics, because it
is true for every selected row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.types as pt

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import InvalidFilter

__all__ = ["Condition", "all_of", "any_of", "exactly", "holds_floats", "one_of", "satisfiable"]

#: Arrow builds a deep tree from a chain and walks it recursively; a longer chain overflows the
#: stack.
_MOST_TERMS: Final = 4000
#: More values of one column are not kept beside a condition.
_MOST_VALUES: Final = 10_000

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition on rows.

    Attributes:
        exact: true for exactly the selected rows.
        pruning: true for every selected row, also when evaluated on statistics; None: no pruning.
        may_fail: the exact expression is the caller's and may raise when evaluated.
        terms: the number of joined comparisons.
        values: by column, with dots when it is nested, the values that it has in every selected row; few columns are there.
    """

    exact: pc.Expression
    pruning: pc.Expression | None
    may_fail: bool = False
    terms: int = 1
    values: Mapping[str, pa.Array] = field(default_factory=dict)

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


def one_of(condition: Condition, column: str, values: pa.Array) -> Condition:
    """Return the condition, with the values of a column that every selected row has one of."""
    return condition if len(values) > _MOST_VALUES else replace(condition, values={column: values})


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
    values: dict[str, pa.Array] = {}
    for name, some in ((name, some) for each in conditions for name, some in each.values.items()):
        values[name] = min(values.get(name, some), some, key=len)
    return _joined(conditions, exact, pruning, terms, values)


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
    return _joined(conditions, exact, pruning, terms, _values_of_any(conditions))


def _values_of_any(conditions: Sequence[Condition]) -> dict[str, pa.Array]:
    """Return the values of columns that every condition names."""
    common = set.intersection(*({*each.values} for each in conditions))
    named = {name: [each.values[name] for each in conditions] for name in sorted(common)}
    return {name: pa.concat_arrays(some) for name, some in named.items() if sum(map(len, some)) <= _MOST_VALUES}


def _count(conditions: Sequence[Condition]) -> int:
    terms = sum(each.terms for each in conditions)
    if terms > _MOST_TERMS:
        raise InvalidFilter(
            f"the filter joins {terms:,} comparisons; at most {_MOST_TERMS:,} are: use `in` for many values"
        )
    return terms


def _joined(
    conditions: Sequence[Condition],
    exact: pc.Expression,
    pruning: pc.Expression | None,
    terms: int,
    values: Mapping[str, pa.Array],
) -> Condition:
    same = all(each.prunes_exactly for each in conditions)
    return Condition(exact, exact if same else pruning, any(each.may_fail for each in conditions), terms, values)


def _chain(items: Sequence[_Item], join: Callable[[_Item, _Item], _Item]) -> _Item:
    """Return the items joined as a balanced tree: printing or hashing a deep one overflows the stack."""
    level = list(items)
    while len(level) > 1:
        pairs = [join(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def satisfiable(
    guarantees: Sequence[pc.Expression | None], condition: pc.Expression, schema: pa.Schema
) -> npt.NDArray[np.bool_]:
    """Return whether rows of which each guarantee is true may satisfy a condition.

    Parameters:
        guarantees: what is true of all rows of a file, slice or partition; None: nothing is known.
        condition: the condition.
        schema: the columns of both.

    Raises:
        pyarrow.ArrowException: the condition cannot be evaluated.

    Example:
        >>> a = pc.field("a")
        >>> satisfiable([a > 5, a < 5, None], a == 7, pa.schema([("a", pa.int64())])).tolist()
        [True, False, True]
    """
    import pyarrow.dataset as ds  # slow import that writers do not need

    # Arrow simplifies the condition under the guarantee of each fragment, and drops those for which it becomes false.
    source, layout = pafs.LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        layout.make_fragment(
            str(number), source, partition_expression=pc.scalar(True) if guarantee is None else guarantee
        )
        for number, guarantee in enumerate(guarantees)
    ]
    kept = np.zeros(len(fragments), bool)
    dataset = ds.FileSystemDataset(fragments, schema, layout, source)
    kept[[int(fragment.path) for fragment in dataset.get_fragments(filter=condition)]] = True
    return kept


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
