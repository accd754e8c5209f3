"""A large file that is merged part by part gets the rows and counts of a merge at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.filegroups import base_writer
from lakefmt._core.filegroups import merge as merge_base
from lakefmt._core.filegroups.merge import (
    PLACE,
    Incoming,
    Merged,
    merge_in_order,
    merge_in_parts,
    merge_into_base,
    rows_in_file_order,
    sum_of_parts,
)
from lakefmt._core.filegroups.model import parse_files
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.values import RECORD_KEY, MergeMode, PartitionPath
from lakefmt._core.write.files import base_file
from lakefmt._core.write.files.base_file import store_parts

RULES = (
    MergeRule.plain(MergeMode.COMMIT_TIME_ORDERING, ()),
    MergeRule.plain(MergeMode.EVENT_TIME_ORDERING, ("ts",)),
)
COUNTS = ("inserted", "updated", "deleted", "late", "ignored_deletes")
rows_of_file = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=40)
rows_to_merge = st.dictionaries(st.integers(0, 40), st.tuples(st.integers(0, 3), st.booleans()), max_size=30)


def table_of(keys: list[int], ts: list[int], text: str, *, coded: bool) -> pa.Table:
    """Return rows of a file; their texts are numbered, by a dictionary where asked."""
    texts = pa.array([f"{text}{number % 3}" for number in range(len(keys))], pa.string())
    return pa.table(
        {
            RECORD_KEY: pa.array([f"k{key}" for key in keys], pa.string()),
            "ts": pa.array(ts, pa.int64()),
            "text": texts.dictionary_encode() if coded else texts,
            "list": pa.array([[value] for value in ts], pa.list_(pa.int64())),
        }
    )


@given(rows_of_file, rows_to_merge, st.integers(1, 12), st.sampled_from(RULES), st.booleans())
def test_pieces_are_the_whole(
    stored: list[tuple[int, int]],
    new: dict[int, tuple[int, bool]],
    part_rows: int,
    rule: MergeRule,
    coded: bool,
) -> None:
    base = table_of([key for key, _ in stored], [ts for _, ts in stored], "old", coded=coded)
    rows = table_of(list(new), [ts for ts, _ in new.values()], "new", coded=False)
    incoming = Incoming(rows, np.array([gone for _, gone in new.values()], dtype=bool))
    whole = merge_into_base(base, incoming, rule=rule)
    cut = [base.slice(start, part_rows) for start in range(0, base.num_rows, part_rows)]
    parts = list(merge_in_parts(cut, base.num_rows, incoming, rule))
    assert len(parts) == -(-len(stored) // part_rows)
    assert pa.concat_tables([part.table for part in parts]).to_pylist() == whole.table.to_pylist()
    summed = sum_of_parts(parts)
    assert {name: getattr(summed, name) for name in COUNTS} == {name: getattr(whole, name) for name in COUNTS}
    assert summed.inserted_keys.to_pylist() == whole.inserted_keys.to_pylist()


@given(rows_of_file, rows_to_merge, st.integers(1, 12), st.integers(1, 7), st.sampled_from(RULES), st.booleans())
def test_rows_in_the_order_of_the_file_come_to_the_whole(
    stored: list[tuple[int, int]],
    new: dict[int, tuple[int, bool]],
    part_rows: int,
    piece_rows: int,
    rule: MergeRule,
    coded: bool,
) -> None:
    """Also where a key is stored several times."""
    base = table_of([key for key, _ in stored], [ts for _, ts in stored], "old", coded=coded)
    rows = table_of(list(new), [ts for ts, _ in new.values()], "new", coded=False)
    deletes = np.array([gone for _, gone in new.values()], dtype=bool)
    whole = merge_into_base(base, Incoming(rows, deletes), rule=rule)
    cut = [base.slice(start, part_rows) for start in range(0, base.num_rows, part_rows)]
    marked = rows.append_column("gone", pa.array(deletes))
    seen: list[int] = []

    def incoming(some: pa.Table) -> Incoming:
        seen.append(some.num_rows)
        return Incoming(some.drop_columns([PLACE, "gone"]), some.column("gone").to_numpy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_base, "MOST_ROWS_OF_A_PIECE", piece_rows)
        placed = list(rows_in_file_order(marked, base.column(RECORD_KEY), piece_rows))
        parts = (
            [part for part, _ in merge_in_order(cut, base.num_rows, placed, incoming, rule)]
            if placed
            else [merge_into_base(base, Incoming(rows, deletes), rule=rule)]
        )
    merged = pa.concat_tables([part.table for part in parts])
    assert merged.to_pylist() == whole.table.to_pylist()
    summed = sum_of_parts(parts)
    assert {name: getattr(summed, name) for name in COUNTS} == {name: getattr(whole, name) for name in COUNTS}
    assert summed.inserted_keys.to_pylist() == whole.inserted_keys.to_pylist()
    assert summed.removed_keys.to_pylist() == whole.removed_keys.to_pylist()
    assert max(seen, default=0) <= piece_rows


@pytest.mark.parametrize("sizes", [[2, 0], [2, 0, 0], [0, 2], [0, 2, 0], [0, 0], [1, 0, 1, 0]])
def test_new_rows_come_once_though_the_last_parts_are_empty(sizes: list[int]) -> None:
    base = table_of([0, 1][: sum(sizes)], [1, 1][: sum(sizes)], "old", coded=False)
    rows = table_of([1, 7, 8], [2, 2, 2], "new", coded=False)
    incoming = Incoming(rows, np.array([False, False, True]))
    whole = merge_into_base(base, incoming, rule=RULES[0])
    starts = np.cumsum([0, *sizes[:-1]])
    cut = [base.slice(int(start), size) for start, size in zip(starts, sizes, strict=True)]
    parts = list(merge_in_parts(cut, base.num_rows, incoming, RULES[0]))
    assert pa.concat_tables([part.table for part in parts]).to_pylist() == whole.table.to_pylist()
    summed = sum_of_parts(parts)
    assert {name: getattr(summed, name) for name in COUNTS} == {name: getattr(whole, name) for name in COUNTS}
    assert summed.inserted_keys.to_pylist() == whole.inserted_keys.to_pylist()


def test_a_file_whose_last_row_group_was_emptied_takes_new_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 20_000)
    number = np.arange(6000)
    rows = pa.table({"id": [f"k{n:05d}" for n in number], "name": [f"n{n % 5}" for n in number]})
    options = {"lakefmt.write.small.files": "fill"}
    table = lakefmt.create_table(str(tmp_path / "t"), schema=rows.schema, record_key="id", options=options)
    table.insert(rows)
    table.delete(rows["id"].slice(3000))
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 2000)  # else the empty row groups are read with full ones
    table.upsert(pa.table({"id": ["new1", "new2"], "name": ["n", "n"]}))
    assert sorted(table.read()["id"].to_pylist()) == [*rows["id"].slice(0, 3000).to_pylist(), "new1", "new2"]


@pytest.mark.parametrize("merge", [None, "event_time"])
def test_a_file_is_rewritten_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: str | None) -> None:
    number = np.arange(6000)
    rows = pa.table({"id": [f"k{n:05d}" for n in number], "ts": number % 7, "name": [f"n{n % 5}" for n in number]})
    some = rows.take(pa.array(number[::37])).set_column(1, "ts", pa.array(np.full(163, 3)))
    late = pa.concat_tables([some, pa.table({"id": ["new"], "ts": [1], "name": ["n"]})])
    tables, counts = [], []
    for name in ("whole", "parts", "many"):
        table = lakefmt.create_table(
            str(tmp_path / name), schema=rows.schema, record_key="id", ordering="ts" if merge else None
        )
        table.insert(rows)
        tables.append(table)
    for table, bytes_, piece_rows in zip(tables, (32 << 20, 20_000, 20_000), (1 << 17, 1 << 17, 50), strict=True):
        monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", bytes_)
        monkeypatch.setattr(base_file, "MOST_ROWS_OF_A_PIECE", piece_rows)
        monkeypatch.setattr(merge_base, "MOST_ROWS_OF_A_PIECE", piece_rows)
        results = [table.upsert(late), table.delete(["k00007", "k05999", "absent"])]
        counts.append([(r.num_inserts, r.num_updates, r.num_deletes) for r in results])
    whole, parts, many = tables
    assert counts[0] == counts[1] == counts[2]
    assert parts.read().equals(whole.read()), "the same rows in the same order"
    assert many.read().equals(whole.read())
    groups = [
        pq.read_metadata(
            max((tmp_path / name).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        ).num_row_groups
        for name in ("whole", "parts", "many")
    ]
    assert groups[0] == 1 < groups[1]
    assert not parts.check("full").findings
    assert not many.check("full").findings


def test_parts_are_the_row_groups_small_ones_together_and_large_ones_in_pieces(tmp_path: Path) -> None:
    rows = pa.table({RECORD_KEY: [f"k{n:05d}" for n in range(7000)]})
    path = tmp_path / "f-0_1-0-0_20260101000000000.parquet"
    with pq.ParquetWriter(path, rows.schema, use_dictionary=False, compression="none") as writer:
        for start, count in ((0, 500), (500, 500), (1000, 2000), (3000, 4000)):
            writer.write_table(rows.slice(start, count))
    (file,), _ = parse_files(PartitionPath(""), [ObjectInfo(path.name, path.stat().st_size)])
    reader = BaseFileReader(LocalStore(tmp_path))
    with reader.in_parts(file, [RECORD_KEY], 21_000, use_threads=False) as parts:
        read = list(parts.parts)
    tables = [part.rows for part in read]
    assert [table.num_rows for table in tables] == [1000, 2000, 2000, 2000]
    assert pa.concat_tables(tables).equals(rows)
    assert [part.group for part in read] == [None, 2, None, None], "the row group that a part is as a whole"
    with reader.in_parts(file, [RECORD_KEY], 1 << 20, use_threads=False) as parts:
        assert not parts.is_cut
        assert [(part.rows.num_rows, part.group) for part in parts.parts] == [(7000, None)]


@pytest.mark.parametrize("beside", [False, True])
def test_parts_that_are_stored_are_let_go(beside: bool) -> None:
    keys = pa.array([f"k{n}" for n in range(1000)])
    held: list[int] = []
    before = pa.total_allocated_bytes()

    def parts() -> Iterator[Merged]:
        for _ in range(8):
            held.append(pa.total_allocated_bytes() - before)
            numbers = pa.concat_arrays([pa.nulls(1000, pa.int64())] * 100)
            rows = pa.table({RECORD_KEY: pa.concat_arrays([keys] * 100), "n": numbers})
            merged = Merged(rows, 0, 0, 0, 0, 0, pa.chunked_array([], pa.string()))
            del rows, numbers
            yield merged
            del merged

    merged, stored_keys = store_parts(parts(), lambda part: None, beside=beside)
    assert merged.table.num_rows == 0 < len(stored_keys) == 800_000
    key_bytes = stored_keys.nbytes // 8
    assert max(each - number * key_bytes for number, each in enumerate(held)) < 4 * 800_000
