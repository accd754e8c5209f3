"""The plan of a compaction in its requested file, and functions for a pending one (docs/format.md, Compaction).

The content of the file is encoded and checked. Of a pending compaction: whether a process executes it, its plan, its output, and
its withdrawal (effects).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakefmt._core.compaction.compact.plan import CompactionOperation, CompactionPlan
from lakefmt._core.compaction.service import find_pending, withdrawn_logs
from lakefmt._core.config.table_config import TableConfig, cdc_mode, check_readable, merge_rule
from lakefmt._core.filegroups.cdc import list_change_files
from lakefmt._core.filegroups.missing_completions import missing_completion
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.storage.api import ObjectStore, remove_abandoned
from lakefmt._core.storage.object_names import check_name
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State, check_transition
from lakefmt._core.timeline.markers import remove_markers
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.rollback import relative_path
from lakefmt._core.transactions.client import WriteAt, open_write_client
from lakefmt._core.transactions.rollback_executor import check_rollback_allowed
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound, UnsupportedFeature

__all__ = [
    "abandon_compaction",
    "check_inputs",
    "checked_log_name",
    "compaction_plan_record",
    "discard_outputs",
    "name_in_partition",
    "parse_compaction_plan",
    "partitions_of",
    "read_plan",
    "read_plan_of",
    "release_outputs",
    "require_merge_on_read",
]

#: Version 2 of a plan holds names only; version 1 held whole paths.
_PLAN_VERSION = 2
#: Hudi's strategy in the plan of a log compaction; releases before 1.0 load the class by its name.
_LOG_COMPACTION_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}
_MAX_STAMP_BYTES = 64 * 1024


def compaction_plan_record(plan: CompactionPlan) -> dict[str, object]:
    """Return the record of a requested compaction.

    Example:
        >>> compaction_plan_record(CompactionPlan(None))["version"]
        2
    """
    return {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.log_names),
                "dataFilePath": operation.base_name,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                # Hudi reads every metric without a check: a missing one is a null pointer there.
                "metrics": dict(operation.metrics),
                "bootstrapFilePath": None,
            }
            for operation in plan.operations
        ],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": _LOG_COMPACTION_STRATEGY if plan.log else None,
        "preserveHoodieMetadata": plan.log,
        "missingSchedulePartitions": None,
    }


def parse_compaction_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> CompactionPlan:
    """Return the plan in the record of a requested compaction, whichever engine wrote it.

    Args:
        store: the table; absolute paths must be below it.
        record: the decoded body.
        what: name of the file in errors.

    Raises:
        CorruptFile: it names something that is no base file or log of its file group, or a group twice.
        UnsafePath: it names something outside the table.
        UnsupportedFeature: an operation has a bootstrap file.
    """
    operations = tuple(_parsed_operation(store, entry, what) for entry in record.get("operations") or ())
    groups = {(o.partition, o.file_id) for o in operations}
    if len(groups) != len(operations):
        raise CorruptFile(f"{what} plans a file group twice")
    return CompactionPlan(None, operations)


def _parsed_operation(store: ObjectStore, entry: Mapping[str, Any], what: str) -> CompactionOperation:
    if entry.get("bootstrapFilePath"):
        raise UnsupportedFeature(f"{what} merges a bootstrap file: bootstrap tables are not supported")
    partition = PartitionPath(str(entry.get("partitionPath") or ""))
    if partition:
        check_name(partition)
    file_id = FileId(str(entry.get("fileId") or ""))
    try:
        instant = check_instant_time(str(entry.get("baseInstantTime") or ""))
    except InvalidInputError as error:
        raise CorruptFile(f"{what} plans a slice of {error}") from None
    base_name = _planned_name(store, partition, entry.get("dataFilePath"), what)
    logs = [_planned_name(store, partition, path, what) for path in entry.get("deltaFilePaths") or ()]
    _check_base_name(base_name, file_id, instant, what)
    return CompactionOperation(
        partition,
        file_id,
        instant,
        base_name,
        tuple(checked_log_name(name, file_id, what) for name in logs),
        {str(name): float(value) for name, value in (entry.get("metrics") or {}).items()},
    )


def _planned_name(store: ObjectStore, partition: str, path: object, what: str) -> str | None:
    """Return a file's name in its partition; plans of version 1 hold whole paths."""
    file_path = str(path or "")
    if "/" not in file_path:
        return check_name(file_path) if file_path else None
    return name_in_partition(store, partition, file_path, what)


def name_in_partition(store: ObjectStore, partition: str, path: str, what: str) -> str:
    """Return the name of a file in its partition.

    Raises:
        CorruptFile: it is in another partition.
        UnsafePath: it is not in the table.
    """
    inside, _, name = relative_path(store, path).rpartition("/")
    if inside != partition:
        raise CorruptFile(f"{what} names {path!r}, which is not in partition {partition!r}")
    return name


def _check_base_name(name: str | None, file_id: FileId, instant: InstantTime, what: str) -> None:
    base = None if name is None else parse_base_file(name)
    if name is not None and (base is None or base.file_id != file_id or base.instant != instant):
        raise CorruptFile(f"{what} names {name!r}, which is no base file of group {file_id!r} at {instant}")


def checked_log_name(name: str | None, file_id: FileId, what: str) -> str:
    """Return the name of a log of a file group.

    Raises:
        CorruptFile: it is no such name.
    """
    log = None if name is None else parse_log_file(name)
    if name is None or log is None or log.file_id != file_id or log.is_cdc:
        raise CorruptFile(f"{what} names {name!r}, which is no log of file group {file_id!r}")
    return name


# ------------------------------------------------------------------------------------------------- a pending compaction


