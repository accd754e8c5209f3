"""Clean: delete the file slices that no reader can ask for any more (docs/format.md, Clean).

A pending clean is executed again by the next one: deleting twice is fine. Before a stored plan is executed, files that
became reachable again (by a rollback) are taken off it.

The plan is the content of the requested file, the metadata that of the completed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from lakefmt._core.compaction.clean_plan import (
    FLOOR,
    SAVEPOINTS_SEEN,
    CleanPlan,
    CleanPolicy,
    CleanRules,
    GroupKey,
    Needs,
    clean_rules,
    earliest_now,
    last_floor,
    plan_clean,
    with_change_files,
)
from lakefmt._core.compaction.service import finish_pending, load_for_service, run_all_pending, run_service
from lakefmt._core.config.table_config import TableConfig, cdc_mode, check_writable
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import list_change_files
from lakefmt._core.filegroups.model import all_slices, build_slices, join_path
from lakefmt._core.filegroups.pending_plans import groups_of_plan
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.consumers import consumed_until
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import (
    BodyKind,
    Savepoint,
    decode_body,
    encode_body,
    parse_savepoint,
    savepoints_of,
)
from lakefmt._core.timeline.rollback import absolute_path, relative_path
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType
from lakefmt.errors import CorruptFile, WriterActive

__all__ = [
    "CleanJob",
    "CleanResult",
    "DeleteFiles",
    "clean_metadata_record",
    "clean_plan_record",
    "finish_clean",
    "parse_clean_plan",
    "plan_clean_of",
    "planned_groups",
    "run_clean",
    "run_waiting_cleans",
    "saved_files",
]


#: Deletes files of the table by name; missing ones are none to worry about.
DeleteFiles = Callable[[Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class CleanResult(NotebookText):
    """What a clean did; prints as one line. ``instant`` None: there was nothing to delete, or it is only a plan."""

    instant: InstantTime | None
    plan: CleanPlan
    completion_time: InstantTime | None = None
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """Files that were deleted."""
        return 0 if self.completion_time is None else self.plan.num_files

    def __str__(self) -> str:
        if self.completion_time is None:
            return str(self.plan)
        return (
            f"clean {self.instant}: {self.plan.num_files:,} files deleted, {self.plan.num_bytes:,} bytes, "
            f"{self.seconds:.3f} s"
        )


def plan_clean_of(client: TableClient, options: Mapping[str, object] | None = None) -> CleanPlan:
    """Return what :func:`run_clean` would delete; nothing is changed."""
    service = _CleanService(open_write_client(client, options))
    return service.propose(load_for_service(service))


def run_clean(
    client: TableClient,
    options: Mapping[str, object] | None = None,
    *,
    schedule: bool = False,
    delete_files: DeleteFiles | None = None,
) -> CleanResult:
    """Delete the file slices that no reader can need any more.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request the plan; the next clean, or another engine's, executes it.
        delete_files: deletes the files of a plan, in other processes; None: this one does.

    Raises:
        WriterActive: another process executes a clean.
        CorruptFile: the plan of a pending clean, a savepoint or the file of a consumer is damaged.
        LockUnavailable: the table lock could not be taken in time.
    """
    begun = perf_counter()
    service = _CleanService(open_write_client(client, options), delete_files)
    service_run = run_service(service, schedule=schedule)
    _remember(client, service_run.proposal)
    instant = None if service_run.run is None else service_run.run.instant
    completed = None if service_run.run is None else service_run.run.completed
    completion = None if completed is None else completed.order_time
    return CleanResult(instant, service_run.proposal, completion, service_run.finished, perf_counter() - begun)


def _remember(client: TableClient, plan: CleanPlan) -> None:
    """Remember that a clean found nothing to delete, so that this handle looks at later commits only.

    Not while a pending plan keeps slices: these may become unneeded without a further commit.
    """
    timeline = client.seen().timeline
    client.cache.cleaned_until.clear()
    if plan.num_files or plan.earliest is None or plan.floor is None or timeline.pending:
        return
    client.cache.cleaned_until[plan.rules, savepoints_of(timeline)] = plan.floor


def run_waiting_cleans(client: TableClient, options: Mapping[str, object] | None = None) -> tuple[InstantTime, ...]:
    """Execute the pending cleans and plan none; return those that were completed.

    Args:
        client: the table.
        options: settings of the call.

    Raises:
        WriterActive: another process executes one of them.
        CorruptFile: a plan is damaged.
        LockUnavailable: the table lock could not be taken in time.
    """
    return run_all_pending(_CleanService(open_write_client(client, options)))


def finish_clean(write_at: WriteAt, pending: Instant, lease: Lease) -> bool:
    """Execute the plan of one pending clean of any writer; False: it had none yet and was removed.

    Call under the table lock, and only when no process executes it.
    """
    return finish_pending(_CleanService(write_at.write_client), write_at.state, pending, lease)


@dataclass(frozen=True, slots=True)
class _CleanService:
    """What a clean adds to the driver of services."""

    write_client: WriteClient
    delete_files: DeleteFiles | None = None

    @property
    def action(self) -> Action:
        return Action.CLEAN

    def check_table(self, config: TableConfig) -> None:
        check_writable(config)

    def propose(self, state: TableState) -> CleanPlan:
        return _plan(self.write_client.at(state))

    def encode(self, state: TableState, proposal: CleanPlan) -> tuple[CleanJob, bytes] | None:

        if not proposal.num_files:
            return None
        store = self.write_client.client.store
        record = clean_plan_record(store, proposal, _extra(state, proposal))
        return parse_clean_plan(store, record, "the clean"), encode_body(BodyKind.CLEANER_PLAN, record)

    def check_idle(self, state: TableState, pending: Instant) -> None:
        life = self.write_client.writer_liveness(state.config, state.timeline, pending)
        if pending.state is State.INFLIGHT and life.alive:
            raise WriterActive(f"the clean {pending.time} is at work ({life.reason}); try again later")

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> CleanJob | None:

        client, timeline_store = self.write_client.client, self.write_client.timeline(state.config)
        requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), pending)
        body = timeline_store.read_body(requested)
        if not body:
            # It died before its plan was written, so nothing was deleted.
            timeline_store.remove_pending(pending.time, Action.CLEAN)
            return None
        record = decode_body(BodyKind.CLEANER_PLAN, body, what=requested.file_name)
        return _without_reachable(client.at(state), parse_clean_plan(client.store, record, requested.file_name))

    def discard_attempt(self, state: TableState, time: InstantTime, plan: CleanJob) -> None:
        return  # a clean writes no files

    def execute(self, transaction: InstantTransaction, state: TableState, plan: CleanJob) -> None:
        if self.delete_files is None:
            self.write_client.client.store.delete(plan.paths)
        else:
            self.delete_files(plan.paths)

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: CleanJob, output: None
    ) -> tuple[bytes, None]:

        record = clean_metadata_record(transaction.time, plan, 0)
        return encode_body(BodyKind.CLEAN_METADATA, record), None

    def release_attempt(self, state: TableState, time: InstantTime, plan: CleanJob) -> None:
        return  # what was deleted stays deleted: the next clean executes the plan again


def _without_reachable(table_at: TableAt, job: CleanJob) -> CleanJob:
    """Return the plan without files of the newest snapshot and of savepoints: both may be younger than the plan."""
    bases, logs = table_at.client.listing(table_at.config).files(list(job.files))
    bases = table_at.without_lost_attempts(bases)
    slices = build_slices(bases, logs, table_at.slicing(bases, logs), table_at.replaced())
    retained_paths = {path for file_slice in slices for path in file_slice.paths} | saved_files(table_at)
    if cdc_mode(table_at.config.properties) is not None:
        current = {(base.partition, base.file_id, base.instant) for base in bases if base.path in retained_paths}
        changes = list_change_files(table_at.client.store, list(job.files))
        retained_paths |= {file.path for file in changes if (file.partition, file.file_id, file.instant) in current}
    files = {p: tuple(n for n in names if join_path(p, n) not in retained_paths) for p, names in job.files.items()}
    return replace(job, files={p: names for p, names in files.items() if names})


# ------------------------------------------------------------------------------------------------------- planning


def _plan(write_at: WriteAt) -> CleanPlan:
    client, timeline = write_at.client, write_at.timeline
    rules = clean_rules(write_at.settings)
    needs = Needs(
        frozenset(saved_files(write_at)),
        frozenset(planned_groups(write_at)),
        consumed_until(client.store, client.clock.now()),
    )
    earliest = earliest_now(write_at, rules)
    if earliest is None and rules.policy is not CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return CleanPlan(rules, None, timeline.commits[-1].time if timeline.commits else None)
    partitions = _changed_partitions(write_at, rules, earliest)
    bases, logs = client.listing(write_at.config).files(partitions)
    slices = all_slices(bases, logs, write_at.slicing(bases, logs))
    plan = plan_clean(timeline, slices, write_at.replaced(), rules, needs, earliest)
    if cdc_mode(write_at.config.properties) is None:
        return plan
    every = write_at.settings.flag("lakefmt.clean.change.files")
    changed = dict.fromkeys(each.partition for each in slices) if every else plan.files
    return with_change_files(plan, list_change_files(client.store, changed), every=every)


def saved_files(table_at: TableAt) -> set[str]:
    """Return the files that savepoints name, and those that a restore to them needs besides."""
    saved: set[str] = set()
    for instant in savepoints_of(table_at.timeline):
        record = decode_body(BodyKind.SAVEPOINT_METADATA, table_at.read_body(instant), what=instant.file_name)
        savepoint = parse_savepoint(instant.time, record, instant.file_name)
        saved.update(savepoint.files)
        if table_at.config.table_type is TableType.MERGE_ON_READ:
            saved.update(_compacted_since(table_at, savepoint))
    return saved


def _compacted_since(table_at: TableAt, savepoint: Savepoint) -> Iterable[str]:
    """Yield base files of compactions that were pending when a savepoint was made: a restore to it keeps them."""
    bases: dict[GroupKey, str] = {}
    for path in savepoint.files:
        partition, _, name = path.rpartition("/")
        base, log = parse_base_file(name), parse_log_file(name)
        if log is not None:
            bases.setdefault((PartitionPath(partition), log.file_id), "")
        elif base is not None:
            bases[PartitionPath(partition), base.file_id] = base.instant
    for instant in table_at.timeline.commits:
        if instant.action is not Action.COMMIT or instant.time > savepoint.instant:
            continue
        for stat in table_at.commit_metadata(instant).stats:
            if bases.get((stat.partition_path, stat.file_id), instant.time) < instant.time:
                yield stat.path


def planned_groups(write_at: WriteAt) -> Iterable[tuple[PartitionPath, FileId]]:
    """Yield the file groups that pending compactions, log compactions and clusterings will read."""
    for pending in write_at.timeline.pending:
        yield from groups_of_plan(write_at, pending)


def _changed_partitions(write_at: WriteAt, rules: CleanRules, earliest: Instant | None) -> list[PartitionPath] | None:
    """Return the partitions in which slices may have become unneeded since the last clean; None: all of them.

    A slice is not needed any more when the commit that replaced it is older than the floor. So it is in a partition that a
    commit between the floor of the last clean and the floor of this one changed.
    """
    if earliest is None or not write_at.settings.flag("hoodie.clean.incremental.enabled"):
        return None
    client, timeline = write_at.client, write_at.timeline
    before = last_floor(write_at, rules)
    if before is None:
        return None
    if before < (timeline.first_active or "") and (before or _has_archive(client, write_at.config)):
        return None
    touched: set[PartitionPath] = set()
    for instant in timeline.commits:
        if before <= instant.time < earliest.time:
            commit = write_at.commit_metadata(instant)
            touched |= {s.partition_path for s in commit.stats if s.prev_commit not in (None, "", "null")}
            touched |= set(commit.replaced_file_ids)
    return sorted(touched)


def _has_archive(client: TableClient, config: TableConfig) -> bool:
    return any(True for _ in client.store.list(config.history_directory, recursive=False))


def _extra(state: TableState, plan: CleanPlan) -> dict[str, str]:

    entries = {SAVEPOINTS_SEEN: ",".join(i.time for i in savepoints_of(state.timeline)), FLOOR: plan.floor or ""}
    return {key: value for key, value in entries.items() if value}


# ---------------------------------------------------------------------------------------- requested and completed files


@dataclass(frozen=True, slots=True)
class CleanJob:
    """The plan of a clean as its requested file holds it, for its executor.

    Attributes:
        policy: name of the policy.
        earliest: the earliest commit whose state stays readable, "" when the policy promises none.
        last_completed: the newest commit that the planner had seen.
        files: names to delete, by partition.
        extra: further entries.
    """

    policy: str
    earliest: str
    last_completed: str
    files: Mapping[PartitionPath, tuple[str, ...]]
    extra: Mapping[str, str]

    @property
    def paths(self) -> list[str]:
        """The files to delete, relative to the table."""
        return [join_path(partition, name) for partition, names in self.files.items() for name in names]


def clean_plan_record(store: ObjectStore, plan: CleanPlan, extra: Mapping[str, str]) -> dict[str, object]:
    """Return the record of a requested clean."""
    earliest = plan.earliest
    instant = earliest and {"timestamp": earliest.time, "action": earliest.action.value, "state": earliest.state.name}
    return {
        "earliestInstantToRetain": instant,
        "lastCompletedCommitTimestamp": plan.last_completed or "",
        "policy": plan.rules.policy.value,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": absolute_path(store, join_path(partition, name)), "isBootstrapBaseFile": False}
                for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": dict(extra),
    }


def parse_clean_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> CleanJob:
    """Return the plan in the record of a requested clean, whichever engine wrote it.

    Raises:
        CorruptFile: it names something that is no data file of its partition.
        UnsafePath: it names something outside the table.
    """
    paths_by_partition: dict[PartitionPath, list[str]] = {}
    for partition, names in (record.get("filesToBeDeletedPerPartition") or {}).items():
        paths_by_partition.setdefault(partition, []).extend(
            join_path(partition, name.rpartition("/")[2]) for name in names
        )
    for partition, files in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
        paths = (relative_path(store, str(file["filePath"] or "")) for file in files)
        paths_by_partition.setdefault(partition, []).extend(paths)
    earliest = record.get("earliestInstantToRetain") or {}
    return CleanJob(
        policy=str(record["policy"]),
        earliest=str(earliest.get("timestamp") or ""),
        last_completed=str(record.get("lastCompletedCommitTimestamp") or ""),
        files={
            PartitionPath(p): tuple(_checked_data_file(p, path, what) for path in paths)
            for p, paths in paths_by_partition.items()
        },
        extra={str(k): str(v) for k, v in (record.get("extraMetadata") or {}).items()},
    )


def _checked_data_file(partition: str, path: str, what: str) -> str:
    inside, _, name = path.rpartition("/")
    is_data = parse_base_file(name) is not None or parse_log_file(name) is not None
    if inside != partition or not is_data:
        raise CorruptFile(f"{what} would delete {path!r}, which is no data file of partition {partition!r}")
    return name


def clean_metadata_record(time: InstantTime, job: CleanJob, milliseconds: int) -> dict[str, object]:
    """Return the record of a completed clean."""
    return {
        "startCleanTime": time,
        "timeTakenInMillis": milliseconds,
        "totalFilesDeleted": len(job.paths),
        "earliestCommitToRetain": job.earliest,
        "lastCompletedCommitTimestamp": job.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": job.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in job.files.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(job.extra),
    }
