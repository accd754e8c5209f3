"""Rows by the pages that have a text: what pyarrow and DuckDB find in the whole file, and little of it decoded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from inspect import signature
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups import named_rows
from lakefmt._core.filegroups.model import BaseFile, parse_files
from lakefmt._core.filegroups.named_rows import NamedTexts, read_named_rows
from lakefmt._core.formats.parquet.page_search import (
    ColumnPages,
    ReadAt,
    _decode_page_header,
    encode_pages,
    find_pages,
    pages_with,
)
from lakefmt._core.storage import LocalStore
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.values import PartitionPath
from lakefmt.errors import InternalError, LakefmtError

NAME = "p/f-0_1-0-0_20260101000000000.parquet"
ROWS = 100_000


@pytest.fixture(autouse=True)
def _files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_rows, "_FEW_DECODED_BYTES", 0)
    monkeypatch.setattr(named_rows, "_DECODED_BYTES_PER_COLUMN", 0)


#: Pages of so few rows that one column has many of them.
SMALL_PAGES: dict[str, Any] = {"data_page_size": 1_000, "write_batch_size": 500}


def keys(count: int = ROWS) -> pa.Array:
    """Texts of one length in no order."""
    numbers = np.random.default_rng(3).permutation(count)
    return pc.binary_join_element_wise(pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0"), "-key", "")


def rows(count: int = ROWS) -> pa.Table:
    """Rows of many types, with nulls and repeated values."""
    numbers = np.arange(count)
    some = pa.array(numbers % 7 == 0)
    return pa.table(
        {
            "id": keys(count),
            "n": pa.array(numbers),
            "x": pc.if_else(some, None, pa.array(numbers * 0.5)),
            "kind": pa.array(["a", "b", None, ""]).take(pa.array(numbers % 4)),
            "flag": pa.array(numbers % 3 == 0),
            "moment": pa.array(numbers).cast(pa.timestamp("us", "UTC")),
            "day": pa.array((numbers % 1000).astype(np.int32)).cast(pa.date32()),
            "price": pa.array([Decimal("1.25"), Decimal("-3.50")]).take(pa.array(numbers % 2)),
            "data": keys(count).cast(pa.binary()),
        }
    )


def reads(data: memoryview) -> ReadAt:
    return lambda offset, count: data[offset : offset + count]


def stored(folder: Path, table: pa.Table, **options: Any) -> tuple[LocalStore, BaseFile]:
    path = folder / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, path, **{"compression": "zstd", "store_schema": False, "write_page_checksum": True, **options}
    )
    store = LocalStore(folder)
    (file,), _ = parse_files(PartitionPath("p"), [ObjectInfo(NAME, path.stat().st_size)])
    return store, file


def found(
    store: LocalStore, file: BaseFile, table: pa.Table, texts: Sequence[str], columns: Sequence[str], by: str = "id"
) -> pa.Table | None:
    fields = [table.schema.field(name) for name in columns]
    named = NamedTexts(by, pa.array(texts, pa.string()))
    read = read_named_rows(store, file, fields, named, lambda parquet: range(parquet.num_row_groups))
    if read is None:
        return None
    assert read.schema.equals(pa.schema(fields))
    return read.filter(pc.is_in(read.column(by), value_set=named.texts))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "snappy"},
        {"compression": "gzip"},
        {"compression": "none"},
        {"row_group_size": 70_000},
        {"use_dictionary": False},
        {"data_page_size": 30_000},
        {"data_page_size": 6_000, "write_batch_size": 200},
        {"write_page_checksum": False},
        {"write_statistics": False},
    ],
)
def test_rows_are_those_of_the_whole_file(options: dict[str, Any], tmp_path: Path) -> None:
    table = rows()
    store, file = stored(
        tmp_path, table, use_dictionary=options.pop("use_dictionary", ["kind", "day", "price"]), **options
    )
    dice = random.Random(1)
    for _ in range(6):
        texts = [table["id"][dice.randrange(ROWS)].as_py() for _ in range(dice.randint(1, 3))] + ["no such key"]
        columns = ["id", *dice.sample(table.column_names[1:], dice.randint(0, 8))]
        got = found(store, file, table, texts, columns)
        assert got is not None
        path = str(tmp_path / NAME)
        whole = duckdb.sql(
            f"select {', '.join(columns)} from read_parquet('{path}') where id in {tuple(texts)}"
        ).to_arrow_table()
        assert got.equals(
            pq.read_table(path, columns=columns)
            .filter(pc.is_in(table["id"], value_set=pa.array(texts)))
            .cast(got.schema)
        )
        assert got.sort_by("id").to_pylist() == whole.cast(got.schema).sort_by("id").to_pylist()


def test_small_columns_are_left_to_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows().select(["id", "n", "x"])
    store, file = stored(tmp_path, table, use_dictionary=False)
    size = sum(pq.read_metadata(tmp_path / NAME).row_group(0).column(n).total_uncompressed_size for n in (0, 1))
    for few, each, is_read in ((size, 0, True), (size + 1, 0, False), (0, size // 2, True), (1, size // 2 + 1, False)):
        monkeypatch.setattr(named_rows, "_FEW_DECODED_BYTES", few)
        monkeypatch.setattr(named_rows, "_DECODED_BYTES_PER_COLUMN", each)
        assert (found(store, file, table, [table["id"][3].as_py()], ["id", "n"]) is not None) is is_read


def test_repeated_texts_are_all_found(tmp_path: Path) -> None:
    table = rows()
    ids = table["id"].combine_chunks().to_pylist()
    ids[99_999] = ids[5] = ids[41_000]
    table = table.set_column(0, "id", pa.array(ids))
    store, file = stored(tmp_path, table, use_dictionary=False, **SMALL_PAGES)
    got = found(store, file, table, [ids[5]], ["id", "n"])
    assert got is not None
    assert got["n"].to_pylist() == [5, 41_000, 99_999]


@pytest.mark.parametrize(
    "options",
    [
        {"data_page_version": "2.0"},
        {"compression": "brotli"},
        {"compression": {"id": "zstd", "n": "snappy"}},
        {"column_encoding": {"id": "DELTA_BYTE_ARRAY"}, "use_dictionary": False},
    ],
)
def test_other_pages_are_left_to_arrow(options: dict[str, Any], tmp_path: Path) -> None:
    table = rows().select(["id", "n"])
    store, file = stored(tmp_path, table, **SMALL_PAGES, **options)
    assert found(store, file, table, [table["id"][3].as_py()], ["id", "n"]) is None


def test_a_page_of_more_rows_than_arrow_puts_into_a_row_group(tmp_path: Path) -> None:
    """Writers that bound pages by their bytes alone store a column of one value in one page."""
    count = (1 << 20) + 5
    table = pa.table({"c": pa.repeat("same", count)})
    # Newer releases of Arrow bound the rows of a page, too.
    unbounded = {"max_rows_per_page": count} if "max_rows_per_page" in signature(pq.write_table).parameters else {}
    stored(tmp_path, table, use_dictionary=["c"], row_group_size=count, **unbounded)
    chunk = pq.read_metadata(tmp_path / NAME).row_group(0).column(0)
    read = reads(memoryview((tmp_path / NAME).read_bytes())[chunk.dictionary_page_offset :])
    pages = find_pages(read, chunk.total_compressed_size)
    assert pages is not None
    assert [page.num_values for page in pages.pages] == [count]
    made = pq.read_table(pa.BufferReader(encode_pages(table.schema, "ZSTD", {"c": pages}, {"c": read})))
    assert made.equals(table)


def test_texts_that_are_everywhere_are_left_to_arrow(tmp_path: Path) -> None:
    table = rows().select(["id", "n", "kind"])
    store, file = stored(tmp_path, table, use_dictionary=["kind"], **SMALL_PAGES)
    assert found(store, file, table, ["a"], ["n", "kind"], by="kind") is None
    nowhere = found(store, file, table, ["z"], ["n", "kind"], by="kind")
    assert nowhere is not None
    assert nowhere.num_rows == 0


def test_other_types_nested_and_missing_columns_are_left_to_arrow(tmp_path: Path) -> None:
    table = rows().select(["id", "n"])
    store, file = stored(tmp_path, table.append_column("s", pa.array([{"a": 1}]).take(pa.array(np.zeros(ROWS, int)))))
    text = table["id"][3].as_py()
    for field in (pa.field("n", pa.int32()), pa.field("m", pa.int64()), pa.field("s", pa.struct([("a", pa.int64())]))):
        asked = (
            table.append_column(field, pa.nulls(ROWS, field.type))
            if field.name != "n"
            else table.cast(pa.schema([table.schema.field("id"), field]))
        )
        assert found(store, file, asked, [text], ["id", field.name]) is None
    required = pa.schema([table.schema.field("id"), pa.field("n", pa.int64(), nullable=False)])
    store, file = stored(tmp_path, table.cast(required))
    assert found(store, file, table, [text], ["id", "n"]) is None


def test_a_changed_byte_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    table = rows().select(["id", "n", "kind"])
    store, file = stored(tmp_path, table, use_dictionary=["kind"])
    path, text = tmp_path / NAME, table["id"][50_000].as_py()
    right = found(store, file, table, [text], ["id", "n", "kind"])
    assert right is not None
    assert right.num_rows == 1
    whole, dice = path.read_bytes(), random.Random(5)
    refused = 0
    for _ in range(300):
        place = dice.randrange(len(whole) - 8 if dice.random() < 0.7 else 4_000)
        place = place if dice.random() < 0.7 else len(whole) - 9 - dice.randrange(1_500)
        data = bytearray(whole)
        data[place] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        try:
            got = found(store, file, table, [text], ["id", "n", "kind"])
        except LakefmtError:
            refused += 1
            continue
        refused += got is None
        if place < len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"):
            assert got is None or got.equals(right), place
    assert refused > 30


def test_a_text_whose_bytes_were_changed_is_not_passed_over(tmp_path: Path) -> None:
    table = rows().select(["id", "n"])
    store, file = stored(tmp_path, table, use_dictionary=False, compression="none")
    path, text = tmp_path / NAME, table["id"][50_000].as_py()
    data = path.read_bytes()
    place = data.index(text.encode())
    path.write_bytes(data[:place] + b"X" + data[place + 1 :])
    assert found(store, file, table, [text], ["id", "n"]) is None
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
def test_a_page_of_another_size_than_its_header_says_is_damaged(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": keys(3_000)}), path, compression=codec, use_dictionary=False, data_page_size=4_000)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    begin, data = chunk.data_page_offset, memoryview(path.read_bytes())
    data = data[begin : begin + chunk.total_compressed_size]
    pages = find_pages(lambda offset, count: data[offset : offset + count], len(data))
    assert pages is not None
    assert pages_with(pages, data, chunk.compression, [b"no such key"], 4) == {}
    for difference in (-1,) if codec == "snappy" else (-1, 1):  # Snappy does not say how much it unpacked
        first = replace(pages.pages[0], uncompressed_size=pages.pages[0].uncompressed_size + difference)
        damaged = ColumnPages(None, [first, *pages.pages[1:]])
        assert pages_with(damaged, data, chunk.compression, [b"no such key"], 4) is None


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_the_pages_that_have_a_text_are_found_whatever_the_lengths(tmp_path: Path, codec: str) -> None:
    path, dice = tmp_path / "f.parquet", random.Random(11)
    pools = [
        [f"{number:08x}" for number in range(3_000)],  # one word
        [f"customer-{number:05d}" for number in range(3_000)],  # they begin alike
        [f"{number:05d}-customer" for number in range(3_000)],  # they end alike
        [f"{number:04d}" for number in range(3_000)],  # less than a word
        [f"{number:07d}" for number in range(3_000)],
        [f"{number % 7:012d}{number:012d}" for number in range(3_000)],  # three words
        ["é" * (number % 9) + str(number) for number in range(3_000)],
        ["", "a", "aa"],
    ]
    for pool in pools:
        for nulls in (0, 0.1):
            values = [None if dice.random() < nulls else dice.choice(pool) for _ in range(2_000)]
            table = pa.table({"id": pa.array(values, pa.string())})
            pq.write_table(
                table, path, compression=codec, use_dictionary=False, data_page_size=100, write_batch_size=90
            )
            chunk = pq.read_metadata(path).row_group(0).column(0)
            data = memoryview(path.read_bytes())[chunk.data_page_offset :][: chunk.total_compressed_size]
            pages = find_pages(reads(data), len(data))
            assert pages is not None
            assert len(pages.pages) > 10
            for text in [*dice.sample(pool, 3), dice.choice(pool) + "x", dice.choice(pool)[1:]]:
                with ThreadPoolExecutor(2) as threads:
                    wanted = pages, data, chunk.compression, [text.encode()], 10_000
                    found = pages_with(*wanted, threads.map)
                assert found is not None
                assert [*found] == sorted(found)
                again = pages_with(*wanted)
                assert again is not None
                assert {n: rows if rows is None else [*rows] for n, rows in found.items()} == {
                    n: rows if rows is None else [*rows] for n, rows in again.items()
                }
                for number, first in enumerate(pages.starts):
                    rows = [
                        row
                        for row, value in enumerate(values[first:][: pages.pages[number].num_values])
                        if value == text
                    ]
                    assert not rows or number in found
                    told = found.get(number)
                    assert told is None or [*told] == rows
                    assert told is not None or number not in found or pool in pools[6:] or nulls


def test_a_look_up_decodes_one_page_of_each_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pa.table({"id": keys(300_000), "v": np.arange(300_000), "x": np.arange(300_000) * 0.5})
    options = {"hoodie.metadata.enable": True, "hoodie.metadata.global.record.level.index.enable": True}
    table = lakefmt.create_table(str(tmp_path / "t"), data=data, record_key="id", options=options)
    table.bulk_insert(data)
    decoded: list[int] = []

    def encoded(schema: pa.Schema, codec: str, columns: dict[str, ColumnPages], read: Any) -> bytes:
        decoded.extend(pages.num_rows for pages in columns.values())
        return encode_pages(schema, codec, columns, read)

    def whole(*_: object) -> None:
        raise AssertionError("the file is read whole")

    monkeypatch.setattr(named_rows, "encode_pages", encoded)
    with monkeypatch.context() as patch:
        patch.setattr("lakefmt._core.read.scan._groups", whole)
        for number in (0, 123_456, 299_999):
            decoded.clear()
            key = data["id"][number].as_py()
            assert table.read(filter=[("id", "=", key)]).to_pylist() == data.slice(number, 1).to_pylist()
            assert len(decoded) == 2  # where the key is, the page says that was searched
            assert max(decoded) <= 131_072  # older releases of Arrow make pages of a megabyte, whatever their rows
            assert table.read(["x"], f"id = '{key}' and v > {number}").num_rows == 0
    # As many texts, and files, are read whole.
    several = data["id"].slice(7, 9).to_pylist()
    assert table.read(filter=[("id", "in", several)]).num_rows == 9


def test_a_number_without_end_is_refused_at_once() -> None:
    for header in (b"\x15" + b"\xff" * 60_000, b"\x18" + b"\xff" * 60_000, b"\x15\x00\x5c" * 20_000):
        with pytest.raises((InternalError, IndexError)):
            _decode_page_header(header + b"\0" * 9, 0)
        assert find_pages(reads(memoryview(header)), len(header)) is None
    with pytest.raises(InternalError, match="too many bytes"):
        _decode_page_header(b"\x15" + b"\xff" * 30 + b"\0" * 9, 0)


@pytest.mark.parametrize("high", ["z", "\ufb00"])  # the second is behind characters that Java orders otherwise
def test_row_groups_are_left_out_by_the_ends_of_the_texts(
    high: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = sorted(f"{number % 26 + 97:c}{number:06}" for number in range(40_000))
    table = pa.table({"id": [*texts[:-1], high], "n": np.arange(len(texts))})
    store, file = stored(tmp_path, table, row_group_size=10_000, use_dictionary=False)
    searched: list[int] = []
    rows_of = named_rows._SearchedRowGroup.rows_of

    def seen(group: Any, named: NamedTexts) -> pa.Table | None:
        searched.append(group.metadata.num_rows)
        return rows_of(group, named)

    monkeypatch.setattr(named_rows._SearchedRowGroup, "rows_of", seen)
    for text, number, count in (
        (texts[0], 0, 1),
        (texts[19_999], 19_999, 1),
        (texts[25_000], 25_000, 1),
        (high, 39_999, 1),
        ("~", None, 0),
    ):
        searched.clear()
        fields, named = [table.schema.field(name) for name in ("id", "n")], NamedTexts("id", pa.array([text]))
        got = read_named_rows(store, file, fields, named, None)
        assert got is not None
        assert got.to_pylist() == ([] if number is None else [{"id": text, "n": number}])
        # A group with an end that may be ordered otherwise is searched for every text, and for such a text all are.
        assert len(searched) == (4 if text == "\ufb00" else count + (high == "\ufb00"))


def test_texts_of_two_lengths_that_fill_as_many_bytes_as_alike_ones_are_found(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    values = [f"{number:06d}" if number % 2 else f"{number:08d}" for number in range(200)]
    pq.write_table(pa.table({"id": values}), path, compression="none", use_dictionary=False, data_page_size=1 << 20)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = memoryview(path.read_bytes())[chunk.data_page_offset :][: chunk.total_compressed_size]
    pages = find_pages(reads(data), len(data))
    assert pages is not None
    for text in values[::17]:
        assert pages_with(pages, data, chunk.compression, [text.encode()], 4) == {0: None}
    assert pages_with(pages, data, chunk.compression, [b"0000000"], 4) == {0: None}
