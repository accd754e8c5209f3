"""The types of Kafka Connect, as Debezium uses them, as Arrow's (pure).

A converter takes one value as JSON or Avro has it and returns what the Arrow type takes; what cannot be exact is a `ValueError`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lakefmt._core.data_classes import dataclass

__all__ = ["ConnectType", "find_connect_type", "infer_type", "inferred_values", "json_text"]

Converter: TypeAlias = Callable[[Any], Any]

#: The digits that PostgreSQL's numeric may have before and behind the point.
_CONTEXT: Final = decimal.Context(prec=150_000, Emin=-200_000, Emax=200_000)
_MOST_DIGITS: Final = 38
_DAY_MICROS: Final = 86_400_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Years 1 to 9999, in days and in microseconds since 1970.
_DAYS: Final = (-719_162, 2_932_896)
_MICROS: Final = (_DAYS[0] * _DAY_MICROS, (_DAYS[1] + 1) * _DAY_MICROS - 1)
_MYSQL: Final = ("mysql", "mariadb")


@dataclass(frozen=True, slots=True)
class ConnectType:
    """A field's schema, whether it came as JSON or as Avro.

    Attributes:
        type: Connect's name of it: ``int32``, ``string``, ``bytes``, ``struct``, ``array``, …
        name: what the value means, such as ``io.debezium.time.Date``; empty: just its type.
        parameters: such as ``scale``.
        items: of an array: the type of its elements.
    """

    type: str
    name: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    items: ConnectType | None = None

    def number(self, name: str) -> int | None:
        """Return a parameter as a whole number; None: it is not given."""
        text = dict(self.parameters).get(name)
        return None if text is None else int(text)


def find_connect_type(kind: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
    """Return the type of a field here, and what makes values of it.

    Args:
        kind: the field's schema.
        connector: of Debezium: a `TIME` of MySQL may be negative or longer than a day.
    """
    logical = _LOGICAL.get(kind.name)
    if logical is not None:
        return logical(kind, connector)
    if kind.type == "array" and kind.items is not None:
        arrow, convert = find_connect_type(kind.items, connector)
        return pa.list_(arrow), lambda value: [None if each is None else convert(each) for each in _list(value)]
    return _PLAIN.get(kind.type, (pa.string(), json_text))


# ------------------------------------------------------------------------------------------------------------- numbers


def _whole(low: int, high: int) -> Converter:
    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{value!r:.40} is no whole number from {low} to {high}")
        return value

    return convert


_INT32, _INT64 = _whole(-(2**31), 2**31 - 1), _whole(-(2**63), 2**63 - 1)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError(f"{value!r:.40} is no number")  # noqa: TRY004  (one error for all)
    found = float(value)
    if found in (float("inf"), float("-inf")) and not isinstance(value, str | float):
        raise ValueError(f"{value!r:.40} is larger than a double")
    return found


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.40} is neither true nor false")  # noqa: TRY004
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")  # noqa: TRY004
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no array")  # noqa: TRY004
    return value


def _bytes(value: Any) -> bytes:
    """Avro has bytes, JSON has them in base64."""
    return value if isinstance(value, bytes) else base64.b64decode(_string(value), validate=True)


def json_text(value: Any) -> str:
    """Return a value that has parts as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 10**15 else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _scaled(unscaled: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _CONTEXT)


