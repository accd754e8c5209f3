"""Records of the metadata table: their Avro schema in each table version, encoded and decoded. Pure.

All partitions share one schema, HoodieMetadataRecord; which of its fields is filled says the record's type. The field
``key`` is empty in every record: the key in the HFile is the only copy. Values are encoded one by one; where many keys
share a value, as in the record index, it is encoded once (docs/format.md, Metadata table).
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, InternalError
from lakefmt.formats.avro.reader import Decode, compile_decoder
from lakefmt.formats.avro.writer import Encode, compile_encoder
from lakefmt.metadata.record_schema import WRAPPERS, RecordFormat, record_schema
from lakefmt.schema.avro_tree import MalformedAvro, parse_avro_schema
from lakefmt.values import TableVersion

__all__ = [
    "BloomFilterRecord",
    "ColumnStats",
    "FileInfo",
    "MetadataRecord",
    "PartitionUpdate",
    "RecordLocation",
    "RecordType",
    "decode_record",
    "encode_record",
    "record_index_values",
    "repeat_value",
    "update_of",
]


class RecordType(enum.IntEnum):
    """What a record holds."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


# -------------------------------------------------------------------------------------------------------------- codec


def _with_named_values(node: object) -> object:
    """Return a schema in which the field of every wrapper record has the record's name.

    The bytes are the same; a decoded value then says which wrapper it came from, and an encoded one which it goes to.
    """
    if isinstance(node, list):
        return [_with_named_values(value) for value in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("name", "")).rpartition(".")[2]
    if node.get("type") == "record" and name in _WRAPPER_NAMES:
        fields = [{**field, "name": name} for field in cast("list[dict[str, object]]", node["fields"])]
        return {**node, "fields": fields}
    return {key: _with_named_values(value) for key, value in node.items()}


_WRAPPER_NAMES = frozenset(name for name, _ in WRAPPERS)


@lru_cache(maxsize=64)
def _decoder(schema: str) -> Decode:
    try:
        stored = parse_avro_schema(json.dumps(_with_named_values(json.loads(schema))))
        wanted = parse_avro_schema(json.dumps(_with_named_values(json.loads(record_schema(TableVersion.NINE)))))
        return compile_decoder(stored, wanted)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"the schema of a metadata record is damaged: {error!r:.200}") from None


@lru_cache(maxsize=8)
def _encoder(version: TableVersion) -> Encode:
    return compile_encoder(parse_avro_schema(json.dumps(_with_named_values(json.loads(record_schema(version))))))


# -------------------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a data partition as the metadata table lists it. ``size`` in bytes, 0 for a removed one."""

    size: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class BloomFilterRecord:
    """The bloom filter of a base file.

    Attributes:
        type_code: ``SIMPLE`` or ``DYNAMIC_V0``.
        timestamp: the instant of the file.
        content: the Base64 text of the file's footer as ASCII bytes.
        is_deleted: the file is gone.
    """

    type_code: str
    timestamp: str
    content: bytes
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What values of a column a file or a data partition has.

    Attributes:
        file_name: the file's name without directory, or the data partition's path.
        column: the column's name, with dots when it is nested.
        wrapper: the record type that holds the smallest and the largest value, such as ``IntWrapper``; None without any.
        minimum: the smallest value as it is stored: bool, int, float, str or bytes.
        maximum: the largest one.
        value_count: rows, those with null included.
        null_count: rows with null.
        total_size: compressed bytes.
        total_uncompressed_size: bytes before compression.
        is_deleted: the file is gone.
        is_tight: the ends are values of live rows; otherwise they may be wider.
        value_type: number and details of the column's type, in version 9.
    """

    file_name: str
    column: str
    wrapper: str | None
    minimum: object
    maximum: object
    value_count: int
    null_count: int
    total_size: int = 0
    total_uncompressed_size: int = 0
    is_deleted: bool = False
    is_tight: bool = False
    value_type: tuple[int, str | None] | None = None


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """Where a record key is stored.

    Attributes:
        partition: the data partition's path.
        file_id: the file group.
        instant_millis: the instant that put it there, in milliseconds since 1970; -1 when nothing says so.
    """

    partition: str
    file_id: str
    instant_millis: int


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of the metadata table; one of the optional fields is filled, as `type` says.

    Attributes:
        type: what the record holds, a value of :class:`RecordType`.
        files: by file name, or by data partition for :attr:`RecordType.ALL_PARTITIONS`.
        secondary_deleted: whether an entry of a secondary index is gone.
    """

    type: int
    files: Mapping[str, FileInfo] | None = None
    bloom_filter: BloomFilterRecord | None = None
    column_stats: ColumnStats | None = None
    location: RecordLocation | None = None
    secondary_deleted: bool | None = None


# ------------------------------------------------------------------------------------------------------------ encoding

_EMPTY: Mapping[str, object] = {"key": "", "filesystemMetadata": None}


