"""Rollbacks and restores: which instants and files they undo, and what their own files say (docs/format.md, Rollback; Restore)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.log_blocks import MAX_LOG_BYTES, BlockKind, HeaderKey, scan_blocks
from lakefmt._core.formats.log_data_block import encode_command_block
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.api import ObjectStore, PutOutcome, check_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, comparable_action
from lakefmt._core.timeline.markers import list_marked
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError, StorageError, UnsafePath

__all__ = [
    "KEEP_PLAN",
    "LogContent",
    "LogsOfInstant",
    "RestorePlan",
    "RollbackPlan",
    "SharedLogs",
    "choose_logs",
    "execute_rollback",
    "find_late_files",
    "find_logs_of_instant",
    "instants_left_to_undo",
    "is_of_attempt",
    "list_data_files",
    "logs_named_by_slice",
    "parse_restore_record",
    "parse_rollback_plan",
    "plan_rollback",
    "plan_rollback_of",
    "relative_path",
    "requested_as",
    "restore_metadata_record",
    "restore_record",
    "rollback_metadata_record",
    "rollback_plan_record",
    "rolled_back_instants",
    "scan_logs",
    "select_instants_to_undo",
    "timeline_before",
]

_HIDDEN = ".hoodie/"
#: ``s3a://``, ``file:/`` and the like: engines write the same path with different schemes.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)/*")
#: The write token of a log that holds a rollback's command block only, and how many versions are tried for one.
_COMMAND_SUFFIX = "1-0-1"
_VERSIONS_TRIED = 1000
#: Seconds.
_LONGEST_ROLLBACK = 3600.0
#: Actions whose plan becomes pending again after a rollback, as in Hudi: the same plan can be executed again.
KEEP_PLAN = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})


@dataclass(frozen=True, slots=True)
class SharedLogs:
    """Logs of one file slice of version 6 that hold blocks of the target and of other instants.

    They are not deleted: a command block in another log hides the blocks of the target (docs/format.md, Command blocks).

    Attributes:
        partition: where the logs are.
        file_id: their file group.
        base: the base instant in their names.
        sizes: path relative to the table → bytes.
    """

    partition: PartitionPath
    file_id: FileId
    base: InstantTime
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogsOfInstant:
    """The logs of version 6 that an instant wrote: those with its blocks only, and those with blocks of others, too."""

    own: tuple[str, ...] = ()
    shared: tuple[SharedLogs, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackPlan(NotebookText):
    """How an instant is rolled back.

    Attributes:
        target: requested time of the instant.
        action: its action.
        files: the files to delete, relative to the table, by partition.
        shared: logs of version 6 in which its blocks are hidden.
    """

    target: InstantTime
    action: Action
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: tuple[SharedLogs, ...] = ()

    @property
    def num_files(self) -> int:
        """How many files are deleted."""
        return sum(len(names) for names in self.files.values())

    def __str__(self) -> str:
        lines = [f"roll back {self.target} {self.action.value}: delete {self.num_files} files"]
        lines += [f"  {name}" for names in self.files.values() for name in names]
        if self.shared:
            lines.append(f"  and take its blocks back in {sum(len(logs.sizes) for logs in self.shared)} logs")
            lines += [f"  {name} (stays)" for logs in self.shared for name in sorted(logs.sizes)]
        return "\n".join(lines)


def plan_rollback(target: Instant, files: Iterable[str], logs: LogsOfInstant | None = None) -> RollbackPlan:
    """Return the rollback of `target`, given data files of the table; files of other instants are left alone.

    Args:
        target: the instant.
        files: data files; those named by its time are deleted.
        logs: log files of version 6, named by another instant, that hold its blocks (:func:`find_logs_of_instant`).

    Example:
        >>> from lakefmt._core.timeline.instant import State
        >>> t = Instant("20260101000000000", Action.COMMIT, State.INFLIGHT)
        >>> print(plan_rollback(t, ["p/f-0_1-0-0_20260101000000000.parquet", "p/f-0_1-0-0_20250101000000000.parquet"]))
        roll back 20260101000000000 commit: delete 1 files
          p/f-0_1-0-0_20260101000000000.parquet
    """
    logs = logs or LogsOfInstant()
    grouped: dict[str, list[str]] = {}
    own_files = (name for name in files if _is_named_by(name.rpartition("/")[2], target))
    for name in sorted({*own_files, *logs.own}):
        grouped.setdefault(name.rpartition("/")[0], []).append(name)
    files_by_partition = {p: tuple(names) for p, names in grouped.items()}
    return RollbackPlan(target.time, target.action, files_by_partition, logs.shared)


def _is_named_by(file_name: str, target: Instant) -> bool:
    base = parse_base_file(file_name)
    if base is not None:
        return base.instant == target.time
    log = parse_log_file(file_name)
    # A log of version 6 with the time of a compaction in its name was written on top of the compaction.
    return log is not None and log.instant == target.time and target.action is not Action.COMPACTION


def is_of_attempt(path: str, time: InstantTime, attempt: int) -> bool:
    """Return whether one attempt at the plan of a service wrote a file: its write token has the attempt's number.

    Logs of version 6 are named by the slice below them: they belong to the attempt whatever their time.

    Example:
        >>> time = InstantTime("20260101000000000")
        >>> is_of_attempt("p/f-0_1-77-0_20260101000000000.parquet", time, 77), is_of_attempt("p/a.parquet", time, 77)
        (True, False)
    """
    name = path.rpartition("/")[2]
    base, log = parse_base_file(name), parse_log_file(name)
    if base is not None:
        return base.instant == time and base.write_token.split("-")[1:2] == [str(attempt)]
    return log is not None and name.rpartition(".log.")[2].partition("_")[2].split("-")[1:2] == [str(attempt)]


def list_data_files(store: ObjectStore) -> list[str]:
    """Return the names of all objects outside ``.hoodie``."""
    return [item.name for item in store.list() if not item.name.startswith(_HIDDEN)]


@dataclass(frozen=True, slots=True)
class LogContent:
    """Facts about one log: its bytes, the instants of its blocks, and the instants that its command blocks roll back."""

    size: int
    times: frozenset[str | None]
    targets: frozenset[str | None]


def scan_logs(store: ObjectStore, names: Iterable[str]) -> dict[str, LogContent]:
    """Return the facts about the logs among the files `names`; other files and missing ones are left out."""
    contents: dict[str, LogContent] = {}
    for name in sorted(set(names)):
        log = parse_log_file(name.rpartition("/")[2])
        if log is None or log.is_cdc or store.info(name) is None:
            continue
        data = store.read(name, MAX_LOG_BYTES)
        blocks = scan_blocks(partial(_part, data), len(data), name)
        valid_blocks = [block for block in blocks if block.kind is not BlockKind.CORRUPT]
        targets = frozenset(b.header.get(HeaderKey.TARGET_INSTANT_TIME) for b in valid_blocks) - {None}
        contents[name] = LogContent(len(data), frozenset(b.instant_time for b in valid_blocks), targets)
    return contents


def _part(data: bytes, offset: int, count: int) -> bytes:
    return data[offset : offset + count]


def choose_logs(content: Mapping[str, LogContent], time: InstantTime) -> LogsOfInstant:
    """Return the logs that an instant wrote, without those where a command block has rolled it back. Pure.

    In version 6 a log is named by its slice, and on stores that can append, several writes share one log.

    Example:
        >>> mixed = LogContent(9, frozenset({"1", "2"}), frozenset())
        >>> choose_logs({".f-0_20260101000000000.log.1_0-0-0": mixed}, "2").shared[0].file_id
        'f-0'
    """
    own_logs: list[str] = []
    shared: dict[tuple[str, FileId, InstantTime], dict[str, int]] = {}
    taken_back: set[tuple[str, FileId, InstantTime]] = set()
    for name, log_content in content.items():
        log = parse_log_file(name.rpartition("/")[2])
        if log is None or log.instant == time:
            continue
        group = (name.rpartition("/")[0], log.file_id, log.instant)
        if time in log_content.targets:
            taken_back.add(group)
        if log_content.times == {time}:
            own_logs.append(name)
        elif time in log_content.times:
            shared.setdefault(group, {})[name] = log_content.size
    shared_logs = (
        SharedLogs(PartitionPath(p), f, i, s) for (p, f, i), s in shared.items() if (p, f, i) not in taken_back
    )
    return LogsOfInstant(tuple(own_logs), tuple(shared_logs))


def logs_named_by_slice(logs: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return the logs that are named as in version 6: by the base file below them, or as a later log of one name. Pure.

    They stay as they are when a table is upgraded, and may hold blocks of another instant than that of their name.

    Example:
        >>> base, log = "f-0_1-0-0_20260101000000000.parquet", ".f-0_20260101000000000.log.1_0-0-0"
        >>> newer = ".f-0_20260102000000000.log.1_0-0-0"
        >>> logs_named_by_slice([log, newer], [base, log, newer]) == [log]
        True
    """
    slices = set()
    for name in files:
        base = parse_base_file(name.rpartition("/")[2])
        if base is not None:
            slices.add((name.rpartition("/")[0], base.file_id, base.instant))
    chosen = []
    for name in logs:
        log = parse_log_file(name.rpartition("/")[2])
        if log is not None and (log.version > 1 or (name.rpartition("/")[0], log.file_id, log.instant) in slices):
            chosen.append(name)
    return chosen


