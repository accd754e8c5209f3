"""The names of pypaimon over lakefmt tables: a program written for it changes its imports (docs/append.md, Builders).

A catalog is a warehouse folder. A scan plans splits, and a read turns them into rows. A batch write collects rows, and one commit adds
them or replaces partitions by them. Stream reads are ``table.stream``. :class:`PredicateBuilder` makes conditions on rows. Rows, files and
rules are those of :class:`lakefmt.Table`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.consumers.planning import in_queue_order
from lakefmt._core.consumers.stream import StreamBatch, TableStream
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.formats.names import has_bucket_number, queue_bucket_of
from lakefmt._core.keys import parse_partition_values
from lakefmt._core.producers.append_tags import Tag
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.undo import RestoreResult
from lakefmt._core.values import CommitResult
from lakefmt.errors import (
    InvalidFilter,
    InvalidInputError,
    SchemaMismatch,
    StateError,
    TableNotFound,
    UnsupportedFeature,
)

__all__ = ["CatalogFactory", "Schema"]

_CATALOG_NAME = re.compile(r"[\w][-\w]{0,127}")


class CatalogFactory:
    """Opens catalogs."""

    @staticmethod
    def create(catalog_options: Mapping[str, str]) -> Catalog:
        """Return the catalog of a folder.

        Args:
            catalog_options: ``warehouse``: a local path or URL; other entries are settings of the store.

        Raises:
            InvalidInputError: there is no warehouse, or the catalog is of another kind than folders.
        """
        options = dict(catalog_options)
        warehouse = options.pop("warehouse", None)
        if not warehouse or options.pop("metastore", "filesystem") != "filesystem":
            raise InvalidInputError(
                "a catalog here is a folder: give its path or URL as 'warehouse', and no other metastore"
            )
        return Catalog(str(warehouse).rstrip("/"), options)


class Catalog:
    """The tables of a folder: ``<warehouse>/<database>.db/<table>``."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, object]) -> None:
        self._warehouse = warehouse
        self._storage = dict(storage_options)

    def create_database(self, name: str, ignore_if_exists: bool, properties: Mapping[str, str] | None = None) -> None:
        """Check the name of a database; its folder is made with its first table."""
        _checked_name(name)

    def create_table(self, identifier: str, schema: Schema, ignore_if_exists: bool) -> None:
        """Make a table: of a schema without primary keys an append table.

        Raises:
            TableExists: there is one already.
        """
        partition_by = list(schema.partition_keys) or None
        path, exists = self._path(identifier), "open" if ignore_if_exists else "error"
        if schema.primary_keys:
            create_table(
                path,
                schema=schema.columns,
                record_key=list(schema.primary_keys),
                partition_by=partition_by,
                properties=dict(schema.options),
                storage_options=self._storage,
                if_exists=exists,
            )
            return
        create_table(
            path,
            schema=schema.columns,
            partition_by=partition_by,
            properties=dict(schema.options),
            storage_options=self._storage,
            if_exists=exists,
            kind="append",
        )

    def get_table(self, identifier: str) -> BuilderTable:
        """Open a table.

        Raises:
            TableNotFound: there is none.
        """
        return BuilderTable(open_table(self._path(identifier), storage_options=self._storage))

    def list_tables(self, database_name: str) -> list[str]:
        """Return the names of the tables of a database."""
        path = f"{self._warehouse}/{_checked_name(database_name)}.db"
        try:
            folders = open_store(path, self._storage).list_directories()
        except TableNotFound:
            return []
        return sorted(folders)

    def _path(self, identifier: str) -> str:
        database, dot, table = str(identifier).partition(".")
        if not dot:
            raise InvalidInputError(f"a table is named 'database.table', not {str(identifier)[:80]!r}")
        return f"{self._warehouse}/{_checked_name(database)}.db/{_checked_name(table)}"


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _CATALOG_NAME.fullmatch(name):
        raise InvalidInputError(f"a name has letters, digits, '_' and '-', unlike {str(name)[:80]!r}")
    return name


