"""What a table makes of the events of its source: modes, deletes, columns, errors, positions."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.cdc.events import is_followed
from lakefmt._core.cdc.sink import TableSink
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import open_table
from lakefmt.cdc import (
    Border,
    CdcOptions,
    Follower,
    RowChanges,
    RowKind,
    SourceFinding,
    SourceName,
    SourceTable,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
    connector_options,
    follow,
)
from lakefmt.errors import (
    CommitConflict,
    InvalidInputError,
    PositionLost,
    SourceChanged,
    SourceRefused,
    SourceUnavailable,
    UnknownSetting,
)
from tests.cdc.scripted_source import ITEMS, ORDERS, Database, ScriptedSource
from tests.example_counts import examples

NUMBERS = itertools.count()
T = SourceName("s", "t")
NAMED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
QUICK: dict[str, Any] = {"commit_interval": 0, "reconnect_interval": 0.0, "settings": {"lakefmt.durability": "none"}}


def changes(
    kinds: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema = NAMED, name: SourceName = T, **more: Any
) -> RowChanges:
    """Return changes; `kinds` has the short forms of their kinds."""
    codes = [RowKind.parse(text).value for text in kinds.split()]
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return RowChanges(name, pa.Table.from_pylist(list(rows), schema=nullable), pa.array(codes, pa.int8()), **more)


class Events:
    """A source that hands out some events; positions are numbers of borders."""

    identity = "events://tests"

    def __init__(self, events: Sequence[Any], tables: Sequence[SourceTable] = ()) -> None:
        self.given, self.listed = events, tables
        self.began_at: dict[SourceName, Any] | None = None

    def preflight(self) -> Sequence[SourceFinding]:
        return ()

    def tables(self) -> Sequence[SourceTable]:
        return self.listed

    def latest(self) -> Any:
        return 99

    def confirm(self, positions: Mapping[SourceName, Any]) -> None:
        pass

    def lag(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        pass

    def events(self, positions: Mapping[SourceName, Any], *, logs: bool, until_now: bool) -> Iterator[Any]:
        self.began_at = dict(positions)
        for number, event in enumerate(self.given):
            yield Border(lambda name, n=number: n) if event == "border" else event


def run(
    *events: Any, schema: pa.Schema = NAMED, keys: tuple[str, ...] = ("id",), base: str = "", **options: Any
) -> str:
    """Let a table take events, and return its path."""
    base = base or f"memory://follow-{next(NUMBERS)}"
    tables, listed = options.pop("tables", {}), options.pop("listed", True)
    table = SourceTable(T, schema, keys)
    source = Events([TableChanged(table), *events, "border"], [table] if listed else [])
    Follower(lambda: source, base, tables, CdcOptions(**{**QUICK, **options})).run()
    return f"{base}/s/t"


def rows(path: str, *columns: str) -> list[dict[str, Any]]:
    table = open_table(path).read(columns=list(columns) or None)
    return sorted(table.to_pylist(), key=lambda row: str(list(row.values())))


GUIDE = (
    changes("+I +I +I", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]),
    "border",
    changes("-U +U", [{"id": 1, "name": "a"}, {"id": 1, "name": "A"}]),
)


def test_the_connector_guide_gets_its_mirror() -> None:
    assert rows(run(*GUIDE)) == [{"id": 1, "name": "A"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]


def test_the_connector_guide_gets_its_log() -> None:
    options, notes = connector_options(
        {"connector": "igs-dynamic-table-append-only", "mapping.operation.type.to": "op", "workspace": "w"}
    )
    path = run(*GUIDE, mode=options.mode, operation_column=options.operation_column)
    assert rows(path, "id", "name", "op") == [
        {"id": 1, "name": "A", "op": "UPDATE_AFTER"},
        {"id": 1, "name": "a", "op": "INSERT"},
        {"id": 1, "name": "a", "op": "UPDATE_BEFORE"},
        {"id": 2, "name": "b", "op": "INSERT"},
        {"id": 3, "name": "c", "op": "INSERT"},
    ]
    assert notes == ("workspace has no effect: there is none",)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"connector": "kafka"}, "connector='kafka' is not valid"),
        ({"mutation.buffer.space": "much"}, "mutation.buffer.space='much' is not valid"),
        ({"sink.speed": "1"}, "'sink.speed' is no option of the connectors"),
        ({"error.type.handler": "x.Other"}, "expected a TerminateErrorTypeHandler"),
    ],
)
def test_an_option_of_the_guide_that_means_nothing_is_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(UnknownSetting, match=error):
        connector_options(given)


def test_a_key_only_delete_meets_required_columns() -> None:
    path = run(changes("+I", [{"id": 1, "name": "a"}]), "border", changes("-D", [{"id": 1}]))
    assert rows(path) == []


def test_a_delete_of_a_row_that_is_not_there_does_nothing() -> None:
    assert rows(run(changes("-D", [{"id": 1}]))) == []


@pytest.mark.parametrize("kinds", ["-D +I", "-D -D +I"])
def test_a_row_that_is_deleted_and_comes_back_in_one_transaction_is_there(kinds: str) -> None:
    images = [{"id": 1, "name": "a"}] * (len(kinds.split()) - 1) + [{"id": 1, "name": "b"}]
    path = run(changes("+I", [{"id": 1, "name": "a"}]), "border", changes(kinds, images))
    assert rows(path) == [{"id": 1, "name": "b"}]


def test_a_key_update_is_a_delete_and_an_insert() -> None:
    path = run(
        changes("+I", [{"id": 1, "name": "a"}]),
        "border",
        changes("-U +U", [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]),
    )
    assert rows(path) == [{"id": 2, "name": "a"}]
    assert open_table(path).read().num_rows == 1


def test_a_partition_move_is_one_commit() -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    path = run(
        changes("+I", [{"id": 1, "name": "a"}]),
        "border",
        changes("-U +U", [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]),
        base=base,
        tables={"s.*": {"partition_by": "name"}},
    )
    table = open_table(path)
    assert rows(path) == [{"id": 1, "name": "b"}]
    assert len(table.client.load().timeline.commits) == 2


@pytest.mark.parametrize("index", ["bloom", "global_bloom"])
def test_an_update_without_the_row_before_leaves_no_row_in_another_partition(index: str) -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    schema = pa.schema([NAMED.field("id"), ("city", pa.string()), ("v", pa.int64())])
    how: dict[str, Any] = {"base": base, "schema": schema, "index": index, "tables": {"s.t": {"partition_by": "city"}}}
    path = run(changes("+I", [{"id": 1, "city": "sf", "v": 1}], schema), **how)
    update = changes("+U", [{"id": 1, "city": "oslo", "v": 2}], schema)
    if index == "bloom":
        with pytest.raises(SourceChanged, match="REPLICA IDENTITY FULL"):
            run(update, **how)
        assert rows(path) == [{"id": 1, "city": "sf", "v": 1}]
    else:
        assert rows(run(update, **how)) == [{"id": 1, "city": "oslo", "v": 2}]


def test_a_key_update_without_a_large_value_keeps_it() -> None:
    schema = pa.schema([*NAMED, ("big", pa.string())])
    sent = pa.array([None, json.dumps(["id", "name"])])
    path = run(
        changes("+I", [{"id": 1, "name": "a", "big": "x" * 9}], schema),
        "border",
        changes("-U +U", [{"id": 1}, {"id": 2, "name": "b"}], schema, sent=sent),
        schema=schema,
    )
    assert rows(path) == [{"id": 2, "name": "b", "big": "x" * 9}]


def test_many_key_updates_without_a_large_value_cost_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = NAMED.append(pa.field("big", pa.string()))
    count = 300
    there = [{"id": key, "name": "a", "big": f"big {key}"} for key in range(count)]
    steps, sent = list[tuple[str, dict[str, Any]]](), list[str | None]()
    for key in range(count):  # 0 → 1000 → 2000, and a row of its own between the two
        for kind, new, part in (
            ("-U", key, False),
            ("+U", 1000 + key, True),
            ("+I", 3000 + key, False),
            ("-U", 1000 + key, False),
            ("+U", 2000 + key, True),
        ):
            steps.append((kind, {"id": new, "name": kind, "big": None if part or kind == "-U" else "own"}))
            sent.append('["id","name"]' if part else None)
    moves = changes(" ".join(kind for kind, _ in steps), [row for _, row in steps], schema, sent=pa.array(sent))
    reads = list[int]()
    images = TableSink._images
    monkeypatch.setattr(TableSink, "_images", lambda self, keys: reads.append(len(keys)) or images(self, keys))
    path = run(changes(" ".join(["+I"] * count), there, schema), "border", moves, schema=schema)
    assert len(reads) == 1
    found = {row["id"]: row["big"] for row in rows(path)}
    assert found == {
        **{2000 + key: f"big {key}" for key in range(count)},
        **{3000 + key: "own" for key in range(count)},
    }


def test_soft_deletes_keep_the_row_and_a_new_insert_clears_the_mark() -> None:
    at = pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    base = f"memory://follow-{next(NUMBERS)}"
    path = run(
        changes("+I +I", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
        "border",
        changes("-D", [{"id": 1}], times=at),
        changes("-D", [{"id": 7}], times=at),
        base=base,
        delete_mode="soft",
    )
    assert rows(path) == [
        {"id": 1, "name": "a", "_deleted_at": at[0].as_py()},
        {"id": 2, "name": "b", "_deleted_at": None},
    ]
    run(changes("+I", [{"id": 1, "name": "again"}]), base=base, delete_mode="soft")
    assert rows(path)[0] == {"id": 1, "name": "again", "_deleted_at": None}


class SlowTime(SystemTimeSource):
    """A clock that stands still but where it is told."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("caught_up", "expected"), [(False, 5), (True, 20)])