def abandon_compaction(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> bool:
    """Withdraw a pending compaction: delete what it wrote, and its plan where nothing depends on the plan.

    Args:
        client: the table.
        instant: its requested time.
        options: settings of the call.
        force: also when its process may be alive, or when what it wrote is the only copy of its rows.

    Returns:
        True when the plan was removed; False when it had to stay: on version 6, logs that were written since are named by
        its time, and other engines would not find their slice without it.

    Raises:
        InstantNotFound: there is no pending compaction at `instant`.
        WriterActive: its process may be alive.
        CompletedFileMissing: it was complete, and what it wrote is the only copy of its rows.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        require_merge_on_read(config)
        state = TableState(config, write_client.timeline(config).load())
        pending = find_pending(state.timeline, instant, Action.COMPACTION)
        if not force:
            write_client.at(state).check_not_at_work(pending)
        plan = read_plan(write_client.at(state), pending)
        if not force:
            check_inputs(write_client.at(state), pending, plan)
        partitions = () if plan is None else partitions_of(plan)
        check_rollback_allowed(write_client, config, [pending])
        lease.check()
        discard_outputs(write_client.at(state), pending.time, partitions)
        client.store.delete([heartbeat_name(pending.time)])
        _, logs = client.storage_listing(config).files(partitions)
        if config.version.layout == 1 and any(log.instant == pending.time for log in logs):
            _back_to_requested(write_client.at(state), pending)
            return False
        write_client.timeline(config).remove_pending(pending.time, Action.COMPACTION)
    return True


def release_outputs(write_at: WriteAt, time: InstantTime, plan: CompactionPlan) -> None:
    """Delete what a failed attempt of this process wrote; the plan becomes pending at once, not when the heartbeat expires.

    Not after a failure of the store: the completed file may still appear.
    """
    with write_at.lock.hold() as lease:
        now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
        pending = find_pending(now.timeline, time, Action.COMPACTION)
        name = heartbeat_name(time)
        if json.loads(write_at.client.store.read(name, _MAX_STAMP_BYTES))["owner"] != write_at.owner:
            return
        lease.check()
        discard_outputs(write_at.write_client.at(now), time, partitions_of(plan))
        _back_to_requested(write_at.write_client.at(now), pending)
        write_at.client.store.delete([name])


def require_merge_on_read(config: TableConfig) -> None:
    """Raise when lakefmt cannot compact the table.

    Raises:
        UnsupportedFeature: it is not merge-on-read, or merges by a rule that lakefmt does not know.
        MetadataTablePresent: it advertises a metadata table.
    """
    check_readable(config)
    if config.table_type is not TableType.MERGE_ON_READ:
        raise UnsupportedFeature("only merge-on-read tables have logs to compact; this one is copy-on-write")
    if cdc_mode(config.properties) is not None and not config.stores_every_column:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true: changes are not written for tables without meta columns or with dropped "
            "partition columns, and a compaction would lose them"
        )
    merge_rule(config)


def check_inputs(write_at: WriteAt, pending: Instant, plan: CompactionPlan | None) -> None:
    """Raise when what a pending compaction wrote is the only copy of its rows: it was complete, and its inputs were cleaned.

    Raises:
        CompletedFileMissing: its base files exist, and files that it merges do not.
    """
    if plan is None:
        return
    bases, logs = write_at.client.storage_listing(write_at.config).files(partitions_of(plan))
    groups = {(file.partition, file.file_id) for file in bases if file.instant == pending.time}
    there = {file.path for file in bases} | {log.path for log in logs}
    merged = {path for each in plan.operations if (each.partition, each.file_id) in groups for path in each.paths}
    lost = merged - there
    if lost and lost - withdrawn_logs(write_at, plan.log_paths):
        raise missing_completion(write_at.state, pending)


def read_plan(write_at: WriteAt, pending: Instant) -> CompactionPlan | None:
    """Return the plan of a pending compaction, None when its process died before it was written.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    requested = next((f for f in write_at.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    return None if requested is None else read_plan_of(write_at.client, write_at.config, requested)


def read_plan_of(client: TableClient, config: TableConfig, requested: Instant) -> CompactionPlan | None:
    """Return the plan in the requested file of a compaction, None when the file is missing or empty.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    try:
        body = client.timeline_store(config).read_body(requested)
    except ObjectNotFound:
        body = b""
    if not body:
        return None
    record = decode_body(BodyKind.COMPACTION_PLAN, body, what=requested.file_name)
    return parse_compaction_plan(client.store, record, requested.file_name)


def partitions_of(plan: CompactionPlan) -> tuple[PartitionPath, ...]:
    """Return the partitions of a plan, each once.

    Example:
        >>> partitions_of(CompactionPlan(None))
        ()
    """
    return tuple(dict.fromkeys(operation.partition for operation in plan.operations))


def discard_outputs(write_at: WriteAt, time: InstantTime, partitions: tuple[PartitionPath, ...]) -> None:
    """Delete the base files and change files that an attempt at a compaction wrote; call under the table lock."""
    store = write_at.client.store
    bases, _ = write_at.client.storage_listing(write_at.config).files(partitions)
    changes = () if cdc_mode(write_at.config.properties) is None else list_change_files(store, partitions)
    paths = [file.path for file in (*bases, *changes) if file.instant == time]
    store.delete(paths)
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _back_to_requested(write_at: WriteAt, pending: Instant) -> None:
    """Move a compaction from inflight back to requested."""
    for file in write_at.timeline.files_of(pending):
        if file.state is State.INFLIGHT:
            check_transition(Action.COMPACTION, State.INFLIGHT, State.REQUESTED)
            write_at.write_client.timeline(write_at.config).remove_files([file])
