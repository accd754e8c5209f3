"""``table.repair``: execute a plan under the table lock (effects).

The table is checked again first, and only steps that it still needs are executed. Every step is
idempotent, and the same call resumes an interrupted repair: files are removed last, bodies and
properties are replaced atomically after a copy, and rows are rewritten by commits, which the next
writer rolls back if they fail.

Files that a reader can reach are never removed: a damaged one gets a newer slice or is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import check_flags, instance_argument
from lakefmt._core.check.findings import (
    LOST_KEY,
    AcceptLoss,
    CheckReport,
    CorrectCounts,
    DeleteFiles,
    MarkPartition,
    Outcome,
    RebuildIndexes,
    RepairPlan,
    RepairReport,
    RestoreNotes,
    RestoreProperties,
    RewriteFile,
    RewriteLog,
    SetAside,
    Step,
    SweepTemporary,
    UndoWrites,
)
from lakefmt._core.check.run import rebuild_damaged
from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import TableConfig, check_writable
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.base_writer import new_filter
from lakefmt._core.filegroups.log_reader import Standing, inspect_log, read_log_look
from lakefmt._core.filegroups.model import FileSlice, LogFile, join_path
from lakefmt._core.filegroups.reader import reading
from lakefmt._core.filegroups.table_client import NOTES, TableClient
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.log_blocks import MAGIC, MAX_LOG_BYTES, BlockKind, scan_blocks
from lakefmt._core.formats.names import PARTITION_METADATA, parse_base_file, parse_log_file
from lakefmt._core.formats.parquet.base_file import BaseFileWriter, KeySummary, key_footers, key_range
from lakefmt._core.formats.properties import CHECKSUM_KEY, decode_properties, encode_properties, table_checksum
from lakefmt._core.keys import DEFAULT_PARTITION, KeySpec, build_partition_paths, build_record_keys, with_sampled_key
from lakefmt._core.schema import reconcile
from lakefmt._core.segments.codec import MAX_HEADER_BYTES, header_name, is_claim_name, parse_header_name
from lakefmt._core.segments.pending import is_blank
from lakefmt._core.storage.api import ObjectStore, PutOutcome, remove_abandoned
from lakefmt._core.timeline.instant import Action, State, instant_file_name
from lakefmt._core.timeline.markers import SAVED_WRITES, remove_saved_writes, saved_write_time
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body, encode_json_commit
from lakefmt._core.timeline.store import MAX_BODY_BYTES, PROPERTIES, put_if_absent_confirmed, recover_properties
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteClient, drop_metadata_table, open_write_client, write_client_of
from lakefmt._core.transactions.indexing import IndexRequest, create_metadata_indexes, indexes_to_make_again
from lakefmt._core.transactions.recovery import Consent, undo_dead_writes
from lakefmt._core.values import (
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    FileId,
    InstantTime,
    PartitionPath,
    WriteOperation,
)
from lakefmt._core.write.assign import new_file, rewrite_file
from lakefmt._core.write.context import BoundContext, FileAssignment, WriteRequest, WriteStatus, prepare
from lakefmt._core.write.files.base_file import STAT_KEY, adopt, log_no_changes, refuse_silent_rewrites
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import CorruptFile, LakefmtError, SnapshotExpired, StateError, StorageError, UnsupportedFeature

__all__ = [
    "KEPT",
    "Check",
    "find_free_logs",
    "keep_copy",
    "repair_table",
    "rewrite_files",
    "rewrite_log",
]

#: The directory of copies.
KEPT = ".hoodie/.lakefmt/repaired"
_MOST_COPIES = 1000
#: The entry of commit metadata that describes a repair.
_REPAIR_KEY = "lakefmt.repair"
_MAX_SMALL_FILE_BYTES = 16 * 1024 * 1024
_COPY_CHUNK_BYTES = 8 << 20
_FileGroup = tuple[PartitionPath, FileId]


class Check(Protocol):
    """The type of ``lakefmt._core.check.run.check_table``, passed in to avoid a circular import."""

    def __call__(
        self, client: TableClient, level: str = "fast", partitions: Sequence[str] | None = None
    ) -> CheckReport:
        """Return what is wrong with a table."""
        ...


def repair_table(client: TableClient, plan: RepairPlan, check: Check, *, accept_loss: bool = False) -> RepairReport:
    """Repair a table; see ``Table.repair``.

    Args:
        client: the table client.
        plan: the plan of a check's report; steps that are not needed any more are skipped.
        check: checks the table before and after.
        accept_loss: also execute steps that lose rows.

    Returns:
        The outcome of each step, and the check after it.

    Raises:
        LakefmtError: the table cannot be checked. Errors in steps are outcomes.
    """
    instance_argument(plan, RepairPlan, "plan")
    check_flags(accept_loss=accept_loss)
    fresh = TableClient(client.store, client.options, client.clock, client.ids, observers=client.observers)
    remaining_plan, outcomes = _still_wanted(plan, check(fresh, plan.level, plan.partitions).plan)
    refused = [step for step in remaining_plan.steps if step.loses and not accept_loss]
    outcomes += [Outcome(step, "refused", "it needs accept_loss=True") for step in refused]
    runner = _StepRunner(fresh, remaining_plan.basis)
    allowed = [step for step in remaining_plan.steps if step not in refused]
    for step in allowed:
        if not isinstance(step, RewriteFile | AcceptLoss | RebuildIndexes):
            outcomes.append(runner.run(step))
    rewrites = [step for step in allowed if isinstance(step, RewriteFile)]
    outcomes += runner.rewrite(rewrites) if rewrites else []
    outcomes += [runner.run(step) for step in allowed if isinstance(step, AcceptLoss)]
    outcomes += runner.rebuild_indexes()
    # Unless all of them were just made again.
    outcomes += [runner.run(step) for step in allowed if isinstance(step, RebuildIndexes) and not runner.has_rebuilt]
    return RepairReport(tuple(outcomes), check(fresh, plan.level, plan.partitions))


# ------------------------------------------------------------------------------------------------- what is still to do


def _still_wanted(requested_plan: RepairPlan, now: RepairPlan) -> tuple[RepairPlan, list[Outcome]]:
    """Return the steps that the table still needs, and the outcomes of the others. Pure.

    Example:
        >>> old = RepairPlan((DeleteFiles(("a", "b")),))
        >>> wanted, rest = _still_wanted(old, RepairPlan((DeleteFiles(("b", "c")), SweepTemporary())))
        >>> wanted.steps, rest
        ((DeleteFiles(names=('b',), loses=''),), [])
    """
    remaining_steps: list[Step] = []
    passed = []
    for step in requested_plan.steps:
        shared = next((part for other in now.steps if (part := _common_part(step, other)) is not None), None)
        if shared is None:
            passed.append(Outcome(step, "passed", "the table does not need it any more"))
        elif shared.loses and not step.loses:
            passed.append(Outcome(step, "passed", "it would give up rows by now: look at a new plan"))
        else:
            remaining_steps.append(shared)
    return replace(now, steps=tuple(remaining_steps)), passed


def _common_part(requested_step: Step, now: Step) -> Step | None:
    """Return the part of a current step that the requested one covers."""
    if type(requested_step) is not type(now):
        return None
    if isinstance(requested_step, DeleteFiles) and isinstance(now, DeleteFiles):
        chosen = set(requested_step.names)
        names = tuple(name for name in now.names if name in chosen)
        return DeleteFiles(names) if names else None
    if isinstance(requested_step, UndoWrites) and isinstance(now, UndoWrites):
        if not requested_step.loses or not now.loses:
            return now if not (requested_step.loses or now.loses) else None
        instants = tuple(time for time in now.instants if time in requested_step.instants)
        return UndoWrites(instants, now.loses) if instants else None
    if isinstance(requested_step, AcceptLoss) and isinstance(now, AcceptLoss):
        lost = tuple(name for name in now.lost if name in requested_step.lost)
        hides = tuple(group for group in now.hides if group in requested_step.hides)
        return AcceptLoss(lost, hides, now.loses) if lost or hides else None
    return now if _target_of(requested_step) == _target_of(now) else None


def _target_of(step: Step) -> tuple[str, ...]:
    if isinstance(step, RewriteFile):
        return (step.source.path, step.latest)
    if isinstance(step, CorrectCounts):
        return (step.instant.file_name,)
    if isinstance(step, SetAside):
        return (step.name, step.named)
    if isinstance(step, RewriteLog):
        return (step.name,)
    return (step.partition,) if isinstance(step, MarkPartition) else ()


# ------------------------------------------------------------------------------------------------------------- effects


class _StepRunner:
    """Executes steps; `basis` is the newest commit of the plan or of this repair."""

    def __init__(self, client: TableClient, basis: str) -> None:
        self._client = client
        self._basis = basis
        #: Indexes that were taken away, and are made again.
        self._dropped: tuple[IndexRequest, ...] = ()

    def run(self, step: Step) -> Outcome:
        """Execute a step; an error becomes its outcome."""
        try:
            return Outcome(step, *self._execute(step))
        except LakefmtError as error:
            return Outcome(step, "failed", str(error))

    def _execute(self, step: Step) -> tuple[str, str]:
        if isinstance(step, RestoreProperties):
            _restore_properties(self._client, step)
        elif isinstance(step, AcceptLoss):
            return self._accept_loss(step)
        elif isinstance(step, RewriteFile):
            return self._commit_rewrites([step])
        elif isinstance(step, RebuildIndexes):
            rebuild_damaged(self._client, step.indexes)
        else:
            write_client = open_write_client(self._client)
            with write_client.lock.hold() as lease:
                config = self._writable(write_client)
                lease.check()
                _WORK_OF_STEP[type(step)](write_client, config, step)
        return "done", ""

    def _writable(self, write_client: WriteClient) -> TableConfig:
        """Return the properties of a writable table.

        A step that changes a file in its place has no instant by which the metadata table would see it: that is taken away
        first, and made again when all steps are done.

        Raises:
            MetadataTablePresent: it has an index that lakefmt cannot make again.
        """
        config = write_client.client.load_config()
        if config.metadata_partitions:
            check_writable(replace(config, metadata_partitions=()))
            if write_client.settings.values["hoodie.metadata.enable"] is not False:
                self._dropped = indexes_to_make_again(self._client, config)
            config = drop_metadata_table(write_client, is_made_again=bool(self._dropped))
        check_writable(config)
        return config

    @property
    def has_rebuilt(self) -> bool:
        """Whether a step took the metadata table away, which was made again then."""
        return bool(self._dropped)

    def rebuild_indexes(self) -> list[Outcome]:
        """Make the metadata table again where a step had to take it away."""
        if not self._dropped:
            return []
        step = RebuildIndexes(tuple(request.partition for request in self._dropped))
        try:
            create_metadata_indexes(self._client, self._dropped)
        except LakefmtError as error:
            return [Outcome(step, "failed", str(error))]
        return [Outcome(step, "done")]

    def rewrite(self, steps: Sequence[RewriteFile]) -> list[Outcome]:
        """Rewrite file groups in one commit, or one by one if one fails; those with logs by compaction."""
        try:
            merged = self._with_logs(_group_of(step) for step in steps if not step.loses)
        except LakefmtError as error:
            return [Outcome(step, "failed", str(error)) for step in steps]
        compacted = [step for step in steps if _group_of(step) in merged]
        plain = [step for step in steps if step not in compacted]
        outcomes = self._rewrite(plain) if plain else []
        return outcomes + (self._compact(compacted) if compacted else [])

    def _rewrite(self, steps: Sequence[RewriteFile]) -> list[Outcome]:
        try:
            state, why = self._commit_rewrites(steps)
            return [Outcome(step, state, why) for step in steps]
        except LakefmtError as error:
            if len(steps) == 1:
                return [Outcome(steps[0], "failed", str(error))]
        return [self.run(step) for step in steps]

    def _with_logs(self, groups: Iterable[_FileGroup]) -> dict[_FileGroup, FileSlice]:
        """Return the file groups with logs, whose rows would be lost with a rewritten or hidden base file."""
        group_set = set(groups)
        slices = self._client.at(self._client.load()).slices(sorted({partition for partition, _ in group_set}))
        by_group = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices if file_slice.logs}
        return {group: by_group[group] for group in sorted(group_set & by_group.keys())}

    def _check_no_logs(self, groups: Iterable[_FileGroup]) -> None:
        for file_slice in self._with_logs(groups).values():
            raise UnsupportedFeature(
                f"the rows of {file_slice.paths[0]} are merged with {len(file_slice.logs)} log files, which would go with it: put a "
                "good copy back, or roll back what wrote it"
            )

    def _compact(self, steps: Sequence[RewriteFile]) -> list[Outcome]:
        """Rewrite file groups with logs by compaction: readers see the same rows in one base file."""
        groups = [_group_of(step) for step in steps]
        try:
            lost = sorted({name for step in steps for name in step.gives_up})
            notes = {LOST_KEY: json.dumps(lost)} if lost else None
            compaction = run_compaction(self._client, only=groups, notes=notes)
        except LakefmtError as error:
            return [Outcome(step, "failed", str(error)) for step in steps]
        if compaction.instant is not None:
            layout = self._client.load_config().version.layout
            self._remember(compaction.instant, Action.COMMIT, layout, compaction.completion_time)
        merged = {(operation.partition, operation.file_id) for operation in compaction.plan.operations}
        return [_compaction_outcome(step, is_merged=_group_of(step) in merged) for step in steps]

    def _commit_rewrites(self, steps: Sequence[RewriteFile]) -> tuple[str, str]:
        self._check_no_logs(_group_of(step) for step in steps)
        lost = sorted({name for step in steps for name in step.gives_up})
        metadata = {_REPAIR_KEY: f"{len(steps)} file groups rewritten"}
        session = self._begin(WriteOperation.UPSERT, metadata, lost)
        with session.aborted_on_error():
            partitions = sorted({step.source.partition for step in steps})
            latest = {s.base.path for s in self._client.at(session.state).slices(partitions) if s.base is not None}
            if self._has_moved_on(session) or not latest.issuperset(step.latest for step in steps):
                session.abort()
                return "passed", "another commit came in between: check again"
            statuses = rewrite_files(self._client, session.bound, steps)
            self._commit(session, statuses)
        return "done", ""

    def _accept_loss(self, step: AcceptLoss) -> tuple[str, str]:
        self._check_no_logs(step.hides)
        hidden: dict[PartitionPath, tuple[FileId, ...]] = {}
        for partition, file_id in step.hides:
            hidden[partition] = (*hidden.get(partition, ()), file_id)
        operation = WriteOperation.DELETE_PARTITION if hidden else WriteOperation.UPSERT
        metadata = {_REPAIR_KEY: f"{len(step.lost)} files given up, {len(step.hides)} file groups hidden"}
        session = self._begin(operation, metadata, step.lost)
        with session.aborted_on_error():
            if self._has_moved_on(session):
                session.abort()
                return "passed", "another commit came in between: check again"
            self._commit(session, [], hidden)
        return "done", ""

    def _begin(self, operation: WriteOperation, metadata: Mapping[str, str], lost: Sequence[str]) -> WriteTransaction:
        loss_note = {LOST_KEY: json.dumps(list(lost))} if lost else {}
        return WriteTransaction.begin(self._client, WriteRequest(operation, commit_metadata={**metadata, **loss_note}))

    def _has_moved_on(self, session: WriteTransaction) -> bool:
        latest = session.state.timeline.latest_commit
        return ("" if latest is None else latest.file_name) != self._basis

    def _commit(
        self,
        session: WriteTransaction,
        statuses: Sequence[WriteStatus],
        hidden: Mapping[PartitionPath, tuple[FileId, ...]] | None = None,
    ) -> None:
        completion = session.commit(statuses, hidden).completion_time
        context = session.context
        self._remember(context.instant, Action(context.action), session.bound.config.version.layout, completion)

    def _remember(self, time: InstantTime, action: Action, layout: int, completion: InstantTime | None) -> None:
        """Expect our own commit as the newest in the next step."""
        self._basis = instant_file_name(time, action, State.COMPLETED, layout, completion)


def _group_of(step: RewriteFile) -> _FileGroup:
    return (step.source.partition, step.source.file_id)


def _compaction_outcome(step: RewriteFile, *, is_merged: bool) -> Outcome:
    if not is_merged:
        return Outcome(
            step, "passed", "a service that is pending holds the file group, or has just merged it: check again"
        )
    if step.rekey or step.move or step.drop is not None:
        return Outcome(step, "passed", "its logs were merged into a new base file first: check again")
    return Outcome(step, "done", "with its logs: the file group was compacted")


def _restore_properties(client: TableClient, step: RestoreProperties) -> None:
    # The table's settings are in the damaged file and cannot be read.
    write_client = write_client_of(client, resolve_settings(client.options, None, {}), client.ids.new_uuid())
    store = client.store
    with write_client.lock.hold() as lease:
        if step.from_backup:
            lease.check()
            recover_properties(store, durable=write_client.durable)
            return
        data = store.read(PROPERTIES, _MAX_SMALL_FILE_BYTES)
        values = decode_properties(data, what=PROPERTIES)
        right = table_checksum(values.get("hoodie.database.name"), values.get("hoodie.table.name", ""))
        keep_copy(store, PROPERTIES, data)
        lease.check()
        # The checksum comes last: a truncated file lacks it.
        values.pop(CHECKSUM_KEY, None)
        new = encode_properties({**values, CHECKSUM_KEY: right}, ["Checksum written anew by a repair"])
        store.put(PROPERTIES, new, durable=write_client.durable)


def _restore_notes(write_client: WriteClient, config: TableConfig, step: RestoreNotes) -> None:
    store = write_client.client.store
    if store.info(NOTES) is not None:
        keep_copy(store, NOTES, store.read(NOTES, _MAX_SMALL_FILE_BYTES))
    store.put(NOTES, json.dumps({"index": step.index}).encode(), durable=write_client.durable)


def _undo_writes(write_client: WriteClient, config: TableConfig, step: UndoWrites) -> None:
    consent = Consent(frozenset(step.instants) if step.loses else frozenset(), leaves_others=True)
    timeline = undo_dead_writes(write_client, config, consent=consent)
    # Spark rolls a write back and does not know that it was saved.
    store, pending = write_client.client.store, {instant.time for instant in timeline.pending}
    saved = {saved_write_time(item.name) for item in store.list(SAVED_WRITES)} - pending
    remove_saved_writes(store, *sorted(time for time in saved if time.isdigit()))


def _sweep_temporary(write_client: WriteClient, config: TableConfig, step: SweepTemporary) -> None:
    remove_abandoned(write_client.client.store)


def _delete_files(write_client: WriteClient, config: TableConfig, step: DeleteFiles) -> None:
    """Delete files without an instant, after another look under the lock."""
    client = write_client.client
    timeline = write_client.timeline(config).load()
    commits = {instant.time: instant for instant in timeline.commits}
    logs = {name for name in step.names if parse_log_file(name.rpartition("/")[2]) is not None}
    free_logs = find_free_logs(write_client, config, timeline, logs) if logs else frozenset()

    def is_free(name: str) -> bool:
        if name in logs:
            return name in free_logs
        segment = parse_header_name(name)
        if segment is not None:
            return client.store.info(header_name(segment[0], segment[1])) is None
        if is_claim_name(name):
            return is_blank(client.store.read(name, MAX_HEADER_BYTES))
        base = parse_base_file(name.rpartition("/")[2])
        time = None if base is None else base.instant
        if time is None or time in timeline.pending_times:
            return False
        if time in commits:
            stats = client.at(client.load()).commit_metadata(commits[time]).stats
            return all(stat.path != name for stat in stats)
        if timeline.is_committed(time):
            return False
        return not write_client.is_claimed(config, timeline, time)

    client.store.delete([name for name in step.names if is_free(name)])


def _set_aside(write_client: WriteClient, config: TableConfig, step: SetAside) -> None:
    store = write_client.client.store
    if store.info(step.name) is None or (step.named and store.info(step.named) is None):
        return  # moved by an earlier attempt, or no longer next to another file
    filesystem, prefix = store.arrow_filesystem()
    target = f"{KEPT}/{step.name.rpartition('/')[2]}"
    with (
        reading(step.name),
        filesystem.open_input_file(prefix + step.name) as source,
        store.create(target, durable=True) as sink,
    ):
        while chunk := source.read(_COPY_CHUNK_BYTES):
            sink.file.write(chunk)
        sink.put_if_absent()
    if store.info(target) is None:
        raise StorageError(f"the store does not say whether {target} was written; nothing was removed", transient=True)
    store.delete([step.name])


def _mark_partition(write_client: WriteClient, config: TableConfig, step: MarkPartition) -> None:
    depth = step.partition.count("/") + 1 if step.partition else 0
    content = encode_properties({"commitTime": step.instant, "partitionDepth": str(depth)}, ["partition metadata"])
    put_if_absent_confirmed(
        write_client.client.store, join_path(step.partition, PARTITION_METADATA), content, durable=write_client.durable
    )


def _correct_counts(write_client: WriteClient, config: TableConfig, step: CorrectCounts) -> None:
    store, instant = write_client.client.store, step.instant
    name = f"{config.timeline_directory}/{instant.file_name}"
    data = store.read(name, MAX_BODY_BYTES)
    body_kind = BodyKind.REPLACE_COMMIT if instant.action is Action.REPLACE_COMMIT else BodyKind.COMMIT
    record: dict[str, Any] = decode_body(body_kind, data, what=name)
    for stats in (record["partitionToWriteStats"] or {}).values():
        for stat in stats:
            stat.update(step.counts.get(stat.get("path") or "", {}))
    new = encode_json_commit(record) if data.lstrip()[:1] == b"{" else encode_body(body_kind, record)
    if new != data:
        keep_copy(store, name, data)
        store.put(name, new, durable=write_client.durable)


# ------------------------------------------------------------------------------------------- rewritten files and copies


def keep_copy(store: ObjectStore, name: str, data: bytes) -> None:
    """Keep a copy of an object before it is replaced; equal bytes are kept once."""
    for number in range(_MOST_COPIES):
        target = f"{KEPT}/{name.rpartition('/')[2]}.{number}"
        if put_if_absent_confirmed(store, target, data, durable=True) is PutOutcome.DONE:
            return
        if store.read(target, max(len(data), MAX_BODY_BYTES)) == data:
            return
    raise CorruptFile(f"{KEPT} holds {_MOST_COPIES} copies of {name} already: make room there first")


def rewrite_files(client: TableClient, bound: BoundContext, steps: Sequence[RewriteFile]) -> list[WriteStatus]:
    """Write the new slices of file groups, and new files for rows that belong into other partitions.

    Rows keep their commit times and sequence numbers, so that increments do not return them again; keys, names, filters and
    ranges are corrected. Nothing is merged or looked up. Memory: one file group per thread.

    Args:
        client: the table.
        bound: a write that has begun.
        steps: what to rewrite, one file group each.

    Raises:
        CorruptFile: a file is damaged, or its rows do not fit the table.
        InvalidKey: a key or partition path cannot be built.
        StateError: the plan is for another file.
        UnsupportedFeature: the table captures changes, and rows would be lost, moved or get other
            keys.
        StorageError: the store failed; nothing is visible.
    """
    if not all(step.keeps_rows for step in steps):
        refuse_silent_rewrites(bound)
    work = _FileRewriter(client, bound)
    with ThreadPoolExecutor(min(bound.threads, max(1, len(steps)))) as pool:
        return [status for statuses in pool.map(work, steps) for status in statuses]


class _FileRewriter:
    """Rewrites file groups one by one; thread-safe."""

    def __init__(self, client: TableClient, bound: BoundContext) -> None:
        self._client = client
        self._bound = bound
        self._schema = bound.file_schema
        self._spec = client.key_spec(bound.config)
        self._sequences = count()
        self._lock = Lock()

    def __call__(self, step: RewriteFile) -> list[WriteStatus]:
        source = step.source
        virtual = self._bound.virtual_columns
        reader = (
            self._client.reader if virtual is None or virtual.ids is None else self._client.reader.completing(virtual)
        )
        rows = reconcile(reader.rows(source), self._schema)
        stored = rows.num_rows
        if step.drop is not None and len(step.drop):
            if int(step.drop.max()) >= stored or int(step.drop.min()) < 0:
                raise StateError(f"the plan drops rows that {source.path} does not have: check the table again")
            keep = np.ones(rows.num_rows, dtype=bool)
            keep[step.drop] = False
            rows = rows.filter(pa.array(keep))
        if step.rekey and rows.num_rows:
            rows = _with_column(rows, RECORD_KEY, _rebuilt_keys(self._spec, rows))
        # A row cannot belong to a commit after the one that wrote its file.
        times = rows.column(COMMIT_TIME)
        is_sound = pc.fill_null(pc.less_equal(times, str(source.instant)), False)
        rows = _with_column(rows, COMMIT_TIME, pc.if_else(is_sound, times, str(source.instant)))
        moved = list(_rows_to_move(self._spec, rows, source.partition)) if step.move else []
        if moved:
            stays = np.ones(rows.num_rows, dtype=bool)
            stays[np.concatenate([moved_rows for _, moved_rows in moved])] = False
            staying = rows.filter(pa.array(stays))
        else:
            staying = rows
        file_slice = FileSlice(source.partition, source.file_id, source.instant, source)
        assignment = rewrite_file(file_slice, self._bound.instant, self._number(), 0, match_keys=False)
        cdc_stats = log_no_changes(self._bound, assignment, staying) if step.keeps_rows else {}
        statuses = [self._write(assignment, staying, {"deletes": stored - staying.num_rows, **cdc_stats})]
        for partition, moved_rows in moved:
            instant, new_uuid = self._bound.instant, self._client.ids.new_uuid
            opened = new_file(partition, instant, self._number(), new_uuid, rows=len(moved_rows))
            statuses.append(self._write(opened, rows.take(pa.array(moved_rows)), {"inserts": len(moved_rows)}))
        return statuses

    def _number(self) -> int:
        with self._lock:
            return next(self._sequences)

    def _write(self, assignment: FileAssignment, rows: pa.Table, counts: dict[str, int]) -> WriteStatus:
        store, settings = self._client.store, self._bound.settings
        rows = _with_column(rows, FILE_NAME, pa.repeat(pa.scalar(assignment.file_name), rows.num_rows))
        rows = _with_column(rows, PARTITION_PATH, pa.repeat(pa.scalar(str(assignment.partition)), rows.num_rows))
        if self._bound.config.populate_meta_fields:
            keys = rows.column(RECORD_KEY)
            summary = KeySummary(*key_range(keys), self._filter(keys))
        else:
            summary = KeySummary(None, None, None)
            for name in META_COLUMNS:
                rows = _with_column(rows, name, pa.nulls(rows.num_rows, pa.string()))
        footers = key_footers(summary, self._bound.context.file_schema_text)
        counted = dict.fromkeys(("inserts", "updates", "deletes", "late", "ignored"), 0) | counts
        footers[STAT_KEY] = json.dumps({"rows_in": 0, "rows": rows.num_rows, **counted})
        prepare(self._bound, assignment)
        codec = settings.text("hoodie.parquet.compression.codec") or "zstd"
        with ExitStack() as stack:
            sink = stack.enter_context(store.create(assignment.path, durable=self._bound.durable))
            level = settings.integer("lakefmt.parquet.compression.level")
            writer = BaseFileWriter(sink.file, rows.schema, codec, level)
            stack.callback(writer.discard)
            writer.write(rows)
            writer.close(footers)
            sink.put_if_absent()
        # Whatever the store answered: what is there is read back.
        written = adopt(self._bound, assignment)
        if written is None:
            raise StorageError(f"the store does not say whether {assignment.path} was written", transient=True)
        return written

    def _filter(self, keys: pa.ChunkedArray) -> BloomFilter | None:
        settings = self._bound.settings
        if not settings.flag("hoodie.parquet.bloom.filter.enabled"):
            return None
        bloom = new_filter(settings, len(keys))
        bloom.add(keys)
        return bloom


def _with_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _rebuilt_keys(spec: KeySpec, rows: pa.Table) -> pa.Array:
    return build_record_keys(with_sampled_key(spec, str(rows.column(RECORD_KEY)[0])), rows)


def _rows_to_move(
    spec: KeySpec, rows: pa.Table, partition: PartitionPath
) -> Iterator[tuple[PartitionPath, np.typing.NDArray[np.int64]]]:
    """Yield the partitions of rows in the wrong place, with their row numbers."""
    if not rows.num_rows:
        return
    paths = build_partition_paths(spec, rows)
    codes = paths.indices.to_numpy(zero_copy_only=False)
    for code in range(len(paths.dictionary)):  # partitions, not rows
        path = str(paths.dictionary[code])
        if partition not in (path, path.replace(DEFAULT_PARTITION, "default")):
            yield PartitionPath(path), np.flatnonzero(codes == code)


def find_free_logs(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, paths: Iterable[str]
) -> frozenset[str]:
    """Return the logs without a commit, of which no reader sees a row and that no active writer may commit.

    Args:
        write_client: the write client; holds the table lock.
        config: the table properties.
        timeline: the current timeline.
        paths: the logs to examine.
    """
    client = write_client.client
    state = client.load()
    committed_paths = {
        stat.path for commit in timeline.commits for stat in client.at(state).commit_metadata(commit).stats
    }

    def is_taken(time: InstantTime) -> bool:
        return time in timeline.pending_times or write_client.is_claimed(config, timeline, time)

    def is_free(path: str) -> bool:
        partition, _, name = path.rpartition("/")
        parsed = parse_log_file(name)
        if parsed is None:
            return False
        log = LogFile(PartitionPath(partition), name, parsed.file_id, parsed.instant, parsed.version, 0)
        try:
            look = read_log_look(client.store, log)
        except SnapshotExpired:
            return False
        return inspect_log(log, look, timeline, is_taken=is_taken, is_busy=bool(timeline.pending)) is Standing.UNSEEN

    return frozenset(path for path in paths if path not in committed_paths and is_free(path))


def rewrite_log(write_client: WriteClient, config: TableConfig, step: RewriteLog) -> None:
    """Rewrite a log with its intact blocks and keep a copy; a log that is rewritten already stays."""
    store = write_client.client.store
    data = store.read(step.name, MAX_LOG_BYTES)
    if (len(data) != step.size) if step.drop else (not data or data.startswith(MAGIC)):
        return
    blocks = scan_blocks(lambda offset, count: data[offset : offset + count], len(data), step.name)
    sound = (block for block in blocks if block.kind is not BlockKind.CORRUPT and block.start not in step.drop)
    intact_blocks = [data[block.start : block.end] for block in sound]
    keep_copy(store, step.name, data)
    store.put(step.name, b"".join(intact_blocks), durable=write_client.durable)


_WORK_OF_STEP: dict[type, Callable[[WriteClient, TableConfig, Any], None]] = {
    RestoreNotes: _restore_notes,
    UndoWrites: _undo_writes,
    SweepTemporary: _sweep_temporary,
    DeleteFiles: _delete_files,
    SetAside: _set_aside,
    RewriteLog: rewrite_log,
    MarkPartition: _mark_partition,
    CorrectCounts: _correct_counts,
}
