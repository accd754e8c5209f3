"""Turn the segments of a stream into one commit, and count what a stream has done (effects).

The rows are written as the verbs of a table write. Under the table lock the commit looks at what the table has of the stream: what another
process committed meanwhile is not committed again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.stored_keys import stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.index import capabilities_of, choose_index, moves_between_partitions
from lakefmt._core.keys import KeySpec
from lakefmt._core.read.snapshot import Snapshot, rows_of_keys
from lakefmt._core.segments.codec import (
    RowOperator,
    SegmentHeader,
    SegmentPosition,
    committed_of,
    has_segments,
    read_segments,
)
from lakefmt._core.segments.pending import (
    StreamState,
    committed_of_streams,
    first_bytes,
    header_times,
    in_order,
    is_unchanged,
    load_others,
    plan_streams,
)
from lakefmt._core.segments.resolve import (
    Resolved,
    StreamRules,
    codes_in,
    current_rows,
    fill_required,
    fitted_together,
    last_rows,
    needs_stored,
    number_keys,
    operators_of,
    resolve_rows,
    row_identities,
    stored_identities,
    stream_rules,
    without_operators,
)
from lakefmt._core.storage.api import with_versions
from lakefmt._core.storage.process_lock import process_locks
from lakefmt._core.timeline.commit import decode_entry, encode_entry, stream_entry_name
from lakefmt._core.values import CommitResult, TableType, WriteOperation, sum_of_known
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import (
    MOVED_AWAY,
    AlreadyDone,
    CommitEntries,
    EntryView,
    WriteRequest,
)
from lakefmt._core.write.ingest import KeyedBatch
from lakefmt._core.write.mutations import slices_of_keys
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt._core.write.verbs import commit_located, run_write, write_stream
from lakefmt.errors import CommitConflict, CorruptFile, ObjectNotFound, SchemaMismatch, StreamUnavailable

__all__ = [
    "BOUNDS",
    "KeyScope",
    "KeyedCommit",
    "SegmentCommit",
    "StreamMetrics",
    "commit_options",
    "has_record_keys",
    "key_scope",
    "stored_rows",
]


_CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
_LOCK_PROVIDER = "hoodie.write.lock.provider"
#: Bytes of segments that one commit holds in memory, unless a mark needs more.
_MOST_COMMIT_BYTES: Final = 32 << 20


#: Operators whose rows say all of their key.
_FORGETTING: Final = (RowOperator.UPSERT.value, RowOperator.DELETE_IGNORE.value)


#: Upper bounds of the classes of a histogram, in seconds.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_log = logging.getLogger("lakefmt.streams")


def commit_options(client: TableClient, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a stream's commits: beside other writers, unless the caller or the table says otherwise.

    Args:
        client: the table.
        settings: settings that the caller gave the stream.
    """
    options = dict(settings)
    stated = {**client.load_config().properties, **client.options, **options}
    if _CONCURRENCY_MODE in stated:
        return options
    store = client.store
    if _LOCK_PROVIDER not in stated and process_locks(store) is None and not store.url.startswith("memory://"):
        if with_versions(store) is None:
            return options  # several writers have no lock there: this one is alone, or the caller names a provider
        options[_LOCK_PROVIDER] = "StorageBasedLockProvider"
    return {**options, _CONCURRENCY_MODE: "optimistic_concurrency_control"}


def has_record_keys(table_at: TableAt) -> bool:
    """Return whether a table has record keys of its own."""
    spec = table_at.key_spec()
    return bool(spec.record_key_fields) and not spec.auto_keys


class KeyScope(NamedTuple):
    """How far a key reaches.

    Attributes:
        across: it is one row of the whole table, because the index is global; False: of its partition.
        stays: a row whose key is stored in another partition is written there.
    """

    across: bool
    stays: bool


def key_scope(table_at: TableAt, options: Mapping[str, object]) -> KeyScope:
    """Return how far keys of a table reach."""
    settings = resolve_settings({**table_at.client.options, **options}, None, table_at.config.properties)
    index = choose_index(table_at.client, settings, table_at.config, table_at.state)
    return KeyScope(index.is_global, index.is_global and not moves_between_partitions(index))


