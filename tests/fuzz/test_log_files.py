"""Whole log files with one bit flipped: in the framing it is a block less, in a content an error or another value.

The format has no checksum of contents, so a flipped bit there may be a changed value; it is never more than that one
block, never a crash, a hang, or memory beyond four times the file.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.config.merge_rule import MergeRule, Order
from lakefmt._core.filegroups.log_reader import LogRows, read_log_rows
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.formats.log_blocks import BlockKind, HeaderKey, LogBlockReader, WholeBlock, encode_block, scan_blocks
from lakefmt._core.formats.log_data_block import BlockHeader, encode_data_block, encode_parquet_block
from lakefmt._core.formats.log_delete_block import delete_records, encode_delete_block
from lakefmt._core.schema import arrow_to_avro, with_meta_columns
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.values import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from lakefmt.errors import FormatError, LakefmtError, UnsupportedError, UnsupportedFeature
from tests.fuzz.bounds import Meter
from tests.fuzz.damage import effort

TIME, BASE = "20260101000000000", "20250101000000000"
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("f", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
RULE = MergeRule(Order(("ts",)), Order(("ts",)))
ERRORS = (FormatError, UnsupportedError)


@dataclass(frozen=True)
class Region:
    """Bytes of a block: `hard` framing makes it no block at all, the header may say something else."""

    block: int
    name: str
    start: int
    end: int


def rows(block: int, count: int = 12) -> pa.Table:
    names = [f"{block}-{n}" for n in range(count)]
    meta = [[TIME] * count, names, names, [""] * count, ["f-0"] * count]
    columns = [
        names,
        list(range(count)),
        [n / 4 if n % 3 else None for n in range(count)],
        [[f"t{n}"] * (n % 3) for n in range(count)],
        [n * 1_000_000 for n in range(count)],
    ]
    schema = with_meta_columns(COLUMNS)
    arrays = [pa.array(c, schema.field(name).type) for name, c in zip(schema.names, [*meta, *columns], strict=True)]
    return pa.table(arrays, schema=schema)


@cache
def log_file() -> bytes:
    """A log of every kind of block that holds rows, with positions, and one of changes."""
    schema = arrow_to_avro(COLUMNS, "t", with_meta=True)
    placed = BlockHeader(TIME, schema, positions=np.arange(12) * 3, base_instant_time=BASE)
    gone = rows(3)
    return b"".join(
        [
            encode_data_block(rows(0), placed),
            encode_parquet_block(rows(1), BlockHeader(TIME, schema)),
            encode_data_block(rows(2), BlockHeader(TIME, schema, compacted_block_times=("20250601000000000",))),
            encode_delete_block(delete_records(gone[RECORD_KEY], gone["_hoodie_partition_path"], gone["ts"]), placed),
            encode_data_block(rows(4), BlockHeader(TIME, schema)),
        ]
    )


@cache
def regions() -> tuple[Region, ...]:
    data, found = log_file(), []
    for number, block in enumerate(scan_blocks(lambda at, n: data[at : at + n], len(data), "a.log")):
        start, content = block.start, block.content_start
        marks = [
            ("magic", start, start + 6),
            ("length", start + 6, start + 14),
            ("header", start + 14, content - 8),
            ("content length", content - 8, content),
            ("content", content, content + block.content_size),
            ("footer", content + block.content_size, block.end - 8),
            ("reverse pointer", block.end - 8, block.end),
        ]
        found += [Region(number, *mark) for mark in marks]
    return tuple(found)


def flips(names: set[str], sample: int | None = None) -> Iterator[tuple[Region, str, bytes]]:
    """Yield files with one bit flipped: every bit of the regions named, or a fixed sample of each region's bits."""
    for region in regions():
        if region.name not in names:
            continue
        bits = list(range(region.start * 8, region.end * 8))
        if sample is not None:
            bits = random.Random(region.block).sample(bits, min(sample * effort(), len(bits)))
        for bit in bits:
            data = bytearray(log_file())
            data[bit // 8] ^= 1 << bit % 8
            yield region, f"bit {bit % 8} of byte {bit // 8} ({region.name} of block {region.block})", bytes(data)


def whole_blocks(data: bytes) -> list[WholeBlock]:
    reader = LogBlockReader("a.log")
    reader.feed(data)
    return [found for found in reader.finish() if isinstance(found, WholeBlock)]


def merged(data: bytes) -> LogRows:
    """The rows of the file as a reader of the table gets them."""
    store = MemoryStore("fuzz-log-files")
    log = LogFile("", f".f-0_{TIME}.log.1_0-0-0", "f-0", TIME, 1, len(data))
    store.put(log.name, data)
    base = BaseFile("", f"f-0_0-0-0_{BASE}.parquet", "f-0", "0-0-0", BASE, 1)
    piece = FileSlice("", "f-0", BASE, base, (log,))
    schema = with_meta_columns(COLUMNS)
    return read_log_rows(store, piece, schema, RULE, layout=2, is_committed=lambda _: True, positions=True)


def of_blocks(found: LogRows) -> dict[str, list[dict[str, object]]]:
    """Rows by the block that they came from: their keys begin with its number."""
    by_block: dict[str, list[dict[str, object]]] = {}
    for row in found.table.to_pylist():
        by_block.setdefault(str(row[RECORD_KEY]).partition("-")[0], []).append(row)
    return by_block


# ------------------------------------------------------------------------------------------------------------ framing


def test_a_flip_in_the_framing_is_a_block_less() -> None:
    """Without the magic the block before is none either: nothing says that it ends where it says. So in Hudi."""
    before = whole_blocks(log_file())
    assert [found.kind for found in before] == [
        BlockKind.AVRO_DATA,
        BlockKind.PARQUET_DATA,
        BlockKind.AVRO_DATA,
        BlockKind.DELETE,
        BlockKind.AVRO_DATA,
    ]
    for region, what, data in flips({"magic", "length", "content length", "footer", "reverse pointer"}):
        lost = {region.block, region.block - 1} if region.name == "magic" else {region.block}
        left = [(found.kind, bytes(found.content)) for number, found in enumerate(before) if number not in lost]
        assert [(found.kind, bytes(found.content)) for found in whole_blocks(data)] == left, what


def test_a_block_less_is_its_rows_less() -> None:
    everything = of_blocks(merged(log_file()))
    assert sorted(everything) == ["0", "1", "2", "3", "4"]
    for region, what, data in flips({"length", "content length", "footer", "reverse pointer"}, sample=3):
        left = {name: found for name, found in everything.items() if name != str(region.block)}
        assert of_blocks(merged(data)) == left, what


def test_a_flip_in_a_header_stays_in_its_block() -> None:
    before = whole_blocks(log_file())
    refused = 0
    for region, what, data in flips({"header"}, sample=100):
        try:
            found = {(each.kind, bytes(each.content)) for each in whole_blocks(data)}
        except UnsupportedFeature as error:
            refused += bool(str(error))
            continue
        others = {(each.kind, bytes(each.content)) for n, each in enumerate(before) if n != region.block}
        assert others <= found, what
    assert refused, "another version, kind or header key is said, not guessed"


# ------------------------------------------------------------------------------------------------------------ content


def test_a_flip_in_a_content_is_an_error_or_another_value() -> None:
    everything = of_blocks(merged(log_file()))
    changed = refused = 0
    for region, what, data in flips({"content"}, sample=50):
        try:
            found = of_blocks(merged(data))
        except ERRORS as error:
            refused += bool(str(error))
            continue
        mine = str(region.block)
        # A key may have got another number in front; rows of other blocks are all there as they were.
        for name, expected in everything.items():
            if name != mine:
                assert [row for row in found.get(name, []) if row in expected] == expected, what
        changed += found.get(mine) != everything[mine]
    assert refused, "no flip was found out"
    assert changed, "the format has no checksum: some flips change values"


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("names", [{"content"}, {"header"}, {"length", "content length", "magic"}])
def test_no_flip_takes_much_memory_or_time(names: set[str]) -> None:
    meter = Meter(ERRORS)
    for _, what, data in flips(names, sample=6):
        meter.run(merged, data, what)
    assert meter.values


@pytest.mark.usefixtures("traced")
def test_lengths_that_promise_too_much() -> None:
    """Every length and count of the framing, and the first ones of each content, as large as it goes."""
    meter = Meter(ERRORS)
    for region in regions():
        if region.name not in ("length", "content length", "footer", "content", "header"):
            continue
        for at in range(region.start, min(region.end - 4, region.start + 16), 4):
            for number in (0x7FFFFFFF, 0x01000000, -1):
                data = bytearray(log_file())
                data[at : at + 4] = struct.pack(">i", number)
                meter.run(merged, bytes(data), f"{number} at byte {at} ({region.name} of block {region.block})")


# -------------------------------------------------------------------------------------------------------- other kinds


@pytest.mark.parametrize("kind", list(BlockKind))
def test_every_kind_of_block_is_known(kind: BlockKind) -> None:
    """Changes and commands hold no rows; HFile records are said to be what they are; corrupt ones are never written."""
    if kind is BlockKind.CORRUPT:
        with pytest.raises(LakefmtError, match="corrupt"):
            encode_block(kind, {})
        return
    header = {HeaderKey.INSTANT_TIME: TIME, HeaderKey.SCHEMA: arrow_to_avro(COLUMNS, "t", with_meta=True)}
    data = encode_block(kind, header, b"content")
    reads: dict[BlockKind, Callable[[], object]] = {
        BlockKind.COMMAND: lambda: merged(data).table.num_rows,
        BlockKind.CDC_DATA: lambda: merged(data).table.num_rows,
    }
    if kind in reads:
        assert reads[kind]() == 0
        return
    with pytest.raises(ERRORS, match="HFile" if kind is BlockKind.HFILE_DATA else r"\.log\."):
        merged(data)


def test_the_rows_are_what_was_written() -> None:
    """The law above compares with something."""
    found = merged(log_file())
    data = found.table.filter(pa.array(~found.deletes))
    assert data.column(COMMIT_TIME).to_pylist() == [TIME] * 48
    expected = pa.concat_tables([rows(n) for n in (0, 1, 2, 4)])
    assert data.select(expected.column_names).to_pylist() == expected.to_pylist()
    assert found.positions is None, "not every block says them"
    assert set(META_COLUMNS) <= set(found.table.column_names)
