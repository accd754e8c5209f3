"""Few rows of a batch of a stream reach the driver by one job of Spark, without Spark: its part is played."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import InvalidInputError, InvalidKey
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams.sink import StreamSink
from lakefmt.spark.writing.dataframe import write_few_rows
from lakefmt.spark.writing.distributed import SparkWrite
from lakefmt.spark.writing.plan import FewRows, Limits

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


class ArrowFrame:
    """Stands in for a DataFrame whose rows the driver gets as Arrow has them; its partitions come last one first."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def __init__(self, parts: list[pa.Table], most: int | None = None) -> None:
        self.parts, self.most, self.jobs, self.schema = parts, most, 0, parts[0].schema

    def selectExpr(self, *texts: str) -> ArrowFrame:
        every, number = texts
        assert (every, number.split(" AS ")[0]) == ("*", "spark_partition_id()")
        columns = [pa.array([n] * part.num_rows, pa.int32()) for n, part in enumerate(self.parts)]
        numbered = zip(self.parts, columns, strict=True)
        self.parts = [part.append_column(number.split(" AS ")[1], column) for part, column in numbered]
        return self

    def limit(self, most: int) -> ArrowFrame:
        self.most = most
        return self

    def _rows(self) -> pa.Table:
        self.jobs += 1
        return pa.concat_tables(self.parts[::-1]).slice(0, self.most)


class FrameOf4(ArrowFrame):
    def toArrow(self) -> pa.Table:
        return self._rows()


class FrameOf35(ArrowFrame):
    def _collect_as_arrow(self) -> list[pa.RecordBatch]:
        return self._rows().to_batches()


def rows_of(count: int, value: int) -> pa.Table:
    columns = {"id": [f"k{n}" for n in range(count)], "day": [f"d{n % 3}" for n in range(count)], "v": [value] * count}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(monkeypatch) -> Iterator[lakefmt.Table]:
    numbers = itertools.count()  # of tasks, as Spark's context of a task tells them
    monkeypatch.setattr("lakefmt.spark.writing.plan._partition_number", lambda: next(numbers))
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
    sizes: list[float | None] = []
    is_few = {2: False}

    def few(frame: int, *_: object, row_bytes: float | None, **__: object) -> FewRows | None:
        calls.append(f"few {frame}")
        sizes.append(row_bytes)
        return FewRows(frame % 3, 60 * frame) if is_few.get(frame, True) else None

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
    assert sizes == [None, 60, 60, 780]  # the bytes of a row of the batch before


def tries_at_once(sink: StreamSink) -> None:
    """Let the first batch of a query be tried as one of few rows."""
    sink._memory_of(Frame(rows_of(0, 0)), "q").batches_without_try = 0  # type: ignore[arg-type]


def test_a_batch_without_rows_says_nothing_of_the_size_of_rows(monkeypatch):
    sizes: list[float | None] = []
    done = iter([FewRows(2, 80), FewRows(0, 0), FewRows(0, 0)])

    def few(*_: object, row_bytes: float | None, **__: object) -> FewRows:
        sizes.append(row_bytes)
        return next(done)

    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", few)
    sink = StreamSink("memory://few-sizes", "append", {}, "q")
    tries_at_once(sink)
    for number in range(3):
        sink(ArrowFrame([rows_of(0, 0)]), number)  # type: ignore[arg-type]
    assert sizes == [None, 40, 40]


def test_batches_share_one_handle_of_the_table(table, monkeypatch):
    """What a handle has learned of a table, such as that it has no logs, outlives the batch."""
    given: list[lakefmt.Table | None] = []

    def few(_frame: Frame, _path: str, *, table: lakefmt.Table | None, **_: object) -> FewRows:
        given.append(table)
        return FewRows(3, 60)

    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", few)
    sink = StreamSink(PATH, "append", OPTIONS, "q")
    tries_at_once(sink)
    for number in range(3):
        sink(Frame(rows_of(3, number)), number)  # type: ignore[arg-type]
    assert isinstance(given[0], lakefmt.Table)
    assert given[0] is given[1] is given[2]
    table.client.store.delete_tree("")
    sink(Frame(rows_of(3, 3)), 3)  # type: ignore[arg-type]
    assert given[3] is None


