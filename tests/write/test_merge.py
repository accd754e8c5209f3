"""What a merge takes and refuses, what it reads, and what its commit says; the rows that it leaves: test_merge_model."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import (
    CommitConflict,
    DuplicateKey,
    InvalidExpression,
    InvalidInputError,
    SchemaMismatch,
    UnsupportedFeature,
)
from lakefmt.testing.stores import CountingStore
from tests.concurrency.green_threads import MANY
from tests.kit import product_or_diagonal

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
NUMBERS = itertools.count()


def rows(*found: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA)


STORED = rows(("a", "sf", 1, 1), ("b", "sf", 1, 2), ("c", "oslo", 1, 3))


def make(stored: pa.Table = STORED, **how: Any) -> Table:
    how = {"record_key": "id", "partition_by": "city", **how}
    table = lakefmt.create_table(f"memory://merge-{next(NUMBERS)}", schema=stored.schema, **how)
    table.insert(stored)
    return table


def found(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.read().to_pylist()), key=str)


@product_or_diagonal(index=["simple", "bucket", "record"], table_type=["mor", "cow"], version=[6, 8, 9])
def test_one_commit_says_what_was_updated_deleted_and_inserted(index: str, table_type: str, version: int) -> None:
    table = make(index=index, table_type=table_type, table_version=version, ordering="ts")
    start = table.upsert(rows(("c", "oslo", 1, 3)))
    before = len(table.timeline.entries)
    source = rows(("a", "sf", 2, 10), ("b", "sf", 2, 0), ("d", "sf", 2, 4))
    seen = list[Any]()
    merge = table.merge(source).when_matched_delete(where="s.v = 0").when_matched().when_not_matched()
    result = merge.execute(commit_metadata={"job": "7"}, on_commit=seen.append)
    assert (result.num_updates, result.num_deletes) == (1, 1)
    assert result.num_inserts == 1 or (
        table_type == "mor" and index == "bucket"
    )  # a new key in a log may count as update
    assert len(table.timeline.entries) == before + 1
    assert [each.instant for each in seen] == [result.instant]
    assert found(table) == [("a", "sf", 2, 10), ("c", "oslo", 1, 3), ("d", "sf", 2, 4)]
    changes = table.changes(start.completion_time or start.instant)
    assert sorted(changes["op"].to_pylist()) == ["d", "i", "u"]
    assert table.check("full").is_clean


def test_without_a_row_to_change_nothing_is_committed_unless_there_is_something_to_remember() -> None:
    table = make()
    before = len(table.timeline.entries)
    merge = table.merge(rows(("z", "sf", 1, 1))).when_matched()
    assert merge.execute().instant is None
    assert len(table.timeline.entries) == before
    assert merge.execute(commit_metadata={"seen": "z"}).instant is not None
    assert found(table) == found(make())


def test_a_dry_run_changes_nothing_and_names_the_files() -> None:
    table = make()
    plan = table.merge(rows(("a", "sf", 2, 9))).when_matched().execute(dry_run=True)
    assert plan.instant is None
    assert "1 rows into 1 files" in str(plan)
    assert found(table) == found(make())


def test_what_is_refused_names_the_reason_and_changes_nothing() -> None:
    table = make()
    source = rows(("a", "sf", 2, 9), ("z", "sf", 2, 1))
    twice = rows(("a", "sf", 2, 9), ("a", "sf", 3, 1))
    new_twice = rows(("y", "sf", 2, 9), ("y", "sf", 3, 1))
    words = pa.table({"id": [1]})
    cases: list[tuple[Any, type[Exception], str]] = [
        (table.merge(source), InvalidInputError, "no clause"),
        (table.merge(source).when_matched({"w": "1"}), InvalidInputError, "no column 'w'"),
        (table.merge(source).when_matched({}), InvalidInputError, "sets no column"),
        (table.merge(source).when_matched({"v": "v + 1"}), InvalidExpression, "t.<column> is a column of the table"),
        (table.merge(source).when_not_matched({"id": "t.id"}), InvalidExpression, "s.<column> one of the source"),
        (table.merge(source).when_matched({"v": "2.5"}), SchemaMismatch, "'v'"),
        (table.merge(source).when_matched({"v": "s.v * 1000000000"}), SchemaMismatch, "'v'"),
        (table.merge(source).when_matched(where="t.v + 1"), InvalidExpression, "a condition is expected"),
        (table.merge(source, "t.id =").when_matched(), InvalidInputError, "not an SQL condition"),
        (table.merge(source, ["key"]).when_matched(), InvalidInputError, "the table has no column 'key'"),
        (table.merge(words).when_matched(), SchemaMismatch, "cannot be joined by t.id = s.id"),
        (table.merge(twice).when_matched(), DuplicateKey, "several source rows match"),
        (table.merge(new_twice).when_not_matched(), DuplicateKey, "'y'"),
        (table.merge(source, "t.id = s.id and t.v > s.v").when_not_matched(), DuplicateKey, "'a'"),
        (table.merge(source).when_not_matched({"v": "s.v"}), InvalidInputError, "null"),
    ]
    for merge, error, reason in cases:
        with pytest.raises(error, match=reason):
            merge.execute()
    with pytest.raises(InvalidInputError, match="either update= or delete"):
        table.merge(source).when_not_matched_by_source()
    assert found(table) == found(make())


def test_a_delete_by_several_source_rows_and_a_choice_by_condition_are_no_contradiction() -> None:
    table = make()
    source = rows(("a", "sf", 2, 9), ("a", "sf", 3, 1), ("b", "sf", 2, 5), ("b", "sf", 2, 6))
    table.merge(source).when_matched_delete(where="s.id = 'a'").when_matched(where="s.v = 6").execute()
    assert found(table) == [("b", "sf", 2, 6), ("c", "oslo", 1, 3)]


def test_values_of_every_kind_and_new_columns() -> None:
    table = make()
    source = pa.table({"id": ["a", "z"], "city": ["sf", "sf"], "note": ["x", "y"]})
    values = {"v": 7, "ts": pc.field("t", "ts") + 5, "city": pa.scalar("t.city")}
    table.merge(source).when_matched(values).when_not_matched().execute()
    assert found(table)[-2:] == [("c", "oslo", 1, 3, None), ("z", "sf", None, None, "y")]
    assert ("a", "t.city", 6, 7, None) in found(table)
    with pytest.raises(SchemaMismatch):
        table.merge(source.append_column("more", [[1, 2]])).when_matched().execute(schema_change="strict")
    table.merge([{"id": "a", "v": 1}]).when_matched({"v": "s.v", "note": "null"}).execute()


def test_a_key_made_of_several_columns_and_of_a_field_inside_a_struct() -> None:
    schema = pa.schema([("k", pa.struct([("x", pa.int64())])), ("day", pa.date32()), ("v", pa.int64())])
    stored = pa.table({"k": [{"x": 1}, {"x": 2}], "day": [0, 0], "v": [1, 2]}, schema=None)
    stored = stored.set_column(1, "day", stored["day"].cast(pa.int32()).cast(pa.date32()))
    table = lakefmt.create_table(f"memory://merge-{next(NUMBERS)}", schema=schema, record_key=["k.x", "day"])
    table.insert(stored)
    source = stored.set_column(2, "v", [[10, 20]]).slice(1)
    result = table.merge(source).when_matched({"v": "t.v + s.v"}).when_not_matched_by_source(delete=True).execute()
    assert (result.num_updates, result.num_deletes) == (1, 1)
    assert table.read()["v"].to_pylist() == [22]


def test_only_file_groups_that_may_match_are_read_and_rewritten() -> None:
    """A key's index names its files; partition columns among the equations, and values of other columns, leave out others."""
    store = MemoryStore(f"merge-{next(NUMBERS)}")
    lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", partition_by="city")
    table = Table(TableClient(store))
    for number in range(6):
        table.insert(rows((f"k{number}", f"city{number}", 1, number)), options={"hoodie.parquet.small.file.limit": 0})
    source = rows(("k3", "city3", 2, 3))
    for on, files in (
        ("id", {f"city=city{n}" for n in range(6)}),
        (["id", "city"], {"city=city3"}),
        ("t.v = s.v", None),
    ):
        counting = CountingStore(store)
        result = Table(TableClient(counting)).merge(source, on).when_matched().execute()
        assert [file.partition_path for file in result.files] == ["city=city3"]
        opened = {access.name.split("/")[0] for access in counting.log if access.name.endswith(".parquet")}
        assert files is None or opened <= files, on


