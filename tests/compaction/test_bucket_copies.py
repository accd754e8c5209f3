"""Writes to buckets that a pending clustering splits or merges: rows go to the old and to the new buckets, and count once."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.compaction.cluster_run import run_clustering
from lakefmt._core.compaction.operations import ClusteringOperations, run_clustering_operation
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.index.bucket_index import ConsistentBucketIndex
from lakefmt._core.metadata import manage, observer
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import WriteStat
from lakefmt._core.write.files.bucket_copies import BucketCopies
from lakefmt.errors import CommitConflict, UnknownSetting
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.stores import FaultStore, no_faults
from tests.compaction.test_cluster import pending
from tests.compaction.test_cluster_buckets import made, sizes
from tests.consumers.stream_tables import bag, read_all
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, numbers_of_run, sweep, versions_and_endings
from tests.index.ring_tables import FAST, check, make, rows
from tests.index.test_resized_buckets import LEAST, MERGE_ALL, MOST, SPLIT_ALL
from tests.judges.compare import assert_same_multiset
from tests.kit import product_or_diagonal, values_of_run

STRATEGY = "hoodie.clustering.updates.strategy"
#: Hudi's class, under its whole name.
TWICE: dict[str, object] = {
    STRATEGY: "org.apache.hudi.client.clustering.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
}
MERGE: dict[str, object] = {**MERGE_ALL, LEAST: 2}
NUMBERS = itertools.count()
Model = dict[str, int]


def first_model() -> Model:
    """The rows of :func:`made`."""
    return {f"k{n}": 1 + (n >= 30) for n in range(60)}


def copies(table: Table, instant: str | None) -> list[str]:
    """The logs that are named by a clustering."""
    names = (info.name for info in table.client.store.list() if not info.name.startswith(".hoodie/"))
    parsed = ((name, parse_log_file(name.rpartition("/")[2])) for name in names)
    return sorted(name for name, log in parsed if log is not None and log.instant == instant)


def planned(table: Table, how: dict[str, object]) -> str:
    made_plan = table.cluster(schedule=True, options=how)
    assert made_plan.instant is not None
    return made_plan.instant


def upsert(table: Table, model: Model, first: int, last: int, v: int) -> lakefmt.CommitResult:
    model |= {f"k{n}": v for n in range(first, last)}
    return table.upsert(rows(first, last, v), options=TWICE)


def whole(table: Table, model: Model) -> None:
    """Every row is read once, from the file group of its bucket, and nothing is damaged."""
    check(table, model)
    found = table.check("full")
    assert found.is_clean, str(found)
    if table.client.load_config().metadata_partitions:
        assert table.index.check().is_clean, str(table.index.check())


@pytest.mark.slow
@pytest.mark.in_turn(2)
@product_or_diagonal(
    version=[6, 8, 9],
    indexes=[pytest.param(None, id="listed"), pytest.param(["column_stats"], id="indexed")],
    how=[pytest.param(SPLIT_ALL, id="split"), pytest.param(MERGE, id="merge")],
)
def test_rows_are_read_once_before_and_after_the_plan_completes(
    version: int, indexes: list[str] | None, how: dict[str, object]
) -> None:
    table, model = made(version, indexes=indexes), first_model()
    instant = planned(table, how)
    done = upsert(table, model, 20, 70, 3)
    assert (done.num_inserts, done.num_updates, done.num_deletes) == (0, 50, 0)
    assert len(copies(table, instant)) > 0
    assert table.timeline.entries[-1].updates == 50
    whole(table, model)
    gone = table.delete(["k1", "k25", "k65", "k99"], options=TWICE)
    assert gone.num_deletes == 3
    for key in ("k1", "k25", "k65"):
        del model[key]
    whole(table, model)
    upsert(table, model, 65, 80, 4)
    then = table.insert(rows(80, 85, 4), options=TWICE).instant
    model |= {f"k{n}": 4 for n in range(80, 85)}
    whole(table, model)
    changes, increment = table.changes("0"), table.incremental("0", columns=["id", "v"])
    assert table.cluster(run=instant).completion_time is not None
    assert pending(table) == []
    whole(table, model)
    assert_same_multiset(table.incremental("0", columns=["id", "v"]), increment, what="the increment")
    assert_same_multiset(_without_times(table.changes("0")), _without_times(changes), what="the changes")
    assert table.read(as_of=then).num_rows == len(model)
    upsert(table, model, 0, 90, 5)
    whole(table, model)
    table.compact()
    whole(table, model)
    check_invariants(table)


def _without_times(changes: pa.Table) -> pa.Table:
    return changes.select(["op", "ts_ms", "before", "after"])


@pytest.mark.parametrize("version", values_of_run([6, 8, 9]))
def test_streams_and_changes_are_those_of_a_table_without_a_plan(version: int) -> None:
    table, control = made(version), made(version)
    instant = planned(table, SPLIT_ALL)
    for each in (table, control):
        each.upsert(rows(20, 70, 3), options=TWICE)
        each.delete(["k1", "k65"], options=TWICE)
        each.upsert(rows(60, 75, 4), options=TWICE)
    handed_out, kinds = bag(read_all(control)), Counter(control.changes("0")["op"].to_pylist())
    assert (bag(read_all(table)), Counter(table.changes("0")["op"].to_pylist())) == (handed_out, kinds)
    table.cluster(run=instant)
    assert (bag(read_all(table)), Counter(table.changes("0")["op"].to_pylist())) == (handed_out, kinds)


def test_an_update_of_rows_and_partial_rows_go_to_both() -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    table.update("v = 1", {"v": 7}, options=TWICE)
    model |= {key: 7 for key, v in model.items() if v == 1}
    check(table, model)
    table.upsert(pa.table({"id": ["k3", "k50"], "p": ["p1", "p0"], "v": [8, 9]}), partial=True, options=TWICE)
    model |= {"k3": 8, "k50": 9}
    before = table.read().sort_by("id")
    table.cluster(run=instant)
    check(table, model)
    assert_same_multiset(table.read().sort_by("id"), before, what="no column is lost")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_event_times_decide_in_the_new_buckets_as_in_the_old(version: int) -> None:
    schema = {"ordering": "v"}
    table, model = made(version, **schema), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 0, 20, 9)
    table.upsert(rows(10, 40, 1), options=TWICE)  # late for all that is stored
    table.delete(["k0"], options=TWICE)
    del model["k0"]
    check(table, model)
    table.cluster(run=instant)
    check(table, model)


@pytest.mark.slow
@pytest.mark.in_turn(2)
@product_or_diagonal(
    version=[6, 8, 9], indexes=[pytest.param(None, id="listed"), pytest.param(["column_stats"], id="indexed")]
)
def test_a_rollback_of_the_write_or_of_the_plan_takes_the_copies_away(version: int, indexes: list[str] | None) -> None:
    table, model = made(version, indexes=indexes), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    kept = copies(table, instant)
    undone = upsert(table, dict(model), 65, 80, 4)
    assert len(copies(table, instant)) > len(kept)
    table.rollback(undone.instant or "")
    assert copies(table, instant) == kept
    whole(table, model)
    changes = table.changes("0").num_rows
    table.cluster(abandon=instant)
    assert (pending(table), copies(table, instant)) == ([], [])
    whole(table, model)
    assert (table.changes("0").num_rows, table.incremental("0").num_rows) == (changes, 70)
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 0, 30, 5)
    table.rollback(instant)
    assert (pending(table), copies(table, instant)) == ([], [])
    whole(table, model)
    # An update that goes before the plan takes it away, copies included.
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 0, 30, 6)
    table.upsert(rows(0, 90, 8), options={STRATEGY: "SparkAllowUpdateStrategy"})
    assert (pending(table), copies(table, instant)) == ([], [])
    whole(table, {f"k{n}": 8 for n in range(90)})


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [8, 9])
def test_a_rollback_of_the_completed_clustering_loses_nothing(version: int) -> None:
    table, model = made(version), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    table.cluster(run=instant)
    table.rollback(instant)
    assert copies(table, instant) == []
    assert set(sizes(table).values()) == {4}
    whole(table, model)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_a_restore_takes_the_copies_of_what_it_undoes_away(version: int) -> None:
    table, model = made(version), first_model()
    instant = planned(table, SPLIT_ALL)
    kept = upsert(table, model, 20, 70, 3)
    table.savepoint(kept.instant or "")
    upsert(table, dict(model), 0, 90, 4)
    table.restore(kept.instant or "")
    whole(table, model)
    if pending(table):
        table.cluster(run=instant)
        whole(table, model)


def test_a_metadata_table_that_is_made_while_the_plan_waits_knows_the_copies() -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    table.index.create("column_stats")
    whole(table, model)
    table.cluster(run=instant)
    whole(table, model)
    assert table.read(filter="v = 3").num_rows == 50


def test_a_metadata_table_of_hudi_that_does_not_know_the_copies_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi lists no file of a pending instant when it makes a metadata table."""
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    with monkeypatch.context() as hudi:
        hudi.setattr(manage, "copied_logs", lambda table_at: {})
        table.index.create("column_stats")
    assert not table.index.check().is_clean
    check(table, model)
    table.cluster(run=instant)
    whole(table, model)


