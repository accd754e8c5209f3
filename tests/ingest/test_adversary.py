"""What an adversary tried: rows that could be lost, doubled or changed between a source and its table."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import sqlite3
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.ingest.files as file_sources
import lakefmt._core.ingest.folders as listing
from lakefmt._core.ingest.api import RoundRows, SourceBatch
from lakefmt._core.ingest.sink import JobSink
from lakefmt._core.ingest.transforms import _has_try, _Sql
from lakefmt._core.storage.open import open_store
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import InvalidInputError, LakefmtError, PositionLost, SourceRefused, UnknownSetting
from tests.example_counts import examples
from tests.ingest.ingest_kit import NOW, ingest, job, rows_of, write_rows
from tests.ingest.test_jobs import Scripted, kinds
from tests.ingest.test_other_sources import make

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
NUMBERS = itertools.count()


# ---------------------------------------------------------------------------------------------------------------- files


def test_late_files_that_wait_for_a_later_round_are_not_forgotten(tmp_path, monkeypatch):
    """A limit parts late files, and more digests than a commit keeps lie behind them."""
    monkeypatch.setattr(file_sources, "_MOST_REMEMBERED", 3)
    for n in range(3):
        write_rows(tmp_path / f"in/new{n}.jsonl", [{"id": f"new{n}"}], NOW - 50 + n)
    ingest(tmp_path / "in", tmp_path / "t")
    for n in range(4):
        write_rows(tmp_path / f"in/late{n}.jsonl", [{"id": f"late{n}"}], NOW - 90 + n)
    ingest(tmp_path / "in", tmp_path / "t", source_limit=1)
    assert len(rows_of(tmp_path / "t")) == 7


def test_a_link_to_a_folder_above_is_not_followed_round_and_round(tmp_path):
    write_rows(tmp_path / "in/deep/a.jsonl", [{"id": "a"}])
    os.symlink(tmp_path / "in", tmp_path / "in/deep/loop")
    assert ingest(tmp_path / "in", tmp_path / "t", key=(), operation="insert") == 1


@pytest.mark.parametrize("name", ["gz", "bz2", "xz", "zst", "lz4"])
def test_compressed_text_that_is_cut_off_gives_no_rows(tmp_path, name):
    text = "".join(f'{{"id": "k{n}"}}\n' for n in range(20_000)).encode()
    if name == "gz":
        data = gzip.compress(text)
    elif name == "bz2":
        data = bz2.compress(text)
    elif name == "xz":
        data = lzma.compress(text)
    else:
        with pa.BufferOutputStream() as sink:
            with pa.CompressedOutputStream(sink, {"zst": "zstd", "lz4": "lz4"}[name]) as file:
                file.write(text)
            data = sink.getvalue().to_pybytes()
    path = tmp_path / f"in/a.jsonl.{name}"
    path.parent.mkdir()
    for cut in (1, 2, 4, 5, 8, 9, len(data) // 3, len(data) // 2, len(data) - 20):
        path.write_bytes(data[: len(data) - cut])
        os.utime(path, (NOW - 100, NOW - 100))
        with pytest.raises(LakefmtError):
            ingest(tmp_path / "in", tmp_path / f"t{cut}")
    path.write_bytes(data + data)  # members one after the other are one file
    os.utime(path, (NOW - 100, NOW - 100))
    assert ingest(tmp_path / "in", tmp_path / "t", key=(), operation="insert") == 40_000


def test_text_that_is_no_utf8_is_rejected(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b'{"id": "a"}\n{"id": "\xff\xfe"}\n')
    os.utime(tmp_path / "in/a.jsonl", (NOW - 100, NOW - 100))
    with pytest.raises(LakefmtError):
        ingest(tmp_path / "in", tmp_path / "t")


class SecondsInAnswers:
    """A store whose listing has milliseconds, and whose answer for one object has seconds, as some S3 stores have it."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def list(self):
        for info in self._store.list():
            yield type(info)(info.name, info.size, NOW - 100 + 0.123)

    def info(self, name):
        info = self._store.info(name)
        return type(info)(info.name, info.size, NOW - 100)


