"""Streams that begin, end and wait by watermarks."""

from __future__ import annotations

import itertools
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.consumers.position import StreamStep, cut_at_watermark, split_by_drift
from lakefmt._core.consumers.stream import Mark, WatermarkAlignment, is_held_back
from lakefmt._core.values import WriteOperation
from lakefmt.builders import BatchWriteBuilder
from lakefmt.errors import DataExpired
from lakefmt.testing.virtual_time import VirtualTime
from tests.consumers.stream_tables import append_table, ids, on_virtual_time, read_all, rows
from tests.example_counts import examples


def insert(table: lakefmt.Table, n: int, mark: int | None = None) -> None:
    """Commit a row; a commit of another engine has no entries, one of lakefmt repeats those before it."""
    if mark is None:
        table.insert(rows(n))
    else:
        table._write(WriteOperation.INSERT, rows(n), {}, entries=lambda view: {"lakefmt.watermark": str(mark)})


def table_with(marks: list[int | None]) -> lakefmt.Table:
    """A table with a commit of row n for each watermark; None: the commit says none."""
    table = append_table()
    for n, mark in enumerate(marks):
        insert(table, n, mark)
    return table


def test_a_bounded_stream_ends_before_the_first_commit_past_the_watermark() -> None:
    table = table_with([10, 20, 20, 30, 40])
    assert ids(read_all(table, end={"watermark": 20})) == [0, 1, 2]
    assert ids(read_all(table, end={"watermark": 20}, include_boundary=True)) == [0, 1, 2, 3]
    assert ids(read_all(table, end={"watermark": 5})) == []
    assert ids(read_all(table, end={"watermark": 19})) == [0]
    assert ids(read_all(table, end={"watermark": 40})) == [0, 1, 2, 3, 4]
    assert [batch.watermark for batch in read_all(table)] == [10, 20, 20, 30, 40]


def test_a_first_full_scan_is_always_handed_out() -> None:
    table = table_with([10, 50])
    assert sorted(ids(read_all(table, "full", end={"watermark": 20}))) == [0, 1]
    with table.stream("full", end={"watermark": 20}, poll_interval=3600.0) as stream:
        assert sorted(ids(stream)) == [0, 1]  # it ends: the snapshot is past the bound


def test_a_follower_ends_when_the_commit_past_the_watermark_comes() -> None:
    table, time = table_with([10]), VirtualTime()
    for at, mark in ((30.0, 15), (60.0, 21)):
        time.at(at, lambda mark=mark: insert(table, mark, mark))
    with on_virtual_time(table, time).stream(end={"watermark": 20}, poll_interval=10.0) as stream:
        assert ids(stream) == [0, 15]
    assert 60.0 <= time.now < 71.0


def test_a_stream_starts_at_the_first_commit_later_than_a_watermark() -> None:
    table = table_with([10, 20, 20, 30])
    assert ids(read_all(table, {"watermark": 20})) == [3]
    assert ids(read_all(table, {"watermark": 9})) == [0, 1, 2, 3]
    with table.stream({"watermark": 30}, poll_interval=0.01) as stream:
        insert(table, 8, 30)
        insert(table, 9, 31)
        assert ids([next(stream)]) == [9]


def test_a_start_by_watermark_passes_over_no_commit_that_was_cleaned_away() -> None:
    table = append_table({"hoodie.clean.automatic": False})
    for n in range(3):
        insert(table, n, 10 * (n + 1))
    table.cluster()
    for n in (3, 4):
        insert(table, n, 10 * (n + 1))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(DataExpired):
        read_all(table, {"watermark": 10})
    assert ids(read_all(table, {"watermark": 10}, on_expired="earliest")) == [3, 4]
    assert ids(read_all(table, {"watermark": 30})) == [3, 4]


def test_commits_without_a_watermark_have_the_one_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with([10])
    # As another engine commits: without lakefmt's entries.
    monkeypatch.setattr("lakefmt._core.write.context.add_entries", lambda table_at, metadata, *rest: metadata)
    insert(table, 1)
    first = table.client.load().timeline.commits[0].order_time
    assert [batch.watermark for batch in read_all(table)] == [10, 10]
    assert [batch.watermark for batch in read_all(table, first)] == [10]


def test_services_and_overwrites_keep_the_watermark() -> None:
    table = table_with([10, 12])
    table.cluster()
    table.insert_overwrite(rows(5))
    table.insert(rows(6))
    assert [batch.watermark for batch in read_all(table, streaming_read_overwrite=True)] == [10, 12, 12, 12]


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 9)), st.integers(-1, 10), st.booleans())
def test_the_rule_of_bounded_streams(increments: list[int], bound: int, boundary: bool) -> None:
    marks = list(itertools.accumulate(increments))
    steps = [StreamStep(None, watermark=mark) for mark in marks]  # type: ignore[arg-type]
    kept, ended = cut_at_watermark(steps, bound, include_boundary=boundary)
    within = [mark for mark in marks if mark <= bound]
    assert ended == (len(within) < len(marks))
    assert [step.watermark for step in kept] == within + marks[len(within) : len(within) + (boundary and ended)]


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 9)), st.integers(0, 20), st.integers(1, 5))
def test_commits_that_are_read_side_by_side_differ_by_no_more_than_the_drift(
    increments: list[int], drift: int, most: int
) -> None:
    marks = list(itertools.accumulate(increments))
    steps = [StreamStep(None, watermark=mark) for mark in marks]  # type: ignore[arg-type]
    groups = split_by_drift(steps, drift, most)
    assert [step for group in groups for step in group] == steps
    assert all(group[-1].watermark - group[0].watermark <= drift for group in groups)  # type: ignore[operator]
    assert all(1 <= len(group) <= most for group in groups)


