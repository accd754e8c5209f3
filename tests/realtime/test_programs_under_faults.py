"""Programs written for the SDK whose storage refuses, whose time passes, or that are killed: C14, C16, C19 to C21, C29, C30.

The connection opens its tables over a store that fails on demand, on a virtual clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt.realtime.connection
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from lakefmt.realtime import (
    Connection,
    CZException,
    ErrorTypeHandler,
    FlushMode,
    RealtimeOptionsBuilder,
    RealtimeStream,
    RetryStatus,
    RowOperator,
    connect,
)
from lakefmt.testing.stores import FaultMode, FaultStore, fail_at
from lakefmt.testing.virtual_time import VirtualTime
from tests.example_counts import in_turn
from tests.producers.stream.stream_kit import attempts, copied, kill, refusing, table_over

NUMBERS = itertools.count()
Connect = Callable[..., Connection]


def stored() -> ObjectStore:
    """A store with the table ``plain``, made through a cursor."""
    place = f"memory://realtime-faults-{next(NUMBERS)}"
    connect(base_path=place, schema="s").cursor().execute("CREATE TABLE plain (id BIGINT, name STRING)")
    return copied(MemoryStore(f"{place.removeprefix('memory://')}/s/plain"))


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return a function that connects to a store: every table of the connection is in it."""

    def make(store: ObjectStore, time: VirtualTime | None = None) -> Connection:
        def opened(*_: object, **__: object) -> Table:
            return table_over(store, time, {"hoodie.client.heartbeat.tolerable.misses": 0})

        monkeypatch.setattr(lakefmt.realtime.connection, "open_table", opened)
        return connect(base_path="memory://anywhere", schema="s")

    return make


def options(**more: int) -> RealtimeOptionsBuilder:
    """Options of a stream whose calls return when all is done."""
    builder = RealtimeOptionsBuilder().with_flush_mode(FlushMode.AUTO_FLUSH_SYNC).with_flush_interval(0)
    for name, value in more.items():
        builder = getattr(builder, f"with_{name}")(value)
    return builder


def send(stream: RealtimeStream, *numbers: int) -> None:
    for number in numbers:
        row = stream.create_row(RowOperator.INSERT)
        row.set_value("id", number)
        row.set_value("name", f"name {number}")
        stream.apply(row)


def seen(connection: Connection) -> list[int]:
    return [number for (number,) in connection.cursor().execute("SELECT id FROM plain").fetchall()]


@pytest.mark.parametrize(("interval", "durable"), [(500, [1, 2]), (0, [])])
def test_rows_are_durable_by_the_timer_or_not_at_all(connected: Connect, interval: int, durable: list[int]) -> None:
    time = VirtualTime()
    connection = connected(stored(), time)
    stream = connection.get_realtime_stream(table="plain", options=options().with_flush_interval(interval).build())
    send(stream, 1)
    time.sleep(0.4)
    send(stream, 2)
    assert seen(connection) == []
    time.sleep(0.2)
    assert seen(connection) == durable
    stream.close()
    assert seen(connection) == [1, 2]


def test_two_refusals_are_three_attempts_in_order(connected: Connect) -> None:
    made, time = stored(), VirtualTime()
    store = refusing(made, 2)
    connection = connected(store, time)
    asked = options(mutation_buffer_lines_num=2).with_request_failed_retry_status(RetryStatus.FAILED)
    stream = connection.get_realtime_stream(table="plain", options=asked.build())
    send(stream, *range(4))
    assert attempts(store) == 4, "three for the first buffer, one for the second"
    assert stream.get_metrics()["retries"] == {"FAILED": 2}
    stream.close()
    assert seen(connected(made)) == [0, 1, 2, 3]


