"""The instant of a write: begin (claim, requested, inflight), complete (check, completed), abort.

A process that dies between any two of these effects leaves the state before or the state after:

1. the heartbeat claims the instant time, 2. requested, 3. inflight, 4. files with markers, 5. completed: only now rows
become visible, 6. markers, saved write and heartbeat are deleted; the next writer deletes what a death here leaves.

Callbacks run after the commit: a function of the caller, or Hudi's HTTP callback. A failing one never undoes the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.config.table_config import TableConfig, check_writable, parse_table_config
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.stored_keys import check_operations
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.keys import GENERATOR_KEYS, check_generator
from lakefmt._core.metadata.layout import SEEN_KEY
from lakefmt._core.schema.alter import narrowed
from lakefmt._core.storage.parallel import BegunRequest, map_concurrently
from lakefmt._core.storage.process_lock import process_locks
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import LATE_ROWS_ENTRY, LOG_KEYS_ENTRY, CommitMetadata, encode_commit
from lakefmt._core.timeline.heartbeat import heartbeat_name, make_stamp, read_stamp, stamp_text
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.markers import list_marked, list_markers, remove_markers, remove_saved_writes
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.store import recover_properties
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import (
    Concurrency,
    WriteAt,
    WriteClient,
    check_concurrency,
    drop_metadata_table,
    lost_index_warnings,
    note_indexes,
    open_write_client,
)
from lakefmt._core.transactions.instant import META_PREFIXES, EarlyClaim, InstantTransaction, with_carried_keys
from lakefmt._core.transactions.recovery import read_under_lock, remove_marked_files, undo_dead_writes
from lakefmt._core.values import (
    CommitResult,
    FileId,
    InstantTime,
    PartitionPath,
    TableType,
    WriteOperation,
    WriteStat,
)
from lakefmt._core.write.commit.conflict_resolution import (
    WRITER,
    Footprint,
    check_not_cleaned,
    resolve_conflicts,
    withdraw_for_overwrite,
)
from lakefmt._core.write.commit.key_stats import (
    KEY_HASHES_ENTRY,
    KEY_RANGES_ENTRY,
    key_stats_of,
    log_key_coverage_of,
)
from lakefmt._core.write.context import BoundContext, OnCommit, WriteContext, WriteRequest, WriteStatus, add_entries
from lakefmt._core.write.ingest import without_stored_keys
from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    InternalError,
    StateError,
    StorageError,
    WriterActive,
)

if TYPE_CHECKING:
    from lakefmt._core.write.context import CommitEntries

__all__ = [
    "CALLBACK_ON",
    "FirstSchema",
    "PendingWrite",
    "abort_instant",
    "begin_instant",
    "check_pending",
    "check_saw_all",
    "complete_instant",
    "concurrency_of",
    "notify_callbacks",
    "open_for_writing",
    "plan_instant",
    "take_over_write",
]


#: The setting that switches Hudi's HTTP callback on.
CALLBACK_ON = "hoodie.write.commit.callback.on"
_URL = "hoodie.write.commit.callback.http.url"
_TIMEOUT = "hoodie.write.commit.callback.http.timeout.seconds"
_KEY = "hoodie.write.commit.callback.http.api.key"

#: Options that never travel with a write's context.
SECRET_OPTIONS = frozenset({_KEY})


def notify_callbacks(
    client: TableClient, result: CommitResult, request: WriteRequest, observer: OnCommit | None
) -> CommitResult:
    """Call the callbacks of a commit; return the result with a warning for each that failed."""
    if result.instant is None:
        return result
    failures = notify(client, result, {**client.options, **request.options}, observer)
    return replace(result, warnings=(*result.warnings, *failures)) if failures else result


def notify(
    client: TableClient,
    result: CommitResult,
    options: Mapping[str, object],
    observer: OnCommit | None,
) -> tuple[str, ...]:
    """Call the observers of a commit; return a sentence for each that failed, without secrets."""
    failures = []
    # The commit stands whatever its observers do.
    if observer is not None:
        called = run_foreign(lambda: observer(result))
        if isinstance(called, Raised):
            failures.append(f"on_commit failed: {type(called.error).__name__}: {called.error}")
    if str(options.get(CALLBACK_ON, "false")).lower() == "true":
        problem = run_foreign(lambda: _post(client, result, options))
        if isinstance(problem, Raised):
            problem = f"the commit callback failed: {type(problem.error).__name__}: {problem.error}"
        if problem:
            failures.append(problem)
    return tuple(failures)


def _post(client: TableClient, result: CommitResult, options: Mapping[str, object]) -> str | None:
    import urllib.error
    import urllib.request  # brings half the library along, and few commits have a callback

    url = str(options.get(_URL, ""))
    if not url.startswith(("http://", "https://")):
        return f"the commit callback was not called: {_URL} is no http address"
    message = {
        "commitTime": result.instant,
        "tableName": client.load_config().name,
        "basePath": client.store.url,
        "commitActionType": result.action,
    }
    headers = {"Content-Type": "application/json", "HUDI-CALLBACK-KEY": str(options.get(_KEY, "hudi_write_commit"))}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers, method="POST")  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=float(str(options.get(_TIMEOUT, 5)))):  # noqa: S310 - checked
            return None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else type(error).__name__
        return f"the commit callback failed: {reason}"


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write whose instant is inflight.

    Attributes:
        write_client: the table, the settings of the write, the lock.
        bound: the context of the write.
        state: the table when the write began.
        rules: how the write behaves beside other writers.
        instant: its instant; without a heartbeat when another process keeps the write alive, or it is only planned.
        based_on: the older state that its rows were read from, when they were.
        entries: what its commit says of streams, applications and the watermark.
        replaces: the partitions that an overwrite replaces, whichever its rows are for.
        before: the table's columns before rows that may widen them; None: for an alteration, and in another process.
    """

    write_client: WriteClient
    bound: BoundContext
    state: TableState
    rules: Concurrency
    instant: InstantTransaction
    based_on: TableState | None = None
    entries: CommitEntries | None = None
    replaces: tuple[PartitionPath, ...] = ()
    before: pa.Schema | None = None

    @property
    def context(self) -> WriteContext:
        """The context of the write."""
        return self.bound.context


