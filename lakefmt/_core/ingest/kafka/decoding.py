"""Messages as columns: JSON, Avro and Protobuf with a registry, text and bytes, and Debezium's envelopes (pure but for the registry).

A decoder takes the values of many messages at once. What it cannot read comes back as places with reasons; all else as
rows, each with the place of its message.

Protobuf needs a file of descriptors: ``protoc --include_imports --descriptor_set_out=FILE``. A descriptor is data: no
generated code is imported. Registries hold the text of ``.proto`` files, which only protoc can read: that of
grpcio-tools is asked, in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
from pyarrow import json as arrow_json

from lakefmt._core.arguments import error_text, foreign, library, shown
from lakefmt._core.cdc.debezium_decoder import DebeziumDecoder
from lakefmt._core.cdc.debezium_messages import SchemaRegistry
from lakefmt._core.cdc.events import RowChanges, TableTruncated
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.columnar.codec import decode_rows
from lakefmt._core.formats.avro.columnar.plan import nullable_type
from lakefmt._core.ingest.inputs import parse_texts
from lakefmt._core.schema import avro_to_arrow, conform
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import FormatError, InvalidInputError, SchemaMismatch, SourceRefused, UnsupportedFeature

__all__ = [
    "AvroMessages",
    "BlobMessages",
    "DebeziumMessages",
    "Decoded",
    "Decoder",
    "JsonMessages",
    "ProtobufMessages",
    "RegisteredMessages",
    "columns_of_keys",
    "merge_parts",
    "without_frame",
]

#: A column that no source has.
_PLACE: Final = "\0place"
I64: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class Decoded:
    """What messages came to.

    Attributes:
        rows: their rows.
        places: the place of each row's message among the messages of the call, ascending.
        kinds: the code of each row's kind; None: rows that the job's operation writes.
        rejected: places of messages that could not be read, and why.
    """

    rows: pa.Table
    places: I64
    kinds: npt.NDArray[np.int8] | None = None
    rejected: tuple[tuple[int, str], ...] = field(default=())


class Decoder(Protocol):
    """Turns messages into rows; it may remember types from call to call."""

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages.

        Raises:
            SourceUnavailable: the registry of schemas does not answer.
        """


def merge_parts(parts: Sequence[pa.Table], message_numbers: Sequence[I64]) -> tuple[pa.Table, I64]:
    """Return parts of a batch as one table in the order of their messages; a column that a part lacks is null there.

    Raises:
        InvalidInputError: a column has types in two parts that no type holds both.
    """
    if not parts:
        return pa.table({}), np.empty(0, np.int64)
    if len(parts) == 1:
        return parts[0], message_numbers[0]
    # A part without columns has rows, too, which only a column keeps.
    numbered = [
        part.append_column(_PLACE, pa.array(numbers)) for part, numbers in zip(parts, message_numbers, strict=True)
    ]
    try:
        kinds = [
            pa.schema([pa.field(each.name, nullable_type(each.type)) for each in part.schema]) for part in numbered
        ]
        schema = pa.unify_schemas(kinds, promote_options="permissive")
        table = pa.concat_tables([conform(part, schema, allow_null_list_elements=True) for part in numbered])
    except (pa.ArrowException, SchemaMismatch) as error:
        raise InvalidInputError(f"messages of one batch do not go together: {error_text(error)}") from None
    order = table[_PLACE].to_numpy()
    table = table.drop_columns([_PLACE])
    if (order[1:] >= order[:-1]).all():
        return table, order
    by_message = np.argsort(order, kind="stable")
    return table.take(pa.array(by_message)), order[by_message]


class _Pieces(NamedTuple):
    """The ranges of values that were read together, and the rejected values."""

    read: list[tuple[int, int, Any]]
    rejected: list[tuple[int, str]]


def read_or_halve(
    values: Sequence[T], read: Callable[[Sequence[T]], Any], failures: type[Exception] | tuple[type[Exception], ...]
) -> tuple[list[tuple[int, int, Any]], list[tuple[int, str]]]:
    """Read values together; where that fails, their halves, down to the single ones that cannot be read.

    Returns:
        First place, place behind the last, and result of each piece; places and reasons of what cannot be read. Both ascend.
    """
    pieces = _Pieces([], [])
    ranges = [(0, len(values))] if values else []
    while ranges:
        low, high = ranges.pop()
        try:
            pieces.read.append((low, high, read(values[low:high])))
        except failures as error:
            if high - low == 1:
                pieces.rejected.append((low, error_text(error).partition(": ")[2] or type(error).__name__))
            else:
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)]
    return pieces


