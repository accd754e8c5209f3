"""A stream that is more than memory is written as if it had come at once: rows, counts, one commit."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups import merge as merge_base
from lakefmt._core.values import PartitionPath
from lakefmt._core.write import grouped_rows
from lakefmt._core.write.commit.retry import SpooledRows
from lakefmt._core.write.context import Announcements
from lakefmt._core.write.files import base_file
from lakefmt.errors import InvalidKey, SchemaMismatch, StorageError
from tests.example_counts import examples

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
#: Rows as (key, city, event time, value), batch by batch.
STREAMS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 25), st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    ),
    min_size=1,
    max_size=4,
)
#: Memory for a handful of rows; a part of it is sorted at a time.
WINDOW = {"lakefmt.write.window.bytes": 6_000}


def tables_of(batches, *, moving: bool) -> list[pa.Table]:
    """Return batches; unless keys move, a key has one city."""
    found = []
    for batch in batches:
        rows = [(f"k{key}", city if moving else "ab"[key % 2], ts, v) for key, city, ts, v in batch]
        found.append(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA))
    return found


def table_of(**how) -> lakefmt.Table:
    """Return a new table in memory."""
    keys = {"record_key": "id", "partition_by": "city", "ordering": "ts"}
    return lakefmt.create_table(f"memory://streams/{uuid4().hex}", schema=SCHEMA, **{**keys, **how})


def content(table: lakefmt.Table) -> list[tuple]:
    """Return the rows of a table in order."""
    return sorted(zip(*table.read(["id", "city", "ts", "v"]).to_pydict().values(), strict=True))


def counts(result: lakefmt.CommitResult) -> tuple[int, ...]:
    """Return what a commit counts."""
    return result.num_inserts, result.num_updates, result.num_deletes


def padded(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows again and again, so that they are more than a window; the last ones are those given."""
    rows = pa.concat_tables(tables)
    for _ in range(1 + 8_000 // max(1, rows.nbytes)):
        yield rows.set_column(2, "ts", pa.array([-1] * rows.num_rows, pa.int64()))
    yield from tables


@pytest.mark.slow
@given(
    STREAMS, STREAMS, st.sampled_from(["cow", "mor"]), st.sampled_from(["bloom", "global_bloom", "simple", "bucket"])
)
@settings(max_examples=examples(30), deadline=None)
def test_an_upsert_of_a_stream_is_that_of_its_rows_at_once(before, batches, kind, index):
    moving = index == "global_bloom"
    if index == "bucket":
        how = {"index": "bucket", "properties": {"hoodie.bucket.index.num.buckets": "3"}}
    else:
        how = {"index": index}
    at_once, streamed = (table_of(table_type=kind, **how) for _ in range(2))
    for table in (at_once, streamed):
        table.upsert(pa.concat_tables(tables_of(before, moving=moving)))
    rows = list(padded(tables_of(batches, moving=moving)))
    one = at_once.upsert(pa.concat_tables(rows))
    with pytest.MonkeyPatch.context() as patch:
        for module in (merge_base, base_file):
            patch.setattr(module, "MOST_ROWS_OF_A_PIECE", 5)
        other = streamed.upsert(iter(rows), options=WINDOW)
    assert content(streamed) == content(at_once)
    assert counts(other) == counts(one)
    assert len(streamed.timeline.entries) == 2
    assert streamed.check("full").is_clean


@pytest.mark.slow
@given(STREAMS, STREAMS, st.sampled_from(["cow", "mor"]), st.sampled_from(["commit_time", "event_time"]))
@settings(max_examples=examples(15), deadline=None)
def test_partial_rows_of_a_stream_complete_stored_ones(before, batches, kind, merge):
    at_once, streamed = (table_of(table_type=kind, merge=merge) for _ in range(2))
    for table in (at_once, streamed):
        table.upsert(pa.concat_tables(tables_of(before, moving=False)))
    rows = [each.drop_columns(["v"]) for each in padded(tables_of(batches, moving=False))]
    one = at_once.upsert(pa.concat_tables(rows), partial=True)
    other = streamed.upsert(iter(rows), partial=True, options=WINDOW)
    assert content(streamed) == content(at_once)
    assert counts(other) == counts(one)


@pytest.mark.slow
@given(STREAMS, STREAMS, st.sampled_from(["cow", "mor"]), st.booleans())
@settings(max_examples=examples(15), deadline=None)
def test_an_insert_of_a_stream_is_that_of_its_rows_at_once(before, batches, kind, drop):
    at_once, streamed = (table_of(table_type=kind) for _ in range(2))
    for table in (at_once, streamed):
        table.insert(pa.concat_tables(tables_of(before, moving=False)))
    rows = list(padded(tables_of(batches, moving=False)))
    one = at_once.insert(pa.concat_tables(rows), drop_duplicates=drop)
    other = streamed.insert(iter(rows), drop_duplicates=drop, options=WINDOW)
    assert content(streamed) == content(at_once)
    assert counts(other) == counts(one)
    assert streamed.check("fast").is_clean


@pytest.mark.slow
@given(
    STREAMS,
    st.lists(st.integers(0, 30), min_size=1, max_size=20),
    st.sampled_from(["cow", "mor"]),
    st.sampled_from(["bloom", "global_bloom", "record", "bucket"]),
    st.booleans(),
    st.sampled_from([None, ["city=a"]]),
)
@settings(max_examples=examples(25), deadline=None)
def test_a_delete_of_a_stream_is_that_of_its_keys_at_once(before, keys, kind, index, in_their_partitions, partitions):
    """Also of keys that are stored in two partitions, or nowhere, or that come several times."""
    how = {"properties": {"hoodie.bucket.index.num.buckets": "3"}} if index == "bucket" else {}
    at_once, streamed = (table_of(table_type=kind, index=index, **how) for _ in range(2))
    for table in (at_once, streamed):
        table.upsert(pa.concat_tables(tables_of(before, moving=True)))
    rows = list(padded(tables_of([[(key, "ab"[key % 3 % 2], 9, 9) for key in keys]], moving=True)))
    rows = [each.select(["id", "city"] if in_their_partitions else ["id"]) for each in rows] * 4
    one = at_once.delete(pa.concat_tables(rows), partitions=partitions)
    other = streamed.delete(iter(rows), partitions=partitions, options=WINDOW)
    assert content(streamed) == content(at_once)
    assert counts(other) == counts(one)
    assert streamed.check("full").is_clean


def test_what_is_wrong_with_keys_of_a_stream_is_said_and_nothing_is_written():
    table = table_of()
    table.upsert(pa.table({"id": ["x"], "city": ["a"], "ts": [9], "v": [1]}, schema=SCHEMA))
    rows = [pa.table({"id": [f"k{n}" for n in range(900)]})] * 3
    with pytest.raises(SchemaMismatch, match="lack the column id"):
        table.delete(iter([each.rename_columns(["other"]) for each in rows]), options=WINDOW)
    with pytest.raises(InvalidKey, match="null"):
        table.delete(iter([*rows, pa.table({"id": pa.array([None], pa.string())})]), options=WINDOW)
    assert not table.delete(iter(rows), options=WINDOW).num_deletes
    assert len(table.timeline.entries) == 1


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("verb", ["insert_overwrite", "insert_overwrite_table"])
@pytest.mark.parametrize("combines", [False, True])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_overwrite_by_a_stream_is_that_by_its_rows_at_once(verb, combines, kind):
    at_once, streamed = (table_of(table_type=kind) for _ in range(2))
    options = {"hoodie.combine.before.insert": combines}
    for table in (at_once, streamed):
        table.upsert(pa.table({"id": ["x", "y"], "city": ["a", "z"], "ts": [9, 9], "v": [1, 2]}, schema=SCHEMA))
    rows = list(padded(tables_of([[(n % 40, "a", n % 3, n) for n in range(100)]], moving=False)))
    one = getattr(at_once, verb)(pa.concat_tables(rows), options=options)
    other = getattr(streamed, verb)(iter(rows), options={**options, **WINDOW})
    assert content(streamed) == content(at_once)
    assert counts(other) == counts(one)
    assert len(streamed.timeline.entries) == 2


def test_rows_without_keys_are_inserted_with_keys_of_their_own():
    table = table_of(record_key=None, ordering=None)
    rows = [pa.table({"id": [f"k{n}"] * 9, "city": ["a"] * 9, "ts": [n] * 9, "v": [n] * 9}, SCHEMA) for n in range(90)]
    assert table.insert(iter(rows), options=WINDOW).num_inserts == 810
    assert table.read(["ts"]).num_rows == 810
    assert table.check("full").is_clean


def test_new_rows_of_one_partition_become_files_of_bounded_size():
    table = table_of(partition_by=None)
    rows = tables_of([[(n, "a", n, n) for n in range(2_000)]], moving=False) * 2
    options = {
        "lakefmt.write.window.bytes": 60_000,
        "hoodie.parquet.max.file.size": 20_000,
        "hoodie.copyonwrite.record.size.estimate": 40,
    }
    result = table.upsert(iter(rows), options=options)
    assert result.num_inserts == 2_000
    assert [each.num_writes for each in result.files] == [500] * 4
    assert len({each.path for each in result.files}) == 4


def test_markers_of_a_write_have_one_form(monkeypatch):
    """Where a file says that markers are in batches, Hudi looks for no others."""
    table = table_of(partition_by="city")
    told: list[bool | None] = []
    announce = Announcements.announce

    def remembered(self: Announcements, assignments):
        said = announce(self, assignments)
        if assignments:
            told.append(said)
        return said

    monkeypatch.setattr(Announcements, "announce", remembered)
    monkeypatch.setattr(grouped_rows, "_FILES_WRITTEN", 20)
    cities = [f"c{n:02}" for n in range(45)]
    rows = [
        pa.table({"id": [f"{n}-{c}" for c in cities], "city": cities, "ts": [n] * 45, "v": [n] * 45}, SCHEMA)
        for n in range(9)
    ]
    table.upsert(iter(rows), options=WINDOW)
    assert len(told) > 1
    assert len({each is None for each in told}) == 1


def test_a_stream_that_fits_into_memory_is_written_at_once(monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("nothing has to wait on the disk")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    table = table_of()
    assert table.upsert(iter(tables_of([[(1, "a", 1, 1)], [(2, "a", 1, 1)]], moving=False))).num_inserts == 2


def test_a_stream_can_be_written_again_after_a_conflict():
    spooled = SpooledRows(SCHEMA, tables_of([[(1, "a", 1, 1)], [(2, "a", 1, 1)]], moving=False))
    assert [t.num_rows for t in spooled] == [t.num_rows for t in spooled] == [1, 1]
    spooled.close()


def test_tables_of_one_stream_have_one_schema():
    table = table_of()
    rows = list(padded(tables_of([[(1, "a", 1, 1)]], moving=False)))
    with pytest.raises(SchemaMismatch, match="one schema"):
        table.upsert(iter([*rows, rows[0].drop_columns(["v"])]), options=WINDOW)
    assert not table.timeline.entries


def test_a_full_temporary_directory_is_an_error_and_nothing_is_written(monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    table = table_of()
    rows = list(padded(tables_of([[(1, "a", 1, 1)]], moving=False)))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match="disk is full"):
        table.upsert(iter(rows), options=WINDOW)
    assert not table.timeline.entries


def test_another_writer_in_the_same_partition_conflicts_with_a_stream():
    """The keys are too many to be compared: whatever was committed in the partitions of the stream meanwhile counts."""
    table = table_of()
    other = lakefmt.open_table(table.client.store.url)
    beside = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    rows = list(padded(tables_of([[(n, "a", 1, 1) for n in range(20)]], moving=False)))
    covered: list[object] = []
    from lakefmt._core.write.transaction import WriteTransaction

    written = WriteTransaction.write

    def meanwhile(self, placed, announcements=None):
        if announcements is not None and not covered:  # file groups of a stream, not a batch
            covered.append(True)
            other.upsert(tables_of([[(1, "a", 9, 9)]], moving=False)[0], options=beside)
        return written(self, placed, announcements)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteTransaction, "write", meanwhile)
        result = table.upsert(iter(rows), options={**WINDOW, **beside})
    assert result.num_updates + result.num_inserts > 0
    assert ("k1", "b", 9, 9) in content(table)  # the stream came again, and its row of that key is the older one
    assert PartitionPath("city=a") in {each.partition_path for each in result.files}