def test_an_append_table_takes_new_rows_only() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    log = lakefmt.create_table(f"memory://merge-{next(NUMBERS)}", schema=schema, kind="append")
    log.append(pa.table({"id": [1, 2], "v": [1, 2]}))
    source = pa.table({"id": [2, 3], "v": [0, 3]})
    assert log.merge(source, "id").when_not_matched().execute().num_inserts == 1
    assert sorted(log.read()["id"].to_pylist()) == [1, 2, 3]
    with pytest.raises(UnsupportedFeature, match="append table"):
        log.merge(source, "id").when_matched_delete().execute()
    with pytest.raises(InvalidInputError, match="say by on="):
        log.merge(source).when_not_matched().execute()


def test_a_stream_is_held_up_to_the_setting_and_may_be_used_once() -> None:
    table = make()
    batches = [rows(("a", "sf", 2, 9)).to_batches()[0], rows(("d", "sf", 2, 9)).to_batches()[0]]
    small = {"lakefmt.merge.source.bytes": 1024}
    long = [rows(*[(f"n{n}", "sf", 1, n) for n in range(100)]).to_batches()[0]] * 3
    with pytest.raises(InvalidInputError, match=r"lakefmt\.merge\.source\.bytes"):
        table.merge(iter(long)).when_matched().execute(options=small)
    assert table.merge(iter(batches)).when_matched().when_not_matched().execute(options=small).num_inserts == 1


