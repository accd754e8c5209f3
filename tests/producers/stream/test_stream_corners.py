"""Rows that no commit could store, values that change after `apply`, calls that meet in the middle of others."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.keys import build_partition_paths
from lakefmt._core.producers.stream import flushing
from lakefmt._core.producers.stream import rows as rows_module
from lakefmt._core.producers.stream.options import FlushMode, RowOperator
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.segments.codec import data_name, list_headers, list_streams
from lakefmt._core.table import Table
from lakefmt.errors import (
    BufferFull,
    CorruptFile,
    FlushFailed,
    InvalidInputError,
    InvalidKey,
    LakefmtError,
    SchemaChanged,
    SchemaMismatch,
    StreamClosed,
)
from lakefmt.testing.virtual_time import VirtualTime
from tests.producers.stream.stream_kit import durable, kill, make, rows_of, table_over

SYNC: dict[str, Any] = {"flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0, "commit_interval": 60_000}
PLAIN_PATHS = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
}
MANUAL: dict[str, Any] = {**SYNC, "flush_mode": FlushMode.MANUAL_FLUSH}


# --- rows that no commit could store ---------------------------------------------------------------------------------


def test_an_empty_key_is_refused_at_apply_and_takes_no_neighbour_with_it() -> None:
    store = make()
    with table_over(store).open_stream(**SYNC) as stream:
        stream.upsert({"id": "a", "v": 1})
        for wrong in (lambda: stream.upsert({"id": ""}), lambda: stream.delete("")):
            with pytest.raises(InvalidKey, match="empty"):
                wrong()
        with pytest.raises(InvalidKey, match="empty"):
            stream.write_arrow(pa.table({"id": ["b", ""], "v": [2, 3]}))
        stream.upsert({"id": "c", "v": 4})
    assert rows_of(table_over(store).read(["id", "v"])) == [{"id": "a", "v": 1}, {"id": "c", "v": 4}]


def test_one_of_several_key_columns_may_be_empty() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
    store = make(schema=schema, record_key=["a", "b"])
    with table_over(store).open_stream(**SYNC) as stream:
        stream.upsert({"a": "", "b": "x", "v": 1})
        with pytest.raises(InvalidKey):
            stream.upsert({"a": "", "b": "", "v": 2})
    assert table_over(store).read(["v"]).to_pylist() == [{"v": 1}]


@pytest.mark.parametrize("keyed", [True, False])
def test_a_partition_value_that_leaves_the_table_is_refused_at_apply(keyed: bool) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
    key = {"record_key": "id"} if keyed else {"record_key": None}
    store = make(schema=schema, partition_by="p", properties=PLAIN_PATHS, **key)
    with table_over(store).open_stream(**SYNC) as stream:
        stream.extend([{"id": "a", "p": "fine", "v": 1}])
        for part in ("../elsewhere", "..", "a\\b"):
            with pytest.raises(InvalidKey):
                stream.extend([{"id": "b", "p": part, "v": 2}])
            with pytest.raises(InvalidKey):
                stream.write_arrow(pa.table({"id": ["b"], "p": [part], "v": [2]}))
        stream.extend([{"id": "c", "p": "a b/c", "v": 3}])
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 3]


def test_nothing_where_a_field_must_have_a_value_is_refused_at_apply() -> None:
    kind = pa.struct([pa.field("street", pa.string(), nullable=False), ("number", pa.int64())])
    store = make(keyed=False, schema=pa.schema([("v", pa.int64()), ("address", kind)]))
    with table_over(store).open_stream(**SYNC) as stream:
        stream.insert({"v": 1, "address": {"street": "x", "number": None}})
        for address in ({"number": 5}, {"street": None}):
            with pytest.raises(SchemaMismatch, match="address"):
                stream.insert({"v": 2, "address": address})
        stream.insert({"v": 3, "address": None})
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    ("kind", "fits", "loses"),
    [
        (pa.date32(), dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3)),
        (pa.timestamp("ms", "UTC"), dt.datetime(2026, 1, 2, 0, 0, 0, 5000), dt.datetime(2026, 1, 2, 0, 0, 0, 5001)),
        (pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4001)),
    ],
)
def test_a_value_that_would_lose_a_part_is_refused(kind: pa.DataType, fits: object, loses: object) -> None:
    checker = RowChecker(pa.schema([("at", kind)]), ())
    for operator in (RowOperator.INSERT, RowOperator.UPDATE):
        (value,), _ = checker.values(operator, {"at": fits})
        assert checker.columns([[value]]).column("at").cast(kind) == pa.chunked_array([pa.array([fits], kind)])
        with pytest.raises(SchemaMismatch, match="'at'"):
            checker.values(operator, {"at": loses})


# --- values that a caller goes on to change --------------------------------------------------------------------------


def test_a_row_keeps_the_values_that_it_was_applied_with() -> None:
    kind = pa.struct([("x", pa.list_(pa.int64()))])
    schema = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string())), ("s", kind), ("data", pa.binary())])
    store = make(keyed=False, schema=schema)
    tags, inner, buffer, numbers = list[str](), list[int](), bytearray(2), np.zeros(2, np.int64)
    with table_over(store).open_stream(**SYNC) as stream:
        for number in range(3):
            tags.append(f"t{number}")
            inner.append(number)
            buffer[:] = bytes([number, number])
            numbers[:] = number
            stream.insert({"n": number, "tags": tags, "s": {"x": inner}, "data": buffer})
            stream.insert({"n": 10 + number, "tags": [], "s": {"x": numbers}, "data": memoryview(buffer)})
    expected = [
        {"n": n, "tags": [f"t{i}" for i in range(n + 1)], "s": {"x": list(range(n + 1))}, "data": bytes([n, n])}
        for n in range(3)
    ] + [{"n": 10 + n, "tags": [], "s": {"x": [n, n]}, "data": bytes([n, n])} for n in range(3)]
    assert rows_of(table_over(store).read(), "n") == expected


class Point(NamedTuple):
    id: str
    v: int


def test_rows_may_be_named_tuples() -> None:
    store = make()
    with table_over(store).open_stream(**SYNC) as stream:
        stream.upsert(Point("a", 1))
        stream.upsert(Point("b", 2))
        stream.delete(Point("a", 0))
    assert table_over(store).read(["id", "v"]).to_pylist() == [{"id": "b", "v": 2}]


# --- Arrow data with a column of operators ---------------------------------------------------------------------------


def test_arrow_data_may_name_the_operator_of_each_row() -> None:
    store = make()
    table_over(store).upsert([{"id": k, "v": 0, "s": "old"} for k in "abc"])
    data = pa.table(
        {
            "id": ["a", "b", "c", "d", "d", "e"],
            "v": [1, None, 3, 4, None, 6],
            "what": ["UPSERT", "delete", "update", "insert", "Delete_Ignore", None],
        }
    )
    with table_over(store).open_stream(**SYNC) as stream:
        stream.write_arrow(data, operator_column="what")
        with pytest.raises(InvalidInputError, match="Invalid operator"):
            stream.write_arrow(data.slice(0, 1).set_column(2, "what", pa.array(["merge"])), operator_column="what")
        with pytest.raises(SchemaMismatch, match="no column 'which'"):
            stream.write_arrow(data, operator_column="which")
    assert rows_of(table_over(store).read()) == [
        {"id": "a", "v": 1, "s": None},
        {"id": "c", "v": 3, "s": "old"},
        {"id": "e", "v": 6, "s": None},
    ]
    plain = make(keyed=False)
    with table_over(plain).open_stream(**SYNC) as stream:
        with pytest.raises(InvalidInputError, match="does not take DELETE"):
            stream.write_arrow(pa.table({"v": [1], "what": ["delete"]}), operator_column="what")
        stream.write_arrow(pa.table({"v": [1], "what": ["insert"]}), operator_column="what")
    assert table_over(plain).read()["v"].to_pylist() == [1]


def test_a_required_column_is_asked_of_whole_rows_only() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
    store = make(schema=schema)
    table_over(store).upsert([{"id": "a", "v": 1}, {"id": "b", "v": 2}])
    data = pa.table({"id": ["a", "b"], "v": [None, 5], "what": ["delete_ignore", "upsert"]})
    with table_over(store).open_stream(**SYNC) as stream:
        stream.write_arrow(data, operator_column="what")
        with pytest.raises(SchemaMismatch, match="'v'"):
            stream.write_arrow(data.set_column(2, "what", pa.array(["upsert", "upsert"])), operator_column="what")
    assert table_over(store).read().to_pylist() == [{"id": "b", "v": 5}]


# --- calls that meet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discard", [False, True])
def test_a_row_that_comes_while_the_stream_is_closed_is_refused(discard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came behind the last flush: nobody would ever write it."""
    store = make(keyed=False)
    stream = table_over(store).open_stream(writer_id="w", **SYNC)
    commit, met = stream._core.committer.commit, []

    def meets(**how: Any) -> Any:
        for act in (
            lambda: stream.insert({"v": 2}),
            lambda: stream.write_arrow(pa.table({"v": [3]})),
            lambda: stream.mark(3),
        ):
            with pytest.raises(StreamClosed):
                act()
            met.append(True)
        return commit(**how)

    monkeypatch.setattr(stream._core.committer, "commit", meets)
    stream.insert({"v": 1})
    stream.flush()
    stream.close(discard=discard)
    assert len(met) == 3
    assert table_over(store).read()["v"].to_pylist() == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_that_leaves_the_block_leaves_the_stream_to_its_parent(tmp_path: Any) -> None:
    import lakefmt

    table = lakefmt.create_table(str(tmp_path / "t"), schema=pa.schema([("v", pa.int64())]))
    with table.open_stream(mutation_buffer_lines_num=100, flush_interval=0) as stream:
        stream.insert({"v": 1})
        stream.flush()
        stream.insert({"v": 2})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                for act in (stream.flush, stream.commit, stream.reopen, lambda: stream.mark(1)):
                    with pytest.raises(StreamClosed):
                        act()
                stream.close()
                stream.close(discard=True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list_streams(table.client.store)) == 1
        (found,) = lakefmt.open_table(str(tmp_path / "t")).recover_streams()
        assert found.left, "the parent lives"
        stream.insert({"v": 3})
    assert sorted(table.read()["v"].to_pylist()) == [1, 2, 3]


