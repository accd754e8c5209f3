"""Contents of log blocks: real files against what Spark returned for them, and the way there and back."""

from __future__ import annotations

import datetime
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.columnar.codec import encode_rows
from lakefmt._core.formats.log_blocks import BlockKind, HeaderKey, LogBlockReader, WholeBlock, encode_block
from lakefmt._core.formats.log_data_block import (
    BlockHeader,
    block_positions,
    decode_avro_content,
    decode_avro_contents,
    decode_parquet_content,
    encode_command_block,
    encode_data_block,
    encode_parquet_block,
)
from lakefmt._core.formats.log_delete_block import decode_delete_content, encode_delete_block
from lakefmt.errors import CorruptFile, InvalidInputError, SchemaMismatch, UnsupportedFeature

DATA = Path(__file__).parents[1] / "data/formats/log"
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"s","type":["null","string"]}]}'
ROWS = pa.table(
    {"id": [1, 2, 300], "s": ["a", None, "ccc"]},
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())]),
)


def blocks(data: bytes) -> list[WholeBlock]:
    reader = LogBlockReader("a.log")
    reader.feed(data)
    found = list(reader.finish())
    assert all(isinstance(part, WholeBlock) for part in found)
    return found


def real(name: str) -> list[WholeBlock]:
    return blocks((DATA / name).read_bytes())


