"""Options of Spark's readers and writers as arguments of lakefmt's own calls (pure).

The names are Hudi's, from its configuration page for Spark data sources. What configures Spark itself is accepted and
does nothing; what would break a promise is refused; all other settings go to the table's call, which knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from lakefmt.config.settings import SETTINGS
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = ["SPARK_OPTIONS", "ReadCall", "WriteCall", "options_markdown", "parse_read_options", "parse_write_options"]

#: Of what Hudi's Spark data source knows and a table of lakefmt does not: what happens to each option.
SPARK_OPTIONS: Final[dict[str, tuple[str, str]]] = {
    "hoodie.datasource.write.partitions.to.delete": ("honoured", "the partitions of the operation `delete_partition`"),
    "hoodie.datasource.write.commitmeta.key.prefix": (
        "honoured",
        "options that begin so go into the commit; default `_`",
    ),
    "hoodie.datasource.query.type": ("honoured", "`snapshot`, `read_optimized` or `incremental`"),
    "hoodie.datasource.query.incremental.format": ("honoured", "`latest_state` or `cdc`"),
    "hoodie.datasource.read.begin.instanttime": ("honoured", "exclusive start of an incremental query"),
    "hoodie.datasource.read.end.instanttime": ("honoured", "inclusive end of an incremental query"),
    "lakefmt.meta_columns": ("honoured", "of a read: also the five `_hoodie_*` columns; default `true`"),
    "lakefmt.spark.stage.max.bytes": ("honoured", "of a write: bytes of rows that one process may take; default 1 GiB"),
    "as.of.instant": ("honoured", "read the table as of an instant"),
    "hoodie.datasource.write.row.writer.enable": ("inert", "rows always come as Arrow batches"),
    "hoodie.datasource.write.streaming.disable.compaction": ("inert", "there is no compaction beside a batch write"),
    "hoodie.datasource.compaction.async.enable": ("inert", "compaction follows the table's own settings"),
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": ("inert", "a range that was cleaned away is an error"),
    "hoodie.datasource.overwrite.mode": ("inert", "the operation says what is overwritten"),
    "hoodie.file.listing.parallelism": ("inert", "the driver lists"),
    "hoodie.file.index.enable": ("inert", "the driver lists"),
    "hoodie.datasource.hive_sync.enable": ("refused", "lakefmt does not sync to a catalog"),
    "hoodie.datasource.meta.sync.enable": ("refused", "lakefmt does not sync to a catalog"),
    "hoodie.datasource.insert.dup.policy": ("refused", "use hoodie.datasource.write.insert.drop.duplicates"),
}
#: Names of the same option, older ones first.
_ALIASES: Final = {
    "hoodie.datasource.read.incr.operation": "hoodie.datasource.query.type",
    "hoodie.table.recordkey.fields": "hoodie.datasource.write.recordkey.field",
    "hoodie.table.partition.fields": "hoodie.datasource.write.partitionpath.field",
    "hoodie.table.precombine.field": "hoodie.datasource.write.precombine.field",
    "hoodie.table.ordering.fields": "hoodie.datasource.write.precombine.field",
    "hoodie.datasource.write.table.name": "hoodie.table.name",
}
#: Options that become properties of a table that a write creates, with what Hudi's Spark data source takes by default.
_PROPERTIES: Final = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.datasource.write.drop.partition.columns": None,
    "hoodie.populate.meta.fields": None,
    "hoodie.table.cdc.enabled": None,
    "hoodie.table.cdc.supplemental.logging.mode": None,
    "hoodie.index.type": None,
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.bucket.index.hash.field": None,
    "hoodie.index.bucket.engine": None,
}
_GENERATORS: Final = {
    "hoodie.datasource.write.keygenerator.class": "hoodie.table.keygenerator.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
_MERGE: Final = {"EVENT_TIME_ORDERING": "event_time", "COMMIT_TIME_ORDERING": "commit_time"}
_TYPES: Final = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
_OPERATIONS: Final = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partition",
)
_QUERIES: Final = ("snapshot", "read_optimized", "incremental")
_SYNC: Final = ("hoodie.datasource.hive_sync.", "hoodie.datasource.meta.sync.", "hoodie.datasource.meta_sync.")
_STORAGE: Final = "storage."
_META_COLUMNS: Final = "lakefmt.meta_columns"
#: Table properties that are no settings of a call: they go to the creation alone.
_ONLY_CREATION: Final = frozenset(
    {
        *_PROPERTIES,
        *_GENERATORS.values(),
        "hoodie.write.record.merge.mode",
        "hoodie.record.merge.mode",
        "hoodie.database.name",
    }
)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """One write of a DataFrame.

    Attributes:
        operation: Hudi's name of the operation; None: upsert, and insert where the table has no record key.
        creation: arguments of ``create_table`` but the schema; used if there is no table.
        settings: settings of the call.
        commit_metadata: texts for the commit.
        partitions: the partitions to delete.
        storage: credentials and settings of the store.
    """

    operation: str | None
    creation: Mapping[str, Any]
    settings: Mapping[str, str]
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ReadCall:
    """One read.

    Attributes:
        query: ``snapshot``, ``read_optimized``, ``incremental`` or ``cdc``.
        as_of: the instant of a time travel query.
        start: exclusive start of an incremental query.
        end: inclusive end of an incremental query.
        meta_columns: also the five ``_hoodie_*`` columns.
        settings: settings of the call.
        storage: credentials and settings of the store.
    """

    query: str
    as_of: str | None = None
    start: str = "000"
    end: str | None = None
    meta_columns: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)


def parse_write_options(options: Mapping[str, str]) -> WriteCall:
    """Return what the options of a write ask for.

    Args:
        options: names in any case of letters.

    Raises:
        UnknownSetting: an option that neither Hudi's data source nor lakefmt knows, or a value that it does not take.
        UnsupportedFeature: an option that would break a promise.

    Example:
        >>> call = parse_write_options({"hoodie.datasource.write.recordkey.field": "id,day", "hoodie.table.name": "t"})
        >>> call.creation["record_key"], call.creation["properties"]["hoodie.datasource.write.hive_style_partitioning"]
        (['id', 'day'], 'false')
    """
    given, storage = _split(options)
    prefix = given.pop("hoodie.datasource.write.commitmeta.key.prefix", "_")
    metadata = {name: given.pop(name) for name in sorted(given) if prefix and name.startswith(prefix)}
    operation = given.get("hoodie.datasource.write.operation")
    if operation is not None:
        operation = given["hoodie.datasource.write.operation"] = _choice("operation", operation, _OPERATIONS)
    partitions = given.pop("hoodie.datasource.write.partitions.to.delete", "")
    settings = _settings(given)
    return WriteCall(
        operation,
        _creation(given),
        settings,
        metadata,
        tuple(part.strip() for part in partitions.split(",") if part.strip()),
        storage,
    )


def parse_read_options(options: Mapping[str, str]) -> ReadCall:
    """Return what the options of a read ask for.

    Raises:
        UnknownSetting: an option that is not known, or a value that it does not take.
        InvalidInputError: options that contradict each other.

    Example:
        >>> parse_read_options({"hoodie.datasource.query.type": "read_optimized"}).query
        'read_optimized'
    """
    given, storage = _split(options)
    query = _choice("hoodie.datasource.query.type", given.pop("hoodie.datasource.query.type", "snapshot"), _QUERIES)
    formats = ("latest_state", "cdc")
    shape = given.pop("hoodie.datasource.query.incremental.format", "latest_state")
    shape = _choice("hoodie.datasource.query.incremental.format", shape, formats)
    as_of = given.pop("as.of.instant", None)
    start = given.pop("hoodie.datasource.read.begin.instanttime", None)
    end = given.pop("hoodie.datasource.read.end.instanttime", None)
    shown = _choice(_META_COLUMNS, given.pop(_META_COLUMNS, "true"), ("true", "false"))
    if query != "incremental" and (start or end):
        raise InvalidInputError(
            "hoodie.datasource.read.begin.instanttime and end need hoodie.datasource.query.type=incremental"
        )
    if query == "incremental" and as_of:
        raise InvalidInputError("as.of.instant and an incremental query do not go together: name an end instead")
    if query == "incremental" and shape == "cdc":
        query = "cdc"
    return ReadCall(query, as_of, _start(start), end, shown == "true", _settings(given), storage)


def options_markdown() -> str:
    """Return the table of docs/spark.md: the options that the settings of a table do not have."""
    rows = [f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in sorted(SPARK_OPTIONS.items())]
    return "\n".join(["| option | | meaning |", "|---|---|---|", *rows])


def _start(text: str | None) -> str:
    return "000" if text is None or text.lower() == "earliest" else text


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the options under their present names, and those of the store."""
    given: dict[str, str] = {}
    storage: dict[str, object] = {}
    for written, value in options.items():
        name = written.lower()
        if name.startswith(_STORAGE):
            storage[written[len(_STORAGE) :]] = value
        elif name not in ("path", "paths"):
            name = _ALIASES.get(name, name)
            if given.get(name, value) != value:
                raise InvalidInputError(f"the option {name} is given twice, with two values")
            given[name] = value
    return given, storage


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise UnknownSetting(f"{name} does not take {value!r}: expected {', '.join(choices)}")
    return value.lower()


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are settings of a call of the table."""
    settings: dict[str, str] = {}
    for name, value in given.items():
        kind, why = SPARK_OPTIONS.get(name, ("", ""))
        if name.startswith(_SYNC):
            kind, why = "refused" if name.endswith(".enable") else "inert", "lakefmt does not sync to a catalog"
        if kind == "refused" and value.lower() not in ("false", "none"):
            raise UnsupportedFeature(f"{name}={value} is not supported: {why}")
        if kind:
            continue
        if name in SETTINGS:
            settings[name] = value
        elif not (name in _ONLY_CREATION or name.startswith("hoodie.keygen.timebased.")):
            near = get_close_matches(name, [*SETTINGS, *SPARK_OPTIONS], 1)
            raise UnknownSetting(f"unknown option {name!r}{f': did you mean {near[0]!r}?' if near else ''}")
    return settings


def _creation(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``create_table`` for a table that the write creates, with the defaults of Hudi's data source."""
    properties = {name: given.get(name, default) for name, default in _PROPERTIES.items()}
    properties |= {kept: given.get(name) for name, kept in _GENERATORS.items()}
    properties |= {name: value for name, value in given.items() if name.startswith("hoodie.keygen.timebased.")}
    merge = given.get("hoodie.write.record.merge.mode") or given.get("hoodie.record.merge.mode")
    kind = given.get("hoodie.datasource.write.table.type", "COPY_ON_WRITE").upper()
    version = given.get("hoodie.write.table.version", "8")
    if kind not in _TYPES:
        raise UnknownSetting(f"hoodie.datasource.write.table.type does not take {kind!r}: expected {', '.join(_TYPES)}")
    if version not in ("6", "8", "9"):
        raise UnknownSetting(f"hoodie.write.table.version does not take {version!r}: expected 6, 8 or 9")
    if merge is not None and merge.upper() not in _MERGE:
        raise UnsupportedFeature(f"hoodie.write.record.merge.mode={merge} is not supported: {', '.join(_MERGE)} are")
    return {
        "record_key": _fields(given.get("hoodie.datasource.write.recordkey.field")),
        "partition_by": _fields(given.get("hoodie.datasource.write.partitionpath.field")),
        "ordering": _fields(given.get("hoodie.datasource.write.precombine.field")),
        "table_type": _TYPES[kind],
        "table_version": int(version),
        "merge": None if merge is None else _MERGE[merge.upper()],
        "name": given.get("hoodie.table.name"),
        "database": given.get("hoodie.database.name"),
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _fields(text: str | None) -> list[str] | None:
    names = [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
    return names or None
