"""Rows of a stream: checked when they are applied, turned into columns when their buffer is sealed.

A row is a list of values in the order of the columns. What can be refused is refused here, in the caller's thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.arguments import arrow_scalar, shown
from lakefmt.errors import InvalidInputError, InvalidKey, SchemaMismatch
from lakefmt.producers.stream.operators import DELETES, RowOperator

__all__ = ["RowChecker", "Values", "row_mapping"]

Values: TypeAlias = Sequence[Any]
_Check: TypeAlias = Callable[[Any], Any]

#: Bytes of a row beside its texts, and of each of its values: an estimate.
_ROW_BYTES: Final = 16
_VALUE_BYTES: Final = 8


def row_mapping(row: object) -> Mapping[str, Any]:
    """Return a row as a mapping: a mapping as it is, else the attributes of a dataclass or of an object with fields.

    Raises:
        InvalidInputError: the object has no named fields.

    Example:
        >>> from types import SimpleNamespace
        >>> row_mapping(SimpleNamespace(a=1))
        {'a': 1}
    """
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    names = getattr(type(row), "model_fields", None) or getattr(type(row), "__struct_fields__", None)
    if names is None:
        names = getattr(row, "__dict__", None)
    if names is None or isinstance(row, type):
        raise InvalidInputError(f"{shown(row)} is no row: give a mapping, a dataclass or an object with named fields")
    return {str(name): getattr(row, name) for name in names}


class RowChecker:
    """Checks rows against the columns of a table and makes columns of them.

    Args:
        schema: the table's columns.
        keys: the columns that make key and partition path; never null.
        strict: a row that lacks a nullable column is refused.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], *, strict: bool = False) -> None:
        self.schema = schema
        self.names = tuple(schema.names)
        self.keys = tuple(keys)
        self._known = frozenset(self.names)
        self._strict = strict
        self._key_set = frozenset(keys)
        required = [field.name in self._key_set or not field.nullable for field in schema]
        self._checks = [_check_of(field, needed=needed) for field, needed in zip(schema, required, strict=True)]
        self._pairs = list(zip(self.names, self._checks, strict=True))
        self._sized = [n for n, field in enumerate(schema) if not _has_fixed_size(field.type)]
        self._fixed = _ROW_BYTES + _VALUE_BYTES * len(self.names)
        self._key_places = [n for n, name in enumerate(self.names) if name in self._key_set]

    def values(self, operator: RowOperator, row: Mapping[str, Any]) -> tuple[list[Any], tuple[str, ...] | None]:
        """Return the values of a row, and the columns that it sets (None: all).

        Raises:
            SchemaMismatch: a value does not fit its column, a required one is missing, or there is no such column.
            InvalidKey: a key column is missing or null.
        """
        if not row.keys() <= self._known:
            unknown = next(name for name in row if name not in self._known)
            raise SchemaMismatch(f"the table has no column {shown(unknown)}: it has {', '.join(self.names)}")
        get = row.get
        if operator in DELETES:
            return self._delete(row), None
        if operator is RowOperator.UPDATE:
            return self._update(row)
        if len(row) < len(self.names) and self._strict:
            missing = next(name for name in self.names if name not in row)
            raise SchemaMismatch(f"all columns must be set: column {missing!r} is missing")
        return [check(get(name)) for name, check in self._pairs], None

    def _delete(self, row: Mapping[str, Any]) -> list[Any]:
        values: list[Any] = [None] * len(self.names)
        for place in self._key_places:
            name = self.names[place]
            if row.get(name) is None:
                raise InvalidKey(f"a delete needs its key: column {name!r} is not set")
        for place, (name, check) in enumerate(self._pairs):
            if row.get(name) is not None:
                values[place] = check(row[name])
        return values

    def _update(self, row: Mapping[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
        values: list[Any] = [None] * len(self.names)
        for place in self._key_places:
            if row.get(self.names[place]) is None:
                raise InvalidKey(f"an update needs its key: column {self.names[place]!r} is not set")
        for place, (name, check) in enumerate(self._pairs):
            if name in row:
                values[place] = check(row[name])
        return values, tuple(name for name in self.names if name in row)

    def size(self, values: Values) -> int:
        """Return about how many bytes a row takes."""
        total = self._fixed
        for place in self._sized:
            value = values[place]
            if value is not None:
                total += len(value) if type(value) is str or type(value) is bytes else _size(value)
        return total

    def columns(self, rows: Sequence[Values]) -> pa.Table:
        """Return rows as columns, all of them nullable: a delete has its key only.

        Raises:
            SchemaMismatch: a value does not fit after all.
        """
        made = zip(*rows, strict=True)
        try:
            arrays = [pa.array(column, field.type) for column, field in zip(made, self.schema, strict=True)]
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SchemaMismatch(f"rows of a buffer do not fit the table's columns: {str(error)[:200]}") from None
        return pa.Table.from_arrays(arrays, schema=nullable(self.schema))


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns may all be null.

    Example:
        >>> nullable(pa.schema([pa.field("a", pa.int8(), nullable=False)])).field("a").nullable
        True
    """
    return pa.schema([field.with_nullable(True) for field in schema])


def _has_fixed_size(kind: pa.DataType) -> bool:
    return bool(pt.is_primitive(kind) or pt.is_decimal(kind))


def _size(value: object) -> int:
    """Return about how many bytes a value takes."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        return _ROW_BYTES + _all(value.keys()) + _all(value.values())
    if isinstance(value, list | tuple):
        return _ROW_BYTES + _all(value)
    return _VALUE_BYTES


def _all(values: Iterable[object]) -> int:
    return sum(map(_size, values))


def _check_of(field: pa.Field, *, needed: bool) -> _Check:
    """Return the function that checks a value of a column and returns it."""
    name, kind = field.name, field.type

    def slow(value: Any) -> Any:
        if value is None:
            if not needed:
                return None
            raise SchemaMismatch(f"column {name!r} must be set, and must not be null")
        try:
            arrow_scalar(value, kind, name)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"Failed to cast value for column {name!r}: {error}") from None
        return value

    if pt.is_string(kind) or pt.is_large_string(kind):
        return lambda value: value if type(value) is str and value.isascii() else slow(value)
    if pt.is_integer(kind):
        low, high = _bounds(kind)
        return lambda value: value if type(value) is int and low <= value <= high else slow(_whole(value, name))
    if pt.is_timestamp(kind):
        return _timestamp_check(kind, name, slow)
    exact = _exact_type(kind)
    if exact is not None:
        return lambda value: value if type(value) is exact else slow(value)
    return slow


def _whole(value: Any, name: str) -> Any:
    """Return a number as an integer: Arrow would cut its fraction off."""
    if isinstance(value, float | Decimal):
        if value != value or value in (math.inf, -math.inf) or value != int(value):
            raise SchemaMismatch(f"Failed to cast value for column {name!r}: {shown(value)} is no whole number")
        return int(value)
    return value


def _exact_type(kind: pa.DataType) -> type | None:
    """Return the type whose every value fits."""
    if pt.is_boolean(kind):
        return bool
    if pt.is_float64(kind) or pt.is_float32(kind):
        return float
    if pt.is_date32(kind):
        return date
    return bytes if pt.is_binary(kind) or pt.is_large_binary(kind) else None


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _timestamp_check(kind: pa.TimestampType, name: str, slow: _Check) -> _Check:
    zoned = kind.tz is not None

    def check(value: Any) -> Any:
        if type(value) is not datetime:
            return slow(value)
        if value.tzinfo is not None and not zoned:
            raise SchemaMismatch(
                f"Failed to cast value for column {name!r}: {shown(value)} has a time zone, and the column holds wall-clock times"
            )
        return slow(value) if kind.unit in ("s", "ms", "ns") else value

    return check