@pytest.mark.parametrize(
    ("others", "held"),
    [
        ({"b": Mark(10, 9.0)}, True),
        ({"b": Mark(50, 9.0)}, False),
        ({"b": Mark(10, 1.0)}, False),  # idle
        ({"b": Mark(None, 9.0)}, True),
        ({"b": Mark(10, 1.0), "c": Mark(10, 9.5)}, True),
        ({}, False),
    ],
)
def test_who_is_held_back(others: dict[str, Mark], held: bool) -> None:
    assert is_held_back("a", {"a": Mark(100, 9.0), **others}, 50, 10.0, 5.0) is held


def test_a_stream_that_is_ahead_waits_for_the_others() -> None:
    ahead, behind = table_with([0, 100, 200]), table_with([0, 10, 200])
    group = WatermarkAlignment(max_drift=50)
    fast = ahead.stream(follow=False, alignment=group, poll_interval=0.002)
    slow = behind.stream(follow=False, alignment=group, poll_interval=0.002)
    seen: list[tuple[str, int | None]] = []

    def read_fast() -> None:
        for batch in fast:
            seen.append(("fast", batch.watermark))
        fast.close()

    thread = threading.Thread(target=read_fast)
    thread.start()
    for batch in slow:
        seen.append(("slow", batch.watermark))
    slow.close()
    thread.join(60)
    assert sorted(seen) == sorted([("fast", 0), ("fast", 100), ("fast", 200), ("slow", 0), ("slow", 10), ("slow", 200)])
    # At 100 it is more than 50 ahead of 10, so its next rows came after the other stream had left 10.
    assert seen.index(("fast", 200)) > seen.index(("slow", 200))


def test_an_idle_stream_holds_no_other_back() -> None:
    time = VirtualTime()
    table = on_virtual_time(table_with([0, 1000]), time)
    group = WatermarkAlignment(max_drift=10, idle_timeout=30.0)
    idle = on_virtual_time(table_with([]), time).stream("latest", alignment=group)
    with table.stream(follow=False, alignment=group, poll_interval=5.0) as stream:
        assert ids(stream) == [0, 1]
    assert 30.0 <= time.now <= 41.0
    idle.close()


# --- event times -----------------------------------------------------------------------------------------------------

EVENTS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
SECOND = 1_000


def events(*seconds: int) -> pa.Table:
    times = pa.array([second * 1_000_000 for second in seconds], pa.int64()).cast(EVENTS.field("at").type)
    return pa.table({"id": pa.array(seconds, pa.int64()), "at": times}, schema=EVENTS)


def event_table(delay: str | None = "5000", **asked: object) -> lakefmt.Table:
    properties = {"lakefmt.event.time.column": "at"} | ({} if delay is None else {"lakefmt.allowed.delay": delay})
    return append_table(schema=EVENTS, partition_by=None, properties=properties, **asked)


def by_stream(table: lakefmt.Table, data: pa.Table) -> None:
    with table.open_stream() as stream:
        stream.write_arrow(data)


def by_builder(table: lakefmt.Table, data: pa.Table) -> None:
    builder = BatchWriteBuilder(table)
    write = builder.new_write()
    write.write_arrow(data)
    builder.new_commit().commit(write.prepare_commit())


DOORS = {
    "append": lambda table, data: table.append(data),
    "append of batches": lambda table, data: table.append(iter(data.to_batches(max_chunksize=1))),
    "insert": lambda table, data: table.insert(data),
    "bulk_insert": lambda table, data: table.bulk_insert(data),
    "upsert": lambda table, data: table.upsert(data),
    "open_stream": by_stream,
    "builder": by_builder,
}


def watermarks(table: lakefmt.Table) -> list[int | None]:
    return [batch.watermark for batch in read_all(table)]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["append", "queue", "keyed"])
def test_a_commit_promises_its_largest_event_time_less_the_delay(door: str, kind: str) -> None:
    if (door == "upsert" and kind != "keyed") or (
        door in ("append", "append of batches", "builder") and kind == "keyed"
    ):
        kind = "keyed" if door == "upsert" else "append"
    asked = {
        "append": {"kind": "append"},
        "queue": {"kind": "append", "order": "per_bucket", "bucket_key": "id", "buckets": 1},
        "keyed": {"record_key": "id"},
    }
    table = event_table(**asked[kind])
    DOORS[door](table, events(60, 70, 65))
    DOORS[door](table, events(30))  # late rows promise nothing new
    DOORS[door](table, events(90))
    promised = [65 * SECOND, 65 * SECOND, 85 * SECOND]
    assert sorted(set(watermarks(table))) == sorted(set(promised))
    assert [watermark for watermark, _ in itertools.groupby(watermarks(table))] == [65 * SECOND, 85 * SECOND]
    assert sorted(ids(read_all(table, end={"watermark": 65 * SECOND}))) == [30, 60, 65, 70]
    assert table.as_of(watermark=65 * SECOND).read().num_rows == 3


def test_what_a_writer_says_counts_more_than_event_times() -> None:
    table = event_table(kind="append")
    table.append(events(100), watermark=7)
    assert watermarks(table) == [7]


def test_overwrites_and_rows_without_an_event_time_keep_the_watermark() -> None:
    table = event_table(delay=None, kind="append")
    table.append(events(10))
    table.append(pa.table({"id": [1], "at": pa.nulls(1, EVENTS.field("at").type)}, schema=EVENTS))
    table.overwrite(events(50))
    assert [batch.watermark for batch in read_all(table, streaming_read_overwrite=True)] == [10 * SECOND] * 3
