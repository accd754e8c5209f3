"""A batch is written once: what labels say, how they are stored, and where they are found."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.errors import CorruptFile, InvalidInputError, UnknownSetting
from lakefmt.spark.streams.sink import (
    CHECKPOINT,
    QUERY,
    BatchLabel,
    BatchStep,
    SinkOptions,
    StreamSink,
    choose_batch,
    choose_step,
    decode_label,
    encode_label,
    list_labels,
    query_of_batch,
    take_sink_options,
)

STREAMING = "hoodie.datasource.write.streaming."
QUERIES = st.sampled_from(["q", "r", None])
LABELS = st.builds(BatchLabel, st.integers(0, 9), QUERIES)


@given(st.text(min_size=1), LABELS)
def test_labels_survive_a_commit(identifier, label):
    assert decode_label(identifier, encode_label(identifier, label)) == label
    assert decode_label(identifier + "x", encode_label(identifier, label)) is None


def test_other_entries_of_a_commit_are_no_labels():
    assert decode_label("a", {"schema": "{}"}) is None
    assert decode_label("a", {CHECKPOINT: ""}) is None


@pytest.mark.parametrize("entry", ['{"a": "x"}', '{"a": ""}', "[1]", "{", '{"a": "' + "9" * 30 + '"}'])
def test_a_damaged_label_is_an_error(entry):
    with pytest.raises(CorruptFile, match=CHECKPOINT):
        decode_label("a", {CHECKPOINT: entry})


@given(st.lists(st.tuples(st.sampled_from(["q", "r"]), st.sampled_from(["run", "crash"])), max_size=30))
def test_every_batch_of_every_query_is_committed_once(runs):
    """However queries take turns, and whatever crash leaves a batch to be run again: one commit for each batch."""
    commits: list[BatchLabel] = []
    done = {"q": 0, "r": 0}  # what Spark's own log says
    for query, end in runs:
        if choose_step(reversed(commits), query, done[query]) is not BatchStep.SKIP:
            commits.append(BatchLabel(done[query], query))
        if end == "run":
            done[query] += 1
    assert len(set(commits)) == len(commits)
    for query, batches in done.items():
        assert {label.batch for label in commits if label.query == query}.issuperset(range(batches))


@given(st.lists(LABELS, max_size=6), st.integers(0, 9))
def test_a_commit_of_hudi_counts_for_every_query(labels, batch):
    newest = [BatchLabel(batch, None), *labels]
    assert choose_step(newest, "q", batch) is BatchStep.SKIP
    assert choose_step(newest, "q", batch + 1) is BatchStep.WRITE


def test_what_sinks_are_told():
    told = {
        "checkpointLocation": "/c",
        STREAMING.upper() + "CHECKPOINT.IDENTIFIER": "a",
        STREAMING + "ignore.failed.batch": "TRUE",
        STREAMING + "disable.compaction": "true",
    }
    assert take_sink_options(told) == (SinkOptions("a", ignore_failed=True, compacts=False), {})
    assert take_sink_options({})[0] == SinkOptions()


@pytest.mark.parametrize(
    ("name", "value"),
    [("retry.count", "many"), ("retry.interval.ms", "-1"), ("ignore.failed.batch", "1"), ("checkpoint.identifier", "")],
)
def test_values_that_an_option_does_not_take(name, value):
    with pytest.raises(UnknownSetting, match=name):
        take_sink_options({STREAMING + name: value})


def test_a_sink_refuses_before_the_stream_begins():
    with pytest.raises(InvalidInputError, match="output mode"):
        StreamSink("memory://sink", "replace", {})
    with pytest.raises(UnknownSetting, match=r"operatoin.*did you mean"):
        StreamSink("memory://sink", "append", {"hoodie.datasource.write.operatoin": "upsert"})


# ---------------------------------------------------------------------------------------------------- in a table


def table_with(tmp_path, *labels: BatchLabel | None, **options: object) -> lakefmt.Table:
    """Return a table with one commit for each label."""
    rows = pa.table({"id": ["a"], "ts": [1]})
    table = lakefmt.create_table(tmp_path, data=rows, record_key="id", ordering="ts")
    for label in labels:
        table.upsert(rows, commit_metadata={} if label is None else encode_label("s", label), options=options)
    return table


def test_labels_are_found_newest_first_beside_other_commits(tmp_path):
    table = table_with(tmp_path, BatchLabel(0, "q"), None, BatchLabel(1, "q"), None)
    assert list(list_labels(table.client, "s")) == [BatchLabel(1, "q"), BatchLabel(0, "q")]
    assert list(list_labels(table.client, "t")) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
def test_labels_are_found_in_the_archive(tmp_path, version):
    rows = pa.table({"id": ["a"], "ts": [1]})
    table = lakefmt.create_table(tmp_path, data=rows, record_key="id", ordering="ts", table_version=version)
    small = {
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.clean.commits.retained": 2,
        "hoodie.archive.automatic": True,
    }
    table.upsert(rows, commit_metadata=encode_label("s", BatchLabel(7, "q")), options=small)
    for _ in range(8):
        table.upsert(rows, options=small)
    active = table.client.load().timeline.commits
    assert all(not table.client.at(table.client.load()).commit_metadata(i).extra_metadata.get(QUERY) for i in active)
    assert list(list_labels(table.client, "s")) == [BatchLabel(7, "q")]


def test_another_query_is_told_of_and_written(tmp_path, caplog):
    table_with(tmp_path, BatchLabel(5, "q"))
    call = StreamSink(str(tmp_path), "append", {})._call()
    with caplog.at_level(logging.WARNING, "lakefmt.spark"):
        assert choose_batch(str(tmp_path), call, "s", BatchLabel(0, "other"))
    assert "another query wrote batch 0" in caplog.text
    assert not choose_batch(str(tmp_path), call, "s", BatchLabel(5, "q"))
    assert choose_batch(str(tmp_path), call, "s", BatchLabel(6, "q"))
    assert choose_batch(str(tmp_path / "none"), call, "s", BatchLabel(0, "q"))


# ---------------------------------------------------------------------------------------------------- tries


class Frame:
    """Stands in for a batch; the write is replaced, too."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def isEmpty(self) -> bool:
        return False