# ------------------------------------------------------------------------------------------------------------------ JSON

#: Each message stands in an object of its own, whose number behind it shows that nothing leaves its message.
_VALUE, _NUMBER = "v", "n"
_BEGIN: Final = b'{"v":'
_ENDS: Final = [b',"n":%d}\n' % number for number in range(65_536)]
_IN_ARROWS_WORDS: Final = re.compile(r"JSON parse error: | in row [0-9]+$|\.$")


class JsonMessages:
    """JSON objects, one in each message, read by Arrow for many messages at once.

    A column keeps the type that its first values had: text stays text also where it looks like a time, whole numbers widen to
    fractions, and what fits neither is rejected. A column that has shown nothing but nulls and empty lists is none yet.
    """

    def __init__(self) -> None:
        self._known = pa.schema([])
        self._moments: dict[str, pa.DataType] = {}

    def learn(self, schema: pa.Schema) -> None:
        """Take the types of a table's columns: those that JSON has, and times, which it has as text or numbers."""
        types = {each.name: each.type for each in (*self._known, *schema) if _is_plain(each.type)}
        self._moments = {each.name: each.type for each in schema if _is_moment(each.type)}
        self._known = pa.schema([(name, data_type) for name, data_type in types.items() if name not in self._moments])

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages; a message that is no object is rejected."""
        read, rejected = read_or_halve(values, self._read, (pa.ArrowException, SchemaMismatch, ValueError))
        tables = [_typed(table) for _, _, table in read]
        message_numbers = [np.arange(low, high, dtype=np.int64) for low, high, _ in read]
        table, order = merge_parts(tables, message_numbers)
        rejected = [(message_number, _IN_ARROWS_WORDS.sub("", why)) for message_number, why in rejected]
        if not table.num_columns:
            rejected = sorted(
                [*rejected, *((int(message_number), "an object without values") for message_number in order)]
            )
            table, order = pa.table({}), np.empty(0, np.int64)
        return Decoded(table, order, rejected=tuple(rejected))

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        try:
            table = _parse_objects(values, self._known)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            table = _parse_objects(values, pa.schema([]))  # a whole number may have become a fraction
        plain = pa.schema([each.with_type(_without_times(each.type)) for each in table.schema])
        merged = _merged(self._known, plain)
        if merged != self._known and any(map(_has_large_number, values)):
            raise ValueError("a whole number of more than 64 bits, which only a column of decimals holds")
        if plain != table.schema:
            table = _parse_objects(values, merged)
        table = self._with_moments(table)
        self._known = merged
        return table

    def _with_moments(self, rows: pa.Table) -> pa.Table:
        """Return rows with the table's times: text is parsed, and numbers count the units of the type, as in Avro."""
        for column_number, name in enumerate(rows.column_names):
            data_type, column = self._moments.get(name), rows.column(column_number)
            if data_type is None or pt.is_null(column.type):
                continue
            parsed = [_moments(name, chunk, data_type) for chunk in column.chunks]
            rows = rows.set_column(column_number, pa.field(name, data_type), pa.chunked_array(parsed, data_type))
        return rows