def test_a_strict_operator_finds_rows_that_are_committed_while_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    store, armed = make(), [False]
    stream = table_over(store).open_stream(**SYNC)
    load, read = TableClient.load, flushing.read_segments

    def commits(act: Any, first: bool) -> Any:
        def acting(*given: Any) -> Any:
            fires, armed[0] = armed[0], False
            if fires and first:
                stream._core.committer.commit(whole=True)
            result = act(*given)
            if fires and not first:
                stream._core.committer.commit(whole=True)
            return result

        return acting

    for number, (where, name, act, first) in enumerate(
        [(TableClient, "load", load, False), (flushing, "read_segments", read, True)]
    ):
        stream.insert({"id": f"k{number}", "v": 0})
        stream.flush()
        stream.update({"id": f"k{number}", "v": 1})
        with monkeypatch.context() as patch:
            patch.setattr(where, name, commits(act, first))
            armed[0] = True
            stream.flush()
        assert not armed[0]
    stream.close()
    assert table_over(store).read()["v"].to_pylist() == [1, 1]


# --- columns that change ---------------------------------------------------------------------------------------------


def test_a_stream_follows_the_columns_when_it_seals_a_buffer() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(**SYNC) as stream:
        stream.insert({"v": 1, "s": "x"})
        table_over(store).alter.drop_column("s")
        table_over(store).alter.add_column("w", pa.int64())
        stream.flush()
        assert stream.schema.names == ["v", "w"]
        with pytest.raises(SchemaMismatch, match="'s'"):
            stream.insert({"v": 2, "s": "y"})
        stream.insert({"v": 3, "w": 4})
    assert rows_of(table_over(store).read()) == [{"v": 1, "w": None}, {"v": 3, "w": 4}]
    with table_over(store).open_stream(**SYNC, auto_refresh=False) as stream:
        stream.insert({"v": 5})
        table_over(store).alter.add_column("x", pa.int64())
        stream.flush()
        assert stream.schema.names == ["v", "w"]