def test_a_follower_that_is_behind_reads_for_as_long_as_its_last_commit_took(
    caught_up: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, commits, commit = SlowTime(), list[float](), TableSink.commit

    def slow_commit(sink: TableSink) -> Any:
        commits.append(clock.now)
        clock.now += 5.0
        return commit(sink)

    class Ticking(Events):
        def events(self, positions: Mapping[SourceName, Any], *, logs: bool, until_now: bool) -> Iterator[Any]:
            yield TableChanged(SourceTable(T, NAMED, ("id",)))
            for number in range(20):
                clock.now += 1.0
                yield changes("+I", [{"id": number, "name": "a"}])
                yield Border(lambda name, n=number: n, caught_up=caught_up)

    monkeypatch.setattr(TableSink, "commit", slow_commit)
    options = CdcOptions(**{**QUICK, "commit_interval": 1})
    base = f"memory://follow-{next(NUMBERS)}"
    Follower(lambda: Ticking(()), base, {}, options, time_source=clock).run()
    assert len(commits) == expected
    assert len(rows(f"{base}/s/t")) == 20


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_with_both_ways_of_deleting_a_row_is_marked_and_goes_when_its_time_is_over(table_type: str) -> None:
    now = datetime.now(UTC)
    times = pa.array(
        [now - timedelta(days=8), now - timedelta(days=6), now - timedelta(days=8)], pa.timestamp("us", "UTC")
    )
    base = f"memory://follow-{next(NUMBERS)}"
    options: dict[str, Any] = {"base": base, "delete_mode": "both", "table_type": table_type}
    path = run(
        changes("+I +I +I +I", [{"id": number, "name": "a"} for number in (1, 2, 3, 4)]),
        "border",
        changes("-D -D -D", [{"id": 1}, {"id": 2}, {"id": 3}], times=times),
        changes("+I", [{"id": 3, "name": "again"}]),  # a row that came again stays, whenever it was deleted
        **options,
    )
    assert [row["id"] for row in rows(path)] == [2, 3, 4]
    assert {row["id"]: row["_deleted_at"] for row in rows(path)} == {2: times[1].as_py(), 3: None, 4: None}
    run(changes("-D", [{"id": 1}], times=times[:1]), **options)  # deleted once more, as after a crash
    run(changes("+I", [{"id": 9, "name": "a"}]), **options, deleted_retention=float("inf"))
    assert [row["id"] for row in rows(path)] == [2, 3, 4, 9]
    run(changes("+I", [{"id": 2, "name": "back"}]), **options, deleted_retention=0)
    assert [(row["id"], row["name"]) for row in rows(path)] == [(2, "back"), (3, "again"), (4, "a"), (9, "a")]
    assert all(row["_deleted_at"] is None for row in rows(path))


def test_a_row_that_another_writer_changes_while_marked_rows_go_is_no_end_of_the_follower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def conflicts(*_: Any, **__: Any) -> None:
        raise CommitConflict("another writer was faster")

    at = pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    events = (changes("+I", [{"id": 1, "name": "a"}]), changes("-D", [{"id": 1}], times=at))
    base = f"memory://follow-{next(NUMBERS)}"
    with monkeypatch.context() as patch:
        patch.setattr("lakefmt._core.table.Table.delete", conflicts)
        path = run(*events, base=base, delete_mode="both")
    assert [row["id"] for row in rows(path)] == [1]
    assert "another writer was faster" in caplog.text
    run(base=base, delete_mode="both")
    assert rows(path) == []


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_late_change_loses_where_the_table_has_an_ordering(table_type: str) -> None:
    schema = pa.schema([NAMED.field("id"), ("v", pa.string()), ("ts", pa.int64())])
    path = run(
        changes("+I +I", [{"id": 1, "v": "new", "ts": 5}, {"id": 2, "v": "b", "ts": 5}], schema),
        "border",
        changes("-U +U", [{"id": 1, "v": "older", "ts": 2}, {"id": 1, "v": "late", "ts": 3}], schema),
        changes("-U +U", [{"id": 2, "v": "b", "ts": 5}, {"id": 2, "v": "c", "ts": 6}], schema),
        "border",
        changes("-D", [{"id": 2}], schema),
        schema=schema,
        tables={"s.t": {"ordering": "ts"}},
        table_type=table_type,
    )
    assert rows(path) == [{"id": 1, "v": "new", "ts": 5}]


def changed(*fields: Any) -> TableChanged:
    return TableChanged(SourceTable(T, pa.schema([NAMED.field("id"), *fields]), ("id",)))


def test_columns_that_are_added_widened_and_dropped_are_followed() -> None:
    path = run(
        changes("+I", [{"id": 1, "v": 1}], pa.schema([NAMED.field("id"), ("v", pa.int32())])),
        "border",
        changed(("v", pa.int64()), ("w", pa.string())),
        changes(
            "+I",
            [{"id": 2, "v": 2**40, "w": "x"}],
            pa.schema([("id", pa.int64()), ("v", pa.int64()), ("w", pa.string())]),
        ),
        "border",
        changed(("w", pa.string())),
        changes("+I", [{"id": 3, "w": "y"}], pa.schema([("id", pa.int64()), ("w", pa.string())])),
        schema=pa.schema([NAMED.field("id"), ("v", pa.int32())]),
    )
    assert rows(path) == [
        {"id": 1, "v": 1, "w": None},
        {"id": 2, "v": 2**40, "w": "x"},
        {"id": 3, "v": None, "w": "y"},
    ]


def test_a_new_column_has_its_default_in_older_rows_and_a_log_leaves_them() -> None:
    columns = pa.schema([*NAMED, ("v", pa.int64())])
    added = TableChanged(SourceTable(T, columns, ("id",)), filled={"v": pa.scalar(7)})
    events = (
        changes("+I", [{"id": 1, "name": "a"}]),
        "border",
        changes("+I", [{"id": 2, "name": "b"}]),
        added,
        changes("+I", [{"id": 3, "name": "c", "v": None}], columns),
    )
    assert [row["v"] for row in rows(run(*events), "id", "v")] == [7, 7, None]
    assert [row["v"] for row in rows(run(*events, mode="append_log"), "id", "v")] == [None, None, None]


@pytest.mark.parametrize("comes", ["once", "again"])
def test_a_renamed_column_keeps_its_values_where_the_source_tells(comes: str) -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    columns = pa.schema([NAMED.field("id"), ("label", pa.string())])
    renamed = TableChanged(SourceTable(T, columns, ("id",)), renamed={"name": "label"})
    path = run(changes("+I", [{"id": 1, "name": "a"}]), "border", renamed, base=base)
    if comes == "again":
        run(renamed, changes("+I", [{"id": 2, "label": "b"}], columns), schema=columns, base=base)
    assert rows(path)[0] == {"id": 1, "label": "a"}
    added = run(changes("+I", [{"id": 1, "name": "a"}]), "border", renamed, on_column_renamed="add")
    assert rows(added) == [{"id": 1, "name": "a", "label": None}]


NAMES = ("a", "b", "c")


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from("abcde"), min_size=3, max_size=3, unique=True), st.booleans())
def test_columns_that_are_renamed_at_once_keep_their_values_in_whatever_order_they_are_told(
    later: list[str], again: bool
) -> None:
    """One may get the name that another one had. Where they only change their names among each other, all rows are read again."""
    kept = pa.schema([NAMED.field("id"), *((name, pa.string()) for name in NAMES)])
    columns = pa.schema([NAMED.field("id"), *((name, pa.string()) for name in later)])
    renamed = {old: new for old, new in zip(NAMES, later, strict=True) if old != new}
    told = TableChanged(SourceTable(T, columns, ("id",)), renamed=renamed)
    base = f"memory://follow-{next(NUMBERS)}"
    path = run(changes("+I", [{"id": 1, **{name: name for name in NAMES}}], kept), "border", base=base, schema=kept)
    # What is not renamed by way of a free name goes round in a circle.
    waiting = dict(renamed)
    while free := [old for old, new in waiting.items() if new not in {*NAMES} - {*renamed} | {*waiting}]:
        waiting = {old: new for old, new in waiting.items() if old not in free}
    events = [told, changes("+I", [{"id": 2, **dict.fromkeys(later, "new")}], columns)]
    if waiting:
        after = [{"id": 1, **dict(zip(later, NAMES, strict=True))}, {"id": 2, **dict.fromkeys(later, "new")}]
        table = SourceTable(T, columns, ("id",))
        now = [TableChanged(table), changes("+I +I", after, columns), TableLoaded(T), "border"]
        # Rows are read again as they are now; a log in which the names were exchanged does not come any more.
        sources = iter([Events([TableChanged(SourceTable(T, kept, ("id",))), *events], [table]), Events(now, [table])])
        Follower(lambda: next(sources), base, {}, CdcOptions(**QUICK)).run()
        assert rows(path, "id", *later) == after
        return
    run(*events, base=base, schema=kept)
    if again:
        run(told, base=base, schema=columns)
    expected = [{"id": 1, **dict(zip(later, NAMES, strict=True))}, {"id": 2, **dict.fromkeys(later, "new")}]
    assert rows(path, "id", *later) == expected


