"""The file groups in pending compaction, log compaction and clustering plans (effects: reads plans)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakefmt.errors import CorruptFile, ObjectNotFound
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import body_kind, decode_body
from lakefmt.values import FileId, PartitionPath

__all__ = ["PLANNING", "groups_of_plan", "is_clustering", "new_groups_of_plan"]

#: Actions that may have a plan; in version 6 a clustering is a replacecommit.
PLANNING = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT})


def groups_of_plan(client: TableClient, state: TableState, pending: Instant) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that a pending service reads; none without a plan.

    A plan that no longer exists was withdrawn.

    Raises:
        CorruptFile: the plan is damaged.
    """
    plan = _plan_of(client, state, pending)
    groups = (plan.get("clusteringPlan") or {}).get("inputGroups") or []
    slices = [
        *(plan.get("operations") or []),
        *(file_slice for group in groups for file_slice in group.get("slices") or []),
    ]
    return frozenset((PartitionPath(s["partitionPath"] or ""), FileId(s["fileId"] or "")) for s in slices)


def new_groups_of_plan(
    client: TableClient, state: TableState, pending: Instant
) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that a clustering of buckets opens, whose ids its plan names; none of other plans.

    Raises:
        CorruptFile: the plan is damaged.
    """
    groups = (_plan_of(client, state, pending).get("clusteringPlan") or {}).get("inputGroups") or []
    opened: set[tuple[PartitionPath, FileId]] = set()
    for group in groups:
        text = (group.get("extraMetadata") or {}).get("clustering.group.child.node")
        slices = group.get("slices") or []
        if text and slices:
            try:
                prefixes = [str(node["fileIdPrefix"]) for node in json.loads(text) if node["fileIdPrefix"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise CorruptFile(f"the plan of {pending} does not name its buckets: {text!r:.200}") from None
            opened |= {(PartitionPath(slices[0]["partitionPath"] or ""), FileId(f"{prefix}-0")) for prefix in prefixes}
    return frozenset(opened)


def _plan_of(client: TableClient, state: TableState, pending: Instant) -> Mapping[str, Any]:
    """Return the plan of a pending service; empty without one."""
    requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    kind = body_kind(pending.action, State.REQUESTED)
    if pending.action not in PLANNING or requested is None or kind is None:
        return {}
    try:
        body = client.timeline_store(state.config).read_body(requested)
    except ObjectNotFound:
        return {}
    return decode_body(kind, body, what=requested.file_name) if body else {}


def is_clustering(client: TableClient, state: TableState, pending: Instant) -> bool:
    """Return whether a pending instant is a clustering, under either action."""
    if pending.action is Action.REPLACE_COMMIT:
        return bool(groups_of_plan(client, state, pending))
    return pending.action is Action.CLUSTERING