def test_arrow_data_of_a_wider_type_are_accepted() -> None:
    store = make(keyed=False, schema=pa.schema([("v", pa.int32())]))
    with table_over(store).open_stream(**SYNC) as stream:
        table_over(store).alter.update_column("v", type=pa.int64())
        stream.write_arrow(pa.table({"v": [2**40]}))
    assert table_over(store).read()["v"].to_pylist() == [2**40]


@pytest.mark.parametrize("mode", [FlushMode.AUTO_FLUSH_SYNC, FlushMode.MANUAL_FLUSH, FlushMode.AUTO_FLUSH_BACKGROUND])
def test_rows_with_other_columns_are_flushed_first(mode: FlushMode) -> None:
    """A column is dropped, and another one of its name has another type: their rows are never in one segment."""
    store = make(keyed=False)

    def goes_on() -> None:
        stream.insert({"v": 2, "s": 5})
        stream.flush()

    with table_over(store).open_stream(**{**SYNC, "flush_mode": mode}) as stream:
        stream.insert({"v": 1, "s": "text"})
        table_over(store).alter.drop_column("s")
        table_over(store).alter.add_column("s", pa.int64())
        with pytest.raises(FlushFailed) as caught:
            goes_on()
        assert isinstance(caught.value.__cause__, SchemaChanged)
        failed = [row for batch in stream.failed_rows() for row in batch.rows.select(["v", "s"]).to_pylist()]
        assert failed == [{"v": 1, "s": "text"}, {"v": 2, "s": 5}]
        stream.reopen()
        stream.insert({"v": 1})
        goes_on()
    assert rows_of(table_over(store).read()) == [{"v": 1, "s": None}, {"v": 2, "s": 5}]


