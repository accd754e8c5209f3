"""Merge-on-read tables, written: names, blocks, stats, second attempts, what logs say of keys, rollback, compactions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.config import settings as settings_module
from lakefmt._core.config.merge_rule import MergeRule, Order
from lakefmt._core.config.table_config import check_writable
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.log_blocks import BlockKind, HeaderKey, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import BlockHeader, encode_data_block
from lakefmt._core.formats.log_delete_block import decode_delete_content
from lakefmt._core.formats.names import has_bucket_number
from lakefmt._core.schema import arrow_to_avro, with_meta_columns
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.commit import LOG_KEYS_ENTRY, CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.markers import create_marker, list_marked
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.rollback import find_logs_of_instant
from lakefmt._core.values import CommitResult, FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt._core.write.assign import FileSizing, Logs, Routes, assign_rows, log_file, new_file
from lakefmt._core.write.commit.key_stats import groups_given_keys, may_hold_own_keys
from lakefmt._core.write.files import log_payloads
from lakefmt.errors import CommitConflict, CorruptFile, UnsupportedFeature
from lakefmt.testing.stores import CountingStore
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import content

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
OPTIONS: dict[str, object] = {"lakefmt.durability": "none"}
ALL = pytest.mark.parametrize("version", [6, 8, 9])


def rows(*values: tuple[str, str, int | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def make(url: str | None = None, **arguments: Any) -> lakefmt.Table:
    given = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "ordering": "ts", "options": OPTIONS}
    return lakefmt.create_table(
        url or f"memory://mor-{next(NUMBERS)}",
        table_type="mor",
        **{**given, **arguments},
    )


def blocks(table: lakefmt.Table, stat: WriteStat) -> list[WholeBlock]:
    reader = LogBlockReader(stat.path)
    reader.feed(table.client.store.read(stat.path))
    return [found for found in reader.finish() if isinstance(found, WholeBlock)]


def kinds(table: lakefmt.Table, stat: WriteStat) -> list[BlockKind]:
    return [found.block.kind for found in blocks(table, stat)]


# --- what a deltacommit looks like --------------------------------------------------------------------------------


def _attempt(done: CommitResult, version: int) -> int:
    """The last part of a log's write token: on version 6 it keeps the logs of two writers in one slice apart."""
    return int(str(done.instant)[-9:]) if version == 6 else 0


@ALL
def test_the_stats_are_those_of_real_deltacommits(version: int) -> None:
    """As the tables of Spark have them: version 6 names the slice and all its logs, later ones the new log alone."""
    table = make(table_version=version)
    (first,) = table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1))).files
    second, third = table.upsert(rows(("a", "sf", 2, 2))), table.delete(["b"])
    assert [i.action for i in table.client.load().timeline.commits] == [Action.DELTA_COMMIT] * 3
    (log,) = second.files
    base = first.path.rpartition("_")[2].removesuffix(".parquet")
    time, number = (base, 2) if version == 6 else (str(third.instant), 1)
    one = f".{first.file_id}_{base if version == 6 else second.instant}.log.1_0-0-{_attempt(second, version)}"
    assert log.file_name == one
    (stat,) = table.client.at(table.client.load()).commit_metadata(table.client.load().timeline.commits[-1]).stats
    name = f".{first.file_id}_{time}.log.{number}_0-0-{_attempt(third, version)}"
    assert stat.file_name == name
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts, stat.num_deletes) == (0, 0, 0, 1)
    assert (stat.log_version, stat.log_offset or 0, stat.file_id) == (number, 0, first.file_id)
    assert stat.prev_commit == (base if version == 6 else third.instant)
    assert stat.log_files == ((one, name) if version == 6 else (name,))
    assert (stat.base_file or "") == (first.file_name if version == 6 else "")
    assert (second.num_updates, second.num_inserts, third.num_deletes) == (1, 0, 1)
    assert stat.file_size_in_bytes == len(table.client.store.read(stat.path))


