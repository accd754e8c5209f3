"""The checkpoint of a job: where it lies, which one counts, resets, and two processes of one job."""

from __future__ import annotations

import collections
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.ingest.sink as sinks
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.ingest.api import (
    DETAILS,
    Checkpoint,
    CheckpointFinder,
    StoredCheckpoint,
    checkpoint_entries,
    decode_checkpoint,
    resume_point,
)
from lakefmt._core.ingest.sink import JobSink
from lakefmt._core.table import Table
from lakefmt.errors import CheckpointMoved, CorruptFile, InstantNotPending, LakefmtError, SourceRefused
from lakefmt.testing.stores import WatchStore
from tests.example_counts import examples
from tests.ingest.ingest_kit import FAST, NOW, commits_of, extra_of, ingest, job, rows_of, write_rows

V1, V1_RESET = "deltastreamer.checkpoint.key", "deltastreamer.checkpoint.reset_key"
V2, V2_RESET = "streamer.checkpoint.key.v2", "streamer.checkpoint.reset.key.v2"
IGNORE = "deltastreamer.checkpoint.ignore_key"
DATA = pa.table({"id": ["z"], "n": [0]})
BESIDE = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.parquet.small.file.limit": 0,
}


@pytest.mark.parametrize(
    ("extra", "text", "reset", "version"),
    [
        ({V1: "5"}, "5", None, 1),
        ({V2: "5"}, "5", None, 2),
        ({V1: "4", V2: "5"}, "5", None, 2),
        ({V1: "4", V2_RESET: "5"}, None, "5", 2),
        ({V1_RESET: "5"}, None, "5", 1),
        ({V1: "5", V1_RESET: "3", V2: "", V2_RESET: ""}, "5", "3", 1),
    ],
)
def test_the_second_generation_of_keys_is_asked_first(extra, text, reset, version):
    found = decode_checkpoint(extra)
    assert found is not None
    assert (found.text, found.reset, found.version) == (text, reset, version)


@pytest.mark.parametrize("extra", [{}, {V1: ""}, {"schema": "{}"}, {IGNORE: "x"}])
def test_a_commit_without_a_text_says_nothing(extra):
    assert decode_checkpoint(extra) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"details": 1}', '{"details": {"a": 1}}'])
def test_details_that_are_damaged_are_an_error(text):
    with pytest.raises(CorruptFile, match="damaged"):
        decode_checkpoint({V1: "5", DETAILS: text})


def test_details_of_another_checkpoint_are_not_used():
    stale = json.dumps({"checkpoint": "4", "details": {"files": "x"}})
    found = decode_checkpoint({V1: "5", DETAILS: stale})
    assert found is not None
    assert found.details == {}


def test_entries_are_read_as_they_were_written():
    entries = checkpoint_entries(Checkpoint("7", {"a": "b"}), reset="1", ignore="2", version=2)
    found = decode_checkpoint(entries)
    assert found == StoredCheckpoint("7", {"a": "b"}, "1", "2", 2)


@pytest.mark.parametrize(
    ("stored", "reset", "ignore", "text"),
    [
        (None, None, None, None),
        (None, "5", None, "5"),
        (StoredCheckpoint("9", {}), None, None, "9"),
        (StoredCheckpoint("9", {}), "5", None, "5"),
        (StoredCheckpoint("9", {}, reset="5"), "5", None, "9"),
        (StoredCheckpoint("9", {}, reset="5"), "6", None, "6"),
        (StoredCheckpoint("9", {}), None, "a", None),
        (StoredCheckpoint("9", {}, ignore="a"), None, "a", "9"),
        (StoredCheckpoint("9", {}, ignore="a"), None, "b", None),
        (StoredCheckpoint(None, {}, reset="5"), "5", None, "5"),
    ],
)
def test_a_reset_is_followed_once(stored, reset, ignore, text):
    point = resume_point(stored, reset, ignore)
    assert (None if point is None else point.text) == text


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_checkpoint_is_in_the_commit_by_the_first_generation_of_keys(tmp_path, version, table_type):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    how = {"table_version": version, "table_type": table_type}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert extra_of(tmp_path / "t")[V1] == str(int((NOW - 50) * 1000))
    assert V2 not in extra_of(tmp_path / "t")
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 0
    assert commits_of(tmp_path / "t") == 1
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 40)
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.parametrize("keys", [{V2: "{}"}, {V1: "{}"}, {V1_RESET: "{}"}, {V2_RESET: "{}"}])
def test_a_job_goes_on_behind_each_kind_of_checkpoint(tmp_path, keys):
    """What Hudi 0.14, 1.0 and 1.2 leave."""
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 40)
    table = lakefmt.create_table(str(tmp_path / "t"), schema=DATA.schema, record_key="id")
    at = str(int((NOW - 50) * 1000))
    table.upsert(DATA, commit_metadata={name: text.format(at) if text != "{}" else at for name, text in keys.items()})
    table.upsert(DATA)  # another writer's commit does not hide it
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    assert [row["id"] for row in rows_of(tmp_path / "t")] == ["b", "z"]


