"""Builders of batch reads: a scan plans splits, a read turns them into rows (effects)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.builders.predicates import PredicateBuilder
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.queue_order import in_queue_order
from lakefmt.formats.names import has_bucket_number
from lakefmt.formats.queue_names import queue_bucket_of
from lakefmt.keys import parse_partition_values
from lakefmt.table import Table

__all__ = ["Plan", "ReadBuilder", "Split", "TableRead", "TableScan"]


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
        slices = in_queue_order(client, state, sorted(client.slices(state), key=lambda each: each.instant))
        slices.sort(key=lambda each: (each.partition, _bucket(each)))
        if any(each.logs for each in slices):
            raise UnsupportedFeature("the table has logs: read it by table.read or table.scan, which merge them")
        number, count = self._shard
        splits = tuple(Split(each.partition, _bucket(each), (each,)) for each in slices[number::count])
        latest = state.timeline.latest_commit
        return Plan(splits, None if latest is None else latest.time)


def _bucket(each: FileSlice) -> int:
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
        reader, names, left = client.row_reader(state), self._table.schema.names, self._limit
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
