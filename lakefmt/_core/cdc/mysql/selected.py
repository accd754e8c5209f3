"""What a SELECT gives to Arrow columns, equal to what the log gives (pure).

The server sends text. Where its text is not the value (a FLOAT is rounded to six digits) the expression of :func:`expression` asks for
another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.mysql.columns import value_type
from lakefmt._core.cdc.mysql.values import calendar_days, times_of_day

__all__ = ["expression", "quoted", "selected_column"]

_AS_TEXT: Final = frozenset(("date", "datetime", "timestamp", "time"))


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def expression(name: str, type: str) -> str:
    """Return the expression whose values :func:`selected_column` takes."""
    column = quoted(name)
    if type == "float":
        return f"cast({column} as double)"
    if type == "enum":
        return f"cast({column} as char)"
    if type == "set":
        return f"cast({column} as char)"
    return column


def selected_column(type: str, values: Sequence[Any]) -> pa.Array:
    """Return the values of a column as the client gives them: strings, bytes for types of bytes, None."""
    if type in ("binary", "geometry"):
        return pa.array(values, pa.binary())
    if type.startswith("bit("):
        raw = pa.array(values, pa.binary())
        return pc.not_equal(raw, b"\0") if type == "bit(1)" else raw
    text = pa.array(values, pa.string())
    if type in _AS_TEXT:
        return _time(type, text)
    if type == "set":
        return _set(text)
    if type == "year":
        return text.cast(pa.int32())
    return text.cast(value_type(type))


def _set(text: pa.Array) -> pa.Array:
    # The server writes the members in their order, with commas, which no member has; "" is the empty set.
    lists = pc.split_pattern(text, ",")
    empty = pc.fill_null(pc.equal(text, ""), False)
    return pc.if_else(empty, pa.scalar([], pa.list_(pa.string())), lists)


def _time(type: str, text: pa.Array) -> pa.Array:
    nulls = text.is_null().to_numpy(zero_copy_only=False)
    if type == "time":
        pieces = pc.extract_regex(
            text, r"^(?P<sign>-?)(?P<hour>\d+):(?P<minute>\d+):(?P<second>\d+)\.?(?P<fraction>\d*)$"
        )
        part = {name: pc.struct_field(pieces, name) for name in ("sign", "hour", "minute", "second", "fraction")}
        hours, minutes, seconds = (_numbers(part[name]) for name in ("hour", "minute", "second"))
        fraction = _numbers(pc.utf8_rpad(pc.fill_null(part["fraction"], "0"), 6, "0"))
        micros = times_of_day(hours, minutes, seconds) + fraction
        negative = pc.fill_null(pc.equal(part["sign"], "-"), False).to_numpy(zero_copy_only=False)
        return pa.array(np.where(negative, -micros, micros), mask=nulls)
    digits = _digits(text)
    years, months, days = _number(digits, 0, 4), _number(digits, 5, 7), _number(digits, 8, 10)
    found, impossible = calendar_days(years, months, days)
    nulls = nulls | impossible
    if type == "date":
        return pa.array(found.astype(np.int32), pa.int32(), mask=nulls).cast(pa.date32())
    micros = found * 86_400_000_000
    micros += times_of_day(_number(digits, 11, 13), _number(digits, 14, 16), _number(digits, 17, 19))
    micros += _number(digits, 20, 26)
    return pa.array(micros, mask=nulls).cast(value_type(type))


def _numbers(text: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(text, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


_LONGEST: Final = "0000-00-00 00:00:00.000000"


def _digits(text: pa.Array) -> npt.NDArray[np.int64]:
    # A matrix of the characters less "0", each text filled up with zeros to microseconds.
    filled = pc.utf8_rpad(pc.fill_null(text, _LONGEST), len(_LONGEST), "0")
    raw = filled.cast(pa.binary(len(_LONGEST)))
    return np.frombuffer(raw.buffers()[1], np.uint8).reshape(-1, len(_LONGEST))[: len(text)].astype(np.int64) - 48


def _number(digits: npt.NDArray[np.int64], begin: int, end: int) -> npt.NDArray[np.int64]:
    total = np.zeros(len(digits), np.int64)
    for place in range(begin, end):
        total = total * 10 + digits[:, place]
    return total
