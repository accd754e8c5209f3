"""The converter of a column, made once per stream from its SQL type and stored type. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.data_classes import replace
from lakefmt.errors import UnsupportedFeature
from lakefmt.realtime._scalar_converters import (
    ConversionRules,
    Converter,
    binary_converter,
    boolean_converter,
    date_converter,
    decimal_converter,
    float_converter,
    instant_converter,
    integer_converter,
    interval_converter,
    json_converter,
    text_converter,
    wall_clock_converter,
)
from lakefmt.realtime.sql_types import SqlField, SqlKind, SqlType

__all__ = ["column_converter"]

_BITS: Final = {SqlKind.INT8: 8, SqlKind.INT16: 16, SqlKind.INT32: 32, SqlKind.INT64: 64}


def column_converter(field: SqlField, stored: pa.DataType, rules: ConversionRules) -> Converter:
    """Return the function that converts a value of a column; it raises ValueError or TypeError with the reason.

    Args:
        field: the column.
        stored: the Arrow type that the table stores.
        rules: of this stream.

    Raises:
        UnsupportedFeature: rows cannot have such a column.

    Example:
        >>> field = SqlField("tags", SqlType(SqlKind.ARRAY, inner=(SqlField("element", SqlType(SqlKind.INT32)),)))
        >>> column_converter(field, pa.list_(pa.int32()), ConversionRules())(["1", None])
        [1, None]
    """
    kind = field.type.kind
    if kind is SqlKind.INTERVAL_YEAR_MONTH:
        raise UnsupportedFeature(f"column {field.name!r} has type INTERVAL_YEAR_MONTH: rows cannot hold it")
    if kind in (SqlKind.ARRAY, SqlKind.VECTOR):
        return _list_converter(field.type, stored, rules)
    if kind is SqlKind.MAP:
        return _map_converter(field.type, stored, rules)
    if kind is SqlKind.STRUCT:
        return _struct_converter(field.type, stored, rules)
    return _scalar(field.type, stored, rules)


def _scalar(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    milliseconds = pt.is_timestamp(stored) and stored.unit == "ms"
    makers: dict[SqlKind, Callable[[], Converter]] = {
        SqlKind.BOOLEAN: boolean_converter,
        SqlKind.FLOAT: lambda: float_converter("FLOAT", single=True),
        SqlKind.DOUBLE: lambda: float_converter("DOUBLE", single=False),
        SqlKind.DECIMAL: lambda: decimal_converter(sql.precision, sql.scale),
        SqlKind.CHAR: lambda: text_converter("CHAR", rules, sql.length),
        SqlKind.VARCHAR: lambda: text_converter("VARCHAR", rules, sql.length),
        SqlKind.STRING: lambda: text_converter("STRING", rules),
        SqlKind.JSON: lambda: json_converter(rules),
        SqlKind.BINARY: lambda: binary_converter(stored.byte_width if pt.is_fixed_size_binary(stored) else None),
        SqlKind.DATE: date_converter,
        SqlKind.TIMESTAMP_LTZ: lambda: instant_converter(rules, milliseconds=milliseconds),
        SqlKind.TIMESTAMP_NTZ: lambda: wall_clock_converter(milliseconds=milliseconds),
        SqlKind.INTERVAL_DAY_TIME: interval_converter,
    }
    if sql.kind in _BITS:
        return integer_converter(sql.kind.value, _BITS[sql.kind])
    return makers[sql.kind]()


def _inner(field: SqlField, stored: pa.DataType, rules: ConversionRules, what: str) -> Converter:
    """Return the converter of a value inside another one, which may be None."""
    convert = column_converter(field, stored, rules)

    def convert_inner(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if not field.nullable:
            raise ValueError(f"{what} must not be null")
        return None

    return convert_inner


def _list_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    field = sql.inner[0] if rules.null_elements else replace(sql.inner[0], nullable=False)
    element = _inner(field, stored.value_type, rules, "an element")
    dimension = sql.length if sql.kind is SqlKind.VECTOR else None

    def convert(value: Any) -> list[Any]:
        if dimension is not None and isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{sql.kind.value} takes a list or a tuple, not {type(value).__name__}")
        if dimension is not None and (len(value) != dimension or None in value):
            raise ValueError(f"{sql} takes exactly {dimension} numbers")
        return [element(each) for each in value]

    return convert


def _map_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    as_map = pt.is_map(stored)
    key_type, value_type = (
        (stored.key_type, stored.item_type)
        if as_map
        else (stored.value_type.field(0).type, stored.value_type.field(1).type)
    )
    convert_key = column_converter(sql.inner[0], key_type, rules)
    convert_value = _inner(sql.inner[1], value_type, rules, "a value")
    names = ("key", "value") if as_map else (stored.value_type.field(0).name, stored.value_type.field(1).name)

    def convert(value: Any) -> list[Any]:
        pairs = list(value.items()) if isinstance(value, Mapping) else _pairs(value)
        if any(key is None for key, _ in pairs):
            raise ValueError("a key must not be null")
        converted = [(convert_key(key), convert_value(item)) for key, item in pairs]
        if len({repr(key) for key, _ in converted}) != len(converted):
            raise ValueError("a key is given more than once")
        return converted if as_map else [dict(zip(names, pair, strict=True)) for pair in converted]

    return convert


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
        return [(key, item) for key, item in value]
    raise ValueError(f"MAP takes a dict or a list of pairs, not {type(value).__name__}")


def _struct_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    names = [field.name for field in sql.inner]
    named = frozenset(names)
    converters = [
        _inner(field, stored.field(n).type, rules, f"field {field.name!r}") for n, field in enumerate(sql.inner)
    ]

    def convert(value: Any) -> dict[str, Any]:
        values = _field_values(value, names)
        if isinstance(values, Mapping):
            if missing := [name for name in names if name not in values]:
                raise ValueError(f"field {missing[0]!r} is missing")
            if not rules.ignore_extra and (extra := [name for name in values if name not in named]):
                raise ValueError(f"{str(extra[0])!r} is not a field of this STRUCT")
            values = [values[name] for name in names]
        return {name: each(part) for name, each, part in zip(names, converters, values, strict=True)}

    return convert


def _field_values(value: Any, names: list[str]) -> Mapping[str, Any] | list[Any]:
    """Return what was given for the fields: by name, or by position."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (str, bytes)):
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise TypeError("STRUCT takes a text only if it is a JSON object")
        return document
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"STRUCT takes a dict, a tuple, a list, a dataclass or JSON text, not {type(value).__name__}")
    if len(value) != len(names):
        raise ValueError(f"STRUCT has {len(names)} fields, and {len(value)} values are given")
    return list(value)