def test_a_store_that_tells_seconds_of_one_object_and_milliseconds_of_a_listing_loses_nothing(tmp_path, monkeypatch):
    store = open_store("memory://adversary-seconds")
    store.put("a.jsonl", b'{"id": "a"}\n')
    monkeypatch.setattr(listing, "open_store", lambda url, options=None: SecondsInAnswers(store))
    assert ingest("memory://adversary-seconds", tmp_path / "t", min_age=0) == 1
    assert ingest("memory://adversary-seconds", tmp_path / "t", min_age=0) == 0


def test_one_table_is_not_fed_from_two_folders(tmp_path):
    """Their times would hide files of one behind those of the other."""
    write_rows(tmp_path / "one/a.jsonl", [{"id": "a"}], NOW - 50)
    write_rows(tmp_path / "two/b.jsonl", [{"id": "b"}], NOW - 50_000)
    ingest(tmp_path / "one", tmp_path / "t")
    with pytest.raises(SourceRefused, match="of another source"):
        ingest(tmp_path / "two", tmp_path / "t")
    assert ingest(f"{tmp_path}/one/", tmp_path / "t") == 0


# --------------------------------------------------------------------------------------------------------- rejected rows


def test_rejected_rows_of_two_rounds_at_one_time_are_both_kept(tmp_path):
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": -1}, {"id": "ok", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t", **how)
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": -2}])
    ingest(tmp_path / "in", tmp_path / "t", **how)
    assert sorted(row["payload"] for row in rows_of(tmp_path / "e", ["payload"])) == [
        b'{"id": "a", "n": -1}',
        b'{"id": "b", "n": -2}',
    ]


