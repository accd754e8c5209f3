"""A stream leaves no row out without a word: at its start, beside a writer that cleans, in shards (laws)."""

from __future__ import annotations

import gc
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.consumers.position import shard_of
from lakefmt._core.timeline.consumers import CONSUMERS, consumed_until
from lakefmt.errors import DataExpired
from lakefmt.testing.virtual_time import VirtualTime
from tests.consumers.stream_tables import append_table, bag, ids, keyed_table, on_virtual_time, read_all, rows
from tests.example_counts import examples

#: Services of every kind follow commits, often.
BUSY: dict[str, object] = {
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
}
QUEUE = pa.schema([("k", pa.string()), ("id", pa.int64())])


def queue(buckets: int, partitioned: bool = False) -> lakefmt.Table:
    schema = pa.schema([*QUEUE, ("p", pa.string())]) if partitioned else QUEUE
    partition = "p" if partitioned else None
    return append_table(
        schema=schema, partition_by=partition, kind="append", order="per_bucket", bucket_key="k", buckets=buckets
    )


def queued(first: int, count: int, **more: str) -> pa.Table:
    numbers = range(first, first + count)
    named = {name: [value] * count for name, value in more.items()}
    return pa.table({"k": [f"k{n % 97}" for n in numbers], "id": list(numbers), **named})


def files_of(table: lakefmt.Table) -> list[str]:
    return [found.name for found in table.client.store.list(CONSUMERS)]


# --- the start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"kind": "append"}, {"kind": "append", "partition_by": None}])
@pytest.mark.parametrize("commits", [1, 3, 12, 40])
def test_earliest_hands_out_every_row_of_the_table_once(commits: int, asked: dict[str, Any]) -> None:
    table = append_table(BUSY, **asked)
    for number in range(commits):
        table.insert(rows(number, p="ab"[number % 2]))
    assert bag(read_all(table)) == dict.fromkeys(range(commits), 1)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_earliest_of_a_table_with_keys_ends_in_what_the_table_is(table_type: str) -> None:
    table = keyed_table(table_type=table_type, options=BUSY)
    for number in range(20):
        table.upsert(rows(number, number + 1, p="a"))
        if number % 3 == 2:
            table.delete([number - 1])
    state: dict[int, dict[str, Any]] = {}
    for batch in read_all(table):
        for row in batch.rows.to_pylist():
            if row["op"] == "d":
                del state[row["id"]]
            else:
                state[row["id"]] = row
    assert sorted(state) == sorted(table.read()["id"].to_pylist())


def test_earliest_goes_on_with_commits_behind_the_oldest_whole_state() -> None:
    table = append_table(BUSY)
    for number in range(40):
        table.insert(rows(number))
    seen = [sorted(batch.rows["id"].to_pylist()) for batch in read_all(table)]
    assert len(seen) < 40, "some commits were cleaned away"
    assert seen[-1] == [39]
    assert sorted(row for batch in seen for row in batch) == list(range(40))
    with table.stream(follow=False, consumer_id="feed", mode="at_least_once") as stream:
        assert sorted(ids(stream)) == list(range(40))
    table.insert(rows(40))
    with table.stream(follow=False, consumer_id="feed", mode="at_least_once") as stream:
        assert ids(stream) == [40]


def test_a_stream_that_ends_before_what_was_cleaned_away_says_so() -> None:
    table = append_table(BUSY)
    ends = [table.insert(rows(number)).completion_time for number in range(40)]
    assert ends[2] is not None
    with table.stream(end=ends[2]) as stream, pytest.raises(DataExpired, match="oldest state"):
        next(stream)


# --- beside a writer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
def test_a_stream_that_runs_holds_what_it_has_not_read(keyed: bool) -> None:
    table, time = (keyed_table if keyed else append_table)(options=BUSY), VirtualTime()
    reading = on_virtual_time(table, time)
    with reading.stream(poll_interval=1.0) as stream:
        table.upsert(rows(0)) if keyed else table.insert(rows(0))
        found = ids([next(stream)])
        for number in range(1, 30):
            table.upsert(rows(number)) if keyed else table.insert(rows(number))
        while len(found) < 30:
            found += next(stream).rows["id"].to_pylist()
        assert found == list(range(30))
        assert len(files_of(table)) == 1
    assert not files_of(table), "it holds nothing when it is closed"


