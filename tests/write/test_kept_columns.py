"""A rewritten file takes the pages of columns in which no value has changed: same rows, same bytes, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups import base_writer
from lakefmt._core.filegroups import merge as merge_base
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.formats.parquet import duplicate_columns
from lakefmt._core.formats.parquet.base_file import BaseFileWriter
from lakefmt._core.formats.parquet.duplicate_columns import ChunkNote, Pages
from lakefmt._core.values import RECORD_KEY
from lakefmt._core.write.files import base_file
from lakefmt.errors import InternalError
from tests.example_counts import examples

ROWS = 6000


@pytest.fixture(autouse=True)
def small_files_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_file, "_LARGE_FILE_BYTES", 1)
    monkeypatch.setattr(merge_base, "_MANY_ROWS", 1)


def made(rows: int = ROWS) -> pa.Table:
    number = np.arange(rows)
    return pa.table(
        {
            "id": [f"k{n:05d}" for n in number],
            "ts": number % 7,
            "name": [None if n % 11 == 0 else f"n{n % 5}" for n in number],
            "x": np.where(number % 3 == 0, 0.0, number / 3),
            "day": pa.array(number % 9, pa.int32()).cast(pa.date32()),
            "gaps": pa.array([None if n % 4 else n for n in number], pa.int64()),
            "list": [[int(n)] for n in number],
        }
    )


def table_of(path: Path, rows: pa.Table, **given: Any) -> lakefmt.Table:
    table = lakefmt.create_table(str(path), schema=rows.schema, record_key="id", **given)
    table.insert(rows)
    return table


def newest(path: Path) -> Path:
    return max(path.glob("*.parquet"), key=lambda file: (file.stat().st_mtime_ns, file.name.rsplit("_", 1)[-1]))


def bytes_of(path: Path, group: int = 0) -> dict[str, bytes]:
    """The bytes of every column's pages in a row group."""
    found, data = {}, path.read_bytes()
    chunks = pq.read_metadata(path).row_group(group)
    for number in range(chunks.num_columns):
        chunk = chunks.column(number)
        begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        found[chunk.path_in_schema] = data[begin : begin + chunk.total_compressed_size]
    return found