class SegmentCommit:
    """The commit of some segments of one stream; segments that are in the table already are left out.

    On a table with keys it takes along what other streams have made durable before: of two rows of one key the later one is
    to win, whichever stream commits first. Many bytes become several commits, so that few are in memory at a time.

    Args:
        client: the table.
        stream: the stream.
        headers: the segments, in order.
        options: settings of the commit.
        since: no commit requested up to this time has an entry of the stream.
        confirmed: the process that wrote them commits them. False: it may withdraw the last one yet.
    """

    def __init__(
        self,
        client: TableClient,
        stream: str,
        headers: Sequence[SegmentHeader],
        options: Mapping[str, object],
        since: str = "",
        *,
        confirmed: bool = True,
    ) -> None:
        self._client, self._stream, self._headers, self._since = client, stream, tuple(headers), since
        self._confirmed = confirmed
        self._has_more = False
        self._keyed = has_record_keys(client.at(client.load()))
        operation = WriteOperation.UPSERT if self._keyed else WriteOperation.INSERT
        self._request = WriteRequest(operation, dict(options))
        self.request = self._request

    def run(self) -> CommitResult:
        """Commit; the result is ``skipped`` when the table has all of them.

        Raises:
            CommitConflict: others were faster, as often as the settings allow.
            CorruptFile: a segment is damaged.
            StreamUnavailable: another process is the owner of the stream now.
        """
        results = list[CommitResult]()
        while not results or self._has_more:
            result = retried(self._client, self._request, self._attempt)
            if result is None:
                break
            results.append(result)
        if not results:
            return CommitResult(None, operation=self._request.operation, skipped=True)
        return _joined_results(results)

    def _attempt(self) -> CommitResult | None:
        client = self._client
        times = header_times(client) if self._keyed or not self._confirmed else {}
        other_streams = load_others(client, self._stream, times) if self._keyed else []
        state = client.load()
        table_at = client.at(state)
        before = committed_of_streams(table_at, {self._stream: self._since}).get(self._stream)
        uncommitted = [each for each in self._headers if before is None or each.position > before.position]
        if self._keyed or not self._confirmed:
            found = [each for each in uncommitted if (self._stream, each.position) in times]
            if self._confirmed and len(found) < len(uncommitted):
                # The commit of another stream took them along.
                _log.warning(
                    "%s: %d segments of stream %r are gone: their commit was undone, or a repair gave them up",
                    client.store.url,
                    len(uncommitted) - len(found),
                    self._stream,
                )
            uncommitted = found
        self._has_more = False
        if not uncommitted:
            return None
        plans = plan_streams(table_at, other_streams)
        ordered = in_order([uncommitted, *(plan.to_commit for plan in plans)], times, self._stream)
        part = first_bytes(ordered, _MOST_COMMIT_BYTES)
        schema = table_at.schema()
        try:
            rows = self._rows(state, part, schema)
        except (CorruptFile, SchemaMismatch) as error:
            if all(header.stream == self._stream for header in part):
                raise
            _log.warning("%s: segments of other streams are left for later: %s", client.store.url, error)
            ordered, other_streams = uncommitted, []
            part = first_bytes(ordered, _MOST_COMMIT_BYTES)
            rows = self._rows(state, part, schema)
        self._has_more = len(part) < len(ordered)
        columns = table_at.internal_schema() or ""
        offsets = {plan.stream: None if plan.committed is None else plan.committed.offset for plan in plans}
        offsets[self._stream] = None if before is None else before.offset
        request = replace(self._request, entries=self._entries(part, other_streams, offsets), columns=columns)
        if request.operation is WriteOperation.INSERT:
            plain = fill_required(without_operators(rows), schema)
            return run_write(client, request, schema, plain)
        return KeyedCommit(client).upsert(request, state, schema, rows)

    def _rows(self, state: TableState, headers: Sequence[SegmentHeader], schema: pa.Schema) -> pa.Table:
        try:
            segments = read_segments(self._client.store, headers)
        except ObjectNotFound as error:
            raise CommitConflict(f"{error}: another process committed it meanwhile") from None
        return fitted_together(current_rows(self._client.at(state), headers, segments), schema)

    def _entries(
        self, part: Sequence[SegmentHeader], other_streams: Sequence[StreamState], offsets: Mapping[str, object]
    ) -> CommitEntries:
        """Return the entries of streams in the commit of their segments.

        Args:
            part: the segments.
            other_streams: the states of other streams.
            offsets: of each stream before this commit.
        """
        by_stream = dict[str, list[SegmentHeader]]()
        for header in part:
            by_stream.setdefault(header.stream, []).append(header)

        def entries(view: EntryView) -> Mapping[str, str] | AlreadyDone:
            now = {stream: _committed_in(view, stream) for stream in by_stream}
            if all(at is not None and at >= by_stream[stream][-1].position for stream, at in now.items()):
                return AlreadyDone(None)
            for stream, at in now.items():
                if at is not None and at >= by_stream[stream][0].position:
                    raise CommitConflict(f"another process committed segments of stream {stream!r} meanwhile")
            self._check_unchanged(by_stream, other_streams)
            return {
                stream_entry_name(stream): encode_entry(_entry(headers, offsets[stream]), view.now_ms)
                for stream, headers in by_stream.items()
            }

        return entries

    def _check_unchanged(
        self, by_stream: Mapping[str, Sequence[SegmentHeader]], other_streams: Sequence[StreamState]
    ) -> None:
        """Look again at segments that their writers may have withdrawn; who withdraws one waits for commits that have begun.

        Raises:
            CommitConflict: one was withdrawn, or has another owner now.
        """
        state_by_stream = {state.stream: state for state in other_streams}
        for stream, headers in by_stream.items():
            if stream in state_by_stream:
                is_there = is_unchanged(self._client, state_by_stream[stream], headers)
            else:
                is_there = self._confirmed or has_segments(self._client.store, stream, headers)
            if not is_there:
                raise CommitConflict(f"the segments of stream {stream!r} changed meanwhile")