@pytest.fixture
def tries(monkeypatch):
    """Let writes fail as often as the list says, and note what was done."""
    told: list[str] = []

    def write(df, path, mode, **options):
        told.append("write")
        if told.count("write") <= failures[0]:
            raise OSError("no space")

    failures = [0]
    monkeypatch.setattr("lakefmt.spark.streams.sink.write_dataframe", write)
    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", lambda *_, **__: None)
    monkeypatch.setattr("lakefmt.spark.streams.sink.existing_table", lambda *_: None)
    monkeypatch.setattr("lakefmt.spark.streams.sink.choose_batch", lambda *_: told.append("look") or True)
    return told, failures


def sink_of(told, **options: str) -> StreamSink:
    sink = StreamSink("memory://tries", "append", {STREAMING + n.replace("_", "."): v for n, v in options.items()}, "q")
    sink._sleep = lambda seconds: told.append(f"sleep {seconds}")
    return sink


def test_a_failed_batch_is_looked_for_before_it_is_tried_again(tries):
    told, failures = tries
    failures[0] = 2
    sink_of(told)(Frame(), 0)
    assert told == ["look", "write", "sleep 2.0", "look", "write", "sleep 4.0", "look", "write"]


def test_later_batches_of_a_query_need_no_look(tries):
    told, _ = tries
    sink = sink_of(told)
    sink(Frame(), 4)
    sink(Frame(), 5)
    assert told == ["look", "write", "write"]


