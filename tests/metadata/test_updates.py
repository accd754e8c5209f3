"""What commits, cleans and moved keys change in the metadata table."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.metadata.layout import column_stats_key, file_group_numbers, secondary_index_keys
from lakefmt._core.metadata.records import (
    FileInfo,
    PartitionUpdate,
    RecordFormat,
    RecordLocation,
    decode_record,
    record_schema,
)
from lakefmt._core.metadata.statistics import (
    ColumnRange,
    column_stats_of,
    footer_ranges,
    indexed_columns,
    merged_ranges,
    row_ranges,
)
from lakefmt._core.metadata.updates import (
    ChangedKeys,
    DataFile,
    KeyChange,
    bloom_filters_update,
    column_stats_update,
    compared_keys,
    files_update,
    partition_stats_update,
    record_index_update,
    removed_files_update,
    secondary_index_update,
)
from lakefmt._core.timeline.observer import keys_of
from lakefmt._core.values import TableVersion

V8, V9 = (RecordFormat.of_new_table(version) for version in (TableVersion.EIGHT, TableVersion.NINE))


def _records(update: PartitionUpdate) -> dict[str, object]:
    schema = record_schema(TableVersion.NINE)
    values = update.values.to_pylist()
    return {key: decode_record(value, schema) for key, value in zip(update.keys.to_pylist(), values, strict=True)}


def test_files_of_a_commit() -> None:
    found = _records(files_update({"us": {"a": 5}, "": {"b": 7, "empty": 0}}, V8))
    assert {key: record.files for key, record in found.items()} == {  # type: ignore[attr-defined]
        "__all_partitions__": {"us": FileInfo(0), ".": FileInfo(0)},
        "us": {"a": FileInfo(5)},
        ".": {"b": FileInfo(7)},
    }


def test_an_empty_commit_has_the_record_of_partitions_only() -> None:
    assert list(_records(files_update({}, V8))) == ["__all_partitions__"]


def test_files_of_a_clean() -> None:
    update = removed_files_update({"us": ["a"], "eu": ["b"]}, ["eu"], V8)
    found = _records(update)
    assert {key: record.files for key, record in found.items()} == {  # type: ignore[attr-defined]
        "__all_partitions__": {"us": FileInfo(0), "eu": FileInfo(0, True)},
        "us": {"a": FileInfo(0, True)},
    }
    assert update.deleted.to_pylist() == ["eu"]


def test_statistics_and_filters_of_files() -> None:
    file = DataFile("us", "a.parquet", 9, "20260101000000000", {"v": ColumnRange("v", 1, 5, 3, 0)}, ("SIMPLE", "abc"))
    update = column_stats_update([file], {"v": pa.int64()}, V9, removed=[("us", "old")])
    ((key, record),) = _records(update).items()
    assert key == column_stats_key("v", "us", "a.parquet")
    assert record.column_stats.value_type == (4, None)  # type: ignore[attr-defined]
    assert update.deleted.to_pylist() == [column_stats_key("v", "us", "old")]
    ((_, bloom),) = _records(bloom_filters_update([file], V8)).items()
    assert bloom.bloom_filter.content == b"abc"  # type: ignore[attr-defined]
    ((_, whole),) = _records(partition_stats_update({"": file.ranges}, {"v": pa.int64()}, V8)).items()
    assert (whole.column_stats.file_name, whole.column_stats.is_tight) == (".", True)  # type: ignore[attr-defined]


_ROWS = pa.table(
    {
        "d": pa.array([datetime.date(2024, 1, 16), None, datetime.date(2023, 1, 1)]),
        "t": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
        "x": pa.array([Decimal("-45.00"), None, Decimal("5.10")], pa.decimal128(10, 2)),
        "b": [True, False, None],
        "f": [1.5, None, -2.0],
        "s": ["a", "é", None],
        "i": pa.array([1, 2, 3], pa.int32()),
        "n": pa.array([None, None, None], pa.int64()),
    }
)


def test_footers_and_rows_give_the_same_ranges() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(_ROWS, sink, store_schema=False, row_group_size=2)
    metadata = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    types = {field.name: field.type for field in _ROWS.schema}
    found, unknown = footer_ranges(metadata, [*types, "absent"], types)
    assert not unknown
    assert all(one.total_size > 0 for one in found.values())
    strip = {name: (one.minimum, one.maximum, one.value_count, one.null_count) for name, one in found.items()}
    rows = row_ranges(_ROWS, types)
    assert strip == {name: (one.minimum, one.maximum, one.value_count, one.null_count) for name, one in rows.items()}


@pytest.mark.parametrize("others", [[], [""], ["", None], ["b"], ["", "b"]])
def test_an_end_that_is_too_long_for_a_footer_is_never_below_the_texts(others: list[str | None]) -> None:
    texts = ["a" * 5_000 + "x", *others]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": texts}), sink, store_schema=False)
    metadata = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    found, unknown = footer_ranges(metadata, ["s"], {"s": pa.string()})
    whole = found["s"].maximum is not None and found["s"].maximum >= max(text for text in texts if text is not None)
    assert unknown == ("s",) or whole


@pytest.mark.parametrize(
    ("kind", "end", "wrapper", "written", "ordinal"),
    [
        (pa.decimal128(10, 2), 4500, "BytesWrapper", bytes.fromhex("1194"), (10, "10,2")),
        (pa.decimal128(15, 2), 500000, "BytesWrapper", bytes.fromhex("07a120"), (10, "15,2")),
        (pa.decimal128(10, 2), 0, "BytesWrapper", b"\0", (10, "10,2")),
        (pa.decimal128(10, 2), -1, "BytesWrapper", b"\xff", (10, "10,2")),
        (pa.date32(), 19738, "IntWrapper", 19738, (12, None)),
        (pa.timestamp("us", "UTC"), 1705392900000000, "LongWrapper", 1705392900000000, (16, None)),
        (pa.bool_(), False, "BooleanWrapper", False, (2, None)),
    ],
)
def test_ends_of_version_2(kind: pa.DataType, end: object, wrapper: str, written: object, ordinal: object) -> None:
    stats = column_stats_of(ColumnRange("c", end, end, 1, 0), kind, "f", TableVersion.NINE)
    assert (stats.wrapper, stats.minimum, stats.value_type) == (wrapper, written, ordinal)


def test_ends_of_version_1() -> None:
    dates = column_stats_of(ColumnRange("c", 3, 4, 1, 0), pa.date32(), "f", TableVersion.EIGHT)
    assert (dates.wrapper, dates.minimum, dates.value_type) == ("DateWrapper", 3, None)
    decimals = column_stats_of(ColumnRange("c", 150, 150, 1, 0), pa.decimal128(10, 2), "f", TableVersion.EIGHT)
    assert decimals.minimum == (15 * 10**14).to_bytes(7, "big")
    assert column_stats_of(ColumnRange("c", 5, 5, 1, 0), pa.timestamp("ms"), "f", TableVersion.EIGHT).minimum == 5000


def test_no_rows_have_the_null_type() -> None:
    assert column_stats_of(ColumnRange("c", None, None, 0, 0), pa.int64(), "f", TableVersion.NINE).value_type == (
        1,
        None,
    )


def test_indexed_columns_follow_the_schema() -> None:
    schema = pa.schema([(f"c{n}", pa.int64()) for n in range(40)])
    assert len(indexed_columns(schema)) == 3 + 32
    assert indexed_columns(schema, ["c39", "no"], meta_columns=False) == ("c39",)
    assert merged_ranges([]) is None


# ------------------------------------------------------------------------------------------------------------- indexes


def _rows(pairs: dict[str, str | None]) -> pa.Table:
    return pa.table({"key": pa.array(list(pairs), pa.string()), "v": pa.array(list(pairs.values()), pa.string())})


def _keys(change: KeyChange) -> ChangedKeys:
    return ChangedKeys(change.location, *compared_keys(keys_of(change.before["key"]), keys_of(change.after["key"])))


def _change(name: str, before: dict[str, str | None], after: dict[str, str | None], partition: str = "us") -> KeyChange:
    return KeyChange(RecordLocation(partition, name, 0), _rows(before), _rows(after))


_GROUPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.sampled_from("xy$\\"))),
        st.dictionaries(st.sampled_from("abcdefgh"), st.one_of(st.none(), st.sampled_from("xy$\\"))),
    ),
    max_size=3,
)


@given(_GROUPS)
def test_indexes_hold_afterwards_what_the_file_groups_hold(groups: list[tuple[dict[str, str], dict[str, str]]]) -> None:
    # A key is in one file group at a time.
    befores, afters = dict[str, int](), dict[str, int]()
    changes = []
    for number, (before, after) in enumerate(groups):
        old = {k: v for k, v in before.items() if befores.setdefault(k, number) == number}
        new = {k: v for k, v in after.items() if afters.setdefault(k, number) == number}
        changes.append(_change(f"g{number}", dict(old), dict(new)))
    index = {key: f"g{number}" for key, number in befores.items()}
    update = record_index_update(list(map(_keys, changes)), V8)
    for key in update.deleted.to_pylist():
        del index[key]
    index |= {key: record.location.file_id for key, record in _records(update).items()}  # type: ignore[attr-defined]
    assert index == {key: f"g{number}" for key, number in afters.items()}

    pairs = {pair for change in changes for pair in _pairs(change.before)}
    found = secondary_index_update("secondary_index_v", "v", changes, V8, by_value=False)
    assert pairs >= set(found.deleted.to_pylist())
    assert not pairs & set(found.keys.to_pylist())
    left = pairs - set(found.deleted.to_pylist()) | set(found.keys.to_pylist())
    assert left == {pair for change in changes for pair in _pairs(change.after)}


def _pairs(rows: pa.Table) -> list[str]:
    pairs = secondary_index_keys(rows.column("v").combine_chunks(), rows.column("key").combine_chunks())
    return list(pairs.to_pylist())


def test_a_secondary_index_of_version_2_is_routed_by_the_value_as_it_is_written() -> None:
    """Hudi 1.2.0 stored the keys of this value in file group 9 of 10: it hashes the value escaped."""
    update = secondary_index_update("secondary_index_v", "v", [_change("g", {}, {"a": "a$b"})], V9, by_value=True)
    assert update.keys.to_pylist() == ["a\\$b$a"]
    assert update.routing is not None
    assert update.routing.to_pylist() == ["a\\$b$"]
    assert file_group_numbers(update.routing, 10).tolist() == [9]


def test_a_secondary_index_of_version_2_is_routed_by_the_value() -> None:
    changes = [_change("g", {"a": "x"}, {"a": "y", "b": None})]
    update = secondary_index_update("secondary_index_v", "v", changes, V9, by_value=True)
    assert update.keys.to_pylist() == ["y$a", "\0$b"]
    assert update.deleted.to_pylist() == ["x$a"]
    assert update.routing is not None
    assert update.routing.to_pylist() == ["y$", "\0$", "x$"]


def test_a_partitioned_record_index_keeps_partitions_apart() -> None:
    changes = [_change("g", {"a": None}, {}, "us"), _change("h", {}, {"a": None, "b": None}, "eu")]
    update = record_index_update(list(map(_keys, changes)), V9, partitioned=True)
    assert update.keys.to_pylist() == ["a", "b"]
    assert update.deleted.to_pylist() == ["a"]
    assert update.data_partitions is not None
    assert update.data_partitions.to_pylist() == ["eu", "eu", "us"]