def test_a_flushed_column_that_was_dropped_is_left_out_though_another_one_has_its_name() -> None:
    store = make()
    table_over(store).upsert([{"id": "z", "v": 0, "s": "stored"}])
    with table_over(store).open_stream(**SYNC) as stream:
        stream.upsert({"id": "a", "v": 1, "s": "text"})
        stream.flush()
        table_over(store).alter.drop_column("s")
        table_over(store).alter.add_column("s", pa.int64())
        stream.upsert({"id": "b", "v": 2, "s": 5})
        stream.flush()
        expected = [{"id": "z", "v": 0, "s": None}, {"id": "a", "v": 1, "s": None}, {"id": "b", "v": 2, "s": 5}]
        assert rows_of(table_over(store).read(include_uncommitted=True)) == expected
    assert rows_of(table_over(store).read()) == expected


def test_new_columns_beside_those_of_another_writer() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(**SYNC, allow_new_columns=True) as stream:
        table_over(store).alter.add_column("theirs", pa.int64())
        stream.insert({"v": 1, "mine": "x"})
        with pytest.raises(LakefmtError):
            stream.insert({"v": 2, "odd": object()})
        with pytest.raises(SchemaMismatch, match="'nothing'"):
            stream.insert({"v": 3, "nothing": None})  # null has no type
    expected = [{"v": 1, "s": None, "theirs": None, "mine": "x"}]
    assert rows_of(table_over(store).read()) == expected


# --- time and place --------------------------------------------------------------------------------------------------


def test_the_timer_runs_from_the_first_row_behind_a_mark() -> None:
    store, clock = make(keyed=False), VirtualTime()
    how = {**SYNC, "flush_interval": 10_000}
    with table_over(store, clock).open_stream(writer_id="w", **how) as stream:
        stream.insert({"v": 1})
        stream.mark(1)
        clock.sleep(2)
        stream.insert({"v": 2})
        clock.sleep(8.1)
        assert durable(store) == 1
        clock.sleep(2)
        assert durable(store) == 2, "12.1 seconds after the start, 10.1 after the row"


def test_arrow_data_are_taken_whole_or_not_at_all() -> None:
    store = make(keyed=False)
    data = pa.table({"v": pa.array(range(1000), pa.int64())})
    how = {"grpc_max_message_length": 2_000, "mutation_buffer_space": 2_000, "max_buffered_bytes": 12_000}
    with table_over(store).open_stream(**MANUAL, **how) as stream:
        stream.write_arrow(data.slice(0, 500))
        with pytest.raises(BufferFull):
            stream.write_arrow(data)
        stream.flush()
        stream.write_arrow(data.slice(500))
    assert sorted(table_over(store).read()["v"].to_pylist()) == list(range(1000))


