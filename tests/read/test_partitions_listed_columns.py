"""Partitions are left out only by statistics that have all rows: Hudi changes which columns have them with any commit."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.index_readers import read_stats
from lakefmt._core.metadata.layout import (
    INDEX_DEFINITIONS,
    PartitionKind,
    parse_index_definitions,
    render_index_definitions,
)
from lakefmt._core.read import file_selection, statistics_selection
from tests.read.test_partitions_altered import PLACES, SCHEMA, made, of_five, partitions_left, row


@pytest.fixture(autouse=True)
def statistics_of_few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def list_columns(table: lakefmt.Table, *names: str) -> None:
    """What a Spark job does that writes with ``hoodie.metadata.index.column.stats.column.list``: it stores its own list."""
    store = table.client.store
    definitions = parse_index_definitions(store.read(INDEX_DEFINITIONS))
    meta = tuple(name for name in definitions["column_stats"].columns if name.startswith("_hoodie"))
    definitions["column_stats"] = replace(definitions["column_stats"], columns=(*meta, *names))
    store.put(INDEX_DEFINITIONS, render_index_definitions(definitions))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_column_that_is_no_longer_listed(table_type: str) -> None:
    """Its statistics stay as they were, whatever is written."""
    table = of_five(table_type)
    assert partitions_left(table, "n = 3") == 1
    list_columns(table, "id", "m")
    table.upsert(row(SCHEMA, "b", 0, 3))
    assert partitions_left(lakefmt.open_table(table.client.store.url), "n = 3") == 5
    assert partitions_left(table, "m = -3") == 2


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of ``n`` as Hudi joins them where the column is listed late: of each partition the newest file's alone."""

    def newest_file(table: Any, where: PartitionKind, column: str, *more: Any) -> pa.Table:
        stats = read_stats(table, where, column, *more)
        if column != "n" or where is not PartitionKind.PARTITION_STATS:
            return stats
        rows = stats.to_pylist()
        return pa.Table.from_pylist([each | {"min": each["max"], "value_count": 1} for each in rows], stats.schema)

    monkeypatch.setattr(statistics_selection, "read_stats", newest_file)


def listed_late(table_type: str) -> lakefmt.Table:
    table = of_five(table_type)
    table.insert(row(SCHEMA, "d", 1, 9), options={"hoodie.parquet.small.file.limit": 0})
    return table


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.usefixtures("late")
def test_a_column_that_is_listed_late(table_type: str) -> None:
    """The statistics of the partition with two files have one of them."""
    assert partitions_left(listed_late(table_type), "n = 3") == 1
    assert partitions_left(listed_late(table_type), "n = 2") == 2


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("seed", range(12))
def test_any_lists_between_any_writes(seed: int) -> None:
    chance = Random(seed)
    table = made(chance.choice(["cow", "mor"]), chance.choice([8, 9]))
    table.upsert(row(SCHEMA, "a", 0, 0))
    lapsed = False
    for _ in range(12):
        step = chance.random()
        if step < 0.25 and not lapsed:
            # A column that comes back after a while is not asked for: see limits.md.
            lapsed = True
            list_columns(table, *chance.sample(["id", "n", "m"], 2))
        elif step < 0.35:
            table.delete([f"{chance.choice(PLACES)}{chance.randrange(3)}"])
        else:
            table.upsert(row(SCHEMA, chance.choice(PLACES), chance.randrange(3), chance.randrange(6)))
        number = chance.randrange(6)
        partitions_left(table, f"n = {number}")
        partitions_left(table, f"m = -{number}")
    assert table.check().is_clean


def test_believed_they_lose_rows_of_a_column_that_is_no_longer_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin."""
    monkeypatch.setattr(file_selection, "listed_leaves", lambda client, config, leaves: list(leaves))
    with pytest.raises(AssertionError):
        test_a_column_that_is_no_longer_listed("cow")


@pytest.mark.usefixtures("late")
def test_believed_they_lose_rows_of_a_column_that_is_listed_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin."""
    monkeypatch.setattr(statistics_selection, "of_all_rows", lambda stats, keys: stats)
    with pytest.raises(AssertionError):
        test_a_column_that_is_listed_late("cow")
