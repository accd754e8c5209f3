"""Pages stored twice: whatever the rows, the file is what Arrow would have made of them, but for where its pages lie."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.parquet import duplicate_columns
from lakefmt._core.formats.parquet.base_file import BaseFileWriter
from lakefmt._core.formats.parquet.duplicate_columns import (
    duplicate_key_column,
    footer_of,
    note_chunk,
    place_chunks,
    with_length,
)
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import InternalError, StorageError

NEVER = 1 << 60
OFFSETS = ("data_page_offset", "dictionary_page_offset", "file_offset")
POINTS = pa.struct([("id", pa.string()), ("x", pa.int32())])
SCHEMA = pa.schema(
    [
        ("_hoodie_commit_time", pa.string()),
        (RECORD_KEY, pa.string()),
        ("pos", POINTS),
        ("tags", pa.list_(pa.string())),
        ("id", pa.string()),
        ("city", pa.string()),
        ("n", pa.int64()),
    ]
)


def made(keys: list[str], ids: list[str | None], first: int = 0) -> pa.Table:
    numbers = range(first, first + len(keys))
    return pa.table(
        {
            "_hoodie_commit_time": ["20260101000000000"] * len(keys),
            RECORD_KEY: keys,
            "pos": [None if n % 3 == 0 else {"id": f"p{n}", "x": n} for n in numbers],
            "tags": [None if n % 4 == 0 else ["a"] * (n % 3) for n in numbers],
            "id": ids,
            "city": [("sf", "oslo")[n % 2] for n in numbers],
            "n": list(numbers),
        },
        schema=SCHEMA,
    )


def written(
    pieces: list[pa.Table], worth: int, group_rows: int = 1 << 20, codec: str = "zstd", footers: int = 100
) -> bytes:
    sink = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", worth)
        writer = BaseFileWriter(sink, pieces[0].schema, codec)
        for piece in pieces:
            writer.write(piece, group_rows)
        writer.close({"note": "x" * footers})
    return sink.getvalue()


def told(file: bytes) -> dict[str, Any]:
    """What a footer says, but for where pages lie."""
    found = pq.read_metadata(pa.BufferReader(file)).to_dict()
    del found["serialized_size"]
    for group in found["row_groups"]:
        for column in group["columns"]:
            for name in OFFSETS:
                del column[name]
    return found


def spans(file: bytes) -> list[tuple[int, int]]:
    """Where each chunk lies."""
    metadata = pq.read_metadata(pa.BufferReader(file))
    chunks = [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in chunks]
    return sorted((start, start + c.total_compressed_size) for start, c in zip(starts, chunks, strict=True))


def is_twin(file: bytes, group: int = 0) -> bool:
    """Whether the pages of the keys lie behind those of all columns but their twin."""
    metadata = pq.read_metadata(pa.BufferReader(file))
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    begins = {name: metadata.row_group(group).column(at).data_page_offset for at, name in enumerate(names)}
    return sorted(begins, key=begins.__getitem__)[-2:] == [RECORD_KEY, "id"]


TEXTS = st.lists(st.text(max_size=12), min_size=1, max_size=60)


@given(
    st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=4),
    st.integers(1, 50),
    st.sampled_from(["zstd", "none", "gzip"]),
)
def test_the_file_says_and_holds_what_arrow_alone_writes(
    given_pieces: list[tuple[list[str], bool]], group_rows: int, codec: str
) -> None:
    pieces, first = [], 0
    for keys, same in given_pieces:
        pieces.append(made(keys, list(keys) if same else [None, *keys[1:]], first))
        first += len(keys)
    plain, twin = (written(pieces, worth, group_rows, codec) for worth in (NEVER, 1))
    read = pq.ParquetFile(pa.BufferReader(twin), page_checksum_verification=True).read()
    assert read.equals(pa.concat_tables(pieces))
    assert told(twin) == told(plain)
    found = spans(twin)
    assert all(end <= start for (_, end), (start, _) in pairwise(found))
    assert found[-1][1] <= len(twin) - len(footer_of(memoryview(twin))) - 8
    assert place_chunks(footer_of(memoryview(twin)), {}) == footer_of(memoryview(twin))
    at = 0
    for piece, (_, same) in zip(pieces, given_pieces, strict=True):
        assert is_twin(twin, at) == same
        at += -(-piece.num_rows // group_rows)


def test_duckdb_reads_it(tmp_path: Any) -> None:
    keys = [f"key-{n:08}" for n in range(10_000)]
    rows = made(keys, list(keys))
    (tmp_path / "a.parquet").write_bytes(written([rows, rows], 1, 3_000))
    query = f"""select count(*), count(distinct "{RECORD_KEY}"), sum(n), count(*) filter ("{RECORD_KEY}" = id)
        from read_parquet('{tmp_path}/a.parquet') where id >= 'key-00005000'"""
    assert duckdb.sql(query).fetchall() == [(10_000, 5_000, 2 * sum(range(5_000, 10_000)), 10_000)]


@pytest.mark.parametrize("name", [RECORD_KEY, "id"])
def test_a_flipped_bit_in_either_copy_is_seen(name: str) -> None:
    keys = [f"key-{n:08}" for n in range(1_000)]
    file = bytearray(written([made(keys, list(keys))], 1))
    metadata = pq.read_metadata(pa.BufferReader(bytes(file))).row_group(0)
    chunk = next(metadata.column(at) for at in range(8) if metadata.column(at).path_in_schema == name)
    file[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(pa.BufferReader(bytes(file)), page_checksum_verification=True).read()


@pytest.mark.parametrize("moved", [-1, 1])
def test_the_footer_points_at_the_pages_to_the_byte(moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: one byte beside them nothing can be read."""
    place = duplicate_columns.ChunkPlace
    monkeypatch.setattr(duplicate_columns, "ChunkPlace", lambda note, name, begin: place(note, name, begin + moved))
    file = written([made(["a", "b"], ["a", "b"])], 1)
    with pytest.raises(OSError):
        pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True).read()


