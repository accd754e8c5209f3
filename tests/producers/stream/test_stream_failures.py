"""What a failure half-way leaves: segments of one buffer, futures of rows, workers and timers that have to go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream import core as committer_module
from lakefmt._core.producers.stream.options import ErrorTypeHandler, FlushMode
from lakefmt._core.segments.codec import list_streams
from lakefmt._core.storage import ObjectStore
from lakefmt.errors import DuplicateKey, FlushFailed, InvalidInputError, LakefmtError, StorageError
from lakefmt.testing.store_wrapper import Effect, SimulatedCrash
from lakefmt.testing.stores import Fault, FaultMode, FaultStore
from lakefmt.testing.virtual_time import VirtualTime
from tests.producers.stream.stream_kit import durable, is_segment, kill, make, refusing, table_over

MANUAL = {"flush_mode": FlushMode.MANUAL_FLUSH, "commit_interval": 60_000, "request_failed_retry_enable": False}
SYNC = {**MANUAL, "flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0}
#: A buffer of ten rows is several segments.
SMALL = {"grpc_max_message_length": 100, "mutation_buffer_space": 100}


def failing(store: ObjectStore, fails: Callable[[Effect], bool], *, crash: bool = False) -> FaultStore:
    return FaultStore(store, lambda effect: Fault(FaultMode.BEFORE, crash) if fails(effect) else None)


def second_segment() -> Callable[[Effect], bool]:
    seen: list[str] = []

    def fails(effect: Effect) -> bool:
        if not (is_segment(effect.name) and effect.kind.startswith("put")):
            return False
        seen.append(effect.name)
        return len(seen) == 2

    return fails


def stored(store: ObjectStore) -> list[int]:
    values: list[int] = table_over(store).read()["v"].to_pylist()
    return sorted(values)


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"v": pa.array(range(first, last), pa.int64()), "s": ["abcdefgh"] * (last - first)})


# --- one buffer, several segments ------------------------------------------------------------------------------------


def test_rows_of_a_segment_that_is_durable_are_not_lost_with_the_next_segment() -> None:
    store = make(keyed=False)
    stream = table_over(failing(store, second_segment()), VirtualTime()).open_stream(**MANUAL, **SMALL)
    stream.write_arrow(rows(0, 10))
    with pytest.raises(FlushFailed):
        stream.flush()
    failed = [value for batch in stream.failed_rows() for value in batch.rows["v"].to_pylist()]
    assert 0 < len(failed) < 10
    stream.reopen()
    stream.extend({"v": value} for value in failed)
    stream.close()
    assert stored(store) == list(range(10))


def test_a_buffer_that_is_marked_is_committed_with_its_offset_or_not_at_all() -> None:
    store = make(keyed=False)
    stream = table_over(failing(store, second_segment(), crash=True)).open_stream(writer_id="w", **MANUAL, **SMALL)
    stream.write_arrow(rows(0, 10))
    stream.mark(10)
    with pytest.raises(SimulatedCrash):
        stream.flush()
    kill(stream)
    assert durable(store) == 1
    with table_over(store).open_stream(writer_id="w", **MANUAL) as again:
        first = 0 if again.last_committed is None else again.last_committed.offset
        assert stored(store) == list(range(first))
        again.write_arrow(rows(first, 10))
        again.mark(10)
    assert stored(store) == list(range(10))


def test_a_buffer_of_several_segments_is_committed_with_its_offset() -> None:
    store = make(keyed=False)
    stream = table_over(store).open_stream(writer_id="w", **MANUAL, **SMALL)
    stream.write_arrow(rows(0, 10))
    stream.mark(10)
    stream.flush()
    assert durable(store) > 1
    assert table_over(store).read(include_uncommitted=True).num_rows == 10
    kill(stream)
    with table_over(store).open_stream(writer_id="w", **MANUAL) as again:
        assert again.last_committed.offset == 10
        assert stored(store) == list(range(10))


# --- futures -----------------------------------------------------------------------------------------------------------


def test_a_future_outlives_a_commit_that_failed() -> None:
    store, down = make(keyed=False), [False]
    fails = failing(store, lambda effect: down[0] and "/streams/" not in effect.name)
    with table_over(fails, VirtualTime()).open_stream(**SYNC) as stream:
        future = stream.apply_tracked("insert", {"v": 1})
        stream.flush()
        down[0] = True
        with pytest.raises(LakefmtError):
            stream.commit()
        assert not future.done()
        down[0] = False
        result = stream.commit()
        assert result is not None
        assert future.result(0).instant == result.instant


def test_a_future_that_its_caller_cancelled_stops_nobody() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(**SYNC) as stream:
        futures = [
            stream.apply_tracked("insert", {"v": n}, until) for n, until in enumerate(["durable", "committed"] * 2)
        ]
        assert futures[0].cancel()
        assert futures[1].cancel()
        assert stream.commit() is not None
        assert [future.result(0) is None for future in futures[2:]] == [True, False]
    assert stored(store) == [0, 1, 2, 3]


def test_a_timeout_of_an_awaited_row_stops_nobody() -> None:
    store = make(keyed=False)

    async def main() -> None:
        async with table_over(store).open_stream_async(flush_interval=0) as stream:
            awaited = await stream.apply_tracked({"v": 1}, "insert", "durable")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(awaited, 0.01)
            await stream.insert({"v": 2})

    asyncio.run(main())
    assert stored(store) == [1, 2]


def test_a_future_is_done_with_the_buffer_of_its_row() -> None:
    """A buffer that ends at a mark gives its other rows to the next one, where they have other numbers."""
    store = make(keyed=False)
    with table_over(store).open_stream(writer_id="w", **SYNC, mutation_buffer_lines_num=3) as stream:
        stream.insert({"v": 0})
        stream.mark(1)
        futures = [stream.apply_tracked("insert", {"v": n}, "durable") for n in (1, 2)]
        stream.mark(3)
        last = stream.apply_tracked("insert", {"v": 3}, "durable")
        assert table_over(store).read(include_uncommitted=True)["v"].to_pylist() == [0, 1, 2]
        assert [future.done() for future in (*futures, last)] == [True, True, False]


def test_a_future_of_a_row_that_was_skipped_has_its_failure() -> None:
    store = make(keyed=False)
    how = {**SYNC, "error_type_handler": ErrorTypeHandler.IGNORE, "dead_letter_path": "letters"}
    with table_over(refusing(store, 1)).open_stream(**how) as stream:
        futures = [stream.apply_tracked("insert", {"v": n}, until) for n, until in enumerate(["durable", "committed"])]
        stream.flush()
        assert [type(future.exception(0)) for future in futures] == [StorageError, StorageError]
        kept = stream.apply_tracked("insert", {"v": 2})
        stream.commit()
        assert kept.result(0).instant is not None
    assert stored(store) == [2]


@pytest.mark.parametrize(
    "handler", [ErrorTypeHandler.IGNORE, lambda batch, error: "skip"], ids=["IGNORE", "a function"]
)
@pytest.mark.parametrize("arrow", [False, True], ids=["rows", "arrow"])
def test_rows_that_strict_operators_refuse_take_no_neighbours(handler: Any, arrow: bool) -> None:
    store = make()
    table_over(store).upsert([{"id": "a", "v": 0, "s": None}, {"id": "b", "v": 0, "s": None}])
    applied = [("insert", "a"), ("upsert", "c"), ("update", "x"), ("insert", "d"), ("delete", "b")]
    how = {**SYNC, "error_type_handler": handler, "dead_letter_path": "letters"}
    with table_over(store).open_stream(writer_id="w", **how) as stream:
        futures = []
        if arrow:
            rows = pa.table({"id": [key for _, key in applied], "v": [1] * 5, "kind": [kind for kind, _ in applied]})
            stream.write_arrow(rows, operator_column="kind")
        else:
            futures = [stream.apply_tracked(kind, {"id": key, "v": 1}, "durable") for kind, key in applied]
        stream.mark(5)
        stream.flush()
        assert stream.metrics()["dead_letter_rows"] == 2
        failures = [type(future.exception(0)) for future in futures]
        assert failures in ([], [DuplicateKey, type(None), DuplicateKey, type(None), type(None)])
        stream.commit()
        assert stream.last_committed.offset == 5
    found = table_over(store).read(columns=["id", "v"]).sort_by("id").to_pylist()
    assert found == [{"id": "a", "v": 0}, {"id": "c", "v": 1}, {"id": "d", "v": 1}]


def test_the_mark_of_rows_that_are_skipped_counts() -> None:
    """Rows before it are committed, and the source does not send the skipped ones again."""
    store = make(keyed=False)
    how = {**SYNC, "error_type_handler": ErrorTypeHandler.IGNORE, "dead_letter_path": "letters"}
    for refused in (1, 2):  # twice: the segment that has nothing but the offset is refused, too
        name = f"w{refused}"
        left = [0]
        fails = failing(store, lambda effect, left=left: is_segment(effect.name) and take(left))  # type: ignore[misc]
        stream = table_over(fails).open_stream(writer_id=name, **how, mutation_buffer_lines_num=2)
        stream.insert({"v": 0})
        stream.mark(1)
        stream.extend([{"v": 1}, {"v": 2}])  # sealed by itself behind the mark
        left[0] = refused
        stream.insert({"v": 3})
        stream.mark(4)
        stream.flush()
        assert stream.metrics()["dead_letter_rows"] == 1
        if refused == 2:
            stream.insert({"v": 4})
            stream.flush()
        kill(stream)
        with table_over(store).open_stream(writer_id=name, **SYNC) as again:
            assert again.last_committed.offset == 4
    assert stored(store) == [0, 0, 1, 1, 2, 2, 4]


def take(left: list[int]) -> bool:
    left[0] -= 1
    return left[0] >= 0


def test_a_program_that_marked_before_marks_from_its_first_row_on() -> None:
    """What a stream seals by itself before the first mark of a second start is sent again, too, when the process dies."""
    store = make(keyed=False)
    with table_over(store).open_stream(writer_id="w", **SYNC) as stream:
        stream.insert({"v": 0})
        stream.mark(1)
    stream = table_over(store).open_stream(writer_id="w", **SYNC, mutation_buffer_lines_num=2)
    stream.extend({"v": number} for number in (1, 2))
    assert durable(store) == 1
    kill(stream)
    with table_over(store).open_stream(writer_id="w", **SYNC) as again:
        assert again.last_committed.offset == 1
        again.extend({"v": number} for number in (1, 2))
        again.mark(3)
    assert stored(store) == [0, 1, 2]


@pytest.mark.parametrize("writer_id", ["w", None])
def test_a_stream_whose_claim_cannot_be_given_back_is_closed_all_the_same(writer_id: str | None) -> None:
    store, down = make(keyed=False), [False]
    fails = failing(store, lambda effect: down[0] and "/streams/" in effect.name and ".arrow" not in effect.name)
    with table_over(fails).open_stream(writer_id=writer_id, **SYNC) as stream:
        stream.insert({"v": 1})
        stream.flush()
        down[0] = True
    assert stream.closed
    assert stored(store) == [1]


# --- who has to go on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [FlushMode.AUTO_FLUSH_BACKGROUND, FlushMode.AUTO_FLUSH_SYNC])
def test_a_handler_that_raises_fails_the_stream_and_no_row_waits_for_ever(mode: FlushMode) -> None:
    def handler(batch: object, error: object) -> str:
        raise ValueError("the handler has a mistake")

    store = make(keyed=False)
    how: dict[str, Any] = {**SYNC, "flush_mode": mode, "error_type_handler": handler, "apply_timeout": 5_000}
    stream = table_over(refusing(store, 1)).open_stream(**how, mutation_buffer_lines_num=1, mutation_buffer_max_num=1)
    with pytest.raises(FlushFailed, match="the handler has a mistake"):
        stream.extend({"v": value} for value in range(3))
    failed = [value for batch in stream.failed_rows() for value in batch.rows["v"].to_pylist()]
    assert failed[0] == 0
    stream.reopen()
    stream.extend({"v": value} for value in failed)
    stream.close()
    assert stored(store) == failed


def test_dead_letters_that_cannot_be_written_leave_the_rows_to_the_caller() -> None:
    store = make(keyed=False)
    fails = failing(store, lambda effect: is_segment(effect.name) or "/dead-letters/" in effect.name)
    how = {**SYNC, "error_type_handler": ErrorTypeHandler.IGNORE, "dead_letter_path": "letters"}
    stream = table_over(fails).open_stream(**how)
    stream.insert({"v": 1})
    with pytest.raises(FlushFailed, match="dead-letters"):
        stream.flush()
    assert [batch.rows["v"].to_pylist() for batch in stream.failed_rows()] == [[1]]
    assert stream.metrics()["dead_letter_rows"] == 0
    stream.close(discard=True)


class TooOften(BaseException):
    """Not an error that anybody handles."""


@pytest.mark.parametrize("error", [InvalidInputError("no"), ValueError("no")])
def test_a_commit_by_size_that_fails_waits_for_the_next_interval(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = make(keyed=False), VirtualTime()
    tried: list[float] = []
    with table_over(store, clock).open_stream(**SYNC, commit_bytes=1) as stream:
        runs = stream._core.committer._finish

        def finish(*given: Any) -> Any:
            tried.append(clock.now)
            if len(tried) > 5:
                raise TooOften
            if len(tried) <= 2:
                raise error
            return runs(*given)

        monkeypatch.setattr(stream._core.committer, "_finish", finish)
        stream.insert({"v": 1})
        stream.flush()
        clock.sleep(1)
        assert tried == [0.0], "at once, and then not again and again"
        clock.sleep(180)
        assert tried == [0.0, 60.0, 120.0]
        assert stored(store) == [1]


def test_a_commit_is_reported_though_the_table_cannot_be_looked_at_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(**SYNC) as stream:
        future = stream.apply_tracked("insert", {"v": 1})
        stream.flush()

        def fails(*given: object) -> None:
            raise StorageError("no answer", transient=True)

        with monkeypatch.context() as patch:
            patch.setattr(committer_module, "committed_of_streams", fails)
            result = stream.commit()
        assert result is not None
        assert future.result(0).instant == result.instant
        assert stream.commit() is None
    assert stored(store) == [1]


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("opens", [True, False])
def test_who_opens_a_stream_does_not_fail_because_another_recovers_a_third_one(opens: bool, dies: bool) -> None:
    """At every effect of an opening another process does the same, to its end or until it has claimed the rows of a dead stream."""

    def left_behind() -> ObjectStore:
        store = make(keyed=False)
        dead = table_over(store).open_stream(**SYNC)
        dead.insert({"v": 1})
        dead.flush()
        kill(dead)
        return store

    def later() -> VirtualTime:
        time = VirtualTime()
        time.sleep(10**9)
        return time

    def act(store: ObjectStore) -> None:
        table = table_over(store, later())
        if opens:
            table.open_stream(**SYNC).close()
        else:
            table.recover_streams()

    def names(store: ObjectStore) -> Callable[[Effect], bool]:
        """Effects on what the dead stream has left: at others the table lock is held, or the stream is the opener's own."""
        (dead,) = list_streams(store)
        return lambda effect: dead in effect.name

    made = left_behind()
    counted, of_the_dead = FaultStore(made), names(made)
    act(counted)
    for number in (effect.number for effect in counted.effects if of_the_dead(effect)):
        store = left_behind()

        def plan(effect: Effect, number: int = number, store: ObjectStore = store) -> None:
            if effect.number == number:
                claimed = FaultStore(store, lambda each: Fault(FaultMode.AFTER, dies and "/owners/" in each.name))
                with contextlib.suppress(SimulatedCrash):
                    table_over(claimed if dies else store, later()).recover_streams()

        act(FaultStore(store, plan))
        assert dies or stored(store) == [1], counted.effects[number - 1]
        act(store)
        assert (stored(store), durable(store)) == ([1], 0), counted.effects[number - 1]


def test_no_pause_goes_beyond_the_deadline() -> None:
    made, time = make(keyed=False), VirtualTime()
    stream = table_over(refusing(made, 1000), time).open_stream(
        flush_interval=0,
        request_failed_retry_times=9,
        request_failed_retry_interval_ms=5_000,
        request_failed_retry_deadline_ms=17_000,
    )
    stream.insert({"v": 1})
    begun = time.now
    with pytest.raises(FlushFailed):
        stream.flush()
    assert 16.0 <= time.now - begun <= 17.0
    stream.close(discard=True)