def test_rejected_rows_of_two_jobs_with_one_source_are_both_kept(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": -1}, {"id": "b", "n": 1}])
    for name, check in (("t", "n > 0"), ("u", "n < 0")):
        how = {"checks": {"c": check}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
        ingest(tmp_path / "in", tmp_path / name, **how)
    assert len(rows_of(tmp_path / "e")) == 2


def test_rejected_rows_of_a_round_that_died_and_grew_are_kept_once(tmp_path, monkeypatch):
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": -1}])
    with monkeypatch.context() as patched:
        patched.setattr(JobSink, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ingest(tmp_path / "in", tmp_path / "t", **how)
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": -2}, {"id": "c", "n": 1}], NOW - 50)
    ingest(tmp_path / "in", tmp_path / "t", **how)
    assert len(rows_of(tmp_path / "e")) == 2


# ------------------------------------------------------------------------------------------------------------- transforms


def test_sql_keeps_the_order_of_rows_with_and_without_kinds(tmp_path):
    plain = SourceBatch(pa.RecordBatch.from_pylist([{"id": "a", "n": 1}, {"id": "b", "n": 1}]))
    again = SourceBatch(pa.RecordBatch.from_pylist([{"id": "b", "n": 3}]))
    source = Scripted([[plain, kinds([{"id": "a", "n": 1}, {"id": "b", "n": 2}], [3, 2]), again]])
    job(source, tmp_path / "t", transformers=["SELECT * FROM <SRC>"]).run("until_idle")
    assert rows_of(tmp_path / "t") == [{"id": "b", "n": 3}]


def test_filter_dupes_takes_a_key_that_comes_twice_in_a_round_once(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}, {"id": "a", "n": 2}])
    ingest(tmp_path / "in", tmp_path / "t", filter_dupes=True)
    assert len(rows_of(tmp_path / "t")) == 1


# ----------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("version", [6, 8])
def test_a_row_that_a_filter_no_longer_lets_through_leaves_the_table_that_follows(tmp_path, version):
    bronze = make(tmp_path / "bronze", table_version=version)
    how = {"source_kind": "table", "transformers": ["SELECT * FROM <SRC> WHERE n > 0"], "table_version": version}
    bronze.upsert([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.upsert([{"id": "a", "n": -1}, {"id": "b", "n": 2}])
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert rows_of(tmp_path / "silver") == [{"id": "b", "n": 2}]


def test_sql_over_an_increment_is_run_for_each_kind_of_rows_and_not_for_each_row(tmp_path, monkeypatch):
    bronze = make(tmp_path / "bronze")
    bronze.upsert([{"id": f"{n:03}", "n": n} for n in range(0, 300, 2)])
    how = {"source_kind": "table", "transformers": ["SELECT * FROM <SRC>"]}
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.upsert([{"id": f"{n:03}", "n": -n} for n in range(300)])  # every second one is new
    asked = list[int]()
    ask = _Sql._query
    monkeypatch.setattr(_Sql, "_query", lambda query, *arguments: asked.append(1) or ask(query, *arguments))
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert len(asked) <= 4
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_whose_partition_changes_is_not_doubled_in_the_table_that_follows(tmp_path, table_type):
    bronze = make(tmp_path / "bronze")
    how = {"source_kind": "table", "partition_by": ["n"], "table_type": table_type}
    bronze.upsert([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.upsert([{"id": "a", "n": 2}])
    bronze.upsert([{"id": "a", "n": 3}, {"id": "b", "n": 2}])
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


@pytest.mark.parametrize(("before", "after"), [("x", "y"), ("y", "x")])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_moves_between_partitions_of_the_source_is_not_lost(tmp_path, before, after, table_type):
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
    bronze = lakefmt.create_table(
        str(tmp_path / "bronze"),
        schema=schema,
        record_key="id",
        partition_by="p",
        index="global_bloom",
        table_type=table_type,
    )
    bronze.upsert([{"id": "a", "p": before, "n": 1}, {"id": "b", "p": after, "n": 1}])
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    bronze.upsert([{"id": "a", "p": after, "n": 2}], options={"hoodie.bloom.index.update.partition.path": "true"})
    assert len(rows_of(tmp_path / "bronze")) == 2
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


def test_a_source_that_was_restored_is_told(tmp_path):
    bronze = make(tmp_path / "bronze")
    first = bronze.upsert([{"id": "a", "n": 1}])
    bronze.savepoint(first.instant)
    bronze.upsert([{"id": "b", "n": 1}])
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    bronze.restore(first.instant)
    bronze.upsert([{"id": "c", "n": 1}])
    with pytest.raises(PositionLost, match="restored"):
        ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_source_whose_newest_commits_were_rolled_back_is_told(tmp_path, version):
    """Rows that were taken are no more; a checkpoint that was archived, or is of another version, is none of that kind."""
    bronze = make(tmp_path / "bronze", table_version=version)
    how = {"source_kind": "table", "table_version": version}
    for n in range(6):
        last = bronze.upsert([{"id": "a", "n": n}])
        if n == 1:
            ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.archive(
        options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    )
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze") == [{"id": "a", "n": 5}]
    bronze.upgrade(9)
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.rollback(last)
    bronze.upsert([{"id": "c", "n": 1}])
    with pytest.raises(PositionLost, match="rolled back"):
        ingest(tmp_path / "bronze", tmp_path / "silver", **how)


# ---------------------------------------------------------------------------------------------------------------- queries


def log_of(path, *rows):
    connection = sqlite3.connect(path)
    connection.execute("create table if not exists log (word text, changed integer)")
    connection.executemany("insert into log values (?, ?)", rows)
    connection.commit()
    connection.close()


def pull_log(base, **more):
    how = {"source_kind": "query", "query.table": "log", "query.column": "changed", "key": (), "operation": "insert"}
    return ingest(f"sqlite:{base}/db", base / "t", **{**how, **more})


def words_of(base):
    return Counter(row["word"] for row in rows_of(base / "t", ["word"]))


def test_an_equal_row_that_comes_later_is_another_row(tmp_path):
    log_of(tmp_path / "db", ("x", 1), ("x", 1))
    pull_log(tmp_path)
    log_of(tmp_path / "db", ("x", 1))
    assert pull_log(tmp_path) == 1
    assert words_of(tmp_path) == {"x": 3}


def test_many_equal_rows_and_a_small_limit_do_not_hold_up_the_rest(tmp_path):
    log_of(tmp_path / "db", *[("x", 1)] * 5)
    pull_log(tmp_path, source_limit=1)
    log_of(tmp_path / "db", ("y", 2))
    assert pull_log(tmp_path, source_limit=1) == 1
    assert words_of(tmp_path) == {"x": 5, "y": 1}


def test_rows_without_a_value_in_the_column_that_grows_are_told(tmp_path):
    log_of(tmp_path / "db", ("x", 1), ("y", None))
    with pytest.raises(SourceRefused, match="no value"):
        pull_log(tmp_path)
    assert pull_log(tmp_path, **{"query.nulls": "skip"}) == 1


def connect_memoryviews():
    class Cursor:
        description = (("id",), ("blob",), ("changed",))

        def __init__(self):
            self._rows = []

        def execute(self, sql, _values):
            row = ("a", memoryview(b"1"), 5)
            self._rows = [(5, 1)] if sql.startswith("SELECT max") else [] if "IS NULL" in sql else [row]

        def fetchone(self):
            return self._rows.pop(0) if self._rows else None

        def fetchmany(self, _count):
            rows, self._rows = self._rows, []
            return rows

    class Connection:
        cursor = staticmethod(Cursor)

        def close(self):
            pass

    return Connection()


def test_values_without_a_text_of_their_own_are_told_apart(tmp_path):
    how = {"source_kind": "query", "query.table": "t", "query.column": "changed"}
    source = "tests.ingest.test_adversary:connect_memoryviews"
    first = ingest(source, tmp_path / "t", **how)
    assert (first, ingest(source, tmp_path / "t", **how)) == (1, 0)


def test_rows_that_come_behind_larger_values_are_taken_within_the_lateness(tmp_path):
    log_of(tmp_path / "db", ("a", 10), ("b", 20))
    how = {"query.late": "5"}
    assert pull_log(tmp_path, **how) == 2
    log_of(tmp_path / "db", ("late", 15), ("too late", 14), ("c", 22))
    assert pull_log(tmp_path, source_limit=1, **how) == 2
    log_of(tmp_path / "db", ("late", 18), ("late", 17), ("late", 17), ("too late", 16))
    assert pull_log(tmp_path, **how) == 3
    assert pull_log(tmp_path, **how) == 0
    assert words_of(tmp_path) == {"a": 1, "b": 1, "c": 1, "late": 4}


def test_a_larger_lateness_takes_nothing_twice(tmp_path):
    log_of(tmp_path / "db", ("a", 10), ("b", 20))
    pull_log(tmp_path)
    assert pull_log(tmp_path, **{"query.late": "50"}) == 0
    with pytest.raises(SourceRefused, match="numbers or of times"):
        pull_log(tmp_path, **{"query.column": "word", "query.late": "1", "checkpoint": "a"})


@pytest.mark.parametrize("version", [6, 8])
def test_what_a_slower_writer_of_the_source_commits_later_is_not_lost(tmp_path, version, monkeypatch):
    make(tmp_path / "bronze", table_version=version).upsert([{"id": "a", "n": 1}])
    how = {"source_kind": "table", "table_version": version}
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    side_by_side = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    slow, fast = (lakefmt.open_table(str(tmp_path / "bronze"), options=side_by_side) for _ in range(2))
    write = WriteTransaction.write

    def while_another_commits(self, placed):
        written = write(self, placed)
        monkeypatch.setattr(WriteTransaction, "write", write)
        fast.insert([{"id": "fast", "n": 1}])
        ingest(tmp_path / "bronze", tmp_path / "silver", **how)
        return written

    monkeypatch.setattr(WriteTransaction, "write", while_another_commits)
    slow.insert([{"id": "slow", "n": 1}])
    assert len(rows_of(tmp_path / "bronze")) == 3
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


@pytest.mark.parametrize("version", [6, 8])
def test_a_job_beside_a_faster_writer_that_carries_its_checkpoint_on_takes_nothing_twice(
    tmp_path, version, monkeypatch
):
    beside = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.meta.key.prefixes": "deltastreamer.checkpoint",
        "hoodie.parquet.small.file.limit": "0",
    }
    how = {"operation": "insert", "key": (), "table_version": version, "settings": beside}
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t", **how)
    fast = lakefmt.open_table(str(tmp_path / "t"), options=beside)
    write = WriteTransaction.write

    def while_another_commits(self, placed):
        written = write(self, placed)
        monkeypatch.setattr(WriteTransaction, "write", write)
        fast.insert([{"id": "fast", "n": 1}])
        return written

    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 1}], NOW - 50)
    monkeypatch.setattr(WriteTransaction, "write", while_another_commits)
    ingest(tmp_path / "in", tmp_path / "t", **how)
    ingest(tmp_path / "in", tmp_path / "t", **how)
    assert [row["id"] for row in rows_of(tmp_path / "t", ["id"])] == ["a", "b", "fast"]


# ------------------------------------------------------------------------------------------------------- bounds of a round


def test_a_round_of_a_table_has_whole_commits_of_about_so_many_rows(tmp_path):
    bronze = make(tmp_path / "bronze")
    bronze.upsert([{"id": "0", "n": 0}])
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    for n in range(6):
        bronze.upsert([{"id": f"{n}-{each}", "n": n} for each in range(10)])
    bronze.upsert([{"id": f"big-{each}", "n": 9} for each in range(100)])
    told = list[int]()
    pull = job(tmp_path / "bronze", tmp_path / "silver", source_kind="table", source_limit=25)
    pull._on_round = lambda progress: told.append(progress.tables[0].rows)
    pull.run("until_idle")
    assert np.diff([0, *told]).tolist() == [20, 20, 20, 100, 0]
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


FETCHED = list[int]()


def connect_many():
    """A database of 100,000 rows that counts what it gives away."""

    class Cursor(sqlite3.Cursor):
        def fetchmany(self, size=1):
            rows = super().fetchmany(size)
            FETCHED.append(len(rows))
            return rows

    class Connection(sqlite3.Connection):
        def cursor(self, factory=Cursor):
            return super().cursor(factory)

    connection = sqlite3.connect(":memory:", factory=Connection)
    numbers = "with recursive n(v) as (select 1 union all select v + 1 from n where v < 100000) "
    connection.execute(f"create table big as {numbers} select v as id, v as changed from n")
    return connection


def test_a_query_is_read_page_by_page_and_what_memory_does_not_hold_waits_in_a_file(tmp_path, monkeypatch):
    how = {"source_kind": "query", "query.table": "big", "query.column": "changed", "memory_bytes": 400_000}
    pull = job("tests.ingest.test_adversary:connect_many", tmp_path / "t", **how)
    FETCHED.clear()
    (planned,) = pull.plans()
    assert (planned.expected_rows, FETCHED) == (100_000, [10_000])
    held = list[int]()
    add = RoundRows.add

    def adds(rows, batch):
        add(rows, batch)
        held.append(sum(each.nbytes for each in rows._held))

    monkeypatch.setattr(RoundRows, "add", adds)
    assert pull.run().tables[0].rows == 100_000
    assert max(held) <= 400_000
    assert len(set(lakefmt.open_table(str(tmp_path / "t")).read(columns=["id"])["id"].to_pylist())) == 100_000


# --------------------------------------------------------------------------------------------- where a job begins and waits


def first_place():
    return str(round((NOW - 45) * 1000))


@pytest.mark.parametrize("provider", ["table", "python", "hudi"])
def test_a_table_without_a_checkpoint_begins_where_its_provider_says_and_never_again(tmp_path, provider):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 50)
    other = make(tmp_path / "other")
    other.upsert([{"id": "z", "n": 0}], commit_metadata={"deltastreamer.checkpoint.key": first_place()})
    name = "org.apache.hudi.utilities.checkpointing.InitialCheckpointFromAnotherHoodieTimelineProvider"
    how = {
        "table": {"initial_checkpoint_provider": f"table:{tmp_path}/other"},
        "python": {"initial_checkpoint_provider": "python:tests.ingest.test_adversary:first_place"},
        "hudi": {
            "initial_checkpoint_provider": name,
            "hoodie.streamer.checkpoint.provider.path": str(tmp_path / "other"),
        },
    }[provider]
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 0
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b"}], NOW - 40)
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    other.upsert([{"id": "z", "n": 0}], commit_metadata={"deltastreamer.checkpoint.key": "5"})
    write_rows(tmp_path / "in/c.jsonl", [{"id": "c"}], NOW - 30)
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert [row["id"] for row in rows_of(tmp_path / "t")] == ["b", "c"]


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        ("KafkaConnectHdfsProvider", UnknownSetting),
        (f"x.Initial{'CheckpointFromAnotherHoodieTimelineProvider'}", InvalidInputError),
    ],
)
def test_a_provider_that_is_not_there_or_lacks_its_path_is_refused(tmp_path, provider, error):
    with pytest.raises(error):
        ingest(tmp_path / "in", tmp_path / "t", initial_checkpoint_provider=provider)


