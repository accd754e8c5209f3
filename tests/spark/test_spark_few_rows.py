"""Few rows of a batch of a stream reach the driver by one job of Spark, without Spark: its part is played."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams.sink import StreamSink
from lakefmt.spark.writing.distributed import SparkWrite
from lakefmt.spark.writing.plan import Limits

PATH = "memory://few-rows"
OPTIONS = {"hoodie.datasource.write.operation": "upsert"}
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])


class Frame:
    """Stands in for a DataFrame of two partitions; counts the jobs that it runs."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def __init__(self, rows: pa.Table) -> None:
        half = rows.num_rows // 2
        self.partitions = [rows.slice(0, half).to_batches(), rows.slice(half).to_batches()]
        self.jobs = 0
        self._task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter

    def mapInArrow(self, task: Any, _schema: str) -> Frame:
        self._task = task
        return self

    def collect(self) -> list[dict[str, Any]]:
        self.jobs += 1
        return [row for batches in self.partitions for done in self._task(iter(batches)) for row in done.to_pylist()]


def rows_of(count: int, value: int) -> pa.Table:
    columns = {"id": [f"k{n}" for n in range(count)], "day": [f"d{n % 3}" for n in range(count)], "v": [value] * count}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(monkeypatch) -> Iterator[lakefmt.Table]:
    numbers = itertools.count()  # of tasks, as Spark's context of a task tells them
    monkeypatch.setattr("lakefmt.spark.writing.tasks._partition_number", lambda: next(numbers))
    lakefmt.write_table(PATH, rows_of(9, 0), record_key="id", partition_by="day", ordering="v")
    table = lakefmt.open_table(PATH)
    yield table
    table.client.store.delete_tree("")


def write_few(table: lakefmt.Table, frame: Frame, **limits: int) -> Any:
    call = parse_write_options(OPTIONS)
    return SparkWrite(frame, PATH, "append", SCHEMA, call, Limits(**limits), table).run_few()


def values_of() -> dict[str, int]:
    rows = lakefmt.open_table(PATH).read()
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def test_few_rows_are_written_by_one_job(table):
    frame = Frame(rows_of(12, 5))
    result = write_few(table, frame)
    assert (frame.jobs, result.num_inserts, result.num_updates) == (1, 3, 9)
    assert values_of() == {f"k{n}": 5 for n in range(12)}


def test_no_rows_make_no_commit(table):
    before = lakefmt.open_table(PATH).client.load().timeline.instants
    assert write_few(table, Frame(rows_of(0, 5))).instant is None
    assert lakefmt.open_table(PATH).client.load().timeline.instants == before


@pytest.mark.parametrize(
    "limits",
    [{"driver_rows": 11}, {"driver_bytes": 200}, {"driver_bytes": 4000, "tasks": 100}, {"driver_partitions": 0}],
)
def test_many_rows_are_left_to_the_other_ways(table, limits):
    """More rows, bytes or partition paths, or tasks that keep their packed rows: nothing is written."""
    assert write_few(table, Frame(rows_of(12, 5)), **limits) is None
    assert values_of() == {f"k{n}": 0 for n in range(9)}


def test_a_query_stops_trying_after_a_batch_of_many_rows(monkeypatch):
    calls: list[str] = []
    is_few = {2: False}

    def few(frame: int, *_: object, **__: object) -> bool:
        calls.append(f"few {frame}")
        return is_few.get(frame, True)

    class Batch(int):
        sparkSession = None  # noqa: N815 - as Spark calls it

        def isEmpty(self) -> bool:
            return False

    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", few)
    monkeypatch.setattr(
        "lakefmt.spark.streams.sink.write_dataframe", lambda frame, *_, **__: calls.append(f"any {frame}")
    )
    sink = StreamSink("memory://few-tries", "append", {}, "q")
    for number in range(15):
        sink(Batch(number), number)
    left = [f"any {number}" for number in range(3, 13)]
    assert calls == ["any 0", "few 1", "few 2", "any 2", *left, "few 13", "few 14"]


def test_batches_share_one_handle_of_the_table(table, monkeypatch):
    """What a handle has learned of a table, such as that it has no logs, outlives the batch."""
    given: list[lakefmt.Table | None] = []

    def few(_frame: Frame, _path: str, *, table: lakefmt.Table | None, **_: object) -> bool:
        given.append(table)
        return True

    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", few)
    sink = StreamSink(PATH, "append", OPTIONS, "q")
    sink._batches_without_try = 0
    for number in range(3):
        sink(Frame(rows_of(3, number)), number)  # type: ignore[arg-type]
    assert isinstance(given[0], lakefmt.Table)
    assert given[0] is given[1] is given[2]
    table.client.store.delete_tree("")
    sink(Frame(rows_of(3, 3)), 3)  # type: ignore[arg-type]
    assert given[3] is None