def _parse_objects(values: Sequence[bytes], known: pa.Schema) -> pa.Table:
    """Return objects as rows.

    Raises:
        ValueError: one of them is no object, or is more than one.
        pa.ArrowInvalid: one of them is no JSON, or a value has another type.
    """
    ends = _ENDS if len(values) <= len(_ENDS) else [b',"n":%d}\n' % number for number in range(len(values))]
    raw = b"".join(itertools.chain.from_iterable(zip(itertools.repeat(_BEGIN), values, ends)))
    _check_utf8(raw)
    wrapped = pa.schema([(_VALUE, pa.struct(list(known))), (_NUMBER, pa.int64())]) if len(known) else None
    rows = arrow_json.read_json(
        pa.BufferReader(raw),
        arrow_json.ReadOptions(use_threads=False, block_size=len(raw) + 1),
        arrow_json.ParseOptions(explicit_schema=wrapped),
    )
    numbers = np.arange(len(values))
    if rows.column_names != [_VALUE, _NUMBER] or not np.array_equal(rows[_NUMBER].to_numpy(), numbers):
        raise ValueError("more than one JSON value")
    objects = rows[_VALUE].combine_chunks()
    if not pt.is_struct(objects.type) or objects.null_count:
        raise ValueError("no JSON object")
    if isinstance(objects, pa.ChunkedArray):  # of an older Arrow
        objects = objects.chunk(0)
    names = [each.name for each in struct_fields(objects.type)]
    if not names:
        return rows.select([])
    return pa.Table.from_arrays(objects.flatten(), schema=pa.schema(struct_fields(objects.type)))


def _check_utf8(raw: bytes) -> None:
    """Raise an error of Arrow where bytes are no UTF-8, for which its JSON reader does not look."""
    offsets = pa.py_buffer(np.array([0, len(raw)], np.int64))
    pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(raw)]).cast(pa.large_string())


