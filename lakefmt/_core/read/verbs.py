"""The reading methods of ``Table``; reads of the newest state are repeated when a clean has removed their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import pyarrow as pa

from lakefmt._core.arguments import flag_argument, foreign, text_argument
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.snapshot import Snapshot, bound_of, read_increment
from lakefmt._core.values import Moment, Partitions
from lakefmt.errors import InvalidInputError, SnapshotExpired
from lakefmt.options import ReadOptions

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from lakefmt._core.read.skipping.file_selection import ReadReport
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

    def _uncommitted(self, as_of: object, asked: object) -> Snapshot:
        # Imported here: few programs have streams.
        from lakefmt._core.read.streamed.uncommitted import load_uncommitted

        if flag_argument(asked, "include_uncommitted") and as_of is not None:
            raise InvalidInputError(
                "as_of names a moment of the timeline, and uncommitted rows are on none: give one of both"
            )
        return load_uncommitted(self.client) if asked else self.snapshot()

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
        if as_of is not None:
            taken = self.snapshot(as_of, schema_of=schema_of, include_uncommitted=include_uncommitted)
            return taken.scan(columns, filter, query, meta_columns=meta_columns)
        return scan_newest(
            lambda: self.snapshot(schema_of=schema_of, include_uncommitted=include_uncommitted).scan(
                columns, filter, query, meta_columns=meta_columns
            )
        )

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
        from lakefmt._core.read.skipping.file_selection import explain_read

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

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **call: Unpack[ReadOptions]) -> pd.DataFrame:
        """Read into pandas.

        Args:
            **call: as for :meth:`read`, by name.

        Raises:
            InvalidInputError: unknown column or query type.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-pandas", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> t.to_pandas(filter="id > 1")["id"].tolist()
            [2]
        """
        frame: pd.DataFrame = self.read(**call).to_pandas()
        return frame

    def to_polars(self, **call: Unpack[ReadOptions]) -> pl.DataFrame:
        """Read into Polars.

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
        import polars

        return polars.DataFrame(self.read(**call))

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection, name: str, **call: Unpack[ReadOptions]) -> object:
        """Register the rows as a view in DuckDB, and return what DuckDB returns.

        Args:
            connection: of DuckDB.
            name: of the view.
            **call: as for :meth:`read`, by name.

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
        rows, view = self.read(**call), text_argument(name, "name")
        if not rows.num_columns:
            raise InvalidInputError(
                f"columns=[]: DuckDB has no view without columns; read([]) tells the {rows.num_rows} rows"
            )
        return foreign(lambda: connection.register(view, rows), f"the view {view!r} cannot be registered")

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
        from lakefmt._core.read.inspection import history_table
        from lakefmt._core.read.stats import TimelineView

        view = TimelineView.load(self.client, archived=archived, limit=limit)
        return history_table(view, self.client.reading_zone(self.client.known_config))

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
        from lakefmt._core.read.inspection import files_table

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
        from lakefmt._core.read.inspection import partitions_table

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
        from lakefmt._core.read.inspection import schema_history_table

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
        state = self.client.load()
        table_at = self.client.at(state)
        return table_at.slices(None if partitions is None else table_at.chosen_partitions(partitions))

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