class FirstSchema:
    """The table's schema when a write was first attempted: columns that were added since may be missing from its rows.

    Attributes:
        rows: of the write, where they are at hand: a column is widened only for values that its type does not hold.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None
        self.rows: pa.Table | None = None

    def narrowed(self, incoming: pa.Schema, table: pa.Schema) -> pa.Schema:
        """Return the data's schema with the table's types where its values fit them."""
        if self.rows is None or incoming.equals(table) or not without_stored_keys(self.rows.schema).equals(incoming):
            return incoming
        if len(set(incoming.names)) < len(incoming):
            return incoming  # a column that comes twice is refused by name

        return narrowed(self.rows.select(incoming.names), table)

    def completed(self, incoming: pa.Schema, table: pa.Schema) -> pa.Schema:
        """Return the data's schema with the nullable columns that the table got after the first attempt.

        Args:
            incoming: the data's.
            table: the table's, as this attempt finds it.

        Example:
            >>> first, data = FirstSchema(), pa.schema([("id", pa.int64())])
            >>> first.completed(data, data).names, first.completed(data, data.append(pa.field("new", pa.int8()))).names
            (['id'], ['id', 'new'])
        """
        if self._names is None:
            self._names = frozenset(table.names)
        names = self._names.union(incoming.names)
        new = [field for field in table if field.nullable and field.name not in names]
        return pa.schema([*incoming, *new], metadata=incoming.metadata) if new else incoming


def concurrency_of(write_client: WriteClient) -> Concurrency:
    """Return how a writer behaves beside others.

    Raises:
        InvalidInputError: its settings could lose rows.
        UnsupportedFeature: a mode or strategy that lakefmt cannot keep.
    """
    store = write_client.client.store
    reaches_all = (
        process_locks(store) is not None
        or store.url.startswith("memory://")
        or write_client.settings.text("hoodie.write.lock.provider") is not None
    )
    return check_concurrency(write_client.settings, lock_reaches_all=reaches_all)


def begin_instant(
    client: TableClient,
    request: WriteRequest,
    incoming: pa.Schema | None = None,
    first: FirstSchema | None = None,
    *,
    waits: bool = True,
) -> PendingWrite:
    """Begin a write: roll back failed writes, choose the instant time, make the instant inflight.

    Args:
        client: the table.
        request: what is asked for; settings of the handle go behind those of the call.
        incoming: the schema of the data; None: the table's.
        first: remembers the table's schema from attempt to attempt.
        waits: until the instant is inflight. False: who writes a file or ends the write waits
            (:attr:`~lakefmt._core.write.context.BoundContext.inflight`).

    Raises:
        MetadataTablePresent: the table advertises a metadata table and the call did not ask to drop it.
        UnsupportedFeature: the table has a feature that lakefmt does not write.
        WriterActive: another writer's instant is pending and alive, and this one wants to be alone.
        InvalidInputError: the settings could lose rows.
        LockUnavailable: the table lock could not be had in time.
    """
    expected = client.known_config
    while True:
        pending = _begin_if_current(client, request, incoming, first, expected)
        if pending is not None:
            if waits:
                pending.bound.wait_until_inflight()
            return pending
        expected = client.load_config()


def _begin_if_current(
    client: TableClient,
    request: WriteRequest,
    incoming: pa.Schema | None,
    first: FirstSchema | None,
    expected: TableConfig,
) -> PendingWrite | None:
    """Begin a write by the settings of properties that were read before; None, and nothing is changed, when they are others."""
    write_client = open_write_client(client, request.options, expected)
    _check_generator_option(write_client, expected)
    rules = concurrency_of(write_client)
    later: list[Callable[[], object]] = []
    with ExitStack() as until_begun:
        with write_client.lock.hold() as lease, EarlyClaim(write_client, expected) as claim:
            look = read_under_lock(write_client, expected, properties=True)
            properties, _ = cast("tuple[dict[str, str], str]", look.properties[0])
            if properties != expected.properties:
                return None
            config = open_for_writing(write_client, look.properties)
            timeline = undo_dead_writes(write_client, config, rules, lease, look, later, own=claim.time)
            state = TableState(config, timeline)
            write_at = write_client.at(state)
            check_operations(write_at)
            schema = _evolved(write_at, request, incoming, first)
            action = _action(request, config)
            body = _requested_body(action, request.operation)
            requested = InstantTransaction.claim(write_at, action, lease, body, start=False, early=claim)
            instant = until_begun.enter_context(requested)
        # The instant is on the timeline now: other writers need not wait for the rest, nor does this one before it writes a file.
        inflight = BegunRequest(client.store, partial(instant.start, config))
        until_begun.push(inflight.end)
        for sweep in later:
            sweep()
        pending = _pending_write(request, state, schema, rules, instant)
        pending.bound.inflight = inflight
        return pending


def plan_instant(
    client: TableClient,
    request: WriteRequest,
    incoming: pa.Schema | None = None,
    first: FirstSchema | None = None,
) -> PendingWrite:
    """Decide what :func:`begin_instant` decides and change nothing: a write that can be planned, not run.

    Raises:
        MetadataTablePresent: as for the write itself.
        UnsupportedFeature: as for the write itself.
    """
    from lakefmt._core.metadata.manage import check_kept_indexes

    write_client = open_write_client(client, request.options)
    state = client.load()
    _check_generator_option(write_client, state.config)
    if not (state.config.metadata_partitions and write_client.settings.values["hoodie.metadata.enable"] is False):
        check_writable(state.config)
        check_kept_indexes(client, state.config, state.timeline, write_client.settings)
    write_at = write_client.at(state)
    check_operations(write_at)
    schema = _evolved(write_at, request, incoming, first)
    time = write_client.instant_time_generator(state.config, state.timeline)()
    instant = InstantTransaction(write_client, time, _action(request, state.config))
    return _pending_write(request, state, schema, concurrency_of(write_client), instant)


def _check_generator_option(write_client: WriteClient, config: TableConfig) -> None:
    """Refuse a call that means other keys than the table's.

    Raises:
        InvalidKey: it does.
        UnknownSetting: it names no key generator of Hudi.
    """
    settings = write_client.settings
    options = {key: str(settings.values[key]) for key in GENERATOR_KEYS if settings.is_asked(key)}
    if options:
        check_generator(options, config.properties)


def take_over_write(write_client: WriteClient, context: WriteContext) -> InstantTransaction:
    """Return the instant of a write that another process began, with its heartbeat if that process has died.

    Args:
        write_client: the table, with the owner of the write.
        context: the write.

    Raises:
        InstantNotPending: the write was committed, aborted or rolled back.
        WriterActive: the instant belongs to another writer.
    """
    store = write_client.client.store
    with write_client.lock.hold() as lease:
        config = write_client.client.load_config()
        timeline = write_client.timeline(config).load()
        pending = check_pending(timeline, context.instant)
        stamp = read_stamp(store, context.instant)
        if stamp is not None and stamp.get("owner") != context.owner:
            raise WriterActive(f"instant {context.instant} belongs to another writer: {stamp_text(stamp)}")
        if stamp is not None and write_client.writer_liveness(config, timeline, pending).alive:
            return InstantTransaction(write_client, pending.time, pending.action)
        return InstantTransaction.take_over(write_client, pending, lease)


def _evolved(
    write_at: WriteAt, request: WriteRequest, incoming: pa.Schema | None, first: FirstSchema | None
) -> pa.Schema:
    """Return the table's schema after a write.

    Raises:
        SchemaMismatch: the table's schema cannot become one that takes the data.
        CommitConflict: the columns were altered since the rows were made.
    """
    before = write_at.schema()
    if request.columns is not None and request.columns != (write_at.internal_schema() or ""):
        raise CommitConflict("the table's columns were altered while the rows of this write were made: make them again")
    if request.alteration is not None:
        from lakefmt._core.write.columns import altered_columns  # alterations are rare

        return altered_columns(write_at, before, request.alteration)
    if incoming is None or request.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
        return before
    mode: Literal["add", "strict"] = "strict" if request.schema_change == "strict" else "add"
    incoming = without_stored_keys(incoming)
    if first is not None:
        incoming = first.narrowed(incoming, before)
    brought = incoming if first is None or request.partial else first.completed(incoming, before)
    if brought.equals(before):
        return before
    # Imported here: most writes change no column.
    from lakefmt._core.write.columns import columns_after

    return columns_after(write_at, brought, mode, partial=request.partial)


def _action(request: WriteRequest, config: TableConfig) -> Action:
    action = request.action
    if action is Action.COMMIT and config.table_type is TableType.MERGE_ON_READ:
        return Action.DELTA_COMMIT  # also where inserts go to base files
    return action


def _pending_write(
    request: WriteRequest, state: TableState, schema: pa.Schema, rules: Concurrency, instant: InstantTransaction
) -> PendingWrite:
    write_client, config = instant.write_client, state.config
    table_at = write_client.client.at(state)
    options = {**write_client.client.options, **request.options}
    schema_text, file_schema_text = write_client.client.schema_texts(config, schema)
    history = ""
    if request.alteration is not None or write_client.client.cache.has_seen_column_ids:
        # Imported here: few tables have column ids.
        from lakefmt._core.write.columns import history_after

        history = history_after(table_at, request, schema, instant.time)
    context = WriteContext(
        url=write_client.client.store.url,
        owner=write_client.owner,
        instant=instant.time,
        action=instant.action.value,
        operation=request.operation,
        schema_text=schema_text,
        file_schema_text=file_schema_text,
        properties=dict(config.properties),
        options={key: value for key, value in options.items() if key not in SECRET_OPTIONS},
        commit_metadata=dict(request.commit_metadata),
        partial=request.partial,
        drop_duplicates=request.drop_duplicates,
        schema_history=history,
    )
    bound = BoundContext(write_client.client.store, context, config, write_client.settings)
    before = table_at.schema() if request.alteration is None else None
    return PendingWrite(
        write_client, bound, state, rules, instant, entries=request.entries, replaces=request.replaces, before=before
    )


def open_for_writing(write_client: WriteClient, looked_up: Sequence[object] = ()) -> TableConfig:
    """Return the properties of a table that may be written; drops its metadata table when the call asked for that.

    Args:
        write_client: the table.
        looked_up: what the looks at the properties found under this very lock.

    Raises:
        MetadataTablePresent: the table advertises a metadata table and the call did not ask to drop it.
        UnsupportedFeature: the table has a feature that lakefmt does not write.
    """
    store = write_client.client.store
    config = parse_table_config(recover_properties(store, looked_up, durable=write_client.durable))
    if config.metadata_partitions and write_client.settings.values["hoodie.metadata.enable"] is False:
        check_writable(replace(config, metadata_partitions=()))  # a refusal changes nothing, so it comes first
        _check_nobody_keeps_it(write_client, config)
        config = drop_metadata_table(write_client)
    check_writable(config)
    return config


def _check_nobody_keeps_it(write_client: WriteClient, config: TableConfig) -> None:
    """Raise when a live writer is about to write to the metadata table that would be dropped."""
    timeline = write_client.timeline(config).load()
    for pending in timeline.pending:
        if pending.action in COMMIT_ACTIONS and write_client.writer_liveness(config, timeline, pending).alive:
            raise WriterActive(f"{pending} is at work and may keep the metadata table: drop it when nobody writes")


def _requested_body(action: Action, operation: WriteOperation) -> bytes:
    if action is not Action.REPLACE_COMMIT:
        return b""
    # By the operation other writers see that a pending instant may hide file groups without writing a file.
    nothing = {"operationType": operation.name, "clusteringPlan": None, "extraMetadata": None, "version": 1}
    return encode_body(BodyKind.REQUESTED_REPLACE, nothing)


def check_saw_all(write: PendingWrite) -> None:
    """Refuse a write that found nothing to change and may not have seen all rows.

    Raises:
        CommitConflict: a clean removed files that it began with, and newer ones of other writers did not count for it.
    """
    config = write.state.config
    now = TableState(config, write.write_client.timeline(config).load())
    check_not_cleaned(write.write_client.at(now), write.context, write.based_on or write.state)


def complete_instant(
    write: PendingWrite,
    statuses: Sequence[WriteStatus],
    replaced: Mapping[PartitionPath, tuple[FileId, ...]] | None = None,
    footprint: Footprint | None = None,
    *,
    is_saved: bool = False,
    watermark: int | None = None,
    num_late: int | None = 0,
) -> CommitResult:
    """Make a write visible, or refuse and change nothing.

    Args:
        write: the write.
        statuses: what the workers wrote; of one file only one is counted.
        replaced: file groups that readers no longer see, by partition (replacecommits only).
        footprint: what the write relies on beside its files.
        is_saved: the write has saved what it remembers (:mod:`~lakefmt._core.write.transaction`).
        watermark: what the event times of its rows promise.
        num_late: rows that lost to stored ones; None: not known.

    Returns:
        The result; ``skipped`` when an earlier commit has these rows: nothing is completed, and the caller undoes the write.

    Raises:
        CommitConflict: the write conflicts with one that was committed meanwhile.
        InstantNotPending: the write was committed already, or another writer took it for dead and rolled it back.
        LeaseLost: the table lock was lost; nothing was completed.
    """
    write_client, context = write.write_client, write.context
    metadata = CommitMetadata(
        operation=context.operation,
        stats=_distinct_stats(context, statuses),
        replaced_file_ids=replaced or {},
        extra_metadata={**_notes(write, statuses, num_late), "schema": context.schema_text},
        compacted=False,
    )
    write.bound.wait_until_inflight()
    # Done before the lock is taken: files of failed attempts are this write's own.
    own = write.bound.own_markers
    knows = not is_saved and own.tell([stat.path for stat in metadata.stats])
    markers, marked = (own.names, own.paths) if knows else list_markers(write.bound.store, context.instant)
    strays = _strays(write, metadata, marked)
    copies = frozenset(stat.path for status in statuses if status.is_copy for stat in status.stats)
    if replaced:
        withdraw_for_overwrite(write_client.at(write.based_on or write.state), context.operation, replaced)
    with write_client.lock.hold() as lease:
        config, timeline, _, directory = _looked_again(write_client, write.state.config)
        check_writable(config)
        check_pending(timeline, context.instant)
        begun, now = write.based_on or write.state, TableState(config, timeline)
        if write.entries is not None or watermark is not None or write_client.client.at(now).newest_entries():
            noted = add_entries(write_client.client.at(now), metadata, write.entries, context.instant, watermark)
            if isinstance(noted, CommitResult):
                return noted
            metadata = noted
        if write.bound.settings.text(META_PREFIXES):
            metadata = with_carried_keys(write_client.client.at(now), metadata, write.bound.settings)
        metadata = resolve_conflicts(write_client.at(now), context, begun, metadata, footprint or Footprint(), copies)
        # What was committed meanwhile has been read by now.
        if context.schema_history or write_client.client.cache.has_seen_column_ids:
            from lakefmt._core.write.columns import with_column_ids

            metadata = with_column_ids(write_client.at(now), context, begun, metadata)
        if strays:
            write_client.client.store.delete(strays)
        body = encode_commit(metadata, config.version, replace=write.instant.action is Action.REPLACE_COMMIT)
        completed = write.instant.complete(lease, config, timeline, body, metadata, directory, write.bound.written_keys)
        write_client.client.keep_commit(completed, metadata)
        had_indexes = bool(config.metadata_partitions) or SEEN_KEY in config.properties
        if had_indexes:
            note_indexes(write_client, config)
    try:
        _remove_saved(write.instant, is_saved=is_saved)
        write.instant.finish(markers=markers)
    except StorageError:
        write.instant.abandon()  # the write is committed; by its heartbeat the next writer finds what is left
    return _result(context, completed, metadata.stats, copies, lost_index_warnings(config) if had_indexes else ())


def _remove_saved(instant: InstantTransaction, *, is_saved: bool) -> None:
    store = instant.write_client.client.store
    if is_saved:
        remove_saved_writes(store, instant.time)
    if instant.heartbeat is None:
        # The process that keeps the heartbeat alive sees that its file is gone, and stops.
        store.delete([heartbeat_name(instant.time)])


def _looked_again(
    write_client: WriteClient, last_config: TableConfig, beside: Callable[[], list[str] | None] = lambda: None
) -> tuple[TableConfig, Timeline, list[str] | None, TableDirectory | None]:
    """Return the properties and the timeline as they are now, what is looked up beside them, and the one listing of all."""
    client = write_client.client
    directory = client.list_directory()
    if directory is not None:
        config = client.load_config(directory)
        return config, write_client.timeline(config).load(directory), beside(), directory
    looks: list[Callable[[], object]] = [
        client.load_config,
        write_client.timeline(last_config).load,
        beside,
    ]
    results = map_concurrently(client.store, looks)
    config, timeline, more = cast("tuple[TableConfig, Timeline, list[str] | None]", results)
    if config.timeline_directory != last_config.timeline_directory:
        timeline = write_client.timeline(config).load()
    return config, timeline, more, None


def _notes(write: PendingWrite, statuses: Sequence[WriteStatus], num_late: int | None) -> dict[str, str]:
    """Return the extra metadata of the commit: the caller's and, with concurrent writers, the writer and key statistics."""
    reserved = (KEY_RANGES_ENTRY, KEY_HASHES_ENTRY, LOG_KEYS_ENTRY, LATE_ROWS_ENTRY)
    notes = {key: value for key, value in write.context.commit_metadata.items() if key not in reserved}
    if num_late:
        notes[LATE_ROWS_ENTRY] = str(num_late)
    has_logs = write.bound.config.table_type is TableType.MERGE_ON_READ
    if has_logs and all(status.counts_new_keys for status in statuses):
        notes |= log_key_coverage_of(stat for status in statuses for stat in status.stats)
    if not write.rules.beside:
        return notes
    stamp = json.loads(make_stamp(write.context.owner))
    return {**notes, WRITER: stamp_text(stamp), **key_stats_of(statuses)}