def test_a_continuous_job_waits_while_too_many_compactions_are_pending(tmp_path):
    table = make(tmp_path / "t", table_type="mor", index="simple")
    table.upsert([{"id": "a", "n": 1}])
    table.upsert([{"id": "a", "n": 2}])
    table.compact(schedule=True)
    write_rows(tmp_path / "in/a.jsonl", [{"id": "b", "n": 1}])
    waiting = job(tmp_path / "in", tmp_path / "t", max_pending_compactions=0)
    waiting._on_round = lambda _progress: waiting.stop()
    progress = waiting.run("continuous").tables[0]
    assert (progress.state, progress.commits) == ("waiting", 0)
    assert progress.message == "waits: 1 compactions are pending, and the job allows 0"
    allowed = job(tmp_path / "in", tmp_path / "t", max_pending_compactions=1)
    allowed._on_round = lambda _progress: allowed.stop()
    assert allowed.run("continuous").tables[0].commits == 1


# ------------------------------------------------------------------------------------------------------------- rows that go


@pytest.mark.parametrize("on_check_failed", ["abort", "quarantine"])
def test_no_check_keeps_a_row_that_goes(tmp_path, on_check_failed):
    """Of a row that is deleted a source may send the key alone, which passes no check."""
    rounds = [[kinds([{"id": "a", "n": 1}, {"id": "b", "n": 2}], [0, 0])], [kinds([{"id": "a", "n": None}], [3])]]
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": on_check_failed, "errors": str(tmp_path / "e")}
    assert job(Scripted(rounds), tmp_path / "t", **how).run("until_idle").tables[0].rejected_rows == 0
    assert rows_of(tmp_path / "t") == [{"id": "b", "n": 2}]


