"""Operations of a plan that other processes run: rows, names, attempts that run twice, and a plan that was taken over."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.compaction.clean_run import run_clean
from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.compaction.operations import ServiceOperations, run_operation
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteStat
from lakefmt.errors import InstantNotPending, ServicesFailed

pytestmark = pytest.mark.slow
TWO_BLOCKS = {"hoodie.log.compaction.blocks.threshold": 2}
KEYS = [f"k{n}" for n in range(40)]


def table_with_logs(tmp_path, **properties: str) -> lakefmt.Table:
    """Return a table of four file slices with logs."""
    data = pa.table({"id": KEYS, "p": [f"p{n % 4}" for n in range(40)], "ts": [1] * 40})
    table = lakefmt.create_table(
        tmp_path / "t",
        data=data,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type="mor",
        properties=properties,
    )
    table.upsert(data)
    for ts in (2, 3):
        table.upsert(data.slice(0, 20).set_column(2, "ts", pa.array([ts] * 20)))
    return table


def in_other_processes(times: int = 1) -> Callable[[ServiceOperations], list[tuple[WriteStat, ...]]]:
    """Return a runner that knows what travels only, and runs every operation some times."""

    def run(operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        numbers = range(len(operations.plan.operations))
        done = []
        for _ in range(times):
            done = [run_operation(pickle.loads(pickle.dumps(operations)), number) for number in numbers]
        return done

    return run


def rows_of(table: lakefmt.Table) -> list[tuple]:
    rows = table.read(["id", "ts", "p"], meta_columns=True).drop_columns(["_hoodie_file_name"])
    return sorted(zip(*rows.to_pydict().values(), strict=True))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("run_service", [run_compaction, run_log_compaction])
def test_operations_run_elsewhere_once_or_twice_give_the_same_rows(tmp_path, run_service, times):
    table = table_with_logs(tmp_path)
    before = rows_of(table)
    result = run_service(table.client, TWO_BLOCKS, run_operations=in_other_processes(times))
    written = {stat.path for stat in result.files}
    assert len(written) == len(result.files) == 4
    assert rows_of(table) == before
    root = tmp_path / "t"
    stored = {str(file.relative_to(root)) for file in root.glob(f"p*/*_{result.instant}*")}
    assert stored == written
    assert not table.check().findings


def test_changes_are_captured_where_operations_run(tmp_path):
    table = table_with_logs(tmp_path, **{"hoodie.table.cdc.enabled": "true"})
    run_compaction(table.client, run_operations=in_other_processes(2))
    changes = table.changes("000").group_by("op").aggregate([("op", "count")]).to_pydict()
    assert dict(zip(changes["op"], changes["op_count"], strict=True)) == {"i": 40, "u": 40}


def test_a_failed_operation_leaves_a_plan_that_runs_again_at_once(tmp_path):
    table = table_with_logs(tmp_path)
    before = rows_of(table)

    def fail(operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        run_operation(operations, 0)
        raise ServicesFailed("a task failed")

    with pytest.raises(ServicesFailed):
        run_compaction(table.client, run_operations=fail)
    (pending,) = table.client.load().timeline.pending
    assert (pending.action, rows_of(table)) == (Action.COMPACTION, before)
    assert table.compact(run=pending.time).completion_time
    assert rows_of(table) == before


@pytest.mark.parametrize("run_service", [run_compaction, run_log_compaction])
def test_an_operation_that_comes_late_writes_nothing(tmp_path, run_service):
    table = table_with_logs(tmp_path)
    kept: list[ServiceOperations] = []

    def keep(operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        kept.append(operations)
        return in_other_processes()(operations)

    result = run_service(table.client, TWO_BLOCKS, run_operations=keep)
    files = sorted(str(file) for file in (tmp_path / "t").rglob("*"))
    with pytest.raises(InstantNotPending, match=str(result.instant)):
        run_operation(kept[0], 0)
    assert sorted(str(file) for file in (tmp_path / "t").rglob("*")) == files


def test_an_operation_of_another_attempt_writes_nothing(tmp_path):
    table = table_with_logs(tmp_path)

    def taken_over(operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        store = table.client.store
        stamp = store.read(heartbeat_name(operations.time))
        store.put(heartbeat_name(operations.time), stamp.replace(operations.owner.encode(), b"another"))
        with pytest.raises(InstantNotPending, match="taken it over"):
            run_operation(operations, 0)
        store.put(heartbeat_name(operations.time), stamp)
        return in_other_processes()(operations)

    assert len(run_compaction(table.client, run_operations=taken_over).files) == 4


def test_files_of_a_clean_are_deleted_elsewhere(tmp_path):
    table = table_with_logs(tmp_path)
    table.compact()
    table.upsert(pa.table({"id": ["k1"], "p": ["p1"], "ts": [9]}))
    table.compact()
    before, told = rows_of(table), []

    def delete(names) -> None:
        told.extend(names)
        table.client.store.delete(names)

    result = run_clean(table.client, {"hoodie.clean.commits.retained": 1}, delete_files=delete)
    assert result.files_deleted == len(told) > 0
    assert rows_of(table) == before
