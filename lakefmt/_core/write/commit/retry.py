"""Retry a write after a conflict: a new instant, a new look-up, the same rows.

A write that conflicts has removed its files. It waits for a random time that grows with every failure, and begins again on
the newest state. After several conflicts it keeps the table lock until it has committed, so that no other writer is
faster.

Rows of a stream that are more than a window of memory are kept in a temporary file, so that they can be read again
(:func:`read_or_spool`). Rows of a stream cannot be read twice: a write without that file fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import IO, Final, TypeVar

import pyarrow as pa

from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.sorting import spilling
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.locks.local import HeldLock, expires_after, held_lock_scope
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.write.commit.transaction import concurrency_of
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.ingest import handed_out, memory_of_rows, open_stream, read_all
from lakefmt.errors import CommitConflict, LakefmtError, SchemaMismatch, SnapshotExpired
from lakefmt.events import emit

__all__ = [
    "GivenRows",
    "SpooledRows",
    "StoredRows",
    "read_or_spool",
    "retried",
]

T = TypeVar("T")

#: Bytes of rows that are read from the file at a time.
_SPOOLED_BATCH_BYTES: Final = 4 << 20


class SpooledRows:
    """The rows of a stream, stored in a temporary file so that they can be iterated more than once.

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
            from tempfile import TemporaryFile  # few streams are larger than memory

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
        writer.write_table(table, max_chunksize=max(1, _SPOOLED_BATCH_BYTES // row_bytes))
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
    """Return the rows of a stream as one table, or in a temporary file when they take more than `memory_bytes` while they are written.

    Raises:
        SchemaMismatch: a later table has other columns than the first.
        StorageError: the temporary directory could not take the rows.

    Example:
        >>> from contextlib import closing
        >>> schema, rows = pa.schema([("n", pa.int64())]), pa.table({"n": [1, 2]})
        >>> read_or_spool(schema, iter([rows, rows]), 1000).num_rows
        4
        >>> with closing(read_or_spool(schema, iter([rows] * 9), 1000)) as spooled:
        ...     type(spooled).__name__, spooled.num_rows
        ('SpooledRows', 18)
    """
    held: list[pa.Table] = []
    held_bytes = 0
    coming = iter(tables)
    for table in coming:
        held.append(table)
        held_bytes += memory_of_rows(table)
        if held_bytes > memory_bytes:
            del table
            return SpooledRows(held[0].schema, chain(handed_out(held), coming))
    return read_all(schema, held)


_FIRST_BACKOFF_SECONDS: Final = 0.02
_MOST_BACKOFF_SECONDS: Final = 2.0
#: The lock is kept for at most this part of the time that other writers wait for it.
_SHARE_OF_A_WAIT: Final = 4
#: A lease that is not renewed has to last for this many times what the last attempt took.
_LEASE_SPARE: Final = 3


class GivenRows:
    """Rows of a call, for one attempt after the other.

    Args:
        data: anything that holds Arrow data.
        whole: read them all at once and keep them; False: as they come.
        memory_bytes: of rows that come as a stream and are read at once, what is held in memory: more of them wait in a
            temporary file. None: there is no limit.
        stored_keys: keep the columns that tell a stored row again.
        table_schema: returns the table's columns, for dicts within rows.
    """

    def __init__(
        self,
        data: object,
        *,
        whole: bool,
        memory_bytes: Callable[[], int] | None = None,
        stored_keys: bool = False,
        table_schema: Callable[[], pa.Schema] | None = None,
    ) -> None:
        self._data = data
        self._open = partial(open_stream, data, stored_keys=stored_keys, table_schema=table_schema)
        schema, self._tables = self._open()
        self._schema = schema if schema.names else None
        self._whole: pa.Table | SpooledRows | None = None
        if whole:
            comes = memory_bytes is not None and not _is_in_memory(data)
            if comes and memory_bytes is not None:
                self._whole = read_or_spool(schema, self._tables, memory_bytes())
            else:
                self._whole = read_all(schema, self._tables)
        self._taken = False
        #: All rows, where the data is one table or frame and is handed on as a stream.
        self.table: pa.Table | None = None

    @property
    def can_repeat(self) -> bool:
        """True when the rows can be taken twice."""
        return self._whole is not None or _is_in_memory(self._data)

    def close(self) -> None:
        """Let go of the rows."""
        if self._whole is not None and not isinstance(self._whole, pa.Table):
            self._whole.close()

    def take(self) -> tuple[pa.Schema | None, pa.Table | Iterable[pa.Table], TableState | None]:
        """Return the schema, the rows or a stream of them, and no state that they were read from."""
        if self._whole is not None:
            return self._schema, self._whole, None
        tables = self._open()[1] if self._taken else self._tables
        self._taken = True
        if _is_in_memory(self._data):
            first = list(islice(tables, 2))  # a table or a frame comes as one
            self.table = first[0] if len(first) == 1 else None
            tables = chain(first, tables)
        return self._schema, tables, None


def _is_in_memory(data: object) -> bool:
    """Tell whether rows are in memory already: what has a length is no stream (tables, frames, lists of batches)."""
    return isinstance(data, Sized) and not isinstance(data, Iterator)


class StoredRows:
    """Rows that are made of stored ones, and read again for every attempt.

    Args:
        read: returns the rows and the state that they were read from.
    """

    can_repeat = True
    #: As of :class:`GivenRows`: these rows are always one table already.
    table: pa.Table | None = None

    def __init__(self, read: Callable[[], tuple[pa.Table, TableState]]) -> None:
        self._read = read

    def close(self) -> None:
        """Do nothing."""

    def take(self) -> tuple[pa.Schema | None, pa.Table, TableState | None]:
        """Return the schema, the rows and the state that they were read from."""
        rows, state = self._read()
        return rows.schema, rows, state


def retried(client: TableClient, request: WriteRequest, attempt: Callable[[], T], *, can_repeat: bool = True) -> T:
    """Return what an attempt gives, after as many as the settings allow.

    Args:
        client: the table.
        request: what is asked for.
        attempt: begins and commits; it leaves nothing behind when it raises.
        can_repeat: its rows can be read again.

    Raises:
        CommitConflict: the last attempt's, or one that another attempt would not avoid.
        SnapshotExpired: files that it read were cleaned away under the last attempt.
    """
    with held_lock_scope(client.store.url, client.time_source) as held_lock:
        return _until_it_stands(client, request, attempt, held_lock, can_repeat=can_repeat)


def _until_it_stands(
    client: TableClient, request: WriteRequest, attempt: Callable[[], T], held_lock: HeldLock, *, can_repeat: bool
) -> T:
    failures = 0
    while True:
        begun, lease = client.time_source.monotonic(), held_lock.lease
        held_lock.waited = 0.0
        if can_repeat:
            held_lock.keeps = partial(_may_keep_lock, client, request, held_lock, failures + 1, begun)
        try:
            return attempt()
        except (CommitConflict, SnapshotExpired) as error:
            if lease is not None:
                held_lock.end()  # it lost all the same: against who did not ask for the lock, or cleaned under it
            other = error.other_instant if isinstance(error, CommitConflict) else None
            emit("conflict", client.store.url, kind=error.kind, other_instant=other)
            rules = concurrency_of(open_write_client(client, request.options))
            may_help = not isinstance(error, CommitConflict) or error.can_rebase
            is_alone = not (rules.beside or rules.background)
            if not may_help or rules.retries == 0 or (isinstance(error, SnapshotExpired) and is_alone):
                raise
            if not can_repeat:
                raise _with_hint(
                    error, "the rows came as a stream, which cannot be read twice: give a table to have it done"
                ) from None
            if failures == rules.retries:
                raise _with_hint(error, f"{failures + 1} attempts were made, as often as the settings allow") from None
            failures += 1
            emit("retry", client.store.url, attempt=failures + 1, operation=request.operation.value.lower())
            if held_lock.lease is None:
                _wait_for_turn(client, request, held_lock, failures, begun)


def _may_keep_lock(
    client: TableClient, request: WriteRequest, held_lock: HeldLock, failures: int, begun: float, lease: Lease | None
) -> bool:
    """Return whether a write that lost, now for time number `failures`, may do its next attempt under the lock."""
    write_client = open_write_client(client, request.options)
    rules = concurrency_of(write_client)
    if not 0 < rules.turn_after <= failures <= rules.retries:
        return False
    now = client.time_source.monotonic()
    worked = now - begun - held_lock.waited
    # Those that wait for the lock have to get it in their time.
    longest = write_client.settings.number("hoodie.write.lock.wait_time_ms") / 1000 / _SHARE_OF_A_WAIT
    return worked <= longest and (lease is None or expires_after(lease, now, _LEASE_SPARE * worked))


def _wait_for_turn(
    client: TableClient, request: WriteRequest, held_lock: HeldLock, failures: int, begun: float
) -> None:
    """Acquire and keep the table lock if this write is entitled to it; otherwise back off."""
    if _may_keep_lock(client, request, held_lock, failures, begun, None):
        lease = held_lock.take(open_write_client(client, request.options).lock)
        if _may_keep_lock(client, request, held_lock, failures, begun, lease):
            return
        held_lock.end()
    client.time_source.sleep(_backoff_seconds(failures, client.time_source))


def _backoff_seconds(failures: int, time_source: TimeSource) -> float:
    """Return the seconds to wait after a number of failures: up to twice as long each time, at most two seconds.

    Example:
        >>> from lakefmt._core.storage.time_source import SystemTimeSource
        >>> 0 <= _backoff_seconds(1, SystemTimeSource()) <= 0.02, _backoff_seconds(99, SystemTimeSource()) <= 2
        (True, True)
    """
    return min(_MOST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * float(2 ** min(failures - 1, 20))) * time_source.jitter()


def _with_hint(error: LakefmtError, more: str) -> LakefmtError:
    """Return the error with a sentence more."""
    error.args = (f"{error}. {more[0].upper()}{more[1:]}", *error.args[1:])
    return error
