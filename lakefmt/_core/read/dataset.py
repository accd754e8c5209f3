"""A table as a dataset of Arrow, for engines that push columns and filters down: DuckDB, Polars, DataFusion, Ibis (effects).

Engines trust a dataset: they do not apply again a filter that they handed over. So a scan returns exactly the rows that the
filter keeps, whatever is pruned by partitions, statistics and indexes before; and what reaches the dataset by another way
than its own methods fails instead of reading something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.filter_terms import Condition
from lakefmt._core.read.filters import Filter, filter_columns, parse_filter
from lakefmt._core.read.scan import (
    BATCH_ROWS,
    Query,
    check_filled,
    count_files,
    file_fragments,
    plain_scanner,
    plan_query,
)
from lakefmt._core.read.snapshot import (
    IncrementPlan,
    Snapshot,
    pinned_table,
    planned_files,
    read_planned_increment,
    reopen_snapshot,
    scan_files,
    scan_files_in_turn,
)
from lakefmt.errors import InvalidInputError

__all__ = ["AnyScanner", "BatchScanner", "DatasetRows", "IncrementRows", "SnapshotRows", "TableDataset"]

#: Options of a scan that are passed on to Arrow.
_SCAN_OPTIONS: Final = frozenset({"batch_size", "batch_readahead", "fragment_readahead", "use_threads", "memory_pool"})


class BatchScanner:
    """What ``pyarrow.dataset.Scanner`` offers, over batches that are read one after the other.

    Arrow's own scanner of a stream reads ahead in a thread. One that is not read to its end, as a LIMIT leaves it, would run
    Python code in that thread while the interpreter ends.
    """

    def __init__(self, open_reader: Callable[[], pa.RecordBatchReader]) -> None:
        self._open = open_reader

    @cached_property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._open().schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the rows."""
        return self._open()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return iter(self._open())

    def to_table(self) -> pa.Table:
        """Return the rows."""
        return self._open().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        reader = self._open()
        parts: list[pa.RecordBatch] = []
        while num_rows > 0 and (batch := next(reader, None)) is not None:  # no batch is read that is not needed
            parts.append(batch.slice(0, num_rows))
            num_rows -= batch.num_rows
        return pa.Table.from_batches(parts, reader.schema)

    def take(self, indices: object) -> pa.Table:
        """Return rows by their positions."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self._open())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._open().__arrow_c_stream__(requested_schema)


AnyScanner: TypeAlias = "ds.Scanner | BatchScanner"
#: What a scan returns: names of columns, or expressions by the names of their results; None: all columns.
Columns: TypeAlias = "Sequence[str] | dict[str, pc.Expression] | None"


class DatasetRows:
    """The rows of a dataset: what is read with some columns and a condition. The base of the two below."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the meta columns where they were asked for."""
        raise NotImplementedError

    def condition(self, filter: Filter) -> Condition | None:
        """Return the condition of a filter over the columns."""
        return parse_filter(filter, self.schema)

    def scanner(self, columns: Sequence[str], condition: Condition | None, options: Mapping[str, object]) -> AnyScanner:
        """Return a scanner of the rows that fulfil a condition."""
        raise NotImplementedError

    def count(self, condition: Condition | None) -> int:
        """Return how many rows fulfil a condition."""
        raise NotImplementedError

    def fragments(self, condition: Condition | None) -> list[ds.Fragment]:
        """Return parts of which every row that fulfils a condition is in one; each has all columns."""
        raise NotImplementedError


