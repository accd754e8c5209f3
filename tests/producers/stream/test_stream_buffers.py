"""When buffers are sealed, who waits for what, and what is refused."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream.options import FlushMode, StreamOptions
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.segments.codec import RowOperator
from lakefmt.errors import (
    BackPressureTimeout,
    BufferFull,
    InvalidInputError,
    InvalidKey,
    SchemaMismatch,
    StreamClosed,
)
from lakefmt.testing.virtual_time import VirtualTime
from tests.producers.stream.stream_kit import GateStore, durable, is_segment, make, rows_of, table_over

SYNC, MANUAL = FlushMode.AUTO_FLUSH_SYNC, FlushMode.MANUAL_FLUSH


def test_a_buffer_is_sealed_at_its_limit_of_rows() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(mutation_buffer_lines_num=10, flush_mode=SYNC, flush_interval=0) as stream:
        for number in range(25):
            stream.insert({"v": number})
        table = table_over(store)
        assert table.read(include_uncommitted=True).num_rows == 20
        assert stream.metrics()["flushes"] == {"rows": 2}
        stream.flush()
        assert rows_of(table.read(include_uncommitted=True)) == [{"v": n, "s": None} for n in range(25)]
        assert table.read().num_rows == 0
    assert rows_of(table.read()) == [{"v": n, "s": None} for n in range(25)]


def test_in_the_background_too() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(mutation_buffer_lines_num=10, flush_interval=0) as stream:
        futures = [stream.apply_tracked("insert", {"v": n}, until="durable") for n in range(25)]
        for future in futures[:20]:
            future.result(30)
        assert not futures[20].done()
        assert table_over(store).read(include_uncommitted=True).num_rows == 20
        stream.flush()
        assert all(future.done() for future in futures)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_small_limits_are_exact(limit: int) -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(mutation_buffer_lines_num=limit, flush_mode=SYNC, flush_interval=0) as stream:
        seen = []
        for number in range(6):
            stream.insert({"v": number})
            seen.append(stream.metrics()["rows_durable"])
        assert seen == [n // limit * limit for n in range(1, 7)]


def test_bytes_seal_before_the_row_that_would_overflow() -> None:
    store = make(keyed=False)
    options = StreamOptions(mutation_buffer_space=1000, grpc_max_message_length=2000, flush_mode=SYNC, flush_interval=0)
    with table_over(store).open_stream(options=options) as stream:
        stream.insert({"s": "x" * 500})
        stream.insert({"s": "y" * 500})  # would overflow: the first is sent alone
        assert stream.metrics()["rows_durable"] == 1
        stream.insert({"s": "z" * 1500})  # larger than the limit: it goes alone
        assert stream.metrics()["rows_durable"] == 3
        with pytest.raises(InvalidInputError, match="grpc_max_message_length"):
            stream.insert({"s": "w" * 3000})
    assert table_over(store).read().num_rows == 3


def test_the_timer_runs_from_the_first_row() -> None:
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(flush_interval=500, flush_mode=SYNC, commit_interval=60_000) as stream:
        clock.sleep(10)
        assert stream.metrics()["rows_durable"] == 0  # an idle stream does nothing
        stream.insert({"v": 1})
        clock.sleep(0.4)
        stream.insert({"v": 2})
        assert stream.metrics()["rows_durable"] == 0
        clock.sleep(0.11)
        assert stream.metrics()["rows_durable"] == 2
        assert stream.metrics()["flushes"] == {"timer": 1}
        assert table_over(store).read(include_uncommitted=True).num_rows == 2


def test_manual_flush_is_manual() -> None:
    store, clock = make(keyed=False), VirtualTime()
    options = StreamOptions(flush_mode=MANUAL, flush_interval=500, mutation_buffer_lines_num=2)
    with table_over(store, clock).open_stream(options=options) as stream:
        for number in range(5):
            stream.insert({"v": number})
        clock.sleep(5)
        assert durable(store) == 0
        stream.flush()
        assert table_over(store).read(include_uncommitted=True).num_rows == 5


def test_a_full_buffer_asks_for_a_flush() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(flush_mode=MANUAL, max_buffered_bytes=2000) as stream:
        with pytest.raises(BufferFull, match="flush it"):
            stream.extend({"s": "x" * 900} for _ in range(5))
        stream.flush()
        stream.insert({"s": "x" * 900})
    assert table_over(store).read().num_rows == 3


def test_interval_0_is_no_timer() -> None:
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(flush_interval=0, flush_mode=SYNC) as stream:
        stream.insert({"v": 1})
        clock.sleep(3600)
        assert stream.metrics()["rows_durable"] == 0


def test_four_threads() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(mutation_buffer_lines_num=7) as stream:

        def send(thread: int) -> None:
            for number in range(200):
                stream.insert({"v": thread * 1000 + number})

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = sorted(thread * 1000 + number for thread in range(4) for number in range(200))
    assert sorted(table_over(store).read()["v"].to_pylist()) == expected


def test_back_pressure_holds_no_lock() -> None:
    store = make(keyed=False)
    gate = GateStore(store, is_segment)
    stream = table_over(gate).open_stream(mutation_buffer_lines_num=1, mutation_buffer_max_num=3)
    done = threading.Event()

    def send() -> None:
        for number in range(50):
            stream.insert({"v": number})
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert gate.waiting.wait(30)
    assert stream.metrics()["buffers_waiting"] <= 3  # no lock is held while a row waits: this returns
    assert not done.is_set()
    gate.open.set()
    thread.join(30)
    stream.close()
    assert stream.metrics()["backpressure_seconds"] > 0
    assert table_over(store).read()["v"].to_pylist() == list(range(50))


def test_a_row_waits_no_longer_than_it_may() -> None:
    store = make(keyed=False)
    gate = GateStore(store, is_segment)
    stream = table_over(gate).open_stream(
        mutation_buffer_lines_num=1, mutation_buffer_max_num=1, apply_timeout=20, flush_interval=0
    )
    with pytest.raises(BackPressureTimeout, match="20 ms"):
        stream.extend({"v": number} for number in range(10))
    gate.open.set()
    stream.close()


def test_all_buffers_together_are_bounded() -> None:
    store = make(keyed=False)
    gate = GateStore(store, is_segment)
    stream = table_over(gate).open_stream(max_buffered_bytes=5000, mutation_buffer_lines_num=2, apply_timeout=20)
    with pytest.raises(BackPressureTimeout):
        stream.extend({"s": "x" * 900} for _ in range(100))
    assert stream.metrics()["bytes_buffered"] <= 5000
    gate.open.set()
    stream.close()


def test_sync_apply_waits_until_its_buffer_is_durable() -> None:
    store = make()
    with table_over(store).open_stream(flush_mode=SYNC, mutation_buffer_lines_num=1, flush_interval=0) as stream:
        stream.upsert({"id": "a", "v": 1})
        assert durable(store) == 1


def test_options_are_not_changed() -> None:
    options = StreamOptions(mutation_buffer_lines_num=3)
    keyed = table_over(make())
    with keyed.open_stream(options=options) as stream:
        for number in range(10):
            stream.upsert({"id": "same", "v": number})
    assert rows_of(keyed.read()) == [{"id": "same", "v": 9, "s": None}]
    assert options == StreamOptions(mutation_buffer_lines_num=3)
    with table_over(make()).open_stream() as first, table_over(make(keyed=False)).open_stream() as second:
        assert first.options.flush_mode is second.options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND
    with pytest.raises(AttributeError):
        options.flush_interval = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        options.properties["x"] = 1  # type: ignore[index]


def test_every_invalid_option_is_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        StreamOptions(
            mutation_buffer_lines_num=0, mutation_buffer_space=-1, mutation_buffer_max_num=0, flush_interval=-5
        )
    for name in ("lines_num", "buffer_space", "max_num", "flush_interval"):
        assert name in str(caught.value)
    with pytest.raises(InvalidInputError, match="grpc_max_message_length"):
        StreamOptions(mutation_buffer_space=30 << 20)
    with pytest.raises(InvalidInputError, match="retry_times"):
        StreamOptions(request_failed_retry_times=0)
    assert StreamOptions(request_failed_retry_enable=False, request_failed_retry_times=0)
    with pytest.raises(InvalidInputError, match="nonsense"):
        table_over(make()).open_stream(nonsense=3)


def test_a_delete_without_its_key_is_refused_at_apply() -> None:
    store = make()
    with table_over(store).open_stream() as stream:
        with pytest.raises(InvalidKey, match="'id'"):
            stream.delete({"v": 3})
        stream.upsert({"id": "a", "v": 1})
    assert table_over(store).read().num_rows == 1


def test_the_last_of_equal_keys_wins() -> None:
    store = make()
    with table_over(store).open_stream() as stream:
        stream.upsert({"id": "a", "v": 1})
        stream.delete("a")
        stream.upsert({"id": "a", "v": 2})
        stream.upsert({"id": "b", "v": 3})
        stream.delete({"id": "b"})
    assert rows_of(table_over(store).read()) == [{"id": "a", "v": 2, "s": None}]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"v": "x"}, "'v'"),
        ({"v": 2**63}, "'v'"),
        ({"v": 1.5}, "'v'"),
        ({"s": 7}, "'s'"),
        ({"s": b"x"}, "'s'"),
        ({"w": 1}, "'w'"),
        ({"V": 1}, "'V'"),
    ],
)
def test_a_bad_row_is_refused_at_apply_and_takes_no_neighbour_with_it(row: dict, words: str) -> None:
    store = make(keyed=False)
    with table_over(store).open_stream() as stream:
        stream.insert({"v": 1})
        with pytest.raises(SchemaMismatch, match=words):
            stream.insert(row)
        stream.insert({"v": 2})
        assert stream.metrics()["rows_rejected"] == 1
    assert table_over(store).read()["v"].to_pylist() == [1, 2]


def test_required_columns() -> None:
    with table_over(make()).open_stream() as stream:
        for row in ({"v": 1}, {"id": None, "v": 1}):
            with pytest.raises(SchemaMismatch, match="'id'"):
                stream.upsert(row)
    with (
        table_over(make()).open_stream(strict_columns=True) as stream,
        pytest.raises(SchemaMismatch, match="all columns must be set"),
    ):
        stream.upsert({"id": "a"})


def test_wall_clock_times_do_not_depend_on_the_zone_of_the_process() -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("zoned", pa.timestamp("us", "UTC"))])
    table = table_over(make(keyed=False, schema=schema))
    noon = datetime(2026, 1, 2, 12)
    before = os.environ.get("TZ")
    try:
        for zone in ("Asia/Shanghai", "America/New_York"):
            os.environ["TZ"] = zone
            time.tzset()
            with table.open_stream() as stream:
                stream.insert({"at": noon, "zoned": noon.replace(tzinfo=UTC)})
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()
    assert {value.replace(tzinfo=None) for name in ("at", "zoned") for value in table.read()[name].to_pylist()} == {
        noon
    }
    checker = RowChecker(schema, [])
    with pytest.raises(SchemaMismatch, match="time zone"):
        checker.values(RowOperator.INSERT, {"at": noon.replace(tzinfo=UTC)})


def test_microseconds_are_exact() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    table = table_over(make(keyed=False, schema=schema))
    numbers = [(n * 7_919_000_003_111 + 17) % 4_000_000_000_000_000 for n in range(20_000)]
    moments = pa.array(numbers, pa.timestamp("us", "UTC")).to_pylist()
    with table.open_stream() as stream:
        stream.extend({"at": moment} for moment in moments)
    assert sorted(table.read()["at"].cast(pa.int64()).to_pylist()) == sorted(numbers)


def test_rows_of_one_key_keep_their_order_over_retries() -> None:
    store = make()
    with table_over(store).open_stream(mutation_buffer_lines_num=3) as stream:
        for number in range(100):
            stream.upsert({"id": f"k{number % 5}", "v": number})
        assert sorted(table_over(store).read(include_uncommitted=True)["v"].to_pylist())[-1:] != [94]
        stream.flush()
        assert sorted(table_over(store).read(include_uncommitted=True)["v"].to_pylist()) == [95, 96, 97, 98, 99]


@dataclass
class Trip:
    id: str
    v: int
    s: str | None = None


def test_rows_of_many_kinds() -> None:
    class Model:
        def __init__(self) -> None:
            self.id, self.v, self.s = "m", 4, "x"

    store = make()
    with table_over(store).open_stream() as stream:
        stream.upsert(Trip("a", 1))
        stream.upsert(Model())
        stream.write_arrow(pa.table({"id": ["t"], "v": [9]}))
        stream.write_arrow([{"id": "l", "v": 10}])
        stream.write_arrow(pa.table({"id": ["a"]}), operator="delete_ignore")
        with pytest.raises(InvalidInputError, match="no row"):
            stream.upsert(3)
    assert rows_of(table_over(store).read()) == [
        {"id": "m", "v": 4, "s": "x"},
        {"id": "t", "v": 9, "s": None},
        {"id": "l", "v": 10, "s": None},
    ]


def test_an_append_stream_takes_inserts_only() -> None:
    plain, keyed = table_over(make(keyed=False)), table_over(make())
    with plain.open_stream("append") as stream:
        for operator in ("upsert", "delete", "update", "insert_ignore", "delete_ignore"):
            with pytest.raises(InvalidInputError, match="INSERT only"):
                stream.extend([{"v": 1}], operator)
    with pytest.raises(InvalidInputError, match="CDC"):
        keyed.open_stream("append")
    with plain.open_stream("upsert") as stream:
        stream.insert({"v": 1})
    assert plain.read().num_rows == 1


def test_rate_limits_wait_on_the_clock_of_the_table() -> None:
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(rows_per_second=100, flush_interval=0, commit_interval=0) as stream:
        begun = clock.now
        stream.extend({"v": n} for n in range(201))
        assert 1.99 <= clock.now - begun <= 2.01


def test_an_unclosed_stream_warns_with_the_rows_at_risk() -> None:
    stream = table_over(make(keyed=False)).open_stream(flush_interval=0)
    stream.insert({"v": 1})
    core = stream._core
    with pytest.warns(ResourceWarning, match="1 rows are not durable"):  # noqa: PT031
        del stream
        gc.collect()
    core.discard()
    core.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_cannot_use_the_stream() -> None:
    stream = table_over(make(keyed=False)).open_stream()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            stream.insert({"v": 1})
            os._exit(1)
        except StreamClosed:
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    stream.insert({"v": 2})
    stream.close()


def test_use_after_close() -> None:
    stream = table_over(make(keyed=False)).open_stream()
    stream.close()
    stream.close()
    for act in (lambda: stream.insert({"v": 1}), stream.flush, stream.commit, lambda: stream.mark(1)):
        with pytest.raises(StreamClosed):
            act()
        with pytest.raises(RuntimeError):
            act()


def test_leaving_by_an_exception_drops_the_open_buffer_and_says_so() -> None:
    store = make(keyed=False)

    def program() -> None:
        with table_over(store).open_stream(flush_interval=0) as stream:
            stream.insert({"v": 1})
            stream.flush()
            stream.insert({"v": 2})
            raise ZeroDivisionError

    with pytest.warns(RuntimeWarning, match="1 rows"), pytest.raises(ZeroDivisionError):
        program()
    assert table_over(store).read()["v"].to_pylist() == [1]
