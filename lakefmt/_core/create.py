"""Making a table: what its properties say (pure), and the act of writing them (effects).

Tables of other formats are recognised by what lies in their directory (effects: a few small requests).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import PurePath
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import names_argument, shown, text_argument
from lakefmt._core.config.merge_rule import (
    PAYLOAD_MODES,
    PAYLOAD_STRATEGY,
    MergeFunction,
    is_payload_class,
    merger_name,
    nine_of_payload,
    strategy_id,
)
from lakefmt._core.config.settings import Settings, check_restated, resolve_properties
from lakefmt._core.config.table_config import (
    PAYLOADS,
    STRATEGY_IDS,
    TABLE_PROPERTIES,
    TableConfig,
    cdc_mode,
    check_writable,
    merge_rule,
    parse_table_config,
)
from lakefmt._core.filegroups.table_client import NOTES, TableClient
from lakefmt._core.formats.names import PARTITION_METADATA
from lakefmt._core.index.registry import index_kind, index_of_new_table
from lakefmt._core.keys import (
    GENERATOR_KEYS,
    KeyGeneratorType,
    KeySpec,
    build_partition_paths,
    build_record_keys,
    key_properties,
    key_spec_from_properties,
    path_tells,
    plan_key_spec,
)
from lakefmt._core.schema import (
    arrow_to_avro,
    check_names,
    field_at,
    normalise_schema,
    unreadable_by_spark,
    with_spark_types,
)
from lakefmt._core.storage.api import Capabilities, ObjectStore
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.timeline.store import PROPERTIES, create_properties, load_properties, put_if_absent_confirmed
from lakefmt._core.values import MergeMode, TableType, TableVersion
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature

__all__ = [
    "CREATION_MARK",
    "MERGE_WORDS",
    "OVER_ALL_PARTITIONS",
    "foreign_hint",
    "format_of_directory",
    "run_creation",
    "table_format_of_directory",
    "unique_index",
]

#: Directories that only one format has, with the format's name and what reads it.
_BY_DIRECTORY: Final = {
    "_delta_log": ("a Delta table", "deltalake"),
    "_spark_metadata": ("the output of a Spark stream", "Spark"),
    "_versions": ("a Lance dataset", "Lance"),
}
#: Directories that Paimon tables have together.
_PAIMON: Final = ("schema", "snapshot")
_ICEBERG: Final = "metadata"
_ICEBERG_ENDS: Final = (".metadata.json", "version-hint.text")
#: Files of rows; Hudi's own lie beside a partition metadata file, which is looked for before.
_ROW_FILES: Final = (".parquet", ".parq", ".orc")
#: How many partition directories are looked into for row files.
_DIRECTORIES_TO_LOOK_AT: Final = 3


def table_format_of_directory(store: ObjectStore, directories: Iterable[str] | None = None) -> str | None:
    """Return which table of another format the directory of a store holds, with an article; None: none that is known.

    Args:
        store: its base is the directory.
        directories: those directly in it; None: they are asked for one by one.

    Raises:
        StorageError: the store failed.
    """
    has = _has(store, directories)
    for directory, (format_name, _) in _BY_DIRECTORY.items():
        if has(directory):
            return format_name
    if has(_ICEBERG) and any(item.name.endswith(_ICEBERG_ENDS) for item in store.list(_ICEBERG, recursive=False)):
        return "an Iceberg table"
    if all(map(has, _PAIMON)) and store.info("schema/schema-0") is not None:
        return "a Paimon table"
    return None


def format_of_directory(store: ObjectStore, directories: Iterable[str]) -> str | None:
    """Return what another format keeps in the directory of a store: a table, or files of rows; None: nothing known.

    Args:
        store: its base is the directory.
        directories: those directly in it.

    Raises:
        StorageError: the store failed.

    Example:
        >>> from lakefmt._core.storage.memory import MemoryStore
        >>> store = MemoryStore("doc-foreign")
        >>> store.put("_delta_log/00000000000000000000.json", b"{}")
        >>> format_of_directory(store, store.list_directories())
        'a Delta table'
    """
    names = sorted(directories)
    foreign = table_format_of_directory(store, names)
    if foreign is not None:
        return foreign
    partitions = [name for name in names if "=" in name]
    for directory in ("", *partitions[:_DIRECTORIES_TO_LOOK_AT]):
        for item in store.list(directory, recursive=False):
            name = item.name.lower()
            if name.endswith(_ROW_FILES):
                file_format = "ORC" if name.endswith(".orc") else "Parquet"
                return f"a folder of {file_format} files of no Hudi table, such as {item.name}"
    return None


def foreign_hint(store: ObjectStore) -> str:
    """Return a sentence on what lies where a Hudi table was looked for; empty: nothing that is known.

    Raises:
        StorageError: the store failed.
    """
    directories = store.list_directories()
    foreign = None if ".hoodie" in directories else format_of_directory(store, directories)
    if foreign is None:
        return ""
    reader = next((reader for name, reader in _BY_DIRECTORY.values() if name == foreign), None)
    return f"it is {foreign}" + (f", which {reader} reads" if reader else "")


def _has(store: ObjectStore, directories: Iterable[str] | None) -> Callable[[str], bool]:
    if directories is not None:
        return frozenset(name.strip("/") for name in directories).__contains__
    return lambda name: next(iter(store.list(name, recursive=False)), None) is not None


#: What the properties of a table that is made in this context say about its making (`load_mark`).
CREATION_MARK: ContextVar[str] = ContextVar("CREATION_MARK", default="")
#: The index of a table with one row per key by the index that was named; others take no such request.
_UNIQUE_INDEXES = {"bloom": "global_bloom", "simple": "global_simple"}
#: The indexes that look for a key in all partitions.
OVER_ALL_PARTITIONS = ("global_bloom", "global_simple", "record")

#: The words of the argument `merge`.
MERGE_WORDS = {"event_time": MergeMode.EVENT_TIME_ORDERING, "commit_time": MergeMode.COMMIT_TIME_ORDERING}
_COMMON = {
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.cdc.enabled": "false",
}
_CDC = "hoodie.table.cdc.enabled"
_CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"
_PARTIAL_MODE = "hoodie.table.partial.update.mode"
_PAYLOAD = "hoodie.compaction.payload.class"
_LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
#: Properties and settings of Hudi that say how rows are merged. A new table has those that its version and arguments ask for.
_MERGING = frozenset(
    {
        "hoodie.compaction.payload.class",
        "hoodie.compaction.record.merger.strategy",
        "hoodie.payload.event.time.field",
        "hoodie.payload.ordering.field",
        "hoodie.record.merge.mode",
        "hoodie.record.merge.strategy.id",
        "hoodie.table.legacy.payload.class",
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
    }
)
#: What base files hold, unless the caller wants less.
_STORED = {
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.populate.meta.fields": "true",
}
#: Properties that the table keeps itself, with what a caller may say instead.
_KEPT_BY_TABLE = {
    "hoodie.table.checksum": "it is computed",
    "hoodie.table.index.defs.path": "indexes= makes a metadata table",
    "hoodie.table.metadata.partitions": "indexes= makes a metadata table",
    "hoodie.table.metadata.partitions.inflight": "indexes= makes a metadata table",
    "hoodie.table.secondary.indexes.metadata": "indexes= makes a metadata table",
}
#: Properties that are on or off.
_SWITCHES = (_CDC, *_STORED)
#: The prefix of the settings of timestamp-based partitions.
_TIMED = "hoodie.keygen.timebased."
#: The generators that Hudi lets a table without meta columns have.
_WITHOUT_META = (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX, KeyGeneratorType.NON_PARTITION)
#: A bucket may hold thousands of directories: making a table does not look into each.
_PLACES_TO_LOOK_AT = 64


def _plan_properties(
    name: str,
    schema: pa.Schema,
    spec: KeySpec,
    *,
    ordering: Sequence[str],
    merge: MergeMode | str,
    table_type: TableType,
    version: TableVersion,
    database: str | None,
    properties: Mapping[str, str],
) -> dict[str, str]:
    """Return the properties of a new table (docs/format.md, Property keys).

    Raises:
        SchemaMismatch: a key, partition or ordering column is not in the schema.
        InvalidInputError: the merge mode and the ordering fields contradict each other.
        UnsupportedFeature: a merger of one's own, in a version that cannot say so.
    """
    _check_columns(schema, spec, ordering)
    if merge is MergeMode.EVENT_TIME_ORDERING and not ordering:
        raise InvalidInputError("merge='event_time' needs an ordering column")
    if len(ordering) > 1 and version is not TableVersion.NINE:
        raise InvalidInputError("several ordering columns need table_version=9")
    planned = {
        "hoodie.table.name": name,
        "hoodie.table.type": table_type.value,
        "hoodie.table.version": str(version.value),
        "hoodie.timeline.layout.version": str(version.layout),
        **_COMMON,
        **(
            _version_properties(version, merge, ordering)
            if isinstance(merge, MergeMode)
            else _of_own(version, merge, ordering)
        ),
        **key_properties(spec, version),
        "hoodie.table.create.schema": arrow_to_avro(schema, name),
        **_of_payload(version, properties.get(_PAYLOAD)),
    }
    if database is not None:
        planned["hoodie.database.name"] = database
    if planned.get(_LEGACY_PAYLOAD) == properties.get(_PAYLOAD):
        properties = {key: value for key, value in properties.items() if key != _PAYLOAD}
    capture = _change_capture(properties)
    planned |= capture
    properties = {key: value for key, value in properties.items() if key not in capture}
    properties = _without_spellings(planned, properties)
    contradicting = [key for key in properties if key in planned and planned[key] != properties[key]]
    if contradicting:
        raise InvalidInputError(f"properties contradict the arguments of create_table: {', '.join(contradicting)}")
    _check_merging(properties, planned, version)
    complete = {**planned, **_STORED, **properties}
    check_restated(properties, complete)
    config = parse_table_config(complete)
    _check_ordering(config, schema, compares=isinstance(merge, MergeMode))
    mark = merge_rule(config).delete
    if mark is not None and mark.field not in schema.names:
        raise SchemaMismatch(f"deletes are marked in column {mark.field!r}, which is not in the schema {schema.names}")
    _check_unstored(config, spec, schema)
    return complete


def _check_ordering(config: TableConfig, schema: pa.Schema, *, compares: bool) -> None:
    """Raise when the ordering columns do not order rows; `compares` says that no function of the table's own does."""
    compares = compares and config.merge_mode is not MergeMode.COMMIT_TIME_ORDERING
    in_logs = compares and config.table_type is TableType.MERGE_ON_READ
    for name in config.ordering_fields:
        field = field_at(schema, name)
        if field is None:
            raise SchemaMismatch(f"ordering column {name!r} is not in the schema {schema.names}")
        if pt.is_nested(field.type):
            raise SchemaMismatch(
                f"ordering column {name!r} has type {field.type}, which has no order: name a number, a time or a text"
            )
        if in_logs and (pt.is_binary(field.type) or pt.is_fixed_size_binary(field.type)):
            raise UnsupportedFeature(
                f"ordering column {name!r} has type {field.type}: Hudi does not compare bytes when it merges logs, so that "
                "Spark would fail on every read of this merge-on-read table; order rows by a number, a time or a text, or "
                "make the table copy-on-write"
            )