CHANGES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, -1, 1, 2, "delete"])), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["whole rows", "keys"])
@settings(max_examples=examples(15), derandomize=True, deadline=None)
@given(changes=CHANGES)
def test_a_condition_keeps_no_row_that_goes(sends, changes):
    """Of rows that are no longer the source sends all, or the key alone, of which no condition is true."""
    stored, rounds = dict[str, int | None](), list[list[SourceBatch]]()
    for steps in changes:
        batches = list[SourceBatch]()
        for key, value in steps:
            if key in stored:
                was = {"id": key, "n": stored[key] if sends == "whole rows" else None}
                batches.append(kinds([was], [3 if value == "delete" else 1]))
            if value == "delete":
                stored.pop(key, None)
            else:
                batches.append(kinds([{"id": key, "n": value}], [2 if key in stored else 0]))
                stored[key] = value
        rounds.append(batches)
    table = f"memory://conditions-{next(NUMBERS)}"
    make(table)
    query = "SELECT id, n * 10 AS n FROM <SRC> WHERE n > 0"
    job(Scripted(rounds), table, transformers=[query]).run("until_idle")
    expected = [
        {"id": key, "n": value * 10} for key, value in sorted(stored.items()) if value is not None and value > 0
    ]
    assert rows_of(table) == expected


