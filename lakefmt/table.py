"""The face: a table's verbs. Each joins the roads below; no rule lives here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config import Settings, resolve_settings
from lakefmt.write.creation import run_creation
from lakefmt.errors import InvalidInputError, TableExists
from lakefmt.filegroups.access import TableAccess
from lakefmt.filegroups.model import FileSlice
from lakefmt.read.inspection import TableStats, TimelineView, describe_slices
from lakefmt.read.filters import Filter
from lakefmt.read.snapshot import Snapshot, read_increment, resolve_bound
from lakefmt.storage.opening import open_store
from lakefmt.table_config import TableConfig
from lakefmt.write.undo import rollback_instant
from lakefmt.values import RECORD_KEY, CommitResult, PartitionPath, WriteOperation
from lakefmt.write.deletes import keys_to_delete
from lakefmt.write.incoming import open_stream, read_all
from lakefmt.write.session import WriteSession

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["Table", "create_table", "open_table"]

OnCommit = Callable[[CommitResult], object]


def create_table(
    path: str,
    *,
    schema: pa.Schema | None = None,
    data: object = None,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str = "cow",
    table_version: int = 8,
    index: str = "bloom",
    merge: str | None = None,
    name: str | None = None,
    database: str | None = None,
    options: Mapping[str, object] | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    if_exists: str = "error",
) -> Table:
    """Create an Apache Hudi table and open it.

    Args:
        path: a local path or any fsspec URL.
        schema: the columns; or `data`, anything Arrow, to take its schema (nothing of it is written).
        record_key: the column or columns that make a row's key.
        partition_by: the column or columns whose values make partition paths; None: unpartitioned.
        ordering: the larger value wins when two rows have one key; None: the later write wins.
        table_type: ``"cow"``.
        table_version: 6, 8 or 9.
        index: how keys are found: ``"bloom"`` or ``"simple"``.
        merge: ``"event_time"`` or ``"commit_time"``; default from `ordering`.
        name: default: the last part of the path.
        database: kept in the properties.
        options: settings of the handle that is returned.
        properties: further properties of the table.
        storage_options: credentials and settings of the store; never kept in the table.
        if_exists: ``"error"`` or ``"open"``.

    Raises:
        TableExists: there is one already.
        SchemaMismatch: a column named is not in the schema, or has a type that no table can hold.

    Example:
        >>> t = create_table("memory://doc-create", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> t.read().num_rows
        0
    """
    if if_exists not in ("error", "open"):
        raise InvalidInputError(f"unknown if_exists {if_exists!r}: expected 'error' or 'open'")
    if (schema is None) == (data is None):
        raise InvalidInputError("give either schema= or data=")
    settings = resolve_settings(options or {})
    access = TableAccess(open_store(path, storage_options), dict(options or {}))
    try:
        run_creation(
            access,
            open_stream(data)[0] if schema is None else schema,
            record_key=record_key,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
            table_version=table_version,
            index=index,
            merge=merge,
            name=name or path.rstrip("/").rsplit("/", 1)[-1],
            database=database,
            properties=properties or {},
            durable=settings.text("lakefmt.durability") == "fsync",
        )
    except TableExists:
        if if_exists == "error":
            raise
    return Table(access, path, storage_options)


def open_table(
    path: str, *, options: Mapping[str, object] | None = None, storage_options: Mapping[str, object] | None = None
) -> Table:
    """Open a table that exists, whoever made it.

    Args:
        path: a local path or any fsspec URL.
        options: settings of this handle; those of a call go before them.
        storage_options: credentials and settings of the store.

    Raises:
        TableNotFound: there is none.
        UnsupportedVersion: it is of a version that lakefmt does not know.

    Example:
        >>> _ = create_table("memory://doc-open", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> open_table("memory://doc-open").schema.names
        ['id']
    """
    access = TableAccess(open_store(path, storage_options), dict(options or {}))
    resolve_settings(options or {}, None, access.load().config.properties)
    return Table(access, path, storage_options)


class Table:
    """One Hudi table. Reading is safe from many threads; writes of one handle queue."""

    def __init__(self, access: TableAccess, path: str, storage_options: Mapping[str, object] | None = None) -> None:
        self.access = access
        self._path = path
        self._storage_options = dict(storage_options or {})
        self._writing = RLock()

    def __repr__(self) -> str:
        return f"Table({self.access.store.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # Without open files, and without secrets: whoever unpickles brings the credentials of its own place.
        return (_reopen, (self.access.store.url, dict(self.access.options)))

    # --- writing -------------------------------------------------------------------------------------------------

    def upsert(self, data: object, *, partial: bool = False, **call: Any) -> CommitResult:
        """Insert new keys, update known ones; of two rows with one key the table's rule picks one.

        Args:
            data: anything that holds Arrow data.
            partial: missing columns are filled with nulls for new keys.
            **call: ``options``, ``commit_metadata``, ``on_commit``, ``schema_change`` as for every writing verb.

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidKey: a key or partition value cannot be used.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> t = create_table("memory://doc-upsert", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> t.upsert(pa.table({"id": ["a", "a", "b"]})).num_inserts
            2
        """
        return self._write(WriteOperation.UPSERT, data, partial=partial, **call)

    def insert(self, data: object, **call: Any) -> CommitResult:
        """Add rows without looking for their keys; small files are filled first. Arguments as for :meth:`upsert`."""
        return self._write(WriteOperation.INSERT, data, **call)

    def bulk_insert(self, data: object, *, sort: str = "none", **call: Any) -> CommitResult:
        """Add rows as new files, in bounded memory however long the stream is.

        Args:
            data: anything that holds Arrow data; an iterable of batches is never held whole.
            sort: ``"none"``, ``"partition"`` or ``"global"``: order by partition and key within each window.
            **call: as for :meth:`upsert`.
        """
        return self._write(WriteOperation.BULK_INSERT, data, sort=sort, **call)

    def delete(self, what: object, *, partitions: Sequence[str] | None = None, **call: Any) -> CommitResult:
        """Remove rows, by key or by filter.

        Args:
            what: a filter (SQL text or an Arrow expression); or keys: a list, array or table (composite keys: dicts
                or columns).
            partitions: look only in these partition paths.
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
        places = None if partitions is None else [PartitionPath(p) for p in partitions]
        with self._writing:
            state = self.access.load()
            if isinstance(what, str | pc.Expression):
                found = Snapshot(self.access, state).read([RECORD_KEY], what)
                keys = found.column(0).combine_chunks()
            else:
                keys = keys_to_delete(self.access, state, what)
            return self._run_delete(keys, places, **call)

    def _run_delete(
        self,
        keys: pa.StringArray,
        places: Sequence[PartitionPath] | None,
        *,
        options: Mapping[str, object] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        on_commit: OnCommit | None = None,
    ) -> CommitResult:
        started = perf_counter()
        if not len(keys) and not commit_metadata:
            return CommitResult(None, operation=WriteOperation.DELETE, seconds=perf_counter() - started)
        session = WriteSession.begin(
            self.access, WriteOperation.DELETE, options or {}, commit_metadata=commit_metadata
        )
        with session.undone_on_error():
            assigned = session.assign_deletes(keys, places)
            if not assigned and not commit_metadata:
                session.abort()
                return CommitResult(None, operation=WriteOperation.DELETE, seconds=perf_counter() - started)
            result = session.commit(session.write_deletes(keys, assigned))
        return _observed(result, on_commit)

    def _write(
        self,
        operation: WriteOperation,
        data: object,
        *,
        options: Mapping[str, object] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        on_commit: OnCommit | None = None,
        schema_change: str = "add",
        partial: bool = False,
        sort: str = "none",
    ) -> CommitResult:
        started = perf_counter()
        if schema_change not in ("add", "strict"):
            raise InvalidInputError(f"unknown schema_change {schema_change!r}: expected 'add' or 'strict'")
        schema, tables = open_stream(data)
        whole = None if operation is WriteOperation.BULK_INSERT else read_all(schema, tables)
        with self._writing:
            if whole is not None and not whole.num_rows and not commit_metadata:
                return CommitResult(None, operation=operation, seconds=perf_counter() - started)
            session = WriteSession.begin(
                self.access,
                operation,
                options or {},
                incoming=schema if schema.names else None,
                schema_change=schema_change,
                partial=partial,
                commit_metadata=commit_metadata,
            )
            with session.undone_on_error():
                if whole is None:
                    statuses, rows = session.stream(tables, sort)
                    if not rows and not commit_metadata:
                        session.abort()
                        return CommitResult(None, operation=operation, seconds=perf_counter() - started)
                else:
                    batch = session.key(whole)
                    statuses = session.write(batch, session.assign_batch(batch))
                result = session.commit(statuses)
        return _observed(result, on_commit)

    def rollback(self, instant: str, *, force: bool = False) -> CommitResult:
        """Undo a pending instant, or the newest completed one.

        Args:
            instant: its requested time.
            force: also when its writer may still be alive.

        Raises:
            InstantNotFound: the timeline has no such instant.
            StateError: it is completed and not the newest.
            WriterActive: its writer may be alive.
        """
        with self._writing:
            return rollback_instant(self.access, instant, force=force)

    # --- reading -------------------------------------------------------------------------------------------------

    def snapshot(self, as_of: str | datetime | None = None) -> Snapshot:
        """Return a pinned view: later commits do not show in it.

        Args:
            as_of: an instant, an aware datetime or ISO text; None: now.
        """
        state = self.access.load()
        if as_of is not None:
            state = state.as_of(resolve_bound(as_of, state.config))
        return Snapshot(self.access, state)

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: str | datetime | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Read rows.

        Args:
            columns: names, in the order wanted; None: all.
            filter: an Arrow expression, DNF tuples or SQL text; pushed down to partitions, files and row groups.
            as_of: read the table as it was at an instant, aware datetime or ISO text.
            query: ``"snapshot"`` or ``"read_optimized"`` (on copy-on-write tables the same).
            meta_columns: also the five ``_hoodie_*`` columns.

        Raises:
            InvalidInputError: a column or query type is not known.
            SnapshotExpired: files were cleaned away meanwhile.

        Example:
            >>> t = create_table("memory://doc-read", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.read(filter=[("id", ">", 1)]).num_rows
            2
        """
        return self.snapshot(as_of).read(columns, filter, query, meta_columns=meta_columns)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: str | datetime | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream rows in bounded memory. Arguments as for :meth:`read`."""
        return self.snapshot(as_of).scan(columns, filter, query, meta_columns=meta_columns)

    def incremental(
        self,
        start: str | datetime,
        end: str | datetime | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        *,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Read the rows written after `start` up to `end`, the latest image of each.

        The answer's schema metadata carries ``lakefmt.next_start``: where the next pull begins.

        Args:
            start: exclusive; completion time (requested time in version 6), ``"000"`` for everything.
            end: inclusive; None: now.
            columns: as for :meth:`read`.
            filter: as for :meth:`read`.
            meta_columns: also the five ``_hoodie_*`` columns.
        """
        return read_increment(self.access, self.access.load(), start, end, columns, filter, meta_columns=meta_columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **arguments: Any) -> pd.DataFrame:
        """Read into pandas; arguments as for :meth:`read`."""
        return self.read(**arguments).to_pandas()

    def to_polars(self, **arguments: Any) -> pl.DataFrame:
        """Read into Polars; arguments as for :meth:`read`."""
        import polars

        frame = polars.from_arrow(self.read(**arguments))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection, name: str, **arguments: Any) -> object:
        """Register the rows as a view in DuckDB; arguments as for :meth:`read`."""
        return connection.register(name, self.read(**arguments))

    # --- looking inside ------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without the meta columns."""
        return self.access.schema(self.access.load())

    @property
    def timeline(self) -> TimelineView:
        """What happened and what is pending; prints as a drawing."""
        return TimelineView.load(self.access)

    @property
    def config(self) -> Settings:
        """The settings of this handle; ``config.explain()`` says where each value comes from."""
        return resolve_settings({}, self.access.options, self.access.load_config().properties)

    @property
    def properties(self) -> TableConfig:
        """The table's properties, typed."""
        return self.access.load_config()

    def partitions(self) -> list[str]:
        """Return the partition paths."""
        return [str(p) for p in self.access.listing().partitions()]

    def file_groups(self, partitions: Sequence[str] | None = None) -> list[FileSlice]:
        """Return the latest file slice of every file group."""
        wanted = None if partitions is None else [PartitionPath(p) for p in partitions]
        return self.access.slices(self.access.load(), wanted)

    def stats(self) -> TableStats:
        """Return counts and sizes of the latest snapshot."""
        return describe_slices(self.access, self.access.load())


def _reopen(url: str, options: Mapping[str, object]) -> Table:
    return open_table(url, options=options)


def _observed(result: CommitResult, on_commit: OnCommit | None) -> CommitResult:
    if on_commit is None:
        return result
    try:
        on_commit(result)
    except Exception as error:  # noqa: BLE001 - the commit stands whatever its observer does
        return replace(result, warnings=(*result.warnings, f"on_commit failed: {type(error).__name__}: {error}"))
    return result
