"""The reading methods of ``Table``; reads of the newest state are repeated when a clean has removed their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, cast, overload

import pyarrow as pa

from lakefmt._core.arguments import flag_argument, foreign, library, number_argument, text_argument, texts_argument
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.scan import check_query_type
from lakefmt._core.read.snapshot import Snapshot, bound_of, plan_increment_read, read_increment, scan_limited
from lakefmt._core.values import Moment, Partitions
from lakefmt.errors import InvalidInputError, SnapshotExpired
from lakefmt.options import ReadOptions

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from lakefmt._core.read.dataset import IncrementRows, SnapshotRows, TableDataset
    from lakefmt._core.read.file_selection import ReadReport
    from lakefmt._core.read.stats import TableStats, TimelineView

__all__ = [
    "ReadingVerbs",
    "read_newest",
    "scan_newest",
]

T = TypeVar("T")


def read_newest(read: Callable[[], T]) -> T:
    """Return the result of a read of the newest state.

    A clean removes only files that a newer state does not need. A read with a missing file is
    therefore planned again on the newest state; a file that is missing twice is an error.

    Args:
        read: loads the newest state and reads it.

    Raises:
        SnapshotExpired: two plans need the same missing file.

    Example:
        >>> read_newest(lambda: 3)
        3
    """
    missed = _Missed()
    while True:
        try:
            return read()
        except SnapshotExpired as error:
            missed.note(error)


def scan_newest(scan: Callable[[], pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Return a stream of the newest state; it is planned again until the first row is returned.

    Args:
        scan: loads the newest state and plans a stream of it.

    Raises:
        SnapshotExpired: as for :func:`read_newest`; also when a file disappears after the first
            rows.
    """
    first = read_newest(scan)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        reader, missed = first, _Missed()
        while True:
            has_begun = False
            try:
                for batch in reader:
                    has_begun = True
                    yield batch
                return
            except SnapshotExpired as error:
                if has_begun:
                    raise
                missed.note(error)
            reader = read_newest(scan)
            if not reader.schema.equals(schema):
                raise SnapshotExpired("a column was added while the stream was planned; read again")

    return pa.RecordBatchReader.from_batches(schema, batches())


def _import_duckdb() -> ModuleType:
    import duckdb

    return duckdb


def _import_pandas() -> ModuleType:
    import pandas

    return pandas


def _import_polars() -> ModuleType:
    import polars

    return polars


class _DatasetOptions(TypedDict, total=False):
    """The options of a read that a dataset has, too."""

    columns: Sequence[str] | None
    filter: Filter
    as_of: Moment | None
    query: str
    meta_columns: bool
    schema_of: str


