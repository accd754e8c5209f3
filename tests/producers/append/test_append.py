"""Appends that are done once, watermarks, and how an append table is made."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import services
from lakefmt._core.producers.append import OPTIONS, translate_options
from lakefmt._core.timeline.commit import watermark_of
from lakefmt._core.write.context import WriteStatus
from lakefmt._core.write.files.base_file import FileInProgress
from lakefmt.errors import (
    InvalidInputError,
    InvalidKey,
    SchemaMismatch,
    StorageError,
    UnknownSetting,
    UnsupportedFeature,
)
from tests.example_counts import examples

SCHEMA = pa.schema([("product", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def rows(*numbers: int, product: str = "a") -> pa.Table:
    some = [datetime(2026, 1, 1, tzinfo=UTC)] * len(numbers)
    return pa.table({"product": [product] * len(numbers), "n": list(numbers), "at": some}, schema=SCHEMA)


def make(url: str | Path, **more: object) -> lakefmt.Table:
    return lakefmt.create_table(str(url), schema=SCHEMA, kind="append", **more)  # type: ignore[arg-type]


def numbers_of(table: lakefmt.Table) -> list[int]:
    return sorted(table.read()["n"].to_pylist())


def watermark(table: lakefmt.Table) -> int | None:
    return watermark_of(table.client.at(table.client.load()).newest_entries())


# --- once ---------------------------------------------------------------------------------------------------------


def test_a_repeated_number_is_skipped_and_names_the_instant(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.append(rows(1), txn=("loader", 17))
    for number in (17, 16, 0):
        again = table.append(rows(2), txn=("loader", number))
        assert again.skipped
        assert (again.instant, again.completion_time) == (first.instant, first.completion_time)
    assert table.append(rows(2), txn=("loader", 18)).num_inserts == 1
    assert not table.append(rows(3), txn=("other", 1)).skipped
    assert numbers_of(table) == [1, 2, 3]


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=12))
def test_every_number_is_appended_at_most_once(calls: list[tuple[str, int]]) -> None:
    table = make("memory://append-once")
    try:
        expected: list[int] = []
        last: dict[str, int] = {}
        for count, (application, number) in enumerate(calls):
            result = table.append(rows(count), txn=(application, number))
            assert result.skipped == (number <= last.get(application, -1))
            if not result.skipped:
                expected.append(count)
                last[application] = number
        assert numbers_of(table) == expected
    finally:
        store = table.client.store
        store.delete([each.name for each in store.list("", recursive=True)])


def _append(path: str, number: int, done: multiprocessing.SimpleQueue) -> None:  # type: ignore[type-arg]
    table = lakefmt.open_table(path)
    results = [table.append(rows(number), txn=("loader", number)) for number in range(number)]
    done.put([result.skipped for result in results])


@pytest.mark.slow
def test_two_processes_with_the_same_numbers_append_each_once(tmp_path: Path) -> None:
    make(tmp_path / "t")
    context = multiprocessing.get_context("spawn")
    done = context.SimpleQueue()
    workers = [context.Process(target=_append, args=(str(tmp_path / "t"), 6, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    first, second = done.get(), done.get()
    assert numbers_of(lakefmt.open_table(str(tmp_path / "t"))) == list(range(6))
    assert sum(not skipped for skipped in first + second) == 6


def test_a_commit_whose_answer_was_lost_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    write = table._write

    def lost(*args: object, **more: object) -> object:
        write(*args, **more)  # type: ignore[arg-type]
        raise StorageError("the answer was lost")

    monkeypatch.setattr(table, "_write", lost)
    result = table.append(rows(1), txn=("loader", 1))
    assert result.skipped
    assert result.instant is not None
    monkeypatch.undo()
    assert table.append(rows(1), txn=("loader", 1)).skipped
    assert numbers_of(table) == [1]


def test_a_store_that_failed_before_the_commit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")

    def fails(*args: object, **more: object) -> object:
        raise StorageError("down")

    monkeypatch.setattr(table, "_write", fails)
    with pytest.raises(StorageError, match="down"):
        table.append(rows(1), txn=("loader", 1))


def test_a_number_is_known_when_its_commit_is_archived(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.append(rows(0), txn=("loader", 1))
    for number in range(1, 8):
        table.append(rows(number))
    table.archive(options={"hoodie.keep.min.commits": 2})
    assert all(each.time != first.instant for each in table.client.load().timeline.commits)
    again = lakefmt.open_table(str(tmp_path / "t")).append(rows(0), txn=("loader", 1))
    assert again.skipped
    assert again.instant == first.instant


def test_a_restore_forgets_the_numbers_that_it_undoes(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.append(rows(1), txn=("loader", 1))
    assert first.instant is not None
    table.savepoint(first.instant)
    table.append(rows(2), txn=("loader", 2))
    table.restore(first.instant)
    assert not table.append(rows(2), txn=("loader", 2)).skipped
    assert numbers_of(table) == [1, 2]


def test_an_append_without_rows_keeps_its_number(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    assert table.append(rows(), txn=("loader", 1)).instant is not None
    assert table.append(rows(1), txn=("loader", 1)).skipped
    assert table.append(rows()).instant is None


@pytest.mark.parametrize(
    "txn", ["loader", ("loader",), ("a/b", 1), ("a", -1), ("a", True), ("a", "1"), ("a", 2**63), 5]
)
def test_a_txn_that_is_none_is_refused(txn: object) -> None:
    table = make("memory://append-bad-txn", if_exists="open")
    with pytest.raises(InvalidInputError):
        table.append(rows(1), txn=txn)  # type: ignore[arg-type]
    assert not table.client.load().timeline.instants


# --- watermarks ----------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), max_size=6))
@settings(max_examples=examples(20))
def test_the_watermark_never_falls_and_is_inherited(marks: list[int | None]) -> None:
    table = make("memory://append-marks")
    try:
        largest: int | None = None
        for count, mark in enumerate(marks):
            table.append(rows(count), watermark=mark)
            largest = largest if mark is None else mark if largest is None else max(mark, largest)
            assert watermark(table) == largest
    finally:
        store = table.client.store
        store.delete([each.name for each in store.list("", recursive=True)])


def test_a_state_by_its_watermark(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number, mark in ((1, None), (2, 10), (3, None), (4, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))):
        table.append(rows(number), watermark=mark)
    assert sorted(table.as_of(watermark=10).read()["n"].to_pylist()) == [1, 2]
    assert sorted(table.as_of(watermark=11).read()["n"].to_pylist()) == [1, 2, 3, 4]
    with pytest.raises(lakefmt.errors.InstantNotFound):
        table.as_of(watermark=1001)
    with pytest.raises(InvalidInputError):
        table.as_of()
    for bad in ("1", 1.5, True, datetime(2026, 1, 1)):
        with pytest.raises(InvalidInputError):
            table.append(rows(5), watermark=bad)  # type: ignore[arg-type]


# --- writers beside each other -------------------------------------------------------------------------------------


def test_writers_beside_each_other_never_conflict(tmp_path: Path) -> None:
    make(tmp_path / "t")
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.num.retries.on.conflict.failures": 0,
    }
    first, second = (lakefmt.open_table(str(tmp_path / "t"), options=options) for _ in range(2))
    from lakefmt import lowlevel

    for number in range(0, 60, 2):
        slow = lowlevel.begin_write(first, "insert")
        work = lowlevel.assign(slow, rows(number))
        done = [lowlevel.write_files(slow, each, some) for each, some in work]
        second.append(rows(number + 1))
        lowlevel.commit(slow, done)
    assert numbers_of(second) == list(range(60))
    # Small files were merged all the same.
    assert len(second.client.at(second.client.load()).slices()) <= 40


# --- making one ----------------------------------------------------------------------------------------------------


def test_paimons_names_make_the_same_table(tmp_path: Path) -> None:
    ours = make(tmp_path / "a", order="per_bucket", bucket_key="product", buckets=8)
    theirs = make(tmp_path / "b", properties={"bucket": "8", "bucket-key": "product"})
    same = {key: value for key, value in ours.properties.properties.items() if key.startswith("lakefmt.")}
    for key, value in same.items():
        assert theirs.properties.properties[key] == value
    assert same["lakefmt.append.order"] == "per_bucket"


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_taken_or_refused_with_a_reason(name: str) -> None:
    values = {"bucket": "4", "clustering.strategy": "zorder", "snapshot.time-retained": "1 h"}
    default = OPTIONS[name].default if OPTIONS[name].default not in ("", "none", "unlimited") else "5"
    given = {name: values.get(name, default)}
    if OPTIONS[name].refused:
        with pytest.raises(UnsupportedFeature, match=name):
            translate_options(given)
        return
    made = translate_options(given)
    assert made[f"lakefmt.paimon.{name}"]
    assert not OPTIONS[name].becomes or OPTIONS[name].becomes in made


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownSetting, match="did you mean 'target-file-size'"):
        translate_options({"target-file-sise": "1 mb"})
    for name, value in (
        ("bucket", "0"),
        ("bucket", "x"),
        ("target-file-size", "big"),
        ("snapshot.time-retained", "soon"),
        ("full-compaction.delta-commits", "-1"),
    ):
        with pytest.raises(InvalidInputError, match=name):
            translate_options({name: value})
    with pytest.raises(InvalidInputError, match="contradicts"):
        translate_options({"target-file-size": "1 mb", "hoodie.parquet.max.file.size": "5"})


def test_options_of_sizes_services_and_streams_have_their_effect() -> None:
    table = lakefmt.create_table(
        "memory://append-options",
        schema=pa.schema([("p", pa.int64()), ("n", pa.int64())]),
        partition_by="p",
        kind="append",
        properties={
            "target-file-size": "10 mb",
            "compaction.small-file-ratio": "0.5",
            "compaction.min.file-num": "4",
            "write-only": "true",
            "continuous.discovery-interval": "250 ms",
            "scan.plan-sort-partition": "true",
            "streaming-read-overwrite": "true",
            "consumer.mode": "at-least-once",
        },
    )
    said = table.properties.properties
    assert said["hoodie.clustering.plan.strategy.target.file.max.bytes"] == str(10 << 20)
    assert said["hoodie.clustering.plan.strategy.small.file.limit"] == str(5 << 20)
    for p in (3, 2, 1):
        table.append(pa.table({"p": [3, p], "n": [0, p]}), options={"hoodie.parquet.small.file.limit": 0})
    table.overwrite(pa.table({"p": [3, 1], "n": [8, 9]}))
    with table.stream(follow=False, consumer_id="feed") as stream:  # by value; what was overwritten comes, too
        assert [row for batch in stream for row in batch.rows["n"].to_pylist()][-2:] == [9, 8]
        assert stream._options.poll_interval == 0.25
    with table.stream(follow=False, consumer_id="feed") as stream:
        assert list(stream) == [], "the progress was kept by itself"
    with table.stream(follow=False, streaming_read_overwrite=False, mode="exactly_once", poll_interval=3) as stream:
        assert 9 not in [row for batch in stream for row in batch.rows["n"].to_pylist()]
    for number in range(4):
        table.append(pa.table({"p": [7], "n": [number]}), options={"lakefmt.write.small.files": "tiers"})
    files = len(table.file_groups())
    assert files > 3, "no service follows the commits of such a table"
    assert services.run(table, once=True).tables[0].steps["packing"].result == "done"
    assert len(table.file_groups()) < files
    for wrong in (
        {"write-only": "perhaps"},
        {"consumer.mode": "once"},
        {"target-file-size": "1 mb", "compaction.small-file-ratio": "2"},
    ):
        with pytest.raises(InvalidInputError, match="table option"):
            translate_options(wrong)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"record_key": "n"}, InvalidInputError),
        ({"ordering": "at"}, InvalidInputError),
        ({"order": "sorted"}, InvalidInputError),
        ({"bucket_key": "product"}, InvalidInputError),
        ({"buckets": 4}, InvalidInputError),
        ({"order": "per_bucket", "buckets": 0}, InvalidInputError),
        ({"order": "per_bucket", "buckets": 4}, InvalidInputError),
        ({"order": "per_bucket", "bucket_key": "nothing", "buckets": 4}, SchemaMismatch),
        ({"properties": {"hoodie.populate.meta.fields": "false"}}, UnsupportedFeature),
        ({"properties": {"lakefmt.event.time.column": "product"}}, SchemaMismatch),
        ({"properties": {"lakefmt.event.time.column": "at", "lakefmt.allowed.delay": "x"}}, InvalidInputError),
        ({"kind": "log"}, InvalidInputError),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, more: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        lakefmt.create_table(str(tmp_path / "t"), **{"schema": SCHEMA, "kind": "append", **more})  # type: ignore[arg-type]
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()


@pytest.mark.parametrize("order", [{}, {"order": "per_bucket"}])
def test_compact_packs_small_files(tmp_path: Path, order: dict[str, object]) -> None:
    small = {"hoodie.clustering.plan.strategy.small.file.limit": "1", "hoodie.clustering.inline": "false"}
    table = make(tmp_path / "t", partition_by="product", properties=small, **order)
    for number in range(6):
        table.append(rows(number, product="ab"[number % 2]), options={"lakefmt.write.only": True})

    def files() -> list[str]:
        return sorted(each.partition for each in table.client.at(table.client.load()).slices())

    before = files()
    assert len(before) == 6
    if order:
        assert table.compact().instant is None, "no file is small"
    assert table.compact(full=True, dry_run=True).instant is None
    assert files() == before
    table.compact(full=True, partitions=["a"])
    assert len(files()) == 4
    table.compact(full=True)
    assert len(files()) == 2
    assert table.compact(full=True).instant is None, "nothing is rewritten for ever"
    kept = table.read(["n"], filter="product = 'b'")["n"].to_pylist()
    assert (kept if order else sorted(kept)) == [1, 3, 5]
    assert numbers_of(table) == list(range(6))
    with pytest.raises(InvalidInputError, match="log="):
        table.compact(log=True)
    keyed = lakefmt.create_table(str(tmp_path / "k"), schema=SCHEMA, record_key="n", table_type="mor")
    with pytest.raises(InvalidInputError, match="append tables"):
        keyed.compact(full=True)


def test_verbs_that_need_keys_say_so(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.append(rows(1))
    for call in (lambda: table.upsert(rows(1)), lambda: table.update("n = 1", {"n": 2})):
        with pytest.raises((InvalidKey, InvalidInputError, UnsupportedFeature), match="key"):
            call()
    assert numbers_of(table) == [1]
    assert table.delete("n = 1").num_deletes == 1, "a filter finds rows by their generated keys"


@pytest.mark.parametrize("order", [{}, {"order": "per_bucket", "bucket_key": "product", "buckets": 8}])
def test_both_examples(tmp_path: Path, order: dict[str, object]) -> None:
    table = make(tmp_path / "t", **order)
    for number in range(3):
        table.append([{"product": p, "n": number, "at": datetime(2026, 1, 1, tzinfo=UTC)} for p in "abc"])
    assert numbers_of(table) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    keys = table.read(meta_columns=True)["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == 9


# --- many partitions -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_partitions_are_written_and_warned_of(tmp_path: Path) -> None:
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, partition_by="p", kind="append")
    some = pa.table({"p": [n % 300 for n in range(900)], "n": list(range(900))}, schema=schema)
    result = table.append(some)
    assert any("300 files" in warning for warning in result.warnings)
    assert numbers_of(table) == list(range(900))
    streamed = table.append(iter([some.slice(0, 450), some.slice(450)]))
    assert streamed.num_inserts == 900


@pytest.mark.slow
@pytest.mark.parametrize("sorted_rows", [False, True])
def test_no_more_files_are_open_than_may_be(sorted_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more partitions wait on the disk; partitions that come later take the place of those written longest ago."""
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = lakefmt.create_table(
        f"memory://append-open-{sorted_rows}",
        schema=schema,
        partition_by="p",
        kind="append",
        properties={"write-max-writers-to-spill": "6"},
        options={"lakefmt.write.window.bytes": 2048},
    )
    most, is_open = [0], set[object]()

    class Counted(FileInProgress):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            is_open.add(self)
            most[0] = max(most[0], len(is_open))

        def finish(self, *turn: Any) -> WriteStatus:
            is_open.discard(self)
            return super().finish(*turn)

    monkeypatch.setattr("lakefmt._core.write.bulk_insert.FileInProgress", Counted)
    first = 30 if sorted_rows else 3  # partitions of the first rows: too many, or not yet
    partitions = [n % (first if n < 200 else 30) for n in range(2000)]
    rows = pa.table({"p": partitions, "n": list(range(2000))}, schema=schema)
    result = table.append(iter([rows.slice(start, 100) for start in range(0, 2000, 100)]))
    assert most[0] <= 6
    assert not is_open
    assert sorted(table.read()["n"].to_pylist()) == list(range(2000))
    assert len(result.files) == 30 if sorted_rows else len(result.files) > 30