def test_a_renamed_key_ends_the_follower() -> None:
    other = TableChanged(
        SourceTable(T, pa.schema([("key", pa.int64()), NAMED.field("name")]), ("key",)), renamed={"id": "key"}
    )
    with pytest.raises(SourceChanged, match="id"):
        run(changes("+I", [{"id": 1, "name": "a"}]), "border", other)


def test_a_dropped_column_goes_where_it_is_to() -> None:
    path = run(changes("+I", [{"id": 1, "name": "a"}]), "border", changed(), on_column_dropped="drop")
    assert rows(path) == [{"id": 1}]


def test_a_type_that_no_type_holds_ends_the_follower_and_both_are_named() -> None:
    with pytest.raises(SourceChanged, match=r"column 'name' was string and is int64"):
        run(changes("+I", [{"id": 1, "name": "a"}]), "border", changed(("name", pa.int64())))


def test_a_type_that_no_type_holds_gets_a_column_of_texts() -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    schema = pa.schema([("id", pa.int64()), ("name", pa.int64())])
    path = run(
        changes("+I", [{"id": 1, "name": "a"}]),
        "border",
        changed(("name", pa.int64())),
        changes("+I", [{"id": 2, "name": 5}], schema),
        base=base,
        on_type_changed="new_column",
    )
    run(changes("+I", [{"id": 3, "name": 6}], schema), schema=schema, base=base, on_type_changed="new_column")
    assert rows(path) == [
        {"id": 1, "name": "a", "name__v2": None},
        {"id": 2, "name": None, "name__v2": "5"},
        {"id": 3, "name": None, "name__v2": "6"},
    ]