def find_logs_of_instant(store: ObjectStore, time: InstantTime, names: Iterable[str]) -> LogsOfInstant:
    """Return which of the files `names` are logs with blocks of an instant, without those that are named by it."""
    named_otherwise = (n for n in names if _log_instant(n) != time)
    return choose_logs(scan_logs(store, named_otherwise), time)


def _log_instant(name: str) -> InstantTime | None:
    log = parse_log_file(name.rpartition("/")[2])
    return None if log is None else log.instant


def plan_rollback_of(
    store: ObjectStore,
    target: Instant,
    layout: int,
    files: Iterable[str] | None = None,
    logs: Iterable[str] | None = None,
) -> RollbackPlan:
    """List the files of an instant and return its rollback.

    Args:
        store: the table.
        target: the instant.
        layout: of the timeline; in layout 1 (version 6) other instants name the logs.
        files: data files that may belong to it; None: those that its markers name, without markers all files.
        logs: logs that may have blocks of it although another instant names them: in version 6, those from before an upgrade,
            and copies for the new buckets of a clustering, which are announced. None: those among the files.
    """
    # A marker is written before its file, so markers name every file of a writer that writes markers.
    announced = list_marked(store, target.time) if files is None else list(files)
    names = list_data_files(store) if announced is None else announced
    if logs is None:
        logs = names if layout == 1 or announced is not None else logs_named_by_slice(names, names)
    appends = target.action in (Action.DELTA_COMMIT, Action.LOG_COMPACTION)
    return plan_rollback(target, names, find_logs_of_instant(store, target.time, logs) if appends else None)


