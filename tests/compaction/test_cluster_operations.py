"""Groups of a clustering that other processes rewrite: rows, names, groups that run twice, and a plan that was taken over."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.compaction.cluster_run import ClusteringWish, run_clustering
from lakefmt._core.compaction.operations import ClusteringOperations, run_clustering_operation
from lakefmt._core.sorting import Layout, RowOrder
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteStat
from lakefmt.errors import InstantNotPending, ServicesFailed, StateError

BY_TWO = ClusteringWish(RowOrder(("a", "b"), Layout.HILBERT))
#: A file of the new rows holds a part of a group only.
SMALL_FILES = {"hoodie.clustering.plan.strategy.target.file.max.bytes": 6_000}


@pytest.fixture(params=["cow", "mor"])
def table(request, tmp_path) -> lakefmt.Table:
    """A table of two partitions with several file groups each."""
    numbers = range(600)
    data = pa.table(
        {
            "id": [f"k{n:04}" for n in numbers],
            "p": [f"p{n % 2}" for n in numbers],
            "a": [n * 7919 % 601 for n in numbers],
            "b": [n * 104729 % 601 for n in numbers],
        }
    )
    options = {"hoodie.parquet.small.file.limit": 0, "lakefmt.write.small.files": "fill"}
    table = lakefmt.create_table(
        tmp_path / "t", data=data, record_key="id", partition_by="p", table_type=request.param, options=options
    )
    for first in range(0, 600, 150):
        table.insert(data.slice(first, 150))
    table.upsert(data.slice(0, 40))
    return table


def in_other_processes(times: int = 1) -> Callable[[ClusteringOperations], list[tuple[WriteStat, ...]]]:
    """Return a runner that knows what travels only, and rewrites every group some times."""

    def run(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        numbers = range(len(operations.plan.groups))
        done = []
        for _ in range(times):
            done = [run_clustering_operation(pickle.loads(pickle.dumps(operations)), number) for number in numbers]
        return done

    return run


def rows_of(table: lakefmt.Table) -> list[tuple]:
    rows = table.read(meta_columns=True).drop_columns(["_hoodie_file_name"])
    return sorted(zip(*rows.to_pydict().values(), strict=True))


@pytest.mark.parametrize("times", [1, 2])
def test_groups_rewritten_elsewhere_once_or_twice_give_the_same_rows(table, tmp_path, times):
    before = rows_of(table)
    result = run_clustering(table.client, SMALL_FILES, BY_TWO, run_groups=in_other_processes(times))
    written = {stat.path for stat in result.files}
    assert len(written) == len(result.files) > 2
    assert rows_of(table) == before
    root = tmp_path / "t"
    stored = {str(file.relative_to(root)) for file in root.glob(f"p*/*_{result.instant}*")}
    assert stored == written
    assert not table.check("full").findings


def test_a_failed_group_leaves_a_plan_that_runs_again_at_once(table):
    before = rows_of(table)

    def fail(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        run_clustering_operation(operations, 0)
        raise ServicesFailed("a task failed")

    with pytest.raises(ServicesFailed):
        run_clustering(table.client, SMALL_FILES, BY_TWO, run_groups=fail)
    (pending,) = table.client.load().timeline.pending
    assert (pending.action, rows_of(table)) == (Action.CLUSTERING, before)
    assert table.cluster(run=pending.time).completion_time
    assert rows_of(table) == before
    assert not table.check().findings


def test_a_group_that_comes_late_writes_nothing(table, tmp_path):
    kept: list[ClusteringOperations] = []

    def keep(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        kept.append(operations)
        return in_other_processes()(operations)

    result = run_clustering(table.client, SMALL_FILES, BY_TWO, run_groups=keep)
    files = sorted(str(file) for file in (tmp_path / "t").rglob("*"))
    with pytest.raises(InstantNotPending, match=str(result.instant)):
        run_clustering_operation(kept[0], 0)
    assert sorted(str(file) for file in (tmp_path / "t").rglob("*")) == files


def test_a_group_of_another_attempt_writes_nothing(table):
    def taken_over(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        store = table.client.store
        stamp = store.read(heartbeat_name(operations.time))
        store.put(heartbeat_name(operations.time), stamp.replace(operations.owner.encode(), b"another"))
        with pytest.raises(InstantNotPending, match="taken it over"):
            run_clustering_operation(operations, 0)
        store.put(heartbeat_name(operations.time), stamp)
        return in_other_processes()(operations)

    assert run_clustering(table.client, SMALL_FILES, BY_TWO, run_groups=taken_over).files


def test_a_file_of_other_rows_under_the_name_is_not_taken(table):
    def spoilt(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        first = run_clustering_operation(operations, 0)
        table.client.store.put(first[0].path, table.client.store.read(first[0].path) + b"x")
        with pytest.raises(StateError, match="exists already"):
            run_clustering_operation(operations, 0)
        raise ServicesFailed("a task failed")

    with pytest.raises(ServicesFailed):
        run_clustering(table.client, SMALL_FILES, BY_TWO, run_groups=spoilt)
