"""Consumers: progress that survives, in both modes; one reader for each id; what they have not read is kept."""

from __future__ import annotations

import collections
import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.consumers.stream import TableStream
from lakefmt._core.timeline.consumers import consumed_until
from lakefmt.errors import (
    ConsumerActive,
    CorruptFile,
    DataExpired,
    InvalidInputError,
    LeaseLost,
    ObjectNotFound,
    SnapshotExpired,
)
from lakefmt.testing.virtual_time import VirtualTime
from tests.consumers.stream_tables import append_table, bag, ids, keyed_table, on_virtual_time, read_all, rows
from tests.example_counts import examples

FILE = ".hoodie/.lakefmt/consumers/feed.json"
NUMBERS = itertools.count()


def two_files(table: lakefmt.Table, n: int) -> None:
    """A commit of two file groups: a position can be inside it."""
    table.insert([{"id": n, "p": "a"}, {"id": n + 100, "p": "b"}])


def die(stream: TableStream) -> None:
    """End a reader as a process that is killed does: nothing is stored, nothing is given back."""
    assert stream._progress is not None
    stream._progress.abandon()
    stream._progress = None
    stream.close()


def forget_process(table: lakefmt.Table) -> None:
    """The owner is of another machine: whether it lives is known from its file alone."""
    document = json.loads(table.client.store.read(FILE))
    table.client.store.put(FILE, json.dumps({**document, "process": "elsewhere"}).encode())


@pytest.mark.parametrize("order", ["commit", "bucket"])
def test_exactly_once_goes_on_after_the_last_commit_of_the_progress(order: str) -> None:
    table = append_table()
    for n in range(3):
        two_files(table, n)
    everything = bag(read_all(table))
    for taken, committed in itertools.product(range(7), range(7)):
        if committed > taken:
            continue
        with_id = {"consumer_id": "feed", "follow": False, "order": order}
        stream = table.stream(**with_id, ignore_progress=True, takeover=True)
        done = []
        for number, batch in enumerate(itertools.islice(stream, taken), 1):
            if number <= committed:
                done.append(batch)
                stream.commit()
        die(stream)  # after delivery, before the progress
        with table.stream(**with_id, takeover=True) as again:
            assert bag([*done, *again]) == everything, (taken, committed)


def test_at_least_once_repeats_only_the_commit_that_was_not_read_to_its_end() -> None:
    table = append_table()
    for n in range(3):
        two_files(table, n)
    for taken in range(1, 7):
        asked = {"consumer_id": "feed", "follow": False, "mode": "at_least_once", "max_batches": 0}
        stream = table.stream(**asked, ignore_progress=True, takeover=True)
        first = ids(itertools.islice(stream, taken))
        die(stream)
        with table.stream(**asked, takeover=True) as again:
            rest = ids(again)
        everything = ids(read_all(table))
        # The last batch may be half dealt with: its commit comes again, nothing before it does.
        assert first[: -1 - (taken - 1) % 2] + rest == everything, taken
        assert set(first) | set(rest) == set(everything)


def test_at_least_once_keeps_progress_without_commit() -> None:
    table = append_table()
    table.insert(rows(1))
    with table.stream(consumer_id="feed", mode="at_least_once", follow=False) as stream:
        assert ids(stream) == [1]
    table.insert(rows(2))
    with table.stream(consumer_id="feed", mode="at_least_once", follow=False) as stream:
        assert ids(stream) == [2]


def test_exactly_once_keeps_nothing_without_commit() -> None:
    table = append_table()
    table.insert(rows(1))
    for _ in range(2):
        with table.stream(consumer_id="feed", follow=False) as stream:
            assert ids(stream) == [1]


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.sampled_from(["insert", "take", "commit", "die", "cluster", "clean", "archive"]), max_size=14))
def test_whatever_happens_committed_rows_come_once_and_others_come_again(steps: list[str]) -> None:
    table = append_table({"hoodie.clean.automatic": False})
    kept = {"hoodie.clean.commits.retained": 1}
    written, done, pending = 0, [], []
    stream = table.stream(consumer_id="feed", follow=False)
    for step in [*steps, "die"]:
        if step == "insert":
            two_files(table, written)
            written += 1
        elif step == "take":
            pending += ids(itertools.islice(stream, 1))
        elif step == "commit":
            stream.commit()
            done, pending = done + pending, []
        elif step == "die":
            die(stream)
            pending = []
            stream = table.stream(consumer_id="feed", follow=False, takeover=True)
        elif step == "cluster":
            table.cluster()
        elif step == "clean":
            table.clean(options=kept)
        else:
            table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    rest = ids(stream)
    stream.commit()
    stream.close()
    assert sorted(done + rest) == sorted([*range(written), *range(100, 100 + written)])


