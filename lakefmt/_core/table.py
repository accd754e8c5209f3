"""The verbs of a table. Each parses its arguments and calls the packages below; no rule stands here."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Final, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import (
    check_flags,
    check_keywords,
    check_texts,
    mapping_argument,
    number_argument,
    text_argument,
    texts_argument,
)
from lakefmt._core.config.merge_rule import MergeFunction, with_merger
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import append_layout, check_merger
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.stored_keys import key_columns
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.keys import partition_items
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.producers.append import AppendVerbs, asked_properties
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.snapshot import Snapshot, read_every_copy
from lakefmt._core.read.verbs import ReadingVerbs
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.table_verbs import CatalogVerbs, CompactionVerbs, ConsumerVerbs, ProducerVerbs, UndoVerbs
from lakefmt._core.values import CommitResult, PartitionPath, Partitions, WriteOperation
from lakefmt.errors import InvalidFilter, InvalidInputError, TableExists, TableNotFound, UnsupportedFeature
from lakefmt.options import WriteOptions

if TYPE_CHECKING:
    from lakefmt._core.advice.advise import TableAdvice
    from lakefmt._core.check.findings import CheckReport, RepairPlan, RepairReport
    from lakefmt._core.check.vacuum import VacuumResult
    from lakefmt._core.compaction.archive import ArchiveResult
    from lakefmt._core.compaction.clean_run import CleanResult
    from lakefmt._core.compaction.scheduler import BackgroundServices
    from lakefmt._core.erase import ErasureReport
    from lakefmt._core.table_accessors import TableAlter, TableIndexes, TablePlot
    from lakefmt._core.table_verbs import TableMerge
    from lakefmt._core.upgrade import UpgradePlan
    from lakefmt._core.write.commit.retry import GivenRows
    from lakefmt._core.write.context import CommitEntries, OnCommit, WriteRequest
    from lakefmt._core.write.mutations import DeleteKeys

__all__ = ["Table", "create_table", "open_table"]

# What writes is imported by the verbs that write: it is a third of the modules, and a process that only reads needs none of them.
_ARGUMENTS: Final = WriteOptions.__optional_keys__


def create_table(
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    data: object = None,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str = "cow",
    table_version: int = 8,
    index: str = "bloom",
    unique: str = "partition",
    indexes: Sequence[str | Mapping[str, object]] | None = None,
    merge: str | MergeFunction | None = None,
    name: str | None = None,
    database: str | None = None,
    options: Mapping[str, object] | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    if_exists: str = "error",
    kind: str = "keyed",
    order: str | None = None,
    bucket_key: str | Sequence[str] | None = None,
    buckets: int | None = None,
) -> Table:
    """Create an Apache Hudi table and open it.

    Args:
        path: a local path (a text or a ``pathlib.Path``) or any fsspec URL.
        schema: the columns; or `data`. Types that Spark cannot upsert become others with the same values: ``timestamp[ms]``
            becomes ``timestamp[us]``, and bytes of fixed length become binary (setting ``lakefmt.create.types``).
        data: anything that holds Arrow data, to take its schema; nothing of it is written.
        record_key: the column or columns that make a row's key.
        partition_by: the column or columns whose values make partition paths; None: unpartitioned. By time:
            ``lakefmt.year("ts")``, ``month``, ``day`` or ``hour`` of a timestamp or date column.
        ordering: the larger value wins when two rows have one key; None: the later write wins.
        table_type: ``"cow"`` or ``"mor"``.
        table_version: 6, 8 or 9.
        index: how keys are found: ``"bloom"``, ``"simple"``, ``"global_bloom"``, ``"global_simple"``, ``"bucket"``,
            ``"record"`` or ``"partitioned_record"`` (docs/index.md).
        unique: where a key has one row: ``"partition"``, as in Hudi: a key whose partition changes has a row in each; or
            ``"table"``: its row moves. For this the index becomes global.
        indexes: of a metadata table, which the table then has from its beginning: kinds such as ``"column_stats"``,
            ``"record_index"``, or ``{"kind": "secondary_index", "columns": ["city"]}`` (docs/metadata-table.md). None: on an
            object store the list of files and statistics, elsewhere none.
        merge: ``"event_time"`` or ``"commit_time"``, default from `ordering`; or a function ``(older, newer) -> merged``
            over Arrow tables, or its name (docs/merging.md).
        name: default: the last part of the path.
        database: kept in the properties.
        options: settings of the handle that is returned.
        properties: further properties of the table, and settings that it keeps (docs/settings.md); names without ``hoodie.``
            and ``lakefmt.`` before them are your own.
        storage_options: credentials and settings of the store; never kept in the table.
        if_exists: ``"error"`` or ``"open"``.
        kind: ``"keyed"``, or ``"append"``: rows without keys, such as logs; then `properties` also takes Paimon's option
            names (docs/append.md).
        order: of an append table: ``"none"``, the default, or ``"per_bucket"``: rows of a bucket keep their order.
        bucket_key: the columns that tell the bucket of a row; None: there is one bucket.
        buckets: how many buckets there are.

    Raises:
        TableExists: there is one already.
        SchemaMismatch: a column named is not in the schema, or has a type that no table can hold.
        UnknownSetting: a property that neither lakefmt nor Hudi knows (``lakefmt.unknown.options``), or a value it does not take.

    Example:
        >>> t = create_table("memory://doc-create", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> t.read().num_rows
        0
    """
    from lakefmt._core.create import creation_warnings, run_creation, unique_index

    if text_argument(if_exists, "if_exists") not in ("error", "open"):
        raise InvalidInputError(f"unknown if_exists {if_exists!r}: expected 'error' or 'open'")
    if (schema is None) == (data is None):
        raise InvalidInputError("give either schema= or data=")
    check_texts(name=name, database=database)
    store, handle_options = open_store(location_text(path), storage_options), mapping_argument(options, "options")
    client = TableClient(store, with_merger(handle_options, merge), metadata_listing=ListingByMetadata())
    columns = _columns_of(schema, data)
    keyed = {"record_key": record_key, "ordering": ordering, "merge": merge}
    index, properties = unique_index(index, unique, mapping_argument(properties, "properties"))
    bucketing = {"order": order, "bucket_key": bucket_key, "buckets": buckets}
    try:
        warnings = run_creation(
            client,
            columns,
            record_key=record_key,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
            table_version=table_version,
            index=index,
            merge=merge,
            name=name or client.store.url.rstrip("/").rsplit("/", 1)[-1],
            database=database,
            properties=asked_properties(columns, properties, kind, keyed, bucketing),
            settings=resolve_settings(handle_options),
            indexes=indexes,
        )
    except TableExists:
        if if_exists == "error":
            raise
        return Table(client)
    return Table(client, creation_warnings(columns) + warnings)


def _columns_of(schema: pa.Schema | None, data: object) -> pa.Schema:
    from lakefmt._core.write.ingest import open_stream, without_index

    return open_stream(data)[0] if schema is None else without_index(schema)


def open_table(
    path: str | os.PathLike[str],
    *,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
    merge: str | MergeFunction | None = None,
) -> Table:
    """Open a table that exists, of any engine.

    Args:
        path: a local path (a text or a ``pathlib.Path``) or any fsspec URL.
        options: settings of this handle; those of a call go before them.
        storage_options: credentials and settings of the store.
        merge: the function by which the table merges records, or its name; needed for tables made with one.

    Raises:
        TableNotFound: there is none; the message says which other format lies there.
        InvalidInputError: the table merges by something else.
        UnsupportedVersion: it is of a version that lakefmt does not know.

    Example:
        >>> _ = create_table("memory://doc-open", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> open_table("memory://doc-open").schema.names
        ['id']
    """
    handle_options = mapping_argument(options, "options")
    client = TableClient(
        open_store(path, storage_options), with_merger(handle_options, merge), metadata_listing=ListingByMetadata()
    )
    try:
        config = client.open()
    except TableNotFound as error:
        from lakefmt._core.create import foreign_hint  # few programs open what is no table

        hint = foreign_hint(client.store)
        if not hint:
            raise
        raise TableNotFound(
            f"no Hudi table at {client.store.url}: {hint}; create_table makes one in a directory of its own"
        ) from error
    resolve_settings(handle_options, None, config.properties)
    check_merger(config, client.options)
    return Table(client)


class StreamVerbs(ConsumerVerbs, ProducerVerbs):
    """Streams of rows out of a table and into it."""


class Table(ReadingVerbs, CompactionVerbs, UndoVerbs, StreamVerbs, AppendVerbs, CatalogVerbs):
    """One Hudi table. Reading is safe from many threads; writes of one handle queue."""

    def __init__(self, client: TableClient, creation_warnings: tuple[str, ...] = ()) -> None:
        self.client = client
        # The result of the first write through this handle names them.
        self._creation_warnings = creation_warnings
        self._writing = RLock()

    def __repr__(self) -> str:
        return f"Table({self.client.store.url!r})"

    def _repr_html_(self) -> str:
        from lakefmt._core.table_accessors import table_html

        return table_html(self.client, repr(self))

    def __reduce__(self) -> tuple[object, ...]:
        # Without open files and secrets: the process that unpickles uses its own credentials.
        return (_reopen, (self.client.store.url, dict(self.client.options)))

    # --- writing -------------------------------------------------------------------------------------------------

    def upsert(self, data: object, *, partial: bool = False, **call: Unpack[WriteOptions]) -> CommitResult:
        """Insert new keys, update known ones; of two rows with one key the table's rule picks one.

        Args:
            data: anything that holds Arrow data; of an iterator of batches no more is held than a window (docs/settings.md,
                ``lakefmt.write.window.bytes``): more rows wait in temporary files.
            partial: rows may lack columns: stored values stay, new keys get nulls.
            **call: as every writing verb takes them: ``options`` (settings), ``commit_metadata`` (texts kept in the
                commit), ``on_commit`` (called with the result; when it fails the commit stands),
                ``schema_change`` (``"add"`` or ``"strict"``), ``dry_run`` (True returns the plan and touches nothing).

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-upsert", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> t.upsert(pa.table({"id": ["a", "a", "b"]})).num_inserts
            2
        """
        check_keywords(self.upsert, call, _ARGUMENTS)
        return self._write(WriteOperation.UPSERT, data, call, partial=partial)

    def insert(self, data: object, *, drop_duplicates: bool = False, **call: Unpack[WriteOptions]) -> CommitResult:
        """Add rows without looking for their keys; small files are filled first.

        Args:
            data: anything that holds Arrow data.
            drop_duplicates: leave out rows whose key is stored already or comes twice.
            **call: as for :meth:`upsert`.

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-insert", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a"]}))
            >>> t.insert(pa.table({"id": ["a", "b", "b"]}), drop_duplicates=True).num_inserts
            1
        """
        check_keywords(self.insert, call, _ARGUMENTS)
        return self._write(WriteOperation.INSERT, data, call, drop_duplicates=drop_duplicates)

    def bulk_insert(
        self, data: object, *, sort: str = "none", drop_duplicates: bool = False, **call: Unpack[WriteOptions]
    ) -> CommitResult:
        """Add rows as new files, in bounded memory however long the stream is.

        Args:
            data: anything that holds Arrow data; an iterable of batches is never held whole.
            sort: ``"none"``; ``"partition"``: by partition and key within each window of
                ``lakefmt.write.window.bytes``; ``"global"``: over all rows, spilling to temporary files;
                ``"linear:a,b"``, ``"zorder:a,b"``, ``"hilbert:a,b"``: as :meth:`sort_on_write`.
            drop_duplicates: as for :meth:`insert`; then the rows are held in memory.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: an order that there is not.
            SchemaMismatch: the data do not fit; of a stream, nothing that was written before stays.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-bulk", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> t.bulk_insert(pa.table({"id": [f"{n}-{i}" for i in range(9)]}) for n in range(3)).num_inserts
            27
        """
        check_keywords(self.bulk_insert, call, _ARGUMENTS)
        return self._write(WriteOperation.BULK_INSERT, data, call, sort=sort, drop_duplicates=drop_duplicates)

    def sort_on_write(
        self, data: object, columns: Sequence[str] | str, *, order: str = "linear", **call: Unpack[WriteOptions]
    ) -> CommitResult:
        """Add rows as new files, in each partition in the order that :meth:`cluster` gives them; in bounded memory.

        Args:
            data: anything that holds Arrow data; an iterable of batches is never held whole.
            columns: what rows are ordered by.
            order: ``"linear"``, ``"zorder"`` or ``"hilbert"``: how, when there are several columns.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: rows cannot be ordered so.

        Example:
            >>> t = create_table("memory://doc-sorted", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> _ = t.sort_on_write(pa.table({"id": ["b", "c", "a"]}), "id")
            >>> t.read()["id"].to_pylist()
            ['a', 'b', 'c']
        """
        check_keywords(self.sort_on_write, call, _ARGUMENTS)
        # Imported here: few programs order rows by columns.
        from lakefmt._core.write.bulk_insert import sort_text_of

        return self._write(WriteOperation.BULK_INSERT, data, call, sort=sort_text_of(columns, order))

    def insert_overwrite(self, data: object, **call: Unpack[WriteOptions]) -> CommitResult:
        """Replace everything in the partitions that `data` touches by its rows.

        Args:
            data: anything that holds Arrow data.
            **call: as for :meth:`upsert`.

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-overwrite", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> _ = t.insert_overwrite(pa.table({"id": ["c"]}))
            >>> t.read()["id"].to_pylist()
            ['c']
        """
        check_keywords(self.insert_overwrite, call, _ARGUMENTS)
        return self._write(WriteOperation.INSERT_OVERWRITE, data, call)

    def insert_overwrite_table(self, data: object, **call: Unpack[WriteOptions]) -> CommitResult:
        """Replace the whole table's rows by those of `data`.

        Args:
            data: anything that holds Arrow data; without rows the table is empty afterwards.
            **call: as for :meth:`upsert`.

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-overwrite-all", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> _ = t.insert_overwrite_table(pa.table({"id": ["c"]}))
            >>> t.read()["id"].to_pylist()
            ['c']
        """
        check_keywords(self.insert_overwrite_table, call, _ARGUMENTS)
        return self._write(WriteOperation.INSERT_OVERWRITE_TABLE, data, call)

    def delete_partitions(self, partitions: Partitions, **call: Unpack[WriteOptions]) -> CommitResult:
        """Remove whole partitions.

        Args:
            partitions: which: paths (``"city=sf"``), values (``"sf"``, ``date(2026, 1, 1)``), tuples of values or
                mappings (``{"city": "sf"}``), one or several (docs/partitions.md).
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: the table has no such partition, or an empty text is named, whose rows lie with those without a
                value.

        Example:
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = create_table("memory://doc-delete-partitions", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> _ = t.delete_partitions("sf")
            >>> t.read()["id"].to_pylist()
            ['b']
        """
        from lakefmt._core.write.commit.retry import retried
        from lakefmt._core.write.context import parse_call
        from lakefmt._core.write.transaction import WriteTransaction
        from lakefmt._core.write.verbs import delete_partitions

        check_keywords(self.delete_partitions, call, _ARGUMENTS)
        with self._writing:
            request, observer = parse_call(WriteOperation.DELETE_PARTITION, call)
            paths = self.client.at(self.client.load()).chosen_partitions(partitions, must_exist=True)
            if call.get("dry_run"):
                return WriteTransaction.plan_only(self.client, request).plan_delete_partitions(paths)
            result = retried(self.client, request, functools.partial(delete_partitions, self.client, request, paths))
        return self._finished(result, request, observer)

    def update(
        self,
        filter: Filter,
        values: Mapping[str, object] | None = None,
        *,
        expressions: Mapping[str, str] | None = None,
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Set columns of the rows that a filter selects.

        Args:
            filter: as for :meth:`read`.
            values: column → new value, a literal or an Arrow expression over the row. A text is stored as it is.
            expressions: column → SQL expression over the row, such as ``"fare * 2"``.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: a key or partition column is among the columns, a column is not there, or is named twice.
            InvalidExpression: an expression cannot be understood.
            UnsupportedFeature: it is an append table.

        Example:
            >>> t = create_table("memory://doc-update", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"], "v": [1, 2]}))
            >>> t.update("v = 2", {"v": 3}).num_updates
            1
            >>> _ = t.update("v > 1", expressions={"v": "v * 10"})
            >>> t.read()["v"].to_pylist()
            [1, 30]
        """
        from lakefmt._core.index import choose_index
        from lakefmt._core.write.commit.retry import StoredRows
        from lakefmt._core.write.mutations import updated_rows

        check_keywords(self.update, call, _ARGUMENTS)
        given = mapping_argument(values, "values")
        texts = mapping_argument(expressions, "expressions")
        for name, expression in texts.items():
            text_argument(expression, f"expressions[{name!r}]")
        options = mapping_argument(call.get("options"), "options")
        if not given and not texts:
            raise InvalidInputError("update needs the columns to set and their new values, such as {'price': 5}")
        if both := sorted(given.keys() & texts.keys()):
            raise InvalidInputError(f"update is given a value and an expression for {both[0]!r}")

        def changed() -> tuple[pa.Table, TableState]:
            state = self.client.load()
            if append_layout(state.config.properties) is not None:
                raise UnsupportedFeature(
                    "an append table has no keys to update by: delete rows by a filter and append new ones"
                )
            by_stored_key = self.client.key_spec(state.config).auto_keys
            snapshot = Snapshot(self.client, state)
            settings = resolve_settings({**self.client.options, **options}, None, state.config.properties)
            if choose_index(self.client, settings, state.config, state).is_global:  # a key is one row of the table
                rows = snapshot.read(filter=filter, meta_columns=by_stored_key)
            else:
                rows = read_every_copy(snapshot, None, filter, meta_columns=by_stored_key)
            return updated_rows(self.client.at(state), rows, given, texts), state

        return self._write(WriteOperation.UPSERT, StoredRows(changed), call)

    def merge(self, source: object, on: str | Sequence[str] | None = None) -> TableMerge:
        """Begin a merge: clauses say what happens to rows that match rows of a source and to others (docs/merge.md).

        Nothing is read or written before ``execute()``.

        Args:
            source: anything that holds Arrow data; it is held in memory.
            on: which rows match: names of columns that both have; an SQL condition over ``t`` (the table) and ``s`` (the
                source) such as ``"t.id = s.id and s.day = t.day"``; None: the record key.

        Raises:
            InvalidInputError: `on` is neither.

        Example:
            >>> data = pa.table({"id": ["a", "b"], "v": [1, 2]})
            >>> t = create_table("memory://doc-merge-verb", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> merge = t.merge(pa.table({"id": ["a", "b"], "v": [7, 0]}))
            >>> _ = merge.when_matched_delete(where="s.v = 0").when_matched().execute()
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': 7}]
        """
        from lakefmt._core.table_verbs import TableMerge  # few programs merge

        names = None if on is None else on if isinstance(on, str) else texts_argument(on, "on")
        return TableMerge(self.client, self._writing, self._finished, source, names)

    def delete(
        self, what: object, *, partitions: Partitions | None = None, **call: Unpack[WriteOptions]
    ) -> CommitResult:
        """Remove rows, by key or by filter.

        Args:
            what: a filter (SQL text or an Arrow expression): the keys of the rows it selects go, each in its own
                partition; or keys: a list, array or table (composite keys: dicts or columns): they go wherever they
                are, or, where rows with the partition columns were given, in these partitions only. A stream of tables or
                batches may be more than memory.
            partitions: look only in these, as for :meth:`delete_partitions`; one that is not there holds nothing.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidFilter: the filter cannot be understood.
            SchemaMismatch: the keys do not fit the key columns.

        Example:
            >>> t = create_table("memory://doc-delete", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> _ = t.upsert(pa.table({"id": ["a", "b"]}))
            >>> t.delete(["a"]).num_deletes
            1
        """
        from lakefmt._core.write.commit.retry import retried
        from lakefmt._core.write.context import parse_call
        from lakefmt._core.write.mutations import GivenKeys, delete_rows, given_to_delete, take_keys
        from lakefmt._core.write.transaction import WriteTransaction
        from lakefmt._core.write.verbs import delete_keys

        check_keywords(self.delete, call, _ARGUMENTS)
        request, observer = parse_call(WriteOperation.DELETE, call)
        requested_partitions = None if partitions is None else partition_items(partitions)
        # Taken out of whatever holds them before the first attempt: an iterator can be read once.
        dry = bool(call.get("dry_run"))
        window = None if dry else functools.partial(self._window_bytes, request)
        given = None if isinstance(what, str | pc.Expression) else take_keys(what, window)

        def chosen_keys() -> tuple[DeleteKeys, TableState | None]:
            state = self.client.load()
            table_at = self.client.at(state)
            partition_paths = None if requested_partitions is None else table_at.chosen_partitions(requested_partitions)
            if given is not None:
                return given_to_delete(table_at, given, partition_paths, request.options), None
            try:
                chosen_rows = read_every_copy(Snapshot(self.client, state), key_columns(table_at), what)
            except InvalidFilter as error:
                error.args = (f"{error}; a text is a filter, keys are given in a list or by --key", *error.args[1:])
                raise
            return delete_rows(table_at, chosen_rows, partition_paths), state

        def attempt() -> CommitResult | None:
            if given is not None and given.spooled is not None:
                from lakefmt._core.write.grouped_rows import delete_key_stream  # few keys are more than a window

                return delete_key_stream(
                    WriteTransaction.begin(self.client, request), given.spooled, requested_partitions
                )
            keys, based_on = chosen_keys()
            if not len(keys.keys) and not request.commit_metadata:
                return None
            return delete_keys(self.client, request, keys, based_on)

        with self._writing, closing(given or GivenKeys()):
            if dry:
                transaction = WriteTransaction.plan_only(self.client, request)
                return transaction.plan(transaction.locate_deletes(chosen_keys()[0]))
            result = retried(self.client, request, attempt)
        return self._finished(result, request, observer)

    def _write(
        self,
        operation: WriteOperation,
        data: object,
        call: WriteOptions,
        entries: CommitEntries | None = None,
        replaces: Sequence[PartitionPath] = (),
        *,
        partial: bool = False,
        drop_duplicates: bool = False,
        sort: str = "none",
    ) -> CommitResult:
        from lakefmt._core.write.commit.retry import StoredRows, retried
        from lakefmt._core.write.commit.transaction import FirstSchema
        from lakefmt._core.write.context import parse_call
        from lakefmt._core.write.ingest import holds_no_rows
        from lakefmt._core.write.transaction import WriteTransaction
        from lakefmt._core.write.verbs import run_write

        started = perf_counter()
        request, observer = parse_call(
            operation, call, entries, partial=partial, drop_duplicates=drop_duplicates, sort=sort
        )
        request = replace(request, replaces=tuple(replaces)) if replaces else request
        dry = bool(call.get("dry_run"))
        given = data if isinstance(data, StoredRows) else self._given(data, request, dry=dry)
        if dry:
            schema, rows, _ = given.take()
            transaction = WriteTransaction.plan_only(self.client, request, schema)
            return transaction.plan(transaction.locate(transaction.key(rows)))

        first = FirstSchema()

        def attempt() -> CommitResult | None:
            schema, rows, based_on = given.take()
            if holds_no_rows(rows) and not request.keeps_empty:
                return None
            first.rows = rows if isinstance(rows, pa.Table) else given.table
            return run_write(self.client, request, schema, rows, based_on, first)

        with closing(given), self._writing:
            result = retried(self.client, request, attempt, can_repeat=given.can_repeat)
        return self._finished(result, request, observer, perf_counter() - started)

    def _given(self, data: object, request: WriteRequest, *, dry: bool) -> GivenRows:
        """Return the rows of a call; of a stream no more than a window is held in memory."""
        from lakefmt._core.write.commit.retry import GivenRows

        window = None if dry else functools.partial(self._window_bytes, request)
        updates = request.operation is WriteOperation.UPSERT
        return GivenRows(
            data,
            whole=dry or not request.streams,
            memory_bytes=window,
            stored_keys=updates,
            table_schema=lambda: self.schema,
        )

    def _window_bytes(self, request: WriteRequest) -> int:
        return resolve_settings(request.options, self.client.options).integer("lakefmt.write.window.bytes")

    def _finished(
        self,
        result: CommitResult | None,
        request: WriteRequest,
        observer: OnCommit | None,
        seconds: float | None = None,
    ) -> CommitResult:
        """Tell observers of a commit and run the services that follow it; what fails of them is only reported."""
        from lakefmt._core.compaction.scheduler import run_services
        from lakefmt._core.write.commit.transaction import CALLBACK_ON, notify_callbacks

        if result is None:
            return CommitResult(None, operation=request.operation, seconds=seconds or 0.0)
        if result.skipped:
            return result
        if result.instant is None:
            return replace(result, seconds=seconds or result.seconds)
        warnings, self._creation_warnings = (*result.warnings, *self._creation_warnings), ()
        result = replace(result, seconds=seconds or result.seconds, warnings=warnings)
        if observer is not None or CALLBACK_ON in request.options or CALLBACK_ON in self.client.options:
            result = notify_callbacks(self.client, result, request, observer)
        with self._writing:
            failures = run_services(self.client, request.options, beside=self._background_services)
        return replace(result, warnings=(*result.warnings, *failures)) if failures else result

    def clean(
        self, *, schedule: bool = False, dry_run: bool = False, options: Mapping[str, object] | None = None
    ) -> CleanResult:
        """Remove file slices that no readable state, savepoint, pending plan or registered consumer needs.

        Args:
            schedule: only request the plan; the next clean, or another engine's, executes it.
            dry_run: True returns the plan and touches nothing.
            options: settings of the call, such as ``hoodie.clean.commits.retained``.

        Raises:
            WriterActive: another clean is at work.

        Example:
            >>> t = create_table("memory://doc-clean", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> for _ in range(3): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> t.clean(options={"hoodie.clean.commits.retained": 1}).files_deleted
            1
        """
        from lakefmt._core.compaction.clean_run import CleanResult, plan_clean_of, run_clean

        check_flags(schedule=schedule, dry_run=dry_run)
        if dry_run:
            return CleanResult(None, plan_clean_of(self.client, options))
        with self._writing:
            return run_clean(self.client, options, schedule=schedule)

    def archive(self, *, dry_run: bool = False, options: Mapping[str, object] | None = None) -> ArchiveResult:
        """Move old instants from the active timeline into the history, where reads still find them.

        Args:
            dry_run: True returns the plan and touches nothing.
            options: settings of the call, such as ``hoodie.keep.min.commits``: what stays active.

        Raises:
            UnknownSetting: an option that is not known.

        Example:
            >>> t = create_table("memory://doc-archive", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> for _ in range(4): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> len(t.archive(options={"hoodie.keep.min.commits": 1}).plan.instants)
            3
        """
        from lakefmt._core.compaction.archive import ArchiveResult, plan_archive_of, run_archive

        check_flags(dry_run=dry_run)
        if dry_run:
            return ArchiveResult(plan_archive_of(self.client, options))
        with self._writing:
            return run_archive(self.client, options)

    @property
    def services(self) -> TableServices:
        """The table services: ``compact``, ``cluster``, ``clean``, ``archive``, ``vacuum``; called, those in the background.

        Example:
            >>> t = create_table("memory://doc-services-of", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> t.services.clean(dry_run=True).files_deleted
            0
            >>> with t.services():
            ...     _ = t.upsert(pa.table({"id": ["a"]}))
        """
        return TableServices(self, self._background_services)

    @property
    def streams(self) -> StreamVerbs:
        """Streams of rows: ``stream`` reads, ``open_stream`` writes, ``consumers`` are the registered readers."""
        return self

    @property
    def undo(self) -> UndoVerbs:
        """What goes back: ``rollback``, ``savepoint``, ``restore`` and their like."""
        return self

    @property
    def index(self) -> TableIndexes:
        """How this table finds keys, and the indexes of its metadata table: ``explain``, ``list``, ``create``, ``drop``."""
        from lakefmt._core.table_accessors import TableIndexes
        from lakefmt._core.write.mutations import keys_to_delete

        return TableIndexes(self.client, lambda state, keys: keys_to_delete(self.client.at(state), keys), self._writing)

    @property
    def alter(self) -> TableAlter:
        """What becomes of this table's columns: ``add_column``, ``drop_column``, ``rename_column``, ``update_column``."""
        # Imported here: few programs alter a table.
        from lakefmt._core.table_accessors import TableAlter

        return TableAlter(self.client, self._writing, self._finished)

    @property
    def plot(self) -> TablePlot:
        """Pictures of the table as SVG: ``timeline``, ``layout``, ``write_cost``; notebooks show them, files take them."""
        from lakefmt._core.table_accessors import TablePlot  # few programs draw

        return TablePlot(self.client)

    def check(self, level: str = "fast", partitions: Partitions | None = None) -> CheckReport:
        """Look for damage; nothing is changed. The report prints, and its ``plan`` is what :meth:`repair` takes.

        Args:
            level: ``"fast"``: names, timeline, footers; ``"full"``: also key columns (filters, ranges, duplicates).
            partitions: look only at files of these (docs/partitions.md); the timeline is looked at in any case.

        Raises:
            UnsupportedFeature: lakefmt would read such a table wrongly.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-check-verb", data=pa.table({"id": ["a"]}), record_key="id")
            >>> t.check().is_clean
            True
        """
        # Imported here: few programs check, and all wait for the import.
        from lakefmt._core.check.run import check_table

        return check_table(self.client, text_argument(level, "level"), partitions)

    def repair(self, plan: RepairPlan, *, accept_loss: bool = False) -> RepairReport:
        """Execute the plan of a :meth:`check`; safe to repeat, also after a crash.

        Args:
            plan: ``report.plan``. The table is checked again first: what it does not need any more is passed over.
            accept_loss: also run the steps that give rows up; each is marked with what it loses.

        Raises:
            InvalidInputError: `plan` is no plan of a check.
            LakefmtError: the table cannot be checked; what fails in a step is an outcome of the report.

        Example:
            >>> t = create_table("memory://doc-repair", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.upsert(pa.table({"id": ["a"]}))
            >>> t.client.store.delete([".hoodie_partition_metadata"])
            >>> t.read().num_rows, t.repair(t.check().plan).is_clean, t.read().num_rows
            (0, True, 1)
        """
        # Imported here: few programs repair, and all wait for the import.
        from lakefmt._core.check.repair import repair_table
        from lakefmt._core.check.run import check_table

        with self._writing:
            return repair_table(self.client, plan, check_table, accept_loss=accept_loss)

    def vacuum(self, *, orphans: bool = False, older_than: str | float = "1d", dry_run: bool = False) -> VacuumResult:
        """Remove files that failed writes and dead processes left, and that nothing names.

        Args:
            orphans: remove orphan files; has to be said.
            older_than: the least age of a file: seconds, or a text such as ``"1d"``, ``"90m"``.
            dry_run: True returns the plan and removes nothing.

        Raises:
            StateError: something that may name a file cannot be read; nothing was removed.
            InvalidInputError: `older_than` is no age, or nothing was asked for.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-vacuum", data=pa.table({"id": ["a"]}), record_key="id")
            >>> print(t.vacuum(orphans=True, dry_run=True))
            vacuum: remove 0 files, 0 bytes
        """
        # Imported here: few programs remove files, and all wait for the import.
        from lakefmt._core.check.vacuum import parse_age, vacuum_table

        check_flags(orphans=orphans, dry_run=dry_run)
        seconds = parse_age(older_than)
        if not orphans:
            raise InvalidInputError("vacuum removes orphan files only: say orphans=True")
        if dry_run:
            return vacuum_table(self.client, seconds, dry_run=True)
        with self._writing:
            return vacuum_table(self.client, seconds)

    def erase(self, what: object, *, traces: Sequence[str] | None = None) -> ErasureReport:
        """Delete rows and everything that older states, logs, indexes and temporary files hold of them; then prove it.

        Rows are deleted, logs compacted, all file slices but the newest cleaned, orphan files removed and the metadata
        table's indexes made anew. Then every file is searched. The table cannot be read as of earlier moments afterwards.
        Nobody else may write meanwhile (docs/erase.md).

        Args:
            what: as for :meth:`delete`.
            traces: texts that must be nowhere afterwards, such as a mail address; None: the keys of the rows, where a
                filter, a list or an array names them.

        Raises:
            StateError: a savepoint keeps older files, or a stream is open; nothing was deleted.

        Example:
            >>> rows = pa.table({"id": ["ann-1", "bob-2"]})
            >>> t = create_table("memory://doc-erase", data=rows, record_key="id")
            >>> for _ in range(3): _ = t.upsert(rows)
            >>> report = t.erase(["ann-1"])
            >>> report.num_deletes, report.is_clean
            (1, True)
        """
        from lakefmt._core.erase import erase_rows  # few programs erase

        return erase_rows(self, what, traces)

    def advise(self, *, reads_per_commit: float = 1.0, filter_columns: Sequence[str] | None = None) -> TableAdvice:
        """Return which index, table type, services and file sizes are expected to cost least; nothing is changed.

        The table's commits, file names and some footers are read, no row. Costs are those that ``lakefmt bench`` has
        measured on this machine, else shipped ones (docs/choices.md).

        Args:
            reads_per_commit: full reads between two commits.
            filter_columns: columns that filters of readers name: what rows could be clustered by.

        Raises:
            InvalidInputError: the table has no rows or no such column, or a number is out of range.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": [str(n) for n in range(100)]})
            >>> t = lakefmt.create_table("memory://doc-advise", data=data, record_key="id")
            >>> _ = t.upsert(data), t.upsert(data.slice(0, 10))
            >>> advice = t.advise(reads_per_commit=2)
            >>> advice.profile.rows, advice.profile.batch_rows, len(advice.reasons)
            (100, 10, 3)
        """
        # Imported here: few programs ask for advice, and all wait for the import.
        from lakefmt._core.advice.advise import advise_choice
        from lakefmt._core.advice.profiling import load_curves, profile_table

        reads = number_argument(reads_per_commit, "reads_per_commit", 0.0, 1e6)
        columns = [] if filter_columns is None else texts_argument(filter_columns, "filter_columns")
        return advise_choice(profile_table(self.client, reads_per_commit=reads, filter_columns=columns), load_curves())

    def upgrade(self, to: int, *, dry_run: bool = False) -> UpgradePlan:
        """Turn the table into a newer version; nothing but this call ever does. Logs are compacted first.

        Args:
            to: 8 or 9.
            dry_run: True returns the plan and touches nothing.

        Raises:
            UnsupportedFeature: the table has something that the newer version cannot take; nothing was changed.

        Example:
            >>> data = pa.table({"id": ["a"]})
            >>> t = create_table("memory://doc-upgrade", data=data, record_key="id", table_version=8)
            >>> _ = t.upgrade(9)
            >>> t.properties.version.value
            9
        """
        from lakefmt._core.upgrade import upgrade_table

        check_flags(dry_run=dry_run)
        with self._writing:
            return upgrade_table(self.client, to, dry_run=dry_run)


def _reopen(url: str, options: Mapping[str, object]) -> Table:
    return open_table(url, options=options)


class TableServices:
    """The services of a table, each as the verb of the table with its name; see :attr:`Table.services`."""

    def __init__(self, table: Table, background: Callable[[], BackgroundServices]) -> None:
        self.compact = table.compact
        self.cluster = table.cluster
        self.clean = table.clean
        self.archive = table.archive
        self.vacuum = table.vacuum
        self._background = background

    def __call__(self) -> BackgroundServices:
        """Return the background services of the handle, which compact, clean and archive; start them if necessary.

        Commits of the handle only plan services; a thread executes them, as the settings say. The end of a ``with`` block
        waits for what is due. ``lakefmt.write.services.background=true`` does the same without a block.

        Raises:
            ServicesFailed: at the end of the block: a service failed, and no commit has reported it.
        """
        return self._background()