def kept_by(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The columns whose pages are taken, one set for each row group."""
    taken: list[set[str]] = []
    pages = BaseFileReader.pages

    def watched(self: BaseFileReader, file: Any, notes: Any) -> Any:
        taken.append(set(notes))
        return pages(self, file, notes)

    monkeypatch.setattr(BaseFileReader, "pages", watched)
    return taken


def changed(rows: pa.Table, every: int, **columns: Any) -> pa.Table:
    some = rows.take(pa.array(np.arange(0, rows.num_rows, every)))
    for name, value in columns.items():
        at = some.schema.get_field_index(name)
        some = some.set_column(at, some.schema.field(at), pa.array([value] * some.num_rows, some.schema.field(at).type))
    return some


@pytest.mark.parametrize("group_bytes", [32 << 20, 60_000])
def test_columns_without_a_change_keep_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", group_bytes)
    rows = made()
    table = table_of(tmp_path / "t", rows)
    old = newest(tmp_path / "t")
    taken = kept_by(monkeypatch)
    result = table.upsert(changed(rows, 37, ts=9))
    assert (result.num_updates, result.num_inserts) == (163, 0)
    new = newest(tmp_path / "t")
    groups = pq.read_metadata(new).num_row_groups
    assert (groups > 1) == (group_bytes < 1 << 20)
    kept = {RECORD_KEY, "_hoodie_partition_path", "id", "name", "x", "day", "gaps"}
    assert taken == [kept] * groups
    for group in range(groups):
        before, after = bytes_of(old, group), bytes_of(new, group)
        assert {name for name in kept if before[name] != after[name]} == set()
        assert before["ts"] != after["ts"]
    query = f"select count(*), count(distinct id), sum(ts), sum(x), sum(gaps), count(name) from read_parquet('{new}')"
    wanted = rows.column("ts").to_numpy().copy()
    wanted[::37] = 9
    x, gaps = rows.column("x").to_numpy().sum(), sum(range(0, ROWS, 4))
    assert duckdb.sql(query).fetchall() == [
        (ROWS, ROWS, int(wanted.sum()), pytest.approx(x), gaps, ROWS - rows.column("name").null_count)
    ]
    assert table.read().sort_by("id").column("ts").to_pylist() == wanted.tolist()
    assert not table.check("full").findings


changes = st.dictionaries(
    st.integers(0, 420),
    st.tuples(st.integers(0, 9), st.sampled_from([0.0, -0.0, float("nan"), 1.5]), st.sampled_from([None, "n1", "new"])),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(st.lists(changes, min_size=1, max_size=3), st.sampled_from([4_000, 9_000, 1 << 20]), st.booleans())
def test_rows_and_footers_are_those_of_a_file_that_is_encoded(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[int, Any]], group_bytes: int, deletes: bool
) -> None:
    rows, found = made(400), []
    for keep in (1, 1 << 60):
        path = tmp_path_factory.mktemp("t")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base_file, "_LARGE_FILE_BYTES", keep)
            patch.setattr(base_writer, "_ROW_GROUP_BYTES", group_bytes)
            table = table_of(path, rows, options={"lakefmt.durability": "none"})
            for batch in filter(None, batches):
                given_rows = made(421).take(pa.array(sorted(batch)))
                values = [batch[number] for number in sorted(batch)]
                for name, column in zip(("ts", "x", "name"), zip(*values, strict=True), strict=True):
                    at = given_rows.schema.get_field_index(name)
                    field = given_rows.schema.field(at)
                    given_rows = given_rows.set_column(at, field, pa.array(column, field.type))
                table.upsert(given_rows)
                if deletes:
                    table.delete([f"k{min(batch):05d}"])
        read = pq.ParquetFile(newest(path), page_checksum_verification=True).read()
        metadata = pq.read_metadata(newest(path))
        chunks = [chunk for group in metadata.to_dict()["row_groups"] for chunk in group["columns"]]
        stats = [
            (chunk["path_in_schema"], chunk["num_values"], str(chunk["statistics"]))
            for chunk in chunks
            if not chunk["path_in_schema"].startswith("_hoodie_")
        ]
        bits = read.column("x").combine_chunks().view(pa.int64()).to_pylist()
        kept_names = [name for name in read.column_names if not name.startswith("_hoodie_") and name != "x"]
        found.append((read.select([RECORD_KEY, *kept_names]).to_pylist(), bits, stats))
    assert found[0] == found[1]


def test_rows_that_go_or_come_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 60_000)
    rows = made()
    table = table_of(tmp_path / "t", rows)
    groups = pq.read_metadata(newest(tmp_path / "t")).num_row_groups
    taken = kept_by(monkeypatch)
    table.delete(["k00000"])
    assert len(taken) == groups - 1, "the row group without the deleted row is taken"
    taken.clear()
    new = rows.slice(0, 1).set_column(0, "id", pa.array(["new"]))
    table.upsert(pa.concat_tables([new, changed(rows, 100, ts=8)]))
    assert len(taken) == pq.read_metadata(newest(tmp_path / "t")).num_row_groups - 1, "the last one has a row more"
    assert table.read().num_rows == ROWS + 1
    assert not table.check("full").findings


def test_the_codec_that_is_asked_for_is_the_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made()
    table_of(tmp_path / "t", rows)
    taken = kept_by(monkeypatch)
    table = lakefmt.open_table(str(tmp_path / "t"), options={"hoodie.parquet.compression.codec": "snappy"})
    table.upsert(changed(rows, 37, ts=9))
    assert all(not names for names in taken)
    group = pq.read_metadata(newest(tmp_path / "t")).row_group(0)
    assert {group.column(number).compression for number in range(group.num_columns)} == {"SNAPPY"}


def test_pages_of_others_are_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of another writer may lack checksums."""
    rows = made()
    table = table_of(tmp_path / "t", rows)
    file = newest(tmp_path / "t")
    stored = pq.read_table(file).replace_schema_metadata(None)
    footers = {k.decode(): v.decode() for k, v in pq.read_metadata(file).metadata.items()}
    footers.pop("lakefmt.write_stat")
    with pq.ParquetWriter(file, stored.schema, store_schema=False, compression="zstd") as writer:
        writer.write_table(stored)
        writer.add_key_value_metadata(footers)
    taken = kept_by(monkeypatch)
    lakefmt.open_table(str(tmp_path / "t")).upsert(changed(rows, 37, ts=9))
    assert taken == []
    assert table.read().num_rows == ROWS


def test_a_flipped_bit_in_kept_pages_is_seen(tmp_path: Path) -> None:
    rows = made()
    table = table_of(tmp_path / "t", rows)
    table.upsert(changed(rows, 37, ts=9))
    file = newest(tmp_path / "t")
    data = bytearray(file.read_bytes())
    chunk = next(c for n in range(12) if (c := pq.read_metadata(file).row_group(0).column(n)).path_in_schema == "gaps")
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(lakefmt.errors.CorruptFile):
        lakefmt.open_table(str(tmp_path / "t")).read()


def test_pages_of_a_wrong_place_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: the pages of another row group are no page of this one."""
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 60_000)
    rows = made()
    table = table_of(tmp_path / "t", rows)
    place = duplicate_columns.ChunkPlace
    monkeypatch.setattr(duplicate_columns, "ChunkPlace", lambda note, name, begin: place(note, name, begin + 1))
    table.upsert(changed(rows, 37, ts=9))
    with pytest.raises(lakefmt.errors.CorruptFile):
        lakefmt.open_table(str(tmp_path / "t")).read()


def test_pages_are_for_one_row_group() -> None:
    pages = {"n": Pages(ChunkNote(b"", 0, 0), memoryview(b""))}
    rows = pa.table({"n": [1, 2, 3]})
    with pytest.raises(InternalError, match="3 rows do not fit row groups of 2"):
        BaseFileWriter(io.BytesIO(), rows.schema).write(rows, 2, pages)