def test_a_clean_and_an_archive_step_keep_what_a_consumer_has_not_read() -> None:
    table = append_table({"hoodie.clean.automatic": False})
    table.insert(rows(0))
    with table.stream(consumer_id="feed", follow=False) as stream:
        assert ids(stream) == [0]
        stream.commit()
    for n in range(1, 6):
        table.insert(rows(n))
    table.cluster()
    for n in range(6, 9):
        table.insert(rows(n))
    limits = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    table.clean(options={"hoodie.clean.commits.retained": 1})
    archived = table.archive(options=limits)
    assert "consumer has not read" in archived.plan.barrier or archived.plan.num_commits <= 1
    active = {i.time for i in table.client.load().timeline.commits}
    with table.stream(consumer_id="feed", follow=False) as stream:
        assert {batch.instant for batch in stream} <= active
    with table.stream(consumer_id="feed", follow=False) as stream:
        assert ids(stream) == list(range(1, 9))
        stream.commit()
    assert table.clean(options={"hoodie.clean.commits.retained": 1}).files_deleted > 0
    assert table.archive(options=limits).plan.num_commits > 0


def test_a_savepoint_keeps_what_a_cleaner_that_knows_no_consumers_would_remove() -> None:
    table = append_table({"hoodie.clean.automatic": False})
    table.insert(rows(0))
    with table.stream(consumer_id="feed", follow=False) as stream:
        assert ids(stream) == [0]
        stream.commit()
    table.insert(rows(1))
    table.tags.create("for-feed")
    table.insert(rows(2))
    table.cluster()
    store = table.client.store
    consumer = store.read(FILE)
    store.delete([FILE])  # what the cleaner of another engine knows of it
    for number in (3, 4):
        table.insert(rows(number))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    store.put(FILE, consumer)
    with table.stream(consumer_id="feed", follow=False, takeover=True) as stream:
        assert ids(itertools.islice(stream, 1)) == [1]


def expired_table() -> tuple[lakefmt.Table, str]:
    """Rows of the first commits are only in a clustered file any more; returns a time before them."""
    table = append_table({"hoodie.clean.automatic": False})
    first = table.insert(rows(0))
    for n in range(1, 4):
        table.insert(rows(n))
    table.cluster()
    table.insert(rows(4))
    table.insert(rows(5))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    assert first.completion_time is not None
    return table, first.completion_time


def test_rows_that_were_cleaned_away_are_an_error_that_names_the_oldest_instant() -> None:
    table, time = expired_table()
    stream = table.stream(time, follow=False)
    with pytest.raises(DataExpired, match="on_expired=") as caught:
        list(stream)
    instants = [i.time for i in table.client.load().timeline.commits]
    assert caught.value.oldest == instants[5]
    assert isinstance(caught.value, SnapshotExpired)
    with pytest.raises(DataExpired):
        next(stream)  # not a silent end


def test_a_reader_may_skip_or_begin_anew() -> None:
    table, time = expired_table()
    assert ids(read_all(table, time, on_expired="earliest")) == [4, 5]
    assert bag(read_all(table, time, on_expired="full")) == dict.fromkeys(range(6), 1)


def test_an_id_has_one_reader() -> None:
    table = append_table()
    table.insert(rows(1))
    first = table.stream(consumer_id="feed", follow=False)
    with pytest.raises(ConsumerActive, match="takeover=True"):
        table.stream(consumer_id="feed")
    next(first)
    second = table.stream(consumer_id="feed", follow=False, takeover=True)
    with pytest.raises(LeaseLost, match="'feed'"):
        first.commit()
    first.close()
    assert ids(second) == [1]
    second.commit()
    second.close()
    table.stream(consumer_id="feed", follow=False).close()


def test_a_silent_owner_elsewhere_has_ended_after_a_minute() -> None:
    time = VirtualTime()
    table = on_virtual_time(append_table(), time)
    die(table.stream(consumer_id="feed"))
    forget_process(table)
    time.sleep(59)
    with pytest.raises(ConsumerActive):
        table.stream(consumer_id="feed")
    time.sleep(2)
    stream = table.stream(consumer_id="feed")
    forget_process(table)
    time.sleep(3600)  # it renews its claim as long as it lives
    with pytest.raises(ConsumerActive):
        table.stream(consumer_id="feed")
    stream.close()