def _check_merging(properties: Mapping[str, str], planned: Mapping[str, str], version: TableVersion) -> None:
    """Raise when properties ask for a way of merging that the new table would not have."""
    unheard = [key for key in properties if key in _MERGING and key not in planned]
    if unheard:
        raise InvalidInputError(
            f"properties: {', '.join(unheard)} would change nothing in a table of version {version.value} that lakefmt makes: "
            "ordering= and merge= say how rows are merged"
        )
    if _PARTIAL_MODE in properties and version is not TableVersion.NINE:
        raise InvalidInputError(f"properties: {_PARTIAL_MODE} needs table_version=9: no engine looks at it before")


def _without_spellings(planned: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that say what is planned in other words, such as a time unit in lower case.

    Of the names of a key generator a table keeps that of its version.
    """
    flags = {key: value.lower() for key, value in properties.items() if value.lower() in ("true", "false")}
    properties = {key: value for key, value in {**properties, **flags}.items() if key not in GENERATOR_KEYS}
    timed = {key: value for key, value in properties.items() if key.startswith(_TIMED)}
    if not timed or key_spec_from_properties({**planned, **timed}) != key_spec_from_properties(planned):
        return dict(properties)
    return {key: value for key, value in properties.items() if key not in timed or key not in planned}


def _check_unstored(config: TableConfig, spec: KeySpec, schema: pa.Schema) -> None:
    """Raise when rows could not be completed again from what files and paths hold (docs/format.md, Property keys)."""
    if config.stores_every_column:
        return
    check_writable(config)
    if not config.populate_meta_fields and config.drop_partition_columns:
        raise UnsupportedFeature(
            "hoodie.populate.meta.fields=false and hoodie.datasource.write.drop.partition.columns=true do not go together: "
            "Hudi 1.2.0 reads such a table and fails to upsert into it"
        )
    if not config.populate_meta_fields:
        if spec.generator not in _WITHOUT_META:
            raise UnsupportedFeature(
                f"hoodie.populate.meta.fields=false goes with the key generators SIMPLE, COMPLEX and NON_PARTITION in Hudi, "
                f"not with {spec.generator.name}"
            )
        if spec.generator is KeyGeneratorType.COMPLEX and len(spec.record_key_fields) == 1:
            raise UnsupportedFeature(
                "hoodie.populate.meta.fields=false with one record key field and the COMPLEX key generator: Hudi makes "
                "such keys in two forms and would not find them again; name two key fields, or one partition column"
            )
    if config.drop_partition_columns:
        _check_dropped(config, spec, schema)


def _check_dropped(config: TableConfig, spec: KeySpec, schema: pa.Schema) -> None:
    if not spec.partition_fields:
        raise InvalidInputError("hoodie.datasource.write.drop.partition.columns=true needs partition columns")
    needed_columns = {*config.ordering_fields, *(() if config.populate_meta_fields else spec.record_key_fields)}
    for field in spec.partition_fields:
        if field.name in needed_columns:
            raise InvalidInputError(f"column {field.name!r} makes keys or the order of rows: files have to hold it")
        column = schema.field(field.name) if field.name in schema.names else None
        if column is None or field.timestamp is not None or not path_tells(column.type):
            raise UnsupportedFeature(
                f"partition column {field.name!r} cannot be dropped: its path does not tell its value; texts, integers, "
                "booleans, dates and decimals can be"
            )


def _change_capture(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what the table says about change data capture, the mode by name where it is on (docs/format.md, Change files)."""
    if _CDC not in properties:
        return {}
    mode = cdc_mode(properties)
    return {_CDC: properties[_CDC]} if mode is None else {_CDC: properties[_CDC], _CDC_MODE: mode.value}


def _version_properties(version: TableVersion, merge: MergeMode, ordering: Sequence[str]) -> dict[str, str]:
    of_version: dict[str, str] = {}
    if ordering:
        key = "hoodie.table.ordering.fields" if version is TableVersion.NINE else "hoodie.table.precombine.field"
        of_version[key] = ",".join(ordering)
    if version is TableVersion.SIX:
        return of_version | {
            "hoodie.archivelog.folder": "archived",
            "hoodie.compaction.payload.class": PAYLOADS[merge],
            "hoodie.compaction.record.merger.strategy": STRATEGY_IDS[MergeMode.EVENT_TIME_ORDERING],
        }
    of_version |= {
        "hoodie.table.initial.version": str(version.value),
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.record.merge.mode": merge.value,
    }
    if version is TableVersion.NINE:
        return of_version | {"hoodie.table.format": "native"}
    return of_version | {
        "hoodie.record.merge.strategy.id": STRATEGY_IDS[merge],
        "hoodie.compaction.payload.class": PAYLOADS[merge],
    }


def _of_own(version: TableVersion, name: str, ordering: Sequence[str]) -> dict[str, str]:
    """Return the properties by which a table says that it merges by the function of a name."""
    if version is TableVersion.SIX:
        raise UnsupportedFeature("a merger of one's own needs table_version 8 or 9: version 6 has no word for it")
    made = _version_properties(version, MergeMode.COMMIT_TIME_ORDERING, ordering)
    made.pop("hoodie.compaction.payload.class", None)
    return made | {
        "hoodie.record.merge.mode": MergeMode.CUSTOM.value,
        "hoodie.record.merge.strategy.id": strategy_id(name),
    }


def _of_payload(version: TableVersion, payload: str | None) -> dict[str, str]:
    """Return the properties by which a table says that it merges by a payload class that is more than a merge mode.

    A table of version 9 says a merge mode, a partial update mode and what deletes in place of most of them, as Hudi's own tables do.
    """
    if payload is None or payload in PAYLOAD_MODES or not is_payload_class(payload):
        return {}
    if version is TableVersion.NINE and (nine := nine_of_payload(payload)):
        return {_LEGACY_PAYLOAD: payload, **nine}
    if version is TableVersion.SIX:
        return {_PAYLOAD: payload}
    return {
        _PAYLOAD: payload,
        "hoodie.record.merge.mode": MergeMode.CUSTOM.value,
        "hoodie.record.merge.strategy.id": PAYLOAD_STRATEGY,
    }


def _check_columns(schema: pa.Schema, spec: KeySpec, ordering: Sequence[str]) -> None:
    named = [
        *(("record_key", f) for f in spec.record_key_fields),
        *(("partition_by", f.name) for f in spec.partition_fields),
        *(("ordering", f) for f in ordering),
    ]
    for role, column in named:
        if column.split(".", 1)[0] not in schema.names:
            raise SchemaMismatch(f"{role} column {column!r} is not in the schema {schema.names}")


def creation_warnings(schema: pa.Schema) -> tuple[str, ...]:
    """Return what the first write warns of: columns that Spark cannot read."""
    names = unreadable_by_spark(schema)
    return (
        (f"Spark cannot read the time columns {', '.join(names)}: store timestamps or numbers instead",)
        if names
        else ()
    )


def run_creation(
    client: TableClient,
    schema: pa.Schema,
    *,
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str] | None,
    ordering: str | Sequence[str] | None,
    table_type: str,
    table_version: int,
    index: str,
    merge: str | MergeFunction | None,
    name: str,
    database: str | None,
    properties: Mapping[str, str],
    settings: Settings,
    indexes: object = None,
) -> tuple[str, ...]:
    """Create the table's directories, notes and its properties, and then the indexes of its metadata table; return warnings.

    Arguments as for `create_table`; `settings` are those of the call.

    Raises:
        TableExists: there is one already.
        InvalidInputError: the place lies in another table, or holds one.
        UnknownSetting: a property that is not known.
    """
    _check_arguments(schema, properties, table_type=table_type, name=name, database=database or "", index=index)
    properties, warnings = resolve_properties(properties, TABLE_PROPERTIES, settings)
    parsed_table_type = TableType.parse(table_type)
    given = normalise_schema(schema)
    stored = given if settings.text("lakefmt.create.types") == "exact" else with_spark_types(given)
    check_names(stored)
    fields = names_argument(ordering, "ordering") or []
    spec = _key_spec_of(record_key, partition_by, properties, stored)
    _check_millisecond_partitions(spec, given, stored)
    _check_key_types(spec, stored)
    index, properties = index_of_new_table(
        index, properties, settings, spec, parsed_table_type, TableVersion.parse(table_version)
    )
    mode = _merge_mode(merge, fields, properties)
    planned = _plan_properties(
        name,
        stored,
        spec,
        ordering=fields,
        merge=mode,
        table_type=parsed_table_type,
        version=TableVersion.parse(table_version),
        database=database,
        properties=properties,
    )
    durable = settings.text("lakefmt.durability") == "fsync"
    has_metadata = indexes is not None or _has_metadata(settings, client.store.capabilities)
    if not has_metadata and not index_kind(index).in_metadata:
        _make_files(client, planned, index, mode, durable=durable)
        return warnings
    # Imported here: they bring the metadata table along.
    from lakefmt._core.transactions.indexing import create_metadata_indexes, parse_index_requests, requests_of_new_table

    index_requests = (None if has_metadata else ()) if indexes is None else parse_index_requests(indexes)
    requests = requests_of_new_table(index_requests, index, parse_table_config(planned), stored, settings)
    _make_files(client, planned, index, mode, durable=durable)
    if requests:
        create_metadata_indexes(client, requests)
    return warnings


