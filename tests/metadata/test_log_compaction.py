"""Log compaction of the metadata table: one log says what several said, and nothing else changes."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.compaction import Entries, merge_entries, merge_log_entries
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, parse_metadata_file
from lakefmt._core.metadata.records import (
    ColumnStats,
    FileInfo,
    MetadataRecord,
    RecordFormat,
    RecordType,
    decode_record,
    encode_record,
)
from lakefmt._core.metadata.timeline import MetadataTimelineStore
from lakefmt._core.table import Table
from lakefmt._core.values import TableVersion
from lakefmt.errors import LakefmtError
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.example_counts import examples
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_dies import copy_of
from tests.metadata.test_metadata_table import OPTIONS, make, rows

FORM = RecordFormat.of_new_table(TableVersion.NINE)
OFTEN: dict[str, object] = {
    "hoodie.metadata.log.compaction.enable": "true",
    "hoodie.metadata.log.compaction.blocks.threshold": 2,
    "hoodie.metadata.compact.max.delta.commits": 7,
}


def _files(names: dict[str, int]) -> MetadataRecord:
    return MetadataRecord(RecordType.FILES, files={name: FileInfo(size, size == 0) for name, size in names.items()})


def _stats(ends: tuple[int, int], tight: bool) -> MetadataRecord:
    low, high = sorted(ends)
    return MetadataRecord(
        RecordType.PARTITION_STATS,
        column_stats=ColumnStats("p", "v", "LongWrapper", low, high, 5, 1, is_tight=tight, value_type=(4, None)),
    )


FILES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3).map(_files)
STATS = st.builds(_stats, st.tuples(st.integers(0, 9), st.integers(0, 9)), st.booleans())


def blocks(records: st.SearchStrategy[MetadataRecord]) -> st.SearchStrategy[list[Entries]]:
    """Blocks of records (a value for each key) and of deletes (None)."""
    data = st.dictionaries(st.sampled_from("xyz"), records, min_size=1, max_size=3).map(_data)
    deletes = st.sets(st.sampled_from("xyz"), min_size=1, max_size=2).map(_deletes)
    return st.lists(st.one_of(data, data, deletes), min_size=1, max_size=5)


def _data(records: dict[str, MetadataRecord]) -> Entries:
    values = [encode_record(record, FORM.schema_version) for record in records.values()]
    keys = pa.array([key.encode() for key in records], pa.binary())
    return Entries(keys, pa.array(values, pa.binary()), FORM.schema, "a block")


def _deletes(keys: set[str]) -> Entries:
    return Entries(pa.array([key.encode() for key in sorted(keys)], pa.binary()), None, "", "a block")


def folded(partition: str, entries: list[Entries]) -> list[Entries]:
    records = merge_log_entries(partition, entries, FORM)
    return [
        Entries(records.begun_anew, None, "", "a log"),
        Entries(records.keys, records.values, FORM.schema, "a log"),
        Entries(records.deleted, None, "", "a log"),
    ]


def shown(partition: str, entries: list[Entries]) -> dict[bytes, object]:
    """What readers see: files that are gone are not among them."""
    keys, values = merge_entries(partition, entries, FORM)
    records = {
        key: decode_record(value, FORM.schema) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    }
    return {
        key: record.column_stats
        if record.files is None
        else {name: info.size for name, info in record.files.items() if not info.is_deleted}
        for key, record in records.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("partition", "records"), [("files", FILES), ("partition_stats", STATS)])
@given(data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_the_folded_log_says_what_the_logs_say(
    partition: str, records: st.SearchStrategy[MetadataRecord], data: st.DataObject
) -> None:
    base = data.draw(st.dictionaries(st.sampled_from("xyz"), records, max_size=3).map(_data))
    logs, later = data.draw(blocks(records)), data.draw(blocks(records))
    expected = shown(partition, [base, *logs, *later])
    assert shown(partition, [base, *folded(partition, logs), *later]) == expected
    twice = folded(partition, [*folded(partition, logs), *later])
    assert shown(partition, [base, *twice]) == expected


def log_compactions(table: Table) -> int:
    timeline = MetadataTimelineStore(table.client.store, table.properties.version, durable=False).load()
    return sum(one.is_log_compaction for one in timeline.completed())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version"), [("cow", 6), ("mor", 8), ("cow", 9)])
def test_every_kind_of_write_is_recorded_with_it(kind: str, version: int) -> None:
    table = make(kind, version, OFTEN)
    if version > 6:
        table.index.create("secondary_index", "v")
    for number in range(4):
        table.upsert(rows(number, number + 6, number))
        check_metadata_table(table)
    assert log_compactions(table)
    table.delete(["k1", "k5"])
    check_metadata_table(table)
    table.insert(rows(20, 24, 3))
    table.insert_overwrite(rows(40, 42, 5))
    check_metadata_table(table)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(rows(0, 6, 6))
    if kind == "mor":
        table.compact()
    check_metadata_table(table)
    table.delete_partitions(["city=oslo"])
    for number in range(8):  # past compactions of the metadata table
        table.upsert(rows(number, number + 3, 10 + number))
    check_metadata_table(table)
    assert table.index.check().is_clean


@pytest.mark.parametrize("version", [6, 8])
def test_a_commit_that_a_log_compaction_took_in_is_rolled_back(version: int) -> None:
    table = make("cow", version, {**OFTEN, "hoodie.metadata.compact.max.delta.commits": 50})
    for number in range(4):
        table.upsert(rows(number, number + 6, number))
    before = log_compactions(table)
    assert before
    for _ in range(3):
        table.rollback(table.timeline.timeline.commits[-1].time)
        check_metadata_table(table)
    assert log_compactions(table) < before
    table.upsert(rows(0, 9, 9))
    check_metadata_table(table)


def test_readers_take_the_folded_log_for_the_others() -> None:
    """The rule is needed, and the log of the log compaction is what is read."""
    table = make("cow", 8, {**OFTEN, "hoodie.metadata.compact.max.delta.commits": 50})
    for number in range(3):
        table.upsert(rows(0, 6, number))
    timeline = MetadataTimelineStore(table.client.store, table.properties.version, durable=False).load()
    [time] = [one.time for one in timeline.completed() if one.is_log_compaction]
    store = table.client.store
    logs = {each.name: parse_metadata_file(each.name.rpartition("/")[2]) for each in store.list(METADATA_DIRECTORY)}
    folded_logs = {name: log.file_id for name, log in logs.items() if log is not None and log.instant == time}
    assert (
        len(folded_logs) >= 3
    )  # files, statistics of columns and of partitions; filters where names of files fall together
    recorded = {one.time for one in timeline.completed() if not one.is_initialisation and one.time < time}
    replaced = [
        name
        for name, log in logs.items()
        if log is not None and log.version and log.instant in recorded and log.file_id in folded_logs.values()
    ]
    assert len(replaced) == 2 * len(folded_logs)
    store.delete(replaced)  # nobody needs them any more
    check_metadata_table(table)
    store.delete(folded_logs)
    with pytest.raises(AssertionError):
        check_metadata_table(table)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [6, 9])
def test_a_log_compaction_that_dies_anywhere_changes_nothing(version: int) -> None:
    deadly = {**OPTIONS, **OFTEN, "hoodie.client.heartbeat.tolerable.misses": 0}
    table = make("cow", version, {"hoodie.metadata.compact.max.delta.commits": 50})
    for number in range(3):
        table.upsert(rows(number, number + 4, number))
    faulty = FaultStore(copy_of(table.client.store))
    Table(TableClient(faulty, deadly)).upsert(rows(2, 9, 9))
    names = [str(effect) for effect in faulty.effects]
    first = next(number for number, name in enumerate(names, 1) if ".logcompaction.requested" in name)
    last = next(number for number, name in enumerate(names, 1) if number > first and ".deltacommit" in name)
    of_service = range(first, last + 1)
    assert len(of_service) > 5
    for number in of_service:
        store = copy_of(table.client.store)
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            Table(TableClient(FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True)), deadly)).upsert(
                rows(2, 9, 9)
            )
        healthy = Table(TableClient(store, deadly))
        healthy.upsert(rows(0, 2, 10))
        assert not multiset_difference(
            healthy.read(["id"]), rows(0, 9 if healthy.read().num_rows > 6 else 6, 0).select(["id"])
        ), f"effect {number}"
        check_metadata_table(healthy)
