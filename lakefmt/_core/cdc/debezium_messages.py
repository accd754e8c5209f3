"""Debezium's messages as values: JSON with and without a schema, Avro with a registry, and the types of their columns.

A converter takes one value as JSON or Avro has it and returns what the Arrow type takes; what cannot be exact is a `ValueError`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from http.client import HTTPException
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from lakefmt._core.arguments import Raised, run_foreign, shown
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import FormatError, InvalidInputError, SourceUnavailable

__all__ = [
    "ConnectType",
    "Converter",
    "DecodedMessage",
    "Fields",
    "MessageReader",
    "SchemaRegistry",
    "find_connect_type",
    "infer_type",
    "inferred_values",
    "json_text",
]

Converter: TypeAlias = Callable[[object], object]
#: The type of a field; of a struct with its fields, where they are known.
FieldType: TypeAlias = "ConnectType | tuple[ConnectType, Fields | None]"
#: The fields of a struct, by name.
Fields: TypeAlias = "Mapping[str, FieldType]"
#: An Avro schema as parsed JSON.
AvroSchema: TypeAlias = str | list[object] | dict[str, object]

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
        value = dict(self.parameters).get(name)
        return None if value is None else int(value)


def find_connect_type(connect_type: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
    """Return the type of a field here, and what makes values of it.

    Args:
        connect_type: the field's schema.
        connector: of Debezium: a `TIME` of MySQL may be negative or longer than a day.
    """
    logical = _LOGICAL.get(connect_type.name)
    if logical is not None:
        return logical(connect_type, connector)
    if connect_type.type == "array" and connect_type.items is not None:
        arrow, convert = find_connect_type(connect_type.items, connector)
        return pa.list_(arrow), lambda value: [None if each is None else convert(each) for each in _list(value)]
    return _PLAIN.get(connect_type.type, (pa.string(), json_text))


# ------------------------------------------------------------------------------------------------------------- numbers


def _integer_converter(low: int, high: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{value!r:.40} is no whole number from {low} to {high}")
        return value

    return convert


_INT32, _INT64 = _integer_converter(-(2**31), 2**31 - 1), _integer_converter(-(2**63), 2**63 - 1)


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError(f"{value!r:.40} is no number")  # noqa: TRY004  (one error for all)
    number = float(value)
    if number in (float("inf"), float("-inf")) and not isinstance(value, str | float):
        raise ValueError(f"{value!r:.40} is larger than a double")
    return number


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.40} is neither true nor false")  # noqa: TRY004
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")  # noqa: TRY004
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no array")  # noqa: TRY004
    return value


def _bytes(value: object) -> bytes:
    """Convert bytes: Avro has them as they are, JSON in base64."""
    return value if isinstance(value, bytes) else base64.b64decode(_string(value), validate=True)


def json_text(value: object) -> str:
    """Return a value that has parts as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 10**15 else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _scaled(unscaled: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _CONTEXT)