def test_beside_another_writer_it_begins_again_and_alone_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read has changed before the commit: with concurrency control the merge decides anew."""
    import lakefmt._core.write.merge as module

    for options, again in ((MANY, True), ({}, False)):
        table = make(options=options)
        decide, calls = module._Decision.decide, list[int]()

        def meanwhile(decision: Any, table: Table = table, decide: Any = decide, calls: list[int] = calls) -> Any:
            decided = decide(decision)
            calls.append(1)
            if len(calls) == 1:
                lakefmt.open_table(table.client.store.url, options=table.client.options).update("id = 'a'", {"v": 5})
            return decided

        monkeypatch.setattr(module._Decision, "decide", meanwhile)
        merge = table.merge(pa.table({"id": ["a"]})).when_matched({"v": "t.v * 10"})
        if again:
            merge.execute()
            assert ("a", "sf", 1, 50) in found(table)
            assert len(calls) == 2
        else:
            with pytest.raises(CommitConflict, match="do it again"):
                merge.execute()
            assert ("a", "sf", 1, 5) in found(table)
        monkeypatch.setattr(module._Decision, "decide", decide)


@pytest.mark.parametrize("on", [["x"], "t.x = s.x", ["id", "x"], "s.id = t.id and t.x = s.x"])
@pytest.mark.parametrize("reads_all", [False, True])
def test_columns_of_floats_are_joined_as_a_filter_compares_them(on: Any, reads_all: bool) -> None:
    """The zeros are equal and NaN equals nothing, whatever the other clauses are, and in whichever form it is asked."""
    nan = float("nan")
    stored = pa.table({"id": ["a", "b", "c", "d"], "x": [nan, 0.0, -0.0, None], "v": [1, 1, 1, 1]})
    table = lakefmt.create_table(f"memory://merge-floats-{next(NUMBERS)}", data=stored, record_key="id")
    table.insert(stored)
    source = pa.table({"id": ["a", "b"], "x": [nan, -0.0], "v": [9, 9]})
    merge = table.merge(source, on).when_matched({"v": "s.v"})
    if reads_all:
        merge = merge.when_not_matched_by_source(delete=True, where="false")
    merge.execute()
    changed = ["b"] if "id" in str(on) else ["b", "c"]
    assert sorted(table.read(filter="v = 9")["id"].to_pylist()) == changed


def test_a_record_key_of_floats_is_joined_by_its_identity() -> None:
    nan = float("nan")
    stored = pa.table({"id": [0.0, -0.0, nan], "v": [1, 2, 3]})
    table = lakefmt.create_table(f"memory://merge-floats-{next(NUMBERS)}", data=stored, record_key="id")
    table.insert(stored)
    table.merge(pa.table({"id": [-0.0, nan], "v": [7, 7]})).when_matched().when_not_matched().execute()
    assert sorted(map(str, table.read().to_pylist())) == [
        "{'id': -0.0, 'v': 7}",
        "{'id': 0.0, 'v': 1}",
        "{'id': nan, 'v': 7}",
    ]