def _in_parts_of(reader: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    """Yield the rows of a stream in tables of one size; the last one may be smaller."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in reader:
        while count + batch.num_rows >= size:
            held.append(batch.slice(0, size - count))
            batch = batch.slice(size - count)
            yield pa.Table.from_batches(held)
            held, count = [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield pa.Table.from_batches(held)


class _Missed:
    """The missing files of earlier plans."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def note(self, error: SnapshotExpired) -> None:
        """Record the missing file; raise if it was missing before."""
        name = str(error).partition(" is gone")[0]
        if name in self._names:
            raise error
        self._names.add(name)


#: The default of `schema_of`.
_SCHEMA_OF_DEFAULT: Final = "then"


class ReadingVerbs(TableVerbs):
    """The methods that read or describe a table; none writes."""

    # --- reading -------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        as_of: Moment | None = None,
        *,
        schema_of: str = _SCHEMA_OF_DEFAULT,
        include_uncommitted: bool = False,
    ) -> Snapshot:
        """Return a pinned view that does not change with later commits.

        Args:
            as_of: an instant, an aware datetime, ISO text, or what a commit returned; None: now.
            schema_of: ``"then"``: the columns that the table had at that moment; ``"now"``: those it has now.
            include_uncommitted: also the rows that streams have flushed and not committed (docs/streams.md).

        Raises:
            InvalidInputError: no such moment, or another word for `schema_of`.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-pinned", data=pa.table({"id": ["a"]}), record_key="id")
            >>> pinned = t.snapshot()
            >>> _ = t.upsert(pa.table({"id": ["a"]}))
            >>> pinned.read().num_rows, t.snapshot().read().num_rows
            (0, 1)
        """
        if schema_of is not _SCHEMA_OF_DEFAULT and text_argument(schema_of, "schema_of") not in (
            _SCHEMA_OF_DEFAULT,
            "now",
        ):
            raise InvalidInputError(f"unknown schema_of {schema_of!r}: expected 'then' or 'now'")
        if include_uncommitted is not False:
            return self._uncommitted(as_of, include_uncommitted)
        state = self.client.load(with_files=as_of is None)
        if as_of is not None:
            columns_of = state.timeline if schema_of == "now" else None
            state = replace(state.as_of(bound_of(self.client.at(state), as_of)), columns_of=columns_of)
        return Snapshot(self.client, state)

    def _uncommitted(self, as_of: object, include_uncommitted: object) -> Snapshot:
        # Imported here: few programs have streams.
        from lakefmt._core.read.uncommitted import load_uncommitted

        if flag_argument(include_uncommitted, "include_uncommitted") and as_of is not None:
            raise InvalidInputError(
                "as_of names a moment of the timeline, and uncommitted rows are on none: give one of both"
            )
        return load_uncommitted(self.client) if include_uncommitted else self.snapshot()

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: Moment | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
        schema_of: str = _SCHEMA_OF_DEFAULT,
        include_uncommitted: bool = False,
        limit: int | None = None,
    ) -> pa.Table:
        """Read rows.

        Args:
            columns: names in the requested order; None: all; an empty list: rows without columns.
            filter: an Arrow expression, DNF tuples or SQL text; pushed down to partitions, files and row groups.
            as_of: read the table as it was at an instant, aware datetime or ISO text, or behind a commit: what it returned.
            query: ``"snapshot"`` or ``"read_optimized"`` (the same for copy-on-write tables).
            meta_columns: also the five ``_hoodie_*`` columns.
            schema_of: with `as_of`: the columns of ``"then"`` or of ``"now"`` (docs/schema.md).
            include_uncommitted: also rows that streams have flushed and not committed (docs/streams.md).
            limit: no more rows than this, whichever are found first; None: all. No more files are opened than they need.

        Raises:
            InvalidInputError: unknown column or query type.
            SnapshotExpired: files of the instant were cleaned; a read of the newest state is
                retried instead.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-read", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.read(filter=[("id", ">", 1)]).num_rows
            2
        """
        if limit is not None:
            return self.scan(
                columns,
                filter,
                as_of,
                query,
                meta_columns=meta_columns,
                schema_of=schema_of,
                include_uncommitted=include_uncommitted,
                limit=limit,
            ).read_all()
        if as_of is not None:
            taken = self.snapshot(as_of, schema_of=schema_of, include_uncommitted=include_uncommitted)
            return taken.read(columns, filter, query, meta_columns=meta_columns)
        return read_newest(
            lambda: self.snapshot(schema_of=schema_of, include_uncommitted=include_uncommitted).read(
                columns, filter, query, meta_columns=meta_columns
            )
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: Moment | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
        schema_of: str = _SCHEMA_OF_DEFAULT,
        include_uncommitted: bool = False,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Stream rows in bounded memory, as :meth:`read` reads them.

        Args:
            columns: names in the requested order; None: all; an empty list: rows without columns.
            filter: an Arrow expression, DNF tuples or SQL text; pushed down to partitions, files and row groups.
            as_of: read the table as it was at an instant, aware datetime or ISO text, or behind a commit: what it returned.
            query: ``"snapshot"`` or ``"read_optimized"`` (the same for copy-on-write tables).
            meta_columns: also the five ``_hoodie_*`` columns.
            schema_of: with `as_of`: the columns of ``"then"`` or of ``"now"`` (docs/schema.md).
            include_uncommitted: also rows that streams have flushed and not committed (docs/streams.md).
            limit: no more rows than this, whichever are found first; None: all. No more files are opened than they need.

        Raises:
            InvalidInputError: unknown column or query type.
            SnapshotExpired: files were cleaned after the first rows (while iterating).

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-scan", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> sum(batch.num_rows for batch in t.scan(filter="id > 1"))
            2
        """
        most = None if limit is None else int(number_argument(limit, "limit", least=0))

        def planned() -> pa.RecordBatchReader:
            taken = self.snapshot(as_of, schema_of=schema_of, include_uncommitted=include_uncommitted)
            if most is None:
                return taken.scan(columns, filter, query, meta_columns=meta_columns)
            return scan_limited(taken, most, columns, filter, query, meta_columns=meta_columns)

        return scan_newest(planned) if as_of is None else planned()

    def explain(self, filter: Filter = None, as_of: Moment | None = None, query: str = "snapshot") -> ReadReport:
        """Tell what a read with a filter would open and what leaves out the rest; no row is read. The report prints.

        Args:
            filter: as for :meth:`read`.
            as_of: as for :meth:`read`.
            query: as for :meth:`read`.

        Raises:
            InvalidFilter: the filter is not valid.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "nyc"]})
            >>> t = lakefmt.create_table("memory://doc-read-report", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> report = t.explain("city = 'sf'")
            >>> [(step.name, step.files) for step in report.steps]
            [('stored', 2), ('partition values', 1), ('footers', 1)]
        """
        from lakefmt._core.read.file_selection import explain_read

        def explain_now() -> ReadReport:
            taken = self.snapshot(as_of)
            return explain_read(taken.client.at(taken.state), filter, query)

        return read_newest(explain_now) if as_of is None else explain_now()

    def incremental(
        self,
        start: Moment,
        end: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        *,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Read the rows written after `start` up to `end`, the latest image of each.

        The schema metadata of the result has ``lakefmt.next_start``, the start of the next pull. Whenever the range ends, its rows
        have the columns that the table has now.

        Args:
            start: exclusive; what a commit returned, or a completion time (in version 6 the requested one); ``"000"``:
                everything.
            end: inclusive; None: now.
            columns: as for :meth:`read`.
            filter: as for :meth:`read`.
            meta_columns: also the five ``_hoodie_*`` columns.

        Raises:
            InvalidInputError: unknown column, or no moment.
            SnapshotExpired: files of the range were cleaned.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-pull", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> first, second = t.insert(pa.table({"id": [1]})), t.insert(pa.table({"id": [2]}))
            >>> t.incremental(first)["id"].to_pylist(), t.incremental("000").num_rows
            ([2], 2)
        """

        def pull() -> pa.Table:
            state = self.client.load(with_files=end is None)
            return read_increment(self.client.at(state), start, end, columns, filter, meta_columns=meta_columns)

        return read_newest(pull) if end is None else pull()

    def changes(
        self,
        start: Moment,
        end: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
    ) -> pa.Table:
        """Read all changes after `start` up to `end`: one row per changed row and commit, in commit order.

        The columns are ``op`` (``i``, ``u`` or ``d``), ``ts_ms`` (the commit's requested time), and
        the row ``before`` and ``after`` as structs. Tables with change capture give their change
        files; for others the states before and after each commit are compared. A key that moves to
        another file group is deleted there and inserted here. The schema metadata of the result has
        ``lakefmt.next_start``, the start of the next pull.

        Args:
            start: exclusive; what a commit returned, or a completion time (in version 6 the requested one); ``"000"``:
                everything.
            end: inclusive; None: now.
            columns: columns of the images; None: all.
            filter: as for :meth:`read`; applies to the row before or after the change.

        Raises:
            SnapshotExpired: files with the changes were cleaned; the error names the oldest commit
                left.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-changes", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> for v in (1, 2): _ = t.upsert(pa.table({"id": ["a"], "v": [v]}))
            >>> [(c["op"], c["before"], c["after"]) for c in t.changes("000", columns=["v"]).to_pylist()]
            [('i', None, {'v': 1}), ('u', {'v': 1}, {'v': 2})]
        """
        from lakefmt._core.read.changes import read_changes

        def pull() -> pa.Table:
            return read_changes(self.client.at(self.client.load()), start, end, columns, filter)

        return read_newest(pull) if end is None else pull()

    # --- lazily --------------------------------------------------------------------------------------------------

    def dataset(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: Moment | None = None,
        query: str = "snapshot",
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        meta_columns: bool = False,
        schema_of: str = _SCHEMA_OF_DEFAULT,
    ) -> TableDataset:
        """Return the table, as it is now or was, as a ``pyarrow.dataset.Dataset``; rows are read when it is scanned.

        DuckDB, Polars, DataFusion and Ibis push columns and filters down into it: only files that may hold rows of the
        filter are opened. Later commits do not change it; when a clean removes its files, it fails.

        Args:
            columns: the only ones; None: all.
            filter: what every row fulfils, as for :meth:`read`.
            as_of: as for :meth:`read`.
            query: as for :meth:`read`.
            start: only rows written after this, as for :meth:`incremental`; None: all rows.
            end: with `start`: only rows written up to this.
            meta_columns: also the five ``_hoodie_*`` columns.
            schema_of: as for :meth:`read`.

        Raises:
            InvalidInputError: unknown column or query type; `end` without `start`, or `start` beside `as_of`.
            InvalidFilter: the filter is not valid.

        Example:
            >>> import lakefmt, pyarrow as pa, pyarrow.compute as pc
            >>> t = lakefmt.create_table("memory://doc-dataset", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.dataset().to_table(filter=pc.field("id") > 1)["id"].to_pylist()
            [2, 3]
        """
        from lakefmt._core.read.dataset import TableDataset  # imports pyarrow.dataset, which is slow

        names = None if columns is None else tuple(texts_argument(columns, "columns"))
        rows: SnapshotRows | IncrementRows
        if start is None:
            rows = self._dataset_rows(names, filter, as_of, query, meta_columns=meta_columns, schema_of=schema_of)
        else:
            if as_of is not None or query != "snapshot":
                raise InvalidInputError("start= reads an increment, which has no as_of= and no other query=")
            rows = self._increment_rows(names, filter, start, end, meta_columns=meta_columns)
        if start is None and end is not None:
            raise InvalidInputError("end= belongs to start=: the table as it was at one moment is as_of=")
        return TableDataset(rows)

    def _dataset_rows(
        self,
        columns: tuple[str, ...] | None = None,
        filter: Filter = None,
        as_of: Moment | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
        schema_of: str = _SCHEMA_OF_DEFAULT,
    ) -> SnapshotRows:
        from lakefmt._core.read.dataset import SnapshotRows

        check_query_type(query)
        return SnapshotRows(self.snapshot(as_of, schema_of=schema_of), columns, filter, query, meta_columns)

    def _increment_rows(
        self,
        columns: tuple[str, ...] | None,
        filter: Filter,
        start: Moment,
        end: Moment | None,
        *,
        meta_columns: bool,
    ) -> IncrementRows:
        from lakefmt._core.read.dataset import IncrementRows

        table_at = self.client.at(self.client.load(with_files=end is None))
        plan = plan_increment_read(table_at, start, end, filter)
        return IncrementRows(self.client, plan, columns, filter, meta_columns)

    def scan_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        as_of: Moment | None = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
        schema_of: str = _SCHEMA_OF_DEFAULT,
    ) -> pl.LazyFrame:
        """Return the table, as it is now or was, as a lazy frame of Polars, which reads only the columns and files it needs.

        Args:
            columns: the only ones; None: all.
            filter: what every row fulfils, as for :meth:`read`.
            as_of: as for :meth:`read`.
            query: as for :meth:`read`.
            meta_columns: also the five ``_hoodie_*`` columns.
            schema_of: as for :meth:`read`.

        Raises:
            InvalidInputError: unknown column or query type.
            InvalidFilter: the filter is not valid.

        Example:
            >>> import lakefmt, polars, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-lazy", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.scan_polars().filter(polars.col("id") > 1).collect()["id"].to_list()
            [2, 3]
        """
        library(_import_polars, "polars", "polars")
        from lakefmt._core.read.polars_scan import scan_polars

        names = None if columns is None else tuple(texts_argument(columns, "columns"))
        rows = self._dataset_rows(names, filter, as_of, query, meta_columns=meta_columns, schema_of=schema_of)
        return scan_polars(rows, self.client.store.url)

    def count(self, filter: Filter = None, as_of: Moment | None = None, query: str = "snapshot") -> int:
        """Return the number of rows, from the footers of files where no row must be read.

        Args:
            filter: only rows that it keeps, as for :meth:`read`.
            as_of: as for :meth:`read`.
            query: as for :meth:`read`.

        Raises:
            InvalidInputError: unknown query type.
            InvalidFilter: the filter is not valid.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-count", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.count(), t.count("id > 1")
            (3, 2)
        """

        def counted() -> int:
            return self._dataset_rows(None, filter, as_of, query).count(None)

        return read_newest(counted) if as_of is None else counted()

    def head(self, limit: int = 5, columns: Sequence[str] | None = None, filter: Filter = None) -> pa.Table:
        """Return some rows, whichever are found first; no more files are opened than they need.

        Args:
            limit: how many.
            columns: as for :meth:`read`.
            filter: as for :meth:`read`.

        Raises:
            InvalidInputError: unknown column.
            InvalidFilter: the filter is not valid.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-head", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
            >>> t.head(2).num_rows
            2
        """
        return self.read(columns, filter, limit=limit)

    # --- other libraries -----------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    @overload
    def to_pandas(self, *, batches: None = None, **call: Unpack[ReadOptions]) -> pd.DataFrame: ...

    @overload
    def to_pandas(self, *, batches: int, **call: Unpack[ReadOptions]) -> Iterator[pd.DataFrame]: ...

    def to_pandas(
        self, *, batches: int | None = None, **call: Unpack[ReadOptions]
    ) -> pd.DataFrame | Iterator[pd.DataFrame]:
        """Read into pandas: into one frame, or into frames of so many rows, one after the other.

        Args:
            batches: rows of a frame, the last one may have fewer; None: one frame of all rows.
            **call: as for :meth:`read`, by name.

        Raises:
            InvalidInputError: unknown column or query type.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-pandas", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> t.to_pandas(filter="id > 1")["id"].tolist()
            [2]
            >>> [len(frame) for frame in t.to_pandas(batches=1)]
            [1, 1]
        """
        library(_import_pandas, "pandas", "pandas")
        if batches is not None:
            size = int(number_argument(batches, "batches", 1))
            return (rows.to_pandas() for rows in _in_parts_of(self.scan(**call), size))
        # Each column is released when it has been converted.
        frame: pd.DataFrame = self.read(**call).to_pandas(self_destruct=True)
        return frame

    def to_polars(self, **call: Unpack[ReadOptions]) -> pl.DataFrame:
        """Read into Polars; :meth:`scan_polars` reads lazily.

        Args:
            **call: as for :meth:`read`, by name.

        Raises:
            InvalidInputError: unknown column or query type.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-polars", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> t.to_polars(filter="id > 1")["id"].to_list()
            [2]
        """
        polars = library(_import_polars, "polars", "polars")
        frame: pl.DataFrame = polars.DataFrame(self.read(**call))
        return frame

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        name: str | None = None,
        **call: Unpack[ReadOptions],
    ) -> Any:
        """Return a relation of DuckDB, or register a view; DuckDB reads the columns and files that a query needs.

        Args:
            connection: of DuckDB; None: its default one.
            name: of a view to register; None: the relation is returned.
            **call: as for :meth:`read`, by name.

        Returns:
            The relation; with a name what DuckDB returns for ``connection.register``.

        Raises:
            InvalidInputError: no columns are requested (DuckDB has no such views), or DuckDB
                refuses the view.

        Example:
            >>> import duckdb, lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-duckdb", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> connection = duckdb.connect()
            >>> _ = t.to_duckdb(connection, "rows", filter="id > 1")
            >>> connection.execute("SELECT * FROM rows").fetchall()
            [(2,)]
        """
        module = library(_import_duckdb, "duckdb", "duckdb")
        view = None if name is None else text_argument(name, "name")
        columns = call.get("columns")
        if columns is not None and not texts_argument(columns, "columns"):
            raise InvalidInputError(
                "columns=[]: DuckDB has no view without columns; count() tells how many rows there are"
            )
        eager = call.get("limit") is not None or call.get("include_uncommitted", False) is not False
        rows: object = self.read(**call) if eager else self._as_dataset(call)
        target = module if connection is None else connection
        if view is None:
            return foreign(lambda: target.from_arrow(rows), "the table cannot be given to DuckDB")
        return foreign(lambda: target.register(view, rows), f"the view {view!r} cannot be registered")

    def _as_dataset(self, call: ReadOptions) -> TableDataset:
        taken = {name: value for name, value in call.items() if name not in ("limit", "include_uncommitted")}
        options = cast("_DatasetOptions", taken)
        return self.dataset(**options)

    # --- looking inside ------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The table's columns without the meta columns."""
        return self.client.at(self.client.load()).schema()

    @property
    def timeline(self) -> TimelineView:
        """The active timeline; prints as a drawing."""
        from lakefmt._core.read.stats import TimelineView

        return TimelineView.load(self.client)

    @property
    def config(self) -> Settings:
        """The settings of this handle; ``config.explain()`` shows where each value comes from."""
        return resolve_settings({}, self.client.options, self.client.load_config().properties)

    @property
    def properties(self) -> TableConfig:
        """The table properties, typed."""
        return self.client.load_config()

    def partitions(self) -> list[str]:
        """Return the partition paths.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-paths", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> sorted(t.partitions())
            ['city=oslo', 'city=sf']
        """
        return [str(p) for p in self.client.listing().partitions()]

    def history(self, *, archived: bool = False, limit: int | None = None) -> pa.Table:
        """Return the timeline as an Arrow table, oldest first: one row for each instant.

        Args:
            archived: also the instants in the archive.
            limit: the number of newest instants; None: all.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-history", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> t.history().select(["action", "operation", "num_inserts"]).to_pylist()
            [{'action': 'commit', 'operation': 'insert', 'num_inserts': 2}]
        """
        from lakefmt._core.read.stats import TimelineView

        return TimelineView.load(self.client, archived=archived, limit=limit).to_arrow()

    def files(self, partitions: Partitions | None = None) -> pa.Table:
        """Return the latest file slices as an Arrow table: one row for each file group, with its base file and logs.

        Args:
            partitions: as for :meth:`file_groups`.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-files", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a"]}))
            >>> t.files().select(["partition", "log_files"]).to_pylist()
            [{'partition': '', 'log_files': []}]
        """
        from lakefmt._core.read.stats import files_table

        return files_table(self.file_groups(partitions))

    def partition_stats(self) -> pa.Table:
        """Return the partitions that hold rows as an Arrow table: file groups, logs, bytes, newest instant.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-parts", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> t.partition_stats().select(["partition", "num_file_groups"]).to_pylist()
            [{'partition': 'city=oslo', 'num_file_groups': 1}, {'partition': 'city=sf', 'num_file_groups': 1}]
        """
        from lakefmt._core.read.stats import partitions_table

        return partitions_table(self.file_groups())

    def schema_history(self) -> pa.Table:
        """Return the commits that changed the columns as an Arrow table, oldest first.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-schemas", data=pa.table({"id": ["a"]}), record_key="id")
            >>> for rows in ({"id": ["a"]}, {"id": ["b"]}, {"id": ["c"], "v": [1]}): _ = t.upsert(pa.table(rows))
            >>> t.schema_history().select(["columns", "added"]).to_pylist()
            [{'columns': ['id'], 'added': ['id']}, {'columns': ['id', 'v'], 'added': ['v']}]
        """
        from lakefmt._core.read.stats import schema_history_table

        return schema_history_table(self.client.at(self.client.load()))

    def file_groups(self, partitions: Partitions | None = None) -> list[FileSlice]:
        """Return the latest file slice of every file group.

        Args:
            partitions: only of these, paths or values (docs/partitions.md); None: of all.

        Raises:
            InvalidInputError: what is given names no partitions.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-slices", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> [(each.partition, len(each.logs)) for each in t.file_groups("sf")]
            [('city=sf', 0)]
        """
        table_at = self.client.at()
        listing = table_at.listing()
        paths = None if partitions is None else table_at.chosen_partitions(partitions, listing=listing)
        return table_at.slices(paths, listing)

    def stats(self) -> TableStats:
        """Return counts and sizes, in bytes, of the latest snapshot, and the compaction backlog per partition.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-stats", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a"]}))
            >>> t.stats().file_groups
            1
        """
        from lakefmt._core.read.stats import describe_slices

        return describe_slices(self.client.at(self.client.load()))
