"""Messages in Protobuf, by a file of descriptors that protoc has written: ``protoc --include_imports --descriptor_set_out=FILE``.

A descriptor is data: no generated code is imported. Registries hold the text of ``.proto`` files, which only protoc can read: that of
grpcio-tools is asked, in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import error_text, foreign, library, shown
from lakefmt._core.cdc.debezium.messages import SchemaRegistry
from lakefmt._core.ingest.kafka.decoding import Decoded, merge_parts
from lakefmt.errors import FormatError, InvalidInputError, UnsupportedFeature

__all__ = ["ProtobufMessages", "RegisteredMessages", "without_frame"]

_MOST_BYTES: Final = 16 << 20
_MOST_LEVELS: Final = 15
#: Bytes of a zero, the id of a schema, and the shortest place in it.
_FRAME: Final = 6
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
        library(lambda: importlib.import_module("google.protobuf.descriptor_pool"), "google", "protobuf")
        path = Path(descriptors)
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise InvalidInputError(f"{descriptors} is no file of descriptors of Protobuf that can be read")
        what = f"{descriptors} has no message {shown(message)} (protoc needs --include_imports)"
        self._reader = foreign(lambda: _MessageReader(path.read_bytes(), lambda _files: message), what)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages."""
        rows, message_numbers, rejected = self._reader.read(
            [(message_number, value) for message_number, value in enumerate(values)], without_frame
        )
        return Decoded(rows, message_numbers, rejected=tuple(rejected))


class _MessageReader:
    """Reads messages of one type.

    Args:
        descriptors: of files, as protoc writes them, each behind those that it imports.
        name: returns the full name of the type.
    """

    def __init__(self, descriptors: bytes, name: Callable[[Any], str]) -> None:
        pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
        files = importlib.import_module("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        message_type = pool.FindMessageTypeByName(name(files))
        factory = importlib.import_module("google.protobuf.message_factory")
        self._parse: Callable[[bytes], Any] = factory.GetMessageClass(message_type).FromString
        self._damaged: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
        self._type, self._convert = _message_type(message_type, 0)

    def read(
        self, values: Sequence[tuple[int, bytes]], unframed: Callable[[bytes], bytes]
    ) -> tuple[pa.Table, npt.NDArray[np.int64], list[tuple[int, str]]]:
        """Return the rows of messages, the place of each, and places and reasons of those that cannot be read."""
        rows, message_numbers, rejected = [], [], []
        for message_number, value in values:
            try:
                rows.append(self._convert(self._parse(unframed(value))))
                message_numbers.append(message_number)
            except (self._damaged, FormatError, ValueError) as error:
                rejected.append((message_number, str(error)))
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, self._type))])
        return table, np.array(message_numbers, np.int64), rejected


class RegisteredMessages:
    """Messages with the id of their schema in front, and where their type stands in it; the texts of schemas come from a registry.

    Messages of several schemas may come in one batch: each is read by its own, and a column that one of them lacks is null there.

    Args:
        registry: of the schemas.

    Raises:
        UnsupportedFeature: protobuf or protoc is not installed.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        library(lambda: importlib.import_module("google.protobuf.descriptor_pool"), "google", "protobuf")
        if importlib.util.find_spec("grpc_tools") is None:
            raise UnsupportedFeature(
                "a registry has the texts of Protobuf's schemas, which protoc compiles: pip install grpcio-tools, or give "
                "lakefmt.ingest.kafka.protobuf.descriptors"
            )
        self._registry = registry
        self._compiled: dict[int, bytes] = {}
        self._readers: dict[tuple[int, tuple[int, ...]], _MessageReader] = {}

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages; those of an unknown schema are rejected.

        Raises:
            SourceUnavailable: the registry does not answer.
        """
        groups: dict[tuple[int, tuple[int, ...]], list[tuple[int, bytes]]] = {}
        rejected, tables, message_numbers = [], [], []
        for message_number, value in enumerate(values):
            try:
                number, path, rest = _framed(value)
                groups.setdefault((number, path), []).append((message_number, rest))
            except FormatError as error:
                rejected.append((message_number, str(error)))
        for (number, path), group in groups.items():
            try:
                reader = self._reader_of(number, path)
            except FormatError as error:
                rejected += [(message_number, str(error)) for message_number, _ in group]
                continue
            rows, row_messages, failed = reader.read(group, bytes)
            tables.append(rows)
            message_numbers.append(row_messages)
            rejected += failed
        table, order = merge_parts(tables, message_numbers)
        return Decoded(table, order, rejected=tuple(sorted(rejected)))

    def _reader_of(self, number: int, path: tuple[int, ...]) -> _MessageReader:
        if (number, path) not in self._readers:
            if number not in self._compiled:
                self._compiled[number] = _compiled(self._registry.texts(number), f"schema {number} of the registry")
            what = f"schema {number} of the registry has no message at {list(path)} that a table can have"
            try:
                name = partial(_name_at, path)
                self._readers[number, path] = foreign(lambda: _MessageReader(self._compiled[number], name), what)
            except (InvalidInputError, UnsupportedFeature) as error:
                raise FormatError(str(error)) from error
        return self._readers[number, path]


