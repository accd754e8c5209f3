"""What the tests of HFiles share: keys and values of every kind, real files, an HFile with two levels of indexes."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st

from lakefmt._core.formats.hfile_blocks import (
    BlockType,
    Codec,
    IndexEntry,
    Trailer,
    encode_file_info,
    encode_hfile_block,
    encode_index,
    encode_key_values,
    encode_trailer,
)
from lakefmt._core.formats.hfile_container import RECORD_SCHEMA
from lakefmt._core.formats.log_blocks import BlockKind, scan_blocks

DATA = Path(__file__).parents[2] / "data" / "hfile"
REAL = sorted(DATA.glob("*.hfile"))

#: Lengths around one where the index begins to need another byte, bytes that sort high, and what looks like a record.
KEYS = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=8).map(str.encode),
    st.sampled_from([b"k" * size for size in (113, 114, 115, 116, 125, 126, 127, 128, 129, 130, 300)]),
)
_LOOKS_LIKE_A_RECORD = bytes.fromhex("0000000d 00000000 0001 61 00 7fffffffffffffff 04 00")
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"\0" * 99, _LOOKS_LIKE_A_RECORD * 3]))


@st.composite
def records(draw: st.DrawFn) -> pa.Table:
    """Draw records in the order of their keys."""
    pairs = draw(st.dictionaries(KEYS, VALUES, max_size=40))
    return table_of({key: pairs[key] for key in sorted(pairs)})


def table_of(pairs: dict[bytes, bytes]) -> pa.Table:
    return pa.table([pa.array(pairs.keys(), pa.binary()), pa.array(pairs.values(), pa.binary())], schema=RECORD_SCHEMA)


def numbered(rows: int) -> pa.Table:
    """Return many records of some lengths."""
    return table_of(
        {b"key-%08d" % number + b"x" * (number % 3): b"v%d" % number * (number % 5) for number in range(rows)}
    )


def log_contents(data: bytes) -> list[tuple[int, bytes]]:
    """Return where the HFiles of a log file begin, and their bytes."""
    return [
        (block.content_start, data[block.content_start : block.content_start + block.content_size])
        for block in scan_blocks(lambda at, size: data[at : at + size], len(data), "a.log")
        if block.kind is BlockKind.HFILE_DATA
    ]


def with_two_levels(table: pa.Table, first_key: bytes | None = None) -> bytes:
    """Return an HFile as HBase makes large ones: the root index names leaf indexes, which name data blocks.

    The first keys of all blocks but the first are made up: one byte less than the real ones where that is allowed.
    """
    out = b""
    leaves, per_leaf = [], 2
    entries: list[IndexEntry] = []
    for number, start in enumerate(range(0, table.num_rows, 3)):
        part = table.slice(start, 3).combine_chunks()
        keys, values = (column.cast(pa.large_binary()) for column in part.columns)
        real = keys[0].as_py()
        before = table["key"][start - 1].as_py() if number else b""
        shortened = real[:-1] if real[:-1] > before else real
        block = encode_hfile_block(
            BlockType.DATA, encode_key_values(*(c.combine_chunks() for c in (keys, values))).data, Codec.GZIP, 6, -1
        )
        entries.append(IndexEntry(len(out), len(block), real if not number else shortened))
        out += block
        if len(entries) == per_leaf or start + 3 >= table.num_rows:
            leaf = encode_hfile_block(BlockType.LEAF_INDEX, _leaf(entries), Codec.GZIP, 6, -1)
            leaves.append(IndexEntry(len(out), len(leaf), entries[0].key))
            out += leaf
            entries = []
    trailer = Trailer(len(out), 0, len(leaves), 0, table.num_rows, 2, Codec.GZIP, 0)
    parts = [
        (BlockType.ROOT_INDEX, encode_index(leaves)),
        (BlockType.ROOT_INDEX, b""),
        (BlockType.FILE_INFO, encode_file_info({})),
    ]
    return (
        out
        + b"".join(encode_hfile_block(kind, body, Codec.GZIP, 6, -1) for kind, body in parts)
        + encode_trailer(trailer)
    )


def _leaf(entries: list[IndexEntry]) -> bytes:
    bodies = [struct.pack(">qih", one.offset, one.size, len(one.key)) + one.key for one in entries]
    places = [0]
    for body in bodies:
        places.append(places[-1] + len(body))
    return struct.pack(f">i{len(places)}i", len(entries), *places) + b"".join(bodies)
