"""The order of a stream: between commits, partitions and buckets; and that parallel reading keeps it."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.consumers.planning import read_lanes
from lakefmt._core.consumers.position import StreamPart, StreamStep, partition_order
from tests.consumers.stream_tables import append_table, ids, keyed_table, read_all
from tests.example_counts import examples

VALUES = {
    "int": (pa.int64(), [10, 9, None, -3, 100]),
    "date": (pa.date32(), [date(2026, 1, 10), date(1999, 12, 31), None, date(2026, 1, 9)]),
    "string": (pa.string(), ["b", "a", None, "B", "aa"]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_partitions_by_value_or_by_creation(kind: str) -> None:
    arrow, values = VALUES[kind]
    schema = pa.schema([("id", pa.int64()), ("p", arrow)])
    table = append_table(schema=schema)
    for n, value in enumerate(values):  # each partition is created by a commit of its own
        table.insert(pa.table({"id": [n], "p": [value]}, schema=schema))
    start = table.client.load().timeline.commits_by_completion[-1].order_time
    shuffled = random.Random(7).sample(range(len(values)), len(values))
    table.insert(pa.table({"id": [100 + n for n in shuffled], "p": [values[n] for n in shuffled]}, schema=schema))

    def order(**asked: object) -> list[int]:
        return [n - 100 for n in ids(read_all(table, start, **asked))]

    assert order() == list(range(len(values)))
    by_value = sorted(
        range(len(values)), key=lambda n: (values[n] is not None, values[n] if values[n] is not None else 0)
    )  # type: ignore[arg-type, return-value]
    assert order(plan_sort_partition=True) == by_value
    assert by_value != list(range(len(values)))


def test_created_earlier_is_by_completion_and_foreign_partitions_come_last() -> None:
    ranks = partition_order({"b": None, "a": None, "c": None}, {"b": "1", "c": "2"}, by_value=False)
    assert sorted(ranks, key=ranks.__getitem__) == ["b", "c", "a"]


@given(st.lists(st.tuples(st.none() | st.integers(), st.none() | st.integers()), unique=True))
def test_values_of_several_columns_compare_by_type_with_null_first(
    values: list[tuple[int | None, int | None]],
) -> None:
    paths = {f"x={a}/y={b}": (a, b) for a, b in values}
    ranks = partition_order(paths, {}, by_value=True)
    expected = sorted(paths, key=lambda path: [(v is not None, v or 0) for v in paths[path]])
    assert sorted(ranks, key=ranks.__getitem__) == expected


@pytest.mark.parametrize("order", ["commit", "bucket"])
def test_rows_of_one_bucket_come_in_order(order: str) -> None:
    table = keyed_table(index="bucket", partition_by=None, properties={"hoodie.bucket.index.num.buckets": "4"})
    for n in range(5):
        table.upsert(pa.table({"id": list(range(40)), "p": [str(n)] * 40}))
    seen = defaultdict(list)
    for batch in read_all(table, order=order, columns=["id", "p"]):
        seen[batch.bucket].append((batch.completion_time, set(batch.rows["p"].to_pylist())))
    assert set(seen) == {0, 1, 2, 3}
    for found in seen.values():
        assert [versions for _, versions in found] == [{str(n)} for n in range(5)]
        assert found == sorted(found, key=lambda each: each[0])


def test_across_commits_the_order_of_commits_rules() -> None:
    table = append_table()
    for n in range(30):
        table.insert(pa.table({"id": [n, n], "p": ["b" if n % 2 else "a", "c"]}))
    times = [batch.completion_time for batch in read_all(table, plan_sort_partition=True)]
    assert times == sorted(times)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6),
    st.integers(0, 4),
    st.integers(1, 5),
)
def test_reading_side_by_side_keeps_each_lane_and_bounds_what_is_ahead(
    counts: list[list[int]], ahead: int, threads: int
) -> None:
    step = StreamStep(None)  # type: ignore[arg-type]
    lanes = [
        [(step, StreamPart(f"{lane}-{number}", str(lane), str(count))) for number, count in enumerate(parts)]
        for lane, parts in enumerate(counts)
    ]
    lock, read, most = threading.Lock(), [0], [0]
    taken = 0

    def batches(_: StreamStep, part: StreamPart):  # type: ignore[no-untyped-def]
        for number in range(int(part.file_id)):
            with lock:
                read[0] += 1
                most[0] = max(most[0], read[0] - taken)
            yield pa.record_batch({"n": [number]})

    seen = defaultdict(list)
    for batch in read_lanes(lanes, batches, threads=threads, ahead=ahead):
        taken += batch.rows is not None
        seen[batch.part.partition].append((batch.part.key, batch.rows and batch.rows["n"][0].as_py(), batch.is_last))
    for lane, parts in enumerate(counts):
        expected = [
            (f"{lane}-{number}", n if count else None, n == max(count - 1, 0))
            for number, count in enumerate(parts)
            for n in range(max(count, 1))
        ]
        assert seen[str(lane)] == expected
    # Each thread holds one batch back to know the last one, and one that waits for room.
    assert most[0] <= ahead + 2 * threads + 2


def test_a_failure_in_a_thread_reaches_the_reader() -> None:
    def broken(_: StreamStep, part: StreamPart):  # type: ignore[no-untyped-def]
        yield pa.record_batch({"n": [1]})
        raise OSError("the disk is gone")

    lane = [(StreamStep(None), StreamPart("k", "", "f"))]  # type: ignore[arg-type]
    with pytest.raises(OSError, match="the disk is gone"):
        list(read_lanes([lane, lane], broken, threads=2, ahead=1))


def test_the_streamed_bag_is_the_written_bag_beside_writers_and_services() -> None:
    beside = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    table = append_table(beside, kind="append")
    writers, commits, rows_each = 3, 6, 5
    done = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            mine = lakefmt.Table(table.client)
            for commit in range(commits):
                first = (number * commits + commit) * rows_each
                mine.insert(
                    pa.table({"id": list(range(first, first + rows_each)), "p": ["ab"[commit % 2]] * rows_each})
                )
        except BaseException as error:
            failures.append(error)

    def serve() -> None:
        while not done.is_set():
            try:
                table.cluster()
                table.clean(options={"hoodie.clean.commits.retained": 20})
            except lakefmt.LakefmtError:
                pass  # a conflict with a writer: the next round

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    service = threading.Thread(target=serve)
    for thread in (*threads, service):
        thread.start()
    total = writers * commits * rows_each
    with table.stream(poll_interval=0.005) as stream:
        found: list[int] = []
        while len(found) < total and not failures:
            found += ids([next(stream)])
        for thread in threads:
            thread.join()
        done.set()
        service.join()
    assert not failures
    assert sorted(found) == list(range(total))
    # Not the stream once more: the service may have cleaned its first commits away.
    assert sorted(table.read()["id"].to_pylist()) == list(range(total))