def test_of_a_merge_on_read_table_compactions_do_not_count(tmp_path):
    table = lakefmt.create_table(str(tmp_path / "t"), schema=DATA.schema, record_key="id", table_type="mor")
    table.upsert(DATA, commit_metadata={V1: "5"})
    client = table.client
    assert CheckpointFinder().find(client.at(client.load())).text == "5"


def test_a_checkpoint_that_was_archived_is_found(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    table = lakefmt.open_table(str(tmp_path / "t"), options=FAST)
    for n in range(4):
        table.upsert(pa.table({"id": ["z"], "n": [n]}))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.archive(
        options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    )
    client = lakefmt.open_table(str(tmp_path / "t")).client
    assert V1 not in {
        n for i in client.load().timeline.commits for n in client.at(client.load()).commit_metadata(i).extra_metadata
    }
    assert ingest(tmp_path / "in", tmp_path / "t") == 0
    assert commits_of(tmp_path / "t") < 5


def test_a_checkpoint_of_kafka_is_refused_for_files(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=DATA.schema, record_key="id")
    table.upsert(DATA, commit_metadata={V1: "orders,0:5,1:7"})
    with pytest.raises(SourceRefused, match="reads files, and the checkpoint 'orders,0:5,1:7' is one of Kafka"):
        ingest(tmp_path / "in", tmp_path / "t")
    assert commits_of(tmp_path / "t") == 1


def test_a_reset_reads_again_and_the_same_reset_does_nothing(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 40)
    assert ingest(tmp_path / "in", tmp_path / "t") == 2
    reset = str(int((NOW - 50) * 1000))
    assert ingest(tmp_path / "in", tmp_path / "t", checkpoint=reset) == 1
    assert extra_of(tmp_path / "t")[V1_RESET] == reset
    assert ingest(tmp_path / "in", tmp_path / "t", checkpoint=reset) == 0
    assert ingest(tmp_path / "in", tmp_path / "t", checkpoint="0") == 2
    assert ingest(tmp_path / "in", tmp_path / "t", ignore_checkpoint="once") == 2
    assert ingest(tmp_path / "in", tmp_path / "t", ignore_checkpoint="once") == 0
    assert extra_of(tmp_path / "t")[IGNORE] == "once"


def test_a_reset_that_finds_nothing_is_noted(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    later = str(int(NOW * 1000))
    assert ingest(tmp_path / "in", tmp_path / "t", checkpoint=later) == 0
    assert (extra_of(tmp_path / "t")[V1], extra_of(tmp_path / "t")[V1_RESET]) == (later, later)
    before = commits_of(tmp_path / "t")
    assert ingest(tmp_path / "in", tmp_path / "t", checkpoint=later) == 0
    assert commits_of(tmp_path / "t") == before


def test_a_round_without_news_commits_when_asked(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    checkpoint = extra_of(tmp_path / "t")[V1]
    assert ingest(tmp_path / "in", tmp_path / "t", "once", commit_empty=True) == 0
    assert commits_of(tmp_path / "t") == 2
    assert extra_of(tmp_path / "t")[V1] == checkpoint
    assert ingest(tmp_path / "in", tmp_path / "t") == 0


# ------------------------------------------------------------------------------------------------- two processes of a job


def test_two_processes_do_not_commit_one_round(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 10)
    slow = job(tmp_path / "in", tmp_path / "t")
    sink = slow._tables[0].sink
    write = JobSink.write

    def write_late(self, batch, before, entries):
        assert ingest(tmp_path / "in", tmp_path / "t") == 1  # the other process is faster
        return write(self, batch, before, entries)

    sink.write = write_late.__get__(sink)
    with pytest.raises(CheckpointMoved, match="another process moved the checkpoint"):
        slow.run("once")
    assert commits_of(tmp_path / "t") == 2
    assert ingest(tmp_path / "in", tmp_path / "t") == 0
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.slow
def test_a_process_that_sleeps_anywhere_in_its_commit_repeats_nothing(tmp_path, monkeypatch):
    """At every effect of a round another process does the same round; rows without keys would be there twice."""
    open_table = sinks.open_table
    how = {"operation": "insert", "key": (), "settings": {"hoodie.write.lock.wait_time_ms": 20}}

    def sleeps_at(number: int, base: Path) -> bool:
        """Do a round that sleeps at its effect of that number; return whether it had so many."""
        left = [number]

        def at_effect(*_: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                monkeypatch.setattr(sinks, "open_table", open_table)
                with suppress(LakefmtError):  # the sleeping process may hold the lock
                    ingest(base / "in", base / "t", **how)

        def over(*args: Any, **given: Any) -> Table:
            client = open_table(*args, **given).client
            return Table(TableClient(WatchStore(client.store, at_effect), client.options))

        monkeypatch.setattr(sinks, "open_table", over)
        with suppress(CheckpointMoved, InstantNotPending):  # the other one was faster, or took this one for dead
            ingest(base / "in", base / "t", **how)
        monkeypatch.setattr(sinks, "open_table", open_table)
        return left[0] <= 0

    number, woke = 0, True
    while woke:
        number += 1
        base = tmp_path / str(number)
        write_rows(base / "in/a.jsonl", [{"id": "a", "n": 1}])
        assert ingest(base / "in", base / "t", **how) == 1
        write_rows(base / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 10)
        woke = sleeps_at(number, base)
        ingest(base / "in", base / "t", **how)
        assert rows_of(base / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}], number
    assert number > 5


# ------------------------------------------------------------------------------------------- entries that commits carry on


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_commits_carry_the_keys_of_other_tools_on(tmp_path, table_type):
    prefixes = {"hoodie.write.meta.key.prefixes": "deltastreamer.checkpoint.key, other."}
    table = lakefmt.create_table(str(tmp_path / "t"), schema=DATA.schema, record_key="id", table_type=table_type)
    table.upsert(
        DATA, commit_metadata={V1: "5", DETAILS: '{"checkpoint":"5","details":{}}', "other.a": "x", "third": "y"}
    )
    table.upsert(DATA)
    assert V1 not in extra_of(tmp_path / "t")
    for verb in (
        lambda: table.upsert(DATA, options=prefixes),
        lambda: table.insert(DATA, options=prefixes),
        lambda: table.insert_overwrite_table(DATA, options=prefixes),
    ):
        verb()
        extra = extra_of(tmp_path / "t")
        assert (extra[V1], extra["other.a"], "third" in extra) == ("5", "x", False)
    table.upsert(DATA, commit_metadata={V1: "6"}, options=prefixes)
    assert (extra_of(tmp_path / "t")[V1], extra_of(tmp_path / "t")["other.a"]) == ("6", "x")


def test_services_carry_the_keys_of_other_tools_on(tmp_path):
    prefixes = {"hoodie.write.meta.key.prefixes": V1}
    table = lakefmt.create_table(str(tmp_path / "t"), schema=DATA.schema, record_key="id", table_type="mor")
    for n in range(3):
        table.upsert(pa.table({"id": ["z"], "n": [n]}), commit_metadata={V1: str(n)})
    compacted = lakefmt.open_table(str(tmp_path / "t"), options=prefixes).services.compact()
    assert compacted is not None
    assert extra_of(tmp_path / "t")[V1] == "2"


def test_the_checkpoint_survives_many_commits_of_others_for_a_tool_that_looks_at_one(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    how = {"settings": {"hoodie.write.meta.key.prefixes": V1}}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    checkpoint = dict(extra_of(tmp_path / "t"))
    table = lakefmt.open_table(str(tmp_path / "t"), options={**FAST, **how["settings"]})
    for n in range(5):
        table.upsert(pa.table({"id": ["z"], "n": [n]}))
    assert {name: extra_of(tmp_path / "t")[name] for name in (V1, DETAILS)} == {n: checkpoint[n] for n in (V1, DETAILS)}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 0


ORDERS = st.sampled_from([{}, {"checkpoint": "0"}, {"checkpoint": "7000"}, {"ignore_checkpoint": "once"}])


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    st.sampled_from([6, 9]),
    st.sampled_from(["cow", "mor"]),
    st.lists(st.one_of(st.sampled_from(["file", "carry", "archive"]), ORDERS), min_size=5, max_size=10),
)
@example(9, "cow", ["file", {"checkpoint": "0"}, "carry", {"checkpoint": "0"}])
@example(9, "mor", ["file", {"ignore_checkpoint": "once"}, *["carry"] * 5, "archive", {"ignore_checkpoint": "once"}])
def test_a_reset_is_followed_once_whoever_carries_the_checkpoint_on(
    version: int, table_type: str, acts: list[Any]
) -> None:
    """A dictionary says how often each row was read: all rows behind the job's place, and its orders once each."""
    options = {**FAST, "hoodie.write.meta.key.prefixes": V1, "hoodie.clean.automatic": False}
    how: dict[str, Any] = {"operation": "insert", "key": (), "table_version": version, "table_type": table_type}
    counts, modified = dict[str, int](), dict[str, int]()
    place, noted = -1, dict[str, str]()
    with TemporaryDirectory() as folder:
        path, source = Path(folder) / "t", Path(folder) / "in"
        for number, act in enumerate(acts, 1):
            if act == "file":
                modified[f"r{number}"] = number * 1000
                write_rows(source / f"{number}.jsonl", [{"id": f"r{number}", "n": 1}], number)
            elif isinstance(act, dict) and modified:
                news = {name: order for name, order in act.items() if noted.get(name) != order}
                begin = -1 if "ignore_checkpoint" in news else int(news.get("checkpoint", place))
                rows = [row for row, time in modified.items() if time > begin]
                assert ingest(source, path, settings=options, **how, **act) == len(rows)
                for row in rows:
                    counts[row] = counts.get(row, 0) + 1
                if rows or news:
                    place, noted = max([begin, *(modified[row] for row in rows)]), act
            elif act == "carry" and counts:
                lakefmt.open_table(path, options=options).append(pa.table({"id": ["other"], "n": [0]}))
            elif act == "archive" and counts:
                kept = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
                lakefmt.open_table(path, options=options).archive(options=kept)
        found = collections.Counter(row["id"] for row in rows_of(path)) if counts else {}
        assert {row: number for row, number in found.items() if row != "other"} == counts


def test_a_checkpoint_is_not_carried_on_beside_a_newer_one_of_another_generation(tmp_path):
    options = {**FAST, "hoodie.write.meta.key.prefixes": f"{V1},{V2}"}
    followed = lakefmt.create_table(tmp_path / "followed", schema=DATA.schema, record_key="id", options=FAST)
    followed.upsert(DATA)
    assert ingest(tmp_path / "followed", tmp_path / "t", source_kind="table", settings=options) == 1
    assert V2 in extra_of(tmp_path / "t")
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t", settings=options, ignore_checkpoint="files from now on") == 1
    for number in range(2):
        lakefmt.open_table(tmp_path / "t", options=options).upsert(DATA)
        write_rows(tmp_path / f"in/{number}.jsonl", [{"id": f"{number}", "n": 1}], NOW - 40 + number)
        assert ingest(tmp_path / "in", tmp_path / "t", settings=options) == 1
        assert V1 in extra_of(tmp_path / "t")


@pytest.mark.parametrize("version", [6, 8])
def test_a_finder_looks_again_at_what_may_come_before_the_newest_commit(version):
    """Of version 6 a commit that began earlier and ends later comes before the newest one."""
    url, beside = f"memory://finder-{version}", {**FAST, **BESIDE}
    table = lakefmt.create_table(url, schema=DATA.schema, table_version=version, options=beside)
    table.insert(DATA, commit_metadata={V1: "1"})
    finder = CheckpointFinder()
    slow = lowlevel.begin_write(table, "insert", commit_metadata={V1: "2"})
    written = [lowlevel.write_files(slow, each, rows) for each, rows in lowlevel.assign(slow, DATA)]
    table.insert(DATA)
    told = list[str | None]()
    for _ in range(2):
        found = finder.find(table.client.at(table.client.load()))
        told.append(None if found is None else found.text)
        if len(told) == 1:
            lowlevel.commit(slow, written)
    assert told == ["1", "2"]
