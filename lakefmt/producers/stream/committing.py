"""Turns the segments of a stream into one commit (effects).

The rows are written as the verbs of a table write. Under the table lock the commit looks at what the table has of the stream: what another
process committed meanwhile is not committed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.config.settings import resolve_settings
from lakefmt.config.table_config import merge_rule
from lakefmt.data_classes import replace
from lakefmt.errors import CommitConflict, ObjectNotFound, StreamUnavailable
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index import choose_index, moves_between_partitions
from lakefmt.producers.stream.stored import stored_rows
from lakefmt.segments.altered import current_rows
from lakefmt.segments.codec import COLUMNS, OPERATOR, Committed, SegmentHeader, committed_of
from lakefmt.segments.files import read_segments
from lakefmt.segments.keyed import (
    codes_in,
    fill_required,
    fitted_together,
    number_keys,
    row_identities,
    stored_identities,
)
from lakefmt.segments.pending import committed_of_streams
from lakefmt.segments.resolve import Resolved, needs_stored, resolve_rows, stream_rules
from lakefmt.storage.api import with_versions
from lakefmt.storage.local.process_lock import process_locks
from lakefmt.timeline.commit_entries import decode_entry, encode_entry, stream_entry_name
from lakefmt.values import CommitResult, TableType, WriteOperation
from lakefmt.write.commit.entries import AlreadyDone, CommitEntries, EntryView
from lakefmt.write.commit.retry import retried
from lakefmt.write.context import MOVED_AWAY, WriteRequest
from lakefmt.write.ingest import KeyedBatch
from lakefmt.write.transaction import WriteTransaction, run_write

__all__ = ["KeyScope", "SegmentCommit", "commit_options", "has_record_keys", "key_scope"]

_MODE = "hoodie.write.concurrency.mode"
_PROVIDER = "hoodie.write.lock.provider"


def commit_options(client: TableClient, asked: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a stream's commits: beside other writers, unless the caller or the table says otherwise.

    Args:
        client: the table.
        asked: settings that the caller gave the stream.
    """
    options = dict(asked)
    stated = {**client.load_config().properties, **client.options, **options}
    if _MODE in stated:
        return options
    store = client.store
    if _PROVIDER not in stated and process_locks(store) is None and not store.url.startswith("memory://"):
        if with_versions(store) is None:
            return options  # several writers have no lock there: this one is alone, or the caller names a provider
        options[_PROVIDER] = "StorageBasedLockProvider"
    return {**options, _MODE: "optimistic_concurrency_control"}


def has_record_keys(client: TableClient, state: TableState) -> bool:
    """Return whether a table has record keys of its own."""
    spec = client.key_spec(state.config)
    return bool(spec.record_key_fields) and not spec.auto_keys


class KeyScope(NamedTuple):
    """How far a key reaches.

    Attributes:
        across: it is one row of the whole table, because the index is global; False: of its partition.
        stays: a row whose key is stored in another partition is written there.
    """

    across: bool
    stays: bool


def key_scope(client: TableClient, state: TableState, options: Mapping[str, object]) -> KeyScope:
    """Return how far keys of a table reach."""
    settings = resolve_settings({**client.options, **options}, None, state.config.properties)
    index = choose_index(client, settings, state.config, state)
    return KeyScope(index.is_global, index.is_global and not moves_between_partitions(index))