@pytest.fixture
def collect(table, monkeypatch) -> Callable[..., FewRows | None]:
    """A function that writes what a frame sends to the driver; no worker of Python is asked for anything."""
    monkeypatch.setattr("lakefmt.spark.writing.dataframe.dataframe_schema", lambda schema, *_, **__: schema)
    monkeypatch.setattr("lakefmt.spark.writing.dataframe.check_workers", lambda _: pytest.fail("workers were asked"))

    def write(frame: ArrowFrame, row_bytes: float = 60, **more: str) -> FewRows | None:
        return write_few_rows(frame, PATH, table=table, row_bytes=row_bytes, **{**OPTIONS, **more})

    return write


@pytest.mark.parametrize("kind", [FrameOf4, FrameOf35])
def test_the_driver_collects_few_rows_in_their_order(collect, kind):
    """Of two rows of one key and one ordering value the later one wins, in whatever order Spark sends partitions."""
    parts = [rows_of(12, 5), rows_of(3, 7), rows_of(2, 7).append_column("w", pa.array([1, 1]))]
    texts = [pa.array([f"{number}"] * part.num_rows) for number, part in enumerate(parts)]
    frame = kind([part.select(SCHEMA.names).append_column("w", text) for part, text in zip(parts, texts, strict=True)])
    done = collect(frame)
    rows = lakefmt.open_table(PATH).read()
    values = dict(
        zip(rows["id"].to_pylist(), zip(rows["v"].to_pylist(), rows["w"].to_pylist(), strict=True), strict=True)
    )
    assert (frame.jobs, done is not None and done.rows) == (1, 17)
    assert values == {"k0": (7, "2"), "k1": (7, "2"), "k2": (7, "1")} | {f"k{n}": (5, "0") for n in range(3, 12)}


@pytest.mark.parametrize("kind", [FrameOf4, FrameOf35])
def test_no_collected_rows_make_no_commit(collect, kind):
    before = lakefmt.open_table(PATH).client.load().timeline.instants
    assert collect(kind([rows_of(0, 5), rows_of(0, 5)])) == FewRows(0, 0)
    assert lakefmt.open_table(PATH).client.load().timeline.instants == before


@pytest.mark.parametrize(
    ("size", "limits"),
    [
        (60, {"driver.max.rows": "11"}),
        (60, {"driver.max.bytes": "719"}),
        (1, {"driver.max.bytes": "200"}),
        (60, {"driver.max.partitions": "2"}),
    ],
    ids=["rows", "rows of the size before", "rows larger than before", "partition paths"],
)
def test_collected_rows_that_are_many_are_left_to_the_other_ways(collect, size, limits):
    frame = FrameOf4([rows_of(12, 5)])
    assert collect(frame, size, **{f"lakefmt.spark.{name}": value for name, value in limits.items()}) is None
    assert (frame.jobs, values_of()) == (1, {f"k{n}": 0 for n in range(9)})


def test_no_more_rows_are_asked_for_than_are_few_and_one(collect):
    frame = FrameOf4([rows_of(12, 5)])
    collect(frame, 60, **{"lakefmt.spark.driver.max.bytes": "600"})
    assert frame.most == 11


def test_partition_paths_that_are_few_are_counted_where_rows_are_more(collect):
    assert collect(FrameOf4([rows_of(12, 5)]), **{"lakefmt.spark.driver.max.partitions": "3"}) is not None


def test_a_key_or_options_that_cannot_be_are_refused_as_before(collect):
    bad = pa.table({"id": [None, "k1"], "day": ["d0", "d1"], "v": [1, 1]}, schema=SCHEMA)
    with pytest.raises(InvalidKey):
        collect(FrameOf4([bad]))
    frame = FrameOf4([rows_of(2, 1)])
    with pytest.raises(InvalidInputError, match="record_key"):
        collect(frame, **{"hoodie.datasource.write.recordkey.field": "day"})
    assert (frame.jobs, values_of()) == (0, {f"k{n}": 0 for n in range(9)})


def test_a_bulk_insert_is_not_collected(collect, monkeypatch):
    monkeypatch.setattr("lakefmt.spark.writing.dataframe.check_workers", lambda _: None)
    monkeypatch.setattr("lakefmt.spark.writing.dataframe._shuffle_partitions", lambda _: 2)
    frame = FrameOf4([rows_of(12, 5)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkWrite, "run_few", lambda _: None)
        assert collect(frame, **{"hoodie.datasource.write.operation": "bulk_insert"}) is None
    assert frame.jobs == 0