def test_rows_that_a_clustering_of_hudi_left_out_of_the_metadata_table_are_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    with monkeypatch.context() as hudi:
        hudi.setattr(manage, "copied_logs", lambda table_at: {})
        hudi.setattr(observer, "copied_logs", lambda table_at: {})
        table.index.create("column_stats")
        table.cluster(run=instant)
    with pytest.raises(AssertionError):
        check(table, model)
    assert not table.index.check().is_clean
    table.index.check(repair=True)
    whole(table, model)


def test_the_record_index_follows_rows_that_only_copies_have() -> None:
    table, model = made(), first_model()
    table.index.create("record_index")
    instant = planned(table, SPLIT_ALL)
    upsert(table, model, 40, 90, 3)
    whole(table, model)
    table.cluster(run=instant)
    whole(table, model)


def test_plans_of_one_partition_leave_the_others_alone() -> None:
    table, model = made(), first_model()
    instant = table.cluster(schedule=True, partitions=["p1"], options=SPLIT_ALL).instant
    upsert(table, model, 0, 90, 3)
    assert all(name.startswith("p=p1/") for name in copies(table, instant))
    table.cluster(run=instant or "")
    whole(table, model)
    assert sizes(table) == {"p=p0": 4, "p=p1": 8}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [8, 9])
