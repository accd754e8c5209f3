"""A pending compaction: whether a process executes it, its plan, its output, and its withdrawal."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakefmt.compaction.compact.plan import CompactionPlan
from lakefmt.compaction.compact.records import parse_compaction_plan
from lakefmt.compaction.service import find_pending
from lakefmt.config.table_config import TableConfig, cdc_mode, check_readable, merge_rule
from lakefmt.errors import ObjectNotFound, UnsupportedFeature, WriterActive
from lakefmt.filegroups.cdc.files import list_change_files
from lakefmt.filegroups.missing_completions import missing_completion
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State, check_transition
from lakefmt.timeline.markers import remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.transactions.client import WriteClient, open_write_client
from lakefmt.transactions.rollback_executor import check_rollback_allowed
from lakefmt.values import InstantTime, PartitionPath, TableType

__all__ = [
    "abandon_compaction",
    "check_dead",
    "check_inputs",
    "discard_outputs",
    "partitions_of",
    "read_plan",
    "read_plan_of",
    "release_outputs",
    "require_merge_on_read",
]

_MAX_STAMP_BYTES = 64 * 1024


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
            check_dead(write_client, state, pending)
        plan = read_plan(write_client, state, pending)
        if not force:
            check_inputs(write_client, state, pending, plan)
        partitions = () if plan is None else partitions_of(plan)
        check_rollback_allowed(write_client, config, [pending])
        lease.check()
        discard_outputs(write_client, state, pending.time, partitions)
        client.store.delete([heartbeat_name(pending.time)])
        _, logs = client.storage_listing(config).files(partitions)
        if config.version.layout == 1 and any(log.instant == pending.time for log in logs):
            _fall_back(write_client, state, pending)
            return False
        write_client.timeline(config).remove_pending(pending.time, Action.COMPACTION)
    return True


def release_outputs(write_client: WriteClient, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
    """Delete what a failed attempt of this process wrote; the plan becomes pending at once, not when the heartbeat expires.

    Not after a failure of the store: the completed file may still appear.
    """
    with write_client.lock.hold() as lease:
        now = TableState(state.config, write_client.timeline(state.config).load())
        pending = find_pending(now.timeline, time, Action.COMPACTION)
        name = heartbeat_name(time)
        if json.loads(write_client.client.store.read(name, _MAX_STAMP_BYTES))["owner"] != write_client.owner:
            return
        lease.check()
        discard_outputs(write_client, now, time, partitions_of(plan))
        _fall_back(write_client, now, pending)
        write_client.client.store.delete([name])


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


def check_dead(write_client: WriteClient, state: TableState, pending: Instant) -> None:
    """Raise when another process may be executing a pending compaction.

    Raises:
        WriterActive: its process may be alive.
    """
    beats = write_client.client.store.info(heartbeat_name(pending.time)) is not None
    if pending.state is State.REQUESTED and not beats:
        return
    life = write_client.writer_liveness(state.config, state.timeline, pending)
    if life.alive:
        raise WriterActive(f"the {pending.action.value} {pending.time} is at work ({life.reason}); try again later")


def check_inputs(write_client: WriteClient, state: TableState, pending: Instant, plan: CompactionPlan | None) -> None:
    """Raise when what a pending compaction wrote is the only copy of its rows: it was complete, and its inputs were cleaned.

    Raises:
        CompletedFileMissing: its base files exist, and files that it merges do not.
    """
    operations = () if plan is None else plan.operations
    bases, logs = write_client.client.storage_listing(state.config).files(() if plan is None else partitions_of(plan))
    written = {(file.partition, file.file_id) for file in bases if file.instant == pending.time}
    there = {file.path for file in bases} | {log.path for log in logs}
    for operation in operations:
        if (operation.partition, operation.file_id) in written and not there.issuperset(operation.paths):
            raise missing_completion(state, pending)


def read_plan(write_client: WriteClient, state: TableState, pending: Instant) -> CompactionPlan | None:
    """Return the plan of a pending compaction, None when its process died before it was written.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    return None if requested is None else read_plan_of(write_client.client, state.config, requested)


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


def discard_outputs(
    write_client: WriteClient, state: TableState, time: InstantTime, partitions: tuple[PartitionPath, ...]
) -> None:
    """Delete the base files and change files that an attempt at a compaction wrote; call under the table lock."""
    store = write_client.client.store
    bases, _ = write_client.client.storage_listing(state.config).files(partitions)
    changes = () if cdc_mode(state.config.properties) is None else list_change_files(store, partitions)
    written = [file.path for file in (*bases, *changes) if file.instant == time]
    store.delete(written)
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _fall_back(write_client: WriteClient, state: TableState, pending: Instant) -> None:
    """Move a compaction from inflight back to requested."""
    for file in state.timeline.files_of(pending):
        if file.state is State.INFLIGHT:
            check_transition(Action.COMPACTION, State.INFLIGHT, State.REQUESTED)
            write_client.timeline(state.config).remove_files([file])