@ALL
def test_rows_of_logs_have_the_meta_columns_of_real_ones(version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(("a", "sf", 1, 1)))
    done = table.upsert(rows(("a", "sf", 2, 2)))
    (found,) = table.read(["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"]).to_pylist()
    assert found["_hoodie_commit_time"] == done.instant
    assert found["_hoodie_commit_seqno"] == f"{done.instant}_0_0"
    assert found["_hoodie_file_name"] == done.files[0].file_id
    (block,) = blocks(table, done.files[0])
    places = {HeaderKey.RECORD_POSITIONS, HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS}
    told = {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA} | (set() if version == 6 else places)
    assert set(block.block.header) == told


@ALL
def test_a_small_file_without_logs_takes_inserts_and_its_updates_with_them(version: int) -> None:
    table = make(table_version=version, options={**OPTIONS, "lakefmt.write.small.files": "fill"})
    table.upsert(rows(("a", "sf", 1, 1), ("b", "oslo", 1, 1)))
    done = table.upsert(rows(("a", "sf", 2, 2), ("c", "sf", 1, 1), ("b", "oslo", 2, 2)))
    names = sorted((stat.partition_path, "log" if stat.log_files else "base") for stat in done.files)
    assert names == [("city=oslo", "log"), ("city=sf", "base")]
    # Where a log lies the base file stays as it is: a new file takes the new key.
    again = table.upsert(rows(("b", "oslo", 3, 3), ("d", "oslo", 1, 1)))
    assert sorted(bool(stat.log_files) for stat in again.files) == [False, True]
    assert len({stat.file_id for stat in again.files}) == 2
    assert content(table) == [("a", "sf", 2, 2), ("b", "oslo", 3, 3), ("c", "sf", 1, 1), ("d", "oslo", 1, 1)]


def test_small_files_are_taken_smallest_first_up_to_a_limit() -> None:
    def piece(number: int, size: int, logs: int = 0) -> FileSlice:
        time = InstantTime("20260101000000000")
        base = BaseFile("p", f"f{number}-0_0-0-0_{time}.parquet", FileId(f"f{number}-0"), "0-0-0", time, size)  # type: ignore[arg-type]
        on_top = tuple(LogFile("p", f".f{n}", base.file_id, time, n, 1) for n in range(logs))  # type: ignore[arg-type]
        return FileSlice(base.partition, base.file_id, time, base, on_top)

    slices = [piece(1, 50), piece(2, 10, logs=1), piece(3, 30), piece(4, 20)]
    places = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4, np.int32)), pa.array(["p"]))

    def taken(candidates: int | None) -> list[str]:
        sizing = FileSizing(51, 60, 20.0, candidates)
        time = InstantTime("20260102000000000")
        assigned = assign_rows(places, Routes(None), slices, sizing, time, lambda: "new", Logs(2))
        return [a.assignment.file_id for a in assigned if a.assignment.base is not None]

    assert taken(None) == ["f3-0", "f4-0"]  # f1 has no room, f2 has a log
    assert taken(1) == ["f4-0"]
    assert taken(0) == []


def test_logs_of_version_6_count_on_and_stand_on_a_pending_compaction() -> None:
    time = InstantTime("20260101000000000")
    logs = tuple(LogFile("p", f".f_{time}.log.{n}", FileId("f"), time, n, 1) for n in (1, 3))  # type: ignore[arg-type]
    piece = FileSlice("p", FileId("f"), time, None, logs)  # type: ignore[arg-type]
    now, pending = InstantTime("20260103000000000"), InstantTime("20260102000000000")
    assert log_file(piece, now, 7, 1, Logs(1)).file_name == f".f_{time}.log.4_7-0-0"
    on_top = log_file(piece, now, 7, 1, Logs(1, {("p", "f"): pending}))  # type: ignore[dict-item]
    assert on_top.file_name == f".f_{pending}.log.1_7-0-0"
    assert on_top.log is not None
    assert on_top.log.base_instant == pending


# --- deletes ------------------------------------------------------------------------------------------------------


