"""A pending clustering: its plan, whether its file groups are as they were, and what a failed attempt left (effects)."""

from __future__ import annotations

import json
from collections.abc import Collection

from lakefmt.compaction.cluster.plan import ClusteringPlan, ClusteringSlice
from lakefmt.compaction.cluster.records import parse_clustering_plan
from lakefmt.errors import CommitConflict, ObjectNotFound
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_base_file
from lakefmt.schema.types import field_at
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, check_transition
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.clustering_plans import discard_clustered_files, drop_rings
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = [
    "check_groups_unchanged",
    "is_outdated",
    "read_clustering_plan",
    "release_clustering",
]

_MAX_STAMP_BYTES = 64 * 1024


def read_clustering_plan(client: TableClient, state: TableState, pending: Instant) -> ClusteringPlan | None:
    """Return the plan of a pending clustering, None when its process died before it was written.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    if requested is None:
        return None
    try:
        body = client.timeline_store(state.config).read_body(requested)
    except ObjectNotFound:
        return None
    if not body:
        return None
    record = decode_body(BodyKind.REQUESTED_REPLACE, body, what=requested.file_name)
    return parse_clustering_plan(client.store, record, requested.file_name)


def is_outdated(client: TableClient, state: TableState, pending: Instant, plan: ClusteringPlan) -> bool:
    """Return whether a file group of a plan was changed since it was made, or a column by which it orders rows was undone."""
    schema = client.schema(client.columns_at(state, pending.time))
    if any(field_at(schema, column) is None for column in plan.order.columns):
        return True
    return _changed_by(client, state, pending.time, plan) is not None


def check_groups_unchanged(client: TableClient, state: TableState, time: InstantTime, plan: ClusteringPlan) -> None:
    """Raise when a file group of a plan was changed since it was made: its new rows would be hidden.

    Raises:
        CommitConflict: another engine let an update through.
    """
    other = _changed_by(client, state, time, plan)
    if other is not None:
        raise CommitConflict(
            f"the clustering {time} would hide what {other} changed after it was planned: it does not complete, the next run "
            "withdraws it and plans again",
            other_instant=other.time,
        )


def _changed_by(client: TableClient, state: TableState, time: InstantTime, plan: ClusteringPlan) -> Instant | None:
    completed = (i for i in state.timeline.completed_of(*COMMIT_ACTIONS) if i.order_time > time)
    later = next((i for i in completed if _hides(plan, client.commit_metadata(state, i).file_ids())), None)
    # Layout 1 does not say when a commit completed: one that began before the plan may have done so after it.
    return later or (_unseen_commit(client, state, time, plan) if state.timeline.layout == 1 else None)


def _unseen_commit(client: TableClient, state: TableState, time: InstantTime, plan: ClusteringPlan) -> Instant | None:
    """Return a commit that began before a plan and wrote a file of its file groups that the plan does not have."""
    slices = [each for group in plan.groups for each in group.slices]
    names = {(each.partition, each.file_id): {each.base_name, *each.log_names} for each in slices}
    begun = {(each.partition, each.file_id): _base_instant(each) for each in slices}
    oldest = min(begun.values(), default="")
    for instant in state.timeline.completed_of(*COMMIT_ACTIONS):
        if not oldest < instant.time <= time:
            continue
        for stat in client.commit_metadata(state, instant).stats:
            group = stat.partition_path, stat.file_id
            if group in names and instant.time > begun[group] and stat.path.rpartition("/")[2] not in names[group]:
                return instant
    return None


def _base_instant(planned: ClusteringSlice) -> str:
    parsed = None if planned.base_name is None else parse_base_file(planned.base_name)
    return "" if parsed is None else parsed.instant


def _hides(plan: ClusteringPlan, changed: Collection[tuple[PartitionPath, FileId]]) -> bool:
    """Return whether a clustering would hide what a commit wrote to some file groups.

    What Spark wrote to the new buckets of a group, too, comes with them.
    """
    for group in plan.groups:
        opened = {(group.partition, node.file_id) for node in (group.buckets.nodes if group.buckets else ())}
        if opened.isdisjoint(changed) and any((each.partition, each.file_id) in changed for each in group.slices):
            return True
    return False


def release_clustering(
    write_client: WriteClient, state: TableState, time: InstantTime, action: Action, plan: ClusteringPlan
) -> None:
    """Delete what a failed attempt of this process wrote; the plan becomes pending at once, not when the heartbeat expires.

    Not after a failure of the store: the completed file may still appear.
    """
    with write_client.lock.hold() as lease:
        now = TableState(state.config, write_client.timeline(state.config).load())
        name = heartbeat_name(time)
        pending = next((i for i in now.timeline.pending if i.time == time and i.action is action), None)
        beat = json.loads(write_client.client.store.read(name, _MAX_STAMP_BYTES))
        if pending is None or beat["owner"] != write_client.owner:
            return
        lease.check()
        discard_clustered_files(write_client, now, time, plan.partitions)
        drop_rings(write_client, time, plan.opened)
        for file in now.timeline.files_of(pending):
            if file.state is State.INFLIGHT:
                check_transition(Action.CLUSTERING, State.INFLIGHT, State.REQUESTED)
                write_client.timeline(state.config).remove_files([file])
        write_client.client.store.delete([name])