def _distinct_stats(context: WriteContext, statuses: Sequence[WriteStatus]) -> tuple[WriteStat, ...]:
    """Return the entries for the commit: of several attempts at one file those of one."""
    by_path: dict[str, tuple[WriteStat, ...]] = {}
    for status in statuses:
        if status.instant != context.instant:
            raise StateError(f"a status of instant {status.instant} does not belong to the write {context.instant}")
        stats = status.stats
        if by_path.setdefault(status.stat.path, stats) != stats:
            raise InternalError(f"two attempts at {status.stat.path} tell different things; nothing is committed")
    return tuple(stat for stats in by_path.values() for stat in stats)


def _strays(write: PendingWrite, metadata: CommitMetadata, marked: Sequence[str]) -> list[str]:
    """Return files of this instant that are announced but not in the commit (attempts that lost)."""
    store, context = write.bound.store, write.context
    strays = {*marked}.difference(stat.path for stat in metadata.stats)
    if strays:
        from lakefmt._core.filegroups.cdc import cdc_paths  # few attempts lose

        strays.difference_update(path for stat in metadata.stats for path in cdc_paths(stat))
    if not strays:
        return []
    from lakefmt._core.timeline.rollback import plan_rollback_of

    inflight = Instant(context.instant, Action(context.action), State.INFLIGHT)
    plan = plan_rollback_of(store, inflight, write.bound.config.version.layout, sorted(strays))
    return [name for names in plan.files.values() for name in names]


