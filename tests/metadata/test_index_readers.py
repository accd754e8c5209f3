"""The record index and column statistics as they are read: keys and file groups of the data, ends of its columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile
from lakefmt._core.metadata import index_readers
from lakefmt._core.metadata.index_readers import (
    LOCATION_SCHEMA,
    decode_stats,
    is_partitioned,
    lookup_locations,
    read_stats,
    scan_locations,
)
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.metadata.reader import RecordRun, newest_records
from lakefmt._core.metadata.records import ColumnStats, MetadataRecord, RecordType, encode_record, record_schema
from lakefmt._core.metadata.statistics import column_stats_of, row_ranges
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile
from tests.metadata.metadata_fixtures import (
    INDEXED,
    NOT_PARTITIONED,
    PARTITIONED_INDEX,
    VERSION_6,
    WITH_STATS,
    client_of,
    metadata_of,
    ready,
    unpacked,
)

#: Milliseconds are stored as numbers under a column that the table reads as text: nothing is known of its ends.
OTHER_TYPE = {("v9_timebasedkeygen_epochmillis", "ts_millis")}


# -------------------------------------------------------------------------------------------------------- record index


def stored_places(root: Path) -> set[tuple[str, str]]:
    rows = lakefmt.open_table(str(root)).read(meta_columns=True)
    names = ("_hoodie_record_key", "_hoodie_partition_path")
    return set(zip(*(rows[name].to_pylist() for name in names), strict=True))


def places_of(locations: pa.Table) -> set[tuple[str, str]]:
    return set(zip(locations["key"].to_pylist(), locations["partition"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEXED)
def test_the_record_index_has_the_keys_and_file_groups_of_the_data(name: str, tmp_path: Path):
    root = unpacked(name, tmp_path)
    table, client = metadata_of(root), client_of(root)
    locations = scan_locations(table)
    assert locations.schema == LOCATION_SCHEMA
    assert places_of(locations) == stored_places(root)
    groups = {(one.partition, one.file_id) for one in client.at(client.load()).slices()}
    named = set(zip(locations["partition"].to_pylist(), locations["file_id"].to_pylist(), strict=True))
    assert named
    assert named <= groups
    keys = locations["key"].combine_chunks()
    asked = pa.concat_arrays([keys, pa.array(["no such key", ""])])
    found = lookup_locations(table, asked)
    order = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(order).equals(locations.sort_by(order))
    assert lookup_locations(table, pa.array(["no such key"])).num_rows == 0


def test_a_partitioned_record_index_is_asked_by_partition(tmp_path: Path):
    table = metadata_of(unpacked(PARTITIONED_INDEX, tmp_path))
    assert is_partitioned(table)
    everything = sorted(places_of(scan_locations(table)))
    key, home = everything[0]
    asked = pa.array([key])
    for partition in sorted({path for _, path in everything}):
        expected = {(key, partition)} if (key, partition) in everything else set()
        assert places_of(lookup_locations(table, asked, [partition])) == expected
    assert (key, home) in places_of(lookup_locations(table, asked))
    assert lookup_locations(table, asked, ["no/such"]).num_rows == 0


def index_files(root: Path) -> list[Path]:
    return sorted((root / ".hoodie/metadata/record_index").glob("*record-index-*"))


@pytest.mark.parametrize("name", [NOT_PARTITIONED, VERSION_6])
@pytest.mark.parametrize("number", ["0000", "last"])
def test_a_missing_file_group_is_refused(name: str, number: str, tmp_path: Path):
    """Without the check keys would be looked for in the wrong groups, and most would not be found."""
    root = unpacked(name, tmp_path)
    numbers = sorted({path.name.rpartition("-0_")[0][-4:] for path in index_files(root)})
    gone = numbers[-1] if number == "last" else number
    assert len(numbers) > 1
    for path in index_files(root):
        if f"-{gone}-0_" in path.name:
            path.unlink()
    with pytest.raises(CorruptFile, match="file group"):
        lookup_locations(metadata_of(root), pa.array(["key-001", "key-002", "key-003", "key-004", "key-005"]))


def test_a_changed_location_is_seen(tmp_path: Path):
    """The comparison above compares: one location changed is one that differs."""
    root = unpacked(VERSION_6, tmp_path)
    before = scan_locations(metadata_of(root))
    path = max((one for one in index_files(root) if one.suffix == ".hfile"), key=lambda one: one.name)
    reader = HFileReader.from_bytes(path.read_bytes(), path.name)
    records = reader.read()
    keys, values = records["key"].to_pylist(), records["value"].to_pylist()
    values[0] = values[0].replace(b"eu", b"us") if b"eu" in values[0] else values[0].replace(b"us", b"eu")
    path.write_bytes(encode_hfile(pa.array(keys), pa.array(values), HFileOptions(reader.schema)))
    after = scan_locations(metadata_of(root))
    assert len(places_of(before) ^ places_of(after)) in (0, 2)
    assert values != records["value"].to_pylist()


def test_the_newest_record_of_a_key_counts_and_deletes_end_it():
    def run(keys: list[bytes], values: list[bytes] | None, schema: str = "s") -> RecordRun:
        columns = [None if each is None else pa.chunked_array([pa.array(each, pa.binary())]) for each in (keys, values)]
        return RecordRun(columns[0], columns[1], "" if values is None else schema, "a.log")

    runs = [run([b"a", b"b", b"c"], [b"1", b"2", b"3"]), run([b"b", b"c"], None), run([b"c", b"a"], [b"4", b"5"], "t")]
    newest, schemas = newest_records(runs)
    found = {row["key"]: (row["value"], schemas[row["schema"]]) for row in newest.to_pylist()}
    assert found == {b"a": (b"5", "t"), b"c": (b"4", "t")}
    assert newest_records([])[0].num_rows == 0
    assert newest_records([run([b"a"], None)])[0].num_rows == 0


# ---------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_STATS)
def test_the_ends_are_those_of_the_files(name: str, tmp_path: Path):
    root = unpacked(name, tmp_path)
    table, client = metadata_of(root), client_of(root)
    state = client.load()
    files = {one.base.name: root / one.base.path for one in client.at(state).slices() if one.base is not None}
    compared = 0
    for field in client.at(state).schema():
        stats = read_stats(table, PartitionKind.COLUMN_STATS, field.name, field.type)
        assert stats.schema.field("min").type == field.type
        for row in stats.to_pylist():
            if row["name"] not in files or (root.name, field.name) in OTHER_TYPE:
                continue
            column = pq.ParquetFile(files[row["name"]]).read([field.name])[field.name].cast(field.type)
            ends = pc.min_max(column).as_py()
            found = (row["min"], row["max"], row["value_count"], row["null_count"])
            assert found == (ends["min"], ends["max"], len(column), column.null_count), (field, row["name"])
            compared += 1
    assert compared > 5
    if "partition_stats" in ready(root):
        check_partition_stats(root, table, client)


def check_partition_stats(root: Path, table, client) -> None:
    state = client.load()
    rows = lakefmt.open_table(str(root)).read(meta_columns=True)
    paths = client.listing(state.config).partitions()
    for field in client.at(state).schema():
        stats = read_stats(table, PartitionKind.PARTITION_STATS, field.name, field.type)
        one = read_stats(table, PartitionKind.PARTITION_STATS, field.name, field.type, paths[:1])
        assert one["name"].to_pylist() == (paths[:1] if stats.num_rows else [])
        for row in stats.to_pylist():
            values = rows.filter(pc.equal(rows["_hoodie_partition_path"], row["name"]))[field.name]
            ends = pc.min_max(values).as_py()
            if ends["min"] is not None and row["min"] is not None:
                # Statistics are of files, in which rows may be that a log replaces.
                assert row["min"] <= ends["min"] <= ends["max"] <= row["max"], (field, row)


def test_statistics_of_some_partitions(tmp_path: Path):
    root = unpacked(PARTITIONED_INDEX, tmp_path)
    table = metadata_of(root)
    everything = read_stats(table, PartitionKind.COLUMN_STATS, "qty", pa.int32())
    parts = [
        read_stats(table, PartitionKind.COLUMN_STATS, "qty", pa.int32(), [path]) for path in ("eu", "us", "asia/東京")
    ]
    assert sorted(name for part in parts for name in part["name"].to_pylist()) == sorted(everything["name"].to_pylist())
    assert all(part.num_rows for part in parts)
    assert read_stats(table, PartitionKind.COLUMN_STATS, "qty", pa.int32(), []).num_rows == 0
    assert read_stats(table, PartitionKind.COLUMN_STATS, "no such column", pa.int32()).num_rows == 0


_TYPES = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(
        dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)
    ),
    pa.timestamp("us"): st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
    pa.decimal128(10, 2): st.decimals(Decimal(-99999999), Decimal(99999999), places=2),
    pa.decimal128(15, 0): st.integers(-(10**15) + 1, 10**15 - 1).map(Decimal),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[list[object]]]:
    kind = draw(st.sampled_from(list(_TYPES)))
    return kind, draw(st.lists(st.lists(_TYPES[kind] | st.none(), min_size=1, max_size=4), min_size=1, max_size=5))


@given(columns(), st.sampled_from(list(TableVersion)))
def test_ends_come_back_as_values_of_the_columns_type(
    column: tuple[pa.DataType, list[list[object]]], version: TableVersion
):
    kind, files = column
    values, expected = [], []
    for number, rows in enumerate(files):
        array = pa.array(rows, kind)
        ranges = row_ranges(pa.table({"c": array}), ["c"])
        stats = column_stats_of(ranges["c"], kind, f"f{number}", version, is_tight=number % 2 == 0)
        values.append(encode_record(MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats), version))
        ends = pc.min_max(array).as_py()
        expected.append((f"f{number}", ends["min"], ends["max"], len(rows), array.null_count))
    found = decode_stats(pa.array(values, pa.binary()), record_schema(version), kind, "a.hfile")
    got = list(zip(*(found[name].to_pylist() for name in found.column_names[:5]), strict=True))
    assert sorted(got, key=lambda row: row[0]) == expected


def encoded(stats: ColumnStats, version: TableVersion = TableVersion.NINE) -> bytes:
    return encode_record(MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats), version)


_ENDS = st.sampled_from(
    [
        (None, None, None),
        ("IntWrapper", 1, 2),
        ("LongWrapper", 3, 1 << 40),
        ("StringWrapper", "1", "b"),
        ("BytesWrapper", b"", b"x" * 9),
    ]
)


@given(st.lists(_ENDS, min_size=1, max_size=5), st.sampled_from([pa.int32(), pa.int64(), pa.string()]))
def test_records_of_one_wrapper_are_decoded_at_once_with_the_same_result(
    ends: list[tuple[str | None, object, object]], kind: pa.DataType
):
    values = pa.array([encoded(ColumnStats(f"f{n}", "c", *each, 5, n)) for n, each in enumerate(ends)], pa.binary())
    schema = record_schema(TableVersion.NINE)
    plain = index_readers._plain_schema(schema)
    found = index_readers._decoded_with_one_wrapper(values, plain, schema, "f")
    assert (found is not None) == (len({wrapper for wrapper, _, _ in ends}) == 1)
    at_once = decode_stats(values, schema, kind, "f")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_readers, "_decoded_with_one_wrapper", lambda *_: None)
        assert decode_stats(values, schema, kind, "f").sort_by("name").equals(at_once.sort_by("name"))


@pytest.mark.parametrize(
    ("wrapper", "ends", "kind"),
    [
        ("StringWrapper", ("a", "b"), pa.int32()),
        ("LongWrapper", (1, 2), pa.string()),
        ("LongWrapper", (1 << 40, 1 << 41), pa.int32()),
        ("LongWrapper", (1, 2), pa.decimal128(10, 2)),
        ("BytesWrapper", (b"x" * 17, b"y" * 17), pa.decimal128(10, 2)),
        ("StringWrapper", ("a", "b"), pa.timestamp("us")),
    ],
)
def test_ends_of_another_type_are_not_known(wrapper: str, ends: tuple[object, object], kind: pa.DataType):
    value = encoded(ColumnStats("f", "c", wrapper, *ends, 5, 0))
    found = decode_stats(pa.array([value]), record_schema(TableVersion.NINE), kind, "a.hfile")
    assert (found["min"].to_pylist(), found["max"].to_pylist()) == ([None], [None])
    assert found["value_count"].to_pylist() == [5]


def test_records_of_removed_files_are_left_out():
    values = [encoded(ColumnStats(name, "c", "IntWrapper", 1, 2, 5, 0, is_deleted=name == "b")) for name in "abc"]
    found = decode_stats(pa.array(values), record_schema(TableVersion.NINE), pa.int32(), "a.hfile")
    assert found["name"].to_pylist() == ["a", "c"]


def test_ends_where_all_values_are_null_are_null():
    """Some releases store 0 and false."""
    value = encoded(ColumnStats("f", "c", "BooleanWrapper", False, False, 3, 3))
    found = decode_stats(pa.array([value]), record_schema(TableVersion.NINE), pa.bool_(), "a.hfile")
    assert found["min"].to_pylist() == [None]


@pytest.mark.parametrize(
    "schema", ["{}", "[]", "no JSON", '{"fields":[{"name":"ColumnStatsMetadata","type":["null"]}]}']
)
def test_a_damaged_schema_is_named(schema: str):
    with pytest.raises(CorruptFile, match="schema"):
        decode_stats(pa.array([b"\0"]), schema, pa.int32(), "a.hfile")


@given(st.binary(max_size=60))
def test_damaged_records_are_refused(data: bytes):
    good = encoded(ColumnStats("f", "c", "IntWrapper", 1, 2, 5, 0))
    mixed = bytearray(good)
    mixed[: len(data)] = data
    try:
        found = decode_stats(pa.array([bytes(mixed)]), record_schema(TableVersion.NINE), pa.int32(), "a.hfile")
    except CorruptFile as error:
        assert "a.hfile" in str(error)  # noqa: PT017 - a value is fine, too
    else:
        assert found.num_rows <= 1