def _merged(known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Return the types of columns after some messages; a conflict is an error of Arrow."""
    typed = pa.schema(
        [pa.field(each.name, data_type) for each in found if (data_type := _without_nulls(each.type)) is not None]
    )
    return pa.unify_schemas([known, typed], promote_options="permissive")


def _typed(table: pa.Table) -> pa.Table:
    """Return the columns that have a type."""
    kinds = {each.name: _without_nulls(each.type) for each in table.schema}
    typed = table.select([name for name, data_type in kinds.items() if data_type is not None])
    return typed if all(kinds[each.name] == each.type for each in typed.schema) else _without_null_fields(typed)


def _without_null_fields(table: pa.Table) -> pa.Table:
    columns = [_reduced(column.combine_chunks(), _without_nulls(column.type)) for column in table.columns]
    return pa.table(columns, table.column_names)


def _reduced(array: pa.Array, data_type: pa.DataType | None) -> pa.Array:
    """Return a column without the fields that have no type yet."""
    if isinstance(array, pa.ChunkedArray):  # of an older Arrow
        array = array.chunk(0)
    if data_type is None or array.type == data_type:
        return array
    mask = array.is_null() if array.null_count else None
    if pt.is_list(data_type):
        return pa.ListArray.from_arrays(array.offsets, _reduced(array.values, data_type.value_type), mask=mask)
    members = struct_fields(data_type)
    parts = [_reduced(array.field(each.name), each.type) for each in members]
    return pa.StructArray.from_arrays(parts, fields=members, mask=mask)


def _without_nulls(data_type: pa.DataType) -> pa.DataType | None:
    """Return a type without its parts that are of nulls alone; None: nothing is left of it."""
    if pt.is_null(data_type):
        return None
    if pt.is_list(data_type):
        inner = _without_nulls(data_type.value_type)
        return None if inner is None else data_type if inner == data_type.value_type else pa.list_(inner)
    if pt.is_struct(data_type):
        inner_types = [(each.name, _without_nulls(each.type)) for each in struct_fields(data_type)]
        members = [pa.field(name, inner) for name, inner in inner_types if inner is not None]
        return data_type if len(members) == data_type.num_fields else pa.struct(members)
    return data_type


#: As long as the smallest that 64 bits do not hold.
_LARGE: Final = re.compile(rb"[0-9]{19}")


def _has_large_number(value: bytes) -> bool:
    """Return whether a message has a whole number that 64 bits do not hold, which Arrow would read as a fraction near it."""
    numbers: list[int] = []
    if _LARGE.search(value):
        try:
            json.loads(value, parse_int=lambda digits: numbers.append(int(digits[:40])))
        except (ValueError, RecursionError):
            return False  # Arrow says why
    return any(not -(2**63) <= number < 2**63 for number in numbers)


def _is_moment(data_type: pa.DataType) -> bool:
    return bool(pt.is_timestamp(data_type) or pt.is_date32(data_type) or pt.is_time(data_type))


def _moments(name: str, values: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pt.is_string(values.type):
        return parse_texts(name, values, data_type)
    if not pt.is_int64(values.type):
        raise SchemaMismatch(f"column {name!r} of type {data_type}: neither text nor a whole number")
    return values.cast(pa.int32()).cast(data_type) if data_type.bit_width == 32 else values.cast(data_type)


def _without_times(data_type: pa.DataType) -> pa.DataType:
    """Return a type in which text that looks like a time is text: the next message's may not."""
    if pt.is_timestamp(data_type) or pt.is_date(data_type) or pt.is_time(data_type):
        return pa.string()
    if pt.is_list(data_type):
        return pa.list_(_without_times(data_type.value_type))
    if pt.is_struct(data_type):
        return pa.struct([pa.field(each.name, _without_times(each.type)) for each in struct_fields(data_type)])
    return data_type


def _is_plain(data_type: pa.DataType) -> bool:
    """Return whether JSON has values of a type, each in one form."""
    if pt.is_list(data_type):
        return _is_plain(data_type.value_type)
    if pt.is_struct(data_type):
        return all(_is_plain(each.type) for each in struct_fields(data_type))
    return (
        pt.is_string(data_type)
        or pt.is_boolean(data_type)
        or data_type in (pa.int64(), pa.float64())
        or pt.is_decimal128(data_type)
    )


# ------------------------------------------------------------------------------------------------------------------ Avro

_HEADER_BYTES: Final = 5


class AvroMessages:
    """Avro with the id of its schema in front, as Confluent's serializers write it; each id is asked for once.

    Messages of several schemas may come in one batch: each is read by its own. A column that one of them lacks has the default that the
    newest schema of the subject gives it, whatever else is in the batch; without a default it is null.

    Args:
        registry: of the schemas.
        subject: of the values; empty: there are no defaults.
    """

    def __init__(self, registry: SchemaRegistry, subject: str = "") -> None:
        self._registry, self._subject = registry, subject
        self._numbers = set[int]()
        self._defaults: dict[str, pa.Scalar] = {}

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages; those of an unknown schema are rejected."""
        numbers = np.fromiter(map(_schema_number, values), np.int64, len(values))
        rejected = [
            (int(message_number), "no number of a schema in front") for message_number in np.flatnonzero(numbers < 0)
        ]
        tables, message_numbers = [], []
        for number in np.unique(numbers[numbers >= 0]):
            of_schema = np.flatnonzero(numbers == number)
            try:
                schema = json.dumps(self._registry.schema(int(number)))
                self._look_for_defaults(int(number))
            except FormatError as error:
                rejected += [(int(message_number), str(error)) for message_number in of_schema]
                continue
            read, failed = read_or_halve(
                [values[int(message_number)] for message_number in of_schema],
                _avro_reader(schema),
                (FormatError, UnsupportedFeature),
            )
            tables += [self._with_defaults(table) for _, _, table in read]
            message_numbers += [of_schema[low:high] for low, high, _ in read]
            rejected += [(int(of_schema[message_number]), why) for message_number, why in failed]
        table, order = merge_parts(tables, message_numbers)
        return Decoded(table, order, rejected=tuple(sorted(rejected)))

    def _look_for_defaults(self, number: int) -> None:
        """Request the latest schema of the subject when a message has an unknown schema id."""
        if self._subject and number not in self._numbers:
            newest = self._registry.latest(self._subject)
            self._defaults = {} if newest is None else _defaults_of(newest)
            self._numbers.add(number)

    def _with_defaults(self, rows: pa.Table) -> pa.Table:
        for name, value in self._defaults.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows


def _defaults_of(schema: Any) -> dict[str, pa.Scalar]:
    """Return the defaults of a record's fields that are not null.

    Raises:
        FormatError: a default is none of its type.
    """
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    stated = {each["name"]: each["default"] for each in fields if each.get("default") is not None}
    if not stated:
        return {}
    types = avro_to_arrow(json.dumps(schema))
    try:
        return {name: _default(value, types.field(name).type) for name, value in stated.items()}
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"a default of the newest schema of the subject is none of its type: {error_text(error)}"
        ) from None


def _default(value: Any, data_type: pa.DataType) -> pa.Scalar:
    """Return a default as a value of its column: bytes are texts of one character each."""
    if pt.is_decimal(data_type):
        unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        return pa.scalar(Decimal(unscaled).scaleb(-data_type.scale), data_type)
    if pt.is_binary(data_type) or pt.is_fixed_size_binary(data_type):
        return pa.scalar(value.encode("latin-1"), data_type)
    if pt.is_map(data_type):
        return pa.scalar(list(value.items()), data_type)
    if pt.is_timestamp(data_type) or pt.is_time(data_type) or pt.is_date(data_type):
        storage_type = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.scalar(value, storage_type).cast(data_type)
    return pa.scalar(value, data_type)


def _schema_number(value: bytes) -> int:
    return int.from_bytes(value[1:_HEADER_BYTES], "big") if len(value) >= _HEADER_BYTES and value[0] == 0 else -1


def _avro_reader(schema: str) -> Callable[[Sequence[bytes]], pa.Table]:
    def read(values: Sequence[bytes]) -> pa.Table:
        stops = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        begins = np.concatenate([[0], stops[:-1]]) + _HEADER_BYTES
        return decode_rows(b"".join(values), begins, stops, schema, what="a message")

    return read


# ------------------------------------------------------------------------------------------------------ text and bytes


class BlobMessages:
    """Values as they are, in one column, as text or as bytes."""

    def __init__(self, column: str, *, is_text: bool) -> None:
        self._column, self._is_text = column, is_text

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages; what is no UTF-8 is no text."""
        read, rejected = read_or_halve(values, self._read, pa.ArrowException)
        table, order = merge_parts(
            [part for _, _, part in read], [np.arange(low, high, dtype=np.int64) for low, high, _ in read]
        )
        return Decoded(table, order, rejected=tuple((message_number, "no UTF-8") for message_number, _ in rejected))

    def _read(self, values: Sequence[bytes]) -> pa.Table:
        column = pa.array(values, pa.binary())
        return pa.table({self._column: column.cast(pa.string()) if self._is_text else column})


# -------------------------------------------------------------------------------------------------------------- Debezium


class DebeziumMessages:
    """Envelopes and flattened rows of Debezium, in JSON or Avro; each row has the kind of its change."""

    def __init__(self, topic: str, registry: SchemaRegistry | None) -> None:
        self._topic = topic
        self._decoder = DebeziumDecoder(registry=registry)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        """Return the rows of changes, images before updates included.

        Raises:
            SourceRefused: the table was emptied, which no row says.
        """
        tables, kinds, names = [], [], set()
        for event in self._decoder.decode([(self._topic, key, value) for key, value in zip(keys, values, strict=True)]):
            if isinstance(event, TableTruncated):
                raise SourceRefused(
                    f"{event.name} was emptied by a TRUNCATE in its database, and no message names its rows"
                )
            if isinstance(event, RowChanges):
                if event.sent is not None and event.sent.null_count < len(event.sent):
                    raise SourceRefused(
                        f"{event.name}: a large value that did not change is missing in a message: set the replica identity of the table "
                        "to full, or follow it by `lakefmt cdc`"
                    )
                names.add(event.name)
                tables.append(event.rows)
                kinds.append(event.kinds.to_numpy(zero_copy_only=False).astype(np.int8))
        if len(names) > 1:
            raise SourceRefused(f"the topic has changes of several tables: {', '.join(sorted(map(str, names)))}")
        rejected = [(message.place, message.reason) for message in self._decoder.take_rejected()]
        table, _ = merge_parts(tables, [np.zeros(part.num_rows, np.int64) for part in tables])
        # An update has two rows and a heartbeat none: which message a row came from is not told.
        return Decoded(
            table,
            np.full(table.num_rows, -1, np.int64),
            np.concatenate(kinds) if kinds else np.empty(0, np.int8),
            tuple(rejected),
        )


def columns_of_keys(keys: Sequence[bytes], column: str) -> pa.Table:
    """Return the columns of keys whose messages have no value: an object's fields, or the key itself as text.

    Raises:
        InvalidInputError: a key is neither, or is text and no column is named for it.
    """
    if not column:
        try:
            return _typed(_parse_objects(keys, pa.schema([])))
        except (pa.ArrowException, ValueError):
            raise InvalidInputError(
                "a key is no JSON object: lakefmt.ingest.kafka.key.column names its column"
            ) from None
    return pa.table({column: pa.array(keys, pa.binary()).cast(pa.string())})


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