def _decimal(kind: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    scale, precision = kind.number("scale") or 0, kind.number("connect.decimal.precision") or _MOST_DIGITS
    if precision > _MOST_DIGITS or not 0 <= scale <= precision:
        return pa.string(), lambda value: format(_exact(value, scale), "f")
    arrow = pa.decimal128(precision, scale)
    most = Decimal(10) ** (precision - scale)

    def convert(value: Any) -> Decimal:
        found = _exact(value, scale)
        if not -most < found < most:
            raise ValueError(f"{found} has more digits than {arrow}")
        return found

    return arrow, convert


def _exact(value: Any, scale: int) -> Decimal:
    return value if isinstance(value, Decimal) else _scaled(_bytes(value), scale)


def _any_scale(kind: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    def convert(value: Any) -> str:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r:.40} is no number with a scale")  # noqa: TRY004
        scale = value["scale"]
        if not isinstance(scale, int) or abs(scale) > 20_000:
            raise ValueError(f"a scale of {scale!r:.40}")
        return format(_scaled(_bytes(value["value"]), scale), "f")

    return pa.string(), convert


# ---------------------------------------------------------------------------------------------------------------- time


def _days(kind: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    within = _whole(*_DAYS)
    return (
        pa.date32(),
        lambda value: value if isinstance(value, dt.date) else dt.date.fromordinal(719_163 + within(value)),
    )


def _micros_of(value: Any, unit: int) -> int:
    """Return whole microseconds; `unit` is in nanoseconds."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1_000_000 + value.microsecond
    micros, rest = divmod(int(_INT64(value)) * unit, 1000)
    if rest:
        raise ValueError(f"{value} has parts of a microsecond")
    return micros


def _clock(unit: int) -> Callable[[ConnectType, str], tuple[pa.DataType, Converter]]:
    def of(kind: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
        if connector in _MYSQL:
            return pa.int64(), lambda value: _micros_of(value, unit)
        within = _whole(0, _DAY_MICROS - 1)
        return pa.time64("us"), lambda value: within(_micros_of(value, unit))

    return of


def _moment(unit: int) -> Callable[[ConnectType, str], tuple[pa.DataType, Converter]]:
    def of(kind: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
        within = _whole(*_MICROS)
        return pa.timestamp("us"), lambda value: within(_micros_of(value, unit))

    return of


def _zoned(kind: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    def convert(value: Any) -> int:
        moment = dt.datetime.fromisoformat(_string(value))
        if moment.tzinfo is None:
            raise ValueError(f"{value!r:.40} has no zone")
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)

    return pa.timestamp("us", "UTC"), convert


def _bits(kind: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
    if connector in _MYSQL:
        return pa.binary(), lambda value: _bytes(value)[::-1]
    length = kind.number("length") or 0

    def convert(value: Any) -> str:
        number = int.from_bytes(_bytes(value), "little")
        return format(number, f"0{length}b")[-length:] if 0 < length < 2**31 - 1 else format(number, "b")

    return pa.string(), convert


_LOGICAL: Final[Mapping[str, Callable[[ConnectType, str], tuple[pa.DataType, Converter]]]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _any_scale,
    "io.debezium.time.Date": _days,
    "org.apache.kafka.connect.data.Date": _days,
    "io.debezium.time.Time": _clock(1_000_000),
    "org.apache.kafka.connect.data.Time": _clock(1_000_000),
    "io.debezium.time.MicroTime": _clock(1_000),
    "io.debezium.time.NanoTime": _clock(1),
    "io.debezium.time.Timestamp": _moment(1_000_000),
    "org.apache.kafka.connect.data.Timestamp": _moment(1_000_000),
    "io.debezium.time.MicroTimestamp": _moment(1_000),
    "io.debezium.time.NanoTimestamp": _moment(1),
    "io.debezium.time.ZonedTimestamp": _zoned,
    "io.debezium.data.Bits": _bits,
}
_PLAIN: Final[Mapping[str, tuple[pa.DataType, Converter]]] = {
    "boolean": (pa.bool_(), _truth),
    "int8": (pa.int32(), _INT32),
    "int16": (pa.int32(), _INT32),
    "int32": (pa.int32(), _INT32),
    "int64": (pa.int64(), _INT64),
    "float": (pa.float32(), _real),
    "float32": (pa.float32(), _real),
    "double": (pa.float64(), _real),
    "float64": (pa.float64(), _real),
    "string": (pa.string(), _string),
    "bytes": (pa.binary(), _bytes),
}


# ----------------------------------------------------------------------------------------------------- without a schema


def infer_type(values: Sequence[Any], before: pa.DataType | None) -> pa.DataType | None:
    """Return the type of values of JSON without a schema, at least as wide as `before`; None: all are null."""
    kinds = {type(value) for value in values if value is not None}
    if before is not None:
        kinds.add(_PYTHON_TYPES.get(before, str))
    if not kinds:
        return None
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.int64()
    if kinds <= {int, float, Decimal} and all(value is None or _is_double(value) for value in values):
        return pa.float64()
    return pa.string()


_PYTHON_TYPES: Final[Mapping[pa.DataType, type]] = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float}


def _is_double(value: Any) -> bool:
    """Say whether a double has all digits of a number."""
    try:
        return isinstance(value, float) or Decimal(repr(float(value))) == value
    except OverflowError:
        return False


def inferred_values(values: Sequence[Any], arrow: pa.DataType) -> list[Any]:
    """Return values of JSON without a schema as their column's type takes them."""
    if arrow == pa.float64():
        return [None if value is None else float(value) for value in values]
    if arrow != pa.string():
        return list(values)
    return [None if value is None else _number_text(value) for value in values]


def _number_text(value: Any) -> str:
    return (
        format(value, "f")
        if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 400
        else json_text(value)
    )