@ALL
def test_a_delete_by_key_carries_the_stored_event_time(version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(("a", "sf", 5, 1), ("b", "sf", None, 1)))
    table.upsert(rows(("a", "sf", 7, 2)))
    done = table.delete(["a", "b", "unknown"])
    assert done.num_deletes == 2
    # hudi-rs reads no block with both kinds of values: each kind has a block of its own.
    told = [decode_delete_content(block.content, what="log") for block in blocks(table, done.files[0])]
    assert [(one.keys.to_pylist(), one.ordering(pa.int64()).to_pylist()) for one in told] == [
        (["a"], [7]),
        (["b"], [None]),
    ]
    stored = [{name: column.to_pylist() for name, column in one.orderings[0].items()} for one in told]
    assert stored == [{"long": [7]}, {"int": [0]}]
    assert [one.partitions.to_pylist() for one in told] == [["city=sf"], ["city=sf"]]
    assert table.delete(["a"]).instant is None, "what is gone is not deleted again"
    table.upsert(rows(("a", "sf", 6, 3)))
    assert content(table) == [], "late against the delete"
    table.upsert(rows(("a", "sf", 7, 4)))
    assert content(table) == [("a", "sf", 7, 4)]


def test_without_event_times_a_delete_says_so() -> None:
    table = make(ordering=None)
    table.upsert(rows(("a", "sf", 5, 1)))
    (block,) = blocks(table, table.delete(["a"]).files[0])
    assert decode_delete_content(block.content, what="log").orderings[0]["int"].to_pylist() == [0]
    table.upsert(rows(("a", "sf", 1, 2)))
    assert content(table) == [("a", "sf", 1, 2)]


def test_marked_rows_become_delete_records_unless_their_order_cannot_be_said() -> None:
    table = pa.table(
        {
            "_hoodie_record_key": ["a", "b", "c", "d"],
            "ts": pa.array([1, 0, None, 3], pa.int32()),
            "_hoodie_is_deleted": [True, True, True, False],
        }
    )
    flags = np.array([True, True, True, False])
    order = Order(("ts",))
    rule, names = MergeRule(order, order), frozenset(table.column_names)
    out = log_payloads._split(table, log_payloads._told_by_blocks(table, flags, flags, rule), names, None)
    assert out.deletes["_hoodie_record_key"].to_pylist() == ["a"]
    assert out.data["_hoodie_record_key"].to_pylist() == ["b", "c", "d"]
    by_key = log_payloads._split(table, log_payloads._told_by_blocks(table, flags, np.zeros(4, bool), rule), names, None)
    assert by_key.deletes.num_rows == 3


# --- partial rows, formats ----------------------------------------------------------------------------------------


@ALL
def test_partial_rows_are_partial_blocks_and_whole_rows_in_version_6(version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(("a", "sf", 5, 1), ("b", "sf", 5, 2)))
    table.upsert(rows(("a", "sf", 6, 10)))
    with_time = table.upsert(pa.table({"id": ["a", "b"], "city": ["sf", "sf"], "ts": [7, 1]}), partial=True)
    without = table.upsert(pa.table({"id": ["b"], "city": ["sf"], "v": [22]}), partial=True)
    for done, names in ((with_time, ["id", "city", "ts"]), (without, ["id", "city", "ts", "v"])):
        (block,) = blocks(table, done.files[0])
        assert block.block.is_partial is (version > 6 and len(names) < 4)
    assert content(table) == [("a", "sf", 7, 10), ("b", "sf", 5, 22)], "a late partial row loses, one without time wins"


def test_parquet_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    monkeypatch.setitem(settings_module._DEFAULTS, "hoodie.logfile.data.block.format", "parquet")
    table = make(str(tmp_path / "t"))
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    done = table.upsert(rows(("a", "sf", 2, 2)))
    assert kinds(table, done.files[0]) == [BlockKind.PARQUET_DATA]
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), table.read(), what="hudi-rs")
    assert content(table) == [("a", "sf", 2, 2), ("b", "sf", 1, 1)]


# --- second attempts ----------------------------------------------------------------------------------------------


