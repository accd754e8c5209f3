"""Rows of now: a snapshot at one place in the log, read by ranges of pages, and the rows that changed between two snapshots.

The server makes a temporary slot, which names a place in the log and a snapshot of just what was committed before it. So a change
belongs either to the rows or to the log behind them, never to both.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.csv as pcsv

from lakefmt._core.cdc.events import Event, RowChanges, RowKind, SourceName
from lakefmt._core.cdc.postgres.rows import (
    UNSENT,
    ColumnTypes,
    Delete,
    Insert,
    OddValues,
    Update,
    Values,
    snapshot_changes,
    table_of_texts,
)
from lakefmt._core.cdc.postgres.server import (
    PARTITIONED,
    PostgresConnection,
    Server,
    ServerCatalog,
    TableRow,
    ask,
    identifier,
    lsn_number,
    source_errors,
    wait_for,
)
from lakefmt._core.data_classes import replace
from lakefmt.errors import SourceRefused, SourceUnavailable

__all__ = [
    "ExportedSnapshot",
    "TableReader",
    "TouchedRows",
]

_PAGE_BYTES: Final = 8192
_SAVEPOINT: Final = "lakefmt_part"
#: A column or the table is not there: it was, in the snapshot.
_ALTERED: Final = ("42703", "42P01")


class ExportedSnapshot:
    """A transaction that sees what was committed before `lsn`, and nothing else."""

    def __init__(self, server: Server, catalog: ServerCatalog, opened: Callable[[PostgresConnection], None]) -> None:
        """Take one; it waits for the transactions that are open now.

        Args:
            server: the database.
            catalog: another connection's, which knows types already.
            opened: is told of each connection, so that another thread can end it.
        """
        slot = server.connect(replication=True)
        opened(slot)
        try:
            with source_errors("taking a snapshot"), slot.cursor() as cursor:
                name = f"lakefmt_snapshot_{os.getpid()}_{id(self) & 0xFFFFFF:x}"
                statement = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
                wait_for(slot, lambda: cursor.execute(statement))
                _, consistent_point, snapshot, _ = cursor.fetchone()
            self.lsn = lsn_number(consistent_point)
            self.connection = server.connect()
            opened(self.connection)
            with source_errors("opening a snapshot"), self.connection.cursor() as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
        finally:
            slot.close()  # and its slot is gone
        self.catalog = ServerCatalog(self.connection, catalog.as_text, catalog.types)

    def close(self) -> None:
        """End the transaction."""
        with contextlib.suppress(Exception):
            self.connection.close()


class TableReader:
    """The rows of one table in a snapshot, by ranges of pages."""

    def __init__(self, snapshot: ExportedSnapshot, row: TableRow, chunk_bytes: int) -> None:
        self._snapshot, self._chunk_bytes = snapshot, chunk_bytes
        self.row = row
        self.shape = replace(snapshot.catalog.shape_of(row.name, row.columns, row.keys, row.id), known=row.known)
        self._name = identifier(*row.name)
        self._columns = ", ".join(f"t.{identifier(column.name)}" for column in row.columns)
        self.pages = 0  # of a partitioned table: its partitions have them, and all are one part
        self.pages_of_part = 1
        if row.kind == PARTITIONED:
            return
        with self._part():
            sizes = ask(snapshot.connection, "SELECT pg_relation_size(%s), pg_table_size(%s)", row.id, row.id)
        rows_bytes, all_bytes = (int(size or 0) for size in sizes[0])
        self.pages = -(-rows_bytes // _PAGE_BYTES)
        # Large values lie apart: the more of them, the fewer pages of rows make a part.
        share = rows_bytes / all_bytes if all_bytes else 1.0
        self.pages_of_part = max(1, int(chunk_bytes * share) // _PAGE_BYTES)

    def count_from(self, page: int) -> int:
        """Return how many parts there are from a page on."""
        return max(1, -(-(self.pages - page) // self.pages_of_part))

    def parts(self, begin: int) -> Iterator[tuple[int, list[pa.Array]]]:
        """Yield the rows from a page on as texts, with the page that comes next; the last has no end."""
        for leaf in self.row.leaves:
            of_leaf = self.row._replace(id=leaf.id, name=leaf.name, kind="r", file=leaf.file, leaves=())
            for _, strings in TableReader(self._snapshot, of_leaf, self._chunk_bytes).parts(0):
                yield self.pages, strings
        if self.row.kind == PARTITIONED:
            return
        while True:
            end = begin + self.pages_of_part
            is_last = end >= self.pages
            condition = f"t.ctid >= '({begin},0)'" + ("" if is_last else f" AND t.ctid < '({end},0)'")
            yield end, self._copy(f"SELECT {self._columns} FROM ONLY {self._name} t WHERE {condition}")  # noqa: S608  (quoted)
            if is_last:
                return
            begin = end

    def rows_of(self, keys: Sequence[Sequence[str]]) -> list[pa.Array]:
        """Return the rows that have some keys now, as texts."""
        types = {column.name: (column.type_id, column.modifier) for column in self.row.columns}
        names = [f"k{key_number}" for key_number in range(len(self.shape.table.keys))]
        with source_errors("asking for rows by their keys"), self._snapshot.connection.cursor() as cursor:
            casts = []
            for key in self.shape.table.keys:
                cursor.execute("SELECT pg_catalog.format_type(%s, %s)", types[key])
                casts.append(cursor.fetchone()[0])
            values = ", ".join(
                cursor.mogrify(f"%s::text[]::{cast}[]", (list(strings),)).decode("utf-8")
                for cast, strings in zip(casts, zip(*keys, strict=True), strict=True)
            )
        equal = " AND ".join(
            f"t.{identifier(key)} = k.{name}" for key, name in zip(self.shape.table.keys, names, strict=True)
        )
        source = f"FROM ONLY {self._name} t JOIN unnest({values}) AS k({', '.join(names)}) ON {equal}"
        return self._copy(f"SELECT {self._columns} {source}")

    def _copy(self, query: str) -> list[pa.Array]:
        body = io.BytesIO()
        with self._part():
            try:
                connection = self._snapshot.connection
                with source_errors(f"reading {self.row.name}"), connection.cursor() as cursor:
                    statement = f"COPY ({query}) TO STDOUT (FORMAT csv)"
                    wait_for(
                        connection, lambda: cursor.copy_expert(statement, body)
                    )  # it waits for who alters the table
            except SourceRefused as error:
                if getattr(error.__cause__, "pgcode", None) in _ALTERED:
                    raise rewritten(self.row.name) from error
                raise
            # The part's own lock holds the file: an older snapshot sees nothing in a table that was rewritten behind it.
            file = ask(self._snapshot.connection, "SELECT pg_relation_filenode(%s)", self.row.id)[0][0]
        if file != self.row.file:
            raise rewritten(self.row.name)
        return texts_of_csv(body.getbuffer(), len(self.row.columns))

    @contextlib.contextmanager
    def _part(self) -> Iterator[None]:
        """Give the table's lock back at the end: whoever alters it waits for a part, not for all tables."""
        ask(self._snapshot.connection, f"SAVEPOINT {_SAVEPOINT}")
        yield
        ask(self._snapshot.connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")


def rewritten(name: SourceName) -> SourceUnavailable:
    """Return the error of a table that changed under its snapshot."""
    return SourceUnavailable(f"PostgreSQL: {name} was altered or emptied while its rows were read; they are read anew")


def texts_of_csv(body: memoryview, count: int) -> list[pa.Array]:
    """Return the columns of what ``COPY`` wrote, as strings: null is nothing, an empty text is quoted."""
    names = [str(column_number) for column_number in range(count)]
    if not len(body):
        return [pa.array([], pa.string()) for _ in names]
    table = pcsv.read_csv(
        pa.BufferReader(body),
        read_options=pcsv.ReadOptions(column_names=names, block_size=len(body) + 1, use_threads=False),
        parse_options=pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [column.combine_chunks() for column in table.columns]


class TouchedRows:
    """Keys that changes name; each becomes a deletion, and the row that the newer snapshot has, if any."""

    def __init__(self, reader: TableReader, odd: OddValues, position: str) -> None:
        self._reader = reader
        #: The columns that the newer snapshot has.
        self.shape = reader.shape
        self._odd: OddValues = odd
        self._position = position
        self._keys: dict[tuple[str, ...], None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> None:
        """Forget the keys: the table was emptied."""
        self._keys.clear()

    def add(self, shape: ColumnTypes, change: Insert | Update | Delete) -> None:
        """Note the keys of a change."""
        keys = self.shape.table.keys
        names = shape.table.columns.names
        if any(key not in names for key in keys):
            raise SourceRefused(f"{shape.table.name}: its key changed while its rows were read for the first time")
        key_indices = [names.index(key) for key in keys]
        for values in (getattr(change, "old", None), getattr(change, "new", None)):
            key = _key_of(values, key_indices)
            if key is not None:
                self._keys[key] = None

    def take(self) -> Iterator[Event]:
        """Yield the events of the keys noted so far, and begin anew."""
        if not self._keys:
            return
        keys = list(self._keys)
        self._keys.clear()
        yield self._deletions(keys)
        strings = self._reader.rows_of(keys)
        if len(strings[0]):
            yield snapshot_changes(self.shape, strings, self._odd, self._position)

    def _deletions(self, keys: list[tuple[str, ...]]) -> RowChanges:
        shape, count = self.shape, len(keys)
        by_name = dict(zip(shape.table.keys, zip(*keys, strict=True), strict=True))
        strings = [
            pa.array(by_name[name], pa.string()) if name in by_name else pa.nulls(count, pa.string())
            for name in shape.table.columns.names
        ]
        return RowChanges(
            shape.table.name,
            table_of_texts(shape, strings, self._odd),
            pa.repeat(pa.scalar(RowKind.DELETE.value, pa.int8()), count),
            positions=pa.repeat(pa.scalar(self._position), count),
            is_snapshot=True,
        )


def _key_of(values: Values | None, key_indices: list[int]) -> tuple[str, ...] | None:
    """Return the key of an image; None: the server did not send it, for it is that of the other image."""
    if values is None:
        return None
    key = [values[index] for index in key_indices]
    if any(value is None or value is UNSENT for value in key):
        return None
    return tuple(value.decode("utf-8") for value in key if isinstance(value, bytes))
