"""A snapshot shows one state to its end, or ends in a typed error: never a mix, never fewer rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.snapshot_files import cleaned_files, lost_files
from lakefmt._core.storage import open_store
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import build_timeline
from lakefmt.errors import SnapshotExpired
from lakefmt.testing.stores import CountingStore
from tests.judges.compare import assert_same_multiset
from tests.read.archiving import archive
from tests.read.cleaning import by_partition, clean, metadata

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(first: int, last: int, n: int) -> pa.Table:
    ids = range(first, last)
    return pa.table(
        {"id": [f"k{i}" for i in ids], "city": [f"c{i % 2}" for i in ids], "n": [n] * len(ids)}, schema=SCHEMA
    )


@pytest.fixture(params=[6, 8])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", table_version=request.param
    )
    made.insert(rows(0, 6, 1))
    return made


def root_of(table: Table) -> Path:
    return Path(table.client.store.url.removeprefix("file://"))


def paths(table: Table) -> list[str]:
    return [piece.base.path for piece in table.file_groups() if piece.base is not None]


def later(result: lakefmt.CommitResult, milliseconds: int = 1) -> str:
    """A time after a commit, where a clean may stand."""
    return str(int(max(result.instant, result.completion_time or "")) + milliseconds)


def test_later_commits_do_not_show(table: Table) -> None:
    pinned, before = table.snapshot(), table.read(meta_columns=True)
    table.upsert(rows(3, 9, 2))
    table.delete(["k0"])
    assert_same_multiset(pinned.read(meta_columns=True), before)
    assert pinned.instant is not None
    assert_same_multiset(pinned.scan(meta_columns=True).read_all(), before)
    assert table.read().num_rows == 8


@pytest.mark.parametrize("complete", [True, False])
def test_files_that_a_clean_removed_are_missed(table: Table, complete: bool) -> None:
    pinned, old = table.snapshot(), paths(table)
    done = table.upsert(rows(0, 6, 2))
    clean(root_of(table), later(done), old[:1], complete=complete)
    with pytest.raises(SnapshotExpired, match=f"{old[0]} is gone: the clean {later(done)} removed it"):
        pinned.read()
    with pytest.raises(SnapshotExpired, match="new snapshot"):
        pinned.scan()
    with pytest.raises(SnapshotExpired):
        pinned.file_slices()
    kept = old[1].partition("/")[0].partition("=")[2]
    assert pinned.read(filter=[("city", "=", kept)]).num_rows == 3, "the other partition is whole"
    assert table.read()["n"].to_pylist() == [2] * 6


def test_a_partition_that_was_deleted_and_cleaned_is_missed(table: Table) -> None:
    pinned = table.snapshot()
    (old,) = [path for path in paths(table) if path.startswith("city=c0")]
    done = table.delete_partitions(["city=c0"])
    assert pinned.read().num_rows == 6
    clean(root_of(table), later(done), [old])
    with pytest.raises(SnapshotExpired, match=old):
        pinned.read()
    assert table.read().num_rows == 3


def test_a_commit_that_was_undone_is_missed(table: Table) -> None:
    done = table.upsert(rows(0, 6, 2))
    pinned = table.snapshot()
    table.rollback(done.instant)
    with pytest.raises(SnapshotExpired, match=f"{done.instant} .*undone"):
        pinned.read()
    assert table.read()["n"].to_pylist() == [1] * 6


def test_a_commit_that_was_archived_is_not_missed(table: Table) -> None:
    table.upsert(rows(0, 6, 2))
    pinned, before = table.snapshot(), table.read()
    table.upsert(rows(0, 2, 3))
    archive(root_of(table), 1)
    assert_same_multiset(pinned.read(), before)
    archive(root_of(table), 1)
    assert_same_multiset(pinned.read(), before)


def test_a_file_that_vanishes_while_it_is_read_is_named(table: Table) -> None:
    stream, old = table.snapshot().scan(), paths(table)
    for path in old:
        (root_of(table) / path).unlink()
    with pytest.raises(SnapshotExpired, match=old[0]):
        stream.read_all()


# --- the past -----------------------------------------------------------------------------------------------------


def test_the_past_that_a_clean_left_alone_is_read_although_it_was_not_promised(table: Table) -> None:
    first = paths(table)
    second = table.upsert(rows(0, 6, 2))
    before, old = table.read(meta_columns=True), paths(table)
    third = table.upsert(rows(0, 6, 3))
    clean(root_of(table), later(third), first, oldest=third.instant)
    assert_same_multiset(table.read(as_of=second.instant, meta_columns=True), before)
    oldest = sorted(i.time for i in table.timeline.timeline.commits)[0]
    with pytest.raises(SnapshotExpired, match=f"(?s)as of {oldest} needs it; .*from {third.instant} on"):
        table.read(as_of=oldest)
    assert set(old).isdisjoint(first)


def test_a_clean_that_promises_nothing_is_looked_at(table: Table) -> None:
    first = paths(table)
    second = table.upsert(rows(0, 6, 2))
    clean(root_of(table), later(second), first)
    oldest = sorted(i.time for i in table.timeline.timeline.commits)[0]
    with pytest.raises(SnapshotExpired, match="new snapshot"):
        table.read(as_of=oldest)
    assert table.read(as_of=second.instant).num_rows == 6


def test_a_range_that_ends_before_a_clean_names_the_ends_that_can_be_read(table: Table) -> None:
    begin = table.timeline.timeline.commits[0].order_time
    first = paths(table)
    second = table.upsert(rows(0, 6, 2))
    clean(root_of(table), later(second), first, oldest=second.instant)
    with pytest.raises(SnapshotExpired, match=f"increment after 000 .*ends from {second.instant} on can be read"):
        table.incremental("000", begin)
    assert table.incremental("000").num_rows == 6


def test_cleans_before_the_bound_are_not_read_one_by_one(table: Table) -> None:
    for n in range(2, 6):
        old = paths(table)
        done = table.upsert(rows(0, 6, n))
        clean(root_of(table), later(done), old, oldest=done.instant)
    store = CountingStore(open_store(str(root_of(table))))
    counted = Table(TableClient(store))
    assert counted.read(as_of=done.instant).num_rows == 6
    assert len([one for one in store.log if one.kind == "read" and one.name.endswith(".clean")]) == 1


# --- the pure parts -----------------------------------------------------------------------------------------------


def test_what_a_clean_names_in_every_form() -> None:
    name = "f-0_1-0-0_20260101000000000.parquet"
    log = ".f-0_20260101000000000.log.1_0-0-0"
    record = {
        "partitionMetadata": {"p": {"successDeleteFiles": [name, log], "deletePathPatterns": [f"/x/p/{name}"]}},
        "filesToBeDeletedPerPartition": {"q": [name]},
        "filePathsToBeDeletedPerPartition": {"": [{"filePath": f"s3://b/{name}"}, {"filePath": None}]},
    }
    bases, logs = cleaned_files(record)
    assert sorted(file.path for file in bases) == [name, f"p/{name}", f"q/{name}"]
    assert [file.path for file in logs] == [f"p/{log}"]
    assert cleaned_files({}) == ([], [])
    assert metadata(by_partition([f"p/{name}"])).startswith(b"Obj")


def test_a_removed_file_is_lost_only_when_it_would_be_the_latest() -> None:
    def file(instant: str, group: str = "f-0") -> str:
        return f"{group}_1-0-0_{instant}.parquet"

    old, new, other = file("20260101000000000"), file("20260102000000000"), file("20260101000000000", "g-0")
    from lakefmt._core.timeline.instant import parse_instant_file

    found = (parse_instant_file(f"{day}_{day}.commit", 2) for day in ("20260101000000000", "20260102000000000"))
    timeline = build_timeline((i for i in found if i is not None), 2)
    present, removed = (
        cleaned_files({"filesToBeDeletedPerPartition": {"p": names}}) for names in ([new], [old, other])
    )
    assert lost_files(present, removed, timeline, {}) == [f"p/{other}"]
    assert lost_files(present, removed, timeline.as_of("20260101"), {}) == []
    past = timeline.as_of("20260101000000000")
    assert sorted(lost_files(present, removed, past, {})) == sorted([f"p/{old}", f"p/{other}"])
    assert lost_files(present, present, timeline, {}) == []
    assert lost_files(present, removed, timeline, {("p", "g-0"): timeline.commits[0].time}) == []


def test_a_removed_log_is_lost_with_its_slice() -> None:
    from lakefmt._core.timeline.instant import parse_instant_file

    base, log = "f-0_1-0-0_20260102000000000.parquet", ".g-0_20260101000000000.log.1_0-0-0"
    found = (parse_instant_file(f"{day}_{day}.deltacommit", 2) for day in ("20260101000000000", "20260102000000000"))
    timeline = build_timeline((i for i in found if i is not None), 2)
    present = cleaned_files({"filesToBeDeletedPerPartition": {"p": [base]}})
    removed = cleaned_files({"filesToBeDeletedPerPartition": {"p": [log]}})
    assert lost_files(present, removed, timeline, {}) == [f"p/{log}"], "nothing else of that group is left"
    newer = cleaned_files({"filesToBeDeletedPerPartition": {"p": [base.replace("f-0", "g-0")]}})
    assert lost_files(newer, removed, timeline, {}) == [], "a later base file has taken its place"
