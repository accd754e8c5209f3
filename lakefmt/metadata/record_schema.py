"""The Avro schema of the metadata table's records in each table version. Pure.

All partitions share one schema, HoodieMetadataRecord. Later releases added fields at the ends of records and branches at
the ends of unions, so records of two releases differ in their bytes (docs/format.md, Metadata table).
"""

from __future__ import annotations

import json
from functools import lru_cache

from lakefmt.data_classes import dataclass
from lakefmt.values import META_COLUMNS, TableVersion

__all__ = ["DECIMAL_ORDINAL", "WRAPPERS", "RecordFormat", "record_schema", "same_layout"]

_NAMESPACE = "org.apache.hudi.avro.model"
#: Releases before 1.2 cannot read texts whose schema does not name Java's class for them.
_JAVA = "String"
_TEXT: object = {"type": "string", "avro.java.string": _JAVA}

#: The records that hold a smallest or largest value, in the order of the union's branches behind null.
WRAPPERS: tuple[tuple[str, object], ...] = (
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", _TEXT),
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


def _nullable(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _record(name: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _plain(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind}


def _column_stats(version: TableVersion) -> dict[str, object]:
    wrappers = WRAPPERS[:_NUMWRAPPERS_V6] if version is TableVersion.SIX else WRAPPERS
    names: list[object] = ["null", *(name for name, _ in wrappers)]
    first: list[object] = ["null", *(_record(name, _plain("value", kind)) for name, kind in wrappers)]
    if version is TableVersion.NINE:
        first.append(_record("ArrayWrapper", _nullable("wrappedValues", {"type": "array", "items": list(names)})))
        names.append("ArrayWrapper")
    fields: list[dict[str, object]] = [
        _nullable("fileName", _TEXT),
        _nullable("columnName", _TEXT),
        {"name": "minValue", "type": first, "default": None},
        {"name": "maxValue", "type": names, "default": None},
        *(_nullable(name, "long") for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")),
        _plain("isDeleted", "boolean"),
    ]
    if version is not TableVersion.SIX:
        fields.append({"name": "isTightBound", "type": "boolean", "default": False})
    if version is TableVersion.NINE:
        kind = _record("HoodieValueTypeInfo", _plain("typeOrdinal", "int"), _nullable("additionalInfo", _TEXT))
        fields.append(_nullable("valueType", kind))
    return _record("HoodieMetadataColumnStats", *fields)


def _record_index(version: TableVersion) -> dict[str, object]:
    fields: list[dict[str, object]] = [
        _nullable("partitionName", _TEXT),
        _nullable("fileIdHighBits", "long"),
        _nullable("fileIdLowBits", "long"),
        _nullable("fileIndex", "int"),
        _nullable("fileId", _TEXT),
        _nullable("instantTime", "long"),
        {"name": "fileIdEncoding", "type": "int", "default": 0},
    ]
    if version is not TableVersion.SIX:
        fields.append(_nullable("position", "long"))
    return _record("HoodieRecordIndexInfo", *fields)


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
    file_info = _record("HoodieMetadataFileInfo", _plain("size", "long"), _plain("isDeleted", "boolean"))
    bloom = _record(
        "HoodieMetadataBloomFilter",
        _plain("type", _TEXT),
        _plain("timestamp", _TEXT),
        _plain("bloomFilter", "bytes"),
        _plain("isDeleted", "boolean"),
    )
    fields: list[dict[str, object]] = [
        *(_nullable(name, "string") for name in META_COLUMNS if meta_columns),
        _plain("key", _TEXT),
        _plain("type", "int"),
        _plain("filesystemMetadata", ["null", {"type": "map", "values": file_info, "avro.java.string": _JAVA}]),
        _nullable("BloomFilterMetadata", bloom),
        _nullable("ColumnStatsMetadata", _column_stats(version)),
        _nullable("recordIndexMetadata", _record_index(version)),
    ]
    if version is not TableVersion.SIX:
        deleted = _record("HoodieSecondaryIndexInfo", _plain("isDeleted", "boolean"))
        fields.append(_nullable("SecondaryIndexMetadata", deleted))
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
