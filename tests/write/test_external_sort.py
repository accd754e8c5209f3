"""Bounded memory: windows, a sort that spills, keys that wait on the disk, row groups of bounded size."""

from __future__ import annotations

import errno
import itertools
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core import sorting
from lakefmt._core.filegroups import base_writer
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import key_range
from lakefmt._core.sorting import FileKeys, gather_windows, row_memory, sort_stream
from lakefmt._core.write import bulk_insert
from lakefmt.errors import SchemaMismatch, StorageError

KEYS = st.text("abcxyzé\uffee😀", max_size=4)


def by_k(table: pa.Table) -> pa.Array:
    return table.column("k").combine_chunks()


@given(
    st.lists(st.integers(0, 40), max_size=8),
    st.sampled_from([1, 64, 200, 1 << 20]),
    st.sampled_from([0, 8, 100, 1 << 20]),
    st.booleans(),
)
def test_windows_keep_every_row_in_order(sizes: list[int], window_bytes: int, more_bytes: int, listed: bool) -> None:
    numbered = itertools.count()
    tables = [pa.table({"n": pa.array([next(numbered) for _ in range(size)], pa.int64())}) for size in sizes]
    found = list(gather_windows(tables if listed else (table for table in tables), window_bytes, more_bytes))
    windows = [rows for rows, _ in found]
    assert [n for w in windows for n in w["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(window_bytes <= w.nbytes < window_bytes + more_bytes + 8 for w in windows[:-1])
    assert all(0 < w.nbytes < window_bytes + more_bytes + 8 for w in windows[-1:])
    # Only the last one is called that, unless it is full: then nobody has looked whether more come, but a list says so.
    assert not any(last for _, last in found[:-1])
    for rows, last in found[-1:]:
        assert last == (rows.nbytes < window_bytes or (listed and sizes[-1] > 0))


def test_a_rest_joins_the_window_before_it_when_it_is_small() -> None:
    table = pa.table({"n": pa.array(range(10), pa.int64())})
    assert [rows.num_rows for rows, _ in gather_windows([table], 64, 16)] == [10]
    assert [rows.num_rows for rows, _ in gather_windows([table], 64, 15)] == [8, 2]


@given(
    st.lists(st.lists(st.sampled_from("aaaaaaaaab"), max_size=60), max_size=6), st.sampled_from([1, 800, 4000, 1 << 20])
)
def test_many_equal_keys_are_sorted_too(windows: list[list[str]], memory: int) -> None:
    numbered = itertools.count()
    tables = [pa.table({"k": pa.array(w, pa.string()), "n": [next(numbered) for _ in w]}) for w in windows]
    found = [row for piece in sort_stream(tables, by_k, memory) for row in piece.to_pylist()]
    assert [row["k"] for row in found] == sorted(k for w in windows for k in w)
    assert sorted(row["n"] for row in found) == list(range(sum(map(len, windows))))


@pytest.mark.parametrize("distinct", [1, 3, 100_000])
def test_a_range_is_a_bounded_part_of_the_memory(distinct: int) -> None:
    count, memory = 100_000, 1 << 20
    keys = pa.array([f"{(n * 7919) % distinct:06d}" for n in range(count)])
    table = pa.table({"k": keys, "n": range(count)})
    pieces = list(sort_stream([table], by_k, memory))
    assert sum(p.num_rows for p in pieces) == count
    assert all("k" in p.column_names and p.num_columns == 2 for p in pieces)
    assert max(p.nbytes for p in pieces) < row_memory(memory) // 4


def test_what_a_range_takes_of_a_run_does_not_keep_the_rest_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    real = sorting._joined_in_order

    def noted(pieces: list[pa.Table]) -> pa.Table:
        held.append((sum(piece.get_total_buffer_size() for piece in pieces), sum(piece.nbytes for piece in pieces)))
        return real(pieces)

    monkeypatch.setattr(sorting, "_joined_in_order", noted)
    count, memory = 200_000, 4 << 20
    table = pa.table({"k": [f"{(n * 7919) % count:06d}" for n in range(count)], "n": range(count)})
    found = list(sort_stream([table], by_k, memory))
    assert [n for piece in found for n in piece["k"].to_pylist()] == sorted(table["k"].to_pylist())
    # Of a batch that is taken whole, all buffers stand in one.
    assert all(buffers < 1.3 * size for buffers, size in held)


def test_rows_are_let_go_as_soon_as_they_are_on_the_disk() -> None:
    seen: list[weakref.ref[np.ndarray]] = []
    alive = []

    def tables() -> Iterator[pa.Table]:
        for n in range(12):
            alive.append(sum(ref() is not None for ref in seen))
            data = np.full(20_000, ord("a") + n, np.uint8)
            seen.append(weakref.ref(data))
            offsets = pa.py_buffer(np.arange(0, 20_001, 10, dtype=np.int32))
            yield pa.table({"k": pa.Array.from_buffers(pa.string(), 2000, [None, offsets, pa.py_buffer(data)])})
            del data, offsets

    # A run is 32 KiB: a table and a part of the next.
    assert sum(t.num_rows for t in sort_stream(tables(), by_k, 1 << 18)) == 24_000
    assert max(alive) <= 2


@given(st.lists(st.tuples(st.lists(KEYS, max_size=8), st.booleans()), max_size=6))
def test_spilled_keys_are_the_same_keys(batches: list[tuple[list[str], bool]]) -> None:
    keys = FileKeys()
    for texts, spills in batches:
        keys.add(pa.chunked_array([texts], pa.string()), copy=True)
        if spills:
            keys.spill()
            assert keys.held_bytes == 0
    everything = [text for texts, _ in batches for text in texts]
    assert len(keys) == len(everything)
    assert keys.range == key_range(pa.chunked_array([everything], pa.string()))
    assert [text for piece in keys.pieces(1 << 20) for text in piece.to_pylist()] == everything
    keys.close()


def test_spilled_keys_come_back_in_parts() -> None:
    keys = FileKeys()
    for n in range(10):
        keys.add(pa.chunked_array([[f"{n}-{i}" for i in range(5)]]))
        keys.spill()
    assert [len(piece) for piece in keys.pieces(100)] == [15, 15, 15, 5]
    keys.close()


@pytest.mark.parametrize(("cached", "is_sorted"), [(300, False), (299, True)])
def test_a_filter_is_the_same_where_its_flags_are_set_in_order(
    monkeypatch: pytest.MonkeyPatch, cached: int, is_sorted: bool
) -> None:
    in_order = []
    plain = BloomFilter.add_pieces

    def noted(self: BloomFilter, *given: Any, **named: Any) -> None:
        in_order.append(named["in_order"])
        plain(self, *given, **named)

    monkeypatch.setattr(BloomFilter, "add_pieces", noted)
    monkeypatch.setattr(sorting, "_KEYS_WITH_CACHED_FLAGS", cached)
    keys, whole, filled = FileKeys(), BloomFilter.sized(300, 1e-9), BloomFilter.sized(300, 1e-9)
    texts = pa.array([f"key-{number}" for number in range(300)])
    keys.add(pa.chunked_array([texts]))
    whole.add(texts)
    keys.add_to(filled, 1 << 20)
    assert filled == whole
    assert in_order == [is_sorted]


def test_a_full_temporary_directory_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> object:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    keys = FileKeys()
    keys.add(pa.chunked_array([["a"]]))
    with pytest.raises(StorageError, match="the disk is full"):
        keys.spill()
    assert [piece.to_pylist() for piece in keys.pieces(1)] == [["a"]], "nothing is lost"


@pytest.mark.parametrize("given", ["set", "searched"])
def test_a_missing_temporary_directory_is_a_storage_error(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no directory can take files at all, Python's own search for one fails, too."""

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    if given == "set":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    else:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_get_default_tempdir", nowhere)
    with pytest.raises(StorageError, match="temporary"):
        list(sort_stream([pa.table({"k": ["b", "a"]})], by_k, 1 << 20))


def test_a_temporary_directory_that_is_emptied_meanwhile_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems remove files of a temporary directory that nobody has open."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ordered = sort_stream((pa.table({"k": [f"{n:05}"] * 9}) for n in range(300)), by_k, 1 << 10)
    assert next(ordered).num_rows
    shutil.rmtree(next(tmp_path.iterdir()))
    with pytest.raises(StorageError, match="temporary"):
        list(ordered)


@pytest.mark.parametrize("other", [["v", "k"], ["k"], ["k", "v", "w"]])
def test_rows_of_one_sort_have_one_schema(other: list[str]) -> None:
    """Each row is as much as is put in order at a time, so that the two tables never meet before they are merged."""
    table = pa.table({"k": ["a" * 1000], "v": [1], "w": [3]})
    with pytest.raises(SchemaMismatch, match="one schema"):
        list(sort_stream([table.select(["k", "v"]), table.select(other)], by_k, 1 << 10))


def stored(table: lakefmt.Table) -> list[tuple[str | None, str | None, BloomFilter | None, int]]:
    return [
        (footer.min_key, footer.max_key, table.client.reader.bloom_filter(piece.base), footer.num_rows)
        for piece in sorted(table.file_groups(), key=lambda piece: piece.partition)
        if piece.base is not None
        for footer in [table.client.reader.footer(piece.base)]
    ]


@pytest.mark.parametrize("sort", ["none", "partition", "global"])
def test_small_windows_write_the_same_files_as_large_ones(sort: str) -> None:
    data = pa.table({"id": [f"{(n * 7919) % 3000:05d}" for n in range(3000)], "p": [f"p{n % 3}" for n in range(3000)]})
    found = []
    for window in (1 << 16 if sort == "global" else 1 << 14, 1 << 27):
        table = lakefmt.create_table(f"memory://windows-{sort}-{window}", data=data, record_key="id", partition_by="p")
        done = table.bulk_insert(data, sort=sort, options={"lakefmt.write.window.bytes": window})
        assert done.num_inserts == 3000
        assert table.read().sort_by("id").equals(data.sort_by("id"))
        found.append(stored(table))
    assert found[0] == found[1]
    assert [(low, high, rows) for low, high, _, rows in found[0]] == [
        (min(ids), max(ids), len(ids)) for ids in (data["id"].to_pylist()[n::3] for n in range(3))
    ]
    for (_, _, bloom, _), n in zip(found[0], range(3), strict=True):
        assert bloom is not None
        assert bloom.contains(data["id"].take(list(range(n, 3000, 3))).combine_chunks()).all()


@pytest.mark.parametrize("holds", [0, 1 << 40])
def test_keys_of_open_files_wait_on_the_disk(monkeypatch: pytest.MonkeyPatch, holds: int) -> None:
    held = []
    monkeypatch.setattr(bulk_insert, "_HOLDS_KEYS", holds)
    real = bulk_insert._PartitionWriter._append

    def noted(writer: bulk_insert._PartitionWriter, *arguments: Any) -> Any:
        finished = real(writer, *arguments)
        held.append(writer._held_bytes())
        return finished

    monkeypatch.setattr(bulk_insert._PartitionWriter, "_append", noted)
    data = pa.table({"id": [f"{n:036d}" for n in range(20_000)], "p": [f"p{n % 12}" for n in range(20_000)]})
    table = lakefmt.create_table(f"memory://waiting-keys-{holds}", data=data, record_key="id", partition_by="p")
    table.bulk_insert(data, options={"lakefmt.write.window.bytes": 1 << 17, "lakefmt.write.threads": 1})
    assert len(held) > 4
    # A small window holds none.
    assert max(held) == 0 if holds else 0 < max(held) <= (1 << 17) // 8


def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 10_000)
    data = pa.table({"id": [f"{n:05d}" for n in range(5000)]})
    table = lakefmt.create_table(str(tmp_path), data=data, record_key="id")
    table.insert(data)
    (piece,) = table.file_groups()
    assert piece.base is not None
    metadata = pq.read_metadata(f"{tmp_path}/{piece.base.path}")
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sum(sizes) == 5000
    assert 10 <= len(sizes) <= 40
    assert table.read(meta_columns=True).column("_hoodie_file_name").unique().to_pylist() == [piece.base.name]


def test_a_global_sort_takes_null_elements_where_they_are_allowed() -> None:
    data = pa.table({"id": ["b", "a"], "tags": [["x", None], []]})
    table = lakefmt.create_table("memory://sorted-nulls", data=data, record_key="id")
    table.bulk_insert(data, sort="global", options={"lakefmt.write.null_list_elements": "allow"})
    assert table.read(["id"])["id"].to_pylist() == ["a", "b"]
