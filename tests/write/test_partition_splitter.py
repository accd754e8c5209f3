"""A window's rows by partition: each row once, in its order, with every value, whatever the chunks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.keys import build_partition_paths, build_record_keys, plan_key_spec
from lakefmt._core.values import RECORD_KEY, PartitionPath
from lakefmt._core.write import bulk_insert
from lakefmt._core.write.bulk_insert import PartitionSplitter, partition_constants
from lakefmt._core.write.files.base_file import WorkerPool
from lakefmt._core.write.ingest import KeyedBatch
from tests.example_counts import examples

SPEC = plan_key_spec("key", "home", hive_style=False, url_encode=False)
SCHEMA = pa.schema([("row", pa.int64()), ("home", pa.string()), ("key", pa.string()), ("note", pa.string())])
#: Values of the partition column: the last four share one partition, whose path tells none of them.
HOMES = ["a", "b/c", "Ä", "", None, "__HIVE_DEFAULT_PARTITION__", ""]


def keyed_batch(table: pa.Table, keyed: bool) -> KeyedBatch:
    return KeyedBatch(table, build_record_keys(SPEC, table) if keyed else None, build_partition_paths(SPEC, table))


def cut(span: list[PartitionPath], table: pa.Table, counts: list[int]) -> list[tuple[PartitionPath, pa.Table]]:
    assert table.num_rows == sum(counts)
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    return [(name, table.slice(start, count)) for name, start, count in zip(span, starts, counts, strict=True)]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, len(HOMES) - 1), max_size=9), min_size=1, max_size=6),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([1, 4, 64]),
    st.booleans(),
    st.integers(0, 6),
)
def test_every_row_goes_to_its_partition_once_and_in_order(
    chunks: list[list[int]], keyed: bool, threads: int, at_once: int, tells: bool, few: int
) -> None:
    numbers = iter(range(1000))
    batches = []
    for chunk in chunks:
        rows = [next(numbers) for _ in chunk]
        columns = [rows, [HOMES[code] for code in chunk], [f"k{row}" for row in rows], [f"n{row % 2}" for row in rows]]
        batches.append(
            keyed_batch(
                pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA), keyed
            )
        )
    told = partial(partition_constants, SPEC, SCHEMA) if tells else lambda _: {}
    with pytest.MonkeyPatch.context() as patch, WorkerPool(threads) as workers:
        patch.setattr(bulk_insert, "_SORTED_CHUNK_ROWS", at_once)
        spread = PartitionSplitter(batches, workers, told, lambda _, counts: [0 < count <= few for count in counts])
        found = [part for group in spread.groups() for part in group]
        assert all(table.num_rows > few for _, table in found)
        small = [part for span in spread.small_spans(2) for part in cut(spread.names_of(span), *spread.rows_of(span))]
    found += small
    codes = np.array([code for chunk in chunks for code in chunk], np.int64)
    homes = np.array([str(HOMES[code] or "__HIVE_DEFAULT_PARTITION__") for code in codes], object)
    assert sorted(name for name, _ in found) == sorted(set(homes))
    for name, table in found:
        wanted = np.flatnonzero(homes == name).tolist()
        assert table["row"].to_pylist() == wanted
        assert table["home"].to_pylist() == [HOMES[codes[row]] for row in wanted]
        assert table["key"].to_pylist() == [f"k{row}" for row in wanted]
        assert table["note"].to_pylist() == [f"n{row % 2}" for row in wanted]
        assert table.column_names == [RECORD_KEY, *SCHEMA.names][not keyed :]
        if keyed:
            assert table[RECORD_KEY].to_pylist() == [f"k{row}" for row in wanted]
        # A partition's rows are stored with one schema, whatever else is in the window.
        is_told = tells and name in {"a", "b/c", "Ä"} and len(wanted) > few
        assert pa.types.is_dictionary(table.schema.field("home").type) == is_told


def test_what_follows_from_the_key_and_the_partition_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []
    real = bulk_insert.pc.take

    def noted(chunk: pa.RecordBatch, *arguments: object, **options: object) -> pa.RecordBatch:
        taken.append(chunk.schema.names)
        return real(chunk, *arguments, **options)

    rows = [{"row": row, "home": "ab"[row % 2], "key": f"k{row}", "note": "n"} for row in range(10)]
    batch = keyed_batch(pa.Table.from_pylist(rows, SCHEMA), True)
    monkeypatch.setattr(bulk_insert.pc, "take", noted)
    with WorkerPool(1) as workers:
        found = list(PartitionSplitter([batch], workers, partial(partition_constants, SPEC, SCHEMA)).groups())
    assert [table.to_pylist()[0]["home"] for group in found for _, table in group] == ["a", "b"]
    assert taken
    assert all(names == [RECORD_KEY, "row", "note"] for names in taken)


def test_rows_of_one_column_that_the_path_tells_are_counted() -> None:
    table = pa.table({"home": ["a", "b", "a"]})
    batch = KeyedBatch(table, None, build_partition_paths(SPEC, table))
    with WorkerPool(1) as workers:
        found = dict(
            part
            for group in PartitionSplitter([batch], workers, partial(partition_constants, SPEC, table.schema)).groups()
            for part in group
        )
    assert {name: rows["home"].to_pylist() for name, rows in found.items()} == {"a": ["a", "a"], "b": ["b"]}


def test_a_window_is_copied_a_part_at_a_time() -> None:
    codes = pa.array(np.arange(600, dtype=np.int32) % 30)
    names = pa.array([f"p{code}" for code in range(30)])
    batch = KeyedBatch(pa.table({"row": range(600)}), None, pa.DictionaryArray.from_arrays(codes, names))
    with WorkerPool(2) as workers:
        groups = list(PartitionSplitter([batch], workers, lambda _: {}).groups())
    sizes = [sum(table.num_rows for _, table in group) for group in groups]
    assert len(sizes) == 8
    assert max(sizes) <= 80


@pytest.mark.parametrize(
    ("spec", "path", "told"),
    [
        (SPEC, "a", {"home": "a"}),
        (SPEC, "a/b", {"home": "a/b"}),
        (SPEC, "__HIVE_DEFAULT_PARTITION__", {}),
        (plan_key_spec("key", "home"), "home=a%2Fb", {"home": "a/b"}),
        (plan_key_spec("key", "home"), "home=a/b", {}),
        (plan_key_spec("key", "home"), "home=__HIVE_DEFAULT_PARTITION__", {}),
        (plan_key_spec("key", ["home", "note"]), "home=a/note=b", {"home": "a", "note": "b"}),
        (plan_key_spec("key", ["home", "note"]), "home=a/note=b/c", {}),
        (plan_key_spec("key", ["row", "note"]), "row=1/note=b", {"note": "b"}),
        (plan_key_spec("key", None), "", {}),
    ],
)
def test_what_a_path_tells_of_texts(spec: object, path: str, told: dict[str, str]) -> None:
    assert partition_constants(spec, SCHEMA, PartitionPath(path)) == told