def test_another_key_ends_the_follower() -> None:
    other = TableChanged(SourceTable(T, NAMED, ("name",)))
    with pytest.raises(SourceChanged, match=r"the key was \(id\) and is \(name\)"):
        run(changes("+I", [{"id": 1, "name": "a"}]), "border", other)


def test_a_table_without_a_key_needs_one_or_is_a_log() -> None:
    with pytest.raises(InvalidInputError, match="has no primary key"):
        run(changes("+I", [{"id": 1, "name": "a"}]), keys=())
    path = run(changes("+I", [{"id": 1, "name": "a"}]), keys=(), tables={"s.t": {"record_key": "id"}})
    assert rows(path) == [{"id": 1, "name": "a"}]
    assert rows(run(changes("+I", [{"id": 1, "name": "a"}]), keys=(), mode="append_log"), "id") == [{"id": 1}]


def test_columns_get_other_names() -> None:
    path = run(changes("+I", [{"id": 1, "name": "a"}]), tables={"s.t": {"rename": {"name": "label", "id": "key"}}})
    assert rows(path) == [{"key": 1, "label": "a"}]


def test_a_truncate_ends_the_follower_or_empties_the_table_or_does_nothing() -> None:
    events = (
        changes("+I", [{"id": 1, "name": "a"}]),
        "border",
        TableTruncated(T),
        changes("+I", [{"id": 2, "name": "b"}]),
    )
    with pytest.raises(SourceChanged, match=r"s\.t was truncated"):
        run(*events)
    assert rows(run(*events, on_truncate="apply"), "id") == [{"id": 2}]
    assert rows(run(*events, on_truncate="ignore"), "id") == [{"id": 1}, {"id": 2}]
    soft = rows(run(*events, on_truncate="apply", delete_mode="soft"), "id", "_deleted_at")
    assert [row["_deleted_at"] is None for row in soft] == [False, True]