def test_a_store_that_refuses_for_ever_is_an_error_of_flush(connected: Connect) -> None:
    made = stored()
    store = refusing(made, 1000)
    stream = connected(store, VirtualTime()).get_realtime_stream(
        table="plain", options=options(request_failed_retry_times=2).build()
    )
    send(stream, 1)
    with pytest.raises(CZException, match="not durable"):
        stream.flush()
    assert attempts(store) == 3
    (failed,) = stream.failed_rows()
    assert failed.rows["id"].to_pylist() == [1]
    with pytest.raises(CZException):
        stream.close()
    assert stream.closed
    assert seen(connected(made)) == []


def test_a_program_goes_on_after_a_failure_with_the_rows_that_are_left(connected: Connect) -> None:
    made = stored()
    asked = options(request_failed_retry_times=1)
    stream = connected(refusing(made, 2), VirtualTime()).get_realtime_stream(table="plain", options=asked.build())
    send(stream, 1)
    with pytest.raises(CZException, match="not durable"):
        stream.flush()
    (left,) = stream.reopen()
    assert left.rows["id"].to_pylist() == [1]
    send(stream, *left.rows["id"].to_pylist(), 2)
    stream.close()
    assert seen(connected(made)) == [1, 2]


def test_a_failure_that_is_not_listed_terminates_or_is_skipped(connected: Connect) -> None:
    made = stored()
    asked = options().with_request_failed_retry_status(RetryStatus.THROTTLED)
    store = refusing(made, 1)
    stream = connected(store).get_realtime_stream(
        table="plain", options=asked.with_error_type_handler(ErrorTypeHandler.TERMINATE_INSTANCE).build()
    )
    send(stream, 1)
    with pytest.raises(CZException, match="simulated"):
        stream.flush()
    assert attempts(store) == 1
    with pytest.raises(CZException):
        stream.close()
    skips = asked.with_error_type_handler(ErrorTypeHandler.IGNORE).with_dead_letter_path("letters")
    stream = connected(refusing(made, 1)).get_realtime_stream(table="plain", options=skips.build())
    send(stream, 2)
    stream.flush()
    send(stream, 3)
    stream.close()
    (letter,) = made.list(".hoodie/.lakefmt/dead-letters/letters")
    with pa.ipc.open_stream(made.read(letter.name)) as reader:
        assert reader.read_all()["id"].to_pylist() == [2]
    assert seen(connected(made)) == [3]


def test_a_program_that_is_killed_after_a_flush_loses_nothing(connected: Connect) -> None:
    store, time = stored(), VirtualTime()
    connection = connected(store, time)
    stream = connection.get_realtime_stream(table="plain", options=options().build())
    send(stream, 1, 2)
    stream.flush()
    send(stream, 3)
    kill(stream.native)
    assert seen(connection) == [1, 2], "through the connection, uncommitted"
    time.sleep(180)  # its claim was not renewed
    again = connection.get_realtime_stream(table="plain", options=options().build())
    assert sorted(table_over(store).read()["id"].to_pylist()) == [1, 2], "committed by the next stream that opens"
    send(again, 4)
    again.close()
    assert sorted(table_over(store).read()["id"].to_pylist()) == [1, 2, 4]


@pytest.mark.parametrize("mode", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST])
def test_a_buffer_that_is_sent_twice_is_there_once(connected: Connect, mode: FaultMode) -> None:
    made = stored()

    def program(store: ObjectStore) -> None:
        stream = connected(store, VirtualTime()).get_realtime_stream(
            table="plain", options=options(mutation_buffer_lines_num=2).build(), writer_id="w"
        )
        last = stream.native.last_committed
        for number in range(0 if last is None else last.offset, 6, 2):
            send(stream, number, number + 1)
            stream.native.mark(number + 2)
        stream.close()

    counted = FaultStore(copied(made))
    program(counted)
    for number in in_turn(range(1, len(counted.effects) + 1), 2):
        store = copied(made)
        try:
            program(FaultStore(store, fail_at(number, mode, crash=False)))
        except LakefmtError:
            program(store)
        story = f"{mode.value} effect {number}: {counted.effects[number - 1]}"
        assert sorted(seen(connected(store))) == list(range(6)), story
