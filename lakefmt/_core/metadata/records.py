"""Records of the metadata table: their Avro schema in each table version, encoded and decoded, and the rules that merge them. Pure.

All partitions share one schema, HoodieMetadataRecord; which of its fields is filled says the record's type. Later releases added
fields at the ends of records and branches at the ends of unions, so records of two releases differ in their bytes. The field
``key`` is empty in every record: the key in the HFile is the only copy. Values are encoded one by one; where many keys
share a value, as in the record index, it is encoded once (docs/format.md, Metadata table).

Which of two records of one key is shown is one rule per partition. Log records are merged onto a base file's by these rules, oldest
first (:func:`combine_records`).
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.values import Decode, Encode, compile_decoder, compile_encoder
from lakefmt._core.schema.avro import MalformedAvro, parse_avro_schema
from lakefmt._core.values import META_COLUMNS, TableVersion
from lakefmt.errors import CorruptFile, InternalError

__all__ = [
    "DECIMAL_ORDINAL",
    "WRAPPERS",
    "BloomFilterRecord",
    "ColumnStats",
    "FileInfo",
    "MetadataRecord",
    "PartitionUpdate",
    "RecordFormat",
    "RecordLocation",
    "RecordType",
    "combine_files",
    "combine_log_records",
    "combine_records",
    "decode_record",
    "encode_record",
    "is_replacing",
    "record_index_values",
    "record_schema",
    "repeat_value",
    "same_layout",
    "update_of",
]

# --------------------------------------------------------------------------------------------------------------- schema

_NAMESPACE = "org.apache.hudi.avro.model"
#: Releases before 1.2 cannot read texts whose schema does not name Java's class for them.
_JAVA_STRING = "String"
_JAVA_TEXT: object = {"type": "string", "avro.java.string": _JAVA_STRING}

#: The records that hold a smallest or largest value, in the order of the union's branches behind null.
WRAPPERS: tuple[tuple[str, object], ...] = (
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", _JAVA_TEXT),
    ("DateWrapper", "int"),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
    ("LocalDateWrapper", "int"),
)
#: The number of the decimal type in statistics of version 9.
DECIMAL_ORDINAL = 10
#: Version 6 has no LocalDateWrapper.
_NUMWRAPPERS_V6 = 11


def _nullable_field(name: str, avro_type: object) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _record_type(name: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _plain_field(name: str, avro_type: object) -> dict[str, object]:
    return {"name": name, "type": avro_type}


def _column_stats_type(version: TableVersion) -> dict[str, object]:
    wrappers = WRAPPERS[:_NUMWRAPPERS_V6] if version is TableVersion.SIX else WRAPPERS
    names: list[object] = ["null", *(name for name, _ in wrappers)]
    first: list[object] = [
        "null",
        *(_record_type(name, _plain_field("value", avro_type)) for name, avro_type in wrappers),
    ]
    if version is TableVersion.NINE:
        first.append(
            _record_type("ArrayWrapper", _nullable_field("wrappedValues", {"type": "array", "items": list(names)}))
        )
        names.append("ArrayWrapper")
    fields: list[dict[str, object]] = [
        _nullable_field("fileName", _JAVA_TEXT),
        _nullable_field("columnName", _JAVA_TEXT),
        {"name": "minValue", "type": first, "default": None},
        {"name": "maxValue", "type": names, "default": None},
        *(_nullable_field(name, "long") for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")),
        _plain_field("isDeleted", "boolean"),
    ]
    if version is not TableVersion.SIX:
        fields.append({"name": "isTightBound", "type": "boolean", "default": False})
    if version is TableVersion.NINE:
        avro_type = _record_type(
            "HoodieValueTypeInfo", _plain_field("typeOrdinal", "int"), _nullable_field("additionalInfo", _JAVA_TEXT)
        )
        fields.append(_nullable_field("valueType", avro_type))
    return _record_type("HoodieMetadataColumnStats", *fields)


def _record_index_type(version: TableVersion) -> dict[str, object]:
    fields: list[dict[str, object]] = [
        _nullable_field("partitionName", _JAVA_TEXT),
        _nullable_field("fileIdHighBits", "long"),
        _nullable_field("fileIdLowBits", "long"),
        _nullable_field("fileIndex", "int"),
        _nullable_field("fileId", _JAVA_TEXT),
        _nullable_field("instantTime", "long"),
        {"name": "fileIdEncoding", "type": "int", "default": 0},
    ]
    if version is not TableVersion.SIX:
        fields.append(_nullable_field("position", "long"))
    return _record_type("HoodieRecordIndexInfo", *fields)


@lru_cache(maxsize=8)
def record_schema(version: TableVersion, *, meta_columns: bool = True) -> str:
    """Return the schema of the metadata table's records as JSON text, without descriptions.

    Parameters:
        version: the table version.
        meta_columns: with the five meta columns, as records are stored; without them, as commits name the schema.

    Example:
        >>> [len(json.loads(record_schema(version))["fields"]) for version in TableVersion]
        [11, 12, 12]
    """
    file_info = _record_type(
        "HoodieMetadataFileInfo", _plain_field("size", "long"), _plain_field("isDeleted", "boolean")
    )
    bloom = _record_type(
        "HoodieMetadataBloomFilter",
        _plain_field("type", _JAVA_TEXT),
        _plain_field("timestamp", _JAVA_TEXT),
        _plain_field("bloomFilter", "bytes"),
        _plain_field("isDeleted", "boolean"),
    )
    fields: list[dict[str, object]] = [
        *(_nullable_field(name, "string") for name in META_COLUMNS if meta_columns),
        _plain_field("key", _JAVA_TEXT),
        _plain_field("type", "int"),
        _plain_field(
            "filesystemMetadata", ["null", {"type": "map", "values": file_info, "avro.java.string": _JAVA_STRING}]
        ),
        _nullable_field("BloomFilterMetadata", bloom),
        _nullable_field("ColumnStatsMetadata", _column_stats_type(version)),
        _nullable_field("recordIndexMetadata", _record_index_type(version)),
    ]
    if version is not TableVersion.SIX:
        deleted = _record_type("HoodieSecondaryIndexInfo", _plain_field("isDeleted", "boolean"))
        fields.append(_nullable_field("SecondaryIndexMetadata", deleted))
    schema = {"type": "record", "name": "HoodieMetadataRecord", "namespace": _NAMESPACE, "fields": fields}
    return json.dumps(schema, separators=(",", ":"))


def _without_descriptions(node: object) -> object:
    if isinstance(node, dict):
        return {key: _without_descriptions(value) for key, value in node.items() if key != "doc"}
    return [_without_descriptions(value) for value in node] if isinstance(node, list) else node


@lru_cache(maxsize=64)
def same_layout(schema: str, version: TableVersion) -> bool:
    """Return whether records of a stored schema are, byte for byte, those of a table version.

    Parameters:
        schema: the schema found in a file, as JSON text.
        version: the table version.
    """
    try:
        return bool(_without_descriptions(json.loads(schema)) == json.loads(record_schema(version)))
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How records of a metadata table are written.

    Attributes:
        version: the table version.
        schema_version: the table version whose record schema the files have. Releases from 1.1 on write that of version 9
            into tables of version 8, too; hudi-rs reads no file slice in which two schemas meet.
    """

    version: TableVersion
    schema_version: TableVersion

    @classmethod
    def of_new_table(cls, version: TableVersion) -> RecordFormat:
        """Return the format of a metadata table that is made."""
        return cls(version, TableVersion.SIX if version is TableVersion.SIX else TableVersion.NINE)

    @classmethod
    def of_schema(cls, version: TableVersion, schema: str) -> RecordFormat:
        """Return the format of a metadata table whose files have a schema.

        Parameters:
            version: the table version.
            schema: the schema found in a file, as JSON text.
        """
        is_old = version is TableVersion.EIGHT and same_layout(schema, TableVersion.EIGHT)
        return cls(version, TableVersion.EIGHT) if is_old else cls.of_new_table(version)

    @property
    def schema(self) -> str:
        """The schema of stored records, as JSON text."""
        return record_schema(self.schema_version)

    @property
    def commit_schema(self) -> str:
        """The schema as commits name it."""
        return record_schema(self.schema_version, meta_columns=False)


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
def _record_decoder(schema: str) -> Decode:
    try:
        stored = parse_avro_schema(json.dumps(_with_named_values(json.loads(schema))))
        reader_schema = parse_avro_schema(json.dumps(_with_named_values(json.loads(record_schema(TableVersion.NINE)))))
        return compile_decoder(stored, reader_schema)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"the schema of a metadata record is damaged: {error!r:.200}") from None


