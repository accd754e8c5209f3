"""Bloom indexes that take ranges and filters from the metadata table: the same answers, and no footer is read."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.index import IndexKeys, choose_index, key_files, metadata_footers
from lakefmt._core.table import Table
from lakefmt._core.transactions.indexing import drop_metadata_index
from lakefmt.testing.stores import CountingStore
from tests.example_counts import examples

NUMBERS = itertools.count()
FAST: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.parquet.small.file.limit": 0,
}
KEPT: dict[str, object] = {
    **FAST,
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.metadata.index.column.stats.column.list": "_hoodie_record_key",
}
BY_METADATA: dict[str, object] = {"hoodie.bloom.index.use.metadata": True}
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


def make(kind: str = "cow", version: int = 8, index: str = "bloom") -> Table:
    return lakefmt.create_table(
        f"memory://bloom-by-metadata-{next(NUMBERS)}",
        schema=pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())]),
        record_key="id",
        partition_by="p",
        index=index,
        table_type=kind,
        table_version=version,
        options=KEPT,
    )


def rows(keys: list[str], v: int) -> pa.Table:
    return pa.table({"id": keys, "p": [f"p{len(key) % 2}" for key in keys], "v": [v] * len(keys)})


def answers(table: Table, keys: list[str], index: str) -> list[set[tuple[int, str]]]:
    """What the index says with footers and with the metadata table: row and file group."""
    state = table.client.load()
    found = []
    for more in ({}, BY_METADATA):
        chosen = resolve_settings({"hoodie.index.type": index, **more}, table.client.options, state.config.properties)
        slices = table.client.at(state).slices()
        meant = pa.array([f"p={p}" for p in rows(keys, 0)["p"].to_pylist()], pa.string()).dictionary_encode()
        wanted = IndexKeys(pa.array(keys, pa.string()), meant)
        located = choose_index(table.client, chosen, state.config, state).locate(
            wanted, slices, key_files(table.client, state)
        )
        found.append(
            {(int(row), slices[number].file_id) for row, number in zip(located.rows, located.slices, strict=True)}
        )
    return found


@settings(max_examples=examples(25))
@given(
    st.lists(st.lists(TEXTS, min_size=1, max_size=8, unique=True), min_size=1, max_size=4),
    st.lists(TEXTS, max_size=8),
    st.sampled_from(["cow", "mor"]),
    st.sampled_from([6, 8, 9]),
    st.sampled_from(["bloom", "global_bloom"]),
)
def test_the_answers_are_those_of_the_footers(
    batches: list[list[str]], others: list[str], kind: str, version: int, index: str
) -> None:
    table = make(kind, version)
    for v, keys in enumerate(batches):
        table.upsert(rows(keys, v))
    wanted = [*dict.fromkeys([key for keys in batches for key in keys] + others)]
    by_footers, by_metadata = answers(table, wanted, index)
    assert by_footers == by_metadata
    assert {row for row, _ in by_footers} >= set(range(len({key for keys in batches for key in keys})))


def numbered(first: int, last: int, v: int) -> pa.Table:
    keys = [f"k{n:04}" for n in range(first, last)]
    return pa.table({"id": keys, "p": ["a"] * len(keys), "v": [v] * len(keys)})


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_only_files_that_hold_a_key_are_opened(kind: str) -> None:
    table = make(kind)
    for v in range(6):
        table.upsert(numbered(100 * v, 100 * v + 100, v))
    store = CountingStore(table.client.store)
    options = {**table.client.options, **BY_METADATA}
    again = lakefmt.Table(type(table.client)(store, options, metadata_listing=table.client.metadata_listing))
    report = again.index.explain(["k0250", "k0251", "k9999"])
    assert report.found == 2
    read = {one.name for one in store.log if one.name.endswith(".parquet")}
    assert len(read) <= 1
    assert again.upsert(numbered(250, 252, 9)).num_updates == 2
    assert again.read().num_rows == 600


def test_without_the_partitions_the_footers_are_asked_and_the_write_says_so() -> None:
    table = make()
    table.upsert(numbered(0, 10, 1))
    assert table.upsert(numbered(5, 15, 2), options=BY_METADATA).warnings == ()
    drop_metadata_index(table.client, "bloom_filters")
    plain = lakefmt.open_table(table.client.store.url, options=FAST)
    done = plain.upsert(numbered(10, 20, 3), options=BY_METADATA)
    assert "bloom_filters" in done.warnings[0]
    assert (done.num_updates, done.num_inserts) == (5, 5)


def test_a_range_that_lies_doubles_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage: what the metadata table says is what counts."""
    table = make()
    table.upsert(numbered(0, 10, 1))
    true_ranges = metadata_footers._key_ranges
    monkeypatch.setattr(
        metadata_footers,
        "_key_ranges",
        lambda *given: {
            path: entry | {metadata_footers.MAX_KEY: "k0004"} for path, entry in true_ranges(*given).items()
        },
    )
    table.upsert(numbered(0, 10, 2), options=BY_METADATA)
    assert table.read().num_rows == 15


def test_files_that_the_metadata_table_does_not_know_are_asked_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    for v in range(3):
        table.upsert(numbered(10 * v, 10 * v + 10, v))
    true_ranges, true_filters = metadata_footers._key_ranges, metadata_footers._filter_texts
    monkeypatch.setattr(metadata_footers, "_key_ranges", lambda *given: dict(list(true_ranges(*given).items())[1:]))
    monkeypatch.setattr(metadata_footers, "_filter_texts", lambda *given: dict(list(true_filters(*given).items())[1:]))
    assert table.upsert(numbered(0, 30, 9), options=BY_METADATA).num_updates == 30
    assert np.all(table.read().column("v").to_numpy() == 9)
