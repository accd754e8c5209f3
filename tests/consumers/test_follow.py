"""A stream hands out the rows of every commit once, in the order of completion, until it is told to end."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.consumers.planning import CommitFinder
from lakefmt.errors import InvalidInputError, StorageError
from lakefmt.testing.virtual_time import VirtualTime
from tests.consumers.stream_tables import append_table, bag, ids, keyed_table, on_virtual_time, read_all, rows


def test_ap_35_a_bounded_stream_gives_what_was_written() -> None:
    table = append_table()
    for n in range(3):
        table.insert(rows(n, n + 10))
    batches = read_all(table)
    assert ids(batches) == [0, 10, 1, 11, 2, 12]
    assert [batch.partition for batch in batches] == ["p=a"] * 3
    assert [batch.instant for batch in batches] == [i.time for i in table.client.load().timeline.commits]
    assert all(batch.completion_time > batch.instant for batch in batches)
    assert {batch.watermark for batch in batches} == {None}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_ap_9_no_row_comes_twice_beside_compaction_and_clustering(table_type: str, version: int) -> None:
    table = append_table(table_type=table_type, table_version=version)
    for n in range(4):
        table.insert(rows(n))
    table.cluster()
    table.insert(rows(9))
    table.clean(options={"hoodie.clean.commits.retained": 5})
    assert bag(read_all(table)) == dict.fromkeys([0, 1, 2, 3, 9], 1)


def test_ap_9_overwrites_come_only_on_request() -> None:
    table = append_table()
    table.insert(rows(1))
    table.insert_overwrite(rows(2))
    assert ids(read_all(table)) == [1]
    assert ids(read_all(table, streaming_read_overwrite=True)) == [1, 2]


@pytest.mark.parametrize("version", [6, 8])
def test_ap_3_a_slow_writer_that_began_early_is_not_skipped(version: int) -> None:
    beside = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    table = append_table(beside, table_version=version)
    slow = lowlevel.begin_write(table, "insert")
    work = lowlevel.assign(slow, rows(1))
    statuses = [lowlevel.write_files(slow, assignment, batches) for assignment, batches in work]
    table.insert(rows(2))
    with table.stream(poll_interval=0.01) as stream:
        if version == 8:
            assert ids([next(stream)]) == [2]
        # In version 6 nothing tells when a commit completed: those after a pending one wait for it.
        lowlevel.commit(slow, statuses)
        assert ids(itertools.islice(stream, 1 if version == 8 else 2)) == ([1] if version == 8 else [1, 2])


def test_ap_35_starts() -> None:
    table = append_table()
    results = [table.insert(rows(n)) for n in range(3)]
    after_first = results[0].completion_time
    assert ids(read_all(table, after_first)) == [1, 2]
    assert ids(read_all(table, "latest")) == []
    assert sorted(ids(read_all(table, "full"))) == [0, 1, 2]
    assert ids(read_all(table, "earliest", end=after_first)) == [0]
    with table.stream("latest", poll_interval=0.01) as stream:
        table.insert(rows(7))
        assert ids([next(stream)]) == [7]


def test_ap_35_full_goes_on_with_new_commits() -> None:
    table = append_table()
    table.insert(rows(1))
    table.insert_overwrite(rows(2))
    with table.stream("full", poll_interval=0.01) as stream:
        assert ids([next(stream)]) == [2]
        table.insert(rows(3))
        assert ids([next(stream)]) == [3]


def test_ap_35_an_empty_table_is_an_empty_stream() -> None:
    table = append_table()
    assert read_all(table) == []
    assert read_all(table, "full") == []


def test_ap_35_columns_and_filter() -> None:
    table = append_table()
    table.insert(rows(1, 2, 3))
    table.insert(rows(4))
    batches = read_all(table, columns=["id"], filter="id > 2")
    assert [batch.rows.schema.names for batch in batches] == [["id"], ["id"]]
    assert ids(batches) == [3, 4]


def test_ap_35_row_kinds() -> None:
    table = append_table()
    table.insert(rows(1))
    assert read_all(table, include_row_kind=True)[0].rows.to_pylist() == [{"_row_kind": "+I", "id": 1, "p": "a"}]


def test_ap_35_keyed_tables_give_changes() -> None:
    table = lakefmt.create_table(
        "memory://streams/keyed-changes", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), record_key="id"
    )
    table.upsert(pa.table({"id": [1, 2], "v": [1, 1]}))
    table.upsert(pa.table({"id": [2, 3], "v": [2, 2]}))
    table.delete([1])
    found = [(row["op"], row["id"], row["v"]) for batch in read_all(table) for row in batch.rows.to_pylist()]
    assert found[:2] == [("i", 1, 1), ("i", 2, 1)]
    assert sorted(found[2:4]) == [("i", 3, 2), ("u", 2, 2)]
    assert found[4:] == [("d", 1, 1)]
    kinds = [
        (row["_row_kind"], row["id"], row["v"])
        for batch in read_all(table, include_row_kind=True)
        for row in batch.rows.to_pylist()
    ]
    assert sorted(kinds[2:5]) == [("+I", 3, 2), ("+U", 2, 2), ("-U", 2, 1)]
    assert kinds.index(("-U", 2, 1)) + 1 == kinds.index(("+U", 2, 2))


def test_ap_35_a_column_called_op_is_refused_before_it_is_hidden() -> None:
    table = append_table(
        schema=pa.schema([("id", pa.int64()), ("op", pa.string())]), record_key="id", partition_by=None
    )
    table.upsert(pa.table({"id": [1], "op": ["x"]}))
    with pytest.raises(InvalidInputError, match="a column 'op'"):
        read_all(table)
    assert read_all(table, columns=["id"])[0].rows.to_pylist() == [{"op": "i", "id": 1}]
    assert read_all(table, include_row_kind=True)[0].rows.to_pylist() == [{"_row_kind": "+I", "id": 1, "op": "x"}]


def test_ap_35_a_follower_on_a_virtual_clock_finds_a_commit_within_one_poll() -> None:
    table, time = append_table(), VirtualTime()
    watched = on_virtual_time(table, time)
    time.at(25.0, lambda: table.insert(rows(1)) and None)
    with watched.stream(poll_interval=10.0) as stream:
        assert ids([next(stream)]) == [1]
    assert 25.0 <= time.now <= 25.0 + 10.0 + 0.01


def test_ap_35_close_from_another_thread_ends_a_wait() -> None:
    table = append_table()
    stream = table.stream(poll_interval=3600.0)
    waiting, found = threading.Event(), []

    def read() -> None:
        waiting.set()
        found.append(next(stream, "closed"))

    thread = threading.Thread(target=read)
    thread.start()
    waiting.wait()
    stream.close()
    thread.join(30)
    assert found == ["closed"]
    stream.close()


def test_ap_35_async_iteration_and_cancellation_lose_no_batch() -> None:
    table = append_table()

    async def follow() -> list[int]:
        found: list[int] = []
        async with table.stream(poll_interval=0.01) as stream:
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(table.insert, rows(1, 2))
            await asyncio.to_thread(table.insert, rows(3))
            async for batch in stream:
                found += batch.rows["id"].to_pylist()
                if len(found) == 3:
                    break
        return found

    assert asyncio.run(follow()) == [1, 2, 3]


def test_ap_35_an_async_reader_reads_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table, find, fails = append_table(), CommitFinder.find, [True]
    table.insert(rows(1, 2))

    def failing(finder: CommitFinder, *given: str | None) -> object:
        if fails.pop(0) if fails else False:
            raise StorageError("no answer", transient=True)
        return find(finder, *given)  # type: ignore[arg-type]

    async def main() -> list[int]:
        async with table.stream(follow=False) as stream:
            with pytest.raises(StorageError):
                await anext(stream)
            return [number async for batch in stream for number in batch.rows["id"].to_pylist()]

    monkeypatch.setattr(CommitFinder, "find", failing)
    assert asyncio.run(main()) == [1, 2]


def test_ap_8_a_position_goes_on_where_the_stream_was() -> None:
    table = append_table()
    for n in range(3):
        table.insert(pa.concat_tables([rows(n, p="a"), rows(n + 10, p="b")]))
    for taken in range(7):
        with table.stream(follow=False) as stream:
            first = ids(itertools.islice(stream, taken))
            position = stream.position
        rest = ids(read_all(table, {"offset": position}))
        assert first + rest == ids(read_all(table)), taken


def test_ap_20_shards_share_the_rows() -> None:
    table = append_table()
    for n in range(20):
        table.insert(rows(n))
    shares = [bag(read_all(table, shard=(i, 3))) for i in range(3)]
    assert sum(len(share) for share in shares) == 20
    assert shares[0] + shares[1] + shares[2] == dict.fromkeys(range(20), 1)
    assert sum(bool(share) for share in shares) > 1


def test_ap_35_buckets_are_chosen_by_number_or_function() -> None:
    table = keyed_table(index="bucket", partition_by=None, properties={"hoodie.bucket.index.num.buckets": "4"})
    table.insert(rows(*range(40)))
    everything = read_all(table)
    assert {batch.bucket for batch in everything} == {0, 1, 2, 3}
    chosen = read_all(table, buckets=[1, 3])
    assert {batch.bucket for batch in chosen} == {1, 3}
    assert bag(read_all(table, buckets=lambda bucket: bucket in (0, 2))) + bag(chosen) == bag(everything)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"start": {"offset": {}}}, "no position"),
        ({"start": {"offset": {0: 5}}}, "no position"),
        ({"start": {"watermark": 1.5}}, "whole number"),
        ({"start": 7}, "start=7"),
        ({"end": {"offset": 1}}, "end="),
        ({"order": "partition"}, "order='partition'"),
        ({"mode": "never"}, "mode='never'"),
        ({"shard": (3, 3)}, "shard="),
        ({"buckets": "1"}, "buckets='1'"),
        ({"poll_interval": 0}, "poll_interval=0"),
        ({"max_batches": -1}, "max_batches=-1"),
        ({"consumer_id": "../x"}, "consumer id"),
        ({"columns": ["nope"]}, "no column 'nope'"),
        ({"on_expired": "hope"}, "on_expired"),
    ],
)
def test_ap_35_bad_arguments_are_told_at_once(asked: dict[str, object], message: str) -> None:
    table = append_table()
    table.insert(rows(1))
    with pytest.raises(InvalidInputError, match=message):
        table.stream(**asked)  # type: ignore[arg-type]