@lru_cache(maxsize=8)
def _record_encoder(version: TableVersion) -> Encode:
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

_EMPTY_RECORD: Mapping[str, object] = {"key": "", "filesystemMetadata": None}


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
    values: dict[str, object] = {**_EMPTY_RECORD, "type": int(record.type)}
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
        _record_encoder(version)(parts.append, values)
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
    uuid_text, rest = file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH:]
    try:
        number = uuid.UUID(uuid_text)
    except ValueError:
        return None
    if str(number) != uuid_text or (rest and not (rest[0] == "-" and rest[1:].isascii() and rest[1:].isdigit())):
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
        decoded, end = _record_decoder(schema)(data, 0)
    except (ValueError, IndexError, OverflowError, RecursionError, MemoryError) as error:
        raise CorruptFile(f"{what} is damaged: {error!r:.200}") from None
    if end != len(data):
        raise CorruptFile(f"{what} is damaged: {len(data) - end} bytes behind its end")
    values = cast("dict[str, Any]", decoded)
    files = values["filesystemMetadata"]
    return MetadataRecord(
        values["type"],
        None if files is None else {name: FileInfo(info["size"], info["isDeleted"]) for name, info in files.items()},
        _read_bloom_filter(values["BloomFilterMetadata"]),
        _read_stats(values["ColumnStatsMetadata"], what),
        _read_location(values["recordIndexMetadata"]),
        None if values["SecondaryIndexMetadata"] is None else values["SecondaryIndexMetadata"]["isDeleted"],
    )


