"""What a write does where it meets a pending clustering of its file groups (``hoodie.clustering.updates.strategy``)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from contextlib import suppress

from lakefmt.config.settings import Settings
from lakefmt.errors import UnknownSetting, WriterActive
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Instant
from lakefmt.transactions.client import WriteClient
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteOperation

__all__ = [
    "UpdateStrategy",
    "clustered_groups",
    "update_strategy",
    "withdraw_for_overwrite",
    "withdrawn_for_update",
]

Group = tuple[PartitionPath, FileId]

_OVERWRITES = frozenset(
    {WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE, WriteOperation.DELETE_PARTITION}
)


class UpdateStrategy(enum.Enum):
    """What becomes of a write to file groups of a pending clustering, with Hudi's names without the engine before them."""

    REJECT = "RejectUpdateStrategy"
    ALLOW = "AllowUpdateStrategy"
    DUPLICATE = "ConsistentBucketDuplicateUpdateStrategy"


def update_strategy(settings: Settings) -> UpdateStrategy:
    """Return the strategy that settings ask for.

    Raises:
        UnknownSetting: there is no such strategy.

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> update_strategy(resolve_settings({"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"})).name
        'ALLOW'
    """
    named = settings.text("hoodie.clustering.updates.strategy") or ""
    kind = named.rpartition(".")[2].removeprefix("Spark").removeprefix("Flink").removeprefix("Java")
    try:
        return UpdateStrategy(kind)
    except ValueError:
        names = ", ".join(f"Spark{strategy.value}" for strategy in UpdateStrategy)
        raise UnknownSetting(
            f"hoodie.clustering.updates.strategy does not take {named!r}: expected one of {names}"
        ) from None


def withdrawn_for_update(write_client: WriteClient, begun: TableState, times: Collection[InstantTime]) -> bool:
    """Withdraw clusterings where the settings say that updates go before; False: one is at work, or they say no."""
    if update_strategy(write_client.settings) is not UpdateStrategy.ALLOW:
        return False
    # Imported here: few writes meet a clustering.
    from lakefmt.transactions.clustering_plans import withdraw_clusterings

    try:
        withdraw_clusterings(write_client, begun, times)
    except WriterActive:
        return False
    return True


def withdraw_for_overwrite(
    write_client: WriteClient,
    begun: TableState,
    operation: WriteOperation,
    replaced: Mapping[PartitionPath, Collection[FileId]],
) -> None:
    """Withdraw the clusterings of file groups that an overwrite is about to replace, unless the settings refuse updates.

    Such a plan has nothing left to move, and rows that were copied for it go with those that it would have moved. A plan that a
    process executes stays, and the overwrite is refused.

    Args:
        write_client: the table.
        begun: the state that the write builds upon.
        operation: of the write.
        replaced: file groups by partition.

    Raises:
        UnknownSetting: the settings name no strategy.
    """
    if operation not in _OVERWRITES or not begun.timeline.pending_clusterings:
        return
    if update_strategy(write_client.settings) is UpdateStrategy.REJECT:
        return
    clustered = clustered_groups(write_client.client, begun)
    groups = {(partition, file_id) for partition, file_ids in replaced.items() for file_id in file_ids}
    times = {clustered[group].time for group in clustered.keys() & groups}
    if times:
        # Imported here: few writes meet a clustering.
        from lakefmt.transactions.clustering_plans import withdraw_clusterings

        with suppress(WriterActive):
            withdraw_clusterings(write_client, begun, times)


def clustered_groups(client: TableClient, state: TableState) -> dict[Group, Instant]:
    """Return the file groups of pending clusterings, each with the clustering."""
    # Imported here: few writes meet a clustering.
    from lakefmt.filegroups.pending_plans import groups_of_plan, is_clustering

    return {
        group: pending
        for pending in state.timeline.pending
        if pending.time in state.timeline.pending_clusterings and is_clustering(client, state, pending)
        for group in groups_of_plan(client, state, pending)
    }