def test_a_truncate_inside_a_transaction_that_comes_again_is_the_same() -> None:
    schema = pa.schema([*NAMED, ("big", pa.string())])
    moved = changes(
        "-U +U",
        [{"id": 1}, {"id": 2, "name": "b"}],
        schema,
        sent=pa.array([None, json.dumps(["id", "name"])]),
    )
    base = f"memory://follow-{next(NUMBERS)}"
    options = {"schema": schema, "base": base, "on_truncate": "apply"}
    path = run(changes("+I", [{"id": 1, "name": "a", "big": "x"}], schema), **options)

    class Dying(Events):
        def events(self, positions: Mapping[SourceName, Any], *, logs: bool, until_now: bool) -> Iterator[Any]:
            yield from super().events(positions, logs=logs, until_now=until_now)
            raise SourceUnavailable("the connection is lost")

    transaction = [TableChanged(SourceTable(T, schema, ("id",))), moved, TableTruncated(T)]
    died = CdcOptions(**QUICK, on_truncate="apply", reconnect_attempts=0)
    with pytest.raises(SourceUnavailable):
        Follower(lambda: Dying(transaction), base, {}, died).run()
    run(moved, TableTruncated(T), changes("+I", [{"id": 3, "name": "c", "big": "y"}], schema), **options)
    assert rows(path, "id") == [{"id": 3}]


def test_a_table_that_is_gone_stays_here_or_ends_the_follower() -> None:
    events = (changes("+I", [{"id": 1, "name": "a"}]), "border", TableGone(T), changes("+I", [{"id": 2, "name": "b"}]))
    assert rows(run(*events), "id") == [{"id": 1}]
    with pytest.raises(SourceChanged, match=r"s\.t was dropped"):
        run(*events, on_table_gone="fail")


BAD = changes(
    "+I +I +I +I",
    [{"id": 1, "name": "a"}, {"id": None, "name": "b"}, {"id": 3, "name": "c"}, {"id": None, "name": "d"}],
)


def test_a_row_that_cannot_be_stored_ends_the_follower() -> None:
    with pytest.raises(InvalidInputError, match="id"):
        run(BAD)


def test_a_row_that_cannot_be_stored_goes_to_the_dead_letters_alone() -> None:
    path = run(BAD, error_handler="tolerate", dead_letters="rejected")
    assert rows(path, "id") == [{"id": 1}, {"id": 3}]
    store = open_table(path).client.store
    letters = [found.name for found in store.list(".hoodie/.lakefmt/dead-letters/rejected")]
    found = pa.concat_tables([pa.ipc.open_stream(store.read(name)).read_all() for name in letters])
    assert sorted(found["name"].to_pylist()) == ["b", "d"]
    assert all(found["_error"].is_valid().to_pylist())