@dataclass(frozen=True, slots=True)
class Schema:
    """What a new table is made of.

    Attributes:
        columns: its columns.
        partition_keys: the columns that make partitions.
        primary_keys: the columns that make a row's key; none: an append table.
        options: Paimon's table options, or properties of Hudi and lakefmt.
    """

    columns: pa.Schema
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_pyarrow_schema(
        cls,
        pa_schema: pa.Schema,
        partition_keys: Sequence[str] | None = None,
        primary_keys: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> Schema:
        """Return a schema; the comment is not kept."""
        return cls(pa_schema, tuple(partition_keys or ()), tuple(primary_keys or ()), dict(options or {}))


class BuilderTable:
    """A table with the builders of pypaimon; ``table`` is the lakefmt table below."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def new_batch_write_builder(self) -> BatchWriteBuilder:
        """Return what makes a batch write."""
        return BatchWriteBuilder(self.table)

    def new_read_builder(self) -> ReadBuilder:
        """Return what makes a batch read."""
        return ReadBuilder(self.table)

    def new_stream_read_builder(self) -> StreamReadBuilder:
        """Return what makes a stream read."""
        return StreamReadBuilder(self.table)

    def create_tag(self, tag_name: str, snapshot_id: str | None = None) -> Tag:
        """Name the state of a commit."""
        return self.table.tags.create(tag_name, snapshot_id)

    def delete_tag(self, tag_name: str) -> bool:
        """Delete a tag."""
        self.table.tags.delete(tag_name)
        return True

    def list_tags(self) -> list[str]:
        """Return the names of the tags."""
        return [tag.name for tag in self.table.tags.list()]

    def rollback_to(self, target: str) -> RestoreResult:
        """Bring back the state of a tag or an instant; later commits are undone."""
        if target in self.list_tags():
            return self.table.tags.restore(target)
        return self.table.restore(target)


# --------------------------------------------------------------------------------------------------------- batch writes


class BatchWriteBuilder:
    """Makes the two halves of a batch write."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._replaced: Mapping[str, object] | None = None

    def overwrite(self, static_partition: Mapping[str, object] | None = None) -> BatchWriteBuilder:
        """Replace partitions instead of adding rows.

        Args:
            static_partition: the partition that is replaced; None: those that the rows are for, or all of an unpartitioned
                table.
        """
        self._replaced = dict(static_partition or {})
        return self

    def new_write(self) -> BatchTableWrite:
        """Return the half that takes rows."""
        return BatchTableWrite(self._table.schema)

    def new_commit(self) -> BatchTableCommit:
        """Return the half that makes them visible."""
        return BatchTableCommit(self._table, self._replaced)


class BatchTableWrite:
    """Collects the rows of one commit."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._prepared = False

    def write_arrow(self, table: pa.Table) -> None:
        """Take rows.

        Raises:
            SchemaMismatch: their columns are not those of the table.
        """
        if set(table.column_names) != set(self._schema.names):
            raise SchemaMismatch(f"the rows have the columns {table.column_names}, the table {self._schema.names}")
        try:
            self._tables.append(table.select(self._schema.names).cast(self._schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"the rows do not fit the table: {error}") from None

    def write_arrow_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch of rows."""
        self.write_arrow(pa.Table.from_batches([batch]))

    def write_pandas(self, dataframe: object) -> None:
        """Take a pandas frame."""
        self.write_arrow(pa.Table.from_pandas(dataframe, preserve_index=False))

    def prepare_commit(self) -> list[CommitMessage]:
        """Return the rows for the commit; once.

        Raises:
            StateError: this was asked before.
        """
        if self._prepared:
            raise StateError("a batch write prepares one commit: make another write")
        self._prepared = True
        return [CommitMessage(pa.concat_tables(self._tables))] if self._tables else []

    def close(self) -> None:
        """Forget the rows."""
        self._tables.clear()


class BatchTableCommit:
    """Makes prepared rows visible in one commit."""

    def __init__(self, table: Table, replaced: Mapping[str, object] | None) -> None:
        self._table = table
        self._replaced = replaced
        self._committed = False

    def commit(self, commit_messages: Sequence[CommitMessage]) -> CommitResult:
        """Commit; once.

        Raises:
            StateError: this was asked before.
        """
        if self._committed:
            raise StateError("a batch commit commits once: make another one")
        self._committed = True
        rows = [message.rows for message in commit_messages]
        data = pa.concat_tables(rows) if rows else self._table.schema.empty_table()
        if self._replaced is None:
            return self._table.append(data)
        if not self._replaced:
            return self._table.overwrite(data)
        return self._table.overwrite(data, mode="static", partitions=self._replaced)

    def truncate_table(self) -> CommitResult:
        """Remove every row."""
        return self._table.overwrite(self._table.schema.empty_table(), mode="static")

    def truncate_partitions(self, partitions: Sequence[Mapping[str, object]]) -> CommitResult:
        """Remove every row of some partitions."""
        return self._table.delete_partitions(list(partitions))

    def abort(self, commit_messages: Sequence[CommitMessage]) -> None:
        """Forget prepared rows; nothing of them is stored."""
        self._committed = True

    def close(self) -> None:
        """End the commit."""


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Rows that a write has prepared and no commit has made visible.

    Attributes:
        rows: the rows, in the order in which they came.
    """

    rows: pa.Table


# ---------------------------------------------------------------------------------------------------------- batch reads


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of one file slice.

    Attributes:
        partition: its partition path.
        bucket: its bucket; 0 where there are none.
        files: its file slices; none for rows of a stream.
        rows: rows of a stream.
    """

    partition: str
    bucket: int
    files: tuple[FileSlice, ...] = ()
    rows: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The splits of one look at a table."""

    _splits: tuple[Split, ...]
    snapshot_id: str | None = None

    def splits(self) -> list[Split]:
        """Return them."""
        return list(self._splits)


class ReadBuilder:
    """Makes the two halves of a batch read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._filter: pc.Expression | None = None
        self._columns: list[str] | None = None
        self._limit: int | None = None

    def with_filter(self, predicate: pc.Expression | None) -> ReadBuilder:
        """Read only rows for which a condition holds."""
        self._filter = predicate
        return self

    def with_projection(self, projection: Sequence[str]) -> ReadBuilder:
        """Read only some columns."""
        self._columns = list(projection)
        return self

    def with_limit(self, limit: int) -> ReadBuilder:
        """Read at most this number of rows."""
        if type(limit) is not int or limit < 0:
            raise InvalidInputError("a limit is a number from 0 on")
        self._limit = limit
        return self

    def new_predicate_builder(self) -> PredicateBuilder:
        """Return what makes conditions on the columns of the table."""
        return PredicateBuilder(self._table.schema)

    def new_scan(self) -> TableScan:
        """Return the half that plans."""
        return TableScan(self._table)

    def new_read(self) -> TableRead:
        """Return the half that reads."""
        return TableRead(self._table, self._columns, self._filter, self._limit)


class TableScan:
    """Plans the splits of the newest state of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shard = (0, 1)

    def with_shard(self, idx_of_this_subtask: int, number_of_para_subtasks: int) -> TableScan:
        """Plan only every n-th split, so that several readers share a table."""
        if not 0 <= idx_of_this_subtask < number_of_para_subtasks:
            raise InvalidInputError("a shard is a number from 0 on, below how many there are")
        self._shard = (idx_of_this_subtask, number_of_para_subtasks)
        return self

    def plan(self) -> Plan:
        """Return the splits: one for each file slice, those of a bucket in the order of its rows."""
        client = self._table.client
        state = client.load()
        table_at = client.at(state)
        slices = in_queue_order(table_at, sorted(table_at.slices(), key=lambda each: each.instant))
        slices.sort(key=lambda each: (each.partition, _bucket_of_slice(each)))
        if any(each.logs for each in slices):
            raise UnsupportedFeature("the table has logs: read it by table.read or table.scan, which merge them")
        number, count = self._shard
        splits = tuple(Split(each.partition, _bucket_of_slice(each), (each,)) for each in slices[number::count])
        latest = state.timeline.latest_commit
        return Plan(splits, None if latest is None else latest.time)


def _bucket_of_slice(each: FileSlice) -> int:
    if has_bucket_number(each.file_id):
        return int(each.file_id[:8])
    return queue_bucket_of(each.file_id) or 0


class TableRead:
    """Reads splits."""

    def __init__(
        self, table: Table, columns: list[str] | None, condition: pc.Expression | None, limit: int | None
    ) -> None:
        self._table = table
        self._columns = columns
        self._filter = condition
        self._limit = limit

    def _schema(self) -> pa.Schema:
        schema = self._table.schema
        return schema if self._columns is None else pa.schema([schema.field(name) for name in self._columns])

    def _tables(self, splits: Sequence[Split]) -> Iterator[pa.Table]:
        client = self._table.client
        state = client.load()
        reader, names, left = client.at(state).row_reader(), self._table.schema.names, self._limit
        for split in splits:
            parts = [split.rows] if split.rows is not None else []
            parts += [reader.rows(each.base, names) for each in split.files if each.base is not None]
            for part in parts:
                rows = part.select(names) if self._filter is None else part.select(names).filter(self._filter)
                rows = rows.select(self._schema().names).cast(self._schema())
                rows = rows if left is None else rows.slice(0, left)
                left = left if left is None else left - rows.num_rows
                yield rows

    def to_arrow(self, splits: Sequence[Split]) -> pa.Table:
        """Return the rows of splits as a table."""
        return pa.concat_tables([self._schema().empty_table(), *self._tables(splits)])

    def to_arrow_batch_reader(self, splits: Sequence[Split]) -> pa.RecordBatchReader:
        """Return the rows of splits as a stream of batches."""
        batches = (batch for table in self._tables(splits) for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(self._schema(), batches)

    def to_iterator(self, splits: Sequence[Split]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of splits as tuples."""
        for table in self._tables(splits):
            yield from zip(*(column.to_pylist() for column in table.columns), strict=True)

    def to_pandas(self, splits: Sequence[Split]) -> Any:
        """Return the rows of splits as a pandas frame."""
        return self.to_arrow(splits).to_pandas()

    def to_duckdb(self, splits: Sequence[Split], table_name: str, connection: Any = None) -> Any:
        """Return a DuckDB connection that has the rows of splits as a table."""
        if connection is None:
            import duckdb

            connection = duckdb.connect(":memory:")
        connection.register(table_name, self.to_arrow(splits))
        return connection


def partition_values(table: Table, split: Split) -> dict[str, object]:
    """Return the values of a split's partition, by column."""
    client = table.client
    spec = client.key_spec(client.known_config)
    return parse_partition_values(spec, split.partition, table.schema) or {}


# --------------------------------------------------------------------------------------------------------- stream reads


class StreamReadBuilder:
    """Makes the two halves of a stream read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._columns: list[str] | None = None
        self._filter: pc.Expression | None = None
        self._poll_seconds = 1.0
        self._consumer: str | None = None
        self._buckets: Sequence[int] | Callable[[int | None], bool] | None = None
        self._row_kind = False

    def with_filter(self, predicate: pc.Expression | None) -> StreamReadBuilder:
        """Read only rows for which a condition holds."""
        self._filter = predicate
        return self

    def with_projection(self, projection: Sequence[str]) -> StreamReadBuilder:
        """Read only some columns."""
        self._columns = list(projection)
        return self

    def with_poll_interval_ms(self, poll_interval_ms: int) -> StreamReadBuilder:
        """Look for commits so often."""
        if type(poll_interval_ms) is not int or poll_interval_ms < 1:
            raise InvalidInputError("a poll interval is a number of milliseconds from 1 on")
        self._poll_seconds = poll_interval_ms / 1000
        return self

    def with_consumer_id(self, consumer_id: str) -> StreamReadBuilder:
        """Keep how far this reader has come under a name."""
        self._consumer = consumer_id
        return self

    def with_buckets(self, bucket_ids: Sequence[int]) -> StreamReadBuilder:
        """Read only some buckets."""
        self._buckets = list(bucket_ids)
        return self

    def with_bucket_filter(self, bucket_filter: Callable[[int], bool]) -> StreamReadBuilder:
        """Read only buckets that a function picks."""
        self._buckets = lambda bucket: bucket_filter(bucket or 0)
        return self

    def with_include_row_kind(self, include_row_kind: bool = True) -> StreamReadBuilder:
        """Give every row the column of its kind."""
        self._row_kind = include_row_kind
        return self

    def new_predicate_builder(self) -> PredicateBuilder:
        """Return what makes conditions on the columns of the table."""
        return PredicateBuilder(self._table.schema)

    def new_streaming_scan(self) -> StreamingTableScan:
        """Return the half that waits for commits: the whole table first, then what comes."""
        stream = self._table.stream(
            "full",
            order="bucket" if self._table.properties.properties.get("lakefmt.append.order") == "per_bucket" else None,
            buckets=self._buckets,
            consumer_id=self._consumer,
            mode="exactly_once" if self._consumer is None else "at_least_once",
            poll_interval=self._poll_seconds,
        )
        return StreamingTableScan(stream)

    def new_read(self) -> TableRead:
        """Return the half that reads."""
        return TableRead(self._table, self._columns, self._filter, None)


class StreamingTableScan:
    """Yields a plan for every part of a commit as it completes."""

    def __init__(self, stream: TableStream) -> None:
        self._stream = stream

    @property
    def next_snapshot_id(self) -> object:
        """How far the scan has come: what ``table.stream`` takes as ``{"offset": …}``."""
        return self._stream.position

    def stream_sync(self) -> Iterator[Plan]:
        """Yield plans until the scan is closed."""
        for batch in self._stream:
            yield _plan_of_batch(batch)

    async def stream(self) -> AsyncIterator[Plan]:
        """Yield plans until the scan is closed."""
        async for batch in self._stream:
            yield _plan_of_batch(batch)

    def close(self) -> None:
        """End the scan."""
        self._stream.close()


def _plan_of_batch(batch: StreamBatch) -> Plan:
    rows = pa.Table.from_batches([batch.rows])
    return Plan((Split(batch.partition, batch.bucket or 0, (), rows),), batch.instant)


# ----------------------------------------------------------------------------------------------------------- conditions


class PredicateBuilder:
    """Makes conditions on the columns of a table.

    Example:
        >>> where = PredicateBuilder(pa.schema([("n", pa.int64())]))
        >>> str(where.and_predicates([where.greater_than("n", 1), where.is_not_null("n")]))
        '((n > 1) and invert(is_null(n, {nan_is_null=false})))'
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = frozenset(schema.names)

    def _field(self, name: str) -> pc.Expression:
        if name not in self._names:
            raise InvalidFilter(f"the table has no column {name!r}")
        return pc.field(name)

    def equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field = literal``."""
        return self._field(field) == literal

    def not_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field != literal``."""
        return self._field(field) != literal

    def less_than(self, field: str, literal: object) -> pc.Expression:
        """Return ``field < literal``."""
        return self._field(field) < literal

    def less_or_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field <= literal``."""
        return self._field(field) <= literal

    def greater_than(self, field: str, literal: object) -> pc.Expression:
        """Return ``field > literal``."""
        return self._field(field) > literal

    def greater_or_equal(self, field: str, literal: object) -> pc.Expression:
        """Return ``field >= literal``."""
        return self._field(field) >= literal

    def is_null(self, field: str) -> pc.Expression:
        """Return that a column has no value."""
        return self._field(field).is_null()

    def is_not_null(self, field: str) -> pc.Expression:
        """Return that a column has a value."""
        return ~self._field(field).is_null()

    def is_in(self, field: str, literals: Sequence[object]) -> pc.Expression:
        """Return that a column has one of some values."""
        return self._field(field).isin(list(literals))

    def is_not_in(self, field: str, literals: Sequence[object]) -> pc.Expression:
        """Return that a column has a value, and none of these."""
        return ~self._field(field).isin(list(literals)) & self.is_not_null(field)

    def between(self, field: str, low: object, high: object) -> pc.Expression:
        """Return ``low <= field <= high``."""
        return self.greater_or_equal(field, low) & self.less_or_equal(field, high)

    def and_predicates(self, predicates: Sequence[pc.Expression]) -> pc.Expression | None:
        """Return that all conditions hold; None for none."""
        return reduce(and_, predicates) if predicates else None

    def or_predicates(self, predicates: Sequence[pc.Expression]) -> pc.Expression | None:
        """Return that one of the conditions holds; None for none."""
        return reduce(or_, predicates) if predicates else None
