"""Read a table for Spark: the driver pins a state and cuts it into splits, each task reads one (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakefmt import open_table
from lakefmt.filegroups.table_client import TableState
from lakefmt.read.snapshot import NEXT_START, Snapshot, reopen_snapshot, scan_slices
from lakefmt.read.splits import ReadSplit, plan_splits
from lakefmt.spark.options import ReadCall, parse_read_options
from lakefmt.spark.types import spark_schema
from lakefmt.values import META_COLUMNS

__all__ = ["SparkScan", "open_scan"]

#: Bytes of files that one task reads, as ``spark.sql.files.maxPartitionBytes`` has it.
_SPLIT_BYTES = 128 << 20


@dataclass(frozen=True)
class SparkScan:
    """A query with the state that it reads; pickles without open files.

    Attributes:
        path: the table.
        call: what the options ask for.
        schema: what Spark sees.
        state: the pinned state; None for incremental queries, which one task reads.
        end: of an incremental query: the last commit that was there when it was planned.
    """

    path: str
    call: ReadCall
    schema: pa.Schema
    state: TableState | None = field(default=None, repr=False)
    end: str | None = None

    def splits(self) -> list[ReadSplit | None]:
        """Return what each task reads."""
        if self.state is None:
            return [None]
        return list(plan_splits(self._snapshot(self.state), None, self.call.query, target_bytes=_SPLIT_BYTES))

    def read(self, split: ReadSplit | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in Spark's types."""
        if self.state is None or split is None:
            batches: Iterable[pa.RecordBatch] = self.rows_of_range().to_batches()
        else:
            snapshot, meta = self._snapshot(self.state), self.call.meta_columns
            batches = scan_slices(snapshot, split.slices, None, None, self.call.query, meta_columns=meta)
        for batch in batches:
            yield batch.cast(self.schema)

    def _snapshot(self, state: TableState) -> Snapshot:
        # Contexts that travel carry no secrets of the store, so a task opens the store anew.
        return reopen_snapshot(self.path, self.call.settings, state, self.call.storage)

    def rows_of_range(self) -> pa.Table:
        """Return the rows of an incremental query, in the table's own types."""
        table = open_table(self.path, options=self.call.settings, storage_options=self.call.storage)
        if self.call.query == "cdc":
            return table.changes(self.call.start, self.end)
        return table.incremental(self.call.start, self.end, meta_columns=self.call.meta_columns)


def open_scan(path: str, options: Mapping[str, str]) -> SparkScan:
    """Open a table for one query of Spark; every task reads the state of this moment.

    Raises:
        TableNotFound: there is no table.
        UnknownSetting: an option that is not known.
    """
    call = parse_read_options(options)
    table = open_table(path, options=call.settings, storage_options=call.storage)
    if call.query in ("incremental", "cdc"):
        return _open_range(path, call)
    snapshot = table.snapshot(call.as_of)
    columns = snapshot.schema
    if call.meta_columns:
        columns = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *columns])
    return SparkScan(path, call, spark_schema(columns), snapshot.state)


def _open_range(path: str, call: ReadCall) -> SparkScan:
    """Pin the end of a range: what is committed later belongs to the next one."""
    table = open_table(path, options=call.settings, storage_options=call.storage)
    counted = table.incremental(call.start, call.end, columns=[])
    end = (counted.schema.metadata or {})[NEXT_START].decode()
    nothing = replace(call, start=end)
    schema = SparkScan(path, nothing, pa.schema([]), None, end).rows_of_range().schema
    return SparkScan(path, call, spark_schema(schema), None, end)