def test_expire_partitions_by_value_and_by_update(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, partition_by="day", kind="append")
    days = [datetime(2020, 1, 1, tzinfo=UTC).date(), datetime(2999, 1, 1, tzinfo=UTC).date()]
    table.append(pa.table({"day": days, "n": [1, 2]}, schema=schema))
    month = timedelta(days=30)
    assert table.expire_partitions(month, dry_run=True) == table.expire_partitions(month)
    assert numbers_of(table) == [2]
    assert table.expire_partitions(month, by="update") == ()
    assert len(table.expire_partitions(datetime(9999, 1, 1, tzinfo=UTC), by="update")) == 1
    assert numbers_of(table) == []
    for bad in ({"older_than": 5}, {"older_than": datetime(2026, 1, 1)}, {"older_than": month, "by": "size"}):
        with pytest.raises(InvalidInputError):
            table.expire_partitions(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("hive_style", ["true", "false"])
@pytest.mark.parametrize(
    ("period", "newest_expired"),
    [
        (lakefmt.year, datetime(2023, 12, 31, 23, tzinfo=UTC)),
        (lakefmt.month, datetime(2024, 1, 31, 23, tzinfo=UTC)),
        (lakefmt.day, datetime(2024, 2, 9, 23, tzinfo=UTC)),
        (lakefmt.hour, datetime(2024, 2, 10, 11, tzinfo=UTC)),
    ],
)
def test_a_period_expires_when_all_of_it_is_old(
    period: Callable[[str], Any], newest_expired: datetime, hive_style: str
) -> None:
    cutoff = datetime(2024, 2, 10, 12, tzinfo=UTC)  # an hour is over
    times = [cutoff + timedelta(hours=hours) for hours in (-24 * 800, -24 * 41, -24 * 10, -13, -1, 0, 24, 24 * 400)]
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    name = f"memory://append-periods-{period.__name__}-{hive_style}"
    properties = {"hoodie.datasource.write.hive_style_partitioning": hive_style}
    table = lakefmt.create_table(name, schema=schema, partition_by=period("at"), kind="append", properties=properties)
    table.append(pa.table({"at": [*times, None]}, schema=schema))
    table.expire_partitions(cutoff)
    left = [at for at in times if at >= newest_expired + timedelta(hours=1)]
    assert sorted(at for at in table.read()["at"].to_pylist() if at is not None) == left
    assert table.read()["at"].null_count == 1  # its partition names a time that the row does not have


def test_append_into_a_keyed_table_warns_that_it_repeats_keys() -> None:
    rows = pa.table({"id": ["a"], "n": [1]})
    table = lakefmt.create_table("memory://append-keyed", data=rows, record_key="id")
    first = table.append(rows, txn=("loader", 1))
    again = table.append(rows, txn=("loader", 1))
    assert any("upsert updates it" in warning for warning in first.warnings)
    assert again.skipped
    assert again.warnings == ()
    assert table.upsert(rows).warnings == ()
    keyless = lakefmt.create_table("memory://append-keyless", data=rows, kind="append")
    assert keyless.append(rows).warnings == ()
