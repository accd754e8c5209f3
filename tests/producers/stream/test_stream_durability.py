"""What survives: crashes at every effect, lost answers, two openings of one writer, a second machine."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream.options import ErrorTypeHandler, FlushMode, RetryStatus, retry_status_of
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.segments.codec import (
    STREAMS,
    SegmentPosition,
    data_name,
    header_name,
    list_headers,
    list_positions,
    list_streams,
    read_segments,
)
from lakefmt._core.storage import ObjectStore
from lakefmt._core.write.assign import MOST_SMALL_FILES
from lakefmt.errors import (
    CommitFailed,
    CorruptFile,
    DuplicateKey,
    FlushFailed,
    KeyNotFound,
    LakefmtError,
    StorageError,
    StreamUnavailable,
    TableNotFound,
)
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.store_wrapper import Effect, SimulatedCrash
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, fail_at
from lakefmt.testing.virtual_time import VirtualTime
from tests.example_counts import in_turn
from tests.producers.stream.stream_kit import (
    attempts,
    copied,
    durable,
    kill,
    make,
    refusing,
    rows_of,
    table_over,
)

SYNC = FlushMode.AUTO_FLUSH_SYNC
QUICK = {"flush_mode": SYNC, "flush_interval": 0, "commit_interval": 0, "request_failed_retry_interval_ms": 10}


class Program:
    """A program that sends numbers from its last committed offset on, two at a time, and notes what was confirmed."""

    def __init__(self, store: ObjectStore, keyed: bool, last: int = 10) -> None:
        self.store, self.keyed, self.last = store, keyed, last
        self.confirmed = 0

    def run(self) -> None:
        table = table_over(self.store, VirtualTime(), {"hoodie.client.heartbeat.tolerable.misses": 0})
        stream = table.open_stream(writer_id="w", **{**QUICK, "commit_interval": 60_000})
        try:
            self.send(stream)
        except BaseException:
            kill(stream)
            raise

    def send(self, stream: Stream) -> None:
        done = stream.last_committed
        number = 0 if done is None else done.offset
        self.confirmed = max(self.confirmed, number)
        while number < self.last:
            rows = [{"v": n, "s": "x"} | ({"id": f"k{n}"} if self.keyed else {}) for n in range(number, number + 2)]
            stream.extend(rows)
            number += 2
            stream.mark(number)
            stream.flush()
            self.confirmed = number
            if number == 6:
                stream.commit()
        stream.close()


@pytest.mark.slow
@pytest.mark.parametrize(("keyed", "files"), [(False, 0), (True, 0), (True, MOST_SMALL_FILES)])
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_a_crash_at_any_effect_loses_nothing_and_doubles_nothing(keyed: bool, files: int, mode: FaultMode) -> None:
    """Also where small files are merged after a commit, because the table has as many as it is to have."""
    made = make(keyed)
    for number in range(files):
        table_over(made).insert([{"id": f"old{number}", "v": number - files, "s": "x"}])
    counted = FaultStore(copied(made))
    Program(counted, keyed).run()
    assert len(table_over(counted).file_groups()) <= max(2, files - 2), "the small files were merged"
    expected = list(range(-files, 10))
    for number in in_turn(range(1, len(counted.effects) + 1), 4):
        store = copied(made)
        faulty = FaultStore(store, fail_at(number, mode))
        program = Program(faulty, keyed)
        with contextlib.suppress(SimulatedCrash):
            program.run()
        story = f"{mode.value} effect {number}: {counted.effects[number - 1]}"
        seen = sorted(table_over(store).read(include_uncommitted=True)["v"].to_pylist())
        assert seen == expected[: len(seen)], story
        assert len(seen) >= files + program.confirmed, story
        again = Program(store, keyed)
        again.run()
        table = table_over(store)
        assert sorted(table.read()["v"].to_pylist()) == expected, story
        assert durable(store) == 0, story
        table.insert([{"v": 99, "s": "x"} | ({"id": "k99"} if keyed else {})])  # the next write removes traces
        check_invariants(table)
        check_no_orphans(table)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST, FaultMode.BEFORE, FaultMode.AFTER])
def test_a_lost_answer_at_any_effect_writes_no_row_twice(mode: FaultMode) -> None:
    made = make(keyed=False)
    counted = FaultStore(copied(made))
    Program(counted, keyed=False).run()
    for number in in_turn(range(1, len(counted.effects) + 1), 4):
        store = copied(made)
        faulty = FaultStore(store, fail_at(number, mode, crash=False))
        with contextlib.suppress(LakefmtError):
            Program(faulty, keyed=False).run()
        Program(store, keyed=False).run()
        story = f"{mode.value} effect {number}: {counted.effects[number - 1]}"
        assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(10)), story


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_recovery_may_die_at_any_effect_too(keyed: bool) -> None:
    made = make(keyed)
    crashed = FaultStore(made)
    table = table_over(crashed, VirtualTime())
    stream = table.open_stream(**{**QUICK, "commit_interval": 60_000, "lease_interval_ms": 1})
    stream.extend([{"v": n} | ({"id": f"k{n}"} if keyed else {}) for n in range(5)])
    stream.flush()
    kill(stream)

    def recover(store: ObjectStore) -> None:
        clock = VirtualTime()
        clock.now = 3600.0
        table_over(store, clock, {"hoodie.client.heartbeat.tolerable.misses": 0}).recover_streams()

    counted = FaultStore(copied(made))
    recover(counted)
    for number in in_turn(range(1, len(counted.effects) + 1), 4):
        for mode in (FaultMode.BEFORE, FaultMode.AFTER):
            store = copied(made)
            with contextlib.suppress(SimulatedCrash):
                recover(FaultStore(store, fail_at(number, mode)))
            story = f"{mode.value} effect {number}: {counted.effects[number - 1]}"
            assert sorted(table_over(store).read(include_uncommitted=True)["v"].to_pylist()) == [0, 1, 2, 3, 4], story
            recover(store)
            assert sorted(table_over(store).read()["v"].to_pylist()) == [0, 1, 2, 3, 4], story
            assert list_streams(store) == [] or durable(store) == 0, story


def test_the_header_comes_last_and_rows_without_one_are_nobodys() -> None:
    store = make(keyed=False)
    faulty = FaultStore(store)
    stream = table_over(faulty).open_stream(writer_id="w", **{**QUICK, "commit_interval": 60_000})
    stream.insert({"v": 1})
    stream.flush()
    names = [effect.name for effect in faulty.effects if effect.name.startswith(f"{STREAMS}/w/0")]
    assert names == [data_name("w", SegmentPosition(1, 1)), header_name("w", SegmentPosition(1, 1))]
    store.put(data_name("w", SegmentPosition(1, 2)), b"torn")
    assert table_over(store).read(include_uncommitted=True).num_rows == 1
    stream.close()
    with table_over(store).open_stream(writer_id="w", **QUICK):
        assert list_positions(store, "w") == ([], [])


def test_one_commit_a_minute() -> None:
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(flush_interval=1000, flush_mode=SYNC) as stream:
        for second in range(180):
            stream.insert({"v": second})
            clock.sleep(1.0)
        commits = stream.metrics()["commits"]
        assert 2 <= commits <= 3
        assert stream.metrics()["oldest_uncommitted_age_seconds"] <= 61
    assert len(table_over(store).timeline.timeline.commits) <= 4
    assert table_over(store).read().num_rows == 180


def test_interval_0_commits_every_flush_and_size_commits_earlier() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(**QUICK) as stream:
        for number in range(3):
            stream.insert({"v": number})
            stream.flush()
            assert table_over(store).read().num_rows == number + 1
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(commit_bytes=1, flush_mode=SYNC) as stream:
        stream.insert({"v": 1})
        stream.flush()
        clock.sleep(0.001)
        assert table_over(store).read().num_rows == 1


def test_uncommitted_rows_merge_by_the_table_rule_and_others_do_not_see_them() -> None:
    store = make(ordering="v")
    table = table_over(store)
    table.upsert(
        [{"id": "a", "v": 10, "s": "stored"}, {"id": "b", "v": 10, "s": "stored"}, {"id": "c", "v": 1, "s": "c"}]
    )
    start = table.timeline.timeline.latest_commit.completion
    with table.open_stream(**{**QUICK, "commit_interval": 60_000}) as stream:
        stream.upsert({"id": "a", "v": 5, "s": "late"})  # loses against the stored row
        stream.upsert({"id": "b", "v": 20, "s": "first"})
        stream.upsert({"id": "b", "v": 15, "s": "late"})  # loses against the row before
        stream.delete("c")
        stream.upsert({"id": "d", "v": 1, "s": "new"})
        stream.flush()
        expected = [
            {"id": "d", "v": 1, "s": "new"},
            {"id": "a", "v": 10, "s": "stored"},
            {"id": "b", "v": 20, "s": "first"},
        ]
        assert rows_of(table.read(include_uncommitted=True)) == expected
        assert table.read(["s"], "v > 12", include_uncommitted=True).to_pylist() == [{"s": "first"}]
        assert table.scan(["id"], "s = 'late'", include_uncommitted=True).read_all().num_rows == 0
        assert len(table.read()) == 3
        assert table.incremental(start).num_rows == 0
        assert table.read(query="read_optimized", include_uncommitted=True).num_rows == 3
    assert rows_of(table.read()) == expected
    assert table.incremental(start).num_rows == 2


@pytest.mark.parametrize("keyed", [False, True])
def test_other_reads_are_the_same_bytes(keyed: bool) -> None:
    store = make(keyed)
    table = table_over(store)
    table.insert([{"v": n, "s": "x"} | ({"id": f"k{n}"} if keyed else {}) for n in range(3)])

    def everything() -> Iterator[bytes]:
        for rows in (table.read(meta_columns=True), table.scan().read_all(), table.incremental("000")):
            yield _bytes(rows)

    before = list(everything())
    with table.open_stream(**{**QUICK, "commit_interval": 60_000}) as stream:
        stream.extend([{"v": 9} | ({"id": "k9"} if keyed else {})])
        stream.flush()
        assert list(everything()) == before
        assert table.read(include_uncommitted=True).num_rows == 4


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def test_services_do_not_touch_segments() -> None:
    store = make()
    table = table_over(store)
    with table.open_stream(**{**QUICK, "commit_interval": 60_000}) as stream:
        stream.upsert({"id": "u", "v": 1})
        stream.flush()
        for number in range(6):
            table.upsert([{"id": "a", "v": number, "s": "x"}])
        table.clean(options={"hoodie.clean.commits.retained": 1})
        table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
        assert table.check().is_clean
        assert durable(store) == 1
    assert table.read(filter="id = 'u'").num_rows == 1


# --- failures --------------------------------------------------------------------------------------------------------


def test_two_refusals_are_three_attempts_in_order() -> None:
    made = make(keyed=False)
    store, clock = refusing(made, 2), VirtualTime()
    with table_over(store, clock).open_stream(flush_mode=SYNC, mutation_buffer_lines_num=2, flush_interval=0) as stream:
        stream.extend([{"v": n} for n in range(4)])
        assert attempts(store) == 4  # three for the first, one for the second
        assert 12 <= clock.now <= 15  # 5 s, then 10 s, less up to a fifth
        assert stream.metrics()["retries"] == {"FAILED": 2}
    assert table_over(made).read()["v"].to_pylist() == [0, 1, 2, 3]


def test_refused_for_ever() -> None:
    made = make(keyed=False)
    store = refusing(made, 1000)
    stream = table_over(store, VirtualTime()).open_stream(**{**QUICK, "request_failed_retry_times": 2})
    stream.insert({"v": 1})
    with pytest.raises(FlushFailed, match="not durable") as caught:
        stream.flush()
    assert attempts(store) == 3
    assert isinstance(caught.value.__cause__, StorageError)
    chain: list[BaseException] = [caught.value]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(before)
    # the failure of the first attempt is at the end.
    assert [type(error) for error in chain] == [FlushFailed, StorageError, StorageError]
    with pytest.raises(FlushFailed):
        stream.insert({"v": 2})
    (failed,) = stream.failed_rows()
    assert failed.rows["v"].to_pylist() == [1]
    assert isinstance(failed.cause, StorageError)
    with pytest.raises(FlushFailed):  # it raises, and is closed all the same
        stream.close()
    assert stream.closed
    stream.close()
    assert table_over(made).read().num_rows == 0


def test_reopen_goes_on_without_the_failed_rows() -> None:
    made = make(keyed=False)
    store = refusing(made, 3)
    stream = table_over(store, VirtualTime()).open_stream(**{**QUICK, "request_failed_retry_times": 2})
    stream.insert({"v": 1})
    with pytest.raises(FlushFailed):
        stream.flush()
    (failed,) = stream.failed_rows()
    stream.reopen()
    stream.write_arrow(failed.rows.drop_columns(["_lakefmt_operator"]))
    stream.insert({"v": 2})
    stream.close()
    assert sorted(table_over(made).read()["v"].to_pylist()) == [1, 2]
    with table_over(refusing(make(keyed=False), 1000), VirtualTime()).open_stream(
        **{**QUICK, "request_failed_retry_times": 1}
    ) as stream:
        stream.insert({"v": 1})
        with pytest.raises(FlushFailed):
            stream.flush()
        stream.close(discard=True)


def test_a_status_that_is_not_listed_is_not_tried_again() -> None:
    store = refusing(make(keyed=False), 1000)
    stream = table_over(store, VirtualTime()).open_stream(
        **QUICK, request_failed_retry_status=frozenset({RetryStatus.THROTTLED})
    )
    stream.insert({"v": 1})
    with pytest.raises(FlushFailed):
        stream.flush()
    assert attempts(store) == 1
    stream.close(discard=True)


@pytest.mark.parametrize("throttled", [False, True])
def test_a_status_is_not_read_out_of_the_name_of_a_file(throttled: bool) -> None:
    """An id of random digits has 429 or 503 in it once in a hundred times."""
    error = StorageError(
        "cannot put 'streams/anonymous-42984503/slowdown.arrow'", transient=not throttled, throttled=throttled
    )
    assert retry_status_of(error) is (RetryStatus.THROTTLED if throttled else RetryStatus.FAILED)
    assert retry_status_of(pickle.loads(pickle.dumps(error))) is retry_status_of(error)
    assert retry_status_of(StorageError("cannot put '429'")) is None


def test_ignore_buries_rows_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    made = make(keyed=False)
    store = refusing(made, 1)
    more = {"error_type_handler": ErrorTypeHandler.IGNORE, "request_failed_retry_enable": False}
    with table_over(store).open_stream(writer_id="w", **QUICK, **more, dead_letter_path="letters") as stream:
        stream.insert({"v": 1})
        stream.flush()
        stream.insert({"v": 2})
        stream.flush()
        assert stream.metrics()["dead_letter_rows"] == 1
    (letter,) = (found for found in made.list(".hoodie/.lakefmt/dead-letters/letters"))
    with pa.ipc.open_stream(made.read(letter.name)) as reader:
        rows = reader.read_all()
    assert rows["v"].to_pylist() == [1]
    assert "simulated" in rows["_error"][0].as_py()
    assert table_over(made).read()["v"].to_pylist() == [2]
    with table_over(refusing(made, 1)).open_stream(**QUICK, **more) as stream:
        stream.insert({"v": 3})
        stream.flush()
    assert "1 rows were skipped" in caplog.text


def test_a_function_decides() -> None:
    made, answers = make(keyed=False), ["retry", "skip"]
    with table_over(refusing(made, 2)).open_stream(
        **QUICK, request_failed_retry_enable=False, error_type_handler=lambda batch, error: answers.pop(0)
    ) as stream:
        stream.insert({"v": 1})
        stream.flush()
        stream.insert({"v": 2})
        stream.flush()
    assert not answers
    assert table_over(made).read()["v"].to_pylist() == [2]


def test_a_dropped_table_is_an_error_of_flush() -> None:
    store = make(keyed=False)
    stream = table_over(store, VirtualTime()).open_stream(**QUICK)
    stream.insert({"v": 1})
    store.delete_tree(".hoodie")
    with pytest.raises(FlushFailed, match="are not durable") as caught:
        stream.flush()
    assert isinstance(caught.value.__cause__, TableNotFound)
    stream.close(discard=True)


# --- strict operators --------------------------------------------------------------------------------------------------


def test_strict_operators_fail_at_flush() -> None:
    store = make()
    table = table_over(store)
    table.upsert([{"id": "a", "v": 1, "s": "x"}])
    for operator, row, error in (
        ("insert", {"id": "a", "v": 2}, DuplicateKey),
        ("update", {"id": "z", "v": 2}, KeyNotFound),
        ("delete", {"id": "z"}, KeyNotFound),
    ):
        stream = table.open_stream(**QUICK)
        stream.extend([row], operator)
        with pytest.raises(FlushFailed) as caught:
            stream.flush()
        assert isinstance(caught.value.__cause__, error)
        stream.close(discard=True)
    with table.open_stream(**{**QUICK, "commit_interval": 60_000}) as stream:
        stream.insert({"id": "n", "v": 1})
        stream.flush()
        stream.extend([{"id": "n", "s": "set"}], "update")  # durable and uncommitted counts as there
        stream.extend([{"id": "a"}], "delete")
        stream.insert({"id": "a", "v": 7})
        stream.extend([{"id": "a", "v": 9}, {"id": "i", "v": 3}], "insert_ignore")
        stream.flush()
        expected = [{"id": "n", "v": 1, "s": "set"}, {"id": "i", "v": 3, "s": None}, {"id": "a", "v": 7, "s": None}]
        assert rows_of(table.read(include_uncommitted=True)) == expected
    assert rows_of(table.read()) == expected


# --- exactly once ------------------------------------------------------------------------------------------------------


def test_a_second_opening_fences_the_first() -> None:
    store = make(keyed=False)
    first = table_over(store).open_stream(writer_id="w", **{**QUICK, "commit_interval": 60_000})
    first.insert({"v": 1})
    first.mark({"at": 1})
    first.flush()
    second = table_over(store).open_stream(writer_id="w", **QUICK)
    assert second.last_committed.offset == {"at": 1}  # what the first had flushed was committed
    assert table_over(store).read()["v"].to_pylist() == [1]
    first.insert({"v": 2})
    with pytest.raises(FlushFailed) as caught:
        first.flush()
    assert isinstance(caught.value.__cause__, StreamUnavailable)
    first.close(discard=True)
    second.insert({"v": 3})
    second.close()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 3]
    with table_over(store).open_stream(writer_id="w", **QUICK) as third:
        assert third.last_committed.offset == {"at": 1}
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 3]


def test_a_segment_that_was_not_confirmed_is_not_committed() -> None:
    """The first owner is replaced between the header of a segment and its look for newer claims."""
    store = make(keyed=False)
    opened = []

    def plan(effect: object) -> None:
        name, kind = effect.name, effect.kind  # type: ignore[attr-defined]
        if name == header_name("w", SegmentPosition(1, 2)) and kind.startswith("put"):
            opened.append(table_over(store).open_stream(writer_id="w", **QUICK))

    first = table_over(FaultStore(store, plan)).open_stream(writer_id="w", **{**QUICK, "commit_interval": 60_000})
    first.insert({"v": 1})
    first.flush()
    first.insert({"v": 2})
    with pytest.raises(FlushFailed):
        first.flush()
    assert [header.sequence for header in list_headers(store, "w")] in ([2], [])
    assert table_over(store).read(include_uncommitted=True)["v"].to_pylist() == [1]
    first.close(discard=True)
    (second,) = opened
    second.insert({"v": 2})
    second.close()
    with table_over(store).open_stream(writer_id="w", **QUICK):
        pass
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2]


def test_a_segment_that_is_sealed_by_itself_ends_at_a_mark() -> None:
    store = make(keyed=False)
    stream = table_over(store).open_stream(
        writer_id="w", **{**QUICK, "commit_interval": 60_000}, mutation_buffer_lines_num=5
    )
    for number in range(12):
        stream.insert({"v": number})
        if number % 3 == 2:
            stream.mark(number + 1)
    headers = list_headers(store, "w")
    assert [(header.rows, header.offset) for header in headers] == [(3, 3), (3, 6), (3, 9)]
    kill(stream)
    with table_over(store).open_stream(writer_id="w", **QUICK) as again:
        offset = again.last_committed.offset
        assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(offset))
        again.extend({"v": number} for number in range(offset, 12))
    assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(12))


def test_what_was_sealed_behind_the_last_mark_is_sent_again_by_its_source() -> None:
    store = make(keyed=False)
    stream = table_over(store).open_stream(
        writer_id="w", **{**QUICK, "commit_interval": 60_000}, mutation_buffer_lines_num=2
    )
    stream.insert({"v": 0})
    stream.mark(1)
    stream.extend({"v": number} for number in range(1, 6))  # several buffers without a mark
    assert [header.tail for header in list_headers(store, "w")] == [False, True, True]
    assert stream._core.committer.commit(whole=False) is not None
    assert table_over(store).read()["v"].to_pylist() == [0]
    kill(stream)
    with table_over(store).open_stream(writer_id="w", **QUICK) as again:
        assert again.last_committed.offset == 1
        again.extend({"v": number} for number in range(1, 6))
    assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(6))


def marking(store: ObjectStore, writer: str | None) -> Stream:
    """Return a stream that has committed nothing: row 0, a mark, and rows 1 to 4, which it has sealed by itself."""
    how = {**QUICK, "commit_interval": 60_000}
    stream = table_over(store, VirtualTime()).open_stream(writer_id=writer, **how, mutation_buffer_lines_num=2)
    stream.upsert({"id": "k0", "v": 0})
    stream.mark(1)
    stream.extend({"id": f"k{number}", "v": number} for number in range(1, 5))
    return stream


def test_a_stream_that_takes_rows_again_keeps_what_it_sealed_behind_the_last_mark() -> None:
    store = make()
    stream = marking(store, "w")
    future = stream.apply_tracked("insert", {"id": "k0", "v": 9})
    with pytest.raises(FlushFailed):
        stream.flush()
    assert isinstance(future.exception(0), FlushFailed)
    (failed,) = stream.failed_rows()
    assert failed.rows["v"].to_pylist() == [9], "the source, which lives, may send this row again, and no other"
    stream.reopen()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [0]
    stream.upsert({"id": "k5", "v": 5})
    stream.mark(6)
    stream.close()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert (durable(store), stream.last_committed.offset) == (0, 6)  # type: ignore[union-attr]


def test_a_stream_that_took_rows_again_and_died_leaves_to_its_source_what_is_behind_the_mark() -> None:
    store = make()
    stream = marking(store, "w")
    stream.insert({"id": "k0", "v": 9})
    with pytest.raises(FlushFailed):
        stream.flush()
    stream.reopen()
    kill(stream)
    with table_over(store).open_stream(writer_id="w", **QUICK) as again:
        assert again.last_committed.offset == 1
        assert table_over(store).read()["v"].to_pylist() == [0]
    assert durable(store) == 0


def test_a_stream_that_is_left_by_an_exception_leaves_to_its_source_what_is_behind_the_mark() -> None:
    store = make(keyed=False)
    for attempt in range(2):
        with (
            contextlib.suppress(ZeroDivisionError),
            table_over(store).open_stream(writer_id="w", **QUICK, mutation_buffer_lines_num=2) as stream,
        ):
            done = stream.last_committed
            for number in range(0 if done is None else done.offset, 6):
                stream.insert({"v": number})
                if number in (1, 5):
                    stream.mark(number + 1)
                if number == 4 and attempt == 0:
                    raise ZeroDivisionError
    assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(6))


def test_marks_of_a_stream_without_a_name_leave_no_rows_to_a_source() -> None:
    """Nobody can ask such a stream how far it came: all that is durable is committed, whoever does it."""
    store = make()
    stream = marking(store, None)
    kill(stream)
    (found,) = table_over(store, later()).recover_streams()
    assert found.rows == 5
    assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(5))


def test_a_segment_of_which_the_stream_does_not_know_is_not_committed_beside_its_failed_rows() -> None:
    made = make(keyed=False)
    lost = [True]

    def plan(effect: Effect) -> Fault | None:
        is_header = (
            "/streams/" in effect.name and effect.name.endswith("00000001.json") and "/owners/" not in effect.name
        )
        if is_header and lost:
            lost.clear()
            return Fault(FaultMode.AFTER, crash=False)
        return None

    how = {**QUICK, "request_failed_retry_enable": False}
    stream = table_over(FaultStore(made, plan), VirtualTime()).open_stream(writer_id="w", **how)
    stream.insert({"v": 1})
    with pytest.raises(FlushFailed):
        stream.flush()
    assert not lost
    (failed,) = stream.failed_rows()
    stream.reopen()
    stream.extend({"v": row["v"]} for row in failed.rows.to_pylist())
    stream.close()
    assert table_over(made).read()["v"].to_pylist() == [1]


def test_a_stream_that_is_taken_back_commits_what_the_other_process_had_flushed() -> None:
    store = make(keyed=False)
    how = {**QUICK, "commit_interval": 60_000}
    first = table_over(store, VirtualTime()).open_stream(writer_id="w", **how)
    first.insert({"v": 1})
    first.flush()
    second = table_over(store, VirtualTime()).open_stream(writer_id="w", **how)
    second.insert({"v": 2})
    second.flush()
    first.insert({"v": 3})
    with pytest.raises(FlushFailed):
        first.flush()
    kill(second)
    first.reopen()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2]
    first.insert({"v": 3})
    first.close()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2, 3]


def later() -> VirtualTime:
    """Return a clock on which every claim of now has ended."""
    clock = VirtualTime()
    clock.now = 300_000_000.0
    return clock


def test_entries_survive_commits_of_others_and_the_archive() -> None:
    store = make(keyed=False)
    table = table_over(store)
    with table.open_stream(writer_id="w", **QUICK) as stream:
        stream.insert({"v": 1})
        stream.mark("here")
    for number in range(8):
        table.insert([{"v": number + 2, "s": "x"}])
    table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
    store.delete_tree(STREAMS)  # the table was copied without its private files
    with table_over(store).open_stream(writer_id="w", **QUICK) as stream:
        assert stream.last_committed.offset == "here"
        assert (stream.last_committed.epoch, stream.last_committed.sequence) == (1, 1)


# --- several processes, machines, damage --------------------------------------------------------------------------------


def test_two_streams_side_by_side() -> None:
    store = make()
    one, two = table_over(store).open_stream(**QUICK), table_over(store).open_stream(**QUICK)
    for number in range(10):
        one.upsert({"id": f"a{number}", "v": number})
        two.upsert({"id": f"b{number}", "v": 100 + number})
        if number % 3 == 0:
            one.flush()
            two.flush()
    one.close()
    two.close()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [*range(10), *range(100, 110)]
    assert list_streams(store) == []


def test_recovery_leaves_living_writers_alone() -> None:
    store, clock = make(keyed=False), VirtualTime()
    alive = table_over(store).open_stream(writer_id="alive", **{**QUICK, "commit_interval": 60_000})
    alive.insert({"v": 1})
    alive.flush()
    (found,) = table_over(store).recover_streams()
    assert found.left
    assert table_over(store).read().num_rows == 0
    clock.now = 10_000.0 + 300_000_000.0
    (found,) = table_over(store, clock).recover_streams()
    assert not found.left
    assert found.rows == 1
    assert table_over(store).read().num_rows == 1
    alive.close(discard=True)


def test_a_damaged_segment_is_an_error_and_not_a_missing_row() -> None:
    store = make(keyed=False)
    stream = table_over(store).open_stream(writer_id="w", **{**QUICK, "commit_interval": 60_000})
    stream.insert({"v": 1})
    stream.flush()
    (header,) = list_headers(store, "w")
    name = data_name("w", header.position)
    good = store.read(name)
    store.put(name, good[:-40] + bytes([good[-40] ^ 0xFF]) + good[-39:])
    with pytest.raises(CorruptFile, match="damaged"):
        read_segments(store, [header])
    with pytest.raises(CorruptFile):
        table_over(store).read(include_uncommitted=True)
    assert table_over(store).read().num_rows == 0
    with pytest.raises(CommitFailed) as failed:
        stream.commit()
    assert isinstance(failed.value.__cause__, CorruptFile)
    store.put(name, good)
    stream.close()
    assert table_over(store).read().num_rows == 1