def test_a_batch_that_fails_every_time_stops_the_query_unless_it_is_left_out(tries):
    told, failures = tries
    failures[0] = 9
    with pytest.raises(OSError, match="no space"):
        sink_of(told, retry_count="2", retry_interval_ms="0")(Frame(), 0)
    assert told.count("write") == 2
    sink_of(told, retry_count="1", ignore_failed_batch="true")(Frame(), 0)
    assert told.count("write") == 3


# ---------------------------------------------------------------------------------------------------- shared sinks


class Session:
    """Tells the query and the run, as Spark does in the thread that runs a batch."""

    def __init__(self, query: str, run: str) -> None:
        self._sc = self
        self._told = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}

    def getLocalProperty(self, name: str) -> str | None:
        return self._told.get(name)


class BatchOfQuery(Frame):
    def __init__(self, query: str, run: str) -> None:
        self.sparkSession = Session(query, run)


@pytest.fixture
def labels_written(monkeypatch):
    """Let a list of labels stand for the table."""
    written: list[BatchLabel] = []

    def write(df, path, mode, *, commit_metadata, **_):
        written.append(decode_label("default_single_writer", commit_metadata))

    def choose(path, call, identifier, label):
        return choose_step(reversed(written), label.query, label.batch) is not BatchStep.SKIP

    monkeypatch.setattr("lakefmt.spark.streams.sink.write_dataframe", write)
    monkeypatch.setattr("lakefmt.spark.streams.sink.write_few_rows", lambda *_, **__: None)
    monkeypatch.setattr("lakefmt.spark.streams.sink.existing_table", lambda *_: None)
    monkeypatch.setattr("lakefmt.spark.streams.sink.choose_batch", choose)
    return written


TURNS = st.lists(
    st.tuples(st.sampled_from(["q", "r", "s"]), st.sampled_from(["shared", "own"]), st.integers(0, 3), st.booleans()),
    max_size=12,
)


@given(turns=TURNS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_queries_that_share_a_sink_commit_every_batch_once(labels_written, turns):
    """Whichever queries run by one sink or by one of their own, a few batches at a time, and whatever crash repeats a batch."""
    labels_written.clear()
    shared, done = StreamSink("memory://shared", "append", {}), {"q": 0, "r": 0, "s": 0}
    for run, (query, owner, batches, crashes) in enumerate(turns):
        sink = shared if owner == "shared" else StreamSink("memory://shared", "append", {})
        for number in range(batches):
            sink(BatchOfQuery(query, f"run {run}"), done[query])
            if not (crashes and number == batches - 1):  # else the table has the batch, and Spark's log does not say so
                done[query] += 1
    assert len(set(labels_written)) == len(labels_written)
    for query, count in done.items():
        assert {label.batch for label in labels_written if label.query == query}.issuperset(range(count))


def test_queries_that_run_at_the_same_time_share_a_sink(labels_written):
    sink = StreamSink("memory://shared", "append", {})
    for number in range(3):
        for query in ("q", "r"):
            sink(BatchOfQuery(query, f"run of {query}"), number)
    assert labels_written == [BatchLabel(number, query) for number in range(3) for query in ("q", "r")]


def test_a_folder_of_a_query_that_does_not_run_is_refused():
    """On Connect the folder alone tells the query, so a second query by the same function would count as the first."""

    class OnConnect:
        def __init__(self, *active: str) -> None:
            self.read = self.streams = self
            self.active = [SimpleNamespace(id=query) for query in active]

        def text(self, path: str) -> OnConnect:
            assert path == "/c/metadata"
            return self

        def collect(self) -> list[tuple[str]]:
            return [('{"id":"q"}',)]

    assert query_of_batch(SimpleNamespace(sparkSession=OnConnect("r", "q")), "/c/") == "q"
    with pytest.raises(InvalidInputError, match="the folder of query q, which does not run"):
        query_of_batch(SimpleNamespace(sparkSession=OnConnect("r")), "/c")
