"""Messages in Protobuf, by a file of descriptors that protoc has written: ``protoc --include_imports --descriptor_set_out=FILE``.

A descriptor is data: no generated code is imported. Registries hold the text of ``.proto`` files, which only protoc can read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lakefmt._core.arguments import foreign, library, shown
from lakefmt._core.ingest.kafka.decoding import Decoded
from lakefmt.errors import FormatError, InvalidInputError, UnsupportedFeature

__all__ = ["ProtobufMessages", "without_frame"]

_MOST_BYTES: Final = 16 << 20
_MOST_LEVELS: Final = 15
_TIMESTAMP: Final = "google.protobuf.Timestamp"
#: Messages around one value: the value, or null.
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

#: Takes a value of a message, and returns it as Arrow takes it.
Convert: TypeAlias = Callable[[Any], Any]


class ProtobufMessages:
    """Messages of one type, with or without the frame of Confluent's serializers.

    Fields that may be absent are null where they are. Enumerations are the names of their values; 64 bits without a sign are decimal.

    Args:
        descriptors: path of the file.
        message: the full name of the type.

    Raises:
        InvalidInputError: the file is none of descriptors, or has no such message.
        UnsupportedFeature: protobuf is not installed, or the type holds itself.
    """

    def __init__(self, descriptors: str, message: str) -> None:
        pool_module = library(lambda: importlib.import_module("google.protobuf.descriptor_pool"), "google", "protobuf")
        sets = importlib.import_module("google.protobuf.descriptor_pb2")
        path = Path(descriptors)
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise InvalidInputError(f"{descriptors} is no file of descriptors of Protobuf that can be read")
        pool = pool_module.DescriptorPool()

        def load() -> Any:
            for file in sets.FileDescriptorSet.FromString(path.read_bytes()).file:
                pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
            return pool.FindMessageTypeByName(message)

        found = foreign(load, f"{descriptors} has no message {shown(message)} (protoc needs --include_imports)")
        factory = importlib.import_module("google.protobuf.message_factory")
        self._parse: Callable[[bytes], Any] = factory.GetMessageClass(found).FromString
        self._damaged: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
        self._type, self._convert = _message_type(found, 0)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages."""
        rows, places, rejected = [], [], []
        for place, value in enumerate(values):
            try:
                rows.append(self._convert(self._parse(without_frame(value))))
                places.append(place)
            except (self._damaged, FormatError, ValueError) as error:
                rejected.append((place, str(error)))
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, self._type))])
        return Decoded(table, np.array(places, np.int64), rejected=tuple(rejected))


def without_frame(value: bytes) -> bytes:
    r"""Return a message without a frame: a zero, four bytes for the id of a schema, and where its type stands in the schema.

    No message of Protobuf begins with a zero.

    Raises:
        FormatError: the frame is cut off.

    Example:
        >>> without_frame(b"\0\0\0\0\7\0\x08\x01"), without_frame(b"\0\0\0\0\7\x04\x02\x00\x08\x01"), without_frame(b"\x08\x01")
        (b'\x08\x01', b'\x08\x01', b'\x08\x01')
    """
    if value[:1] != b"\0":
        return value
    place = 5
    count, place = _number(value, place)
    for _ in range(count):
        _, place = _number(value, place)
    return value[place:]


def _number(value: bytes, place: int) -> tuple[int, int]:
    """Return a zigzag number and the place behind it."""
    number = shift = 0
    while place < len(value) and shift <= 28:
        byte = value[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
    raise FormatError("the frame of a message is cut off")


# ------------------------------------------------------------------------------------------------------------- types


def _same(value: Any) -> Any:
    return value


def _message_type(descriptor: Any, level: int) -> tuple[pa.DataType, Convert]:
    """Return the type of a message, and what makes a dictionary of one."""
    if level > _MOST_LEVELS:
        raise UnsupportedFeature(
            f"{descriptor.full_name} holds itself, or is nested too deeply: no table has such a type"
        )
    fields = [(each.name, each.number, *_field_type(each, level)) for each in descriptor.fields]
    readers = [(name, _reader(descriptor.fields_by_name[name], convert)) for name, _, _, convert in fields]

    def convert(message: Any) -> dict[str, Any]:
        return {name: read(message) for name, read in readers}

    return pa.struct([pa.field(name, kind) for name, _, kind, _ in fields]), convert


def _reader(descriptor: Any, convert: Convert) -> Convert:
    name = descriptor.name
    if _is_repeated(descriptor) or not descriptor.has_presence:
        return lambda message: convert(getattr(message, name))
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _is_repeated(descriptor: Any) -> bool:
    told = getattr(descriptor, "is_repeated", None)  # newer releases; the label of older ones is going away
    return bool(descriptor.label == descriptor.LABEL_REPEATED if told is None else told)


def _field_type(descriptor: Any, level: int) -> tuple[pa.DataType, Convert]:
    inner = descriptor.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, read_key = _value_type(inner.fields_by_name["key"], level)
        item, read_item = _value_type(inner.fields_by_name["value"], level)
        return pa.map_(key, item), lambda found: [(read_key(name), read_item(found[name])) for name in found]
    kind, convert = _value_type(descriptor, level)
    if _is_repeated(descriptor):
        return pa.list_(kind), lambda found: [convert(each) for each in found]
    return kind, convert


def _value_type(descriptor: Any, level: int) -> tuple[pa.DataType, Convert]:
    """Return the type of one value of a field."""
    cpp, inner = descriptor.cpp_type, descriptor.message_type
    if inner is not None:
        if inner.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC"), lambda found: found.seconds * 1_000_000 + found.nanos // 1000
        if inner.full_name in _WRAPPERS:
            kind, convert = _value_type(inner.fields_by_name["value"], level)
            return kind, lambda found: convert(found.value)
        return _message_type(inner, level + 1)
    if cpp == descriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in descriptor.enum_type.values_by_number.items()}
        return pa.string(), lambda found: names.get(found, str(found))
    if cpp == descriptor.CPPTYPE_STRING:
        return (pa.binary() if descriptor.type == descriptor.TYPE_BYTES else pa.string()), _same
    plain: dict[int, tuple[pa.DataType, Convert]] = {
        descriptor.CPPTYPE_INT32: (pa.int32(), _same),
        descriptor.CPPTYPE_INT64: (pa.int64(), _same),
        descriptor.CPPTYPE_UINT32: (pa.int64(), _same),
        descriptor.CPPTYPE_UINT64: (pa.decimal128(20, 0), Decimal),
        descriptor.CPPTYPE_DOUBLE: (pa.float64(), _same),
        descriptor.CPPTYPE_FLOAT: (pa.float32(), _same),
        descriptor.CPPTYPE_BOOL: (pa.bool_(), _same),
    }
    return plain[cpp]
