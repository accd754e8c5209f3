"""Clusterings: rows before equal rows after, whatever they are clustered by, whoever planned it, wherever somebody dies."""

from __future__ import annotations

import contextlib
import functools
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.compaction.cluster_plan import ClusteringGroup
from lakefmt._core.compaction.cluster_rewrite import GroupRewrite
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.heartbeat import Liveness
from lakefmt._core.transactions.client import WriteClient
from lakefmt.errors import (
    CommitConflict,
    InstantNotFound,
    InstantNotPending,
    InvalidInputError,
    UnsupportedFeature,
    WriterActive,
)
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.stores import FaultStore, no_faults
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, numbers_of_run, sweep, versions_and_endings
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    # Every insert makes files of its own, as writers do that know nothing of small files.
    "hoodie.parquet.small.file.limit": 0,
}
NUMBERS = itertools.count()


def rows(first: int, last: int, ts: int = 1) -> pa.Table:
    numbers = range(first, last)
    values = [[f"k{n:04d}" for n in numbers], [("sf", "oslo")[n % 2] for n in numbers], [ts] * len(numbers)]
    return pa.table([*values, [float((n * 7919) % 101) for n in numbers]], schema=SCHEMA)


def made(version: int = 8, kind: str = "cow", url: str | None = None, **how: object) -> Table:
    """A table of four batches in files of their own, and an update of a few rows; partitioned by city."""
    table = lakefmt.create_table(
        url or f"memory://cluster-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_version=version,
        table_type=kind,
        options=OPTIONS,
        **how,  # type: ignore[arg-type]
    )
    for start in range(0, 40, 10):
        table.insert(rows(start, start + 10))
    table.upsert(rows(4, 8, ts=2))
    return table


def everything(table: Table) -> pa.Table:
    """The rows with their meta columns, without the one that says in which file they are."""
    return table.read(meta_columns=True).drop_columns(["_hoodie_file_name"])


def assert_same(found: pa.Table, expected: pa.Table, what: str = "") -> None:
    assert_same_multiset(found, expected, what=what)


def pending(table: Table) -> list[str]:
    return [str(i) for i in table.client.load().timeline.pending]


def files_of(table: Table) -> list[str]:
    return sorted(o.name for o in table.client.store.list() if not o.name.startswith(".hoodie"))


