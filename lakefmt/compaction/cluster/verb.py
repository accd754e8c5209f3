"""``table.cluster``: what a call asks for, checked, and handed to the service (effects)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakefmt.compaction.cluster.operations import RunClustering
from lakefmt.compaction.cluster.plan import ClusteringPlan
from lakefmt.compaction.cluster.records import LAYOUT, SORT_COLUMNS
from lakefmt.compaction.cluster.run import (
    ClusteringResult,
    ClusteringWish,
    GroupKey,
    plan_clustering_of,
    run_clustering,
)
from lakefmt.config.settings import resolve_settings
from lakefmt.config.table_config import check_writable
from lakefmt.data_classes import dataclass
from lakefmt.errors import InstantNotFound, InvalidInputError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.read.scan import plan_query
from lakefmt.read.skipping.file_selection import select_slices
from lakefmt.sorting.orders import Layout, RowOrder
from lakefmt.transactions.client import open_write_client
from lakefmt.transactions.clustering_plans import check_not_at_work, pending_clusterings, withdraw_clustering

__all__ = ["ClusterCall", "abandon_clustering", "cluster_table"]


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """The arguments of ``table.cluster``, as they were given."""

    columns: Any = None
    order: str | None = None
    where: Any = None
    partitions: Any = None
    schedule: bool = False
    run: str | None = None
    abandon: str | None = None
    dry_run: bool = False


def cluster_table(
    client: TableClient,
    call: ClusterCall,
    options: Mapping[str, object] | None,
    run_groups: RunClustering | None = None,
) -> ClusteringResult:
    """Do what a call of ``table.cluster`` asks for.

    Args:
        client: the table.
        call: the arguments.
        options: settings of the call.
        run_groups: rewrites the groups, in other processes; None: threads of this one do.

    Raises:
        InvalidInputError: its arguments contradict each other.
    """
    if sum((bool(call.schedule), call.run is not None, call.abandon is not None, bool(call.dry_run))) > 1:
        raise InvalidInputError("cluster takes one of schedule, run, abandon and dry_run")
    plans = (call.columns, call.order, call.where, call.partitions)
    if (call.run is not None or call.abandon is not None) and any(each is not None for each in plans):
        raise InvalidInputError("run and abandon take a plan as it is: without columns, order, where and partitions")
    if call.abandon is not None:
        abandon_clustering(client, call.abandon, options)
        return ClusteringResult(None, ClusteringPlan())
    if call.run is not None:
        return run_clustering(client, options, run=call.run, run_groups=run_groups)
    order = _order(client, call, options)
    state = client.load()
    partitions = None if call.partitions is None else client.chosen_partitions(state, call.partitions)
    only = None if call.where is None else _chosen_groups(client, state, call.where)
    wish = ClusteringWish(order, only, partitions)
    if call.dry_run:
        return ClusteringResult(None, plan_clustering_of(client, options, wish))
    return run_clustering(client, options, wish, schedule=call.schedule, run_groups=run_groups)


def _order(client: TableClient, call: ClusterCall, options: Mapping[str, object] | None) -> RowOrder | None:
    if call.columns is None and call.order is None:
        return None
    given = {**client.options, **(options or {})}
    settings = resolve_settings(given, None, client.load_config().properties)
    if call.columns is None:
        named = tuple(filter(None, (name.strip() for name in (settings.text(SORT_COLUMNS) or "").split(","))))
    else:
        named = _named(call.columns)
    if call.order is not None and not named:
        raise InvalidInputError(f"order={call.order!r} needs columns to order rows by")
    return RowOrder(named, Layout.parse(call.order or settings.text(LAYOUT) or "linear"))


def _named(columns: object) -> tuple[str, ...]:
    given = (columns,) if isinstance(columns, str) else columns
    names = tuple(given) if isinstance(given, Sequence) else (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError(f"columns are names of columns, not {columns!r}")
    return names


def _chosen_groups(client: TableClient, state: TableState, where: Any) -> frozenset[GroupKey]:
    """Return the file groups that may have rows of a filter."""
    query = plan_query(client.schema(state), None, where, meta_columns=False)
    selected = select_slices(client, state, query, "snapshot")
    return frozenset((each.partition, each.file_id) for each in selected.slices)


def abandon_clustering(client: TableClient, instant: str, options: Mapping[str, object] | None = None) -> None:
    """Withdraw a pending clustering: delete what it wrote, and its plan.

    Raises:
        InstantNotFound: there is no pending clustering at `instant`.
        WriterActive: its process may be alive.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        check_writable(config)
        state = TableState(config, write_client.timeline(config).load())
        pending = next((each for each in pending_clusterings(client, state) if each.time == instant), None)
        if pending is None:
            raise InstantNotFound(f"no clustering is pending at {instant}")
        check_not_at_work(write_client, state, pending)
        withdraw_clustering(write_client, state, pending, lease)
