"""Rows on their way into a commit: held in memory up to a size, beyond that in a temporary file, in the order in which they came (effects).

Batches of one round may have different columns, as files of different days have. They are fitted together when all have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

from lakefmt._core.schema import conform
from lakefmt._core.schema.evolve import evolve
from lakefmt._core.sorting.external_sort import spilling

__all__ = ["RoundRows", "unified_schema", "without_null_types"]

_BATCH_BYTES = 8 << 20


class RoundRows:
    """Rows of a round, which can be read again and again.

    Args:
        memory_bytes: what is held in memory.

    Example:
        >>> rows = RoundRows(100)
        >>> for n in range(50):
        ...     rows.add(pa.record_batch({"n": [n]}))
        >>> rows.add(pa.record_batch({"n": [50], "new": ["x"]}))
        >>> schema = rows.unified(pa.schema([]))
        >>> sum(table.num_rows for table in rows.tables(schema)), schema.names
        (51, ['n', 'new'])
        >>> rows.close()
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory = memory_bytes
        self._held = list[pa.RecordBatch]()
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        #: Where a stream of batches of one schema begins in the file.
        self._begins = list[int]()
        self.schemas = list[pa.Schema]()
        self.num_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        if batch.schema not in self.schemas[-1:] and batch.schema not in self.schemas and len(batch.schema):
            self.schemas.append(batch.schema)
        if not batch.num_rows:
            return
        self._held.append(batch)
        self.num_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory:
            self._spill()

    def _spill(self) -> None:
        with spilling():
            if self._file is None:
                self._file = TemporaryFile(prefix="lakefmt-round-")  # noqa: SIM115 - closed by close()
            self._file.seek(0, 2)
            for schema, batches in groupby(_joined(self._held), attrgetter("schema")):
                self._begins.append(self._file.tell())
                with pa.ipc.new_stream(self._file, schema) as writer:
                    for batch in batches:
                        rows = max(1, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
                        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=rows)
        self._held.clear()
        self._held_bytes = 0

    @property
    def are_many(self) -> bool:
        """Whether some of them wait in a temporary file."""
        return bool(self._begins)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they came; those of one schema that follow each other come together."""
        for begin in self._begins:
            if self._file is not None:
                self._file.seek(begin)
                with pa.ipc.open_stream(self._file) as reader:
                    yield from reader
        yield from _joined(self._held)

    def unified(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema that holds rows of a schema and all of these.

        Raises:
            SchemaMismatch: the types of a column do not go together.
        """
        return unified_schema(self.schemas, schema)

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows with the columns of a schema that holds them all.

        Raises:
            SchemaMismatch: a value does not fit.
        """
        for batch in self.batches():
            yield conform(
                pa.Table.from_batches([batch]).replace_schema_metadata(), schema, allow_null_list_elements=True
            )

    def clear(self) -> None:
        """Forget the rows."""
        self.close()
        self._held_bytes = self.num_rows = 0
        self._begins.clear()
        self.schemas.clear()

    def close(self) -> None:
        """Let go of the rows."""
        self._held.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches joined with those of their schema behind them, up to some bytes.

    What is done with a batch costs by its columns, however few rows it has, and each small file is one.

    Example:
        >>> parts = [pa.record_batch({"n": [1]}), pa.record_batch({"n": [2]}), pa.record_batch({"m": [3]})]
        >>> [part.to_pydict() for part in _joined(parts)]
        [{'n': [1, 2]}, {'m': [3]}]
    """
    for schema, several in groupby(batches, attrgetter("schema")):
        pending, size = list[pa.RecordBatch](), 0
        for batch in several:
            pending.append(batch)
            size += batch.nbytes
            if size >= _BATCH_BYTES:
                yield from pa.Table.from_batches(pending, schema).combine_chunks().to_batches()
                pending, size = [], 0
        if pending:
            yield from pa.Table.from_batches(pending, schema).combine_chunks().to_batches()


def unified_schema(schemas: Iterable[pa.Schema], known: pa.Schema) -> pa.Schema:
    """Return a schema that holds rows of a known one and of all others.

    Raises:
        SchemaMismatch: the types of a column do not go together.
    """
    for each in schemas:
        plain = without_null_types(each.remove_metadata(), known)
        known = evolve(known, plain, missing="null") if len(known) else plain
    return known


def without_null_types(schema: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return a schema in which columns that have nothing but nulls have a type: the known one, or that of texts."""
    fields = [
        field
        if not pa.types.is_null(field.type)
        else field.with_type(known.field(field.name).type if field.name in known.names else pa.string())
        for field in schema
    ]
    return pa.schema(fields)