def check_pending(timeline: Timeline, time: InstantTime) -> Instant:
    """Return the instant when it is inflight: its files are on the timeline that was just listed.

    Raises:
        InstantNotPending: it is not.
    """
    for pending in timeline.pending:
        # Without its requested file, the inflight file appeared after the rollback of its instant.
        if pending.time == time and {State.REQUESTED, State.INFLIGHT} <= {f.state for f in timeline.files_of(pending)}:
            return pending
    if any(done.time == time for done in timeline.completed_of(*COMMIT_ACTIONS)):
        raise InstantNotPending(f"instant {time} is no longer pending: it was committed already")
    raise InstantNotPending(f"instant {time} is no longer pending: another writer rolled it back")


def _result(
    context: WriteContext,
    done: Instant,
    stats: tuple[WriteStat, ...],
    copies: Collection[str],
    warnings: tuple[str, ...],
) -> CommitResult:
    counted = [stat for stat in stats if stat.path not in copies]
    return CommitResult(
        instant=context.instant,
        completion_time=done.completion,
        action=context.action,
        operation=context.operation,
        num_inserts=sum(s.num_inserts for s in counted),
        num_updates=sum(s.num_update_writes for s in counted),
        num_deletes=sum(s.num_deletes for s in counted),
        files=stats,
        bytes_written=sum(s.file_size_in_bytes for s in stats),
        warnings=warnings,
    )


