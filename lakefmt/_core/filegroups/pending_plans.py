"""The file groups in pending compaction, log compaction and clustering plans (effects: reads plans)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import body_kind, decode_body
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteStat
from lakefmt.errors import CorruptFile, ObjectNotFound

__all__ = [
    "PLANNING",
    "PlannedMove",
    "compacting_groups",
    "copied_logs",
    "groups_left_behind",
    "groups_of_plan",
    "is_clustering",
    "is_copied_log",
    "moves_of_plan",
    "new_groups_of_plan",
    "pending_clusterings",
]

Group = tuple[PartitionPath, FileId]

#: Actions that may have a plan; in version 6 a clustering is a replacecommit.
PLANNING = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT})


def groups_of_plan(table_at: TableAt, pending: Instant) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that a pending service reads; none without a plan.

    A plan that no longer exists was withdrawn.

    Raises:
        CorruptFile: the plan is damaged.
    """
    plan = _plan_of(table_at, pending)
    groups = (plan.get("clusteringPlan") or {}).get("inputGroups") or []
    slices = [
        *(plan.get("operations") or []),
        *(file_slice for group in groups for file_slice in group.get("slices") or []),
    ]
    return frozenset((PartitionPath(s["partitionPath"] or ""), FileId(s["fileId"] or "")) for s in slices)


def compacting_groups(table_at: TableAt) -> dict[Group, InstantTime]:
    """Return the file groups that pending compactions merge, with the instant of each.

    Raises:
        CorruptFile: a plan is damaged.
    """
    pending = [each for each in table_at.timeline.pending if each.action is Action.COMPACTION]
    return {group: each.time for each in pending for group in groups_of_plan(table_at, each)}


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A group of a pending clustering: rows move from some file groups to others.

    Attributes:
        partition: where they are.
        sources: the file groups whose rows move.
        opened: the file groups that get them, where the plan names these: those of the buckets of consistent hashing.
        entries: what else the plan says of the group.
    """

    partition: PartitionPath
    sources: frozenset[Group]
    opened: frozenset[Group]
    entries: Mapping[str, str]


def moves_of_plan(table_at: TableAt, pending: Instant) -> tuple[PlannedMove, ...]:
    """Return the groups of a pending clustering; none of other plans.

    Raises:
        CorruptFile: the plan is damaged.
    """
    groups = (_plan_of(table_at, pending).get("clusteringPlan") or {}).get("inputGroups") or []
    return tuple(_move(group, pending) for group in groups if group.get("slices"))


def _move(group: Mapping[str, Any], pending: Instant) -> PlannedMove:
    slices, entries = group["slices"], group.get("extraMetadata") or {}
    partition = PartitionPath(slices[0]["partitionPath"] or "")
    nodes_json, prefixes = entries.get("clustering.group.child.node"), list[str]()
    if nodes_json:
        try:
            prefixes = [str(node["fileIdPrefix"]) for node in json.loads(nodes_json) if node["fileIdPrefix"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CorruptFile(f"the plan of {pending} does not name its buckets: {nodes_json!r:.200}") from None
    return PlannedMove(
        partition,
        frozenset((PartitionPath(each["partitionPath"] or ""), FileId(each["fileId"] or "")) for each in slices),
        frozenset((partition, FileId(f"{prefix}-0")) for prefix in prefixes),
        entries,
    )


def new_groups_of_plan(table_at: TableAt, pending: Instant) -> frozenset[Group]:
    """Return the file groups that a clustering of buckets opens, whose ids its plan names; none of other plans.

    Raises:
        CorruptFile: the plan is damaged.
    """
    return frozenset().union(*(move.opened for move in moves_of_plan(table_at, pending)))


def groups_left_behind(table_at: TableAt, pending: Instant, changed: Collection[Group]) -> frozenset[Group]:
    """Return the file groups of a pending clustering that would hide what a write changed in some file groups.

    What was written to the new buckets of a group, too, comes with them.

    Raises:
        CorruptFile: the plan is damaged.
    """
    moves = (move for move in moves_of_plan(table_at, pending) if move.opened.isdisjoint(changed))
    return frozenset().union(*(move.sources for move in moves)).intersection(changed)


def is_copied_log(timeline: Timeline, commit: Instant, file_name: str) -> bool:
    """Return whether a file of a commit is a log whose rows are in old buckets, too (docs/format.md, Clustering)."""
    log = parse_log_file(file_name)
    return log is not None and timeline.is_written_ahead(log.instant, commit)


def copied_logs(table_at: TableAt) -> dict[str, WriteStat]:
    """Return the logs that commits name and that a pending clustering will make visible (docs/format.md, Clustering).

    Returns:
        Path relative to the table → the entry of the commit.
    """
    waiting = table_at.timeline.pending_clusterings
    since = [i for i in table_at.timeline.commits if i.time > min(waiting)] if waiting else []
    stats = [stat for instant in since for stat in table_at.commit_metadata(instant).stats if stat.log_files]
    logs = [(stat, parse_log_file(stat.file_name)) for stat in stats]
    return {stat.path: stat for stat, log in logs if log is not None and log.instant in waiting}


def _plan_of(table_at: TableAt, pending: Instant) -> Mapping[str, Any]:
    """Return the plan of a pending service; empty without one."""
    requested = next((f for f in table_at.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    kind = body_kind(pending.action, State.REQUESTED)
    if pending.action not in PLANNING or requested is None or kind is None:
        return {}
    try:
        body = table_at.client.timeline_store(table_at.config).read_body(requested)
    except ObjectNotFound:
        return {}
    return decode_body(kind, body, what=requested.file_name) if body else {}


def is_clustering(table_at: TableAt, pending: Instant) -> bool:
    """Return whether a pending instant is a clustering, under either action."""
    if pending.action is Action.REPLACE_COMMIT:
        return bool(groups_of_plan(table_at, pending))
    return pending.action is Action.CLUSTERING


def pending_clusterings(table_at: TableAt) -> list[Instant]:
    """Return the pending clusterings, under either action."""
    return [pending for pending in table_at.timeline.pending if is_clustering(table_at, pending)]