def find_late_files(store: ObjectStore, target: Instant, layout: int, since: float) -> list[str]:
    """Return the files that a slow writer put after its instant had been rolled back.

    Args:
        store: the table.
        target: the instant; it is on no timeline any more.
        layout: of the timeline; in layout 1 other instants name the logs, and their blocks tell.
        since: when the rollback was complete, by the clock of the store.
    """
    objects = [item for item in store.list() if not item.name.startswith(_HIDDEN)]
    # The rollback itself has seen what was there before it began.
    logs = [item.name for item in objects if item.modified >= since - _LONGEST_ROLLBACK] if layout == 1 else []
    plan = plan_rollback_of(store, target, layout, [item.name for item in objects], logs)
    return [name for names in plan.files.values() for name in names]


def rolled_back_instants(record: Mapping[str, Any], table_type: TableType) -> list[Instant]:
    """Return the instants that a rollback took back, by its metadata. Pure."""
    actions = {str(each["commitTime"]): Action(each["action"]) for each in record.get("instantsRollback") or ()}
    usual = Action.DELTA_COMMIT if table_type is TableType.MERGE_ON_READ else Action.COMMIT
    times = [InstantTime(str(time)) for time in record.get("commitsRollback") or ()]
    return [Instant(time, actions.get(time, usual), State.INFLIGHT) for time in times]


def execute_rollback(store: ObjectStore, plan: RollbackPlan, time: InstantTime) -> dict[str, int]:
    """Delete the files of a plan and append its command blocks; may be repeated.

    Args:
        store: the table.
        plan: the rollback.
        time: the instant of the rollback or restore that executes it.

    Returns:
        The logs with the command blocks: path relative to the table → bytes.
    """
    store.delete(name for names in plan.files.values() for name in names)
    return dict(_take_back(store, plan.target, logs, time) for logs in plan.shared)