class KeyedCommit:
    """One commit of rows that are upserts and deletes, reduced to one for each key.

    Args:
        client: the table.
    """

    def __init__(self, client: TableClient) -> None:
        self.client = client

    def upsert(
        self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table
    ) -> CommitResult | None:
        """Commit rows; None: they change nothing, and there is nothing to remember.

        Args:
            request: what is asked for, an upsert.
            state: of the table.
            schema: its columns.
            rows: with their operators, in order.

        Raises:
            CommitConflict: another commit was faster.
        """
        resolved, based_on = self.resolved(request, state, schema, rows)
        if resolved.first is not None:
            # A commit of its own, which says nothing of where the rows came from: where this process ends behind it, the same rows
            # come to the same again.
            unnamed = replace(request, entries=None, commit_metadata={})
            self._write(unnamed, schema, resolved.first, based_on, promises=False)
            resolved, based_on = self.resolved(request, self.client.load(), schema, rows)
        return self._write(request, schema, resolved, based_on) if len(resolved.deletes) else self._empty(request)

    def upsert_stream(
        self, request: WriteRequest, schema: pa.Schema, tables: Iterable[pa.Table], memory_bytes: int
    ) -> CommitResult | None:
        """Commit rows that are more than memory, as :meth:`upsert` does.

        They are put in the order of their keys on the disk, and reduced part by part.

        Args:
            request: what is asked for, an upsert.
            schema: its columns.
            tables: the rows, with their operators, in order, as often as they are asked for.
            memory_bytes: what may be held of them.

        Raises:
            CommitConflict: another commit was faster.
            StorageError: the temporary directory could not take the rows, or the store failed.
        """
        from lakefmt._core.write.grouped_rows import placed_parts  # few commits have more rows than a window

        def parts(table_at: TableAt) -> Generator[pa.Table]:
            spec, across, rows = stored_key_spec(table_at), key_scope(table_at, request.options).across, tables
            if self.rules(request, table_at.state, schema).is_plain:
                # All rows of a key come together: fewer of a key that comes often.
                rows = (self.reduced(request, table_at.state, each) for each in tables)
            return placed_parts(rows, lambda table: row_identities(spec, table, across=across)[0], memory_bytes)

        return self.upsert_parts(request, schema, parts)

    def upsert_parts(
        self, request: WriteRequest, schema: pa.Schema, parts: Callable[[TableAt], Generator[pa.Table]]
    ) -> CommitResult | None:
        """Commit rows that are larger than memory; None: they change nothing, and there is nothing to remember.

        Args:
            request: what is asked for, an upsert.
            schema: the columns of the table.
            parts: yields the rows with their operators, for the table at a moment; no key has rows in two parts.

        Raises:
            CommitConflict: another commit was faster.
        """
        table_at = self.client.at(self.client.load())
        if not self.rules(request, table_at.state, schema).is_plain:
            self._write_first(request, schema, parts)
        transaction = _ReducedWrite.begin(self.client, request, schema)
        transaction.is_followed = True
        with transaction.aborted_on_error(), closing(parts(transaction.table_at)) as row_parts:
            marked = (self._marked(request, transaction.state, schema, rows) for rows in row_parts)
            return transaction.commit_unless_empty(write_stream(transaction, marked, "none", distinct=True))

    def _write_first(
        self, request: WriteRequest, schema: pa.Schema, parts: Callable[[TableAt], Generator[pa.Table]]
    ) -> None:
        """Commit what has to be committed before, part by part; these commits say nothing of where the rows came from."""
        unnamed = replace(request, entries=None, commit_metadata={})
        with closing(parts(self.client.at(self.client.load()))) as row_parts:
            for rows in row_parts:
                resolved, based_on = self.resolved(request, self.client.load(), schema, rows)
                if resolved.first is not None:
                    self._write(unnamed, schema, resolved.first, based_on, promises=False)

    def _marked(self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """Return one row for each key, and which of them delete it."""
        resolved, _ = self.resolved(request, state, schema, rows)
        return fill_required(resolved.rows, schema).append_column(MOVED_AWAY, pa.array(resolved.deletes))

    def reduced(self, request: WriteRequest, state: TableState, rows: pa.Table) -> pa.Table:
        """Drop rows that a later row of their key replaces; where other operators are among them, return all rows."""
        if not np.isin(operators_of(rows), _FORGETTING).all():
            return rows
        table_at = self.client.at(state)
        across = key_scope(table_at, request.options).across
        key_numbers, distinct = number_keys(row_identities(stored_key_spec(table_at), rows, across=across)[0])
        return rows if len(distinct) == len(key_numbers) else rows.take(from_numpy(last_rows(key_numbers)))

    def rules(self, request: WriteRequest, state: TableState, schema: pa.Schema) -> StreamRules:
        """Return what the table makes of rows with one key."""
        client = self.client
        # An index that covers logs forgets a key with its delete: a row that comes back does not meet what a log remembers.
        settings = resolve_settings({**client.options, **request.options}, None, state.config.properties)
        forgets = capabilities_of(choose_index(client, settings, state.config, state)).covers_logs
        has_logs = state.config.table_type is TableType.MERGE_ON_READ and not forgets
        return stream_rules(merge_rule(state.config), schema, has_logs=has_logs)

    def resolved(
        self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table
    ) -> tuple[Resolved, TableState | None]:
        """Return one row for each key, and the state that stored rows were read from, if they were."""
        table_at = self.client.at(state)
        across = key_scope(table_at, request.options).across
        identities, keys, partitions = row_identities(stored_key_spec(table_at), rows, across=across)
        key_numbers, distinct = number_keys(identities)
        rules = self.rules(request, state, schema)
        asks = needs_stored(rows, key_numbers, rules)
        if not asks.any():
            return resolve_rows(rows, key_numbers, None, np.array([], np.int64), rules), None
        lookup_mask = from_numpy(asks)
        stored = stored_rows(table_at, request.options, keys.filter(lookup_mask), partitions.filter(lookup_mask))
        of_stored = codes_in(stored_identities(stored, across=across), distinct)
        stored, of_stored = stored.filter(pa.array(of_stored >= 0)), of_stored[of_stored >= 0]
        return resolve_rows(rows, key_numbers, stored, of_stored, rules, asks), state

    def _write(
        self,
        request: WriteRequest,
        schema: pa.Schema,
        resolved: Resolved,
        based_on: TableState | None,
        *,
        promises: bool = True,
    ) -> CommitResult | None:
        filled = fill_required(resolved.rows, schema)
        transaction = WriteTransaction.begin(self.client, request, schema, based_on)
        transaction.is_followed = True
        with transaction.aborted_on_error():
            keyed = transaction.key(filled, durable=True, promises=promises)
            if resolved.deletes.any():
                if keyed.num_rows != filled.num_rows:
                    raise StreamUnavailable("rows of one key are left after they were combined")
                marked = keyed.table.append_column(MOVED_AWAY, pa.array(resolved.deletes))
                keyed = KeyedBatch(marked, keyed.keys, keyed.partitions)
            located = transaction.locate(keyed)
        return commit_located(transaction, request, located)

    def _empty(self, request: WriteRequest) -> CommitResult | None:
        """Commit only the entries of the stream: its rows change nothing."""
        transaction = WriteTransaction.begin(self.client, request)
        with transaction.aborted_on_error():
            return transaction.commit_unless_empty([])


class _ReducedWrite(WriteTransaction):
    """A write of rows with distinct keys, each with a mark for a delete."""

    def key(self, table: pa.Table, *, durable: bool = True, promises: bool = True) -> KeyedBatch:
        """Return rows with their keys."""
        return self.keyed(self.key_spec, table, durable=durable, promises=promises)

    def keyed(self, spec: KeySpec, table: pa.Table, *, durable: bool = True, promises: bool = True) -> KeyedBatch:
        """Return rows in the table's schema with their keys and marks."""
        rows = table.drop_columns([MOVED_AWAY])
        batch = super().keyed(spec, rows, durable=durable, promises=promises)
        return KeyedBatch(batch.table.append_column(MOVED_AWAY, table.column(MOVED_AWAY)), batch.keys, batch.partitions)


def _committed_in(view: EntryView, stream: str) -> SegmentPosition | None:
    fields = decode_entry(view.entries, stream_entry_name(stream))
    return None if fields is None else committed_of(fields).position


def _entry(headers: Sequence[SegmentHeader], offset: object) -> dict[str, object]:
    """Return the entry of a stream in a commit: its last segment, and its newest offset."""
    marked = [header.offset for header in headers if header.offset is not None]
    return {
        "epoch": headers[-1].epoch,
        "sequence": headers[-1].sequence,
        "offset": marked[-1] if marked else offset,
    }


def _joined_results(results: Sequence[CommitResult]) -> CommitResult:
    """Return the last of some commits with the counts and files of all."""
    return replace(
        results[-1],
        num_inserts=sum(each.num_inserts for each in results),
        num_updates=sum(each.num_updates for each in results),
        num_deletes=sum(each.num_deletes for each in results),
        files=tuple(file for each in results for file in each.files),
        bytes_written=sum(each.bytes_written for each in results),
        seconds=sum(each.seconds for each in results),
        num_late=sum_of_known(each.num_late for each in results),
        warnings=tuple(dict.fromkeys(warning for each in results for warning in each.warnings)),
    )


def stored_rows(
    table_at: TableAt,
    options: Mapping[str, object],
    keys: pa.Array,
    partitions: pa.Array,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the stored rows of record keys: the table's index tells the files, and no other is read.

    Args:
        table_at: the table, at one moment.
        options: settings of the stream's commits.
        keys: record keys.
        partitions: the partition path of each.
        columns: that are read beside key and path; None: all, with meta columns.
    """
    slices = slices_of_keys(table_at, options, keys, partitions)
    return rows_of_keys(Snapshot(table_at.client, table_at.state), keys, columns, slices)


@dataclass(slots=True)
class StreamMetrics:
    """What a stream has done; :meth:`as_dict` gives a copy.

    Example:
        >>> metrics = StreamMetrics()
        >>> metrics.flushed("rows", 10, 0.002)
        >>> metrics.as_dict()["flushes"], metrics.as_dict()["rows_durable"]
        ({'rows': 1}, 10)
    """

    rows_applied: int = 0
    rows_durable: int = 0
    rows_committed: int = 0
    rows_rejected: int = 0
    rows_truncated: int = 0
    dead_letter_rows: int = 0
    backpressure_seconds: float = 0.0
    commit_seconds: float = 0.0
    commits: int = 0
    commit_failures: int = 0
    last_commit_error: str | None = None
    last_commit_instant: str | None = None
    flushes: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    flush_seconds: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    flush_seconds_sum: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def flushed(self, trigger: str, rows: int, seconds: float) -> None:
        """Count a segment that became durable."""
        with self._lock:
            self.rows_durable += rows
            self.flushes[trigger] += 1
            self.flush_seconds[bisect_left(BOUNDS, seconds)] += 1
            self.flush_seconds_sum += seconds

    def committed(self, rows: int, seconds: float, instant: str | None) -> None:
        """Count a commit."""
        with self._lock:
            self.rows_committed += rows
            self.commits += 1
            self.commit_seconds += seconds
            self.last_commit_instant = instant or self.last_commit_instant
            self.last_commit_error = None

    def commit_failed(self, error: BaseException) -> None:
        """Count a commit that failed, after all its attempts."""
        with self._lock:
            self.commit_failures += 1
            self.last_commit_error = f"{type(error).__name__}: {error}"

    def retried(self, status: str) -> None:
        """Count an attempt after a failure."""
        with self._lock:
            self.retries[status] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return every counter by name."""
        with self._lock:
            counters = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
            classes = dict(zip(map(str, (*BOUNDS, "inf")), self.flush_seconds, strict=True))
            counters |= {"flushes": dict(self.flushes), "retries": dict(self.retries), "flush_seconds": classes}
            return counters
