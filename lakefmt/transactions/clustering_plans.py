"""Pending clusterings: which there are, whether a process executes one, and how a plan is withdrawn (effects)."""

from __future__ import annotations

from collections.abc import Collection

from lakefmt.errors import UnsupportedFeature, WriterActive
from lakefmt.filegroups.pending_plans import groups_of_plan, is_clustering, new_groups_of_plan
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import ring_files
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import remove_markers
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.rollback_executor import check_rollback_allowed
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = [
    "check_not_at_work",
    "check_not_written_ahead",
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


def check_not_written_ahead(
    client: TableClient, state: TableState, time: InstantTime, opened: Collection[tuple[PartitionPath, FileId]]
) -> None:
    """Raise when a writer has committed rows into the file groups that a clustering of buckets opens.

    Hudi's SparkConsistentBucketDuplicateUpdateStrategy writes updates to the old and to the new buckets. These rows wait in
    logs with the time of the clustering, so that it must not go.

    Args:
        client: the table.
        state: its timeline.
        time: the requested time of the clustering.
        opened: the file groups that its plan opens; none of a clustering without buckets.

    Raises:
        UnsupportedFeature: there is such a commit.
    """
    if not opened:
        return
    later = (each for each in state.timeline.completed_of(*COMMIT_ACTIONS) if each.order_time > time)
    for each in later:
        if each.time != time and not client.commit_metadata(state, each).file_ids().isdisjoint(opened):
            raise UnsupportedFeature(
                f"{each} wrote rows to the old and to the new buckets of the clustering {time}: it cannot be withdrawn or rolled "
                "back any more; if it is pending, run it (table.cluster(run=…))"
            )


def drop_rings(write_client: WriteClient, time: InstantTime, opened: Collection[tuple[PartitionPath, FileId]]) -> None:
    """Delete the rings that an attempt at a clustering of buckets stored; call under the table lock."""
    for partition in sorted({partition for partition, _ in opened}):
        write_client.client.store.delete(ring_files(partition, time))


def discard_clustered_files(
    write_client: WriteClient, state: TableState, time: InstantTime, partitions: Collection[PartitionPath]
) -> None:
    """Delete the base files that an attempt at a clustering wrote; call under the table lock."""
    store = write_client.client.store
    bases, _ = write_client.client.storage_listing(state.config).files(partitions)
    store.delete([file.path for file in bases if file.instant == time])
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def withdraw_clustering(write_client: WriteClient, state: TableState, pending: Instant, lease: Lease) -> None:
    """Delete what a pending clustering wrote, then its plan; call under the table lock.

    Raises:
        UnsupportedFeature: rows were committed into the buckets that it is to open.
    """
    opened = new_groups_of_plan(write_client.client, state, pending)
    check_not_written_ahead(write_client.client, state, pending.time, opened)
    partitions = sorted({partition for partition, _ in groups_of_plan(write_client.client, state, pending)})
    check_rollback_allowed(write_client, state.config, [pending])
    lease.check()
    discard_clustered_files(write_client, state, pending.time, partitions)
    drop_rings(write_client, pending.time, opened)
    write_client.client.store.delete([heartbeat_name(pending.time)])
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