def comparable(value: Any) -> Any:
    """Return a value without the zone's name, and maps in one order."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(value) if value and isinstance(value[0], tuple) else [comparable(each) for each in value]
    return value


# ------------------------------------------------------------------------------------------------------- real files


@pytest.mark.parametrize("name", ["v9-1.2.0-types", "v9-1.2.0-types-positions", "v6-0.15.0-data"])
def test_records_are_the_rows_that_spark_returned(name):
    expected = pq.read_table(DATA / f"{name}.spark.parquet")
    tables = [
        decode_avro_content(block.content, block.block.schema, what=name)
        for block in real(f"{name}.log")
        if block.kind is BlockKind.AVRO_DATA
    ]
    rows = [comparable(row) for table in tables for row in table.to_pylist()]
    assert rows
    spark = [comparable(row) for row in expected.to_pylist()]
    for row in (*rows, *spark):
        del row["_hoodie_file_name"]
    assert rows == spark


AVRO = [
    path.name
    for path in sorted(DATA.glob("*.log"))
    if any(block.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA) for block in blocks(path.read_bytes()))
]


@pytest.mark.parametrize("name", AVRO)
def test_records_are_packed_to_the_same_bytes(name):
    for block in real(name):
        if block.kind not in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
            continue
        table = decode_avro_content(block.content, block.block.schema, what=name)
        data, _ = encode_rows(table, block.block.schema, framed=True)
        assert struct.pack(">ii", 3, table.num_rows) + data.to_pybytes() == block.content


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("v9-1.2.0-deletes.log", 1),
        ("v6-0.15.0-deletes.log", 1),
        ("v6-0.15.0-metadata-empty-deletes.log", 0),
    ],
)
def test_deletes_are_packed_to_the_same_bytes(name, keys):
    (block,) = [each for each in real(name) if each.kind is BlockKind.DELETE]
    records = decode_delete_content(block.content, what=name)
    assert len(records) == keys
    again = encode_delete_block(records, BlockHeader("20240101000000000"))
    assert blocks(again)[0].content == block.content


def test_positions_of_a_real_block_are_read_for_its_base_file_only():
    (block,) = real("v9-1.2.0-types-positions.log")
    base = block.block.header[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS]
    found = block_positions(block.block, base, 1, "a.log")
    assert found is not None
    assert len(found) == 1
    assert block_positions(block.block, "20200101000000000", 1, "a.log") is None
    with pytest.raises(CorruptFile, match=r"1 positions for the 2 records"):
        block_positions(block.block, base, 2, "a.log")


def test_a_partial_block_says_so():
    (block,) = real("v9-1.2.0-partial.log")
    assert block.block.is_partial
    table = decode_avro_content(block.content, block.block.schema, what="a.log")
    assert "_hoodie_record_key" in table.column_names


def test_changes_are_records_of_operation_and_images():
    (block,) = real("v9-1.2.0-changes.cdc.log")
    table = decode_avro_content(block.content, block.block.schema, what="a.log")
    assert table.column_names == ["op", "ts_ms", "before", "after"]
    assert set(table["op"].to_pylist()) <= {"i", "u", "d"}
    assert pa.types.is_struct(table.schema.field("before").type)


def test_a_parquet_block_is_read():
    (block,) = real("v6-0.x-parquet.log")
    table = decode_parquet_content(block.content, what="a.log")
    assert table.num_rows == 1
    assert decode_parquet_content(block.content, ["id"], what="a.log").to_pydict() == {"id": table["id"].to_pylist()}


def test_the_rollback_of_a_real_file_is_packed_to_the_same_bytes():
    (block,) = real("v6-0.15.0-rollback.log")
    header = block.block.header
    ours = encode_command_block(header[HeaderKey.INSTANT_TIME], header[HeaderKey.TARGET_INSTANT_TIME])
    assert blocks(ours)[0].block.header == header
    assert len(ours) == len((DATA / "v6-0.15.0-rollback.log").read_bytes())


# --------------------------------------------------------------------------------------------------- there and back


def full_header(**changes: Any) -> BlockHeader:
    values = {
        "schema": SCHEMA,
        "positions": np.array([4, 5, 9]),
        "base_instant_time": "20231231000000000",
        "is_partial": True,
        "block_identifier": "0,0",
        "compacted_block_times": ("20231229000000000", "20231230000000000"),
    }
    return BlockHeader("20240101000000000", **{**values, **changes})


@pytest.mark.parametrize("kind", [BlockKind.AVRO_DATA, BlockKind.CDC_DATA])
def test_rows_come_back_from_avro_blocks(kind):
    (block,) = blocks(encode_data_block(ROWS, full_header(), kind))
    assert block.kind is kind
    assert decode_avro_content(block.content, block.block.schema, what="a.log").equals(ROWS)
    assert decode_avro_content(block.content, SCHEMA, ["s"], what="a.log").equals(ROWS.select(["s"]))
    found = block.block
    assert (found.instant_time, found.schema, found.is_partial) == ("20240101000000000", SCHEMA, True)
    assert found.compacted_block_times == ("20231229000000000", "20231230000000000")
    assert found.header[HeaderKey.BLOCK_IDENTIFIER] == "0,0"
    assert block_positions(found, "20231231000000000", 3, "a.log").tolist() == [4, 5, 9]


def test_a_plain_header_has_two_entries():
    (block,) = blocks(encode_data_block(ROWS, BlockHeader("20240101000000000", SCHEMA)))
    assert block.block.header == {HeaderKey.INSTANT_TIME: "20240101000000000", HeaderKey.SCHEMA: SCHEMA}
    assert (block.block.is_partial, block.block.compacted_block_times, block.footer) == (False, (), {})


def test_rows_come_back_from_parquet_blocks():
    (block,) = blocks(encode_parquet_block(ROWS, full_header()))
    assert block.kind is BlockKind.PARQUET_DATA
    assert block.content[:4] == block.content[-4:] == b"PAR1"
    assert decode_parquet_content(block.content, what="a.log").equals(ROWS)
    assert decode_parquet_content(block.content, ["s"], what="a.log").equals(ROWS.select(["s"]))
    metadata = pq.read_metadata(pa.BufferReader(block.content)).metadata
    assert metadata[b"parquet.avro.schema"].decode() == SCHEMA
    assert b"ARROW:schema" not in metadata


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: encode_data_block(ROWS, BlockHeader("2024")), InvalidInputError, "needs the Avro schema"),
        (lambda: encode_parquet_block(ROWS, BlockHeader("2024")), InvalidInputError, "needs the Avro schema"),
        (lambda: encode_data_block(ROWS, full_header(), BlockKind.DELETE), InvalidInputError, "DELETE"),
        (lambda: encode_data_block(ROWS.slice(1), full_header()), InvalidInputError, "3 positions for 2 records"),
        (lambda: encode_data_block(ROWS.select(["id"]), full_header()), SchemaMismatch, "differ: s"),
        (lambda: encode_parquet_block(ROWS.select(["s", "id"]), full_header()), InvalidInputError, "not those of"),
    ],
)
def test_what_cannot_be_written_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


# ----------------------------------------------------------------------------------------------------------- damage

AVRO_CONTENT = blocks(encode_data_block(ROWS, full_header()))[0].content
PARQUET_CONTENT = blocks(encode_parquet_block(ROWS, full_header()))[0].content


@given(st.integers(0, len(AVRO_CONTENT) - 1), st.integers(1, 255))
def test_a_changed_byte_of_an_avro_content_is_seen_or_changes_a_value(at, change):
    damaged = bytearray(AVRO_CONTENT)
    damaged[at] ^= change
    try:
        found = decode_avro_content(bytes(damaged), SCHEMA, what="a.log")
    except (CorruptFile, UnsupportedFeature) as error:
        assert "a.log" in str(error)  # noqa: PT017
        return
    assert not found.equals(ROWS) or at < 4  # versions 1 to 3 are read alike


def test_an_avro_content_cut_anywhere_is_refused():
    for cut in range(len(AVRO_CONTENT)):
        with pytest.raises(CorruptFile, match=r"a\.log"):
            decode_avro_content(AVRO_CONTENT[:cut], SCHEMA, what="a.log")


@given(st.integers(0, len(PARQUET_CONTENT) - 1), st.integers(1, 255))
def test_a_changed_byte_of_a_parquet_content_is_a_value_or_refused(at, change):
    damaged = bytearray(PARQUET_CONTENT)
    damaged[at] ^= change
    try:
        found = decode_parquet_content(bytes(damaged), what="a.log")
    except (CorruptFile, InvalidInputError) as error:
        assert "a.log" in str(error)  # noqa: PT017
        return
    assert found.num_rows < 1000


def test_a_changed_value_of_a_parquet_content_is_noticed():
    rows = pa.table({"id": pa.array([1], pa.int64()), "s": ["only once"]}, schema=ROWS.schema)
    (block,) = blocks(encode_parquet_block(rows, BlockHeader("20240101000000000", SCHEMA), codec="none"))
    at = bytes(block.content).index(b"\t\0\0\0only once") + 4  # with its length: statistics have it without
    damaged = bytearray(block.content)
    damaged[at] ^= 1
    with pytest.raises(CorruptFile, match=r"a\.log: damaged Parquet block"):
        decode_parquet_content(bytes(damaged), what="a.log")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(20) + b"PAR1", PARQUET_CONTENT[:-9]])
def test_what_is_no_parquet_file_is_refused(content):
    with pytest.raises(CorruptFile, match=r"a\.log: damaged Parquet block"):
        decode_parquet_content(content, what="a.log")


def test_a_column_that_a_parquet_block_does_not_have_is_named():
    with pytest.raises(InvalidInputError, match=r"a\.log.*no columns x"):
        decode_parquet_content(PARQUET_CONTENT, ["x"], what="a.log")


def test_a_schema_in_a_header_that_is_damaged_is_refused():
    header = {HeaderKey.SCHEMA: json.dumps({"type": "record"})}
    (block,) = blocks(encode_block(BlockKind.AVRO_DATA, header, AVRO_CONTENT))
    with pytest.raises(CorruptFile):
        decode_avro_content(block.content, block.block.schema, what="a.log")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 400))
def test_blocks_that_are_decoded_together_give_what_each_gives(sizes: list[int], damage: int) -> None:
    schema = '{"type":"record","name":"r","fields":[{"name":"n","type":"long"},{"name":"s","type":["null","string"]}]}'
    kind = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    contents = []
    for number, size in enumerate(sizes):
        rows = pa.table({"n": range(size), "s": [f"{number}-{n}" if n % 2 else None for n in range(size)]}).cast(kind)
        (block,) = blocks(encode_data_block(rows, BlockHeader("20240101000000000", schema)))
        contents.append(bytearray(block.content))
    at = damage % sum(map(len, contents))
    for content in contents if damage % 2 else []:
        if at < len(content):
            content[at] ^= 0x55
            break
        at -= len(content)
    names = [f"{number}.log" for number in range(len(contents))]

    def one_by_one() -> list[pa.Table]:
        return [decode_avro_content(bytes(c), schema, what=name) for c, name in zip(contents, names, strict=True)]

    try:
        expected = one_by_one()
    except (CorruptFile, UnsupportedFeature) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            decode_avro_contents([bytes(c) for c in contents], schema, what=names)
        return
    found, counts = decode_avro_contents([bytes(c) for c in contents], schema, what=names)
    assert counts == [part.num_rows for part in expected]
    assert found.to_pylist() == pa.concat_tables(expected).to_pylist()
