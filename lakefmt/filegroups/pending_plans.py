"""The file groups in pending compaction, log compaction and clustering plans (effects: reads plans)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefmt.errors import ObjectNotFound
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import body_kind, decode_body
from lakefmt.values import FileId, PartitionPath

__all__ = ["PLANNING", "groups_of_plan", "is_clustering"]

#: Actions that may have a plan; in version 6 a clustering is a replacecommit.
PLANNING = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT})


def groups_of_plan(client: TableClient, state: TableState, pending: Instant) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that a pending service reads; none without a plan.

    A plan that no longer exists was withdrawn.

    Raises:
        CorruptFile: the plan is damaged.
    """
    requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    kind = body_kind(pending.action, State.REQUESTED)
    if pending.action not in PLANNING or requested is None or kind is None:
        return frozenset()
    try:
        body = client.timeline_store(state.config).read_body(requested)
    except ObjectNotFound:
        return frozenset()
    plan: Mapping[str, Any] = decode_body(kind, body, what=requested.file_name) if body else {}
    groups = (plan.get("clusteringPlan") or {}).get("inputGroups") or []
    slices = [
        *(plan.get("operations") or []),
        *(file_slice for group in groups for file_slice in group.get("slices") or []),
    ]
    return frozenset((PartitionPath(s["partitionPath"] or ""), FileId(s["fileId"] or "")) for s in slices)


def is_clustering(client: TableClient, state: TableState, pending: Instant) -> bool:
    """Return whether a pending instant is a clustering, under either action."""
    if pending.action is Action.REPLACE_COMMIT:
        return bool(groups_of_plan(client, state, pending))
    return pending.action is Action.CLUSTERING