def _key_spec_of(
    record_key: str | Sequence[str] | None,
    partition_by: str | Sequence[str] | None,
    properties: Mapping[str, str],
    schema: pa.Schema,
) -> KeySpec:
    return plan_key_spec(
        names_argument(record_key, "record_key"),
        names_argument(partition_by, "partition_by"),
        hive_style=_stated(properties, "hoodie.datasource.write.hive_style_partitioning"),
        url_encode=_stated(properties, "hoodie.datasource.write.partitionpath.urlencode"),
        properties=properties,
        schema=schema,
    )


def _has_metadata(settings: Settings, capabilities: Capabilities) -> bool:
    """Return whether a table gets a metadata table without being asked for its indexes.

    It does on an object store, where a listing takes a request for each partition, unless ``hoodie.metadata.enable`` is false.
    """
    enabled = settings.values["hoodie.metadata.enable"]
    is_remote = not (capabilities.directories or capabilities.low_latency)
    return enabled is True or (enabled is None and is_remote)


def _make_files(
    client: TableClient, planned: Mapping[str, str], index: str, merge: MergeMode | str, *, durable: bool
) -> None:
    """Make the directories, the notes and, last, the properties of a planned table."""
    config, store = parse_table_config(planned), client.store
    _check_place(store)
    store.make_directories(
        [config.history_directory, config.timeline_directory, ".hoodie/.temp", ".hoodie/.aux", ".hoodie/.schema"]
    )
    if index.lower() == "bloom" and not config.populate_meta_fields:
        index = "simple"  # the default of a table whose files have no filters
    store_index = index_kind(index).on_create
    if store_index is not None:
        store_index(store, planned, durable)
    notes = {"index": index} if isinstance(merge, MergeMode) else {"index": index, "merge": merge}
    noted = json.dumps(notes).encode()
    put_if_absent_confirmed(store, NOTES, noted, durable=False)
    client.listed.keep_written(NOTES, noted)
    data = create_properties(store, planned, client.clock.now(), durable=durable, mark=CREATION_MARK.get())
    client.listed.keep_written(PROPERTIES, data)
    client.keep_config(load_properties(store, lambda *_: data))