def test_a_stream_tells_how_far_it_has_come_and_holds_no_more_than_that() -> None:
    time = VirtualTime()
    table = on_virtual_time(append_table(), time)
    for number in range(3):
        table.insert(rows(number))
    with table.stream(poll_interval=1.0) as stream:
        assert consumed_until(table.client.store, table.client.clock.now()) == {"000"}
        next(stream)
        next(stream)
        time.sleep(25.0)
        first = table.client.load().timeline.commits_by_completion[0]
        assert consumed_until(table.client.store, table.client.clock.now()) == {first.order_time}
        assert [consumer.mode for consumer in table.consumers.list()] == ["running"]


def test_what_a_stream_holds_ends_with_its_process_or_its_object() -> None:
    time = VirtualTime()
    table = on_virtual_time(append_table(), time)
    table.insert(rows(0))
    stream = table.stream()
    next(stream)
    now = table.client.clock.now()
    assert consumed_until(table.client.store, now + timedelta(minutes=9))
    assert not consumed_until(table.client.store, now + timedelta(minutes=11))
    del stream
    gc.collect()
    time.sleep(25.0)
    assert not files_of(table)


def test_what_a_dead_stream_has_left_is_removed_by_the_next_one() -> None:
    time = VirtualTime()
    table = on_virtual_time(append_table(), time)
    table.insert(rows(0))
    left = f"{CONSUMERS}/running-dead.json"
    old = (table.client.clock.now() - timedelta(hours=1)).isoformat()
    table.client.store.put(left, json.dumps({"next_start": "000", "updated": old, "mode": "running"}).encode())
    with table.stream() as stream:
        next(stream)
        assert left not in files_of(table)


# --- shards ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200), derandomize=True)
@given(st.integers(1, 64), st.integers(1, 16), st.text("ab/=1", max_size=5))
def test_buckets_of_a_partition_are_dealt_out_evenly(buckets: int, count: int, partition: str) -> None:
    dealt = Counter(shard_of(partition, bucket, "f-0", count) for bucket in range(buckets))
    assert max(dealt.values()) - min(dealt.get(number, 0) for number in range(count)) <= 1
    assert set(dealt) <= set(range(count))


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("buckets", "count"), [(4, 2), (4, 3), (8, 3), (2, 4)])
def test_shards_hand_out_every_row_once(buckets: int, count: int, partitioned: bool) -> None:
    table = queue(buckets, partitioned)
    for number in range(3):
        table.append(queued(number * 50, 50, **({"p": "ab"[number % 2]} if partitioned else {})))
    shards = [ids(read_all(table, shard=(number, count))) for number in range(count)]
    assert Counter(row for shard in shards for row in shard) == dict.fromkeys(range(150), 1)
    assert sum(bool(shard) for shard in shards) >= min(buckets, count)


def test_shards_with_progress_of_an_earlier_release_keep_their_buckets() -> None:
    """One of two shards had stored its progress when buckets were dealt out by a checksum."""
    table, seen = queue(4), Counter[int]()
    table.append(queued(0, 100))
    with table.stream(follow=False, shard=(0, 2), consumer_id="feed") as stream:
        stream.commit()
    name = f"{CONSUMERS}/feed@0-of-2.json"
    document = json.loads(table.client.store.read(name))
    assert document.pop("in_turn") is True
    table.client.store.put(name, json.dumps(document).encode())
    for number in range(2):
        with table.stream(follow=False, shard=(number, 2), consumer_id="feed") as stream:
            seen.update(ids(stream))
            position = stream.position
        assert "in_turn" not in position
    assert seen == dict.fromkeys(range(100), 1)
    parts = {bucket: shard_of("", bucket, "", 2, in_turn=False) for bucket in range(4)}
    with table.stream({"offset": {"v": 1, "next_start": "000"}}, follow=False, shard=(0, 2)) as stream:
        assert {parts[batch.bucket] for batch in stream if batch.bucket is not None} <= {0}
