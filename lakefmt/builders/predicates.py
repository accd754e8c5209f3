"""Conditions on rows, by the names of pypaimon's predicate builder. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidFilter

__all__ = ["PredicateBuilder"]


class PredicateBuilder:
    """Makes conditions on the columns of a table.

    Example:
        >>> where = PredicateBuilder(pa.schema([("n", pa.int64())]))
        >>> str(where.and_predicates([where.greater_than("n", 1), where.is_not_null("n")]))
        '((n > 1) and invert(is_null(n, {nan_is_null=false})))'
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = frozenset(schema.names)

    def _field(self, name: str) -> pc.Expression:
        if name not in self._names:
            raise InvalidFilter(f"the table has no column {name!r}")
        return pc.field(name)

    def equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field = literal``."""
        return self._field(field) == literal

    def not_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field != literal``."""
        return self._field(field) != literal

    def less_than(self, field: str, literal: object) -> pc.Expression:
        """Return ``field < literal``."""
        return self._field(field) < literal

    def less_or_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field <= literal``."""
        return self._field(field) <= literal

    def greater_than(self, field: str, literal: object) -> pc.Expression:
        """Return ``field > literal``."""
        return self._field(field) > literal

    def greater_or_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field >= literal``."""
        return self._field(field) >= literal

    def is_null(self, field: str) -> pc.Expression:
        """Return that a column has no value."""
        return self._field(field).is_null()

    def is_not_null(self, field: str) -> pc.Expression:
        """Return that a column has a value."""
        return ~self._field(field).is_null()

    def is_in(self, field: str, literals: Sequence[object]) -> pc.Expression:
        """Return that a column has one of some values."""
        return self._field(field).isin(list(literals))

    def is_not_in(self, field: str, literals: Sequence[object]) -> pc.Expression:
        """Return that a column has a value, and none of these."""
        return ~self._field(field).isin(list(literals)) & self.is_not_null(field)

    def between(self, field: str, low: object, high: object) -> pc.Expression:
        """Return ``low <= field <= high``."""
        return self.greater_or_equal(field, low) & self.less_or_equal(field, high)

    def and_predicates(self, predicates: Sequence[pc.Expression]) -> pc.Expression | None:
        """Return that all conditions hold; None for none."""
        return reduce(and_, predicates) if predicates else None

    def or_predicates(self, predicates: Sequence[pc.Expression]) -> pc.Expression | None:
        """Return that one of the conditions holds; None for none."""
        return reduce(or_, predicates) if predicates else None