def test_which_columns_are_stored_with_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", 1)
    keys = pa.array(["a", "b"])
    table = pa.table(
        {RECORD_KEY: keys, "_hoodie_file_name": keys, "x.id": keys, "other": ["a", "c"], "id": keys, "k2": keys}
    )
    assert duplicate_key_column(table) == "id"
    assert duplicate_key_column(table.drop_columns(["id", "k2"])) is None
    assert duplicate_key_column(table.drop_columns([RECORD_KEY])) is None
    assert duplicate_key_column(table.slice(0, 0)) is None
    required = [pa.field(RECORD_KEY, pa.string()), pa.field("id", pa.string(), nullable=False)]
    assert duplicate_key_column(pa.Table.from_arrays([keys, keys], schema=pa.schema(required))) is None, (
        "its pages have no levels"
    )
    assert duplicate_key_column(pa.Table.from_arrays([keys, keys], schema=pa.schema(required[::-1]))) is None
    coded = pa.table({RECORD_KEY: keys.dictionary_encode(), "id": keys.dictionary_encode()})
    assert duplicate_key_column(coded) is None
    monkeypatch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", NEVER)
    assert duplicate_key_column(table) is None


def test_of_the_usual_size_it_is_done_by_itself() -> None:
    keys = [f"{n:036}" for n in range(10_000)]
    rows = made(keys, list(keys))
    assert is_twin(written([rows], duplicate_columns._LEAST_KEY_BYTES))
    assert not is_twin(written([rows.slice(0, 1_000)], duplicate_columns._LEAST_KEY_BYTES))


class _Full(io.RawIOBase):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return len(data)


def test_a_disk_that_is_full_anywhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made([f"k{n}" for n in range(50)], [f"k{n}" for n in range(50)])
    monkeypatch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", 1)

    def write(writer: BaseFileWriter) -> None:
        writer.write(rows)
        writer.close({"note": "x" * 100})

    for room in range(0, len(written([rows], 1)), 17):
        writer = BaseFileWriter(_Full(room), rows.schema)  # type: ignore[arg-type]
        with pytest.raises(StorageError):
            write(writer)
        writer.discard()


def test_row_groups_that_were_not_asked_for_are_not_taken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", 1)
    writer = BaseFileWriter(io.BytesIO(), SCHEMA)
    writer.write(made(["a"], ["a"]))
    assert writer._writer is not None
    writer._writer.write_table(made(["b"], ["b"]))
    with pytest.raises(InternalError, match="2 row groups, and 1 were written"):
        writer.close({})


def test_a_footer_without_the_field_asked_for_is_refused() -> None:
    assert with_length(b"ab") == b"ab\2\0\0\0PAR1"
    with pytest.raises(InternalError, match="lacks its field 4"):
        note_chunk(b"\x15\x02\x00")
    with pytest.raises(InternalError, match="no Parquet file"):
        footer_of(memoryview(b"nothing"))
    with pytest.raises(InternalError, match="kind 13"):
        note_chunk(b"\x1d\x02\x00")
