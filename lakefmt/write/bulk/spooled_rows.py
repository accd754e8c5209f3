"""Rows of a stream that are more than a window of memory, kept in a temporary file so that they can be read again (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, Final

import pyarrow as pa

from lakefmt.errors import SchemaMismatch
from lakefmt.sorting.external_sort import spilling
from lakefmt.write.ingest import read_all

__all__ = ["SpooledRows", "read_or_spool"]

#: Bytes of rows that are read from the file at a time.
_BATCH_BYTES: Final = 4 << 20


class SpooledRows:
    """The rows of a stream in a temporary file; each iteration begins with the first row.

    Args:
        schema: the columns.
        tables: the rows. They are read here, once.

    Raises:
        SchemaMismatch: a later table has other columns than the first.
        StorageError: the temporary directory could not take the rows.

    Example:
        >>> spooled = SpooledRows(pa.schema([("n", pa.int64())]), [pa.table({"n": [1, 2]}), pa.table({"n": [3]})])
        >>> [[table["n"].to_pylist() for table in spooled] for _ in range(2)]
        [[[1, 2], [3]], [[1, 2], [3]]]
        >>> spooled.close()
    """

    def __init__(self, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
        self._rows = 0
        with spilling(), ExitStack() as stack:
            self._file: IO[bytes] = stack.enter_context(TemporaryFile(prefix="lakefmt-rows-"))
            with pa.ipc.new_stream(self._file, schema) as writer:
                for table in tables:
                    self._add(writer, schema, table)
                    del table
            self._kept = stack.pop_all()

    def _add(self, writer: pa.RecordBatchStreamWriter, schema: pa.Schema, table: pa.Table) -> None:
        if table.schema != schema:
            raise SchemaMismatch(
                f"batches of one write must have one schema: {table.schema.names} came after {schema.names}"
            )
        row_bytes = max(1, table.nbytes // max(1, table.num_rows))
        writer.write_table(table, max_chunksize=max(1, _BATCH_BYTES // row_bytes))
        self._rows += table.num_rows

    def close(self) -> None:
        """Let go of the file."""
        self._kept.close()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self._rows

    def __iter__(self) -> Iterator[pa.Table]:
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])


def read_or_spool(schema: pa.Schema, tables: Iterable[pa.Table], memory_bytes: int) -> pa.Table | SpooledRows:
    """Return the rows of a stream as one table, or in a temporary file when they take more than `memory_bytes`.

    Raises:
        SchemaMismatch: a later table has other columns than the first.
        StorageError: the temporary directory could not take the rows.

    Example:
        >>> from contextlib import closing
        >>> schema, rows = pa.schema([("n", pa.int64())]), pa.table({"n": [1, 2]})
        >>> read_or_spool(schema, iter([rows, rows]), 100).num_rows
        4
        >>> with closing(read_or_spool(schema, iter([rows] * 9), 100)) as spooled:
        ...     type(spooled).__name__, spooled.num_rows
        ('SpooledRows', 18)
    """
    held: list[pa.Table] = []
    held_bytes = 0
    coming = iter(tables)
    for table in coming:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes > memory_bytes:
            del table
            return SpooledRows(held[0].schema, chain(_emptied(held), coming))
    return read_all(schema, held)


def _emptied(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables without holding on to them."""
    while tables:
        yield tables.pop(0)