_MAIN: Final = "lakefmt_main.proto"
_IMPORT: Final = re.compile(r"(?!/)(?!(.*/)?\.\.?/)[A-Za-z0-9_./-]{1,200}\.proto")
_SECONDS: Final = 60


def _compiled(texts: Mapping[str, str], what: str) -> bytes:
    """Return the descriptors of a schema and of those that it imports.

    Args:
        texts: by the names by which they are imported; of the schema itself the empty one.
        what: it is, in messages.

    Raises:
        FormatError: protoc says no.
    """
    with TemporaryDirectory(prefix="lakefmt-protoc-") as base:
        for name, proto_source in texts.items():
            if name and (_IMPORT.fullmatch(name) is None or name == _MAIN):
                raise FormatError(f"{what} imports {shown(name)}, which is no name of a file")
            path = Path(base, name or _MAIN)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(proto_source, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{base}", "--include_imports"]
        command += [f"--descriptor_set_out={base}/out", _MAIN]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=base)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FormatError(f"{what} cannot be compiled: {error_text(error)}") from error
        if process.returncode:
            raise FormatError(f"{what} cannot be compiled: {shown(process.stderr.strip()[-300:])}")
        return Path(base, "out").read_bytes()


def _name_at(path: Sequence[int], files: Any) -> str:
    """Return the full name of a message by its place among those of the last file, and among those in it."""
    level, names = files[-1].message_type, [files[-1].package] if files[-1].package else []
    for number in path:
        names.append(level[number].name)
        level = level[number].nested_type
    return ".".join(names)


def _framed(value: bytes) -> tuple[int, tuple[int, ...], bytes]:
    r"""Return the id of a message's schema, where its type stands in it, and the message.

    Raises:
        FormatError: there is no such frame.

    Example:
        >>> _framed(b"\0\0\0\0\7\x04\x02\x00\x08\x01"), _framed(b"\0\0\0\0\7\0\x08\x01")
        ((7, (1, 0), b'\x08\x01'), (7, (0,), b'\x08\x01'))
    """
    if value[:1] != b"\0" or len(value) < _FRAME:
        raise FormatError("no number of a schema in front")
    count, offset = _number(value, 5)
    if not 0 <= count <= _MOST_LEVELS:
        raise FormatError("the frame of a message is damaged")
    path = []
    for _ in range(count):
        number, offset = _number(value, offset)
        if number < 0:
            raise FormatError("the frame of a message is damaged")
        path.append(number)
    return int.from_bytes(value[1:5], "big"), tuple(path) or (0,), value[offset:]


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
    offset = 5
    count, offset = _number(value, offset)
    for _ in range(count):
        _, offset = _number(value, offset)
    return value[offset:]


def _number(value: bytes, offset: int) -> tuple[int, int]:
    """Return a zigzag number and the place behind it."""
    number = shift = 0
    while offset < len(value) and shift <= 28:
        byte = value[offset]
        number |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), offset
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

    return pa.struct([pa.field(name, data_type) for name, _, data_type, _ in fields]), convert


def _reader(descriptor: Any, convert: Convert) -> Convert:
    name = descriptor.name
    if _is_repeated(descriptor) or not descriptor.has_presence:
        return lambda message: convert(getattr(message, name))
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _is_repeated(descriptor: Any) -> bool:
    repeated_flag = getattr(descriptor, "is_repeated", None)  # newer releases; the label of older ones is going away
    return bool(descriptor.label == descriptor.LABEL_REPEATED if repeated_flag is None else repeated_flag)


def _field_type(descriptor: Any, level: int) -> tuple[pa.DataType, Convert]:
    inner = descriptor.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, read_key = _value_type(inner.fields_by_name["key"], level)
        item, read_item = _value_type(inner.fields_by_name["value"], level)
        return pa.map_(key, item), lambda value: [(read_key(name), read_item(value[name])) for name in value]
    data_type, convert = _value_type(descriptor, level)
    if _is_repeated(descriptor):
        return pa.list_(data_type), lambda value: [convert(each) for each in value]
    return data_type, convert


def _value_type(descriptor: Any, level: int) -> tuple[pa.DataType, Convert]:
    """Return the type of one value of a field."""
    cpp, inner = descriptor.cpp_type, descriptor.message_type
    if inner is not None:
        if inner.full_name == _TIMESTAMP:
            return pa.timestamp(
                "us", "UTC"
            ), lambda field_value: field_value.seconds * 1_000_000 + field_value.nanos // 1000
        if inner.full_name in _WRAPPERS:
            data_type, convert = _value_type(inner.fields_by_name["value"], level)
            return data_type, lambda field_value: convert(field_value.value)
        return _message_type(inner, level + 1)
    if cpp == descriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in descriptor.enum_type.values_by_number.items()}
        return pa.string(), lambda field_value: names.get(field_value, str(field_value))
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