def unique_index(index: str, unique: str, properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the index of a table in which keys are unique as `unique` says, and its properties with what it needs for that.

    Args:
        index: as for `create_table`.
        unique: ``"partition"`` or ``"table"``.
        properties: as for `create_table`.

    Raises:
        InvalidInputError: another word, or an index that looks for a key in one partition only.

    Example:
        >>> unique_index("bloom", "table", {}), unique_index("bloom", "partition", {})
        (('global_bloom', {}), ('bloom', {}))
    """
    if text_argument(unique, "unique") not in ("partition", "table"):
        raise InvalidInputError(f"unknown unique {unique!r}: expected 'partition' or 'table'")
    named = text_argument(index, "index").lower()
    if unique == "partition" or named in ("global_bloom", "global_simple"):
        return index, {**properties}
    if named == "record":  # by default it keeps a row, and the values of its partition, where the key is stored
        return index, {"hoodie.record.index.update.partition.path": "true", **properties}
    if named not in _UNIQUE_INDEXES:
        known = ", ".join(map(repr, OVER_ALL_PARTITIONS))
        raise InvalidInputError(f"unique='table' needs an index over all partitions ({known}), and {index!r} is none")
    return _UNIQUE_INDEXES[named], {**properties}


def _check_arguments(schema: object, properties: Mapping[str, str], **texts: str) -> None:
    """Raise unless the schema is one, and the properties and other arguments are texts."""
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError(f"schema takes a pyarrow.Schema, not {shown(schema)}")
    for argument, text in texts.items():
        text_argument(text, argument)
    for key, value in properties.items():
        text_argument(value, f"properties[{key!r}]")
        if key in _KEPT_BY_TABLE:
            raise InvalidInputError(f"properties: the table keeps {key} itself: {_KEPT_BY_TABLE[key]}; leave it out")
        if key in _SWITCHES and value.lower() not in ("true", "false"):
            raise InvalidInputError(f"properties: {key} takes true or false, not {shown(value)}")


def _check_millisecond_partitions(spec: KeySpec, given: pa.Schema, stored: pa.Schema) -> None:
    """Refuse partitions that would read the microseconds of a converted column as milliseconds.

    Raises:
        InvalidInputError: there is one.
    """
    for field in spec.partition_fields:
        before, after = field_at(given, field.name), field_at(stored, field.name)
        if field.timestamp is None or field.timestamp.unit != "MILLISECONDS" or before is None or before == after:
            continue
        raise InvalidInputError(
            f"partition column {field.name!r} is stored in microseconds and cannot be partitioned by milliseconds: use "
            f"lakefmt.day({field.name!r}) or EPOCHMICROSECONDS, or keep milliseconds with the option lakefmt.create.types=exact"
        )


def _check_key_types(spec: KeySpec, schema: pa.Schema) -> None:
    """Refuse columns of whose type no key and no path can be made: every write would be refused."""
    nothing = schema.empty_table()
    all_there = all(field_at(schema, name) is not None for name in spec.record_key_fields)
    if all_there and spec.record_key_fields and spec.prefixed is not None and not spec.unsupported:
        build_record_keys(spec, nothing)
    if not spec.unsupported:
        build_partition_paths(spec, nothing)


def _check_place(store: ObjectStore) -> None:
    """Raise when the new table and what is there already would read each other's files.

    Only the levels that cost little are looked at: the place itself, a few directories in it, and on a local disk
    those above. Deeper down tables do not see each other, because partitions are not looked for below partitions.
    """
    other_table = _foreign_below(store) or _table_above(store)
    if other_table and store.info(PROPERTIES) is None:
        raise InvalidInputError(f"no table can be made at {store.url}: {other_table}; choose another path")


def _foreign_below(store: ObjectStore) -> str | None:
    if store.info(PARTITION_METADATA) is not None:
        return "the directory is a partition of another table, or what is left of a table"
    directories = store.list_directories()
    for directory in directories[:_PLACES_TO_LOOK_AT]:
        if store.info(f"{directory}/{PROPERTIES}") is not None:
            return f"there is a table in it, {directory}"
        if store.info(f"{directory}/{PARTITION_METADATA}") is not None:
            return f"{directory} in it is a partition of a table whose {PROPERTIES} is gone"
    foreign = format_of_directory(store, directories)
    return None if foreign is None else f"it is {foreign}"


def _table_above(store: ObjectStore) -> str | None:
    if not store.capabilities.directories or "://" in store.url:
        return None
    for above in list(PurePath(store.url).parents)[:_PLACES_TO_LOOK_AT]:
        store_above = LocalStore(str(above))
        if store_above.info(PROPERTIES) is not None:
            return f"it lies inside the Hudi table {above}"
        foreign = table_format_of_directory(store_above)
        if foreign is not None:
            return f"it lies inside {foreign}, {above}"
    return None


def _stated(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "true").lower() == "true"


def _merge_mode(
    merge: str | MergeFunction | None, ordering: Sequence[str], properties: Mapping[str, str]
) -> MergeMode | str:
    """Return the merge mode asked for, or the name of a merger of one's own."""
    if (
        merge is not None
        and is_payload_class(properties.get(_PAYLOAD, ""))
        and properties[_PAYLOAD] not in PAYLOAD_MODES
    ):
        raise InvalidInputError(f"merge= and properties: {_PAYLOAD} both say how rows are merged: give one of them")
    if merge is None:
        return MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING
    if isinstance(merge, str) and merge in MERGE_WORDS:
        return MERGE_WORDS[merge]
    return merger_name(merge)
