"""Undoing an instant: which files go, and the conversation that removes them (spec 8.2, 10.9).

``plan_rollback`` is pure: an instant and the files seen make a plan that prints. ``run_rollback`` carries it out; every
step may be repeated, and a rollback that died half-way is finished by the next writer from its stored plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakefmt.errors import CorruptFile, InvalidInputError, UnsafePath, UnsupportedFeature
from lakefmt.formats.log_blocks import BlockKind, scan_blocks
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.storage.api import ObjectStore, check_name
from lakefmt.timeline.bodies import BodyKind, decode_body, encode_body
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.markers import list_marked, remove_markers
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime, check_instant_time

__all__ = [
    "RollbackPlan",
    "find_logs_of_instant",
    "finish_rollback",
    "list_files_of_instant",
    "plan_rollback",
    "plan_rollback_of",
    "relative_path",
    "run_rollback",
]

_HIDDEN = ".hoodie/"
_MAX_LOG_BYTES = (1 << 31) - 1
#: ``s3a://``, ``file:/`` and the like: engines spell one place differently.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)/*")


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What undoes an instant: the files to delete, by partition (names relative to the table)."""

    target: InstantTime
    action: Action
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_files(self) -> int:
        """How many files go."""
        return sum(len(names) for names in self.files.values())

    def __str__(self) -> str:
        lines = [f"roll back {self.target} {self.action.value}: delete {self.num_files} files"]
        lines += [f"  {name}" for names in self.files.values() for name in names]
        return "\n".join(lines)


def plan_rollback(target: Instant, files: Iterable[str], logs: Iterable[str] = ()) -> RollbackPlan:
    """Return the plan that undoes `target`, given the data files seen; files of other instants are left alone.

    Args:
        target: the instant.
        files: data files; those named by its time go.
        logs: log files of version 6, named by another instant, that hold nothing but its blocks
            (:func:`find_logs_of_instant`).

    Example:
        >>> t = Instant("20260101000000000", Action.COMMIT, State.INFLIGHT)
        >>> print(plan_rollback(t, ["p/f-0_1-0-0_20260101000000000.parquet", "p/f-0_1-0-0_20250101000000000.parquet"]))
        roll back 20260101000000000 commit: delete 1 files
          p/f-0_1-0-0_20260101000000000.parquet
    """
    grouped: dict[str, list[str]] = {}
    named = (name for name in files if _instant_of(name.rpartition("/")[2]) == target.time)
    for name in sorted({*named, *logs}):
        grouped.setdefault(name.rpartition("/")[0], []).append(name)
    return RollbackPlan(target.time, target.action, {p: tuple(names) for p, names in grouped.items()})


def _instant_of(file_name: str) -> InstantTime | None:
    base = parse_base_file(file_name)
    if base is not None:
        return base.instant
    log = parse_log_file(file_name)
    return None if log is None else log.instant


def list_files_of_instant(store: ObjectStore, time: InstantTime) -> list[str]:
    """Return the data files that may be an instant's: those its markers name, else all there are.

    Markers come before files, so they name at least every file there is; without any, the writer kept none.
    """
    marked = list_marked(store, time)
    return marked if marked is not None else [i.name for i in store.list() if not i.name.startswith(_HIDDEN)]


def find_logs_of_instant(store: ObjectStore, time: InstantTime, names: Iterable[str]) -> list[str]:
    """Return which of the files `names` are logs with blocks of an instant alone, whatever instant names them.

    In version 6 a log is named by its slice, and on stores that can append several writes share one.

    Raises:
        UnsupportedFeature: a log holds blocks of the instant and of others: taking it away would undo those, too.
    """
    found = []
    for name in sorted(set(names)):
        log = parse_log_file(name.rpartition("/")[2])
        if log is None or log.is_cdc or log.instant == time:
            continue
        times = _block_times(store, name)
        if time in times and len(times) > 1:
            raise UnsupportedFeature(
                f"{name} holds blocks of {time} and of other writes: let the engine that wrote it roll {time} back"
            )
        if times == {time}:
            found.append(name)
    return found


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
    appends = layout == 1 and target.action is Action.DELTA_COMMIT
    own = find_logs_of_instant(store, target.time, names if logs is None else logs) if appends else ()
    return plan_rollback(target, names, own)


def _block_times(store: ObjectStore, name: str) -> set[str | None]:
    """Return the instants of a log's blocks; nothing for a file that is not there or holds none."""
    if store.info(name) is None:
        return set()
    data = store.read(name, _MAX_LOG_BYTES)
    blocks = scan_blocks(lambda at, count: data[at : at + count], len(data), name)
    return {block.instant_time for block in blocks if block.kind is not BlockKind.CORRUPT}


def run_rollback(
    store: ObjectStore,
    timeline: TimelineStore,
    plan: RollbackPlan,
    next_time: Callable[[], InstantTime],
) -> InstantTime:
    """Carry out a plan under the table lock; returns the rollback's own instant time."""
    time = next_time()
    timeline.request(time, Action.ROLLBACK, encode_body(BodyKind.ROLLBACK_PLAN, _plan_record(store, plan)))
    timeline.start(time, Action.ROLLBACK)
    _finish(store, timeline, plan, time, next_time)
    return time


def finish_rollback(
    store: ObjectStore,
    timeline: TimelineStore,
    view: Timeline,
    pending: Instant,
    next_time: Callable[[], InstantTime],
) -> None:
    """Finish a rollback that died: carry out its stored plan again (deleting twice is fine)."""
    requested = next((f for f in view.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline.read_body(requested)
    if not body:
        # It died before its plan was written: nothing was deleted, so it never was.
        timeline.remove_pending(pending.time, Action.ROLLBACK)
        return
    plan = _parse_plan(store, decode_body(BodyKind.ROLLBACK_PLAN, body, what=requested.file_name))
    timeline.start(pending.time, Action.ROLLBACK)
    _finish(store, timeline, plan, pending.time, next_time)


def _finish(
    store: ObjectStore,
    timeline: TimelineStore,
    plan: RollbackPlan,
    time: InstantTime,
    next_time: Callable[[], InstantTime],
) -> None:
    store.delete(name for names in plan.files.values() for name in names)
    # The target leaves the timeline before the rollback completes: when we die in between, the pending rollback is
    # found and finished; the other way round a pending instant without files would be rolled back a second time.
    timeline.remove_pending(plan.target, plan.action)
    remove_markers(store, plan.target)
    store.delete([heartbeat_name(plan.target)])
    body = encode_body(BodyKind.ROLLBACK_METADATA, _metadata_record(store, plan, time))
    timeline.complete(time, Action.ROLLBACK, next_time(), body)


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
    return {
        "instantToRollback": {"commitTime": plan.target, "action": plan.action.value},
        "RollbackRequests": requests,
        "version": 1,
    }


def _metadata_record(store: ObjectStore, plan: RollbackPlan, time: InstantTime) -> dict[str, object]:
    partitions = {
        partition: {
            "partitionPath": partition,
            "successDeleteFiles": [absolute_path(store, name) for name in names],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        }
        for partition, names in plan.files.items()
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
    for request in requests:
        names = [relative_path(store, str(path)) for path in request["filesToBeDeleted"]]
        partition = str(request["partitionPath"])
        files[partition] = (*files.get(partition, ()), *names)
    action = next((a for a in Action if a.value == target["action"]), Action.COMMIT)
    try:
        time = check_instant_time(str(target["commitTime"]))
    except InvalidInputError as error:
        raise CorruptFile(f"a rollback plan would undo {error}") from None
    return RollbackPlan(time, action, files)


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