def test_too_many_rejected_rows_end_the_follower_all_the_same() -> None:
    with pytest.raises(InvalidInputError, match="2 of 4 rows cannot be stored"):
        run(BAD, error_handler="tolerate", dead_letters="rejected", max_error_rows=1)


def test_losing_rejected_rows_has_to_be_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="needs dead_letters"):
        CdcOptions(error_handler="tolerate")
    assert rows(run(BAD, error_handler="tolerate", lose_rejected_rows=True), "id") == [{"id": 1}, {"id": 3}]


def test_a_log_without_the_operation_refuses_deletes_unless_told() -> None:
    events = (*GUIDE, "border", changes("-D", [{"id": 2, "name": "b"}]))
    with pytest.raises(InvalidInputError, match="cannot tell a deleted row"):
        run(*events, mode="append_log", operation_column=None)
    path = run(*GUIDE, mode="append_log", operation_column=None)
    assert len(rows(path)) == 4
    assert len(rows(run(*events, mode="append_log", operation_column=None, log_without_operation=True))) == 6


def test_a_column_of_the_log_must_not_be_one_of_the_source() -> None:
    with pytest.raises(InvalidInputError, match="has a column 'name' itself"):
        run(*GUIDE, mode="append_log", operation_column="name")


def test_a_source_begins_where_the_newest_commit_is_whoever_wrote_since() -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    path = run(*GUIDE, base=base)
    table = open_table(path)
    for number in range(30):
        table.upsert(pa.table({"id": [100 + number], "name": ["other"]}))
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    source = Events(["border"], [SourceTable(T, NAMED, ("id",))])
    Follower(lambda: source, base, {}, CdcOptions(**QUICK)).run()
    assert source.began_at == {T: 4}


def test_two_followers_of_one_table_have_positions_of_their_own() -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    run(*GUIDE, base=base, name="first")
    source = Events(["border"], [SourceTable(T, NAMED, ("id",))])
    Follower(lambda: source, base, {}, CdcOptions(**QUICK, name="second")).run()
    assert source.began_at == {}


def test_a_table_without_changes_commits_the_position_alone() -> None:
    base = f"memory://follow-{next(NUMBERS)}"
    path = run(*GUIDE, base=base)
    before = open_table(path).read()
    source = Events(["border", "border", "border"], [SourceTable(T, NAMED, ("id",))])
    Follower(lambda: source, base, {}, CdcOptions(**QUICK)).run()
    again = Events(["border"], [SourceTable(T, NAMED, ("id",))])
    Follower(lambda: again, base, {}, CdcOptions(**QUICK)).run()
    assert again.began_at == {T: 2}
    assert open_table(path).read().equals(before)


def test_a_source_that_would_lose_changes_is_refused_with_what_mends_it(caplog: pytest.LogCaptureFixture) -> None:
    findings = (
        SourceFinding("binlog_format is MIXED", "SET GLOBAL binlog_format = ROW"),
        SourceFinding("foreign keys cascade", stops=False),
    )
    source = ScriptedSource(Database(), findings=findings)
    with caplog.at_level(logging.WARNING, "lakefmt.cdc"), pytest.raises(SourceRefused) as error:
        follow(lambda: source, f"memory://follow-{next(NUMBERS)}")
    assert str(error.value) == "binlog_format is MIXED (SET GLOBAL binlog_format = ROW)"
    assert "foreign keys cascade" in caplog.text


def test_a_lost_connection_is_made_again_and_nothing_is_lost() -> None:
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    database.commit([("put", ORDERS, key, key) for key in range(5)])
    sources = iter([ScriptedSource(database, lost_after=number) for number in (0, 3, 5)])
    progress = Follower(lambda: next(sources, ScriptedSource(database)), base, {}, CdcOptions(**QUICK)).run(
        until_now=True
    )
    assert rows(f"{base}/shop/orders", "id") == [{"id": key} for key in range(5)]
    assert progress.reconnects == 3


def test_after_too_many_attempts_the_error_is_raised() -> None:
    sources = ScriptedSource(Database(), lost_after=0)
    with pytest.raises(SourceUnavailable):
        Follower(lambda: sources, "memory://never", {}, CdcOptions(**QUICK, reconnect_attempts=2)).run()


def lost(**options: Any) -> tuple[Database, str]:
    """Follow a database, and let it forget what comes next: a row was deleted, another one changed."""
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    database.commit([("put", ORDERS, key, key) for key in range(5)])
    Follower(lambda: ScriptedSource(database), base, {}, CdcOptions(**QUICK)).run(until_now=True)
    database.commit([("delete", ORDERS, 1), ("put", ORDERS, 2, 20)])
    database.purged = len(database.log)
    Follower(lambda: ScriptedSource(database), base, {}, CdcOptions(**QUICK, **options)).run(until_now=True)
    return database, base