def test_an_offset_that_no_commit_keeps_is_refused_at_once() -> None:
    store = make(keyed=False)
    with table_over(store).open_stream(writer_id="w", **SYNC) as stream:
        stream.insert({"v": 1})
        with pytest.raises(InvalidInputError, match="characters"):
            stream.mark("x" * 2_000_000)
        stream.mark("x" * 900_000)
    assert table_over(store).read()["v"].to_pylist() == [1]


def test_the_age_of_what_is_not_committed_is_that_of_its_oldest_row() -> None:
    store, clock = make(keyed=False), VirtualTime()
    with table_over(store, clock).open_stream(writer_id="w", **SYNC, mutation_buffer_lines_num=1) as stream:
        stream.mark(0)
        stream.insert({"v": 1})
        stream.flush()
        stream.mark(1)
        stream.insert({"v": 2})  # behind the mark: waits for the next one
        stream.insert({"v": 3})
        clock.sleep(150)
        assert stream.metrics()["oldest_uncommitted_age_seconds"] == pytest.approx(150, abs=1)
        stream.mark(2)


def test_a_rate_limit_does_not_stop_the_event_loop() -> None:
    table, beats = table_over(make(keyed=False)), list[float]()

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with table.open_stream_async(rows_per_second=20) as stream:
            beating = asyncio.create_task(beat())
            for number in range(5):
                await stream.insert({"v": number})
            beating.cancel()

    asyncio.run(main())
    assert table.read().num_rows == 5
    assert max(after - before for before, after in itertools.pairwise(beats)) < 0.045


# --- other writers ---------------------------------------------------------------------------------------------------


def test_a_writer_that_was_replaced_twice_brings_nothing_back() -> None:
    store = make(keyed=False)
    first = table_over(store).open_stream(writer_id="w", **SYNC)
    first.insert({"v": 1})
    first.mark(1)
    first.flush()
    second = table_over(store).open_stream(writer_id="w", **SYNC, mutation_buffer_lines_num=1)
    second.insert({"v": 2})  # sealed by itself behind the last mark: its source sends it again
    assert durable(store) == 1
    kill(second)
    third = table_over(store).open_stream(writer_id="w", **SYNC)
    first.insert({"v": 9})
    first.mark(9)
    with pytest.raises(FlushFailed):
        first.flush()
    first.close(discard=True)
    assert table_over(store).read(include_uncommitted=True)["v"].to_pylist() == [1]
    kill(third)
    with table_over(store).open_stream(writer_id="w", **SYNC) as fourth:
        assert fourth.last_committed.offset == 1
        fourth.insert({"v": 2})
        fourth.mark(2)
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2]


def test_a_stream_that_cannot_be_recovered_is_not_in_the_way_of_others(caplog: pytest.LogCaptureFixture) -> None:
    store = make(keyed=False)
    for name in ("a", "b"):
        stream = table_over(store).open_stream(writer_id=name, **SYNC)
        stream.insert({"v": ord(name)})
        stream.flush()
        kill(stream)
    (header,) = list_headers(store, "a")
    good = store.read(data_name("a", header.position))
    store.put(data_name("a", header.position), good[:-1])
    late = VirtualTime()
    late.now = 300_000_000.0
    with pytest.raises(CorruptFile):
        table_over(store, late).recover_streams()
    assert table_over(store).read()["v"].to_pylist() == [ord("b")], "the other one was recovered"
    with pytest.warns(RuntimeWarning, match="stream 'a' has flushed are durable and cannot be committed"):
        opened = table_over(store, late).open_stream(**SYNC)
    with opened as stream:
        stream.insert({"v": 1})
    assert "'a' cannot be recovered" in caplog.text
    with pytest.raises(CorruptFile):
        table_over(store, late).open_stream(writer_id="a", **SYNC)
    store.put(data_name("a", header.position), good)
    table_over(store, late).recover_streams()
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, ord("a"), ord("b")]