class SegmentCommit:
    """The commit of some segments of one stream; segments that are in the table already are left out.

    Args:
        client: the table.
        stream: the stream.
        headers: the segments, in order.
        options: settings of the commit.
        since: no commit requested up to this time has an entry of the stream.
    """

    def __init__(
        self,
        client: TableClient,
        stream: str,
        headers: Sequence[SegmentHeader],
        options: Mapping[str, object],
        since: str = "",
    ) -> None:
        self._client, self._stream, self._headers, self._since = client, stream, tuple(headers), since
        operation = WriteOperation.UPSERT if has_record_keys(client, client.load()) else WriteOperation.INSERT
        self._request = WriteRequest(operation, dict(options))
        self.request = self._request

    def run(self) -> CommitResult:
        """Commit; the result is ``skipped`` when the table has all of them.

        Raises:
            CommitConflict: others were faster, as often as the settings allow.
            CorruptFile: a segment is damaged.
            StreamUnavailable: another process is the owner of the stream now.
        """
        done = retried(self._client, self._request, self._attempt)
        return CommitResult(None, operation=self._request.operation, skipped=True) if done is None else done

    def _attempt(self) -> CommitResult | None:
        client = self._client
        state = client.load()
        before = committed_of_streams(client, state, {self._stream: self._since}).get(self._stream)
        left = [each for each in self._headers if before is None or each.position > before.position]
        if not left:
            return None
        try:
            tables = current_rows(client, state, left, read_segments(client.store, left))
        except ObjectNotFound as error:
            raise CommitConflict(f"{error}: another process committed it meanwhile") from None
        columns = client.internal_schema(state) or ""
        request = replace(self._request, entries=self._entries(left, before), columns=columns)
        schema = client.schema(state)
        rows = fitted_together(tables, schema)
        if request.operation is WriteOperation.INSERT:
            plain = fill_required(_without_marks(rows), schema)
            return run_write(client, request, schema, plain)
        return self._upsert(request, state, schema, rows)

    def _entries(self, left: Sequence[SegmentHeader], before: Committed | None) -> CommitEntries:
        last = left[-1]
        offsets = [header.offset for header in left if header.offset is not None]
        offset = offsets[-1] if offsets else None if before is None else before.offset
        name = stream_entry_name(self._stream)

        def entries(view: EntryView) -> Mapping[str, str] | AlreadyDone:
            fields = decode_entry(view.entries, name)
            now = None if fields is None else committed_of(fields)
            if now is not None and now.position >= last.position:
                return AlreadyDone(None)
            if now is not None and now.position >= left[0].position:
                raise CommitConflict(f"another process committed segments of stream {self._stream!r} meanwhile")
            return {name: encode_entry({"epoch": last.epoch, "sequence": last.sequence, "offset": offset}, view.now_ms)}

        return entries

    def _upsert(
        self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table
    ) -> CommitResult | None:
        resolved, based_on = self._resolved(request, state, schema, rows)
        if resolved.first is not None:
            # A commit of its own, which says nothing of the stream: where this process ends behind it, the same rows come
            # to the same again.
            self._write(replace(request, entries=None), schema, resolved.first, based_on)
            resolved, based_on = self._resolved(request, self._client.load(), schema, rows)
        return self._write(request, schema, resolved, based_on) if len(resolved.deletes) else self._empty(request)

    def _resolved(
        self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table
    ) -> tuple[Resolved, TableState | None]:
        """Return one row for each key, and the state that stored rows were read from, if they were."""
        client, options = self._client, request.options
        across = key_scope(client, state, options).across
        identities, keys, partitions = row_identities(client.key_spec(state.config), rows, across=across)
        numbers, distinct = number_keys(identities)
        has_logs = state.config.table_type is TableType.MERGE_ON_READ
        rules = stream_rules(merge_rule(state.config), schema, has_logs=has_logs)
        asks = needs_stored(rows, numbers, rules)
        if not asks.any():
            return resolve_rows(rows, numbers, None, np.array([], np.int64), rules), None
        chosen = from_numpy(asks)
        stored = stored_rows(client, state, options, keys.filter(chosen), partitions.filter(chosen))
        of_stored = codes_in(stored_identities(stored, across=across), distinct)
        stored, of_stored = stored.filter(pa.array(of_stored >= 0)), of_stored[of_stored >= 0]
        return resolve_rows(rows, numbers, stored, of_stored, rules, asks), state

    def _write(
        self, request: WriteRequest, schema: pa.Schema, resolved: Resolved, based_on: TableState | None
    ) -> CommitResult | None:
        filled = fill_required(resolved.rows, schema)
        transaction = WriteTransaction.begin(self._client, request, schema, based_on)
        with transaction.aborted_on_error():
            keyed = transaction.key(filled)
            if resolved.deletes.any():
                if keyed.num_rows != filled.num_rows:
                    raise StreamUnavailable("rows of one key are left after they were combined")
                marked = keyed.table.append_column(MOVED_AWAY, pa.array(resolved.deletes))
                keyed = KeyedBatch(marked, keyed.keys, keyed.partitions)
            located = transaction.locate(keyed)
            return transaction.commit_unless_empty(transaction.write(transaction.place(located)))

    def _empty(self, request: WriteRequest) -> CommitResult | None:
        """Commit only what is to remember of the stream: its rows came to nothing."""
        transaction = WriteTransaction.begin(self._client, request)
        with transaction.aborted_on_error():
            return transaction.commit_unless_empty([])


def _without_marks(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([name for name in (OPERATOR, COLUMNS) if name in rows.column_names])