def test_a_consumer_expires_after_seven_days_without_a_sign_and_warns_at_half_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = append_table()
    table.insert(rows(1))
    with table.stream(consumer_id="feed", follow=False) as stream:
        list(stream)
        stream.commit()
    now = datetime.now(UTC)
    (needed,) = consumed_until(table.client.store, now)
    assert needed == table.consumers.list()[0].next_start
    assert consumed_until(table.client.store, now + timedelta(days=6)) == {needed}
    assert "last heard of" in caplog.text
    assert consumed_until(table.client.store, now + timedelta(days=7, minutes=1)) == frozenset()


def test_consumers_are_listed_reset_and_deleted() -> None:
    table = append_table()
    for n in range(3):
        table.insert(rows(n))
    table.cluster()
    with table.stream(consumer_id="feed", follow=False) as stream:
        next(stream)
        stream.commit()
        (shown,) = table.consumers.list()
        assert (shown.is_active, shown.lag.instants, shown.lag.num_bytes > 0) == (True, 2, True)
        assert stream.lag().instants == 2
        with pytest.raises(ConsumerActive):
            table.consumers.reset("feed")
        with pytest.raises(ConsumerActive):
            table.consumers.delete("feed")
    table.consumers.reset("feed", to="latest")
    assert [(c.id, c.shard, c.lag.instants, c.is_active) for c in table.consumers.list()] == [("feed", None, 0, False)]
    table.consumers.reset("feed", to="earliest")
    with table.stream(consumer_id="feed", follow=False) as stream:
        assert ids(stream) == [0, 1, 2]
    table.consumers.reset("other", shard=(0, 2))
    assert "other shard 0 of 2: idle" in str(table.consumers.list()[1])
    assert table.consumers.delete("*", exclude="o*") == ["feed"]
    assert table.consumers.delete("other") == ["other"]
    with pytest.raises(ObjectNotFound, match="no consumer 'feed'"):
        table.consumers.delete("feed")


def test_each_shard_has_its_own_progress() -> None:
    table = append_table()
    for n in range(12):
        table.insert(rows(n))
    parts = []
    for i in range(2):
        with table.stream(consumer_id="feed", shard=(i, 2), follow=False) as stream:
            parts += ids(stream)
            stream.commit()
    assert sorted(parts) == list(range(12))
    assert [c.shard for c in table.consumers.list()] == [(0, 2), (1, 2)]
    for i in range(2):
        with table.stream(consumer_id="feed", shard=(i, 2), follow=False) as stream:
            assert ids(stream) == []


def test_a_position_inside_a_commit_is_of_its_filter() -> None:
    table = append_table()
    two_files(table, 1)
    with table.stream(consumer_id="feed", follow=False, filter="id > 0") as stream:
        next(stream)
        stream.commit()
    with pytest.raises(InvalidInputError, match="another filter"):
        table.stream(consumer_id="feed", follow=False, filter="id > 50")


def test_commit_needs_a_consumer() -> None:
    with append_table().stream() as stream, pytest.raises(InvalidInputError, match="consumer_id="):
        stream.commit()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"next_start": "x"}', b'{"next_start": "1", "files": {"a": -2}}']
)
def test_a_damaged_file_is_an_error(content: bytes) -> None:
    table = append_table()
    table.client.store.put(FILE, content)
    with pytest.raises(CorruptFile, match=r"feed\.json"):
        table.stream(consumer_id="feed")
    with pytest.raises(CorruptFile, match=r"feed\.json"):
        table.consumers.list()