@ALL
def test_a_second_attempt_adopts_the_log_and_counts_the_same(version: int) -> None:
    table = make(table_version=version, schema=SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())))
    base = rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)).append_column("_hoodie_is_deleted", pa.array([False, False]))
    table.upsert(base)
    context = lowlevel.begin_write(table, "upsert")
    changed = rows(("a", "sf", 2, 2), ("b", "sf", 2, 2)).append_column("_hoodie_is_deleted", pa.array([False, True]))
    ((assignment, batches),) = lowlevel.assign(context, changed)
    one, two = (lowlevel.write_files(context, assignment, batches) for _ in range(2))
    assert (one.adopted, two.adopted) == (False, True)
    assert one.stat == two.stat
    assert (one.rows_in, two.rows_in) == (2, 2)
    markers = [o.name.rpartition(".")[2] for o in table.client.store.list(f".hoodie/.temp/{context.instant}")]
    assert markers == ["APPEND" if version == 6 else "CREATE"]
    lowlevel.commit(context, [one, two])
    assert table.read(["id"])["id"].to_pylist() == ["a"]


def test_a_strange_file_of_that_name_is_not_adopted() -> None:
    table = make()
    table.upsert(rows(("a", "sf", 1, 1)))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows(("a", "sf", 2, 2)))
    header = BlockHeader("20200101000000000", arrow_to_avro(SCHEMA, "t", with_meta=True))
    strange = encode_data_block(with_meta_columns(SCHEMA).empty_table(), header)
    table.client.store.put(assignment.path, strange)
    with pytest.raises(CorruptFile, match="not written by this write"):
        lowlevel.write_files(context, assignment, batches)
    lowlevel.abort(context)
    assert content(table) == [("a", "sf", 1, 1)]


# --- keys and logs ------------------------------------------------------------------------------------------------


def test_a_key_that_was_deleted_and_inserted_anew_lives_once() -> None:
    """The old base file still has it; a later upsert must not wake it there."""
    table = make()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.delete(["a"])
    assert table.insert(rows(("a", "sf", 5, 5)), drop_duplicates=True).num_inserts == 1
    table.upsert(rows(("a", "sf", 6, 6)))
    assert content(table) == [("a", "sf", 6, 6), ("b", "sf", 1, 1)]
    assert table.delete(["a"]).num_deletes == 1


def test_the_delete_of_the_last_life_counts() -> None:
    """A key that died in two files meets the delete of the newer one; which file sorts first is left to chance."""
    for _ in range(6):
        table = make()
        table.upsert(rows(("a", "sf", 1, 1)))
        table.delete(["a"])
        table.insert(rows(("a", "sf", 5, 5)), drop_duplicates=True)
        table.delete(["a"])
        table.upsert(rows(("a", "sf", 3, 3)))
        assert content(table) == []
        table.upsert(rows(("a", "sf", 5, 6)))
        assert content(table) == [("a", "sf", 5, 6)]


@ALL
def test_a_key_that_moves_is_deleted_in_its_old_log(version: int) -> None:
    table = make(table_version=version, index="global_bloom")
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 3, 3)))
    table.upsert(rows(("a", "oslo", 2, 2)))
    assert content(table)[0] == ("a", "sf", 3, 3), "late rows do not move, whatever the base file says"
    moved = table.upsert(rows(("a", "oslo", 4, 4)))
    assert (moved.num_inserts, moved.num_deletes) == (1, 1)
    for city, ts in (("sf", 5), ("rio", 6), ("oslo", 7), ("oslo", 8), ("sf", 9)):
        table.upsert(rows(("a", city, ts, ts)))
        assert content(table) == [("a", city, ts, ts), ("b", "sf", 1, 1)]
    assert table.delete(["a"]).num_deletes == 1


@ALL
def test_a_deleted_key_comes_back_elsewhere_as_a_new_one(version: int) -> None:
    table = make(table_version=version, index="global_bloom")
    table.upsert(rows(("a", "sf", 5, 1), ("b", "sf", 1, 1)))
    table.delete(["a"])
    done = table.upsert(rows(("a", "oslo", 1, 2)))
    assert (done.num_inserts, done.num_deletes) == (1, 0), "nothing is left in the other partition to delete"
    assert content(table) == [("a", "oslo", 1, 2), ("b", "sf", 1, 1)]


