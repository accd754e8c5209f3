"""Statistics of data partitions that grow: what is stored, widened by new files, is what all files together say."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.listing import StorageListing
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.metadata import observer
from lakefmt._core.metadata.collect import FactCollector
from lakefmt._core.metadata.commit_updates import only_adds_files, only_opens_groups, widened_partition_stats
from lakefmt._core.metadata.records import MetadataRecord, PartitionUpdate, RecordFormat, RecordType, decode_record
from lakefmt._core.metadata.statistics import ColumnRange, merged_ranges
from lakefmt._core.metadata.updates import partition_stats_update
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.values import FileId, PartitionPath, TableVersion, WriteOperation, WriteStat
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_table import OPTIONS, make, rows

FORMS = [RecordFormat.of_new_table(version) for version in (TableVersion.EIGHT, TableVersion.NINE)]
KINDS = {
    "number": (pa.int64(), st.integers(-(2**40), 2**40)),
    "text": (pa.string(), st.text(max_size=4)),
    "price": (pa.decimal128(12, 2), st.integers(-(10**9), 10**9)),
    "share": (pa.float64(), st.floats(allow_nan=False)),
    "moment": (pa.timestamp("ms"), st.integers(0, 2**40)),
    "flag": (pa.bool_(), st.booleans()),
}
TYPES = {name: kind for name, (kind, _) in KINDS.items()}
#: Appends alone: a file for each, so that a partition grows.
APPENDS = {**OPTIONS, "hoodie.parquet.small.file.limit": 0, "hoodie.metadata.record.index.enable": "false"}


def records(update: PartitionUpdate, form: RecordFormat) -> dict[str, MetadataRecord]:
    values = (decode_record(value, form.schema) for value in update.values.to_pylist())
    return dict(zip(update.keys.to_pylist(), values, strict=True))


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, ColumnRange]:
    """The ranges of a file's columns."""
    columns = {}
    for name, (_, values) in KINDS.items():
        ends = sorted(draw(st.lists(values, max_size=3)))
        nulls = draw(st.integers(0, 2))
        sizes = draw(st.integers(0, 99)), draw(st.integers(0, 99))
        low, high = (ends[0], ends[-1]) if ends else (None, None)
        columns[name] = ColumnRange(name, low, high, len(ends) + nulls, nulls, *sizes)
    return columns


@pytest.mark.parametrize("form", FORMS, ids=["8", "9"])
@given(old=st.lists(ranges(), min_size=1, max_size=3), new=st.lists(ranges(), min_size=1, max_size=3))
def test_widened_statistics_are_those_of_all_files(
    form: RecordFormat, old: list[dict[str, ColumnRange]], new: list[dict[str, ColumnRange]]
) -> None:
    def update(files: list[dict[str, ColumnRange]]) -> dict[str, dict[str, ColumnRange]]:
        merged = {name: merged_ranges(file[name] for file in files) for name in KINDS}
        return {"p=1": {name: one for name, one in merged.items() if one is not None}}

    stored = records(partition_stats_update(update(old), TYPES, form), form)
    widened = widened_partition_stats(stored, update(new), TYPES, form)
    assert widened is not None
    assert records(widened, form) == records(partition_stats_update(update([*old, *new]), TYPES, form), form)


def test_what_is_stored_is_not_widened_where_it_does_not_tell() -> None:
    form, added = FORMS[1], {"p": {"number": ColumnRange("number", 1, 2, 2, 0)}}
    ((key, record),) = records(partition_stats_update(added, TYPES, form), form).items()
    stats = record.column_stats
    assert stats is not None
    assert widened_partition_stats({key: record}, added, TYPES, form) is not None
    for changed in (
        replace(stats, is_tight=False),
        replace(stats, is_deleted=True),
        replace(stats, wrapper="IntWrapper", value_type=(3, None)),
        replace(stats, value_type=(15, None)),
    ):
        stored = {key: MetadataRecord(RecordType.PARTITION_STATS, column_stats=changed)}
        assert widened_partition_stats(stored, added, TYPES, form) is None
    assert widened_partition_stats({}, added, TYPES, form) is None


def test_which_commits_only_add_files() -> None:
    def commit(operation: WriteOperation = WriteOperation.UPSERT, **stat: object) -> CommitMetadata:
        written = WriteStat(FileId("f"), PartitionPath("p"), "p/x", **stat)  # type: ignore[arg-type]
        return CommitMetadata(operation, (written,))

    new, log, rewritten = commit(), commit(prev_commit="1", log_files=("x",)), commit(prev_commit="1")
    assert [only_adds_files(each) for each in (new, log, rewritten)] == [True, True, False]
    assert [only_opens_groups(each) for each in (new, log, rewritten)] == [True, False, False]
    assert not only_adds_files(commit(WriteOperation.CLUSTER))
    assert not only_adds_files(replace(new, compacted=True))
    assert not only_adds_files(replace(new, replaced_file_ids={PartitionPath("p"): (FileId("g"),)}))


def footers_of(table: Table, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers are read from now on for statistics; a listing of storage fails."""
    read: list[str] = []
    original = FactCollector._base_ranges

    def base_ranges(self: FactCollector, file: BaseFile) -> dict[str, ColumnRange]:
        read.append(file.name)
        return original(self, file)

    monkeypatch.setattr(FactCollector, "_base_ranges", base_ranges)
    monkeypatch.setattr(StorageListing, "files", lambda *_: pytest.fail("storage was listed"))
    return read


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_an_append_reads_no_file_but_its_own(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(more=APPENDS)
    for number in range(3):
        table.insert(rows(10 * number, 10 * number + 2, 1))
    with monkeypatch.context() as patch:
        read = footers_of(table, patch)
        for number in range(3, 10):
            used = lakefmt.open_table(table.client.store.url, options=APPENDS) if cold else table
            used.insert(rows(10 * number, 10 * number + 2, 1))
    assert len(read) == len(set(read)) == 14
    check_metadata_table(table)


def test_a_handle_reads_the_stored_statistics_only_when_another_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("mor", 9, more=APPENDS)
    other = lakefmt.open_table(table.client.store.url, options=APPENDS)
    read: list[object] = []
    stored = observer.stored_records

    def stored_records(*given: object) -> object:
        read.append(given)
        return stored(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(observer, "stored_records", stored_records)
    reads = []
    for number, writer in enumerate((table, table, table, other, other, table, table)):
        writer.upsert(rows(0, 4 + number, number))
        reads.append(len(read))
    assert reads[1:3] == [reads[1]] * 2
    assert reads[3] == reads[4] == reads[2] + 1
    assert reads[5] == reads[6] == reads[4] + 1
    check_metadata_table(table)


def test_statistics_of_a_write_that_was_undone_are_forgotten() -> None:
    table = make("mor", 9, more=APPENDS)
    table.upsert(rows(0, 4, 1))
    for number in range(3):
        last = table.upsert(rows(0, 40, 100 + number))
        assert last.instant is not None
        table.rollback(last.instant)
        table.upsert(rows(0, 6, 2 + number))
        check_metadata_table(table)