def _read_bloom_filter(values: Mapping[str, Any] | None) -> BloomFilterRecord | None:
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
    value_type = values["valueType"]
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
        None if value_type is None else (value_type["typeOrdinal"], value_type["additionalInfo"]),
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


# -------------------------------------------------------------------------------------------------------------- merging

_FILE_LISTS = frozenset({RecordType.ALL_PARTITIONS, RecordType.FILES})
_STATISTICS_TYPES = frozenset({RecordType.COLUMN_STATS, RecordType.PARTITION_STATS})


def combine_records(older: MetadataRecord, newer: MetadataRecord) -> MetadataRecord:
    """Return what two records of one key say together.

    Parameters:
        older: the record that was written first.
        newer: the record that was written after it.

    Example:
        >>> first = MetadataRecord(RecordType.FILES, files={"a": FileInfo(5), "b": FileInfo(7)})
        >>> second = MetadataRecord(RecordType.FILES, files={"b": FileInfo(0, True), "c": FileInfo(9)})
        >>> sorted(combine_records(first, second).files)
        ['a', 'c']
    """
    if newer.type in _FILE_LISTS:
        return MetadataRecord(newer.type, files=combine_files(older.files or {}, newer.files or {}))
    if newer.type in _STATISTICS_TYPES and older.column_stats is not None and newer.column_stats is not None:
        return MetadataRecord(newer.type, column_stats=_combine_stats(older.column_stats, newer.column_stats))
    return newer


def combine_log_records(older: MetadataRecord, newer: MetadataRecord) -> MetadataRecord:
    """Return what two log records of one key say together, to be merged onto a base file's record later.

    A removal stays: the base file may list the same file.

    Parameters:
        older: the record that was written first.
        newer: the record that was written after it.

    Example:
        >>> first = MetadataRecord(RecordType.FILES, files={"a": FileInfo(5)})
        >>> second = MetadataRecord(RecordType.FILES, files={"a": FileInfo(0, True)})
        >>> combine_log_records(first, second).files
        {'a': FileInfo(size=0, is_deleted=True)}
    """
    if newer.type in _FILE_LISTS:
        files = combine_files(older.files or {}, newer.files or {}, keep_removals=True)
        return MetadataRecord(newer.type, files=files)
    return combine_records(older, newer)


def is_replacing(record: MetadataRecord) -> bool:
    """Return whether a record takes the place of every older one of its key: statistics that are tight, or of what is gone."""
    stats = record.column_stats
    return stats is not None and (stats.is_tight or stats.is_deleted)


def combine_files(
    older: Mapping[str, FileInfo], newer: Mapping[str, FileInfo], *, keep_removals: bool = False
) -> dict[str, FileInfo]:
    """Return two lists of files as one: a removal takes an entry away, and stays where it finds none.

    Parameters:
        older: the list that was written first.
        newer: the list that was written after it.
        keep_removals: a removal also stays where it takes an entry away.
    """
    files = dict(older)
    for name, info in newer.items():
        stored = files.get(name)
        if stored is None:
            files[name] = info
        elif not info.is_deleted:
            files[name] = FileInfo(max(stored.size, info.size))
        elif keep_removals:
            files[name] = info
        elif not stored.is_deleted:
            del files[name]
    return files


def _combine_stats(older: ColumnStats, newer: ColumnStats) -> ColumnStats:
    """Return the wider range of two; a tight or deleted record replaces what was there."""
    if older.is_deleted or newer.is_deleted or newer.is_tight:
        return newer
    if older.wrapper != newer.wrapper and older.wrapper is not None and newer.wrapper is not None:
        return newer  # the column's type was changed
    wrapper = newer.wrapper or older.wrapper
    lows = [end for end in (older.minimum, newer.minimum) if end is not None]
    highs = [end for end in (older.maximum, newer.maximum) if end is not None]
    return ColumnStats(
        newer.file_name,
        newer.column,
        wrapper,
        min(lows, key=_order_of_ends(older, newer), default=None),
        max(highs, key=_order_of_ends(older, newer), default=None),
        older.value_count + newer.value_count,
        older.null_count + newer.null_count,
        older.total_size + newer.total_size,
        older.total_uncompressed_size + newer.total_uncompressed_size,
        is_tight=False,
        value_type=newer.value_type or older.value_type,
    )


def _order_of_ends(older: ColumnStats, newer: ColumnStats) -> Callable[[Any], Any]:
    """Return by what ends are compared: decimals are stored as the bytes of a number."""
    value_type = newer.value_type or older.value_type
    wrapper = newer.wrapper or older.wrapper
    if wrapper == "DecimalWrapper" or (value_type is not None and value_type[0] == DECIMAL_ORDINAL):
        return lambda end: int.from_bytes(end, "big", signed=True)
    return lambda end: end
