"""Messages as values and schemas: JSON with and without a schema, and Avro with the id of one."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from lakefmt._core.cdc.debezium.columns import ConnectType
from lakefmt._core.cdc.debezium.registry import SchemaRegistry
from lakefmt.errors import FormatError, InvalidInputError

__all__ = ["DecodedMessage", "Fields", "MessageReader"]

#: The fields of a struct, by name.
Fields = Mapping[str, Any]
_MOST_BYTES: Final = 256 << 20
_HEADER_BYTES: Final = 5


class DecodedMessage(NamedTuple):
    """A message that could be read.

    Attributes:
        value: as JSON or Avro has it.
        schema: the fields of its struct; None: it came without one.
    """

    value: Any
    schema: Fields | None


class MessageReader:
    """Reads keys and values."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry
        self._last: tuple[Any, Fields | None] = (None, None)
        self._avro: dict[int, tuple[Any, Fields | None]] = {}

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

    def _fields_of_json(self, schema: Any) -> Fields | None:
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
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:
            raise FormatError(f"a message is not as schema {number} says: {type(error).__name__}: {error}") from error
        if stream.tell() != len(body):
            raise FormatError(f"a message has {len(body) - stream.tell()} bytes more than schema {number} says")
        return DecodedMessage(value, fields)


# ------------------------------------------------------------------------------------------------------------- schemas


def _json_fields(schema: Any) -> Fields | None:
    """Return the fields of a struct, each a type or, of a struct within, its fields beside its type."""
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        return None
    try:
        return {str(field["field"]): _json_type(field) for field in schema["fields"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"a message's schema cannot be read: {error!r}") from error


def _json_type(field: Mapping[str, Any]) -> Any:
    kind = ConnectType(
        str(field["type"]),
        str(field.get("name") or ""),
        tuple(sorted((str(name), str(value)) for name, value in (field.get("parameters") or {}).items())),
        _plain_type(_json_type(field["items"])) if isinstance(field.get("items"), dict) else None,
    )
    return (kind, _json_fields(field)) if kind.type == "struct" else kind


def _plain_type(found: Any) -> ConnectType:
    kind = found[0] if isinstance(found, tuple) else found
    assert isinstance(kind, ConnectType)  # noqa: S101  (the two forms above)
    return kind


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


def _avro_fields(schema: Any) -> Fields | None:
    named: dict[str, Any] = {}
    found = _avro_type(schema, "", named)
    return found[1] if isinstance(found, tuple) else None


def _avro_type(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """Return a type, or of a record the type and its fields; `named` has the types that were seen."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return _avro_type(others[0], namespace, named) if len(others) == 1 else ConnectType("struct")
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        return named.get(full) or named.get(schema) or ConnectType(_AVRO_TYPES.get(schema, schema))
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _avro_type(kind, namespace, named)
    parameters = {str(name): str(value) for name, value in (schema.get("connect.parameters") or {}).items()}
    logical = str(schema.get("logicalType") or "")
    if logical == "decimal":
        parameters |= {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
    name = str(schema.get("connect.name") or _AVRO_LOGICAL.get(logical, ""))
    items = _plain_type(_avro_type(schema["items"], namespace, named)) if kind == "array" else None
    connect = str(schema.get("connect.type") or _AVRO_TYPES.get(kind, kind))
    found: Any = ConnectType(connect, name, tuple(sorted(parameters.items())), items)
    if kind in ("record", "enum", "fixed"):
        space = str(schema.get("namespace") or namespace)
        full = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        named[full] = found
        if kind == "record":
            found = (found, {str(field["name"]): _avro_type(field["type"], space, named) for field in schema["fields"]})
            named[full] = found
    return found