def log_only(
    table: lakefmt.Table, partition: str, *data: tuple[str, str, int, int], beside_base: bool = False, **counts: int
) -> None:
    """Commit a log without base file, or on that of a row "x", as writers with another index do."""
    client, done = table.client, table.upsert(rows(("x", partition.partition("=")[2], 1, 1)))
    group = done.files[0].file_id if beside_base else FileId("log-only-0")
    state = client.load()
    time = InstantTime(str(int(str(done.completion_time)) + 1))
    meta = with_meta_columns(SCHEMA)
    full = rows(*data)
    fixed = {"_hoodie_commit_time": time, "_hoodie_partition_path": partition, "_hoodie_file_name": group}
    for name in reversed(meta.names[:5]):
        column = full["id"] if name == "_hoodie_record_key" else pa.array([fixed.get(name, "s")] * len(full))
        full = full.add_column(0, name, column)
    path = f"{partition}/.{group}_{time}.log.1_0-0-0"
    client.store.put(
        path, encode_data_block(full.cast(meta), BlockHeader(time, arrow_to_avro(SCHEMA, "t", with_meta=True)))
    )
    stat = WriteStat(
        group, PartitionPath(partition), path, num_writes=len(data), log_files=(path.rpartition("/")[2],), **counts
    )
    commit = CommitMetadata(WriteOperation.UPSERT, (stat,), extra_metadata={"schema": arrow_to_avro(SCHEMA, "t")})
    timeline = client.timeline_store(state.config)
    timeline.request(time, Action.DELTA_COMMIT, b"")
    timeline.start(time, Action.DELTA_COMMIT)
    body = encode_commit(commit, state.config.version, replace=False)
    timeline.complete(time, Action.DELTA_COMMIT, InstantTime(str(int(time) + 1)), body)


@pytest.mark.parametrize("version", [8, 9])
def test_keys_that_live_in_logs_only_are_found(version: int) -> None:
    table = make(table_version=version)
    log_only(table, "city=sf", ("a", "sf", 5, 5), ("b", "sf", 5, 5))
    assert len(content(table)) == 3
    done = table.upsert(rows(("a", "sf", 4, 4), ("b", "sf", 6, 6), ("c", "sf", 1, 1)))
    assert (done.num_inserts, done.num_updates) == (1, 2)
    assert content(table) == [("a", "sf", 5, 5), ("b", "sf", 6, 6), ("c", "sf", 1, 1), ("x", "sf", 1, 1)]
    assert table.insert(rows(("a", "sf", 9, 9)), drop_duplicates=True).instant is None
    assert table.delete(["a", "b"]).num_deletes == 2
    assert content(table) == [("c", "sf", 1, 1), ("x", "sf", 1, 1)]


@pytest.mark.parametrize(
    "counts",
    [{}, {"num_inserts": 1, "num_update_writes": 1}, {"num_update_writes": 2}],
    ids=["uncounted", "counted", "as bucket indexes count"],
)
def test_keys_that_logs_have_beyond_their_base_file_are_found(counts: dict[str, int]) -> None:
    table = make()
    log_only(table, "city=sf", ("x", "sf", 5, 5), ("a", "sf", 5, 5), beside_base=True, **counts)
    done = table.upsert(rows(("a", "sf", 6, 6), ("c", "sf", 1, 1)))
    assert (done.num_inserts, done.num_updates) == (1, 1)
    assert content(table) == [("a", "sf", 6, 6), ("c", "sf", 1, 1), ("x", "sf", 5, 5)]


