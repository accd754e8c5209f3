"""A clustering beside a stream, without Spark: its tasks run in this process, and its batches are rows that it has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt.errors import CommitConflict, InvalidInputError, ServicesFailed, UnknownSetting
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams.sink import StreamSink
from lakefmt.spark.writing.staging import existing_table
from tests.spark.played_writes import RowsFrame, write_few, write_frame

ASYNC = "hoodie.clustering.async.enabled"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.table.name": "beside",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.streaming.retry.count": "1",
    "hoodie.parquet.small.file.limit": "0",  # every batch's new rows are files of their own
    "hoodie.clustering.async.max.commits": "3",
    ASYNC: "true",
}
Tasks = Callable[[Callable[[int], Any], int], list[Any]]


class Frame(RowsFrame):
    """The rows of one batch."""

    def __init__(self, batch: int, keys: list[str]) -> None:
        super().__init__(pa.table({"id": keys, "v": [batch] * len(keys), "ts": [batch] * len(keys)}, schema=SCHEMA))


def new_keys(batch: int) -> Frame:
    return Frame(batch, [f"{batch}-{n}" for n in range(3)])


def with_a_shared_key(batch: int) -> Frame:
    return Frame(batch, [*(f"{batch}-{n}" for n in range(3)), "same"])


class Cluster:
    """Plays the tasks of the cluster: they fail, or wait until they are let go on."""

    def __init__(self) -> None:
        self.gate, self.at_work, self.failures, self.runs = Event(), Event(), 0, 0
        self.gate.set()

    def __call__(self, _spark: Any, run_one: Callable[[int], Any], count: int, what: str) -> list[Any]:
        self.runs += what.startswith("clustering")  # merge-on-read tables are compacted, too
        self.at_work.set()
        assert self.gate.wait(60)
        if self.failures:
            self.failures -= 1
            raise ServicesFailed(f"a task of the {what} failed: lost")
        return [run_one(number) for number in range(count)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    played = Cluster()
    monkeypatch.setattr("lakefmt.spark.services._run_tasks", played)
    monkeypatch.setattr("lakefmt.spark.streams.sink.write_dataframe", write_frame)
    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", write_few)
    return played


@pytest.fixture
def path() -> Iterator[str]:
    place = f"memory://clustered-beside-{uuid4().hex}"
    yield place
    table = existing_table(place, parse_write_options({}))
    if table is not None:
        table.client.store.delete_tree("")


def sink_of(path: str, **options: str) -> StreamSink:
    sink = StreamSink(path, "append", {**OPTIONS, **options}, "q")
    sink._sleep = lambda _: None
    return sink


def clusterings(path: str) -> tuple[int, int]:
    """Return how many clusterings are completed and pending."""
    client = lakefmt.open_table(path).client
    state = client.load()
    done = [client.at(state).commit_metadata(i).operation.value for i in state.timeline.commits].count("CLUSTER")
    return done, len(pending_clusterings(client.at(state)))


def rows(path: str) -> list[tuple[str, int]]:
    table = lakefmt.open_table(path)
    assert not table.check("full").findings
    return sorted(zip(*table.read(["id", "v"]).to_pydict().values(), strict=True))


def expected(batches: int, shared: int | None = None) -> list[tuple[str, int]]:
    own = [(f"{batch}-{n}", batch) for batch in range(batches) for n in range(3)]
    return sorted([*own, *([] if shared is None else [("same", shared)])])


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_a_stream_is_clustered_beside_its_batches(cluster, path, kind, version):
    more = {"hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": version}
    sink = sink_of(path, **more)
    for batch in range(9):
        sink(with_a_shared_key(batch), batch)
    sink.wait()
    done, pending = clusterings(path)
    assert done >= 2
    assert (pending, cluster.runs) == (0, done)
    assert rows(path) == expected(9, shared=8)


def test_it_is_planned_by_the_number_of_commits(cluster, path):
    sink = sink_of(path)
    told = []
    for batch in range(6):
        sink(new_keys(batch), batch)
        sink.wait()
        told.append(clusterings(path)[0])
    assert told == [0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "more",
    [{ASYNC: "false"}, {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "99"}],
    ids=["not asked for", "inline is asked for, too"],
)
def test_there_is_none(cluster, path, more):
    sink = sink_of(path, **more)
    assert not sink.clusters
    for batch in range(5):
        sink(new_keys(batch), batch)
    sink.wait()
    assert (clusterings(path), cluster.runs) == ((0, 0), 0)


def at_work(cluster: Cluster, sink: StreamSink) -> None:
    """Write three batches, of which the last one plans a clustering; return when it is at work."""
    cluster.gate.clear()
    for batch in range(3):
        sink(with_a_shared_key(batch), batch)
    assert cluster.at_work.wait(60)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_batches_of_new_keys_go_on_beside_it(cluster, path, kind):
    sink = sink_of(path, **{"hoodie.datasource.write.table.type": kind})
    at_work(cluster, sink)
    sink(new_keys(3), 3)
    sink(new_keys(4), 4)
    assert clusterings(path) == (0, 1)
    cluster.gate.set()
    sink.wait()
    assert clusterings(path)[1] == 0
    assert rows(path) == expected(5, shared=2)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("strategy", ["SparkRejectUpdateStrategy", "SparkAllowUpdateStrategy"])
def test_a_batch_that_changes_clustered_rows_waits_for_its_end(cluster, path, kind, strategy, monkeypatch):
    more = {"hoodie.datasource.write.table.type": kind, "hoodie.clustering.updates.strategy": strategy}
    sink = sink_of(path, **more)
    at_work(cluster, sink)
    wait, waits = sink._beside.wait, []

    def let_go_on() -> None:
        waits.append(clusterings(path))
        cluster.gate.set()
        wait()

    monkeypatch.setattr(sink._beside, "wait", let_go_on)
    sink(with_a_shared_key(3), 3)
    assert waits == [(0, 1)]  # once, while it was at work; no try was spent, as there is one
    assert clusterings(path) == (1, 0)
    assert rows(path) == expected(4, shared=3)


def test_one_that_fails_stays_planned_and_is_done_again(cluster, path, caplog):
    cluster.failures = 1
    sink = sink_of(path)
    with caplog.at_level(logging.WARNING, "lakefmt.spark"):
        for batch in range(3):
            sink(new_keys(batch), batch)
        sink.wait()
    assert "the clustering beside the stream failed and stays planned: a task of the clustering" in caplog.text
    assert clusterings(path) == (0, 1)
    sink(new_keys(3), 3)
    sink.wait()
    assert clusterings(path) == (1, 0)
    assert rows(path) == expected(4)


def test_what_a_driver_has_left_is_executed_by_the_next_one(cluster, path):
    """Its first batch changes rows of the plan: it would be refused for ever."""
    cluster.failures = 1
    dying = sink_of(path)
    for batch in range(3):
        dying(with_a_shared_key(batch), batch)
    dying.wait()
    assert clusterings(path) == (0, 1)
    sink_of(path)(with_a_shared_key(3), 3)
    assert clusterings(path) == (1, 0)
    assert rows(path) == expected(4, shared=3)


def test_a_batch_that_no_clustering_sets_free_fails_by_its_tries(cluster, path):
    cluster.failures = 9
    sink = sink_of(path, **{"hoodie.datasource.write.streaming.retry.count": "2"})
    for batch in range(3):
        sink(with_a_shared_key(batch), batch)
    sink.wait()
    with pytest.raises(CommitConflict, match="clustering"):
        sink(with_a_shared_key(3), 3)
    assert cluster.runs == 3  # beside the third batch, and before either try of the fourth ends
    assert rows(path) == expected(3, shared=2)


def test_a_replacement_of_all_rows_waits_for_it(cluster, path, monkeypatch):
    sink = sink_of(path)
    at_work(cluster, sink)
    replacing = StreamSink(path, "complete", OPTIONS, "q")
    wait = sink._beside.wait
    monkeypatch.setattr(sink._beside, "wait", lambda: (cluster.gate.set(), wait()))
    replacing._beside = sink._beside
    replacing(new_keys(7), 7)
    assert clusterings(path) == (1, 0)
    assert rows(path) == [("7-0", 7), ("7-1", 7), ("7-2", 7)]


def test_the_older_name_is_the_same_option(cluster, path):
    older = {name: value for name, value in OPTIONS.items() if name != ASYNC}
    assert StreamSink(path, "append", {**older, "hoodie.datasource.clustering.async.ENABLE": "True"}, "q").clusters
    with pytest.raises(InvalidInputError, match="given twice"):
        StreamSink(path, "append", {**OPTIONS, "hoodie.datasource.clustering.async.enable": "false"}, "q")
    with pytest.raises(UnknownSetting, match="takes true or false"):
        sink_of(path, **{ASYNC: "often"})


def test_a_write_that_is_no_stream_plans_none(cluster, path):
    for batch in range(5):
        write_frame(new_keys(batch), path, "append", commit_metadata={}, **OPTIONS_OF_BATCHES)
    assert clusterings(path) == (0, 0)


OPTIONS_OF_BATCHES = {name: value for name, value in OPTIONS.items() if ".streaming." not in name}
