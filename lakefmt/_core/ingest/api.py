"""The protocol of a source of rows, and the rows of a round on their way into a commit.

A source knows neither the table nor its commits. Rows leave it as Arrow columns; what cannot be decoded leaves it as rejected records.

A source plans a round from where the last commit left it, and reads the round by batches (pure).

Rows of a round are held in memory up to a size, beyond that in a temporary file, in the order in which they came
(effects). Batches of one round may have different columns, as files of different days have. They are fitted together
when all have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import groupby
from operator import attrgetter
from tempfile import TemporaryFile
from typing import IO, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema import conform
from lakefmt._core.schema.alter import evolve
from lakefmt._core.sorting import spilling

__all__ = [
    "REJECTED",
    "Checkpoint",
    "HearsOfCommits",
    "KnowsTableSchema",
    "Round",
    "RoundRows",
    "Source",
    "SourceBatch",
    "StoresInstants",
    "rejected_records",
    "unified_schema",
    "without_null_types",
]

#: The columns of records that could not be decoded or stored.
REJECTED: Final = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        #: Where it came from: a path with its line, or a topic with its partition and offset.
        pa.field("origin", pa.string(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Checkpoint:
    """Where a source was after a commit.

    Args:
        text: Hudi's form, which its own tool reads: a time of files in milliseconds, ``topic,0:12,1:7``, or an instant.
        details: what that form cannot hold, by names of commit metadata that are lakefmt's own.
    """

    text: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceBatch:
    """Rows of a round, in the order in which they came.

    Args:
        rows: the decoded rows.
        kinds: the code of each row's :class:`~lakefmt.cdc.RowKind`; None: rows that the operation of the job writes.
        rejected: what could not be decoded, with the columns of :data:`REJECTED`.
    """

    rows: pa.RecordBatch
    kinds: npt.NDArray[np.int8] | None = None
    rejected: pa.RecordBatch | None = None


class Round(Protocol):
    """What one commit takes from a source."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Return where the source is once the round is committed; asked for when all its batches were read."""

    @property
    def summary(self) -> str:
        """Return the range of the round for people."""

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows will come; None: only reading tells."""

    def batches(self) -> Iterator[SourceBatch]:
        """Read the round; another call reads the same rows again."""


class Source(Protocol):
    """Rows that come from somewhere, read by rounds."""

    @property
    def name(self) -> str:
        """Return what messages call the source."""

    def schema(self) -> pa.Schema | None:
        """Return the schema of its rows if that is known before any is read."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> Round | None:
        """Choose what comes next; None: there is nothing new.

        Args:
            after: of the newest commit that has one; None: from the source's beginning.
            limit: about how many rows or bytes a round has, as Hudi's ``--source-limit`` counts them for this source.

        Raises:
            SourceUnavailable: the source does not answer; the call may be repeated.
            PositionLost: what comes after the checkpoint is gone.
            SourceRefused: the checkpoint is of another kind of source, or a setting cannot be followed.
        """

    def close(self) -> None:
        """Release connections and files."""


@runtime_checkable
class KnowsTableSchema(Protocol):
    """A source whose data have no types of their own: before each plan it is told the columns of the table, None: there is none."""

    table_schema: pa.Schema | None


@runtime_checkable
class HearsOfCommits(Protocol):
    """A source that is notified of commits, such as a broker that shows consumer offsets; correctness does not depend on it."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """Note that a round was committed."""


@runtime_checkable
class StoresInstants(Protocol):
    """A source whose checkpoints are instants of a table, which Hudi stores under keys of two generations."""

    def checkpoint_version(self, table_version: int) -> int:
        """Return the generation of keys, 1 or 2, for a version of the table that is written."""


def rejected_records(reasons: list[str], origins: list[str], payloads: list[bytes | None]) -> pa.RecordBatch:
    """Return rejected records as a batch of :data:`REJECTED`."""
    columns = [pa.array(reasons, pa.string()), pa.array(origins, pa.string()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED)


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