def test_a_lost_position_ends_the_follower() -> None:
    with pytest.raises(PositionLost):
        lost()


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_lost_position_can_begin_again_and_rows_that_are_gone_go(table_type: str) -> None:
    database, base = lost(on_position_lost="resnapshot", table_type=table_type)
    assert rows(f"{base}/shop/orders", "id", "v") == [
        {"id": key, "v": row["v"]} for key, row in sorted(database.tables[ORDERS].items())
    ]
    database.commit([("put", ORDERS, 9, 9)])
    Follower(lambda: ScriptedSource(database), base, {}, CdcOptions(**QUICK)).run(until_now=True)
    assert {"id": 9} in rows(f"{base}/shop/orders", "id")


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_rows_that_are_read_again_stay_when_their_event_time_is_late(table_type: str, deletes: str) -> None:
    """The stored row wins, as against any late change; it is not taken for one that the source has not any more."""
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    database.commit([("put", ORDERS, key, 10 + key) for key in range(4)])
    for how in ({}, {"on_position_lost": "resnapshot"}):
        options = CdcOptions(**QUICK, table_type=table_type, delete_mode=deletes, **how)
        tables = {"shop.orders": {"ordering": "v"}}
        Follower(lambda: ScriptedSource(database), base, tables, options).run(until_now=True)
        database.commit(
            [("delete", ORDERS, 1), ("put", ORDERS, 2, 3), ("put", ORDERS, 3, None), ("put", ORDERS, 0, 30)]
        )
        database.purged = len(database.log)
    alive = "_deleted_at is null" if deletes == "soft" else None
    found = open_table(f"{base}/shop/orders").read(["id", "v"], filter=alive).sort_by("id")
    assert found.to_pylist() == [{"id": 0, "v": 30}, {"id": 2, "v": 12}, {"id": 3, "v": 13}]


def test_rows_go_that_are_not_read_again_in_whatever_order_their_commits_were_requested() -> None:
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    database.commit([("put", ORDERS, 1, 1)])
    Follower(lambda: ScriptedSource(database), base, {}, CdcOptions(**QUICK)).run(until_now=True)
    many = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    slow, quick = (open_table(f"{base}/shop/orders", options=many) for _ in range(2))
    gone = pa.Table.from_pylist([{"id": 7, "v": 7}, {"id": 8, "v": 8}], schema=slow.schema)

    def given() -> Iterator[pa.RecordBatch]:
        yield from gone.slice(0, 1).to_batches()
        quick.insert(gone.slice(1))

    slow.bulk_insert(pa.RecordBatchReader.from_batches(slow.schema, given()))
    database.purged = len(database.log) + 1
    database.commit([("put", ORDERS, 2, 2)])
    options = CdcOptions(**QUICK, on_position_lost="resnapshot")
    Follower(lambda: ScriptedSource(database), base, {}, options).run(until_now=True)
    assert rows(f"{base}/shop/orders", "id") == [{"id": 1}, {"id": 2}]


def test_a_follower_that_dies_while_it_begins_again_goes_on_with_it() -> None:
    for number in range(1, 9):
        database, base = Database(), f"memory://follow-{next(NUMBERS)}"
        database.commit([("put", ORDERS, key, key) for key in range(5)])
        Follower(lambda d=database: ScriptedSource(d), base, {}, CdcOptions(**QUICK)).run(until_now=True)
        database.commit([("delete", ORDERS, 1), ("put", ORDERS, 2, 20)])
        database.purged = len(database.log)
        options = CdcOptions(**QUICK, on_position_lost="resnapshot", reconnect_attempts=0)
        source = ScriptedSource(database, lost_after=number)
        try:
            Follower(lambda s=source: s, base, {}, options).run(until_now=True)
        except SourceUnavailable:
            Follower(lambda d=database: ScriptedSource(d), base, {}, options).run(until_now=True)
        assert rows(f"{base}/shop/orders", "id") == [{"id": key} for key in sorted(database.tables[ORDERS])], number


def test_a_lost_position_can_be_skipped() -> None:
    database, base = lost(on_position_lost="latest")
    assert rows(f"{base}/shop/orders", "id", "v")[1:3] == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    database.commit([("put", ITEMS, 9, 9)])
    Follower(lambda: ScriptedSource(database), base, {}, CdcOptions(**QUICK)).run(until_now=True)
    assert rows(f"{base}/shop/items", "id") == [{"id": 9}]


def test_tables_lie_where_they_are_told() -> None:
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    database.commit([("put", ORDERS, 1, 1), ("put", ITEMS, 1, 1)])
    tables = {"shop.orders": f"{base}/mine", "shop.*": f"{base}/all/{{table}}"}
    follow(lambda: ScriptedSource(database), tables=tables, until_now=True, **QUICK)
    assert rows(f"{base}/mine", "id") == rows(f"{base}/all/items", "id") == [{"id": 1}]
    with pytest.raises(InvalidInputError, match="has no path"):
        follow(lambda: ScriptedSource(database), until_now=True, **QUICK)


