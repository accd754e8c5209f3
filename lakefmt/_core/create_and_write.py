"""Write rows to a table and create the table first where it is missing (effects)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Unpack
from uuid import uuid4

import pyarrow as pa

from lakefmt._core.arguments import (
    check_keywords,
    flag_argument,
    mapping_argument,
    names_argument,
    shown,
    text_argument,
)
from lakefmt._core.config.merge_rule import MergeFunction, nine_of_payload
from lakefmt._core.config.settings import check_restated, resolve_properties, resolve_settings
from lakefmt._core.config.table_config import TABLE_PROPERTIES
from lakefmt._core.create import CREATION_MARK, MERGE_WORDS, OVER_ALL_PARTITIONS, unique_index
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import PARTITION_METADATA_NAMES, parse_base_file, parse_log_file
from lakefmt._core.index.api import INDEX_TYPE
from lakefmt._core.index.registry import index_kind, own_name
from lakefmt._core.keys import GENERATOR_KEYS, check_generator, key_spec_from_properties, plan_key_spec
from lakefmt._core.schema.types import name_mapping
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.storage.process_lock import ProcessName, has_ended, this_process
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.store import BACKUP, PROPERTIES, load_mark
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.values import CommitResult, TableType, TableVersion, WriteOperation
from lakefmt._core.write.ingest import brought_keys, handed_out, open_stream, read_all
from lakefmt.errors import InvalidInputError, LakefmtError, ObjectNotFound, TableExists, TableNotFound
from lakefmt.options import WriteOptions, WriteTableOptions

__all__ = ["check_agreement", "check_properties", "fill_new_table", "found_table", "write_existing", "write_table"]

_MODES: Final = ("error", "upsert", "append", "overwrite", "ignore")
#: The calls of this process that are at work on a table that they made.
_CALLS: Final[set[str]] = set()
_OPERATIONS: Final = ("upsert", "insert", "bulk_insert", "insert_overwrite")
_LEGACY_PAYLOAD: Final = "hoodie.table.legacy.payload.class"
_ORDERING: Final = "hoodie.table.ordering.fields"
#: The prefix of the settings of timestamp-based partitions.
_TIMED: Final = "hoodie.keygen.timebased."
#: What a table has that does not say it.
_UNSTATED: Final = {
    "hoodie.populate.meta.fields": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.table.cdc.enabled": "false",
}


def write_table(
    path: str | os.PathLike[str],
    data: object,
    *,
    mode: str = "error",
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    operation: str | None = None,
    table_type: str | None = None,
    table_version: int | None = None,
    index: str | None = None,
    unique: str | None = None,
    merge: str | MergeFunction | None = None,
    indexes: Sequence[str | Mapping[str, object]] | None = None,
    name: str | None = None,
    database: str | None = None,
    properties: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | bool = False,
    storage_options: Mapping[str, object] | None = None,
    **call: Unpack[WriteTableOptions],
) -> CommitResult:
    """Write rows to a table; create the table first if there is none.

    Args:
        path: a local path (a text or a ``pathlib.Path``) or any fsspec URL.
        data: anything that holds Arrow data. A new table gets its columns.
        mode: what to do if the table exists: ``"error"`` raises, ``"upsert"`` inserts new keys and updates known ones,
            ``"append"`` does what `operation` says (as Spark's word, it is an upsert by default), ``"overwrite"`` replaces
            all rows (older states stay readable), ``"ignore"`` writes nothing.
        record_key: as for :func:`create_table`; must agree with a table that exists. The same for `partition_by`
            and `ordering`.
        partition_by: see `record_key`.
        ordering: see `record_key`.
        operation: ``"upsert"``, ``"insert"``, ``"bulk_insert"`` or ``"insert_overwrite"``; default: upsert, and insert
            where the table has no record key and the rows do not bring ``_hoodie_record_key``, with which they were read.
        table_type: as for :func:`create_table`, with the same default; must agree with a table that exists, where it is
            given. The same for `table_version`, `index`, `unique`, `merge`, `indexes`, `name` and `database`.
        table_version: see `table_type`.
        index: see `table_type`.
        unique: see `table_type`.
        merge: as for :func:`create_table` and :func:`open_table`.
        indexes: see `table_type`.
        name: see `table_type`.
        database: see `table_type`.
        properties: as for :func:`create_table`; must agree with those of a table that exists.
        rename: new names of columns by those that the data has; True: names that Hudi's engines do not store, such as
            ``"Order ID"`` and ``"größe"``, become similar ones (``Order_ID``, ``grosse``). `record_key` and the others may
            use the old names.
        storage_options: credentials and settings of the store; never kept in the table.
        **call: as for :meth:`Table.upsert`, ``options`` among them.

    Raises:
        TableExists: there is one, and the mode is ``"error"``.
        InvalidInputError: the table that exists has another record key, other partitions, another ordering or another index, or
            is of another type, or another argument or `properties` contradict it.
        SchemaMismatch: the data do not fit.
        LakefmtError: the write failed. A table that was created for it is removed again; where the process died, the next
            call with this path does it.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
        >>> lakefmt.write_table("memory://doc-write", rows, record_key="id").num_inserts
        2
        >>> lakefmt.write_table("memory://doc-write", rows, record_key="id", mode="upsert").num_updates
        2
    """
    check_keywords(write_table, call, WriteTableOptions.__optional_keys__)
    _check_operation(operation, mode)
    options = mapping_argument(call.get("options"), "options")
    if rename is not False and (rename is True or mapping_argument(rename, "rename")):
        data, names = _renamed(data, rename)
        record_key, partition_by, ordering = (names.of(each) for each in (record_key, partition_by, ordering))
    creation = {
        "table_type": table_type,
        "table_version": table_version,
        "index": index,
        "unique": unique,
        "merge": merge,
        "indexes": indexes,
        "name": name,
        "database": database,
    }
    keyed = {"record_key": record_key, "partition_by": partition_by, "ordering": ordering}
    of_creation = {argument: value for argument, value in creation.items() if value is not None}
    dry_run = flag_argument(call.get("dry_run"), "dry_run")
    table = found_table(path, options, storage_options, merge, removes=not dry_run)
    if table is None:
        made = {
            **keyed,
            **of_creation,
            "name": (location_text(path).rstrip("/").rsplit("/", 1)[-1] or None) if name is None else name,
            "properties": properties,
            "options": options,
        }
        return _create_and_write({"path": path, "storage_options": storage_options}, made, data, mode, operation, call)
    if mode == "error":
        raise TableExists(_what_else(table))
    if mode == "ignore":
        return CommitResult(None, operation=WriteOperation(_verb(table, mode, operation).upper()))
    check_agreement(table, **keyed)
    _check_creation(table, of_creation)
    check_properties(table, mapping_argument(properties, "properties"))
    operation, data = _keyless(table, mode, operation, data)
    return write_existing(table, mode, operation, data, call)


def _keyless(table: Table, mode: str, operation: str | None, data: object) -> tuple[str | None, object]:
    """Return how rows are written to a table without record key, and the rows.

    Rows that were read update what they were read from, as in Hudi; others are new.
    """
    if operation is not None or mode not in ("append", "upsert") or table.properties.record_key_fields:
        return operation, data
    updates, rows = brought_keys(data)
    return ("upsert" if updates else "insert"), rows


@dataclass(frozen=True)
class _NewNames:
    """The new names of columns, by the old ones."""

    by_old: Mapping[str, str]

    def of(self, named: str | Sequence[str] | None) -> str | Sequence[str] | None:
        """Return an argument that names columns, or partitions such as ``"ts:timestamp(yyyy)"``, with the new names."""
        if isinstance(named, str):
            column, colon, rest = named.partition(":")
            return self.by_old.get(named) or f"{self.by_old.get(column, column)}{colon}{rest}"
        return None if named is None else [str(self.of(each)) for each in named]


def _renamed(data: object, rename: Mapping[str, str] | bool) -> tuple[object, _NewNames]:
    """Return the rows with new names of columns: one table where they are in memory, else a stream; and these names."""
    schema, tables = open_stream(data)
    given = rename if isinstance(rename, bool) else mapping_argument(rename, "rename")
    for name in {} if isinstance(given, bool) else given.values():
        text_argument(name, "a new name of rename")
    names = name_mapping(schema.names, given)
    columns = [names.get(name, name) for name in schema.names]
    if isinstance(data, Sized) and not isinstance(data, Iterator):
        return read_all(schema, list(tables)).rename_columns(columns), _NewNames(names)
    return (table.rename_columns(columns) for table in tables), _NewNames(names)


def _check_operation(operation: str | None, mode: str) -> None:
    if text_argument(mode, "mode") not in _MODES:
        raise InvalidInputError(f"unknown mode {mode!r}: expected {', '.join(map(repr, _MODES))}")
    if operation is None:
        return
    if text_argument(operation, "operation") not in _OPERATIONS:
        raise InvalidInputError(f"unknown operation {operation!r}: expected {', '.join(map(repr, _OPERATIONS))}")
    if mode == "overwrite":
        raise InvalidInputError("mode='overwrite' replaces all rows: leave out operation=")
    if mode == "upsert" and operation != "upsert":
        raise InvalidInputError(f"mode='upsert' and operation={operation!r} contradict each other: use mode='append'")


def _what_else(table: Table) -> str:
    """Return what a call that expected no table may ask for."""
    keyed = bool(table.properties.record_key_fields)
    again = (
        "mode='upsert' inserts and updates its rows" if keyed else "it has no key: mode='append' adds rows, each time"
    )
    return (
        f"there is a table at {table.client.store.url}: {again}, 'overwrite' replaces them, 'ignore' leaves it as it is"
    )


def found_table(
    path: str | os.PathLike[str],
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
    merge: str | MergeFunction | None = None,
    *,
    removes: bool = True,
) -> Table | None:
    """Return the table that is there; None: there is none.

    Args:
        path: of the table.
        options: of the handle.
        storage_options: credentials and settings of the store.
        merge: as for :func:`write_table`.
        removes: what a call left that is over is removed, and counts as none.

    Example:
        >>> found_table("memory://doc-existing") is None
        True
    """
    # create_table takes the two words; what a table that exists says is compared later.
    function = None if isinstance(merge, str) and merge in MERGE_WORDS else merge
    try:
        table = open_table(path, options=options, storage_options=storage_options, merge=function)
    except TableNotFound:
        return None
    return None if removes and _is_left_over(table.client) and _remove_unwritten(table.client) else table


def _create_and_write(
    location: Mapping[str, Any],
    made: Mapping[str, Any],
    data: object,
    mode: str,
    operation: str | None,
    call: WriteTableOptions,
) -> CommitResult:
    """Try the write on an empty table in memory, create the table, and write.

    The trial refuses unusable rows before anything exists. Of a stream it has as many rows as memory may take, and of a
    streamed bulk insert the columns only. When the write fails, the table that was made for it goes.
    """
    schema, tables = open_stream(data)
    dry_run = flag_argument(call.get("dry_run"), "dry_run")
    trial = create_table(f"memory://lakefmt-trial/{uuid4().hex}", schema=schema, **made)
    try:
        if operation == "bulk_insert" and not call.get("drop_duplicates") and not dry_run:
            tried, rows = schema.empty_table(), tables
        else:
            memory = None if dry_run else resolve_settings(made["options"]).integer("lakefmt.write.window.bytes")
            tried, rows = _first_rows(schema, tables, memory)
        plan = write_existing(trial, mode, operation, tried, {**call, "dry_run": True})
    finally:
        trial.client.store.delete_tree("")
    if dry_run:
        return plan
    del tried  # the first rows of a stream, which the write lets go one by one
    # Another process may create the table in between.
    made = {"schema": schema, "if_exists": "error" if mode in ("error", "ignore") else "open", **made}
    return fill_new_table(location, made, lambda table: write_existing(table, mode, operation, rows, call))


def fill_new_table(
    location: Mapping[str, Any], made: Mapping[str, Any], write: Callable[[Table], CommitResult]
) -> CommitResult:
    """Create a table and write to it; when the write fails, the table goes, and when this process dies, the next such call removes it.

    Args:
        location: its `path` and `storage_options`.
        made: the other arguments of :func:`create_table`.
        write: does it.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> rows, place = pa.table({"id": ["a"]}), {"path": "memory://doc-fill", "storage_options": None}
        >>> fill_new_table(place, {"schema": rows.schema, "record_key": "id"}, lambda table: table.insert(rows)).num_inserts
        1
    """
    token = uuid4().hex
    _CALLS.add(token)
    try:
        marked = CREATION_MARK.set(_mark_text(token))
        try:
            table = create_table(**location, **made)
        finally:
            CREATION_MARK.reset(marked)
        return write(table)
    except (Exception, KeyboardInterrupt):
        with suppress(LakefmtError):  # the error of the write says more; the next call removes what is left
            store = open_store(location_text(location["path"]), location["storage_options"])
            _remove_own(TableClient(store, made.get("options") or {}), token)
        raise
    finally:
        _CALLS.discard(token)


def _first_rows(
    schema: pa.Schema, tables: Iterator[pa.Table], memory: int | None
) -> tuple[pa.Table, pa.Table | Iterator[pa.Table]]:
    """Return the first rows of a stream, of about `memory` bytes (None: all), and all of its rows.

    Raises:
        SchemaMismatch: a later batch has other columns than the first.
    """
    parts, held = [], 0
    more = next(tables, None)
    while more is not None and (memory is None or held < memory):
        parts.append(more)
        held += more.nbytes
        more = next(tables, None)
    first = read_all(schema, parts)
    return first, first if more is None else chain(handed_out([*parts, more]), tables)


def write_existing(
    table: Table, mode: str, operation: str | None, rows: object, call: WriteTableOptions | WriteOptions
) -> CommitResult:
    """Write rows to a table that is there, as :func:`write_table` does.

    Args:
        table: the table.
        mode: ``"append"``, ``"upsert"`` or ``"overwrite"``.
        operation: as for :func:`write_table`.
        rows: anything that holds Arrow data.
        call: as for :meth:`Table.upsert`, ``options`` among them.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> rows = pa.table({"id": ["a"], "n": [1]})
        >>> table = lakefmt.create_table("memory://doc-write-existing", schema=rows.schema, record_key="id")
        >>> write_existing(table, "append", None, rows, {}).num_inserts
        1
    """
    result: CommitResult = getattr(table, _verb(table, mode, operation))(rows, **call)
    return result


def _verb(table: Table, mode: str, operation: str | None) -> str:
    if mode == "overwrite":
        return "insert_overwrite_table"
    return operation or ("upsert" if table.properties.record_key_fields else "insert")


def check_agreement(table: Table, *, record_key: object, partition_by: object, ordering: object) -> None:
    """Raise when an argument contradicts the table.

    Raises:
        InvalidInputError: it does.
    """
    config = table.properties
    if _ORDERING in nine_of_payload(config.properties.get(_LEGACY_PAYLOAD, "")):
        ordering = None  # the class that the table was made with has an order of its own, whatever was asked for
    stored = table.client.key_spec(config).partition_fields
    partitions = names_argument(partition_by, "partition_by")
    requested_fields = plan_key_spec(list(config.record_key_fields), partitions, schema=table.schema).partition_fields
    for argument, given, table_columns in (
        ("record_key", names_argument(record_key, "record_key"), list(config.record_key_fields)),
        ("ordering", names_argument(ordering, "ordering"), list(config.ordering_fields)),
        ("partition_by", None if partitions is None else [f.name for f in requested_fields], [f.name for f in stored]),
    ):
        if given is not None and given != table_columns:
            raise InvalidInputError(
                f"{table.client.store.url} has {argument}={shown(table_columns)}, not {shown(given)}"
            )
    # A column named alone is taken as the table takes it.
    for field, other in zip(requested_fields, stored, strict=False):
        if field.timestamp is not None and field.timestamp != other.timestamp:
            raise InvalidInputError(f"{table.client.store.url} makes other partitions of column {field.name!r}")


def _check_creation(table: Table, given: Mapping[str, Any]) -> None:
    """Raise when an argument that makes a table contradicts the one that is there.

    Args:
        table: the table.
        given: the arguments that were given, by name.

    Raises:
        InvalidInputError: one does.
    """
    config, url = table.properties, table.client.store.url
    stored: dict[str, object] = {
        "table_type": config.table_type.value,
        "table_version": config.version.value,
        "name": config.name,
        "database": config.properties.get("hoodie.database.name"),
        "merge": config.merge_mode.value,
    }
    requested_values: dict[str, object] = {name: value for name, value in given.items() if name in stored}
    if "table_type" in given:
        requested_values["table_type"] = TableType.parse(text_argument(given["table_type"], "table_type")).value
    if "table_version" in given:
        requested_values["table_version"] = TableVersion.parse(given["table_version"]).value
    if "merge" in given:  # the function of a table was compared when it was opened
        word = given["merge"]
        requested_values["merge"] = (
            MERGE_WORDS[word].value if isinstance(word, str) and word in MERGE_WORDS else stored["merge"]
        )
    stored["index"] = _kept_index(table)
    stored["unique"] = "table" if stored["index"] in OVER_ALL_PARTITIONS else "partition"
    if "index" in given:
        index, _ = unique_index(given["index"], given.get("unique", "partition"), {})
        index_kind(index)
        without_filters = index.lower() == "bloom" and not config.populate_meta_fields
        requested_values["index"] = "simple" if without_filters else own_name(index)
    elif "unique" in given:
        requested_values["unique"] = text_argument(given["unique"], "unique")
    if "indexes" in given:
        # Imported here: it brings the metadata table along.
        from lakefmt._core.transactions.indexing import parse_index_requests

        names = [one.name for one in table.index.list()]
        missing = [one.partition for one in parse_index_requests(given["indexes"]) if one.partition not in names]
        stored["indexes"], requested_values["indexes"] = names, [*names, *missing]
    for argument, value in requested_values.items():
        if value != stored[argument]:
            raise InvalidInputError(f"{url} has {argument}={shown(stored[argument])}, not {shown(value)}")


def _kept_index(table: Table) -> str:
    """Return the name of the index that a table was created with; Spark's tables do not say it and have the default."""
    config = table.properties
    said = config.properties.get(INDEX_TYPE) or table.client.load_notes().get("index") or "bloom"
    return own_name(str(said))


def check_properties(table: Table, given: Mapping[str, str]) -> None:
    """Raise when properties contradict those of a table that is there; what it does not say is not looked at.

    Args:
        table: the table.
        given: names of properties, and of Hudi's write options that become properties.

    Raises:
        InvalidInputError: one does.
        InvalidKey: they name another key generator.
        UnknownSetting: they name none of Hudi's.
    """
    if not given:
        return
    stored = table.properties.properties
    given, _ = resolve_properties(given, TABLE_PROPERTIES, resolve_settings({}, table.client.options, stored))
    check_generator(given, stored)
    check_restated(given, stored)
    settings = resolve_settings({}, None, stored)
    timed = {name: value for name, value in given.items() if name.startswith(_TIMED)}
    if timed and key_spec_from_properties({**stored, **timed}) != key_spec_from_properties(stored):
        requested_times = ", ".join(f"{name}={value}" for name, value in sorted(timed.items()))
        there = ", ".join(f"{name}={stored[name]}" for name in sorted(stored) if name.startswith(_TIMED))
        raise InvalidInputError(
            f"{table.client.store.url} makes other partitions: it has {there or 'no times'}, not {requested_times}"
        )
    for name, value in given.items():
        there = stored.get(name, _UNSTATED.get(name, value))
        if name in settings.values and name not in stored and settings.values[name] is not None:
            there = str(settings.values[name])  # the default, which a table that does not say it has
        if name not in timed and name not in GENERATOR_KEYS and value.lower() != there.lower():
            raise InvalidInputError(f"{table.client.store.url} has {name}={there}, not {value}")


# ------------------------------------------------------------------------------------ tables that were never written to


def _mark_text(token: str) -> str:
    """Return the mark of a table that a call makes: who makes it, so that others can tell whether it is still at work."""
    process = this_process()
    names = None if process is None else [process.machine, process.space, process.pid, process.started]
    return json.dumps({"call": token, "process": names})


def _is_left_over(client: TableClient) -> bool:
    """Return whether a `write_table` made the table, nothing was ever completed in it, and the call is over."""
    timeline = client.seen().timeline
    if any(instant.action is not Action.INDEXING for instant in timeline.completed):
        return False
    mark = _load_mark(client)
    if not mark or str(mark.get("call")) in _CALLS:
        return False
    maker = _process_of(mark)
    if maker is not None and (maker == this_process() or has_ended(maker)):
        return True  # a call of this process that is over, or of one that has ended
    info = client.store.info(PROPERTIES)
    age = 0.0 if info is None else client.clock.now().timestamp() - info.modified
    return age > open_write_client(client).expiry_seconds


def _process_of(mark: Mapping[str, Any]) -> ProcessName | None:
    names = mark.get("process")
    if not isinstance(names, list) or [type(name) for name in names] != [str, str, int, int]:
        return None
    return ProcessName(*names)


def _load_mark(client: TableClient) -> dict[str, Any]:
    try:
        mark = json.loads(load_mark(client.store) or "{}")
    except (ObjectNotFound, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _remove_own(client: TableClient, token: str) -> None:
    """Remove the table that this call made, unless something was committed to it."""
    if client.store.info(PROPERTIES) is not None and _load_mark(client).get("call") == token:
        _remove_unwritten(client, (Action.INDEXING, Action.ROLLBACK))


def _remove_unwritten(client: TableClient, allowed: Sequence[Action] = (Action.INDEXING,)) -> bool:
    """Remove a table to which nothing was ever committed, under its lock; return whether it is gone.

    Files that are not of a Hudi table stay. The properties go last: until then the next call finds the table and begins again.

    Args:
        client: the table.
        allowed: what may have been completed in it.
    """
    write_client = open_write_client(client)
    with write_client.lock.hold():
        state = client.load()
        completed = {instant.action for instant in state.timeline.completed}
        history = client.store.list(state.config.history_directory)
        if not completed.issubset(allowed) or next(iter(history), None) is not None:
            return False
        if any(write_client.writer_liveness(state.config, state.timeline, i).alive for i in state.timeline.pending):
            return False
        names = [info.name for info in client.store.list()]
        hidden = [name for name in names if name.startswith(".hoodie/") and not name.startswith(".hoodie/.locks/")]
        last = {PROPERTIES, BACKUP}
        client.store.delete(name for name in names if _is_hudi_file(name))
        client.store.delete(name for name in hidden if name not in last)
        client.store.delete([BACKUP])
        client.store.delete([PROPERTIES])
    return True


def _is_hudi_file(name: str) -> bool:
    short = name.rpartition("/")[2]
    is_data = parse_base_file(short) is not None or parse_log_file(short) is not None
    return not name.startswith(".hoodie/") and (is_data or short in PARTITION_METADATA_NAMES)