def _take_back(store: ObjectStore, target: InstantTime, logs: SharedLogs, time: InstantTime) -> tuple[str, int]:
    """Append a command block to the logs of a slice, once for each rollback instant."""
    body = encode_command_block(time, target)
    prefix = f"{logs.partition}/" if logs.partition else ""
    versions: dict[int, str] = {}
    for item in store.list(logs.partition, recursive=False):
        log = parse_log_file(item.name.rpartition("/")[2])
        if log is not None and not log.is_cdc and (log.file_id, log.instant) == (logs.file_id, logs.base):
            versions[log.version] = item.name
            if item.size == len(body) and store.read(item.name, len(body)) == body:
                return item.name, item.size  # an earlier attempt wrote it
    next_version = max(versions, default=0) + 1
    for version in range(next_version, next_version + _VERSIONS_TRIED):
        name = f"{prefix}.{logs.file_id}_{logs.base}.log.{version}_{_COMMAND_SUFFIX}"
        if put_if_absent_confirmed(store, name, body, durable=True) is PutOutcome.DONE:
            return name, len(body)
    raise StorageError(f"no free version was found for a log behind {max(versions.values(), default=prefix)}")


def rollback_plan_record(store: ObjectStore, plan: RollbackPlan) -> dict[str, object]:
    """Return the content of the requested file of a rollback."""
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [absolute_path(store, name) for name in names],
            "logBlocksToBeDeleted": {},
        }
        for partition, names in plan.files.items()
    ]
    requests += [
        {
            "partitionPath": logs.partition,
            "fileId": logs.file_id,
            "latestBaseInstant": logs.base,
            "filesToBeDeleted": [],
            "logBlocksToBeDeleted": {absolute_path(store, name): size for name, size in logs.sizes.items()},
        }
        for logs in plan.shared
    ]
    return {
        "instantToRollback": {"commitTime": plan.target, "action": plan.action.value},
        "RollbackRequests": requests,
        "version": 1,
    }


def rollback_metadata_record(
    store: ObjectStore, plan: RollbackPlan, time: InstantTime, commands: Mapping[str, int]
) -> dict[str, object]:
    """Return the content of the completed file of a rollback.

    Args:
        store: the table.
        plan: what was executed.
        time: the instant of the rollback or restore that executed it.
        commands: the logs with command blocks, from :func:`execute_rollback`.
    """
    partitions = {
        partition: {
            "partitionPath": partition,
            "successDeleteFiles": [absolute_path(store, name) for name in plan.files.get(partition, ())],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {
                absolute_path(store, n): size for n, size in commands.items() if n.rpartition("/")[0] == partition
            },
            "logFilesFromFailedCommit": {
                absolute_path(store, name): size
                for logs in plan.shared
                if logs.partition == partition
                for name, size in logs.sizes.items()
            },
        }
        for partition in dict.fromkeys((*plan.files, *(logs.partition for logs in plan.shared)))
    }
    return {
        "startRollbackTime": time,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": plan.num_files,
        "commitsRollback": [plan.target],
        "partitionMetadata": partitions,
        "version": 1,
        "instantsRollback": [{"commitTime": plan.target, "action": plan.action.value}],
    }


def parse_rollback_plan(store: ObjectStore, record: Mapping[str, object]) -> RollbackPlan:
    """Return the plan in the requested file of a rollback, whichever engine wrote it.

    Raises:
        CorruptFile: the plan names no instant.
        UnsafePath: it names a file outside the table.
    """
    target = record.get("instantToRollback")
    requests = record.get("RollbackRequests") or []
    if not isinstance(target, Mapping) or not isinstance(requests, list):
        raise CorruptFile("a rollback plan names no instant to roll back")
    files: dict[str, tuple[str, ...]] = {}
    shared: list[SharedLogs] = []
    for request in requests:
        names = [relative_path(store, str(path)) for path in request["filesToBeDeleted"]]
        partition = str(request["partitionPath"])
        if names:
            files[partition] = (*files.get(partition, ()), *names)
        shared += _parse_shared(store, request)
    action = next((a for a in Action if a.value == target["action"]), Action.COMMIT)
    try:
        time = check_instant_time(str(target["commitTime"]))
    except InvalidInputError as error:
        raise CorruptFile(f"a rollback plan would undo {error}") from None
    return RollbackPlan(time, action, files, tuple(shared))


