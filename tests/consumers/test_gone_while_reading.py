"""Commits that are cleaned away or undone while a stream reads them."""

from __future__ import annotations

import pytest

from lakefmt import lowlevel
from lakefmt.errors import DataExpired
from tests.consumers.stream_tables import append_table, ids, keyed_table, read_all, rows

BY_HAND: dict[str, object] = {"hoodie.clean.automatic": False}


def test_changes_that_are_cleaned_away_while_a_stream_reads_have_expired() -> None:
    for on_expired in ("fail", "earliest"):
        table = keyed_table(options=BY_HAND)
        written = [table.upsert(rows(1)) for _ in range(5)]
        with table.stream(follow=False, max_batches=0, on_expired=on_expired) as stream:
            assert next(stream).instant == written[0].instant
            table.clean(options={"hoodie.clean.commits.retained": 2})
            if on_expired == "fail":
                with pytest.raises(DataExpired, match="on_expired=") as caught:
                    next(stream)
                assert caught.value.oldest == written[4].instant
            else:
                assert [batch.instant for batch in stream] == [written[4].instant]


@pytest.mark.parametrize("undo", ["rollback", "restore"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_commit_that_is_undone_while_a_stream_reads_it_hands_out_nothing_more(undo: str, keyed: bool) -> None:
    table = (keyed_table if keyed else append_table)(options=BY_HAND)
    first = table.insert(rows(0))
    undone = table.insert([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}])
    stream = table.stream(poll_interval=0.01, max_batches=0)
    assert len(ids([next(stream), next(stream)])) == 2
    if undo == "rollback":
        table.rollback(undone.instant)
    else:
        table.restore(first.instant)
    table.insert(rows(3))
    assert ids([next(stream)]) == [3]
    stream.close()
    assert ids(read_all(table)) == [0, 3]


@pytest.mark.parametrize("archives", [False, True])
def test_rows_of_a_writer_that_is_slow_come_once_after_the_whole_table(archives: bool) -> None:
    """It began before the stream, and completed before the stream read the table."""
    table = append_table({**BY_HAND, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"})
    for number in range(3):
        table.insert(rows(number))
    slow = lowlevel.begin_write(table, "insert")
    statuses = [
        lowlevel.write_files(slow, assigned, batches) for assigned, batches in lowlevel.assign(slow, rows(9, p="b"))
    ]
    table.insert(rows(3))
    with table.stream("full", poll_interval=0.01) as stream:
        lowlevel.commit(slow, statuses)
        table.insert(rows(4))
        if archives:
            table.archive(options={"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4})
            assert table.client.load().timeline.first_active == slow.instant
        found = [number for _ in range(6) for number in ids([next(stream)])]  # each commit has a file of its own
    assert (sorted(found[:4]), found[4:]) == ([0, 1, 2, 3], [9, 4])
