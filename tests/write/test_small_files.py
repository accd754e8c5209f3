"""Small files in tiers: few of them in a partition, and few bytes written again; rows stay as they were."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.index.api import Located
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import InstantTime, WriteOperation
from lakefmt._core.write.assign import (
    MOST_SMALL_FILES,
    FileSizing,
    Routes,
    assign_rows,
    choose_files_to_merge,
    crowded_partitions,
)
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_table import OPTIONS, SCHEMA
from tests.write.test_assign import _ids, _slices

R = InstantTime("20260101000000000")
NUMBERS = itertools.count()


# ------------------------------------------------------------------------------------------------------------ the plan


@given(st.lists(st.integers(1, 10_000), max_size=40), st.integers(1, 20_000), st.integers(1, 20))
def test_what_is_merged_fits_and_is_of_the_smallest(sizes: list[int], most_bytes: int, most: int) -> None:
    chosen = choose_files_to_merge(sizes, most_bytes, most)
    if len(sizes) <= most:
        assert chosen == []
        return
    smallest = sorted(sizes)
    if chosen:
        assert len(chosen) >= 2
        assert sum(sizes[number] for number in chosen) <= most_bytes
        assert sorted(sizes[number] for number in chosen) == smallest[: len(chosen)]
    else:
        assert len(sizes) < 2 or sum(smallest[:2]) > most_bytes


def appended(batches: int, most: int, limit: int = 10**9) -> tuple[float, int]:
    """Append files of one size; return the bytes written for each byte kept, and the most files there ever were."""
    files: list[int] = []
    written = peak = 0
    for _ in range(batches):
        files.append(100)
        written += 100
        chosen = choose_files_to_merge(files, limit, most)
        if chosen:
            merged = sum(files[number] for number in chosen)
            files = [size for number, size in enumerate(files) if number not in chosen] + [merged]
            written += merged
        peak = max(peak, len(files))
    return written / sum(files), peak


@pytest.mark.parametrize(("batches", "amplification"), [(20, 2.0), (200, 3.0), (1000, 3.5), (5000, 4.6)])
def test_appends_keep_few_files_and_write_few_bytes_again(batches: int, amplification: float) -> None:
    found, peak = appended(batches, MOST_SMALL_FILES)
    assert found <= amplification
    assert peak <= MOST_SMALL_FILES


def test_a_plan_that_merges_two_files_at_a_time_writes_more() -> None:
    assert appended(1000, 1)[0] > 4


def test_tiers_fill_what_is_rewritten_anyway_and_what_is_small_beside_the_rows() -> None:
    sizing = FileSizing(max_bytes=1000, small_bytes=500, record_bytes=1.0, tiered=True)
    slices = _slices([("p", 100), ("p", 30), ("p", 200)])
    places = pa.array(["p"] * 100).dictionary_encode()
    changed = Located(np.array([0]), np.array([2]))
    files = assign_rows(places, Routes(changed), slices, sizing, R, _ids())
    assert {each.assignment.file_id: len(each.rows) for each in files} == {"g1": 99, "g2": 1}
    few = pa.array(["p"] * 10).dictionary_encode()
    files = assign_rows(few, Routes(changed), slices, sizing, R, _ids())
    assert {each.assignment.file_id: len(each.rows) for each in files} == {"g2": 10}
    files = assign_rows(few, Routes(None), slices, sizing, R, _ids())
    assert [each.assignment.base for each in files] == [None]


def test_files_that_do_not_fit_together_are_filled_when_there_are_many() -> None:
    sizing = FileSizing(max_bytes=100, small_bytes=90, record_bytes=1.0, tiered=True)
    many = _slices([("p", 60)] * MOST_SMALL_FILES)
    files = assign_rows(pa.array(["p"]).dictionary_encode(), Routes(None), many, sizing, R, _ids())
    assert files[0].assignment.base is not None
    files = assign_rows(pa.array(["p"]).dictionary_encode(), Routes(None), many[1:], sizing, R, _ids())
    assert files[0].assignment.base is None


def test_partitions_are_crowded_by_what_is_opened_in_them() -> None:
    small = ["p"] * 16 + ["q"] * 30 + ["r"] * 3
    assert crowded_partitions(small, ["p", "r"], 16) == {"p"}
    assert crowded_partitions(small, [], 16) == frozenset()


# ----------------------------------------------------------------------------------------------------------- the table


BESIDE: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "InProcessLockProvider",
}


def rows(first: int, count: int, city: str = "oslo") -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "city": [city] * count,
            "v": [n % 7 or None for n in numbers],
            "ts": [1] * count,
        },
        schema=SCHEMA,
    )


def make(kind: str = "cow", version: int = 9, properties: dict[str, object] | None = None, **options: object) -> Table:
    return lakefmt.create_table(
        f"memory://small-files-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        properties=properties or {},
        options={"lakefmt.durability": "none", "lakefmt.write.threads": 1, **options},
    )


def merges(table: Table) -> list[str]:
    state = table.client.load()
    return [
        instant.time
        for instant in state.timeline.commits
        if instant.action is Action.REPLACE_COMMIT
        and table.client.at(state).commit_metadata(instant).operation is WriteOperation.CLUSTER
    ]


def num_files(table: Table) -> int:
    return len(table.client.at(table.client.load()).slices())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_appends_are_merged_and_nothing_is_lost(kind: str, indexed: bool, beside: bool) -> None:
    table = make(kind, **(OPTIONS if indexed else {}), **(BESIDE if beside else {}))
    results = [table.insert(rows(10 * number, 10)) for number in range(40)]
    assert not any(result.warnings for result in results)
    assert merges(table)
    assert num_files(table) <= MOST_SMALL_FILES
    read = table.read().sort_by("id")
    expected = rows(0, 400).sort_by("id")
    assert read.select(expected.column_names).equals(expected)
    since, completed = results[29].instant, results[29].completion_time
    assert since is not None
    assert completed is not None
    assert table.incremental(completed).num_rows == 100, "a merge brings no rows"
    table.upsert(rows(0, 400).set_column(3, "ts", pa.array([2] * 400)))
    assert table.read().num_rows == 400
    assert table.read(as_of=since).num_rows == 300
    if indexed:
        check_metadata_table(table)


@pytest.mark.parametrize(
    "made",
    [
        {"lakefmt.write.small.files": "fill"},
        {"properties": {"hoodie.table.cdc.enabled": "true"}},
        {"version": 6},
    ],
    ids=["fill", "change data", "version 6"],
)
def test_hudis_way_rewrites_a_small_file_with_every_commit(made: dict[str, Any]) -> None:
    table = make(**made)
    for number in range(4):
        table.insert(rows(10 * number, 10))
    assert num_files(table) == 1


def test_a_limit_of_zero_leaves_every_file() -> None:
    table = make(**{"hoodie.parquet.small.file.limit": 0})
    for number in range(20):
        table.insert(rows(10 * number, 10))
    assert num_files(table) == 20


def test_a_merge_that_fails_is_reported_and_the_commit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[int]:
        raise lakefmt.errors.StorageError("the store is full")

    table = make()
    for number in range(MOST_SMALL_FILES):
        table.insert(rows(10 * number, 10))
    with monkeypatch.context() as patch:
        patch.setattr("lakefmt._core.write.verbs.choose_files_to_merge", refuse)
        result = table.insert(rows(1000, 10))
    assert any("small files were not merged" in warning for warning in result.warnings)
    assert table.read().num_rows == 10 * MOST_SMALL_FILES + 10
    assert not table.client.load().timeline.pending
    assert not table.insert(rows(2000, 10)).warnings
    assert num_files(table) <= MOST_SMALL_FILES


def test_new_rows_of_one_partition_are_spread_over_the_threads() -> None:
    sizing = FileSizing(120 << 20, 100 << 20, 1 << 20, tiered=True, writers=4)

    def counts(places: list[str]) -> list[int]:
        rows_of = pa.array(places).dictionary_encode()
        return [len(each.rows) for each in assign_rows(rows_of, Routes(None), [], sizing, R, _ids())]

    assert counts(["p"] * 40) == [10, 10, 10, 10]
    assert counts(["p"] * 20) == [10, 10]
    assert counts(["p"] * 40 + ["q"] * 40) == [20, 20, 20, 20]
    assert counts(["p"] * 15) == [15], "too few for two files"
    assert counts(["p"] * 600) == [120] * 5, "no file is larger than the limit"