@pytest.mark.parametrize("ordering", ["v", None])
def test_each_stream_is_merged_by_the_rule_of_the_table(ordering: str | None) -> None:
    """Of one stream the last row of a key counts; which row of two streams counts is for their ordering values to say."""
    store = make(ordering=ordering)
    table_over(store).upsert([{"id": k, "v": 5, "s": "stored"} for k in "abc"])
    early = table_over(store).open_stream(writer_id="a", **SYNC)
    early.upsert({"id": "a", "v": 10, "s": "early"})
    early.upsert({"id": "b", "v": 20, "s": "early"})
    early.upsert({"id": "b", "v": 9, "s": "early again"})
    early.flush()
    late = table_over(store).open_stream(writer_id="b", **SYNC)
    late.upsert({"id": "a", "v": 7, "s": "late"})
    late.update({"id": "b", "s": "late"})
    late.delete({"id": "c", "v": 1} if ordering else "c")
    late.upsert({"id": "n", "v": 1, "s": "new"})
    late.flush()
    uncommitted = rows_of(table_over(store).read(include_uncommitted=True), "id")
    early.close()
    late.close()
    assert rows_of(table_over(store).read(), "id") == uncommitted
    assert [row["s"] for row in uncommitted if row["id"] == "a"] == ["early" if ordering else "late"]


# --- rows that never become columns ----------------------------------------------------------------------------------


def test_a_struct_may_come_in_every_form_beside_the_others() -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))])
    store = make(keyed=False, schema=schema)
    with table_over(store).open_stream(**SYNC) as stream:
        for n, value in enumerate(({"a": 1, "b": "x"}, [("a", 1), ("b", "x")], (1, "x"))):
            stream.insert({"n": n, "s": value})
        with pytest.raises(SchemaMismatch, match="'s'"):
            stream.insert({"n": 9, "s": [1, "x"]})
    assert table_over(store).read()["s"].to_pylist() == [{"a": 1, "b": "x"}] * 3


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["background", "sync"])
def test_a_stream_whose_rows_do_not_become_columns_fails_and_closes(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(keyed=False, schema=pa.schema([("n", pa.int64())]))
    stream = table_over(store).open_stream(**settings)

    def never(_checker: RowChecker, _rows: object) -> pa.Table:
        raise SchemaMismatch("no columns")

    monkeypatch.setattr(RowChecker, "columns", never)
    stream.insert({"n": 5})
    for _ in range(2):
        with pytest.raises(LakefmtError, match="no columns"):
            stream.flush()
    assert [batch.rows.to_pylist() for batch in stream.failed_rows()] == [[{"row": "{'n': 5}"}]]
    assert stream.metrics()["rows_buffered"] == 0
    with pytest.raises(LakefmtError):
        stream.close()
    assert stream.closed


def test_a_null_element_is_taken_or_refused_with_its_row() -> None:
    schema = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    store = make(keyed=False, schema=schema)
    with table_over(store).open_stream(**SYNC) as stream:
        stream.insert({"n": 1, "tags": ["a", None]})
        stream.write_arrow(pa.table({"n": [2], "tags": [[None, "b"]]}))
    refuses = {"lakefmt.write.null_list_elements": "refuse"}
    with table_over(store).open_stream(**SYNC, properties=refuses) as stream:
        stream.insert({"n": 3, "tags": []})
        with pytest.raises(SchemaMismatch, match="'tags'"):
            stream.insert({"n": 4, "tags": ["a", None]})
        with pytest.raises(SchemaMismatch, match="'tags'"):
            stream.write_arrow(pa.table({"n": [5], "tags": [[None]]}))
    assert sorted(table_over(store).read()["n"].to_pylist()) == [1, 2, 3]


PLAIN_PATHS = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
}
PARTED = pa.schema([("id", pa.string()), ("p", pa.string())])


def with_a_colon(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Table, Stream]:
    """Return a table, and a stream with a row that was taken when its partition value was not refused yet."""
    table = lakefmt.create_table(
        f"memory://{name}", schema=PARTED, record_key="id", partition_by="p", properties=PLAIN_PATHS
    )
    stream = table.open_stream(commit_interval=10**9)
    with monkeypatch.context() as before:
        before.setattr(rows_module, "build_new_partition_paths", build_partition_paths)
        stream.upsert({"id": "a", "p": "10:30"})
    stream.flush()
    return table, stream