def test_logs_of_which_commits_say_that_they_only_update_are_not_read_for_keys() -> None:
    made = make()
    store = CountingStore(made.client.store)
    table = lakefmt.Table(TableClient(store, OPTIONS))
    table.upsert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    (piece,) = table.file_groups()
    assert piece.logs
    store.reset()
    table.upsert(rows(("new", "sf", 1, 1), ("a", "sf", 3, 3)))
    assert [client.kind for client in store.log if client.name == piece.logs[0].path] == []
    # Commits that are archived tell no more: their logs are read.
    assert may_hold_own_keys(piece, InstantTime("9" * 17), frozenset())
    assert may_hold_own_keys(piece, None, frozenset())
    assert may_hold_own_keys(replace(piece, base=None), piece.instant, frozenset())
    assert may_hold_own_keys(piece, piece.instant, {(piece.partition, piece.file_id)})
    assert not may_hold_own_keys(piece, piece.instant, frozenset())
    ours = table.client.at(table.client.load()).commit_metadata(table.client.load().timeline.commits[-1])
    assert not groups_given_keys([ours])
    assert groups_given_keys([replace(ours, extra_metadata={})])
    # Earlier releases did not mind compactions that waited; nor did a write that began before the plan.
    assert groups_given_keys([replace(ours, extra_metadata={LOG_KEYS_ENTRY: "counted"})])
    assert piece.base is not None
    planned_later = replace(piece, base=replace(piece.base, instant=InstantTime("9" * 17)))
    assert may_hold_own_keys(planned_later, piece.instant, frozenset())
    assert groups_given_keys([replace(ours, stats=tuple(replace(one, num_inserts=1) for one in ours.stats))])
    # A caller's own word is not believed.
    forged = table.upsert(rows(("a", "sf", 4, 4)), commit_metadata={LOG_KEYS_ENTRY: "anything"})
    told = table.client.at(table.client.load()).commit_metadata(table.client.load().timeline.find(str(forged.instant)))
    assert told.extra_metadata[LOG_KEYS_ENTRY] == "live"


@pytest.mark.parametrize("version", [6, 8, 9])
def test_beside_a_waiting_compaction_logs_are_read_only_where_they_deleted(version: int) -> None:
    made = make(table_version=version)
    made.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    store = CountingStore(made.client.store)
    table = lakefmt.Table(TableClient(store, OPTIONS))
    table.upsert(rows(("a", "sf", 2, 2)))
    (piece,) = table.file_groups()
    plan = table.compact(schedule=True)
    store.reset()
    table.upsert(rows(("a", "sf", 3, 3)))
    assert [read.kind for read in store.log if read.name == piece.logs[0].path] == []
    table.delete(["b"])
    store.reset()
    table.upsert(rows(("a", "sf", 4, 4)))
    assert [read.kind for read in store.log if read.name == piece.logs[0].path] != []
    # What a log behind the plan deleted is written as a new row, too: no compaction loses it.
    assert table.upsert(rows(("b", "sf", 5, 5))).num_inserts == 1
    table.compact(run=plan.instant)
    assert sorted(table.read()["id"].to_pylist()) == ["a", "b"]


def test_new_groups_beside_those_of_a_bucket_index_are_refused() -> None:
    table = make()
    done = table.upsert(rows(("a", "sf", 1, 1)))
    store = table.client.store
    old = done.files[0]
    new_id = "00000003" + old.file_id[8:]
    # A random id may look like a bucket's: beside others it is none.
    store.put(old.path.replace(old.file_id, new_id), store.read(old.path))
    opening: dict[str, object] = {"hoodie.parquet.small.file.limit": 0}
    grown = table.upsert(rows(("new", "sf", 1, 1)), options=opening)
    table.rollback(str(grown.instant))
    store.delete([old.path])
    table.upsert(rows(("a", "sf", 2, 2)))  # known keys go to its logs
    with pytest.raises(UnsupportedFeature, match="bucket"):
        table.upsert(rows(("new", "sf", 1, 1)), options=opening)


def test_no_id_is_drawn_that_looks_like_a_buckets() -> None:
    drawn = iter(["00012345-1a2b-4c3d-8e9f-012345678901", "0001234a-1a2b-4c3d-8e9f-012345678901"])
    made = [
        new_file(PartitionPath("sf"), InstantTime("20260101000000000"), n, lambda: next(drawn), rows=1) for n in (0, 1)
    ]
    assert [one.file_id[:8] for one in made] == ["f0012345", "0001234a"]
    assert not any(has_bucket_number(one.file_id) for one in made)