VIEW_STEP = st.tuples(
    st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from([None, -1, 0, 1, 2, "delete"]), st.booleans()
)


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize(
    "queries",
    [
        ["SELECT id, p, n * 10 AS n FROM <SRC> WHERE n > 0"],
        [
            "SELECT * FROM <SRC> s WHERE s.n > 0",
            "SELECT id, p, CAST(n AS BIGINT) AS n FROM <SRC> WHERE p = 'x' OR n = 2",
        ],
        pytest.param(
            [
                "SELECT id, p, CAST(CASE WHEN n <= 0 THEN 'no' ELSE CAST(n AS TEXT) END AS BIGINT) AS n FROM <SRC> WHERE n > 0"
            ],
            marks=pytest.mark.skipif(not _has_try(duckdb.__version__), reason="TRY came with 1.3"),
        ),
    ],
    ids=["one", "chain", "guard"],
)
@settings(max_examples=examples(12), derandomize=True, deadline=None)
@given(rounds=st.lists(st.lists(VIEW_STEP, min_size=1, max_size=8), min_size=1, max_size=4))
def test_a_table_of_sql_with_a_condition_is_the_view_of_the_source_after_every_round(queries, partition_by, rounds):
    """Whether or not the source sends the row before an update; of rows that the condition leaves out what was stored goes."""
    table, stored, sent = (
        f"memory://views-{next(NUMBERS)}",
        dict[str, tuple[str, int | None]](),
        list[list[SourceBatch]](),
    )
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
    lakefmt.create_table(table, schema=schema, record_key="id", partition_by=list(partition_by) or None)
    for steps in rounds:
        rows, codes = list[dict[str, Any]](), list[int]()
        for key, p, value, sends_before in steps:
            if key in stored and (sends_before or value == "delete"):
                rows.append({"id": key, "p": stored[key][0], "n": stored[key][1]})
                codes.append(3 if value == "delete" else 1)
            if value == "delete":
                stored.pop(key, None)
            else:
                rows.append({"id": key, "p": p, "n": value})
                codes.append(2 if key in stored else 0)
                stored[key] = (p, value)
        batch = pa.RecordBatch.from_pylist(rows, schema)
        sent.append([SourceBatch(batch, np.array(codes, np.int8))] if rows else [])
        job(Scripted(sent), table, transformers=queries).run("until_idle")
        expected = [{"id": key, "p": p, "n": n} for key, (p, n) in sorted(stored.items()) if n is not None and n > 0]
        if len(queries) > 1:
            expected = [row for row in expected if row["p"] == "x" or row["n"] == 2]
        elif "* 10" in queries[0]:
            expected = [{**row, "n": row["n"] * 10} for row in expected]
        assert rows_of(table) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "n = ANY([1, 2])",
        "n <> ALL([1])",
        "list_transform([n], lambda x: x + 1)",
        "random()",
        "uuid()",
        "{'a': n}",
        "[n][1]",
    ],
)
def test_rows_that_a_condition_leaves_out_go_whatever_the_query_computes(tmp_path, expression):
    rounds = [[kinds([{"id": "a", "n": 1}, {"id": "b", "n": 2}], [0, 0])], [kinds([{"id": "a", "n": -1}], [2])]]
    query = f"SELECT id, n, CAST({expression} AS TEXT) AS computed FROM <SRC> WHERE n > 0"
    job(Scripted(rounds), tmp_path / "t", transformers=[query]).run("until_idle")
    assert [row["id"] for row in rows_of(tmp_path / "t")] == ["b"]