def test_a_write_while_the_clustering_is_at_work_comes_along(version: int) -> None:
    table, model = made(version), first_model()
    other = Table(TableClient(table.client.store, FAST))
    beside = {**TWICE, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    beside |= {"hoodie.clean.failed.writes.policy": "LAZY"}

    def written_beside(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        numbers = range(len(operations.plan.groups))
        done = [run_clustering_operation(operations, number) for number in numbers]
        other.upsert(rows(20, 70, 3), options=beside)
        return done

    assert run_clustering(table.client, SPLIT_ALL, run_groups=written_beside).completion_time is not None
    whole(table, model | {f"k{n}": 3 for n in range(20, 70)})


def test_a_bulk_insert_of_parts_goes_to_both() -> None:
    """Parts that go to one new bucket out of several old ones have logs of their own."""
    table, model = made(), first_model()
    instant = planned(table, MERGE)
    new = pa.concat_tables([rows(100 + 10 * n, 110 + 10 * n, 3) for n in range(20)])
    window = {"lakefmt.write.window.bytes": 1 << 20}
    table.bulk_insert((part for part in new.to_batches(max_chunksize=10)), options={**TWICE, **window})
    model |= {f"k{n}": 3 for n in range(100, 300)}
    check(table, model)
    table.cluster(run=instant)
    whole(table, model)


# --------------------------------------------------------------------------------------------------- what is refused


def test_what_the_copies_do_not_cover_is_refused() -> None:
    table = made()
    planned(table, SPLIT_ALL)
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.upsert(rows(0, 3, 9))
    with pytest.raises(UnknownSetting, match="SparkConsistentBucketDuplicateUpdateStrategy"):
        table.upsert(rows(0, 3, 9), options={STRATEGY: "SparkNoSuchStrategy"})
    plain = make(f"copies-{next(NUMBERS)}", index="simple", properties=None)
    plain.upsert(rows(0, 9, 1))
    plain.cluster("v", schedule=True)
    with pytest.raises(CommitConflict, match="pending clustering"):
        plain.upsert(rows(0, 9, 2), options=TWICE)


# In version 6 no plan can come beside a write.
@pytest.mark.parametrize(
    ("version", "what"), [(6, "completes"), (6, "goes"), (9, "completes"), (9, "goes"), (9, "comes")]
)
def test_a_plan_that_changes_while_a_write_is_at_work_makes_it_begin_again(version: int, what: str) -> None:
    table, model = made(version), first_model()
    instant = "" if what == "comes" else planned(table, SPLIT_ALL)
    other = Table(TableClient(table.client.store, FAST))
    beside = {**TWICE, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    beside |= {"hoodie.clean.failed.writes.policy": "LAZY", "hoodie.write.num.retries.on.conflict.failures": 0}
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(_open_write(table, beside))
        placed = context.place(context.locate(context.key(rows(20, 70, 3))))
        statuses = context.write(placed)
        if what == "completes":
            other.cluster(run=instant)
        elif what == "goes":
            other.cluster(abandon=instant)
        else:
            instant = planned(other, SPLIT_ALL)
        with pytest.raises(CommitConflict):
            context.commit(statuses)
        context.abort()
    check(table, model)
    assert copies(table, instant) == []
    upsert(table, model, 20, 70, 3)
    if what == "comes":
        other.cluster(run=instant)
    whole(table, model)


@contextlib.contextmanager
def _open_write(table: Table, options: dict[str, object]) -> Any:
    from lakefmt._core.values import WriteOperation
    from lakefmt._core.write.context import WriteRequest
    from lakefmt._core.write.transaction import WriteTransaction

    yield WriteTransaction.begin(table.client, WriteRequest(WriteOperation.UPSERT, options))


# ----------------------------------------------------------------------------------------------------------- sabotage


def test_rows_that_are_not_copied_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    honest = BucketCopies.of
    monkeypatch.setattr(BucketCopies, "of", lambda self, batch, assigned: honest(self, batch, assigned)[:-1])
    upsert(table, model, 0, 60, 3)
    check(table, model)
    table.cluster(run=instant)
    with pytest.raises(AssertionError):
        check(table, model)


def test_copies_that_readers_see_too_early_would_double_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = made(6), first_model()
    planned(table, SPLIT_ALL)
    upsert(table, model, 20, 70, 3)
    monkeypatch.setattr(Timeline, "pending_clusterings", frozenset())
    with pytest.raises(AssertionError):
        check(table, model)


def test_copies_by_the_ring_as_it_is_would_be_lost_for_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = made(), first_model()
    instant = planned(table, SPLIT_ALL)
    placed = ConsistentBucketIndex.rows_by_node

    def shifted(index: ConsistentBucketIndex, keys: Any, ring: Any) -> Any:
        found = placed(index, keys, ring)
        return [(file_id, numbers) for (file_id, _), (_, numbers) in zip(found, found[1:] + found[:1], strict=True)]

    with monkeypatch.context() as wrong:
        wrong.setattr(ConsistentBucketIndex, "rows_by_node", shifted)
        upsert(table, model, 0, 60, 3)
    table.cluster(run=instant)
    with pytest.raises(AssertionError):
        check(table, model)


# ------------------------------------------------------------------------------------------------------------- deaths


DYING: dict[str, object] = {**FAST, **TWICE, "lakefmt.write.threads": 1, "hoodie.clean.automatic": False}
#: One process asks all deaths of a version: it knows the states that it has checked.


@functools.cache
def waiting(version: int, *, written: bool = False) -> tuple[Repeatable, str]:
    """A table with a plan that waits, made once for all deaths, and on demand a write to the old and the new buckets."""
    origin = make(f"copies-{next(NUMBERS)}", options=DYING, table_version=version)
    origin.upsert(rows(0, 9, 1))
    instant = planned(origin, SPLIT_ALL)
    if written:
        Table(TableClient(origin.client.store, DYING)).upsert(rows(3, 12, 2))
    return Repeatable(origin.client.store), instant


@pytest.mark.slow
@versions_and_endings("bucket-copies")
def test_a_write_that_dies_anywhere_leaves_all_or_nothing_in_both(version: int, ending: Ending) -> None:
    origin, instant = waiting(version)
    before, after = {f"k{n}": 1 for n in range(9)}, {f"k{n}": 2 if 3 <= n < 12 else 1 for n in range(12)}
    whole_write = FaultStore(origin.copy(), no_faults)
    origin.table(whole_write, DYING).upsert(rows(3, 12, 2))
    assert len(whole_write.effects) >= 10
    call = lambda store: origin.table(store, DYING).upsert(rows(3, 12, 2))  # noqa: E731
    for left in sweep(origin, call, numbers_of_run(whole_write.effects, ending), ending):
        healthy, story = origin.table(left.store, DYING, process=1), left.story
        stored = healthy.read()
        found = dict(zip(stored["id"].to_pylist(), stored["v"].to_pylist(), strict=True))
        assert found in (before, after), story
        model = dict(found)
        healthy.upsert(rows(5, 15, 3))
        model |= {f"k{n}": 3 for n in range(5, 15)}
        check(healthy, model)
        healthy.cluster(run=instant)
        check(healthy, model)
        healthy.upsert(rows(0, 4, 9))
        check(healthy, model | {f"k{n}": 9 for n in range(4)})
        assert healthy.check("full").is_clean, story


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "abandon"])
@versions_and_endings("bucket-copies")
def test_a_clustering_that_dies_anywhere_loses_no_copied_row(version: int, ending: Ending, how: str) -> None:
    origin, instant = waiting(version, written=True)
    model = {f"k{n}": 2 if 3 <= n < 12 else 1 for n in range(12)}
    whole_run = FaultStore(origin.copy(), no_faults)
    origin.table(whole_run, DYING).cluster(**{how: instant})
    assert len(whole_run.effects) >= 10
    call = lambda store: origin.table(store, DYING).cluster(**{how: instant})  # noqa: E731
    for left in sweep(origin, call, numbers_of_run(whole_run.effects, ending), ending, what=lambda left: how):
        healthy, story = origin.table(left.store, DYING, process=1), left.story
        check(healthy, model)
        healthy.upsert(rows(5, 15, 3))
        now = model | {f"k{n}": 3 for n in range(5, 15)}
        check(healthy, now)
        healthy.cluster(options={**SPLIT_ALL, MOST: 5})
        check(healthy, now)
        assert pending(healthy) == [], story
        assert healthy.check("full").is_clean, story
