"""Overwrites of file groups that a pending clustering would rewrite: where updates may go on, the plan goes."""

from __future__ import annotations

import pytest

from lakefmt._core.compaction.cluster_run import run_clustering
from lakefmt._core.compaction.operations import ClusteringOperations, run_clustering_operation
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.table import Table
from lakefmt._core.values import WriteStat
from lakefmt._core.write.commit import transaction
from lakefmt.errors import CommitConflict
from lakefmt.testing.stores import FaultStore, no_faults
from tests.compaction.test_bucket_copies import (
    DYING,
    STRATEGY,
    TWICE,
    copies,
    first_model,
    planned,
    upsert,
    waiting,
    whole,
)
from tests.compaction.test_cluster import pending
from tests.compaction.test_cluster_buckets import made
from tests.crash.sweep import Ending, numbers_of_run, sweep, versions_and_endings
from tests.index.ring_tables import FAST, check, make, rows
from tests.index.test_resized_buckets import SPLIT_ALL
from tests.kit import product_or_diagonal

ALLOW: dict[str, object] = {STRATEGY: "SparkAllowUpdateStrategy"}
STRATEGIES = pytest.mark.parametrize("strategy", [ALLOW, TWICE], ids=["allow", "duplicate"])


@product_or_diagonal(
    version=[6, 8, 9],
    verb=["delete_partitions", "insert_overwrite_table", "insert_overwrite"],
    strategy=[pytest.param(ALLOW, id="allow"), pytest.param(TWICE, id="duplicate")],
)
def test_the_plan_and_its_copies_go(version: int, verb: str, strategy: dict[str, object]) -> None:
    indexes = ["column_stats"] if version == 9 else None
    table, model = made(version, indexes=indexes), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    assert copies(table, instant)
    partition_of = dict(zip(*(table.read()[name].to_pylist() for name in ("id", "p")), strict=True))
    if verb == "delete_partitions":
        table.delete_partitions(["p0"], options=strategy)
        model = {key: v for key, v in model.items() if partition_of[key] != "p0"}
    else:
        new = rows(0, 4, 9)
        getattr(table, verb)(new, options=strategy)
        touched = {*new["p"].to_pylist()} if verb == "insert_overwrite" else {*partition_of.values()}
        model = {key: v for key, v in model.items() if partition_of[key] not in touched}
        model |= {f"k{n}": 9 for n in range(4)}
    assert (pending(table), copies(table, instant)) == ([], [])
    whole(table, model)
    table.upsert(rows(0, 90, 10))
    model |= {f"k{n}": 10 for n in range(90)}
    whole(table, model)
    table.cluster(options=SPLIT_ALL)
    whole(table, model)


@STRATEGIES
def test_plans_of_other_partitions_stay(strategy: dict[str, object]) -> None:
    table, model = made(), first_model()
    instant = table.cluster(schedule=True, partitions=["p1"], options=SPLIT_ALL).instant
    partition_of = dict(zip(*(table.read()[name].to_pylist() for name in ("id", "p")), strict=True))
    table.delete_partitions(["p0"], options=strategy)
    assert len(pending(table)) == 1
    model = {key: v for key, v in model.items() if partition_of[key] != "p0"}
    check(table, model)
    table.cluster(run=instant or "")
    whole(table, model)


def test_by_default_the_overwrite_is_refused_and_the_plan_stays() -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    for verb in (table.insert_overwrite, table.insert_overwrite_table):
        with pytest.raises(CommitConflict, match="pending clustering"):
            verb(rows(0, 3, 9))
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.delete_partitions(["p0"])
    check(table, model)
    table.cluster(run=instant)
    whole(table, model)


@STRATEGIES
def test_a_clustering_at_work_is_not_taken_away(strategy: dict[str, object]) -> None:
    table, model = made(), first_model()
    other = Table(TableClient(table.client.store, FAST))

    def overwritten_beside(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        with pytest.raises(CommitConflict, match="pending clustering"):
            other.insert_overwrite(rows(0, 3, 9), options=strategy)
        return [run_clustering_operation(operations, number) for number in range(len(operations.plan.groups))]

    assert run_clustering(table.client, SPLIT_ALL, run_groups=overwritten_beside).completion_time is not None
    whole(table, model)


def test_a_plan_that_comes_beside_an_overwrite_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overwrite began without it: what it would take away was not known then."""
    table, model = made(), first_model()
    real = transaction.withdraw_for_overwrite
    made_plans: list[str] = []

    def planned_meanwhile(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        made_plans.append(planned(Table(TableClient(table.client.store, FAST)), SPLIT_ALL))

    beside: dict[str, object] = {
        **TWICE,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.num.retries.on.conflict.failures": 0,
    }
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "withdraw_for_overwrite", planned_meanwhile)
        with pytest.raises(CommitConflict, match="pending clustering"):
            table.insert_overwrite_table(rows(0, 3, 9), options=beside)
    whole(table, model)
    table.cluster(run=made_plans[0])
    whole(table, model)


def test_a_table_without_buckets() -> None:
    table = make("overwrites-plain", index="simple", properties=None)
    table.upsert(rows(0, 9, 1))
    table.cluster("v", schedule=True)
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.insert_overwrite_table(rows(0, 2, 2))
    table.insert_overwrite_table(rows(0, 2, 2), options=ALLOW)
    assert pending(table) == []
    assert table.read()["v"].to_pylist() == [2, 2]


def test_left_in_place_the_plan_would_bring_overwritten_rows_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin: without the withdrawal the commit is refused, because the plan would move rows that are gone."""
    table = made()
    planned(table, SPLIT_ALL)
    monkeypatch.setattr(transaction, "withdraw_for_overwrite", lambda *given: None)
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.insert_overwrite(rows(0, 3, 9), options=TWICE)


@pytest.mark.slow
@pytest.mark.timeout(300)
@versions_and_endings("bucket-copies")
def test_an_overwrite_that_dies_anywhere_leaves_all_or_nothing(version: int, ending: Ending) -> None:
    origin, instant = waiting(version, written=True)
    before, after = {f"k{n}": 2 if 3 <= n < 12 else 1 for n in range(12)}, {f"k{n}": 5 for n in range(2)}
    whole_write = FaultStore(origin.copy(), no_faults)
    origin.table(whole_write, DYING).insert_overwrite_table(rows(0, 2, 5))
    assert len(whole_write.effects) >= 10
    call = lambda store: origin.table(store, DYING).insert_overwrite_table(rows(0, 2, 5))  # noqa: E731
    asked = numbers_of_run(whole_write.effects, ending)
    for left in sweep(origin, call, asked, ending, what=lambda left: "overwritten"):
        healthy, story = origin.table(left.store, DYING, process=1), left.story
        stored = healthy.read()
        found = dict(zip(stored["id"].to_pylist(), stored["v"].to_pylist(), strict=True))
        assert found in (before, after), story
        healthy.upsert(rows(5, 15, 3))
        model = found | {f"k{n}": 3 for n in range(5, 15)}
        check(healthy, model)
        if pending(healthy):
            healthy.cluster(run=instant)
            check(healthy, model)
        healthy.upsert(rows(0, 4, 9))
        check(healthy, model | {f"k{n}": 9 for n in range(4)})
        assert healthy.check("full").is_clean, story