def test_a_condition_over_rows_that_are_appended_leaves_out_rows_and_deletes_none(tmp_path):
    rounds = [[kinds([{"id": "a", "n": 1}], [0])], [kinds([{"id": "a", "n": -1}, {"id": "b", "n": 2}], [2, 0])]]
    how = {"key": (), "operation": "insert", "transformers": ["SELECT * FROM <SRC> WHERE n > 0"]}
    job(Scripted(rounds), tmp_path / "t", **how).run("until_idle")
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


CHECKS = [
    "n > 0",
    "n is null or n > 0",
    "not (n > 0)",
    "n in (1, 2)",
    "n not in (1, 2)",
    "n between 1 and 5",
    "n + 1 > 1",
    "coalesce(n, 1) > 0",
    "n = n",
    "n > 0 or id = 'a'",
    "cast(n as text) like '1%'",
]
CHECKED_ROW = st.fixed_dictionaries(
    {"id": st.sampled_from("abcdef")}, optional={"n": st.sampled_from([None, -1, 1, 3])}
)
CHECKED_BATCH = st.lists(CHECKED_ROW, min_size=1, max_size=3)


def _even(rows):
    """Rows with equal columns: those that one of them has."""
    names = {name for row in rows for name in row}
    return [{**dict.fromkeys(sorted(names)), **row} for row in rows]