# ----------------------------------------------------------------------------------------------------------- the law


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "kind", "order", "target", "waits"),
    [
        (6, "cow", "linear", 1 << 30, True),
        (6, "mor", "zorder", 12_000, False),
        (8, "cow", "hilbert", 12_000, False),
        (8, "mor", None, 1 << 30, True),
        (9, "cow", None, 12_000, False),
        (9, "mor", "linear", 1 << 30, False),
    ],
)
def test_rows_keep_their_values_and_their_commits(
    version: int, kind: str, order: str | None, target: int, waits: bool
) -> None:
    table = made(version, kind)
    before = everything(table)
    options = {
        "hoodie.clustering.plan.strategy.target.file.max.bytes": target,
        "hoodie.clustering.plan.strategy.small.file.limit": target,
        "lakefmt.write.window.bytes": 1 << 20,
    }
    columns = None if order is None else ["v", "id"]
    plan = table.cluster(columns, order=order, dry_run=True, options=options)
    assert plan.instant is None
    assert plan.plan.num_slices >= 8
    if waits:
        scheduled = table.cluster(columns, order=order, schedule=True, options=options)
        assert scheduled.completion_time is None
        assert_same(everything(table), before, "planned only")
        done = Table(TableClient(table.client.store, OPTIONS)).cluster(run=str(scheduled.instant))
    else:
        done = table.cluster(columns, order=order, options=options)
    assert_same(everything(table), before, "clustered")
    assert done.num_rows == 40
    assert len(done.files) == (2 if target > 1 << 20 else len(done.files))
    live = {(piece.partition, piece.file_id) for piece in table.file_groups()}
    assert live == {(stat.partition_path, stat.file_id) for stat in done.files}
    if kind == "cow":
        check_invariants(table)
    assert table.check("full").is_clean
    assert table.upsert(rows(0, 40, ts=3)).num_inserts == 0, "every key is found where it went"
    assert_same(table.read(), rows(0, 40, ts=3))


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_rs_reads_it(version: int, kind: str, tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table = made(version, kind, str(tmp_path / "t"))
    before = table.read()
    scheduled = table.cluster("v", schedule=True)
    assert_same(hudi_rs_judge.snapshot(tmp_path / "t"), before, "planned only")
    done = table.cluster(run=str(scheduled.instant))
    assert_same(hudi_rs_judge.snapshot(tmp_path / "t"), before, "clustered")
    # The sabotage: without one of the new files rows are missing, and the judge says so.
    table.client.store.delete([done.files[0].path])
    with pytest.raises(Exception):  # noqa: B017 - a missing file or missing rows
        assert_same(hudi_rs_judge.snapshot(tmp_path / "t"), before, "sabotaged")


@pytest.mark.slow
def test_files_are_in_order_and_of_the_target_size() -> None:
    table = made()
    table.insert(rows(1000, 5000))
    options = {"hoodie.clustering.plan.strategy.target.file.max.bytes": 16_000}
    done = table.cluster(["v", "id"], options=options)
    assert len(done.files) > 2
    for partition in ("sf", "oslo"):
        names = [stat.path for stat in done.files if stat.partition_path.endswith(partition)]
        bases = {piece.base.path: piece.base for piece in table.file_groups() if piece.base is not None}
        values = [
            tuple(row.values())
            for name in names
            for row in table.client.reader.rows(bases[name], ["v", "id"]).select(["v", "id"]).to_pylist()
        ]
        assert values == sorted(values), "files follow each other, and rows in them"
    again = table.cluster(["v", "id"], options={**options, "hoodie.clustering.plan.strategy.small.file.limit": 0})
    assert again.instant is None, "what has its order is not written again"
    other = table.cluster(["id"], dry_run=True)
    assert other.plan.num_slices == len(done.files)


@pytest.mark.slow
def test_rows_beyond_the_memory_are_sorted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    table.insert(rows(1000, 9000))
    pieces: list[int] = []
    real = GroupRewrite._ordered

    def noted(self: GroupRewrite, slices):  # type: ignore[no-untyped-def]
        for piece in real(self, slices):
            pieces.append(piece.nbytes)
            yield piece

    monkeypatch.setattr(GroupRewrite, "_ordered", noted)
    before = everything(table)
    table.cluster("v", options={"lakefmt.write.window.bytes": 1 << 20})
    assert_same(everything(table), before)
    assert len(pieces) > 20
    assert max(pieces) < 1 << 18


# ----------------------------------------------------------------------------------------- what others see of it


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
def test_it_is_no_change_for_increments_and_time_travel(version: int) -> None:
    table = made(version, properties={"hoodie.table.cdc.enabled": "true"})
    last = table.timeline.entries[-1].time
    before, increment = everything(table), table.incremental("000")
    changes = table.changes("000")
    done = table.cluster("v")
    assert_same(table.incremental("000"), increment, "the increment from the beginning")
    assert table.incremental(str(done.instant)).num_rows == 0
    assert changes.num_rows > 0
    assert table.changes("000").to_pylist() == changes.to_pylist()
    assert_same(table.read(as_of=last, meta_columns=True).drop_columns(["_hoodie_file_name"]), before, "before it")
    table.upsert(rows(0, 2, ts=5))
    assert table.incremental(str(done.completion_time)).num_rows == 2
    assert_same(table.read(as_of=str(done.completion_time)), before.select(SCHEMA.names), "at it")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_metadata_table_and_its_indexes_follow(kind: str) -> None:
    table = made(9, kind, indexes=["column_stats", "record_index"])
    before = everything(table)
    table.cluster(["v", "id"], order="hilbert")
    assert_same(everything(table), before)
    assert table.index.check().is_clean
    assert table.check("full").is_clean
    assert_same(table.read(filter="id = 'k0005'"), rows(5, 6, ts=2), "by the record index")
    record = Table(TableClient(table.client.store, {**OPTIONS, "hoodie.index.type": "RECORD_INDEX"}))
    assert record.upsert(rows(0, 40, ts=3)).num_inserts == 0
    assert_same(table.read(), rows(0, 40, ts=3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "property_", ["hoodie.populate.meta.fields=false", "hoodie.datasource.write.drop.partition.columns=true"]
)
def test_tables_without_meta_columns_or_with_partitions_in_paths_only(property_: str) -> None:
    name, _, value = property_.partition("=")
    table = lakefmt.create_table(
        f"memory://cluster-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        properties={name: value},
        options={**OPTIONS, "hoodie.index.type": "SIMPLE"},
    )
    for start in range(0, 40, 10):
        table.insert(rows(start, start + 10))
    done = table.cluster(["city", "v"], order="zorder")
    assert len(done.files) == 2
    assert_same(table.read(), rows(0, 40))
    assert table.upsert(rows(0, 40, ts=3)).num_inserts == 0


# ----------------------------------------------------------------------------------------------- beside other writers


def test_a_file_group_of_a_plan_is_not_updated_and_new_rows_go_elsewhere() -> None:
    table = made()
    scheduled = table.cluster("v", schedule=True)
    with pytest.raises(CommitConflict, match="pending clustering") as caught:
        table.upsert(rows(0, 1, ts=9))
    assert caught.value.other_instant == scheduled.instant
    assert table.insert(rows(100, 110)).num_inserts == 10
    done = table.cluster(run=str(scheduled.instant))
    assert done.plan.num_slices == scheduled.plan.num_slices
    assert_same(table.read().select(["id"]), pa.concat_tables([rows(0, 40), rows(100, 110)]).select(["id"]))
    assert table.upsert(rows(0, 1, ts=9)).num_updates == 1


def test_a_plan_whose_groups_were_changed_gives_way() -> None:
    """Another engine let an update through: the clustering hides nothing of it, and the next run withdraws the plan."""
    table = made()
    scheduled = table.cluster("v", schedule=True)
    store = table.client.store
    timeline = ".hoodie/timeline"
    (plan,) = [o.name for o in store.list(timeline) if str(scheduled.instant) in o.name]
    body = store.read(plan)
    store.delete([plan])
    table.upsert(rows(0, 2, ts=9))
    store.put(plan, body)
    assert table.cluster(run=str(scheduled.instant)).completion_time is None
    assert pending(table) == []
    assert table.read(filter="ts = 9").num_rows == 2
    assert table.cluster("v").num_rows == 40


@pytest.mark.slow
def test_an_update_that_completes_while_a_clustering_is_at_work_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    real = GroupRewrite.run

    def meanwhile(self: GroupRewrite, number, group):  # type: ignore[no-untyped-def]
        stats = real(self, number, group)
        if number == 0:
            monkeypatch.setattr("lakefmt._core.write.commit.conflict_resolution.PLANNING", frozenset())
            for module in ("filegroups.pending_plans", "write.commit.conflict_resolution"):
                monkeypatch.setattr(f"lakefmt._core.{module}.is_clustering", lambda *_: False)
            Table(TableClient(table.client.store, OPTIONS)).upsert(rows(0, 2, ts=9))
        return stats

    monkeypatch.setattr(GroupRewrite, "run", meanwhile)
    with pytest.raises(CommitConflict, match="does not complete"):
        table.cluster("v")
    monkeypatch.undo()
    assert table.read(filter="ts = 9").num_rows == 2
    before = everything(table)
    assert table.cluster("v").num_rows == 40
    assert_same(everything(table), before)
    assert pending(table) == []


@pytest.mark.slow
def test_plans_are_withdrawn_and_rolled_back() -> None:
    table = made()
    before, files = everything(table), files_of(table)
    scheduled = table.cluster("v", schedule=True)
    table.cluster(abandon=str(scheduled.instant))
    assert pending(table) == []
    assert files_of(table) == files
    scheduled = table.cluster("v", schedule=True)
    table.rollback(str(scheduled.instant), withdraw=True)
    assert pending(table) == []
    done = table.cluster("v")
    table.rollback(str(done.instant))
    assert_same(everything(table), before)
    assert files_of(table) == files
    check_invariants(table)
    for wrong in ("20200101000000000", str(done.instant)):
        with pytest.raises(InstantNotFound):
            table.cluster(run=wrong)
        with pytest.raises(InstantNotFound):
            table.cluster(abandon=wrong)


def test_an_overwrite_of_version_6_is_no_clustering() -> None:
    """Both are replacecommits there: a clustering leaves one that is at work alone."""
    table = made(6)
    context = lowlevel.begin_write(table, operation="insert_overwrite")
    assert any("replacecommit" in each for each in pending(table))
    with contextlib.suppress(WriterActive):
        Table(TableClient(table.client.store, OPTIONS)).cluster("v")
    assert any(str(context.instant) in each for each in pending(table)), "it is still there"
    with pytest.raises(InstantNotFound):
        table.cluster(abandon=str(context.instant))
    lowlevel.abort(context)


# ------------------------------------------------------------------------------------------------------- what is asked


def test_partitions_filters_and_settings_choose() -> None:
    table = made()
    assert table.cluster(partitions=["sf"], dry_run=True).plan.partitions == ("city=sf",)
    assert table.cluster(where="city = 'oslo'", dry_run=True).plan.partitions == ("city=oslo",)
    chosen = {"hoodie.clustering.plan.strategy.partition.selected": "city=oslo"}
    assert table.cluster(dry_run=True, options=chosen).plan.partitions == ("city=oslo",)
    by_settings = {
        "hoodie.clustering.plan.strategy.sort.columns": "v,id",
        "hoodie.layout.optimize.strategy": "zorder",
        "hoodie.layout.optimize.curve.build.method": "direct",
    }
    assert str(table.cluster(options=by_settings).plan.order) == "zorder by v, id"


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    table = made()
    names = [o.name for o in table.client.store.list()]
    for call in (
        {"columns": "gone"},
        {"columns": ["id", "id"]},
        {"columns": [5]},
        {"columns": 5},
        {"order": "zorder"},
        {"columns": "id", "run": "1"},
        {"schedule": True, "dry_run": True},
    ):
        with pytest.raises(InvalidInputError):
            table.cluster(**call)
    assert [o.name for o in table.client.store.list()] == names
    buckets = lakefmt.create_table(
        f"memory://cluster-{next(NUMBERS)}",
        data=rows(0, 9),
        record_key="id",
        index="bucket",
        properties={"hoodie.bucket.index.num.buckets": "2"},
    )
    with pytest.raises(UnsupportedFeature, match="bucket"):
        buckets.cluster("id")


# ------------------------------------------------------------------------------------------------------------- deaths


class Later:
    """A clock by which every heartbeat has expired."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)


def copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore(f"cluster-copy-{next(NUMBERS)}")
    for found in store.list():
        copy.put(found.name, store.read(found.name))
    return copy


@functools.cache
def repeatable(version: int) -> tuple[Repeatable, pa.Table, set[str]]:
    """A table, its rows and its file groups."""
    origin = made(version)
    return Repeatable(origin.client.store), everything(origin), {piece.file_id for piece in origin.file_groups()}


@pytest.mark.slow
@versions_and_endings("clustering-dies", (6, 9))
def test_dying_anywhere_leaves_the_rows_and_the_next_clustering_ends_it(ending: Ending, version: int) -> None:
    origin, before, groups = repeatable(version)
    whole = FaultStore(origin.copy(), no_faults)
    origin.table(whole, OPTIONS).cluster("v")
    assert len(whole.effects) >= 10
    call = lambda store: origin.table(store, OPTIONS).cluster("v")  # noqa: E731
    for left in sweep(origin, call, numbers_of_run(whole.effects, ending), ending):
        healthy, story = origin.table(left.store, OPTIONS, process=1), left.story
        assert_same(everything(healthy), before, story)
        healthy.cluster("v")
        assert_same(everything(healthy), before, story)
        assert pending(healthy) == [], story
        now = {piece.file_id for piece in healthy.file_groups()}
        assert len(now) == 2, story
        assert not now & groups, story
        assert healthy.upsert(rows(0, 40, ts=7)).num_updates == 40, story
        check_invariants(healthy)
        stats = healthy.check("full")
        assert stats.is_clean, f"{story}: {stats}"


# ---------------------------------------------------------------------------------------------------- after commits


@pytest.mark.slow
def test_it_follows_commits_as_the_settings_say() -> None:
    every_second = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2}
    table = Table(TableClient(made().client.store, {**OPTIONS, **every_second}))
    table.insert(rows(100, 104))
    assert len(table.file_groups()) == 2
    table.insert(rows(104, 108))
    assert len(table.file_groups()) == 4, "one commit since the last clustering"
    table.insert(rows(108, 112))
    assert len(table.file_groups()) == 2
    planning = {"hoodie.clustering.schedule.inline": True, "hoodie.clustering.async.max.commits": 1}
    planner = Table(TableClient(table.client.store, {**OPTIONS, **planning}))
    planner.insert(rows(112, 116))
    assert len(pending(planner)) == 1
    planner.insert(rows(116, 120))
    assert len(pending(planner)) == 1, "a plan that waits is enough"
    assert len(planner.cluster().finished) == 1
    assert planner.read().num_rows == 60


@pytest.mark.slow
def test_it_follows_commits_in_the_background() -> None:
    settings = {"hoodie.clustering.async.enabled": True, "hoodie.clustering.async.max.commits": 1}
    table = Table(TableClient(made().client.store, {**OPTIONS, **settings}))
    with table.services():
        table.insert(rows(100, 104))
    assert len(table.file_groups()) == 2
    assert pending(table) == []
    assert table.read().num_rows == 44


def test_a_failure_after_a_commit_is_told_and_the_commit_stays() -> None:
    wrong = {"hoodie.clustering.inline": True, "hoodie.clustering.plan.strategy.sort.columns": "gone"}
    table = Table(TableClient(made().client.store, {**OPTIONS, **wrong}))
    result = table.insert(rows(100, 104))
    assert any("clustering after the commit failed" in warning for warning in result.warnings)
    assert table.read().num_rows == 44


# ------------------------------------------------------------------------------------------------------ sort on write


@pytest.mark.slow
@pytest.mark.parametrize("order", ["linear", "zorder", "hilbert"])
def test_rows_are_ordered_when_they_are_written(order: str) -> None:
    table = lakefmt.create_table(
        f"memory://cluster-{next(NUMBERS)}", schema=SCHEMA, record_key="id", partition_by="city", options=OPTIONS
    )
    window = {"lakefmt.write.window.bytes": 1 << 16}
    table.sort_on_write((rows(n, n + 500) for n in range(0, 2000, 500)), ["v", "id"], order=order, options=window)
    assert_same(table.read(), rows(0, 2000))
    if order == "linear":
        for piece in table.file_groups():
            stored = table.client.reader.rows(piece.base, ["v", "id"]).select(["v", "id"])  # type: ignore[arg-type]
            assert stored.equals(stored.sort_by([("v", "ascending"), ("id", "ascending")]))
    for columns in ([], 5, ["a,b"], ["gone"], [5]):
        with pytest.raises(InvalidInputError):
            table.sort_on_write(rows(0, 1), columns)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="unknown sort"):
        table.bulk_insert(rows(0, 1), sort="zorder:")


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
def test_a_plan_gives_way_to_an_update_where_the_settings_say_so(version: int) -> None:
    table = made(version)
    name = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
    allowing = Table(TableClient(table.client.store, {**OPTIONS, "hoodie.clustering.updates.strategy": name}))
    planned = allowing.cluster("v", schedule=True)
    allowing.insert(rows(100, 104))
    assert any(str(planned.instant) in each for each in pending(table)), "new rows disturb no plan"
    assert allowing.upsert(rows(0, 2, ts=9)).num_updates == 2
    assert pending(table) == []
    assert table.read(filter="ts = 9").num_rows == 2
    assert allowing.cluster("v").num_rows == 44


def test_a_clustering_at_work_is_not_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    allow = {"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}
    real, met = GroupRewrite.run, []

    def meanwhile(self: GroupRewrite, number, group):  # type: ignore[no-untyped-def]
        with pytest.raises(CommitConflict, match="pending clustering"):
            Table(TableClient(table.client.store, {**OPTIONS, **allow})).upsert(rows(0, 2, ts=9))
        met.append(number)
        return real(self, number, group)

    monkeypatch.setattr(GroupRewrite, "run", meanwhile)
    assert table.cluster("v").num_rows == 40
    assert met == [0, 1]


@pytest.mark.slow
def test_columns_that_were_altered_before_and_between_plan_and_run() -> None:
    table = made(8, "mor")
    table.alter.rename_column("v", "value")
    planned = table.cluster("value", schedule=True)
    table.alter.rename_column("value", "worth")
    before = table.read(meta_columns=True).drop_columns(["_hoodie_file_name"])
    done = table.cluster(run=str(planned.instant))
    assert done.num_rows == 40
    assert_same(everything(table), before)
    assert table.cluster("worth").num_rows == 40
    assert_same(everything(table), before)


def test_an_order_by_a_column_that_became_another_is_made_anew() -> None:
    """A footer names the columns of its order as they were called: files were taken for ordered that were not."""
    table = made(8)
    assert table.cluster("v").num_rows == 40
    table.alter.add_column("w", pa.float64())
    assert table.cluster("v").instant is None, "a column beside it changes nothing"
    table.alter.update_column("v", type=pa.string())
    assert table.cluster("v").num_rows == 40
    for city in ("sf", "oslo"):
        texts = table.read(["v"], filter=[("city", "=", city)])["v"].to_pylist()
        assert len(texts) == 20
        assert texts == sorted(texts)
    assert table.cluster("v").instant is None


def test_a_plan_by_a_column_that_is_gone_gives_way() -> None:
    """It could not be executed, and no other clustering either, until somebody withdrew it."""
    table = made(8)
    added = table.alter.add_column("late", pa.int64())
    planned = table.cluster("late", schedule=True)
    table.rollback(str(added.instant))
    assert table.cluster().num_rows == 40
    assert planned.instant not in {each.time for each in table.timeline.timeline.instants}


@pytest.mark.parametrize("version", [6, 8])
def test_a_clustering_that_another_process_ran_meanwhile_writes_no_file(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files would count as those of the completed instant: the rows were there twice until it removed them."""
    table = made(version)
    before, seen = everything(table), list[list[str]]()
    written = GroupRewrite.run

    def slow(self: GroupRewrite, number: int, group: ClusteringGroup) -> object:
        if not seen:
            seen.append([])
            # This process sleeps: its heartbeat counts as dead, and another one runs the plan.
            other = lakefmt.open_table(table.client.store.url, options=OPTIONS)
            with monkeypatch.context() as asleep:
                asleep.setattr(WriteClient, "writer_liveness", lambda *_: Liveness(alive=False, reason="asleep"))
                other.cluster(run=str(self.time))
            seen.append(files_of(table))
        return written(self, number, group)

    monkeypatch.setattr(GroupRewrite, "run", slow)
    with pytest.raises(InstantNotPending, match="taken over"):
        table.cluster()
    assert seen[1] == files_of(table)
    assert_same(everything(table), before)
    assert table.check("full").is_clean