# --- rollback -----------------------------------------------------------------------------------------------------


def test_rolling_back_version_6_takes_its_own_logs_only() -> None:
    table = make(table_version=6)
    table.upsert(rows(("a", "sf", 1, 1)))
    second = table.upsert(rows(("a", "sf", 2, 2)))
    third = table.upsert(rows(("a", "sf", 3, 3)))
    kept, gone = second.files[0].path, third.files[0].path
    assert second.instant is not None
    assert third.instant is not None
    found = find_logs_of_instant(table.client.store, third.instant, [kept, gone])
    assert (found.own, found.shared) == ((gone,), ())
    table.rollback(third.instant)
    assert table.client.store.info(kept) is not None
    assert table.client.store.info(gone) is None
    assert content(table) == [("a", "sf", 2, 2)]


def test_a_log_that_several_writes_share_is_not_taken_away() -> None:
    """As stores that can append have them."""
    table = make(table_version=6)
    table.upsert(rows(("a", "sf", 1, 1)))
    second, third = table.upsert(rows(("a", "sf", 2, 2))), table.upsert(rows(("a", "sf", 3, 3)))
    store = table.client.store
    both = store.read(second.files[0].path) + store.read(third.files[0].path)
    store.put(third.files[0].path, both)
    assert third.instant is not None
    table.rollback(third.instant)
    assert store.read(third.files[0].path) == both, "a command block hides its rows, the other write's stay"
    assert content(table) == [("a", "sf", 2, 2)]


def test_a_dead_write_of_version_6_is_undone_without_markers_too() -> None:
    options = {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 0}
    table = make(table_version=6, options=options)
    table.upsert(rows(("a", "sf", 1, 1)))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows(("a", "sf", 9, 9)))
    lowlevel.write_files(context, assignment, batches)
    store = table.client.store
    assert isinstance(store, MemoryStore)
    store.delete_tree(f".hoodie/.temp/{context.instant}")
    store.delete_tree(".hoodie/.heartbeat")
    table.rollback(context.instant, force=True)
    assert store.info(assignment.path) is None
    assert content(table) == [("a", "sf", 1, 1)]
    lowlevel.abort(context)


def test_what_another_write_announced_by_mistake_stays() -> None:
    table = make(table_version=6)
    table.upsert(rows(("a", "sf", 1, 1)))
    foreign = table.upsert(rows(("a", "sf", 2, 2))).files[0].path
    context = lowlevel.begin_write(table, "upsert")
    work = lowlevel.assign(context, rows(("a", "sf", 3, 3)))
    create_marker(table.client.store, context.instant, foreign, "APPEND")
    assert foreign in (list_marked(table.client.store, context.instant) or ())
    lowlevel.commit(context, [lowlevel.write_files(context, a, b) for a, b in work])
    assert table.client.store.info(foreign) is not None
    assert content(table) == [("a", "sf", 3, 3)]


# --- beside compactions -------------------------------------------------------------------------------------------


def schedule(table: lakefmt.Table) -> InstantTime:
    """Request a compaction of every file group with logs, as another writer does."""
    client = table.client
    state = client.load()
    operations = [
        {
            "baseInstantTime": piece.instant,
            "deltaFilePaths": [log.name for log in piece.logs],
            "dataFilePath": None if piece.base is None else piece.base.name,
            "fileId": piece.file_id,
            "partitionPath": piece.partition,
            "metrics": {"TOTAL_LOG_FILES_SIZE": 1.0},
            "bootstrapFilePath": None,
        }
        for piece in client.at(state).slices()
        if piece.logs
    ]
    time = client.instant_clock(state.config).next(state.timeline.highest_time)
    plan = {"operations": operations, "extraMetadata": None, "version": 2}
    client.timeline_store(state.config).request(time, Action.COMPACTION, encode_body(BodyKind.COMPACTION_PLAN, plan))
    return time