@pytest.mark.slow
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(
    rounds=st.lists(st.lists(CHECKED_BATCH, min_size=1, max_size=2), min_size=1, max_size=3),
    check=st.sampled_from(CHECKS),
)
def test_what_a_check_says_of_a_row_does_not_depend_on_the_rows_beside_it(rounds, check):
    """Also where no row so far has a value in the column, or has the column; DuckDB says which rows are good."""
    duckdb = pytest.importorskip("duckdb")
    folder = f"memory://checks-{next(NUMBERS)}"
    given_rounds = [[kinds(_even(batch), [0] * len(batch)) for batch in each] for each in rounds]
    how = {"checks": {"c": check}, "on_check_failed": "quarantine", "errors": f"{folder}/e"}
    job(Scripted(given_rounds), f"{folder}/t", **how).run("until_idle")
    rows = [row for each in rounds for batch in each for row in batch]
    table = pa.table({"id": [row["id"] for row in rows], "n": pa.array([row.get("n") for row in rows], pa.int64())})
    good = duckdb.connect().from_arrow(table).filter(check).fetchall()
    expected = dict(good)
    stored = {row["id"]: row.get("n") for row in rows_of(f"{folder}/t")} if good else {}
    assert stored == expected


@pytest.mark.parametrize("properties", [{}, {"hoodie.populate.meta.fields": "false"}], ids=["meta", "no meta"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_changes_without_the_row_before_find_it_in_its_partition(tmp_path, table_type, properties):
    """Also where files hold no keys: the row would stay in its old partition, beside the new one or instead of a deletion."""
    changes = kinds([{"id": "a", "n": None}, {"id": "b", "n": 9}], [3, 2])
    rounds = [[kinds([{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 2}], [0, 0, 0])], [changes]]
    how = {"partition_by": ["n"], "table_type": table_type, "properties": properties}
    job(Scripted(rounds), tmp_path / "t", **how).run("until_idle")
    assert rows_of(tmp_path / "t") == [{"id": "b", "n": 9}, {"id": "c", "n": 2}]


def test_a_check_reads_a_batch_of_nulls_by_the_type_of_the_column(tmp_path):
    """What a check says of a row does not depend on the rows beside it."""
    rounds = [[kinds([{"id": "a", "n": 1}], [0])], [kinds([{"id": "b", "n": None}], [0])]]
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    assert job(Scripted(rounds), tmp_path / "t", **how).run("until_idle").tables[0].rejected_rows == 1
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}]