def _parse_shared(store: ObjectStore, request: Mapping[str, Any]) -> list[SharedLogs]:
    """Return the logs of a request in which blocks are hidden, by the file slice in their names."""
    slices: dict[tuple[str, FileId, InstantTime], dict[str, int]] = {}
    for path, size in (request.get("logBlocksToBeDeleted") or {}).items():
        name = relative_path(store, str(path))
        log = parse_log_file(name.rpartition("/")[2])
        if log is not None:
            slices.setdefault((name.rpartition("/")[0], log.file_id, log.instant), {})[name] = int(size)
    return [SharedLogs(PartitionPath(p), f, i, sizes) for (p, f, i), sizes in slices.items()]


def absolute_path(store: ObjectStore, name: str) -> str:
    """Return a name as Hudi's plans have it: the base path of the table, then the name."""
    return f"{store.url.rstrip('/')}/{name}"


def relative_path(store: ObjectStore, path: str) -> str:
    """Return a path of a plan relative to the table.

    Raises:
        UnsafePath: the path is not below the table.
    """
    bare, base = _SCHEME.sub("", path).lstrip("/"), _SCHEME.sub("", store.url).strip("/") + "/"
    if bare.startswith(base):
        return check_name(bare[len(base) :])
    if path.startswith("/") or _SCHEME.match(path):
        raise UnsafePath(f"a plan names {path!r}, which is outside the table at {store.url}")
    return check_name(path)


# -------------------------------------------------------------------------------------------- restores
#
# Instants are undone newest first, in the order in which they became visible: a reader sees the table in between as it was
# after some commit, never a mix.


#: Plans that change no row: those that are older than the restored state are kept.
_REWRITING_PLANS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING})