#: What is done with a table of version 6 before its upgrade: commits of two file groups, one that begins before the next one and
#: ends behind it, a reader that takes so many batches, and an archive.
BEFORE_UPGRADES = st.one_of(st.sampled_from(["commit", "slow", "archive"]), st.integers(0, 4))


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.sampled_from(["cow", "mor"]),
    st.booleans(),
    st.sampled_from([8, 9]),
    st.lists(BEFORE_UPGRADES, min_size=3, max_size=7),
)
@example("cow", True, 8, ["commit", "commit", 4])
@example("mor", True, 9, ["slow", "commit", 1, "commit"])
@example("cow", False, 9, ["commit", "slow", 3, "commit", 2, "archive"])
def test_an_upgrade_repeats_and_leaves_out_nothing(
    table_type: str, keyed: bool, version: int, acts: list[str | int]
) -> None:
    options = {
        "lakefmt.durability": "none",
        "hoodie.clean.automatic": False,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.parquet.small.file.limit": 0,
    }
    how = {"record_key": "id"} if keyed else {}
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    url = f"memory://upgraded-consumer-{next(NUMBERS)}"
    table = lakefmt.create_table(
        url, schema=schema, partition_by="p", table_type=table_type, table_version=6, options=options, **how
    )
    seen = collections.Counter[str]()

    def write(name: str, places: str) -> pa.Table:
        return pa.table({"id": [f"{name}-{place}" for place in places], "p": list(places)}, schema=schema)

    def read(batches: int | None) -> None:
        with lakefmt.open_table(url, options=options).stream(follow=False, consumer_id="feed") as stream:
            for batch in itertools.islice(stream, batches):
                seen.update(batch.rows["id"].to_pylist())
            stream.commit()

    slow: tuple[Any, list[Any]] | None = None
    for number, act in enumerate([*acts, "commit"]):
        if isinstance(act, int):
            read(act)
        elif act == "archive":
            table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.clean.commits.retained": 1})
        elif act == "slow" and slow is None:
            begun = lowlevel.begin_write(table, "upsert" if keyed else "insert")
            work = lowlevel.assign(begun, write(f"slow{number}", "s"))
            slow = begun, [lowlevel.write_files(begun, each, rows) for each, rows in work]
        elif act == "commit":
            (table.upsert if keyed else table.insert)(write(f"fast{number}", "ab"))
            if slow is not None:
                lowlevel.commit(*slow)
                slow = None
    table.upgrade(version)
    table = lakefmt.open_table(url, options=options)
    read(1)
    (table.upsert if keyed else table.insert)(write("last", "abs"))
    read(None)
    read(None)
    assert seen == collections.Counter(table.read()["id"].to_pylist())


@pytest.mark.parametrize("keyed", [False, True])
def test_an_upgrade_that_found_another_order_of_completion_repeats_and_leaves_out_nothing(keyed: bool) -> None:
    """As Hudi's upgrade may: it takes the times at which files were modified."""
    made = keyed_table if keyed else append_table
    table = made(table_version=6)
    write = table.upsert if keyed else table.insert
    for n in range(4):
        write(rows(n, p=f"{n}"))
    with table.stream(follow=False, consumer_id="feed") as stream:
        first = ids(itertools.islice(stream, 2))
        stream.commit()
    table.upgrade(8)
    store, commits = table.client.store, table.client.load().timeline.commits
    late = commits[0].file_name.replace(commits[0].order_time, f"{int(commits[-1].order_time) + 1}")
    store.put(f".hoodie/timeline/{late}", store.read(f".hoodie/timeline/{commits[0].file_name}"))
    store.delete([f".hoodie/timeline/{commits[0].file_name}"])
    table = lakefmt.open_table(store.url, options=table.client.options)
    assert ids(table.stream(follow=False)) == [1, 2, 3, 0]
    with table.stream(follow=False, consumer_id="feed") as stream:
        assert [*first, *ids(stream)] == [0, 1, 2, 3]
        stream.commit()
    with table.stream(follow=False, consumer_id="feed") as stream:
        assert ids(stream) == []


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("start", ["latest", "moment", "reset", "offset", "day"])
def test_a_consumer_that_had_read_nothing_before_an_upgrade_begins_where_it_would_have_begun(
    keyed: bool, start: str
) -> None:
    made = keyed_table if keyed else append_table
    table = made(table_version=6)
    write = table.upsert if keyed else table.insert
    results = [write(rows(n)) for n in range(3)]
    moment = {"moment": results[-1].instant, "day": f"{int(results[-1].instant[:8]) + 1}"}.get(start, "latest")
    place: Any = moment
    if start == "reset":
        table.consumers.reset("feed", to="latest")
    elif start == "offset":
        with table.stream("latest", follow=False) as stream:
            place = {"offset": stream.position}
    else:
        table.stream(moment, follow=False, consumer_id="feed").close()
    table.upgrade(8)
    table = lakefmt.open_table(table.client.store.url, options=table.client.options)
    (table.upsert if keyed else table.insert)(rows(3))
    how = {"start": place} if start == "offset" else {"consumer_id": "feed"}
    with table.stream(follow=False, **how) as stream:
        assert ids(stream) == ([] if start == "day" else [3])