@dataclass(frozen=True)
class SnapshotRows(DatasetRows):
    """The rows of a snapshot.

    Attributes:
        snapshot: the table at one moment.
        columns: the only ones; None: all.
        filter: what a row must fulfil in addition to pushed conditions.
        query: ``"snapshot"`` or ``"read_optimized"``.
        meta_columns: also the five ``_hoodie_*`` columns.
    """

    snapshot: Snapshot
    columns: tuple[str, ...] | None = None
    filter: Filter = None
    query: str = "snapshot"
    meta_columns: bool = False

    @cached_property
    def _everything(self) -> Query:
        """Return the query of all rows."""
        columns = pinned_table(self.snapshot).columns()
        return plan_query(
            self.snapshot.state.config, columns, self.columns, self.filter, meta_columns=self.meta_columns
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._everything.result_schema

    def plan(self, columns: Sequence[str], condition: Condition | None) -> Query:
        """Return the query of some columns of the rows that fulfil a condition."""
        own = self._everything.condition
        both = condition if own is None else own if condition is None else own & condition
        query = replace(self._everything, columns=tuple(columns), condition=both)
        check_filled(self.snapshot.state.config, query)
        return query

    def files(self, plan: Query) -> tuple[list[BaseFile], list[FileSlice]]:
        """Return the base files of a query to read directly, and the slices to merge."""
        return planned_files(self.snapshot, plan, self.query)

    def scanner(self, columns: Sequence[str], condition: Condition | None, options: Mapping[str, object]) -> AnyScanner:
        """Return a scanner of Arrow's own where it can read the files, else of merged rows."""
        plan = self.plan(columns, condition)
        files, logged = self.files(plan)
        if not files and not logged:
            return ds.InMemoryDataset(plan.result_schema.empty_table()).scanner()
        if options.get("fragment_readahead") == 1:
            # Asked for the first rows only: Arrow's own scanner reads ahead all the same.
            return BatchScanner(lambda: scan_files_in_turn(self.snapshot, plan, files, logged))
        plain = None if logged else plain_scanner(pinned_table(self.snapshot), files, plan, **options)
        return BatchScanner(lambda: scan_files(self.snapshot, plan, files, logged)) if plain is None else plain

    def count(self, condition: Condition | None) -> int:
        """Return how many rows fulfil a condition: by footers where no row must be read."""
        plan = self.plan([], condition)
        files, logged = self.files(plan)
        total = count_files(pinned_table(self.snapshot), files, plan) if files else 0
        if not logged:
            return total
        from lakefmt._core.read.mor_scan import count_merged  # brings the formats of logs along

        return total + count_merged(pinned_table(self.snapshot), logged, plan)

    def fragments(self, condition: Condition | None) -> list[ds.Fragment]:
        """Return the fragments of files that Arrow reads as they are; other slices as files that are made when opened."""
        plan = self.plan(self.schema.names, condition)
        files, logged = self.files(plan)
        plain = (
            {} if self._everything.condition is not None else file_fragments(pinned_table(self.snapshot), files, plan)
        )
        others = [FileSlice(each.partition, each.file_id, each.instant, each) for each in files if each not in plain]
        handler = _MergedSlices(self.snapshot, self._everything, [*others, *logged])
        layout, system = ds.IpcFileFormat(), pafs.PyFileSystem(handler)
        return [*plain.values(), *(layout.make_fragment(name, system) for name in handler.names)]


@dataclass(frozen=True)
class IncrementRows(DatasetRows):
    """The rows that some commits wrote.

    Attributes:
        client: the table.
        plan: the files and commits.
        columns: the only ones; None: all.
        filter: what a row must fulfil in addition to pushed conditions.
        meta_columns: also the five ``_hoodie_*`` columns.
    """

    client: TableClient
    plan: IncrementPlan
    columns: tuple[str, ...] | None = None
    filter: Filter = None
    meta_columns: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        store, options = self.client.store.url, dict(self.client.options)
        return (_reopen_increment, (store, options, self.plan, self.columns, self.filter, self.meta_columns))

    @cached_property
    def _everything(self) -> Query:
        """Return the query of all rows."""
        columns = self.client.at(self.plan.state).schema()
        return plan_query(self.plan.state.config, columns, self.columns, self.filter, meta_columns=self.meta_columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._everything.result_schema

    def _rows(self, columns: Sequence[str], condition: Condition | None) -> pa.Table:
        own = self._everything.condition
        both = condition if own is None else own if condition is None else own & condition
        exact = None if both is None else both.exact
        return read_planned_increment(self.client, self.plan, self.plan.slices, list(columns), exact)

    def scanner(self, columns: Sequence[str], condition: Condition | None, options: Mapping[str, object]) -> AnyScanner:
        """Return a scanner of the rows of the increment."""
        sizes = {name: value for name, value in options.items() if name == "batch_size"}
        return ds.InMemoryDataset(self._rows(columns, condition)).scanner(**sizes)

    def count(self, condition: Condition | None) -> int:
        """Return how many rows fulfil a condition."""
        return int(self._rows([], condition).num_rows)

    def fragments(self, condition: Condition | None) -> list[ds.Fragment]:
        """Return the rows of the increment as one fragment."""
        return list(ds.InMemoryDataset(self._rows(self.schema.names, condition)).get_fragments())


def _reopen_increment(url: str, options: Mapping[str, object], plan: IncrementPlan, *rest: Any) -> IncrementRows:
    return IncrementRows(reopen_snapshot(url, options, plan.state).client, plan, *rest)


_THREADS: Final = Lock()


@contextmanager
def _one_more_thread() -> Iterator[None]:
    """Give Arrow one more thread while a slice is read within one of its own.

    Arrow opens a file on a thread of its pool, and what reads the slice waits for another one. Where all wait, which one processor is
    enough for, no read would ever end.
    """
    with _THREADS:
        pa.set_cpu_count(pa.cpu_count() + 1)
    try:
        yield
    finally:
        with _THREADS:
            pa.set_cpu_count(max(1, pa.cpu_count() - 1))


class _MergedSlices(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Files in memory: the rows of file slices, merged when a file is opened."""

    def __init__(self, snapshot: Snapshot, plan: Query, slices: Sequence[FileSlice]) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._slices = {f"{number}.arrow": each for number, each in enumerate(slices)}

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return list(self._slices)

    def _bytes(self, path: str) -> pa.Buffer:
        each = self._slices[path]
        files = [each.base] if each.base is not None and not each.logs else []
        sink = pa.BufferOutputStream()
        with _one_more_thread():
            rows = scan_files(self._snapshot, self._plan, files, [each] if each.logs else [])
            with pa.ipc.new_file(sink, rows.schema) as writer:
                for batch in rows:
                    writer.write_batch(batch)
        return sink.getvalue()

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Merge a slice."""
        return pa.PythonFile(pa.BufferReader(self._bytes(path)), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Merge a slice."""
        return self.open_input_file(path)

    def get_type_name(self) -> str:
        """Name this file system."""
        return "lakefmt+merged"

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Tell that the files are there; their sizes are not known before they are made."""
        return [pafs.FileInfo(path, pafs.FileType.File) for path in paths]

    def normalize_path(self, path: str) -> str:
        """Return the path."""
        return path

    def _refuse(self, *_arguments: object, **_named: object) -> NoReturn:
        raise NotImplementedError("merged file slices are only read")

    get_file_info_selector = _refuse
    create_dir = _refuse
    delete_dir = _refuse
    delete_dir_contents = _refuse
    delete_root_dir_contents = _refuse
    delete_file = _refuse
    move = _refuse
    copy_file = _refuse
    open_output_stream = _refuse
    open_append_stream = _refuse


class _NoFiles(_MergedSlices):
    """The files of the part of a dataset that lies in C++: reading them tells to take another way."""

    def __init__(self) -> None:
        self._slices = {}

    def _bytes(self, path: str) -> pa.Buffer:
        raise OSError(
            "a dataset of lakefmt is read by its own methods, such as scanner, to_table, to_batches and get_fragments: "
            "hand those to what reads it here"
        )


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A table, at one moment, as a dataset of Arrow.

    DuckDB, Polars (``scan_pyarrow_dataset``), DataFusion and Ibis take it. ``Table.dataset`` makes it.
    """

    def __init__(self, rows: DatasetRows, pushed: pc.Expression | None = None) -> None:
        schema = rows.schema
        layout, system = ds.IpcFileFormat(), pafs.PyFileSystem(_NoFiles())
        super().__init__([layout.make_fragment("dataset.arrow", system)], schema, layout, system)
        self._rows = rows
        self._pushed = pushed

    def _condition(self, filter: pc.Expression | None) -> Condition | None:
        return self._rows.condition(_both(self._pushed, filter))

    def __reduce__(self) -> tuple[object, ...]:
        return (TableDataset, (self._rows, self._pushed))

    def __repr__(self) -> str:
        return f"TableDataset({', '.join(self.schema.names)})"

    @property
    def files(self) -> list[str]:
        """The paths of the Parquet files that are read as they are; merged slices have none."""
        return [
            each.path
            for each in self._rows.fragments(self._condition(None))
            if isinstance(each, ds.ParquetFileFragment)
        ]

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        **options: object,
    ) -> AnyScanner:
        """Return a scanner of exactly the rows that a filter keeps.

        Args:
            columns: names, or expressions by the names of their results; None: all columns.
            filter: an Arrow expression; its columns need not be among `columns`.
            **options: of ``pyarrow.dataset.Dataset.scanner``.

        Raises:
            InvalidInputError: an unknown column.
            InvalidFilter: the filter does not fit the columns.
        """
        condition = self._condition(filter)
        passed = {name: value for name, value in options.items() if name in _SCAN_OPTIONS and value is not None}
        passed.setdefault("batch_size", BATCH_ROWS)
        if isinstance(columns, dict):
            stored = self._rows.scanner(_named_in(columns.values(), self.schema), condition, passed)
            return BatchScanner(lambda: _projected(stored.to_reader(), columns))
        names = self.schema.names if columns is None else list(columns)
        known = set(self.schema.names)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidInputError(f"no column {', '.join(map(repr, unknown))}; the dataset has {self.schema.names}")
        scanner = self._rows.scanner(list(dict.fromkeys(names)), condition, passed)
        if len({*names}) < len(names):
            return BatchScanner(lambda: _projected(scanner.to_reader(), names))
        return scanner

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **options: object) -> pa.Table:
        """Return the rows that a filter keeps; arguments as for :meth:`scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: object
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a filter keeps; arguments as for :meth:`scanner`."""
        yield from self.scanner(columns, filter, **options).to_batches()

    def head(
        self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **options: object
    ) -> pa.Table:
        """Return the first rows that a filter keeps; arguments as for :meth:`scanner`."""
        return self.scanner(columns, filter, **{"batch_readahead": 1, "fragment_readahead": 1, **options}).head(
            num_rows
        )

    def take(
        self, indices: object, columns: Columns = None, filter: pc.Expression | None = None, **options: object
    ) -> pa.Table:
        """Return rows by their positions; arguments as for :meth:`scanner`."""
        return self.to_table(columns, filter, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_options: object) -> int:
        """Return how many rows a filter keeps: by footers where no row must be read."""
        return self._rows.count(self._condition(filter))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """Yield parts of the table; a filter leaves out those without a row that it keeps, and no rows of others."""
        if self._pushed is not None:
            rows = self.to_table(filter=filter)
            return iter(ds.InMemoryDataset(rows).get_fragments())
        return iter(self._rows.fragments(self._condition(filter)))

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return the dataset of the rows that a filter keeps."""
        return TableDataset(self._rows, _both(self._pushed, expression))

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Return the rows, in memory, in a schema."""
        return ds.InMemoryDataset(self.to_table()).replace_schema(schema)

    def sort_by(self, sorting: object, **options: object) -> ds.InMemoryDataset:
        """Return the rows, in memory, in an order."""
        return ds.InMemoryDataset(self.to_table()).sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, *arguments: object, **options: object) -> ds.InMemoryDataset:
        """Join the rows, in memory, with those of another dataset."""
        return ds.InMemoryDataset(self.to_table()).join(
            ds.InMemoryDataset(right_dataset.to_table()), *arguments, **options
        )

    def join_asof(self, right_dataset: ds.Dataset, *arguments: object, **options: object) -> ds.InMemoryDataset:
        """Join the rows, in memory, with those of another dataset that are nearest."""
        right = ds.InMemoryDataset(right_dataset.to_table())
        return ds.InMemoryDataset(self.to_table()).join_asof(right, *arguments, **options)


def _both(first: pc.Expression | None, second: pc.Expression | None) -> pc.Expression | None:
    return second if first is None else first if second is None else first & second


def _projected(reader: pa.RecordBatchReader, columns: Sequence[str] | dict[str, pc.Expression]) -> pa.RecordBatchReader:
    """Compute columns, or name some more than once, batch by batch."""

    def of(batch: pa.RecordBatch | pa.Table) -> pa.Table:
        if isinstance(columns, dict):
            return ds.InMemoryDataset(batch).to_table(columns=columns, use_threads=False)
        return pa.table([batch.column(name) for name in columns], names=columns)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield from of(batch).to_batches()

    return pa.RecordBatchReader.from_batches(of(reader.schema.empty_table()).schema, batches())


def _named_in(expressions: Iterable[pc.Expression], schema: pa.Schema) -> list[str]:
    """Return the columns that expressions use."""
    used: set[str] = set()
    for each in expressions:
        used |= filter_columns(each.is_valid(), schema)
    return [name for name in schema.names if name in used]
