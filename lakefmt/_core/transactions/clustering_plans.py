"""Pending clusterings: which there are, whether a process executes one, and how a plan is withdrawn (effects)."""

from __future__ import annotations

from collections.abc import Collection

from lakefmt._core.filegroups.pending_plans import groups_of_plan, is_clustering, new_groups_of_plan
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.formats.names import ring_files
from lakefmt._core.storage.api import remove_abandoned
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import remove_markers
from lakefmt._core.timeline.rollback import plan_rollback
from lakefmt._core.transactions.client import WriteAt, WriteClient
from lakefmt._core.transactions.rollback_executor import check_rollback_allowed, run_rollback
from lakefmt._core.values import FileId, InstantTime, PartitionPath

__all__ = [
    "discard_clustered_files",
    "drop_rings",
    "pending_clusterings",
    "withdraw_clustering",
    "withdraw_clusterings",
]


def pending_clusterings(table_at: TableAt) -> list[Instant]:
    """Return the pending clusterings, under either action."""
    return [
        pending
        for pending in table_at.timeline.pending
        if pending.action in (Action.CLUSTERING, Action.REPLACE_COMMIT) and is_clustering(table_at, pending)
    ]


def drop_rings(write_client: WriteClient, time: InstantTime, opened: Collection[tuple[PartitionPath, FileId]]) -> None:
    """Delete the rings that an attempt at a clustering of buckets stored; call under the table lock."""
    for partition in sorted({partition for partition, _ in opened}):
        write_client.client.store.delete(ring_files(partition, time))


def discard_clustered_files(write_at: WriteAt, time: InstantTime, partitions: Collection[PartitionPath]) -> None:
    """Delete the base files that an attempt at a clustering wrote; call under the table lock."""
    store = write_at.client.store
    store.delete(_attempted(write_at, time, partitions))
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _attempted(write_at: WriteAt, time: InstantTime, partitions: Collection[PartitionPath]) -> list[str]:
    bases, _ = write_at.client.storage_listing(write_at.config).files(partitions)
    return [file.path for file in bases if file.instant == time]


def withdraw_clustering(write_at: WriteAt, pending: Instant, lease: Lease) -> None:
    """Delete what a pending clustering wrote, then its plan; call under the table lock.

    An attempt that is only slow may put a file later: with a rollback on the timeline, the archive looks for it. Rows that
    writers have copied to the buckets that it is to open are in the old buckets, too. Commits name these logs, so that they
    also go with a rollback.
    """
    client = write_at.client
    opened = new_groups_of_plan(client.at(write_at.state), pending)
    partitions = sorted({partition for partition, _ in groups_of_plan(client.at(write_at.state), pending)})
    copies = []
    if opened:
        _, logs = client.storage_listing(write_at.config).files(partitions)
        copies = [log.path for log in logs if log.instant == pending.time]
    if copies or pending.state is State.INFLIGHT:
        plan = plan_rollback(pending, [*copies, *_attempted(write_at, pending.time, partitions)])
        run_rollback(write_at, pending, plan, lease)
        drop_rings(write_at.write_client, pending.time, opened)
        return
    check_rollback_allowed(write_at.write_client, write_at.config, [pending])
    lease.check()
    discard_clustered_files(write_at, pending.time, partitions)
    drop_rings(write_at.write_client, pending.time, opened)
    client.store.delete([heartbeat_name(pending.time)])
    write_at.write_client.timeline(write_at.config).remove_pending(pending.time, pending.action)


def withdraw_clusterings(write_at: WriteAt, times: Collection[InstantTime]) -> None:
    """Withdraw clusterings that no process executes, for a write that changes their file groups.

    Raises:
        WriterActive: a process executes one of them.
    """
    with write_at.lock.hold() as lease:
        now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
        for pending in pending_clusterings(write_at.client.at(now)):
            if pending.time in times:
                write_at.write_client.at(now).check_not_at_work(pending)
                withdraw_clustering(write_at.write_client.at(now), pending, lease)