def test_progress_counts_by_kind_and_names_the_lag() -> None:
    database, base = Database(), f"memory://follow-{next(NUMBERS)}"
    seen = []
    follow(lambda: ScriptedSource(database), base, until_now=True, on_commit=seen.append, **QUICK)
    database.commit([("put", ORDERS, 1, 1), ("put", ORDERS, 1, 2), ("delete", ORDERS, 1)])
    progress = follow(lambda: ScriptedSource(database), base, until_now=True, on_commit=seen.append, **QUICK)
    numbers = progress.as_dict()
    assert (numbers["events.insert"], numbers["events.update_after"], numbers["events.delete"]) == (1, 1, 1)
    assert numbers["currentFetchEventTimeLag"] == 0.0
    assert progress.tables["shop.orders"].position == {"log": 1}
    assert len(seen) >= 2


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInputError) as error:
        follow("mysql://root:geheim@localhost/shop", "memory://x")
    assert "geheim" not in str(error.value)


def test_the_table_is_hudis_table() -> None:
    table = lakefmt.open_table(run(*GUIDE))
    assert table.client.load().config.table_type.value == "MERGE_ON_READ"


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        (("shop", "orders"), "shop.*", True),
        (("shop", "orders"), "*.orders", True),
        (("shop", "orders"), "s*s", False),
        (("shop", "Orders"), "shop.orders", False),
        (("shop.eu", "orders"), "shop.*", False),
        (("shop.eu", "orders"), "shop.eu.orders", True),
        (("shop.eu", "orders"), "shop.e*.orders", True),
        (("shop", "a.b"), "shop.a.b", True),
        (("shop", "a.b"), "shop.*", True),
        (("shop", "a[1]"), "shop.a[1]", True),
        (("shop", "a1"), "shop.a[1]", True),
        (("shop", "a*"), "shop.a*", True),
        (("shop", "orders"), "", False),
    ],
)
def test_a_pattern_names_the_schema_and_the_table_each(name: tuple[str, str], pattern: str, matches: bool) -> None:
    found = SourceName(*name)
    assert is_followed(found, [pattern]) is matches
    assert is_followed(found, ["*", f"!{pattern}"]) is not matches


@pytest.mark.parametrize("path", ["memory://one-{n}", "memory://one-{n}/{{table}}"])
def test_two_tables_of_the_source_are_never_one_table_here(path: str) -> None:
    where = path.format(n=next(NUMBERS))
    tables = [SourceTable(SourceName(schema, "t"), NAMED, ("id",)) for schema in ("eu", "us")]
    events = [
        step
        for number, table in enumerate(tables)
        for step in (TableChanged(table), changes("+I", [{"id": number, "name": "a"}], name=table.name))
    ]
    with pytest.raises(InvalidInputError, match=r"eu\.t and us\.t would be one table"):
        Follower(lambda: Events([*events, "border"]), None, {"*.t": where}, CdcOptions(**QUICK)).run()


@pytest.mark.parametrize("name", ["../../gone", "..", ".hidden", "a/b", "a\\b", ""])
def test_a_name_of_the_source_leads_out_of_no_folder(name: str) -> None:
    table = SourceTable(SourceName("s", name), NAMED, ("id",))
    for base, tables in (("memory://lake", {}), (None, {"*": "memory://lake/{table}"})):
        with pytest.raises(InvalidInputError, match="makes no name of a folder"):
            Follower(lambda: Events([TableChanged(table), "border"]), base, tables, CdcOptions(**QUICK)).run()


def test_a_path_may_have_braces_of_its_own() -> None:
    path = f"memory://braces-{next(NUMBERS)}/{{x}}/{{table.__class__}}/{{table}}"
    run(changes("+I", [{"id": 1, "name": "a"}]), tables={"s.t": path})
    assert rows(path.replace("{table}", "t")) == [{"id": 1, "name": "a"}]


def test_tables_that_are_no_list_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="tables is a list of names"):
        follow("mysql://me@db/shop", "memory://x", tables={"shop.a"})  # type: ignore[arg-type]


MADE_AGAIN = {"apply": [3], "ignore": [1, 2, 3], "fail": None}


@pytest.mark.parametrize("on_truncate", MADE_AGAIN)
@pytest.mark.parametrize("while_following", [True, False])
def test_a_table_that_is_made_again_follows_as_after_a_truncate(on_truncate: str, while_following: bool) -> None:
    base = f"memory://again-{next(NUMBERS)}"
    first = [changes("+I +I", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]), "border"]
    again = [changes("+I", [{"id": 3, "name": "c"}]), "border"]
    made = TableChanged(SourceTable(T, NAMED, ("id",)))
    options = {"on_truncate": on_truncate}
    if while_following:
        tell = lambda: run(*first, TableGone(T), "border", made, *again, base=base, **options)  # noqa: E731
    else:
        run(*first, base=base)
        tell = lambda: run(*again, base=base, listed=False, **options)  # noqa: E731
    if MADE_AGAIN[on_truncate] is None:
        with pytest.raises(SourceChanged, match=r"s\.t was dropped or left out, and is there again"):
            tell()
    else:
        tell()
        assert [row["id"] for row in rows(f"{base}/s/t")] == MADE_AGAIN[on_truncate]