def encode_record(record: MetadataRecord, version: TableVersion) -> bytes:
    """Return a record's bytes.

    Parameters:
        record: the record.
        version: the table version.

    Raises:
        InternalError: a value does not fit the schema.

    Example:
        >>> encode_record(MetadataRecord(RecordType.ALL_PARTITIONS, files={}), TableVersion.EIGHT).hex()
        '00000000000002020000000000'
    """
    values: dict[str, object] = {**_EMPTY, "type": int(record.type)}
    if record.files is not None:
        values["filesystemMetadata"] = {
            name: {"size": info.size, "isDeleted": info.is_deleted} for name, info in record.files.items()
        }
    if record.bloom_filter is not None:
        bloom = record.bloom_filter
        values["BloomFilterMetadata"] = {
            "type": bloom.type_code,
            "timestamp": bloom.timestamp,
            "bloomFilter": bloom.content,
            "isDeleted": bloom.is_deleted,
        }
    if record.column_stats is not None:
        values["ColumnStatsMetadata"] = _stats_values(record.column_stats, version)
    if record.location is not None:
        values["recordIndexMetadata"] = _location_values(record.location)
    if record.secondary_deleted is not None:
        values["SecondaryIndexMetadata"] = {"isDeleted": record.secondary_deleted}
    parts: list[bytes] = []
    try:
        _encoder(version)(parts.append, values)
    except MalformedAvro as error:
        raise InternalError(f"a metadata record cannot be encoded: {error}") from None
    return b"".join(parts)


def _stats_values(stats: ColumnStats, version: TableVersion) -> dict[str, object]:
    values: dict[str, object] = {
        "fileName": stats.file_name,
        "columnName": stats.column,
        "minValue": None if stats.wrapper is None or stats.minimum is None else {stats.wrapper: stats.minimum},
        "maxValue": None if stats.wrapper is None or stats.maximum is None else {stats.wrapper: stats.maximum},
        "valueCount": stats.value_count,
        "nullCount": stats.null_count,
        "totalSize": stats.total_size,
        "totalUncompressedSize": stats.total_uncompressed_size,
        "isDeleted": stats.is_deleted,
    }
    if version is not TableVersion.SIX:
        values["isTightBound"] = stats.is_tight
    if version is TableVersion.NINE and stats.value_type is not None:
        values["valueType"] = {"typeOrdinal": stats.value_type[0], "additionalInfo": stats.value_type[1]}
    return values


#: How a file id is stored: as the two halves of its UUID, or as text.
_UUID_ENCODING, _TEXT_ENCODING = 0, 1
_UUID_LENGTH = 36
_SIGN = 1 << 63


def _signed(bits: int) -> int:
    return (bits ^ _SIGN) - _SIGN


def _location_values(location: RecordLocation) -> dict[str, object]:
    values: dict[str, object] = {"partitionName": location.partition, "instantTime": location.instant_millis}
    halves = _uuid_and_index(location.file_id)
    if halves is None:
        return {
            **values,
            "fileIdHighBits": -1,
            "fileIdLowBits": -1,
            "fileIndex": -1,
            "fileId": location.file_id,
            "fileIdEncoding": _TEXT_ENCODING,
        }
    number, index = halves
    return {
        **values,
        "fileIdHighBits": _signed(number >> 64),
        "fileIdLowBits": _signed(number & ((1 << 64) - 1)),
        "fileIndex": index,
        "fileId": "",
        "fileIdEncoding": _UUID_ENCODING,
    }


def _uuid_and_index(file_id: str) -> tuple[int, int] | None:
    """Return the UUID of a file id as a number and what follows it; None when the id is of another form."""
    text, rest = file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH:]
    try:
        number = uuid.UUID(text)
    except ValueError:
        return None
    if str(number) != text or (rest and not (rest[0] == "-" and rest[1:].isascii() and rest[1:].isdigit())):
        return None
    index = int(rest[1:]) if rest else -1
    # The id must come back as it was: no leading zeros, no number that Java's int does not hold.
    return (number.int, index) if index < 1 << 31 and (not rest or str(index) == rest[1:]) else None


def record_index_values(locations: Iterable[RecordLocation], form: RecordFormat) -> pa.BinaryArray:
    """Return the values of a record index for locations: many keys share one, so each is encoded once.

    Parameters:
        locations: distinct places; values of keys are taken from the result by their numbers.
        form: how records are written.

    Example:
        >>> place = RecordLocation("us", "68aaee55-008d-4f10-a3a4-83dcb5910069-0", 1772922274124)
        >>> form = RecordFormat.of_new_table(TableVersion.EIGHT)
        >>> values = record_index_values([place], form)
        >>> decode_record(values[0].as_py(), form.schema).location == place
        True
    """
    records = (MetadataRecord(RecordType.RECORD_INDEX, location=location) for location in locations)
    return pa.array([encode_record(record, form.schema_version) for record in records], pa.binary())