def test_what_is_durable_is_committed_though_the_door_refuses_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    table, stream = with_a_colon("durable-colon", monkeypatch)
    with stream:
        with pytest.raises(InvalidKey, match="a colon"):
            stream.upsert({"id": "b", "p": "10:30"})
        stream.upsert({"id": "c", "p": "x"})
    assert sorted(table.read()["id"].to_pylist()) == ["a", "c"]


def test_arrow_rows_without_a_partition_value_are_those_of_an_upsert() -> None:
    """Their partition is a place like others; data without the column would name it for rows that lie elsewhere."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("p", pa.string()), ("v", pa.int64())])
    table = lakefmt.create_table("memory://null-partition", schema=schema, record_key="id", partition_by="p")
    rows = pa.table({"id": ["a", "b", "c"], "p": [None, "x", None], "v": [1, 2, 3]}, schema=schema)
    table.upsert(rows.slice(0, 1))
    with table.open_stream(**SYNC) as stream:
        stream.write_arrow(rows)
        stream.write_arrow(rows.slice(0, 1), "delete_ignore")
        stream.write_arrow(pa.table({"id": ["c"], "p": pa.nulls(1, pa.string()), "v": [30]}), "update")
        with pytest.raises(SchemaMismatch, match="lack 'p'"):
            stream.write_arrow(rows.select(["id"]), "delete_ignore")
        with pytest.raises(SchemaMismatch, match="'id' has 1 nulls"):
            stream.write_arrow(pa.table({"id": pa.nulls(1, pa.string()), "p": ["x"], "v": [1]}))
    assert table.partitions() == ["p=__HIVE_DEFAULT_PARTITION__", "p=x"]
    assert rows_of(table.read(), "id") == [{"id": "b", "p": "x", "v": 2}, {"id": "c", "p": None, "v": 30}]


@pytest.mark.parametrize("column", ["p", "s.p"])
def test_single_rows_without_a_partition_value_are_those_of_arrow_data(column: str) -> None:
    """Of each operator, and where a field of a struct makes the partition; a row that does not name the column is refused."""
    place = [("p", pa.string())] if column == "p" else [("s", pa.struct([("p", pa.string())]))]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), *place, ("v", pa.int64())])

    def row(key: str, p: str | None, value: int) -> dict[str, object]:
        return {"id": key, **({"p": p} if column == "p" else {"s": {"p": p}}), "v": value}

    tables = []
    for door in ("rows", "arrow"):
        table = lakefmt.create_table(
            f"memory://null-partition-{column}-{door}", schema=schema, record_key="id", partition_by=column
        )
        with table.open_stream(**SYNC) as stream:
            steps = [
                ("insert", row("a", None, 1)), ("upsert", row("b", "x", 2)), ("upsert", row("c", None, 3)),
                ("insert_ignore", row("a", None, 9)), ("update", row("c", None, 30)), ("delete", row("a", None, 1)),
            ]  # fmt: skip
            for operator, each in steps:
                if door == "rows":
                    stream.apply_rows(operator, [each])
                else:
                    stream.write_arrow(pa.Table.from_pylist([each], schema), operator)
                stream.flush()
            for operator in ("insert", "upsert", "update", "delete", "delete_ignore"):
                with pytest.raises(InvalidKey, match="is not set"):
                    stream.apply_rows(operator, [{"id": "b", "v": 1}])
        tables.append(rows_of(table.read(), "id"))
        assert table.partitions()[0].endswith("=__HIVE_DEFAULT_PARTITION__")
    assert tables[0] == tables[1] == [row("b", "x", 2), row("c", None, 30)]


def test_a_stream_deletes_from_partitions_that_it_would_not_make(monkeypatch: pytest.MonkeyPatch) -> None:
    table, stream = with_a_colon("deleted-colon", monkeypatch)
    with stream:
        stream.commit()
        stream.delete({"id": "a", "p": "10:30"})
    assert table.read().num_rows == 0
