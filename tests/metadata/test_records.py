"""Records of the metadata table: bytes of real tables, a round trip in every version, rules of merging."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.values import encode_long
from lakefmt._core.metadata.records import (
    BloomFilterRecord,
    ColumnStats,
    FileInfo,
    MetadataRecord,
    RecordLocation,
    RecordType,
    combine_records,
    decode_record,
    encode_record,
    record_schema,
    same_layout,
)
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile

VERSIONS = list(TableVersion)
TYPED = TableVersion.NINE

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_LONGS = st.integers(0, (1 << 62))
_FILES = st.dictionaries(_NAMES, st.builds(FileInfo, _LONGS, st.booleans()), max_size=4)
_ENDS = st.one_of(
    st.tuples(st.just("BooleanWrapper"), st.booleans(), st.booleans()),
    st.tuples(st.just("LongWrapper"), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("DateWrapper"), st.integers(-(1 << 31), (1 << 31) - 1), st.just(0)),
    st.tuples(st.just("DoubleWrapper"), st.floats(allow_nan=False), st.just(1.0)),
    st.tuples(st.just("StringWrapper"), _NAMES, _NAMES),
    st.tuples(st.just("DecimalWrapper"), st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=9)),
    st.just((None, None, None)),
)
_STATS = st.builds(
    lambda name, column, ends, count, nulls, deleted: ColumnStats(
        name, column, ends[0], ends[1], ends[2], count, nulls, 7, 8, is_deleted=deleted
    ),
    _NAMES,
    _NAMES,
    _ENDS,
    _LONGS,
    _LONGS,
    st.booleans(),
)
_UUIDS = st.uuids().map(str)
_FILE_IDS = st.one_of(_UUIDS, st.builds("{}-{}".format, _UUIDS, st.integers(0, 99)), _NAMES)
_RECORDS = st.one_of(
    st.builds(lambda files: MetadataRecord(RecordType.FILES, files=files), _FILES),
    st.builds(lambda stats: MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats), _STATS),
    st.builds(
        lambda content: MetadataRecord(
            RecordType.BLOOM_FILTER, bloom_filter=BloomFilterRecord("SIMPLE", "20260101000000000", content)
        ),
        st.binary(max_size=20),
    ),
    st.builds(
        lambda path, file_id: MetadataRecord(RecordType.RECORD_INDEX, location=RecordLocation(path, file_id, 5)),
        _NAMES,
        _FILE_IDS,
    ),
)


@given(_RECORDS, st.sampled_from(VERSIONS))
def test_what_is_encoded_is_decoded(record: MetadataRecord, version: TableVersion) -> None:
    assert decode_record(encode_record(record, version), record_schema(version)) == record


@given(st.binary(max_size=60), st.sampled_from(VERSIONS))
def test_wrong_bytes_give_a_lakefmt_error(data: bytes, version: TableVersion) -> None:
    try:
        found = decode_record(data, record_schema(version))
    except CorruptFile:
        return
    assert isinstance(found, MetadataRecord)


def test_the_bytes_of_real_records() -> None:
    empty = encode_record(MetadataRecord(RecordType.ALL_PARTITIONS, files={}), TableVersion.EIGHT)
    assert empty == bytes.fromhex("0000000000 00 02 02 00 00 00 00 00")
    pair = encode_record(MetadataRecord(RecordType.SECONDARY_INDEX, secondary_deleted=False), TableVersion.EIGHT)
    assert pair == bytes.fromhex("0000000000 00 0e 00 00 00 00 02 00")


def test_halves_of_a_uuid() -> None:
    location = RecordLocation("us", "68aaee55-008d-4f10-a3a4-83dcb5910069-0", 1772922274124)
    data = encode_record(MetadataRecord(RecordType.RECORD_INDEX, location=location), TableVersion.EIGHT)
    # From a table that Spark wrote.
    assert encode_long(7542102574834208528) + b"\x02" + encode_long(-6655049365384527767) in data
    assert decode_record(data, record_schema(TableVersion.EIGHT)).location == location


@pytest.mark.parametrize("version", VERSIONS)
def test_texts_name_javas_class(version: TableVersion) -> None:
    schema = json.loads(record_schema(version))
    assert {"type": "string", "avro.java.string": "String"} in [one["type"] for one in schema["fields"]]
    assert same_layout(json.dumps({**schema, "doc": "a description"}), version)
    assert not any(same_layout(record_schema(version), other) for other in VERSIONS if other is not version)


def test_records_of_other_versions_are_read_by_name() -> None:
    stats = ColumnStats("f", "c", "IntWrapper", 1, 2, 3, 0, is_tight=True, value_type=(3, None))
    record = MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats)
    old = decode_record(encode_record(record, TableVersion.SIX), record_schema(TableVersion.SIX))
    assert old.column_stats == ColumnStats("f", "c", "IntWrapper", 1, 2, 3, 0)


def _files(**sizes: int) -> MetadataRecord:
    infos = {name: FileInfo(size, is_deleted=size == 0) for name, size in sizes.items()}
    return MetadataRecord(RecordType.FILES, files=infos)


def test_files_are_merged_entry_by_entry() -> None:
    assert combine_records(_files(a=5), _files(b=7)) == _files(a=5, b=7)
    assert combine_records(_files(a=5, b=1), _files(a=0)) == _files(b=1)
    assert combine_records(_files(a=0), _files(a=0)) == _files(a=0)
    assert combine_records(_files(a=0), _files(a=3)) == _files(a=3)
    assert combine_records(_files(a=5), _files(a=3)) == _files(a=5)
    assert combine_records(_files(), _files(a=0)) == _files(a=0)


def _stats(low: object, high: object, **more: object) -> MetadataRecord:
    stats = ColumnStats("f", "c", "LongWrapper", low, high, 2, 1, **more)  # type: ignore[arg-type]
    return MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats)


def test_statistics_widen_unless_tight_or_deleted() -> None:
    wide = combine_records(_stats(1, 5), _stats(None, 9)).column_stats
    assert wide is not None
    assert (wide.minimum, wide.maximum, wide.value_count, wide.null_count) == (1, 9, 4, 2)
    assert combine_records(_stats(1, 5), _stats(3, 4, is_tight=True)) == _stats(3, 4, is_tight=True)
    assert combine_records(_stats(1, 5), _stats(3, 4, is_deleted=True)) == _stats(3, 4, is_deleted=True)
    assert combine_records(_stats(1, 5, is_deleted=True), _stats(3, 4)) == _stats(3, 4)


def test_decimals_are_compared_as_numbers() -> None:
    low, high = (ColumnStats("f", "c", "DecimalWrapper", one, one, 1, 0) for one in (b"\xff", b"\x01"))
    record = combine_records(
        MetadataRecord(RecordType.COLUMN_STATS, column_stats=high),
        MetadataRecord(RecordType.COLUMN_STATS, column_stats=low),
    ).column_stats
    assert record is not None
    assert (record.minimum, record.maximum) == (b"\xff", b"\x01")


def test_other_records_replace_the_older_one() -> None:
    records = [
        MetadataRecord(RecordType.RECORD_INDEX, location=RecordLocation(path, "f-0", 0)) for path in ("us", "eu")
    ]
    assert combine_records(*records) == records[1]
