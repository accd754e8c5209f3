"""Datasets of Ray Data, read from tables and written into them (docs/ray.md). Needs ``lakefmt[ray]``."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.dataset as ds
import ray.data
from ray.data import Datasink, Datasource
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import ReadTask

from lakefmt._core.arguments import instance_argument, shown
from lakefmt._core.read.dataset import TableDataset
from lakefmt._core.table import Table
from lakefmt._core.task_writes import bulk_insert_by_tasks, is_written_by_tasks, pickled_result
from lakefmt._core.values import CommitResult
from lakefmt._core.write.tasks import SharedWrite, TaskWriter
from lakefmt.errors import SchemaMismatch
from lakefmt.options import WriteOptions

__all__ = ["read_ray", "write_ray"]


def read_ray(table: Table, **query: Any) -> ray.data.Dataset:
    """Return the rows of a table as a dataset of Ray; nothing is read before it is asked for.

    Ray's tasks read file slices, logs merged. `columns` and `filter` say what is read: Ray applies its own ``select_columns`` and ``filter``
    to what was read. The table's state is the one at this call.

    Args:
        table: an open table.
        **query: as ``table.dataset`` takes it, such as `columns`, `filter` or `as_of`.

    Raises:
        InvalidInputError: an argument is not valid.
    """
    dataset = instance_argument(table, Table, "table").dataset(**query)
    return ray.data.read_datasource(_TableSource(instance_argument(dataset, TableDataset, "dataset")))


class _TableSource(Datasource):
    """The rows of a dataset, its fragments spread over the tasks."""

    def __init__(self, dataset: TableDataset) -> None:
        super().__init__()
        self._dataset = dataset

    def get_name(self) -> str:
        return "lakefmt"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: object = None
    ) -> list[ReadTask]:
        fragments = list(self._dataset.get_fragments())
        count = max(1, min(parallelism, len(fragments)))
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        schema = self._dataset.schema
        return [
            ReadTask(
                partial(_tables, fragments[number::count], schema),
                metadata,
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for number in range(count)
        ]


def _tables(fragments: Sequence[ds.Fragment], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of fragments, and an empty table with the columns where there is none."""
    is_empty = True
    for fragment in fragments:
        for batch in fragment.to_batches(columns=schema.names):
            if batch.num_rows:
                is_empty = False
                yield pa.Table.from_batches([batch], schema)
    if is_empty:
        yield schema.empty_table()


def write_ray(
    dataset: ray.data.Dataset,
    table: Table,
    operation: str = "upsert",
    *,
    storage_options: Mapping[str, object] | None = None,
    **call: Unpack[WriteOptions],
) -> CommitResult:
    """Write the rows of a dataset of Ray into a table, as one commit.

    ``bulk_insert`` lets Ray's tasks write the files, for its rows make new ones; other operations look keys up, and this process stores
    the rows as Ray's tasks make them. A task that Ray runs again writes its files again, and the commit names those of one of its runs.

    Args:
        dataset: the rows.
        table: an open table.
        operation: ``upsert``, ``insert``, ``bulk_insert``, ``insert_overwrite``, ``insert_overwrite_table``, or ``append``.
        storage_options: credentials of the store for the tasks of a ``bulk_insert``.
        **call: as for ``table.upsert``.

    Raises:
        InvalidInputError: an argument is not valid.
        SchemaMismatch: the rows do not fit, or have values that Arrow has no type for.
        CommitConflict: another writer changed the same file groups meanwhile.
    """
    instance_argument(dataset, ray.data.Dataset, "dataset")
    instance_argument(table, Table, "table")
    is_bulk = is_written_by_tasks(operation)
    schema = _columns_of(dataset)
    if is_bulk:

        def run(shared: SharedWrite) -> Sequence[bytes]:
            sink = _FilesSink(shared, schema, storage_options or {})
            dataset.write_datasink(sink)
            return sink.results

        return bulk_insert_by_tasks(table, schema, run, call, "a dataset")
    parts = dataset.iter_batches(batch_format="pyarrow", batch_size=None)
    rows = pa.RecordBatchReader.from_batches(schema, (batch for part in parts for batch in _fitted(part, schema)))
    result: CommitResult = getattr(table, operation)(rows, **call)
    return result


def _columns_of(dataset: ray.data.Dataset) -> pa.Schema:
    """Return the columns of a dataset.

    Raises:
        SchemaMismatch: it has none, or one whose values Arrow has no type for.
    """
    schema = dataset.schema()
    if schema is None:
        raise SchemaMismatch("the dataset has no rows that tell its columns")
    for name, column_type in zip(schema.names, schema.types, strict=True):
        if not isinstance(column_type, pa.DataType):
            raise SchemaMismatch(f"column {shown(name)} of the dataset has values that Arrow has no type for")
    return pa.schema(list(zip(schema.names, schema.types, strict=True)))


def _fitted(rows: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return rows of a block with the columns of the dataset: blocks may differ in what has no values."""
    return rows.select(schema.names).cast(schema).to_batches()  # type: ignore[no-any-return]


class _FilesSink(Datasink):
    """Writes the files of a bulk insert, each task those of the rows that it has."""

    def __init__(self, shared: SharedWrite, schema: pa.Schema, storage_options: Mapping[str, object]) -> None:
        self._shared, self._rows, self._storage_options = shared, schema, storage_options
        self.results: Sequence[bytes] = ()

    def get_name(self) -> str:
        return "lakefmt"

    def write(self, blocks: Iterable[Any], ctx: object) -> bytes:
        writer = TaskWriter(self._shared, random.getrandbits(60), self._storage_options)
        for block in blocks:
            for batch in _fitted(BlockAccessor.for_block(block).to_arrow(), self._rows):
                writer.write(pa.Table.from_batches([batch]), in_order=False)
        return pickled_result(writer)

    def on_write_complete(self, write_result: Any) -> None:
        self.results = write_result.write_returns