# ------------------------------------------------------------------------------------------------------------ decoding


def decode_record(data: bytes, schema: str, what: str = "a metadata record") -> MetadataRecord:
    """Return a record from its bytes.

    Parameters:
        data: the bytes of the value in the HFile.
        schema: the schema found in that file, as JSON text.
        what: how the place is named in errors.

    Raises:
        CorruptFile: the bytes are no such record.
    """
    try:
        decoded, end = _decoder(schema)(data, 0)
    except (ValueError, IndexError, OverflowError, RecursionError, MemoryError) as error:
        raise CorruptFile(f"{what} is damaged: {error!r:.200}") from None
    if end != len(data):
        raise CorruptFile(f"{what} is damaged: {len(data) - end} bytes behind its end")
    values = cast("dict[str, Any]", decoded)
    files = values["filesystemMetadata"]
    return MetadataRecord(
        values["type"],
        None if files is None else {name: FileInfo(info["size"], info["isDeleted"]) for name, info in files.items()},
        _bloom_filter(values["BloomFilterMetadata"]),
        _read_stats(values["ColumnStatsMetadata"], what),
        _read_location(values["recordIndexMetadata"]),
        None if values["SecondaryIndexMetadata"] is None else values["SecondaryIndexMetadata"]["isDeleted"],
    )


def _bloom_filter(values: Mapping[str, Any] | None) -> BloomFilterRecord | None:
    if values is None:
        return None
    return BloomFilterRecord(values["type"], values["timestamp"], values["bloomFilter"], values["isDeleted"])


def _read_stats(values: Mapping[str, Any] | None, what: str) -> ColumnStats | None:
    if values is None:
        return None
    ends = [_unwrapped(values[name]) for name in ("minValue", "maxValue")]
    wrappers = {wrapper for wrapper, _ in ends if wrapper is not None}
    if len(wrappers) > 1:
        raise CorruptFile(f"{what} is damaged: its smallest and largest value are of different types")
    kind = values["valueType"]
    return ColumnStats(
        values["fileName"] or "",
        values["columnName"] or "",
        next(iter(wrappers), None),
        ends[0][1],
        ends[1][1],
        values["valueCount"] or 0,
        values["nullCount"] or 0,
        values["totalSize"] or 0,
        values["totalUncompressedSize"] or 0,
        values["isDeleted"],
        values["isTightBound"],
        None if kind is None else (kind["typeOrdinal"], kind["additionalInfo"]),
    )


def _unwrapped(value: Mapping[str, Any] | None) -> tuple[str | None, object]:
    if value is None:
        return None, None
    ((wrapper, inner),) = value.items()
    # Arrays are ranges of tuples, which no lakefmt index uses: nothing is known then.
    return (None, None) if wrapper == "wrappedValues" else (wrapper, inner)


def _read_location(values: Mapping[str, Any] | None) -> RecordLocation | None:
    if values is None:
        return None
    millis = -1 if values["instantTime"] is None else values["instantTime"]
    if values["fileIdEncoding"] != _UUID_ENCODING:
        return RecordLocation(values["partitionName"] or "", values["fileId"] or "", millis)
    bits = (values["fileIdHighBits"] or 0) % (1 << 64) << 64 | (values["fileIdLowBits"] or 0) % (1 << 64)
    file_id = str(uuid.UUID(int=bits))
    index = values["fileIndex"]
    return RecordLocation(
        values["partitionName"] or "", file_id if index is None or index < 0 else f"{file_id}-{index}", millis
    )


# ------------------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """What a commit writes to one partition of the metadata table.

    Attributes:
        partition: the metadata table's partition.
        keys: keys of records, an array of strings.
        values: their encoded records, an array of bytes, as long.
        deleted: keys that are removed, an array of strings.
        routing: texts whose hash chooses the file group, for `keys` and then for `deleted`; None: the keys themselves.
        data_partitions: the data partition of every key, and then of every deleted one, in a partitioned record index.
    """

    partition: str
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    routing: pa.Array | None = None
    data_partitions: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.keys) + len(self.deleted)


def update_of(
    partition: str, records: Mapping[str, MetadataRecord], form: RecordFormat, deleted: Iterable[str] = ()
) -> PartitionUpdate:
    """Return the update of a partition whose records are few: one per file, column or data partition.

    Parameters:
        partition: the metadata table's partition.
        records: by key.
        form: how records are written.
        deleted: keys that are removed.
    """
    return PartitionUpdate(
        partition,
        pa.array(list(records), pa.string()),
        pa.array([encode_record(record, form.schema_version) for record in records.values()], pa.binary()),
        pa.array(list(deleted), pa.string()),
    )


def repeat_value(value: bytes, count: int) -> pa.BinaryArray:
    """Return an array with `count` times the same bytes."""
    return pa.array([value], pa.binary()).take(from_numpy(np.zeros(count, np.int64)))