def _decimal(connect_type: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    scale, precision = (
        connect_type.number("scale") or 0,
        connect_type.number("connect.decimal.precision") or _MOST_DIGITS,
    )
    if precision > _MOST_DIGITS or not 0 <= scale <= precision:
        return pa.string(), lambda value: format(_exact(value, scale), "f")
    arrow = pa.decimal128(precision, scale)
    most = Decimal(10) ** (precision - scale)

    def convert(value: object) -> Decimal:
        number = _exact(value, scale)
        if not -most < number < most:
            raise ValueError(f"{number} has more digits than {arrow}")
        return number

    return arrow, convert


def _exact(value: object, scale: int) -> Decimal:
    return value if isinstance(value, Decimal) else _scaled(_bytes(value), scale)


def _any_scale(connect_type: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    def convert(value: object) -> str:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r:.40} is no number with a scale")  # noqa: TRY004
        scale = value["scale"]
        if not isinstance(scale, int) or abs(scale) > 20_000:
            raise ValueError(f"a scale of {scale!r:.40}")
        return format(_scaled(_bytes(value["value"]), scale), "f")

    return pa.string(), convert


# ---------------------------------------------------------------------------------------------------------------- time


def _days(connect_type: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    within = _integer_converter(*_DAYS)
    return (
        pa.date32(),
        lambda value: value if isinstance(value, dt.date) else dt.date.fromordinal(719_163 + within(value)),
    )


def _micros_of(value: object, unit: int) -> int:
    """Return whole microseconds; `unit` is in nanoseconds."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1_000_000 + value.microsecond
    micros, rest = divmod(_INT64(value) * unit, 1000)
    if rest:
        raise ValueError(f"{value} has parts of a microsecond")
    return micros


def _clock(unit: int) -> Callable[[ConnectType, str], tuple[pa.DataType, Converter]]:
    def of(connect_type: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
        if connector in _MYSQL:
            return pa.int64(), lambda value: _micros_of(value, unit)
        within = _integer_converter(0, _DAY_MICROS - 1)
        return pa.time64("us"), lambda value: within(_micros_of(value, unit))

    return of


def _moment(unit: int) -> Callable[[ConnectType, str], tuple[pa.DataType, Converter]]:
    def of(connect_type: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
        within = _integer_converter(*_MICROS)
        return pa.timestamp("us"), lambda value: within(_micros_of(value, unit))

    return of


def _zoned(connect_type: ConnectType, _: str) -> tuple[pa.DataType, Converter]:
    def convert(value: object) -> int:
        moment = dt.datetime.fromisoformat(_string(value))
        if moment.tzinfo is None:
            raise ValueError(f"{value!r:.40} has no zone")
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)

    return pa.timestamp("us", "UTC"), convert


def _bits(connect_type: ConnectType, connector: str) -> tuple[pa.DataType, Converter]:
    if connector in _MYSQL:
        return pa.binary(), lambda value: _bytes(value)[::-1]
    length = connect_type.number("length") or 0

    def convert(value: object) -> str:
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


def infer_type(values: Sequence[object], before: pa.DataType | None) -> pa.DataType | None:
    """Return the type of values of JSON without a schema, at least as wide as `before`; None: all are null."""
    value_types = {type(value) for value in values if value is not None}
    if before is not None:
        value_types.add(_PYTHON_TYPES.get(before, str))
    if not value_types:
        return None
    if value_types == {bool}:
        return pa.bool_()
    if value_types == {int} and all(value is None or _is_int64(value) for value in values):
        return pa.int64()
    if value_types <= {int, float, Decimal} and all(value is None or _is_double(value) for value in values):
        return pa.float64()
    return pa.string()


_PYTHON_TYPES: Final[Mapping[pa.DataType, type]] = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float}


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _is_double(value: object) -> bool:
    """Return whether a double has all digits of a number."""
    try:
        return isinstance(value, float) or (isinstance(value, int | Decimal) and Decimal(repr(float(value))) == value)
    except OverflowError:
        return False


def inferred_values(values: Sequence[Any], arrow: pa.DataType) -> list[object]:
    """Return values of JSON without a schema as their column's type takes them."""
    if arrow == pa.float64():
        return [None if value is None else float(value) for value in values]
    if arrow != pa.string():
        return list(values)
    return [None if value is None else _number_text(value) for value in values]


def _number_text(value: object) -> str:
    return (
        format(value, "f")
        if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 400
        else json_text(value)
    )


_MOST_SCHEMA_BYTES: Final = 4 << 20
_SECONDS: Final = 20.0
#: Schemas that one rests on.
_MOST_REFERENCES: Final = 64


class SchemaRegistry:
    """A cache of Avro schemas by id: an id always means the same schema."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Describe a registry; nothing is asked yet.

        Args:
            url: up to where ``/schemas/ids/…`` follows.
            headers: sent with each question, such as the authorization; never shown.
        """
        if not url.startswith(("http://", "https://")) or "@" in url.split("/")[2]:
            raise InvalidInputError("the URL of a registry begins with http:// or https:// and has no password")
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._opener = urllib.request.build_opener(_NoRedirect())
        self._schemas: dict[int, AvroSchema] = {}

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r})"

    def schema(self, number: int) -> AvroSchema:
        """Return a schema.

        Raises:
            FormatError: the registry has no such schema, or answers with something else.
            SourceUnavailable: it does not answer.
        """
        if number not in self._schemas:
            self._schemas[number] = self._ask(number)
        return self._schemas[number]

    def latest(self, subject: str) -> AvroSchema | None:
        """Return the newest schema of a subject as it is stored; None: there is no such subject.

        Raises:
            FormatError: the registry answers with something else.
            SourceUnavailable: it does not answer.
        """
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
        try:
            answer = self._get(path, f"newest version of {shown(subject)}")
        except FormatError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError):
                return None
            raise
        return self._resolve_schema(answer, f"the newest version of {shown(subject)}")

    def _ask(self, number: int) -> AvroSchema:
        return self._resolve_schema(self._get(f"schemas/ids/{number}", f"schema {number}"), f"schema {number}")

    def texts(self, number: int) -> dict[str, str]:
        """Return the text of a schema of Protobuf, by the empty name, and those of the files that it imports, by theirs.

        Raises:
            FormatError: the registry has no such schema, or answers with something else.
            SourceUnavailable: it does not answer.
        """
        schemas: dict[str, str] = {}
        requests = [("", f"schemas/ids/{number}", f"schema {number}")]
        while requests:
            name, path, what = requests.pop()
            if name in schemas:
                continue
            answer = self._get(path, what)
            try:
                if answer.get("schemaType") != "PROTOBUF":
                    raise FormatError(f"{what} of the registry is none of Protobuf")
                schemas[name] = str(answer["schema"])
                requests += [(each.name, each.place, each.what) for each in _references(answer)]
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(f"{what} of the registry cannot be read: {error}") from error
            if len(schemas) > _MOST_REFERENCES:
                raise FormatError(f"{what} of the registry rests on more than {_MOST_REFERENCES} others")
        return schemas

    def _resolve_schema(self, answer: Mapping[str, object], what: str) -> AvroSchema:
        """Return the schema of an answer with those that it refers to."""
        definitions: dict[str, AvroSchema | None] = {}
        schema = self._parse_schema(answer, what, definitions)
        return _avro_schema(_with_definitions(schema, "", definitions, set())) if definitions else schema

    def _parse_schema(
        self, answer: Mapping[str, object], what: str, definitions: dict[str, AvroSchema | None]
    ) -> AvroSchema:
        """Return the schema of an answer, and take the schemas that it refers to, by name."""
        try:
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise FormatError(f"{what} of the registry is none of Avro")
            schema = _avro_schema(json.loads(_string(answer["schema"])))
            for each in _references(answer):
                if each.name in definitions:
                    continue
                if len(definitions) == _MOST_REFERENCES:
                    raise FormatError(f"{what} of the registry rests on more than {_MOST_REFERENCES} others")
                definitions[each.name] = None  # before it is asked for: schemas may refer to each other
                definitions[each.name] = self._parse_schema(self._get(each.place, each.what), each.what, definitions)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{what} of the registry cannot be read: {error}") from error
        return schema

    def _get(self, path: str, what: str) -> Mapping[str, object]:
        """Return an answer of the registry, which is an object of JSON."""
        request = urllib.request.Request(f"{self._url}/{path}", headers=self._headers)  # noqa: S310  (checked)
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                body = answer.read(_MOST_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise FormatError(f"the registry {shown(self._url)} has no {what}") from error
            raise SourceUnavailable(f"the registry {shown(self._url)} answers {error.code} for {what}") from error
        except (OSError, HTTPException) as error:
            raise SourceUnavailable(f"the registry {shown(self._url)} cannot be asked: {error}") from error
        if len(body) > _MOST_SCHEMA_BYTES:
            raise FormatError(f"{what} of the registry is larger than {_MOST_SCHEMA_BYTES} bytes")
        try:
            return _struct(json.loads(body))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{what} of the registry cannot be read: {error}") from error


class _Reference(NamedTuple):
    """A schema that another one refers to: its name there, where the registry has it, and what messages call it."""

    name: str
    place: str
    what: str


def _references(answer: Mapping[str, object]) -> Iterator[_Reference]:
    for each in map(_struct, _list(answer.get("references") or [])):
        subject, version = str(each["subject"]), int(str(each["version"]))
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        yield _Reference(str(each["name"]), path, f"version {version} of {shown(subject)}")


def _struct(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is no object")  # noqa: TRY004
    return value


def _avro_schema(value: object) -> AvroSchema:
    if not isinstance(value, str | list | dict):
        raise ValueError(f"{value!r:.40} is no schema")  # noqa: TRY004
    return value


def _with_definitions(
    node: object, namespace: str, definitions: Mapping[str, AvroSchema | None], placed: set[str]
) -> object:
    """Return a schema with every referenced type defined at its first use."""
    if isinstance(node, list):
        return [_with_definitions(each, namespace, definitions, placed) for each in node]
    if isinstance(node, str):
        full = node if node in definitions or "." in node or not namespace else f"{namespace}.{node}"
        if full not in definitions:
            return node
        return full if full in placed else _with_definitions(definitions[full], "", definitions, placed)
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("record", "error", "enum", "fixed"):
        space, _, short = str(node.get("name")).rpartition(".")
        namespace = space or str(node.get("namespace") or namespace)
        full = f"{namespace}.{short}" if namespace else short
        if full in placed:
            return full
        placed.add(full)
        node = {**node, "name": short, **({"namespace": namespace} if namespace else {})}
    parts = {
        name: _with_definitions(node[name], namespace, definitions, placed)
        for name in ("type", "items", "values")
        if name in node
    }
    fields = node.get("fields")
    if isinstance(fields, list):
        parts["fields"] = [_with_definitions(each, namespace, definitions, placed) for each in fields]
    return {**node, **parts}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A registry that sends elsewhere is not followed: headers with secrets would go along."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_MOST_BYTES: Final = 256 << 20
_HEADER_BYTES: Final = 5


class DecodedMessage(NamedTuple):
    """A message that could be read.

    Attributes:
        value: as JSON or Avro has it.
        schema: the fields of its struct; None: it came without one.
    """

    value: object
    schema: Fields | None


class MessageReader:
    """Reads keys and values."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry
        self._last: tuple[object, Fields | None] = (None, None)
        self._avro: dict[int, tuple[AvroSchema, Fields | None]] = {}

    def parse(self, body: bytes) -> DecodedMessage:
        """Return what a message has.

        Raises:
            FormatError: it cannot be read.
            SourceUnavailable: the registry does not answer.
        """
        if len(body) > _MOST_BYTES:
            raise FormatError(f"a message of {len(body)} bytes")
        try:
            return self._parse_avro(body) if body[:1] == b"\0" else self._parse_json(body)
        except RecursionError as error:
            raise FormatError("a message is nested too deeply") from error

    def _parse_json(self, body: bytes) -> DecodedMessage:
        try:
            value = json.loads(body, parse_float=Decimal)
        except (ValueError, ArithmeticError) as error:
            raise FormatError(f"a message is no JSON: {error}") from error
        if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
            return DecodedMessage(value["payload"], self._fields_of_json(value["schema"]))
        return DecodedMessage(value, None)

    def _fields_of_json(self, schema: object) -> Fields | None:
        """Return the fields of a schema; that of the message before, most often, is the same."""
        if self._last[0] != schema:
            self._last = (schema, _json_fields(schema))
        return self._last[1]

    def _parse_avro(self, body: bytes) -> DecodedMessage:
        try:
            import fastavro
        except ImportError as error:
            raise InvalidInputError("messages in Avro need fastavro: pip install 'lakefmt[debezium]'") from error
        if self._registry is None:
            raise InvalidInputError("messages in Avro need the registry of their schemas: registry=")
        if len(body) < _HEADER_BYTES:
            raise FormatError(f"a message in Avro of {len(body)} bytes")
        number = int.from_bytes(body[1:_HEADER_BYTES], "big")
        if number not in self._avro:
            schema = self._registry.schema(number)
            try:
                self._avro[number] = (fastavro.parse_schema(schema), _avro_fields(schema))
            except (fastavro.schema.SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
                raise FormatError(f"schema {number} of the registry is none of Avro: {error}") from error
        parsed, fields = self._avro[number]
        stream = io.BytesIO(body)
        stream.seek(_HEADER_BYTES)
        value = run_foreign(lambda: fastavro.schemaless_reader(stream, parsed, None))
        if isinstance(value, Raised):
            raised = value.error
            raise FormatError(
                f"a message is not as schema {number} says: {type(raised).__name__}: {raised}"
            ) from raised
        if stream.tell() != len(body):
            raise FormatError(f"a message has {len(body) - stream.tell()} bytes more than schema {number} says")
        return DecodedMessage(value, fields)


# ------------------------------------------------------------------------------------------------------------- schemas


def _json_fields(schema: object) -> Fields | None:
    """Return the fields of a struct, each a type or, of a struct within, its fields beside its type."""
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        return None
    try:
        return {str(field["field"]): _json_type(field) for field in schema["fields"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"a message's schema cannot be read: {error!r}") from error


def _json_type(field: Mapping[str, Any]) -> FieldType:
    connect_type = ConnectType(
        str(field["type"]),
        str(field.get("name") or ""),
        tuple(sorted((str(name), str(value)) for name, value in (field.get("parameters") or {}).items())),
        _plain_type(_json_type(field["items"])) if isinstance(field.get("items"), dict) else None,
    )
    return (connect_type, _json_fields(field)) if connect_type.type == "struct" else connect_type


def _plain_type(field_type: FieldType) -> ConnectType:
    return field_type[0] if isinstance(field_type, tuple) else field_type


_AVRO_TYPES: Final = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "enum": "string",
    "record": "struct",
}
_AVRO_LOGICAL: Final = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
}


def _avro_fields(schema: AvroSchema) -> Fields | None:
    types_by_name: dict[str, FieldType] = {}
    record_type = _avro_type(schema, "", types_by_name)
    return record_type[1] if isinstance(record_type, tuple) else None


def _avro_type(schema: Any, namespace: str, types_by_name: dict[str, FieldType]) -> FieldType:
    """Return a type, with its fields if it is a record; `types_by_name` holds the types that were read before."""
    if isinstance(schema, list):
        non_null_types = [each for each in schema if each != "null"]
        return (
            _avro_type(non_null_types[0], namespace, types_by_name)
            if len(non_null_types) == 1
            else ConnectType("struct")
        )
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        return types_by_name.get(full) or types_by_name.get(schema) or ConnectType(_AVRO_TYPES.get(schema, schema))
    avro_type = schema["type"]
    if isinstance(avro_type, dict | list):
        return _avro_type(avro_type, namespace, types_by_name)
    parameters = {str(name): str(value) for name, value in (schema.get("connect.parameters") or {}).items()}
    logical = str(schema.get("logicalType") or "")
    if logical == "decimal":
        parameters |= {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
    name = str(schema.get("connect.name") or _AVRO_LOGICAL.get(logical, ""))
    items = _plain_type(_avro_type(schema["items"], namespace, types_by_name)) if avro_type == "array" else None
    connect = str(schema.get("connect.type") or _AVRO_TYPES.get(avro_type, avro_type))
    connect_type = ConnectType(connect, name, tuple(sorted(parameters.items())), items)
    if avro_type in ("record", "enum", "fixed"):
        space = str(schema.get("namespace") or namespace)
        full = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        types_by_name[full] = connect_type
        if avro_type == "record":
            fields = {str(field["name"]): _avro_type(field["type"], space, types_by_name) for field in schema["fields"]}
            types_by_name[full] = connect_type, fields
            return connect_type, fields
    return connect_type