@dataclass(frozen=True, slots=True)
class RestorePlan(NotebookText):
    """What a restore does; prints one line per instant.

    Attributes:
        target: the commit whose state is restored.
        is_savepoint: whether a savepoint keeps it.
        instants: the instants to undo, in this order.
        rollbacks: the rollback of each of them.
    """

    target: InstantTime
    is_savepoint: bool = False
    instants: tuple[Instant, ...] = ()
    rollbacks: tuple[RollbackPlan, ...] = ()

    @property
    def num_files(self) -> int:
        """How many files are deleted."""
        return sum(plan.num_files for plan in self.rollbacks)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are deleted, relative to the table."""
        return tuple(name for plan in self.rollbacks for names in plan.files.values() for name in names)

    def __str__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "commit"
        lines = [f"restore to {kind} {self.target}: undo {len(self.instants)} instants, delete {self.num_files} files"]
        files = {plan.target: plan.num_files for plan in self.rollbacks}
        lines += [f"  {instant}, {files.get(instant.time, 0)} files" for instant in self.instants]
        return "\n".join(lines)


def select_instants_to_undo(timeline: Timeline, target: Instant, *, merge_on_read: bool) -> tuple[Instant, ...]:
    """Return the instants to undo for the state of `target`, in the order in which they are undone.

    First pending commits, whenever they began; then completed commits that became visible after `target`, newest first. A
    compaction changes no row: one that was requested before `target` is kept, because later logs may lie on top of it, as
    in Hudi. Plans that were requested after it are removed with their instants.

    Args:
        timeline: the active timeline.
        target: a completed commit.
        merge_on_read: the table's type; there a ``commit`` is a compaction.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.commit" for n in range(4)] + ["20260101000009000.inflight"]
        >>> view = timeline_from_names(names, 2)
        >>> [i.time for i in select_instants_to_undo(view, view.commits[1], merge_on_read=False)]
        ['20260101000009000', '20260101000003000', '20260101000002000']
    """

    def is_later(instant: Instant) -> bool:
        if merge_on_read and Action.COMMIT in (instant.action, target.action):
            return instant.time > target.time
        return (instant.order_time, instant.time) > (target.order_time, target.time)

    pending = [i for i in timeline.pending if i.action in COMMIT_ACTIONS or i.action in _REWRITING_PLANS]
    pending_to_undo = [i for i in pending if i.time > target.time or _may_hold_rows(i)]
    completed_to_undo = [i for i in timeline.completed if i.action in COMMIT_ACTIONS and i != target and is_later(i)]
    return (
        *sorted(pending_to_undo, key=lambda i: i.time, reverse=True),
        *sorted(completed_to_undo, key=lambda i: (i.order_time, i.time), reverse=True),
    )


def _may_hold_rows(pending: Instant) -> bool:
    if pending.action is Action.REPLACE_COMMIT:
        return pending.state is State.INFLIGHT  # requested, it may be a clustering of version 6 that waits
    return pending.action in COMMIT_ACTIONS


def timeline_before(timeline: Timeline, undone: Iterable[Instant]) -> Timeline:
    """Return the timeline with the instants `undone` as pending, so that their files are not visible.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> view = timeline_from_names(["20260101000000000_20260101000000500.commit"], 2)
        >>> timeline_before(view, view.commits).commits
        ()
    """
    hidden = {(i.time, i.action) for i in undone}
    earlier = build_timeline(
        (
            i._replace(state=State.INFLIGHT, completion=None) if (i.time, i.action) in hidden and i.is_completed else i
            for i in timeline
        ),
        timeline.layout,
    )
    return earlier.with_history(timeline.archived)


def requested_as(timeline: Timeline, instant: Instant) -> Action:
    """Return the action that an instant has while it is pending: a completed compaction began as one."""
    return next((file.action for file in timeline.files_of(instant) if not file.is_completed), instant.action)


def restore_record(plan: RestorePlan) -> dict[str, object]:
    """Return the content of the requested file."""
    return {
        "instantsToRollback": [{"commitTime": i.time, "action": i.action.value} for i in plan.instants],
        "version": 2,
        "savepointToRestoreTimestamp": plan.target,
    }


def parse_restore_record(record: Mapping[str, Any], what: str) -> tuple[tuple[InstantTime, Action], ...]:
    """Return the instants that a requested restore undoes, in its order.

    Raises:
        CorruptFile: it names something that is no instant.

    Example:
        >>> plan = RestorePlan("20260101000000000", instants=(Instant("20260102000000000", Action.COMMIT, State.COMPLETED),))
        >>> parse_restore_record(restore_record(plan), "a restore")[0][1].value
        'commit'
    """
    planned = []
    actions = {action.value: action for action in Action}
    for entry in record["instantsToRollback"]:
        try:
            time = check_instant_time(str(entry["commitTime"]))
        except InvalidInputError as error:
            raise CorruptFile(f"{what} would undo {error}") from None
        action = actions.get(str(entry["action"]))
        if action not in COMMIT_ACTIONS and action not in _REWRITING_PLANS:
            raise CorruptFile(f"{what} would undo a {entry['action']}: only what writes data is undone")
        planned.append((time, action))
    return tuple(planned)


def instants_left_to_undo(timeline: Timeline, planned: Sequence[tuple[InstantTime, Action]]) -> tuple[Instant, ...]:
    """Return the planned instants that are still on the timeline, in the order of the plan."""
    instants_by_key = {(i.time, comparable_action(i.action)): i for i in timeline}
    matches = (instants_by_key.get((time, comparable_action(action))) for time, action in planned)
    return tuple(i for i in matches if i is not None)


def restore_metadata_record(
    time: InstantTime, planned: Sequence[tuple[InstantTime, Action]], rollbacks: Mapping[InstantTime, object]
) -> dict[str, object]:
    """Return the content of the completed file.

    Args:
        time: the instant of the restore.
        planned: the instants that it undid, in order.
        rollbacks: instant → its rollback metadata; without the instants that an earlier attempt had undone.
    """
    return {
        "startRestoreTime": time,
        "timeTakenInMillis": 0,
        "instantsToRollback": [undone for undone, _ in planned],
        "hoodieRestoreMetadata": {undone: [rollbacks[undone]] if undone in rollbacks else [] for undone, _ in planned},
        "version": 1,
        "restoreInstantInfo": [{"commitTime": undone, "action": action.value} for undone, action in planned],
    }
