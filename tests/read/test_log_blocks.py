"""Blocks of log files: the vectors of the note, damage of every kind, and what may not happen to memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.log_blocks import (
    BlockKind,
    HeaderKey,
    LogBlock,
    decode_avro_record,
    scan_blocks,
    split_avro_records,
)
from lakefmt.errors import CorruptFile, FormatError, UnsupportedFeature
from tests.read.blocks import pack_block, pack_records

ROLLBACK = bytes.fromhex(
    "234855444923 000000000000005b 00000001 00000000 00000003"
    "00000000 00000011 3230323430313031303030303030303030"
    "00000001 00000011 3230323331323331323335393539303030"
    "00000003 00000001 30"
    "0000000000000000 00000000 0000000000000061"
)
DELETES = bytes.fromhex(
    "234855444923 0000000000000055 00000001 00000001 00000001 00000000 00000011 3230323430313031303030303030303030"
    "000000000000001c 00000003 00000014 0402046b3102000002046b320206703d31060a00 00000000 000000000000005b"
)
NOTE = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'


def scan(data: bytes) -> list[LogBlock]:
    return list(scan_blocks(lambda at, count: data[at : at + count], len(data), "a.log"))


def content(data: bytes, block: LogBlock) -> bytes:
    return data[block.content_start : block.content_start + block.content_size]


def test_the_vectors_of_the_note():
    data = ROLLBACK + DELETES
    assert len(ROLLBACK) == 105
    assert len(DELETES) == 99
    command, deletes = scan(data)
    assert (command.kind, command.start, command.end) == (BlockKind.COMMAND, 0, 105)
    assert command.header == {
        HeaderKey.INSTANT_TIME: "20240101000000000",
        HeaderKey.TARGET_INSTANT_TIME: "20231231235959000",
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    assert command.content_size == 0
    assert (deletes.kind, deletes.start, deletes.end) == (BlockKind.DELETE, 105, 204)
    assert content(data, deletes) == bytes.fromhex("00000003 00000014 0402046b3102000002046b320206703d31060a00")


KINDS = st.sampled_from([kind for kind in BlockKind if kind is not BlockKind.CORRUPT])
HEADERS = st.dictionaries(st.sampled_from(list(HeaderKey)), st.text(max_size=30), max_size=4)
# Content that holds the magic is the hardest to tell from the next block.
CONTENTS = st.binary(max_size=60) | st.just(b"#HUDI#") | st.just(ROLLBACK)
BLOCKS = st.lists(st.tuples(KINDS, HEADERS, CONTENTS), max_size=5)


@given(BLOCKS)
def test_what_was_packed_is_found(blocks):
    data = b"".join(pack_block(*block) for block in blocks)
    found = scan(data)
    assert [(one.kind, dict(one.header), content(data, one)) for one in found] == [
        (kind, {HeaderKey(key): text for key, text in header.items()}, inner) for kind, header, inner in blocks
    ]


@given(BLOCKS.filter(bool), st.data())
def test_a_file_cut_short_loses_only_its_last_block(blocks, data):
    packed = [pack_block(*block) for block in blocks]
    whole = b"".join(packed)
    cut = data.draw(st.integers(len(whole) - len(packed[-1]) + 1, len(whole) - 1))
    found = scan(whole[:cut])
    assert [one.kind for one in found[: len(blocks) - 1]] == [kind for kind, _, _ in blocks[:-1]]
    rest = found[len(blocks) - 1 :]
    assert rest
    assert rest[-1].end == cut
    assert rest[0].kind is BlockKind.CORRUPT


@given(BLOCKS.filter(bool), st.data())
def test_any_changed_byte_is_survived(blocks, data):
    whole = bytearray(b"".join(pack_block(*block) for block in blocks))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = scan(bytes(whole))
    except UnsupportedFeature:
        return
    assert [one.start for one in found[1:]] == [one.end for one in found[:-1]]
    assert found[-1].end == len(whole)


@given(st.binary(max_size=300))
def test_any_bytes_are_covered_by_blocks(data):
    found = scan(data)
    assert sum(one.end - one.start for one in found) == len(data)


def test_after_damage_the_next_block_is_found():
    first, last = pack_block(3, {0: "20240101000000000"}, b"xy"), pack_block(1, {})
    found = scan(first + b"garbage" + last)
    assert [one.kind for one in found] == [BlockKind.CORRUPT, BlockKind.DELETE]
    assert (found[0].start, found[0].end) == (0, len(first) + 7)
    wrong_pointer = bytearray(first)
    wrong_pointer[-1] ^= 1
    assert [one.kind for one in scan(bytes(wrong_pointer) + last)] == [BlockKind.CORRUPT, BlockKind.DELETE]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (pack_block(3, {}, version=0), "format version 0"),
        (pack_block(9, {}), "unknown kind 9"),
        (pack_block(3, {77: "x"}), "header key 77"),
    ],
)
def test_what_is_unknown_is_refused_and_named(block, said):
    with pytest.raises(UnsupportedFeature, match=f"a.log.*{said}"):
        scan(block)


@pytest.mark.parametrize("length", [-1, 0, 31, (1 << 31), (1 << 62), -(1 << 63)])
def test_a_length_that_cannot_be_is_damage_and_reads_nothing_large(length):
    data = b"#HUDI#" + struct.pack(">qiii", length, 1, 3, 0) + bytes(100)
    asked = []

    def read_at(at: int, count: int) -> bytes:
        asked.append(count)
        return data[at : at + count]

    assert [one.kind for one in scan_blocks(read_at, len(data), "a.log")] == [BlockKind.CORRUPT]
    assert max(asked) <= len(data)


@pytest.mark.parametrize("offset", [26, 30, 22])  # header key length, key, number of entries
def test_a_header_that_leaves_its_block_is_damage(offset):
    data = bytearray(pack_block(3, {0: "20240101000000000"}, b"xyz"))
    data[offset : offset + 4] = struct.pack(">i", 0x7FFFFFFF if offset != 26 else 5)
    if offset == 26:
        data[30:34] = struct.pack(">i", -1)
    assert scan(bytes(data))[0].kind is BlockKind.CORRUPT


def test_contents_are_not_read_and_large_headers_are_read_again():
    header = {2: "s" * 200_000, 0: "20240101000000000"}
    data = pack_block(3, header, bytes(5_000_000)) + pack_block(3, header, bytes(5_000_000))
    moved = []

    def read_at(at: int, count: int) -> bytes:
        moved.append(count)
        return data[at : at + count]

    found = list(scan_blocks(read_at, len(data), "a.log"))
    assert [len(one.header[HeaderKey.SCHEMA]) for one in found] == [200_000, 200_000]
    assert [one.content_size for one in found] == [5_000_000, 5_000_000]
    assert sum(moved) < 2_000_000


# --- records ------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=20), max_size=6), st.sampled_from([1, 2, 3]))
def test_records_are_split(data, version):
    assert split_avro_records(pack_records(data, version), "a.log") == data


@given(st.binary(max_size=60))
def test_any_content_is_split_or_refused(data):
    try:
        records = split_avro_records(data, "a.log")
    except (FormatError, UnsupportedFeature):
        return
    assert pack_records(records, int.from_bytes(data[:4], "big")) == data


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"", CorruptFile, "too short"),
        (struct.pack(">ii", 4, 0), UnsupportedFeature, "content version 4"),
        (struct.pack(">ii", 3, 1 << 30), CorruptFile, "announces 1073741824 records"),
        (struct.pack(">ii", 3, -1), CorruptFile, "announces -1 records"),
        (struct.pack(">iii", 3, 1, 1 << 30), CorruptFile, "record of 1073741824 bytes"),
        (struct.pack(">ii", 3, 0) + b"x", CorruptFile, "1 bytes behind the last record"),
    ],
)
def test_damaged_contents_are_named(data, error, said):
    with pytest.raises(error, match=f"a.log: .*{said}"):
        split_avro_records(data, "a.log")


@pytest.mark.parametrize("datum", [b"", b"\x02", b"\x02ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x02\xff"])
def test_damaged_records_are_named(datum):
    with pytest.raises(CorruptFile, match=r"a\.log"):
        decode_avro_record(datum, NOTE, "a.log")


@pytest.mark.parametrize("schema", ["", "{", '"string"', '{"type": "record"}', "[" * 5000])
def test_damaged_schemas_are_named(schema):
    with pytest.raises(CorruptFile, match=r"a\.log"):
        decode_avro_record(b"\x02a", schema, "a.log")
