"""Pending clusterings: which there are, whether a process executes one, and how a plan is withdrawn (effects)."""

from __future__ import annotations

from collections.abc import Collection

from lakefmt.errors import WriterActive
from lakefmt.filegroups.pending_plans import groups_of_plan, is_clustering, new_groups_of_plan
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import ring_files
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import remove_markers
from lakefmt.timeline.rollback import plan_rollback
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.recovery import check_rollback_allowed, run_rollback
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = [
    "check_not_at_work",
    "discard_clustered_files",
    "drop_rings",
    "pending_clusterings",
    "withdraw_clustering",
    "withdraw_clusterings",
]


def pending_clusterings(client: TableClient, state: TableState) -> list[Instant]:
    """Return the pending clusterings, under either action."""
    return [
        pending
        for pending in state.timeline.pending
        if pending.action in (Action.CLUSTERING, Action.REPLACE_COMMIT) and is_clustering(client, state, pending)
    ]


def check_not_at_work(write_client: WriteClient, state: TableState, pending: Instant) -> None:
    """Raise when another process may be executing a pending clustering.

    Raises:
        WriterActive: its process may be alive.
    """
    beats = write_client.client.store.info(heartbeat_name(pending.time)) is not None
    if pending.state is State.REQUESTED and not beats:
        return
    life = write_client.writer_liveness(state.config, state.timeline, pending)
    if life.alive:
        raise WriterActive(f"the clustering {pending.time} is at work ({life.reason}); try again later")


def drop_rings(write_client: WriteClient, time: InstantTime, opened: Collection[tuple[PartitionPath, FileId]]) -> None:
    """Delete the rings that an attempt at a clustering of buckets stored; call under the table lock."""
    for partition in sorted({partition for partition, _ in opened}):
        write_client.client.store.delete(ring_files(partition, time))


def discard_clustered_files(
    write_client: WriteClient, state: TableState, time: InstantTime, partitions: Collection[PartitionPath]
) -> None:
    """Delete the base files that an attempt at a clustering wrote; call under the table lock."""
    store = write_client.client.store
    store.delete(_attempted(write_client, state, time, partitions))
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _attempted(
    write_client: WriteClient, state: TableState, time: InstantTime, partitions: Collection[PartitionPath]
) -> list[str]:
    bases, _ = write_client.client.storage_listing(state.config).files(partitions)
    return [file.path for file in bases if file.instant == time]


def withdraw_clustering(write_client: WriteClient, state: TableState, pending: Instant, lease: Lease) -> None:
    """Delete what a pending clustering wrote, then its plan; call under the table lock.

    An attempt that is only slow may put a file later: with a rollback on the timeline, the archive looks for it. Rows that
    writers have copied to the buckets that it is to open are in the old buckets, too. Commits name these logs, so that they
    also go with a rollback.
    """
    client = write_client.client
    opened = new_groups_of_plan(client, state, pending)
    partitions = sorted({partition for partition, _ in groups_of_plan(client, state, pending)})
    copies = []
    if opened:
        _, logs = client.storage_listing(state.config).files(partitions)
        copies = [log.path for log in logs if log.instant == pending.time]
    if copies or pending.state is State.INFLIGHT:
        plan = plan_rollback(pending, [*copies, *_attempted(write_client, state, pending.time, partitions)])
        run_rollback(write_client, state, pending, plan, lease)
        drop_rings(write_client, pending.time, opened)
        return
    check_rollback_allowed(write_client, state.config, [pending])
    lease.check()
    discard_clustered_files(write_client, state, pending.time, partitions)
    drop_rings(write_client, pending.time, opened)
    client.store.delete([heartbeat_name(pending.time)])
    write_client.timeline(state.config).remove_pending(pending.time, pending.action)


def withdraw_clusterings(write_client: WriteClient, state: TableState, times: Collection[InstantTime]) -> None:
    """Withdraw clusterings that no process executes, for a write that changes their file groups.

    Raises:
        WriterActive: a process executes one of them.
    """
    with write_client.lock.hold() as lease:
        now = TableState(state.config, write_client.timeline(state.config).load())
        for pending in pending_clusterings(write_client.client, now):
            if pending.time in times:
                check_not_at_work(write_client, now, pending)
                withdraw_clustering(write_client, now, pending, lease)
