"""Undoing an instant: which files go, and the conversation that removes them (spec 8.2, 10.9).

``plan_rollback`` is pure: an instant and the files seen make a plan that prints. ``run_rollback`` carries it out; every
step may be repeated, and a rollback that died half-way is finished by the next writer from its stored plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakefmt.errors import CorruptFile, InvalidInputError, StateError, StorageError, UnsafePath
from lakefmt.formats.log.blocks import MAX_LOG_BYTES, BlockKind, HeaderKey, scan_blocks
from lakefmt.formats.log.data_block import encode_command_block
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.storage.api import ObjectStore, PutOutcome, check_name
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.markers import list_marked, remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.store import TimelineStore, put_if_absent_confirmed
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import FileId, InstantTime, PartitionPath, check_instant_time

__all__ = [
    "KEEP_PLAN",
    "LogContent",
    "LogsOfInstant",
    "RollbackPlan",
    "SharedLogs",
    "choose_logs",
    "execute_rollback",
    "find_logs_of_instant",
    "finish_rollback",
    "list_data_files",
    "list_files_of_instant",
    "plan_rollback",
    "plan_rollback_of",
    "relative_path",
    "rollback_metadata_record",
    "run_rollback",
    "scan_logs",
]

_HIDDEN = ".hoodie/"
#: ``s3a://``, ``file:/`` and the like: engines spell one place differently.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)/*")
#: The token of a log that holds nothing but a rollback's command, and how many versions are tried for one.
_COMMAND_SUFFIX = "1-0-1"
_VERSIONS_TRIED = 1000
#: What falls back to its plan when it is undone: the same plan can be carried out again (as in Hudi).
KEEP_PLAN = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})


@dataclass(frozen=True, slots=True)
class SharedLogs:
    """Logs of one file slice of version 6 that hold blocks of the instant undone and of others.

    They stay: a command block in a further log takes the instant's blocks back (spec 7.7).

    Attributes:
        partition: where they are.
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
    """The logs of version 6 that an instant wrote to: those of its own, and those that it shares."""

    own: tuple[str, ...] = ()
    shared: tuple[SharedLogs, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What undoes an instant: the files to delete, by partition (names relative to the table).

    Attributes:
        target: the instant.
        action: what it does, or was to do.
        files: what is deleted.
        shared: logs of version 6 in which its blocks are taken back.
    """

    target: InstantTime
    action: Action
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: tuple[SharedLogs, ...] = ()

    @property
    def num_files(self) -> int:
        """How many files go."""
        return sum(len(names) for names in self.files.values())

    def __str__(self) -> str:
        lines = [f"roll back {self.target} {self.action.value}: delete {self.num_files} files"]
        lines += [f"  {name}" for names in self.files.values() for name in names]
        if self.shared:
            lines.append(f"  and take its blocks back in {sum(len(logs.sizes) for logs in self.shared)} logs")
            lines += [f"  {name} (stays)" for logs in self.shared for name in sorted(logs.sizes)]
        return "\n".join(lines)


def plan_rollback(target: Instant, files: Iterable[str], logs: LogsOfInstant | None = None) -> RollbackPlan:
    """Return the plan that undoes `target`, given the data files seen; files of other instants are left alone.

    Args:
        target: the instant.
        files: data files; those named by its time go.
        logs: log files of version 6, named by another instant, that hold its blocks (:func:`find_logs_of_instant`).

    Example:
        >>> t = Instant("20260101000000000", Action.COMMIT, State.INFLIGHT)
        >>> print(plan_rollback(t, ["p/f-0_1-0-0_20260101000000000.parquet", "p/f-0_1-0-0_20250101000000000.parquet"]))
        roll back 20260101000000000 commit: delete 1 files
          p/f-0_1-0-0_20260101000000000.parquet
    """
    logs = logs or LogsOfInstant()
    grouped: dict[str, list[str]] = {}
    named = (name for name in files if _is_named_by(name.rpartition("/")[2], target))
    for name in sorted({*named, *logs.own}):
        grouped.setdefault(name.rpartition("/")[0], []).append(name)
    files_by_partition = {p: tuple(names) for p, names in grouped.items()}
    return RollbackPlan(target.time, target.action, files_by_partition, logs.shared)


def _is_named_by(file_name: str, target: Instant) -> bool:
    base = parse_base_file(file_name)
    if base is not None:
        return base.instant == target.time
    log = parse_log_file(file_name)
    # A log of version 6 that has a compaction's time in its name was written by somebody else on top of it.
    return log is not None and log.instant == target.time and target.action is not Action.COMPACTION


def list_files_of_instant(store: ObjectStore, time: InstantTime) -> list[str]:
    """Return the data files that may be an instant's: those its markers name, else all there are.

    Markers come before files, so they name at least every file there is; without any, the writer kept none.
    """
    marked = list_marked(store, time)
    return marked if marked is not None else list_data_files(store)


def list_data_files(store: ObjectStore) -> list[str]:
    """Return the names of all objects outside ``.hoodie``."""
    return [found.name for found in store.list() if not found.name.startswith(_HIDDEN)]


@dataclass(frozen=True, slots=True)
class LogContent:
    """What the blocks of one log say: bytes of the file, their instants, the instants that its commands take back."""

    size: int
    times: frozenset[str | None]
    targets: frozenset[str | None]


def scan_logs(store: ObjectStore, names: Iterable[str]) -> dict[str, LogContent]:
    """Return what the blocks of the logs among the files `names` say; other files and missing ones are left out."""
    found: dict[str, LogContent] = {}
    for name in sorted(set(names)):
        log = parse_log_file(name.rpartition("/")[2])
        if log is None or log.is_cdc or store.info(name) is None:
            continue
        data = store.read(name, MAX_LOG_BYTES)
        blocks = scan_blocks(partial(_part, data), len(data), name)
        whole = [block for block in blocks if block.kind is not BlockKind.CORRUPT]
        targets = frozenset(b.header.get(HeaderKey.TARGET_INSTANT_TIME) for b in whole) - {None}
        found[name] = LogContent(len(data), frozenset(b.instant_time for b in whole), targets)
    return found


def _part(data: bytes, at: int, count: int) -> bytes:
    return data[at : at + count]


def choose_logs(content: Mapping[str, LogContent], time: InstantTime) -> LogsOfInstant:
    """Return which logs an instant wrote to, whatever instant names them; what a command took back does not count. Pure.

    In version 6 a log is named by its slice, and on stores that can append several writes share one.

    Example:
        >>> mixed = LogContent(9, frozenset({"1", "2"}), frozenset())
        >>> choose_logs({".f-0_20260101000000000.log.1_0-0-0": mixed}, "2").shared[0].file_id
        'f-0'
    """
    found: list[str] = []
    shared: dict[tuple[str, FileId, InstantTime], dict[str, int]] = {}
    taken_back: set[tuple[str, FileId, InstantTime]] = set()
    for name, said in content.items():
        log = parse_log_file(name.rpartition("/")[2])
        if log is None or log.instant == time:
            continue
        group = (name.rpartition("/")[0], log.file_id, log.instant)
        if time in said.targets:
            taken_back.add(group)
        if said.times == {time}:
            found.append(name)
        elif time in said.times:
            shared.setdefault(group, {})[name] = said.size
    rest = (SharedLogs(PartitionPath(p), f, i, s) for (p, f, i), s in shared.items() if (p, f, i) not in taken_back)
    return LogsOfInstant(tuple(found), tuple(rest))


def find_logs_of_instant(store: ObjectStore, time: InstantTime, names: Iterable[str]) -> LogsOfInstant:
    """Return which of the files `names` are logs with blocks of an instant, whatever instant names them."""
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
    """Look for the files of an instant and return the plan that undoes it.

    Args:
        store: the table.
        target: the instant.
        layout: 1 for version 6, whose logs are looked into.
        files: data files that may be its own; None: those that its markers name, else all there are.
        logs: logs that may be its own in version 6; None: those among `files`.
    """
    names = list_files_of_instant(store, target.time) if files is None else list(files)
    appends = layout == 1 and target.action in (Action.DELTA_COMMIT, Action.LOG_COMPACTION)
    own = find_logs_of_instant(store, target.time, names if logs is None else logs) if appends else None
    return plan_rollback(target, names, own)


def run_rollback(
    store: ObjectStore,
    timeline: TimelineStore,
    plan: RollbackPlan,
    next_time: Callable[[], InstantTime],
    completed: Instant | None = None,
) -> InstantTime:
    """Carry out a plan under the table lock; returns the rollback's own instant time.

    Args:
        store: the table.
        timeline: its timeline.
        plan: what undoes the target.
        next_time: hands out the rollback's own time.
        completed: the target when it is complete. It becomes invisible after the plan is on the timeline, so that a death
            in between is never taken for a completed file that somebody removed, and before any file goes.
    """
    time = next_time()
    timeline.request(time, Action.ROLLBACK, encode_body(BodyKind.ROLLBACK_PLAN, _plan_record(store, plan)))
    timeline.start(time, Action.ROLLBACK)
    if completed is not None:
        timeline.reopen(completed)
    _finish(store, timeline, plan, time, next_time)
    return time


def finish_rollback(
    store: ObjectStore,
    timeline: TimelineStore,
    view: Timeline,
    pending: Instant,
    next_time: Callable[[], InstantTime],
) -> None:
    """Finish a rollback that died: carry out its stored plan again (deleting twice is fine).

    Engines hide a completed target before they delete a file of it. A rollback whose target is still complete has
    deleted nothing, and others may have committed on top of the target since: it leaves the timeline.
    """
    requested = next((f for f in view.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline.read_body(requested)
    if not body:
        # It died before its plan was written: nothing was deleted, so it never was.
        timeline.remove_pending(pending.time, Action.ROLLBACK)
        return
    plan = _parse_plan(store, decode_body(BodyKind.ROLLBACK_PLAN, body, what=requested.file_name))
    if any(commit.time == plan.target for commit in view.commits):
        timeline.remove_pending(pending.time, Action.ROLLBACK)
        return
    timeline.start(pending.time, Action.ROLLBACK)
    _finish(store, timeline, plan, pending.time, next_time)


def _finish(
    store: ObjectStore,
    timeline: TimelineStore,
    plan: RollbackPlan,
    time: InstantTime,
    next_time: Callable[[], InstantTime],
) -> None:
    commands = execute_rollback(store, plan, time)
    # The target leaves the timeline before the rollback completes: when we die in between, the pending rollback is
    # found and finished; the other way round a pending instant without files would be rolled back a second time.
    _remove_traces(store, timeline, plan)
    body = encode_body(BodyKind.ROLLBACK_METADATA, rollback_metadata_record(store, plan, time, commands))
    # Who was taken for dead in the middle of it may have finished it all the same: then it is done.
    with suppress(StateError):
        timeline.complete(time, Action.ROLLBACK, next_time(), body)


def execute_rollback(store: ObjectStore, plan: RollbackPlan, time: InstantTime) -> dict[str, int]:
    """Delete the files of a plan and take back its blocks; twice is fine.

    Args:
        store: the table.
        plan: what goes.
        time: the instant that undoes it: a rollback or restore.

    Returns:
        The logs that hold the commands: path relative to the table → bytes.
    """
    store.delete(name for names in plan.files.values() for name in names)
    return dict(_take_back(store, plan.target, logs, time) for logs in plan.shared)


def _take_back(store: ObjectStore, target: InstantTime, logs: SharedLogs, time: InstantTime) -> tuple[str, int]:
    """Put a command block behind the logs of a slice, once for each undoing instant."""
    body = encode_command_block(time, target)
    prefix = f"{logs.partition}/" if logs.partition else ""
    there: dict[int, str] = {}
    for item in store.list(logs.partition, recursive=False):
        log = parse_log_file(item.name.rpartition("/")[2])
        if log is not None and not log.is_cdc and (log.file_id, log.instant) == (logs.file_id, logs.base):
            there[log.version] = item.name
            if item.size == len(body) and store.read(item.name, len(body)) == body:
                return item.name, item.size  # an attempt that died wrote it
    first = max(there, default=0) + 1
    for version in range(first, first + _VERSIONS_TRIED):
        name = f"{prefix}.{logs.file_id}_{logs.base}.log.{version}_{_COMMAND_SUFFIX}"
        if put_if_absent_confirmed(store, name, body, durable=True) is PutOutcome.DONE:
            return name, len(body)
    raise StorageError(f"no free version was found for a log behind {max(there.values(), default=prefix)}")


def _remove_traces(store: ObjectStore, timeline: TimelineStore, plan: RollbackPlan) -> None:
    """Take an instant whose files are gone off the timeline, with its markers and heartbeat; twice is fine.

    Who was only slow may have written on: files that were announced since the plan was made go, too, for with their markers
    goes all that is known of them.
    """
    if plan.action in KEEP_PLAN:
        timeline.revert_to_requested(plan.target, plan.action)
    else:
        timeline.remove_pending(plan.target, plan.action)
    late = {*(list_marked(store, plan.target) or ())}.difference(*plan.files.values())
    if late:
        target = Instant(plan.target, plan.action, State.INFLIGHT)
        store.delete(
            n for names in plan_rollback_of(store, target, timeline.layout, late).files.values() for n in names
        )
    remove_markers(store, plan.target)
    store.delete([heartbeat_name(plan.target)])


def _plan_record(store: ObjectStore, plan: RollbackPlan) -> dict[str, object]:
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
    """Return what a completed rollback says (spec 10.9).

    Args:
        store: the table.
        plan: what was carried out.
        time: the instant that did it.
        commands: the logs that hold commands, from :func:`execute_rollback`.
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


def _parse_plan(store: ObjectStore, record: Mapping[str, object]) -> RollbackPlan:
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
    """Return the logs of a request in which blocks are taken back, with what their names say of the slice."""
    slices: dict[tuple[str, FileId, InstantTime], dict[str, int]] = {}
    for path, size in (request.get("logBlocksToBeDeleted") or {}).items():
        name = relative_path(store, str(path))
        log = parse_log_file(name.rpartition("/")[2])
        if log is not None:
            slices.setdefault((name.rpartition("/")[0], log.file_id, log.instant), {})[name] = int(size)
    return [SharedLogs(PartitionPath(p), f, i, sizes) for (p, f, i), sizes in slices.items()]


def absolute_path(store: ObjectStore, name: str) -> str:
    """Return a name the way Hudi's plans spell it: the table's base, then the name."""
    return f"{store.url.rstrip('/')}/{name}"


def relative_path(store: ObjectStore, path: str) -> str:
    """Return a path of a plan relative to the table; the table may have been moved since the plan was made.

    Raises:
        UnsafePath: the path does not stay below a table.
    """
    bare, base = _SCHEME.sub("", path).lstrip("/"), _SCHEME.sub("", store.url).strip("/") + "/"
    if bare.startswith(base):
        return check_name(bare[len(base) :])
    if path.startswith("/") or _SCHEME.match(path):
        raise UnsafePath(f"a plan names {path!r}, which is outside the table at {store.url}")
    return check_name(path)