def abort_instant(instant: InstantTransaction, *, is_saved: bool = False) -> None:
    """Undo a write: its files are deleted, its instant leaves the timeline; may be repeated.

    Args:
        instant: the instant of the write.
        is_saved: the write has saved what it remembers (:mod:`~lakefmt._core.write.transaction`).
    """
    from lakefmt._core.timeline.rollback import plan_rollback_of
    from lakefmt._core.transactions.rollback_executor import run_rollback

    write_client, client = instant.write_client, instant.write_client.client
    with write_client.lock.hold() as lease:
        marked = partial(list_marked, client.store, instant.time)
        config, timeline, files, _ = _looked_again(write_client, client.known_config, marked)
        timeline_store = write_client.timeline(config)
        targets = [i for i in timeline.pending if (i.time, i.action) == (instant.time, instant.action)]
        # Another writer may have rolled the write back before a slow request of ours: then an inflight file is there
        # again, and its markers may be missing.
        undone = any(State.REQUESTED not in {file.state for file in timeline.files_of(target)} for target in targets)
        for target in targets:
            if files is None:
                # No marker, so no file: the instant can leave without a rollback of its own.
                timeline_store.remove_pending(target.time, target.action)
                continue
            plan = plan_rollback_of(client.store, target, timeline.layout, files)
            lease.check()
            run_rollback(write_client.at(TableState(config, timeline)), target, plan, lease)
        if undone or not targets:
            # A writer that took this one for dead rolled it back and removed its markers, perhaps between a marker of
            # ours and its file.
            state = TableState(config, timeline_store.load() if undone else timeline)
            remove_marked_files(client.at(state), instant.time, unmarked=True)
    remove_markers(client.store, instant.time)
    _remove_saved(instant, is_saved=is_saved)
    if instant.heartbeat is not None:
        instant.heartbeat.stop()