@ALL
def test_logs_go_on_top_of_a_pending_compaction(version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    time = schedule(table)
    for ts in (3, 4):
        done = table.upsert(rows(("a", "sf", ts, ts), (f"new{ts}", "sf", 1, 1)))
        (log,) = [stat for stat in done.files if stat.log_files]
        assert log.prev_commit == (time if version == 6 else done.instant)
        assert log.log_version == (ts - 2 if version == 6 else 1)
        assert ("a", "sf", ts, ts) in content(table)
    assert [i.time for i in table.client.load().timeline.pending] == [time]


def test_a_compaction_that_is_planned_meanwhile_conflicts_in_version_6_only() -> None:
    for version in (6, 8):
        table = make(table_version=version)
        table.upsert(rows(("a", "sf", 1, 1)))
        table.upsert(rows(("a", "sf", 2, 2)))
        context = lowlevel.begin_write(table, "upsert")
        statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, rows(("a", "sf", 3, 3)))]
        schedule(table)
        if version == 6:
            with pytest.raises(CommitConflict, match="was planned meanwhile"):
                lowlevel.commit(context, statuses)
            lowlevel.abort(context)
            assert content(table) == [("a", "sf", 2, 2)]
        else:
            lowlevel.commit(context, statuses)
            assert content(table) == [("a", "sf", 3, 3)]


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [
        {"hoodie.table.log.file.format": "HFILE_LOG"},
        {"hoodie.record.merge.mode": "CUSTOM"},
    ],
)
def test_what_logs_are_not_written_for(properties: dict[str, str]) -> None:
    from lakefmt._core.config.table_config import parse_table_config

    known = dict(make().properties.properties)
    check_writable(parse_table_config(known))
    with pytest.raises(UnsupportedFeature):
        check_writable(parse_table_config({**known, **properties}))


@ALL
def test_streams_and_plans(version: int) -> None:
    table = make(table_version=version)
    table.bulk_insert(rows((f"k{n}", "sf", 1, n)) for n in range(5))
    plan = table.upsert(rows(("k1", "sf", 2, 2)), dry_run=True)
    assert str(plan).splitlines()[1].startswith("  log     city=sf/")
    assert table.delete_partitions(["city=sf"]).action == "replacecommit"
    assert content(table) == []


def complete_compaction(table: lakefmt.Table, time: InstantTime, operation: WriteOperation, file_id: FileId) -> None:
    """Complete a compaction of one file group, as far as the timeline knows of it."""
    client = table.client
    state = client.load()
    stat = WriteStat(file_id, "city=sf", f"city=sf/{file_id}_0-0-0_{time}.parquet", num_inserts=1)  # type: ignore[arg-type]
    commit = CommitMetadata(operation, (stat,), extra_metadata={"schema": arrow_to_avro(SCHEMA, "t")}, compacted=True)
    timeline = client.timeline_store(state.config)
    timeline.start(time, Action.COMPACTION)
    completion = client.instant_clock(state.config).next(state.timeline.highest_time)
    body = encode_commit(commit, state.config.version, replace=False)
    timeline.complete(time, Action.COMPACTION, completion, body)


@ALL
def test_a_compaction_that_completes_meanwhile_leaves_the_logs_on_top_of_it(version: int) -> None:
    for operation in (WriteOperation.COMPACT, WriteOperation.UPSERT):
        table = make(table_version=version)
        (first,) = table.upsert(rows(("a", "sf", 1, 1))).files
        table.upsert(rows(("a", "sf", 2, 2)))
        time = schedule(table)
        context = lowlevel.begin_write(table, "upsert")
        work = lowlevel.assign(context, rows(("a", "sf", 3, 3), ("new", "sf", 1, 1)))
        statuses = [lowlevel.write_files(context, a, b) for a, b in work]
        complete_compaction(table, time, operation, first.file_id)
        if operation is WriteOperation.COMPACT:
            assert lowlevel.commit(context, statuses).num_updates == 1
        else:
            with pytest.raises(CommitConflict, match="same file groups"):
                lowlevel.commit(context, statuses)
            lowlevel.abort(context)
