"""HFiles of our own: whatever is written comes back by every way of reading, and no damage is believed."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.hfile_blocks import HEADER_BYTES, TRAILER_BYTES, checksum_bytes
from lakefmt._core.formats.hfile_container import RECORD_SCHEMA, HFileOptions, HFileReader, HFileWriter, encode_hfile
from lakefmt.errors import CorruptFile, InvalidInputError, LakefmtError, UnsupportedFeature
from tests.formats.hfile.hfile_parts import numbered, records, table_of, with_two_levels

OPTIONS = st.builds(
    HFileOptions,
    schema=st.sampled_from([None, '{"type":"string"}']),
    compression=st.sampled_from(["gzip", "none"]),
    block_bytes=st.sampled_from([1, 64, 300, 1 << 20]),
    key_range=st.booleans(),
    bloom_filter=st.sampled_from([None, ("SIMPLE", b"AAAA")]),
)


def opened(table: pa.Table, options: HFileOptions | None = None) -> HFileReader:
    return HFileReader.from_bytes(encode_hfile(table["key"], table["value"], options), "f.hfile")


def rows_of(table: pa.Table) -> list[tuple[bytes, bytes]]:
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.slow
@given(records(), OPTIONS)
def test_all_records_come_back(table: pa.Table, options: HFileOptions):
    reader = opened(table, options)
    assert reader.read().equals(table)
    assert [key for batch in reader.scan(values=False) for key in batch["key"].to_pylist()] == table["key"].to_pylist()
    assert (reader.entry_count, reader.schema) == (table.num_rows, options.schema)
    assert reader.meta_block("bloomFilter") == (options.bloom_filter and options.bloom_filter[1])
    assert ("minRecordKey" in reader.info) == options.key_range


@pytest.mark.slow
@given(records(), OPTIONS, st.data())
def test_keys_and_prefixes_find_what_a_walk_finds(table: pa.Table, options: HFileOptions, data: st.DataObject):
    reader = opened(table, options)
    stored = table["key"].to_pylist()
    of_stored = st.sampled_from(stored) if stored else st.binary(max_size=3)
    asked = data.draw(st.lists(of_stored | st.binary(max_size=6), max_size=12))
    found = reader.lookup(pa.array([*asked, None], pa.binary()))
    assert rows_of(found) == [row for row in rows_of(table) if row[0] in asked]
    beginnings = data.draw(st.lists(st.builds(lambda key, size: key[:size], of_stored, st.integers(0, 4)), max_size=4))
    found = reader.lookup_prefixes(pa.array([*beginnings, *asked], pa.binary()))
    assert rows_of(found) == [row for row in rows_of(table) if row[0].startswith((*beginnings, *asked))]


@pytest.mark.slow
@given(records())
def test_indexes_of_two_levels_are_followed(table: pa.Table):
    reader = HFileReader.from_bytes(with_two_levels(table), "f.hfile")
    assert reader.read().equals(table)
    for key, value in rows_of(table):
        assert rows_of(reader.lookup(pa.array([key]))) == [(key, value)]
        assert (key, value) in rows_of(reader.lookup_prefixes(pa.array([key[:2]])))


@pytest.mark.parametrize("rows", [0, 1, 2, 10_000])
@pytest.mark.parametrize("compression", ["gzip", "none"])
@pytest.mark.parametrize("block_bytes", [pytest.param(64, marks=pytest.mark.slow), 1 << 14, 1 << 20])
def test_few_and_many_records(rows: int, compression: str, block_bytes: int):
    table = numbered(rows)
    options = HFileOptions(compression=compression, block_bytes=block_bytes)
    reader = opened(table, options)
    assert reader.read().equals(table)
    asked = table["key"].take(pa.array(range(0, rows, 97), pa.int64())).combine_chunks()
    assert reader.lookup(asked)["key"].to_pylist() == asked.to_pylist()


@pytest.mark.parametrize("size", [*range(110, 120), *range(125, 131), 240, 241, 250, 300, 32_767])
def test_keys_of_any_length(size: int):
    table = table_of({b"k" * size: b"1", b"k" * (size - 1) + b"l": b"2"})
    reader = opened(table, HFileOptions(block_bytes=64))
    assert reader.read().equals(table)
    assert reader.lookup(table["key"].combine_chunks()).equals(table)


def test_records_added_in_parts_make_the_same_file():
    table, pieces = numbered(100), []
    writer = HFileWriter(pieces.append, HFileOptions(block_bytes=1))
    for start in range(0, 100, 30):
        writer.add(table["key"][start : start + 30], table["value"][start : start + 30])
    writer.finish()
    assert b"".join(pieces) == encode_hfile(table["key"], table["value"], HFileOptions(block_bytes=1))


def test_only_the_blocks_asked_for_are_read():
    table = numbered(10_000)
    data = encode_hfile(table["key"], table["value"], HFileOptions(block_bytes=4096))
    reads: list[tuple[int, int]] = []

    def read_at(at: int, size: int) -> bytes:
        reads.append((at, size))
        return data[at : at + size]

    reader = HFileReader(read_at, len(data), "f.hfile")
    assert len(reads) == 1, "the end of the file"
    assert reader.lookup(table["key"][5000:5001].combine_chunks()).num_rows == 1
    assert len(reads) == 2
    assert reads[1][1] < 4096
    assert reader.lookup(pa.array([b"a", b"z"])).num_rows == 0
    assert len(reads) == 2, "before the first key and behind the last one is nothing"
    assert reader.read().num_rows == 10_000
    assert len(reads) == 3, "blocks side by side are read together"


def test_a_large_index_is_read_by_a_second_read():
    table = numbered(3000)
    data = encode_hfile(table["key"], table["value"], HFileOptions(block_bytes=1, compression="none"))
    reads: list[int] = []
    reader = HFileReader(lambda at, size: reads.append(at) or data[at : at + size], len(data), "f.hfile")
    assert len(reads) == 2
    assert reader.read().equals(table)


# ------------------------------------------------------------------------------------------------------------- bytes


def test_the_bytes_of_a_record_are_hudis():
    # docs: the record of a real file of 1.2.0, key and value of the record of all partitions.
    value = bytes.fromhex("0000000000000202000000000000")[:13]
    data = encode_hfile(pa.array(["__all_partitions__"]), pa.array([value]), HFileOptions(compression="none"))
    expected = "0000001e 0000000d 0012 5f5f616c6c5f706172746974696f6e735f5f 00 7fffffffffffffff 04 00000000000002020000000000 00"
    assert data[HEADER_BYTES : HEADER_BYTES + 52] == bytes.fromhex(expected)
    assert data[:HEADER_BYTES].hex(" ", 4) == bytes.fromhex(
        "44415441424c4b2a 00000038 00000034 ffffffffffffffff 00 00004000 00000055"
    ).hex(" ", 4)


@pytest.mark.parametrize("payload", [1, 16_351 - 4, 16_351 - 3, 16_351, 16_352, 409_470, 409_573, 1 << 20])
def test_readers_that_count_the_words_over_the_words_find_as_many(payload: int):
    size = HEADER_BYTES + payload
    words = checksum_bytes(size)
    assert words == -(-(size + words) // 16_384) * 4


def test_the_last_record_of_a_block_is_longer_than_its_checksums():
    # Keys that do not compress, so that the words of a whole block would be longer than a record of 30 bytes.
    numbers = random.Random(5)
    table = table_of(dict.fromkeys(sorted(numbers.randbytes(9) for _ in range(30_000)), b""))
    data = encode_hfile(table["key"], table["value"], HFileOptions(compression="none", block_bytes=1 << 20))
    reader = HFileReader.from_bytes(data, "f.hfile")
    assert reader.read().equals(table)
    at = 0
    while data[at : at + 8] == b"DATABLK*":
        behind, uncompressed = struct.unpack_from(">ii", data, at + 8)
        assert -(-(HEADER_BYTES + behind) // 16_384) * 4 < 30
        assert behind >= uncompressed
        at += HEADER_BYTES + behind
    assert at


def test_compressed_blocks_are_gzip_members():
    data = encode_hfile(pa.array(["a"]), pa.array([b"1"]))
    behind, _, _, _, _, with_header = struct.unpack_from(">iiqBii", data, 8)
    assert len(gzip.decompress(data[HEADER_BYTES:with_header])) == 23
    assert data[with_header : HEADER_BYTES + behind] == bytes(4)


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("keys", "values", "match"),
    [
        (["b", "a"], [b"", b""], "ascend"),
        (["a", "a"], [b"", b""], "ascend"),
        (["\U0001f600", "\uffee"], [b"", b""], "ascend"),
        (["a", None], [b"", b""], "nulls"),
        (["a", "b"], [b"", None], "nulls"),
        (["a"], [b"", b""], "as many"),
        (["k" * 32_768], [b""], "32,768"),
    ],
)
def test_what_cannot_be_written_is_refused(keys, values, match):
    with pytest.raises(InvalidInputError, match=match):
        encode_hfile(pa.array(keys, pa.string()), pa.array(values, pa.binary()))


def test_a_later_part_must_not_begin_before_the_end_of_the_earlier():
    writer = HFileWriter(lambda data: None)
    writer.add(pa.array(["b"]), pa.array([b""]))
    with pytest.raises(InvalidInputError, match="ascend"):
        writer.add(pa.array(["b"]), pa.array([b""]))


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"block_bytes": 0}])
def test_unknown_options_are_refused(options):
    with pytest.raises(InvalidInputError):
        HFileOptions(**options)


TABLE = numbered(30)
DATA = encode_hfile(TABLE["key"], TABLE["value"], HFileOptions(block_bytes=200, schema='"string"'))
PLAIN = encode_hfile(TABLE["key"], TABLE["value"], HFileOptions(block_bytes=200, compression="none"))


def read_all(data: bytes) -> pa.Table:
    reader = HFileReader.from_bytes(data, "f.hfile")
    reader.lookup_prefixes(TABLE["key"].combine_chunks())
    return reader.read()


@given(st.sampled_from([DATA, PLAIN, with_two_levels(TABLE)]), st.data())
def test_damage_is_a_lakefmt_error_or_a_table(data: bytes, drawn: st.DataObject):
    damaged = bytearray(data)
    inner = st.integers(0, len(data) - TRAILER_BYTES + 100)
    for _ in range(drawn.draw(st.integers(1, 3))):
        damaged[drawn.draw(inner)] = drawn.draw(st.integers(0, 255))
    with contextlib.suppress(LakefmtError):
        assert read_all(bytes(damaged)).schema == RECORD_SCHEMA


def test_any_byte_of_compressed_data_that_changes_is_noticed():
    reader = HFileReader.from_bytes(DATA, "f.hfile")
    begin, size = HEADER_BYTES, struct.unpack_from(">i", DATA, 29)[0] - HEADER_BYTES
    seen = 0
    # The header of a gzip member holds a time and a system, which mean nothing: ten bytes.
    for at in range(begin + 10, begin + size):
        damaged = bytearray(DATA)
        damaged[at] ^= 1
        with pytest.raises(CorruptFile, match="decompress"):
            HFileReader.from_bytes(bytes(damaged), "f.hfile").read()
        seen += 1
    assert seen > 50
    assert reader.entry_count == 30


@pytest.mark.parametrize("end", [0, 1, TRAILER_BYTES - 1, len(DATA) - TRAILER_BYTES, len(DATA) - 1])
def test_a_file_that_is_cut_off_is_refused(end: int):
    with pytest.raises(CorruptFile, match="cut off"):
        read_all(DATA[:end])


def test_a_file_without_its_first_block_is_refused():
    with pytest.raises(CorruptFile):
        read_all(DATA[100:])


@pytest.mark.parametrize(
    ("damage", "error", "match"),
    [
        (lambda data: data[:-1] + b"\2", UnsupportedFeature, "version 2"),
        (lambda data: data.replace(b"\x60\x01", b"\x60\x03", 1), UnsupportedFeature, "SNAPPY"),
        (lambda data: data.replace(b"\x60\x01", b"\x60\x1f", 1), UnsupportedFeature, "codec 31"),
    ],
)
def test_other_versions_and_codecs_are_named(damage, error, match):
    head, trailer = DATA[:-TRAILER_BYTES], DATA[-TRAILER_BYTES:]
    with pytest.raises(error, match=match):
        read_all(head + damage(trailer))


def test_a_claimed_size_is_not_believed():
    claim = bytearray(DATA)
    claim[12:16] = (1 << 29).to_bytes(4, "big")
    with pytest.raises(CorruptFile, match="cannot hold"):
        read_all(bytes(claim))


def test_a_value_that_looks_like_records_is_a_value():
    fake = encode_hfile(pa.array(["x", "y"]), pa.array([b"1", b"2"]), HFileOptions(compression="none"))
    inner = fake[HEADER_BYTES : HEADER_BYTES + 46]
    table = table_of({b"a": inner * 3, b"b": inner + b"\0" * 7, b"c": b"\0\0" + inner[:40]})
    for block_bytes in (1, 1 << 20):
        assert opened(table, HFileOptions(block_bytes=block_bytes)).read().equals(table)


def test_a_missing_record_is_noticed():
    """The trailer counts the records: a file whose index lost a block says so."""
    broken = DATA[:-TRAILER_BYTES] + DATA[-TRAILER_BYTES:].replace(b"\x38\x1e", b"\x38\x1f", 1)
    with pytest.raises(CorruptFile, match="30 records, where the trailer says 31"):
        read_all(broken)
