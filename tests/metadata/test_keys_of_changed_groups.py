"""The record index after writes to logs: what it had already is asked of it, and older logs are not read again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.metadata import collect
from lakefmt._core.table import Table
from tests.example_counts import examples
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_table import make, rows

#: Small tables that keep their logs; what a commit may have deleted is soon told by an archived commit only.
LOGS: dict[str, object] = {
    "hoodie.metadata.index.bloom.filter.enable": "false",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": "false",
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.clean.commits.retained": 2,
}
WRITES = st.tuples(
    st.sampled_from(["upsert", "marked", "delete"]), st.integers(0, 11), st.integers(1, 4), st.integers(0, 5)
)


def marked(data: pa.Table, value: bool) -> pa.Table:
    return data.append_column("_hoodie_is_deleted", pa.array([value] * data.num_rows))


def write(table: Table, what: str, first: int, count: int, order: int, *, marks: bool) -> None:
    data = rows(first, first + count, order)
    if what == "delete":
        table.delete(data.select(["id", "city"]))
        return
    data = marked(data, what == "marked") if marks else data
    table.upsert(data)


@pytest.mark.slow
@pytest.mark.parametrize("marks", [False, True], ids=["plain", "marked"])
@settings(max_examples=examples(5), phases=[Phase.generate])
@given(writes=st.lists(WRITES, min_size=6, max_size=10), version=st.sampled_from([6, 8, 9]), cold=st.booleans())
def test_the_record_index_has_the_keys_that_logs_leave(
    writes: list[tuple[str, int, int, int]], version: int, cold: bool, marks: bool
) -> None:
    table = make("mor", version, more=LOGS)
    first = rows(0, 8, 1)
    table.upsert(marked(first, False) if marks else first)
    for what, begin, count, order in writes:
        if cold:
            table = lakefmt.open_table(table.client.store.url, options=dict(table.client.options))
        write(table, what, begin, count, order, marks=marks)
    check_metadata_table(table)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_an_upsert_reads_no_log_but_its_own_for_the_record_index(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("mor", 8, more=LOGS)
    table.upsert(rows(0, 20, 0))
    read: list[int] = []
    original = collect.read_log_rows

    def read_log_rows(store: object, file_slice: FileSlice, *rest: object, **named: object) -> object:
        read.append(len(file_slice.logs))
        return original(store, file_slice, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(collect, "read_log_rows", read_log_rows)
    for number in range(10):
        used = lakefmt.open_table(table.client.store.url, options=dict(table.client.options)) if cold else table
        used.upsert(rows(0, 6, number))
    assert set(read) == {1}
    assert len(read) <= 20
    check_metadata_table(table)


def revive(table: Table) -> None:
    """Delete a key, write others until the commit of the delete is archived, and write the key again."""
    table.upsert(rows(0, 20, 0))
    table.delete(rows(4, 5, 1).select(["id", "city"]))
    for number in range(7):
        table.upsert(rows(6, 9, 2 + number))
    table.upsert(rows(3, 6, 20))


def test_a_key_that_comes_back_after_its_delete_is_indexed_again() -> None:
    table = make("mor", 8, more=LOGS)
    revive(table)
    check_metadata_table(table)


def test_an_index_that_claims_every_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.metadata.observer.keys_in_file_group", lambda _, keys, *__: keys)
    table = make("mor", 8, more=LOGS)
    revive(table)
    with pytest.raises(AssertionError):
        check_metadata_table(table)
