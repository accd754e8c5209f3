"""Verbs around the rows in any order, against a model: alterations, undoing, indexes, services, erasing and upgrades.

After each of them the table reads as the model says, with its metadata table and without; a check finds nothing. At the end
each moment that was remembered is read again: as it was, in the columns of now, what came since, and each change since.
What a verb refuses with an error of lakefmt changes nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.read import file_selection
from lakefmt.errors import LakefmtError, SnapshotExpired
from tests.example_counts import examples

Row = dict[str, Any]
Change = Callable[[Row], Row]

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
BASE: list[tuple[str, pa.DataType]] = [
    ("id", pa.string()),
    ("city", pa.string()),
    ("ts", pa.int64()),
    ("a", pa.int32()),
    ("place", pa.struct([("p", pa.int32()), ("q", pa.string())])),
]
ADDED, FIELDS = ("a", "b", "c"), ("p", "q", "r")
TYPES = (pa.int32(), pa.string(), pa.float64())
WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int32(): (pa.int64(), pa.float64(), pa.string()),
    pa.int64(): (pa.float64(), pa.string()),
}


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def value_of(data_type: pa.DataType, number: int) -> Any:
    if pa.types.is_struct(data_type):
        return {field.name: value_of(field.type, number) for field in data_type}
    return in_type(number, data_type)


def in_type(value: int | None, data_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(data_type):
        return str(value)
    return float(value) if pa.types.is_floating(data_type) else value


@dataclass
class State:
    """Rows by key, the commit that wrote each, the columns, and how many alterations there had been."""

    rows: dict[str, Row]
    written: dict[str, str]
    schema: pa.Schema
    altered: int


class Scene:
    """A table and its model; each `do_` method calls a verb and returns what the model makes of it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        version, table_type = draw.choice([6, 8, 9]), draw.choice(["cow", "mor"])
        index = draw.choice(["bloom", "simple", "global_bloom", "record", "bucket"])
        self.metadata = index == "record" or draw.random() < 0.5
        self.needs_metadata = index == "record"
        properties: dict[str, str] = {"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else {}
        extra = draw.choice(["", "captures", "dropped", "without meta"])
        if extra == "captures":
            properties["hoodie.table.cdc.enabled"] = "true"
        if extra == "dropped":
            properties["hoodie.datasource.write.drop.partition.columns"] = "true"
        if extra == "without meta":
            properties["hoodie.populate.meta.fields"] = "false"
            index, self.metadata, self.needs_metadata = "simple", False, False
        self.has_meta = extra != "without meta"
        self.limit = draw.choice([0, 1 << 20])
        self.schema = pa.schema(BASE)
        self.url = f"memory://around-{next(NUMBERS)}"
        self.told = f"{version} {table_type} {index} {extra} metadata={self.metadata} limit={self.limit}"
        lakefmt.create_table(
            self.url,
            schema=self.schema,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type=table_type,
            table_version=version,
            index=index,
            indexes=["column_stats"] if self.metadata else [],
            properties=properties,
        )
        self.table = self.opened(self.metadata)
        self.rows: dict[str, Row] = {}
        self.written: dict[str, str] = {}
        self.changes: list[Change] = []
        self.states: dict[str, State] = {}
        self.flushed: list[Row] = []
        self.stream: Any = None
        self.number = 0

    def opened(self, metadata: bool) -> lakefmt.Table:
        more = {"hoodie.metadata.enable": metadata, "hoodie.parquet.small.file.limit": self.limit}
        return lakefmt.open_table(self.url, options={**OPTIONS, **more})

    # --- rows

    def made(self, keys: Iterable[int], schema: pa.Schema | None = None) -> list[Row]:
        self.number += 1
        made = []
        for key in keys:
            fixed: Row = {"id": f"k{key}", "city": ("sf", "oslo")[key % 2], "ts": self.number}
            fields = schema or self.schema
            made.append({f.name: fixed.get(f.name, value_of(f.type, 100 * self.number + key)) for f in fields})
        return made

    def put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = row["id"]
            if key not in self.rows or self.rows[key]["ts"] <= row["ts"]:
                self.rows[key], self.written[key] = row, "new"

    def remove(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            del self.rows[key], self.written[key]

    def in_table(self, rows: list[Row], schema: pa.Schema | None = None) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=schema or self.schema)

    def free_keys(self) -> list[str]:
        """Keys that no flushed row has: a delete before its commit would not be the last word."""
        return sorted(self.rows.keys() - {row["id"] for row in self.flushed})

    def do_upsert(self) -> None:
        rows = self.made(self.draw.sample(range(8), 3))
        self.table.upsert(self.in_table(rows))
        self.put(rows)

    def do_insert(self) -> None:
        rows = self.made(100 + 2 * self.number + n for n in range(2))
        self.table.insert(self.in_table(rows))
        self.put(rows)

    def do_delete(self) -> None:
        keys = self.free_keys()[:2]
        if keys:
            self.table.delete([("id", "in", keys)])
            self.remove(keys)

    def do_overwrite(self) -> None:
        rows = self.made([self.draw.randrange(8)])
        self.table.insert_overwrite(self.in_table(rows))
        self.remove(key for key, row in self.rows.items() if row["city"] == rows[0]["city"])
        self.put(rows)

    def do_delete_partitions(self) -> None:
        city = self.draw.choice(["sf", "oslo"])
        self.table.delete_partitions([city])
        self.remove(key for key, row in self.rows.items() if row["city"] == city)

    def do_bring_a_column(self) -> None:
        name, data_type = self.free_name(), self.draw.choice(TYPES)
        if name is None:
            return
        schema = self.schema.append(pa.field(name, data_type))
        rows = self.made(self.draw.sample(range(8), 2), schema)
        self.table.upsert(self.in_table(rows, schema))
        self.alter(schema, lambda row: {**row, name: None})
        self.put(rows)

    def do_flush(self) -> None:
        self.stream = self.stream or self.table.open_stream(flush_mode="MANUAL_FLUSH", commit_interval=3_600_000)
        rows = self.made(self.draw.sample(range(8), 2))
        for row in rows:
            self.stream.upsert(row)
        self.stream.flush()
        self.flushed += rows

    def do_commit_stream(self) -> None:
        if self.stream is not None:
            stream, self.stream = self.stream, None
            stream.close()
            self.put(self.flushed)
            self.flushed = []

    # --- columns

    def alter(self, schema: pa.Schema, change: Change) -> None:
        self.schema = schema
        self.changes.append(change)
        self.rows = {key: change(row) for key, row in self.rows.items()}
        self.flushed = [change(row) for row in self.flushed]

    def own(self) -> list[str]:
        return [name for name in self.schema.names if name in ADDED]

    def free_name(self) -> str | None:
        return (
            next(iter(self.draw.sample(free, 1)), None) if (free := [n for n in ADDED if n not in self.own()]) else None
        )

    def do_add(self) -> None:
        name, data_type = self.free_name(), self.draw.choice(TYPES)
        if name is not None:
            self.table.alter.add_column(name, data_type, before="ts")
            at = self.schema.get_field_index("ts")
            self.alter(self.schema.insert(at, pa.field(name, data_type)), lambda row: {**row, name: None})

    def do_drop(self) -> None:
        if self.own():
            name = self.draw.choice(self.own())
            self.table.alter.drop_column(name)
            rest = pa.schema([field for field in self.schema if field.name != name])
            self.alter(rest, lambda row: {key: value for key, value in row.items() if key != name})

    def do_rename(self) -> None:
        new = self.free_name()
        if self.own() and new is not None:
            old = self.draw.choice(self.own())
            self.table.alter.rename_column(old, new)
            fields = [field.with_name(new) if field.name == old else field for field in self.schema]
            self.alter(pa.schema(fields), lambda row: {new if key == old else key: row[key] for key in row})

    def do_widen(self) -> None:
        narrow = [name for name in self.own() if self.schema.field(name).type in WIDER]
        if narrow:
            name = self.draw.choice(narrow)
            data_type = self.draw.choice(WIDER[self.schema.field(name).type])
            self.table.alter.update_column(name, type=data_type)
            fields = [field.with_type(data_type) if field.name == name else field for field in self.schema]
            self.alter(pa.schema(fields), lambda row: {**row, name: in_type(row[name], data_type)})

    def alter_place(self, fields: list[pa.Field], change: Change) -> None:
        struct = pa.struct(fields)
        schema = pa.schema([field.with_type(struct) if field.name == "place" else field for field in self.schema])
        self.alter(schema, lambda row: {**row, "place": change(row["place"])})

    def do_add_field(self) -> None:
        fields = list(self.schema.field("place").type)
        name = next((each for each in FIELDS if each not in {field.name for field in fields}), None)
        if name is not None:
            data_type = self.draw.choice(TYPES[:2])
            self.table.alter.add_column(f"place.{name}", data_type)
            self.alter_place([*fields, pa.field(name, data_type)], lambda place: {**place, name: None})

    def do_drop_field(self) -> None:
        fields = list(self.schema.field("place").type)
        name = self.draw.choice(fields).name
        self.table.alter.drop_column(f"place.{name}")
        rest = [field for field in fields if field.name != name]
        self.alter_place(rest, lambda place: {key: value for key, value in place.items() if key != name})

    # --- undoing

    def go_to(self, state: State) -> None:
        self.rows, self.written, self.schema = dict(state.rows), dict(state.written), state.schema
        del self.changes[state.altered :]

    def do_rollback(self) -> None:
        times = [instant.time for instant in self.commits()]
        if len(times) < 2 or any(time not in self.states for time in times[-2:]):
            return
        state = self.states[times[-2]]
        if not self.flushed or state.altered == len(self.changes):
            self.table.rollback(times[-1])
            self.go_to(state)

    def do_savepoint(self) -> None:
        self.table.savepoint()

    def do_restore(self) -> None:
        times = [i.time for i in self.table.client.load().timeline.commits if i.time in self.states]
        if times:
            time = self.draw.choice(times[-4:])
            if not self.flushed or self.states[time].altered == len(self.changes):
                self.table.restore(time)
                self.go_to(self.states[time])

    # --- the rest changes no row

    def do_upgrade(self) -> None:
        if self.table.properties.version.value < 9:
            self.table.upgrade(9)

    def do_erase(self) -> None:
        keys = self.free_keys()[:1]
        if keys:
            self.table.erase([("id", "in", keys)])
            self.remove(keys)

    def do_vacuum(self) -> None:
        self.table.vacuum(orphans=True, older_than=0)

    def do_repair(self) -> None:
        self.table.repair(self.table.check("full").plan)

    def do_clean(self) -> None:
        self.table.clean(schedule=self.draw.random() < 0.3, options={"hoodie.clean.commits.retained": 1})

    def do_archive(self) -> None:
        keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
        self.table.archive(options=keep)

    def do_compact(self) -> None:
        self.table.compact(schedule=self.draw.random() < 0.4)

    def do_cluster(self) -> None:
        allow = {"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}
        self.table.cluster(schedule=self.draw.random() < 0.4, options=allow)

    def do_make_index(self) -> None:
        kind = self.draw.choice(["column_stats", "partition_stats", "bloom_filters", "record_index", "secondary_index"])
        columns = self.draw.choice(self.own() or ["ts"]) if kind == "secondary_index" else None
        if self.draw.random() < 0.3:
            self.table.index.schedule(kind, columns)
        else:
            self.table.index.create(kind, columns)

    def do_run_index(self) -> None:
        self.table.index.run()

    def do_drop_index(self) -> None:
        names = [index.name for index in self.table.index.list()]
        if names:
            self.table.index.drop(self.draw.choice(names))

    def do_reopen(self) -> None:
        if self.stream is None:
            self.limit = self.draw.choice([0, 1 << 20])
            self.table = self.opened(self.needs_metadata or self.draw.random() < 0.7)

    # --- comparing

    def commits(self) -> tuple[Any, ...]:
        client = self.table.client
        return client.at(client.load()).with_history().timeline.commits

    def same(self, found: pa.Table, rows: Iterable[Row], schema: pa.Schema, what: str) -> None:
        assert found.schema.names == schema.names, what
        expected = sorted(({name: row[name] for name in schema.names} for row in rows), key=str)
        assert sorted(found.to_pylist(), key=str) == expected, what

    def compare(self) -> None:
        """Remember the newest commit; read the table, by its metadata table or by its files."""
        commits = self.commits()
        new = [instant.time for instant in commits if instant.time not in self.states]
        for key, time in self.written.items():
            if time == "new":
                self.written[key] = new[0]  # the commits behind it merge small files
        there = {instant.time for instant in commits}
        self.states = {time: state for time, state in self.states.items() if time in there}
        if commits:
            state = State(dict(self.rows), dict(self.written), self.schema, len(self.changes))
            for time in new:
                self.states[time] = state
        self.same(self.table.read(), self.rows.values(), self.schema, "the table")
        other = self.opened(self.draw.random() < 0.5)
        self.same(other.read(), self.rows.values(), self.schema, "another handle")

    def look_back(self) -> None:
        """Check the table; ask its filters, and what it knows of each moment that was remembered."""
        assert self.table.check("full").is_clean, str(self.table.check("full"))
        if self.table.index.list():
            assert self.table.index.check().is_clean, str(self.table.index.check())
        for name in self.own():
            null = [row for row in self.rows.values() if row[name] is None]
            self.same(self.table.read(filter=f"{name} is null"), null, self.schema, f"{name} is null")
        times = [(instant.time, instant.order_time) for instant in self.commits()]
        order = dict(times)
        for time, start in times[-4:]:
            state = self.states[time]
            now = {key: self.as_now(row, state) for key, row in state.rows.items()}
            try:
                self.same(self.table.read(as_of=time), state.rows.values(), state.schema, "as of")
                self.same(
                    self.table.read(as_of=time, schema_of="now"), now.values(), self.schema, "as of, in columns of now"
                )
                if not self.has_meta:
                    continue
                since = [row for key, row in self.rows.items() if order[self.written[key]] > start]
                self.same(self.table.incremental(start), since, self.schema, "increment")
                for change in self.table.changes(start).to_pylist():
                    if change["before"] is not None:
                        assert now.pop(change["before"]["id"]) == change["before"]
                    if change["after"] is not None:
                        assert now.setdefault(change["after"]["id"], change["after"]) is change["after"]
                assert now == {key: {n: row[n] for n in self.schema.names} for key, row in self.rows.items()}
            except SnapshotExpired:
                continue

    def as_now(self, row: Row, state: State) -> Row:
        for change in self.changes[state.altered :]:
            row = change(row)
        return {name: row[name] for name in self.schema.names}


ACTS = sorted(name.removeprefix("do_") for name in vars(Scene) if name.startswith("do_"))


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(ACTS), min_size=5, max_size=14), st.integers(0, 2**32))
def test_verbs_in_any_order_equal_the_model(acts: list[str], number: int) -> None:
    scene = Scene(random.Random(number))
    told = [scene.told]
    try:
        for act in ["upsert", *acts]:
            told.append(act)
            held = scene.rows, scene.schema
            try:
                getattr(scene, f"do_{act}")()
            except LakefmtError as error:
                told.append(f"refused: {error}")
                assert held == (scene.rows, scene.schema)
            scene.compare()
        scene.look_back()
    except Exception as error:
        error.add_note("\n".join(told))
        raise
    finally:
        if scene.stream is not None:
            scene.stream.close()


# --- what it found


def small(version: int, table_type: str, **more: Any) -> lakefmt.Table:
    """A table of three columns, partitioned, with or without a metadata table."""
    return lakefmt.create_table(
        f"memory://around-{next(NUMBERS)}",
        schema=pa.schema([("id", pa.string()), ("city", pa.string()), ("a", pa.int32())]),
        record_key="id",
        partition_by="city",
        table_type=table_type,
        table_version=version,
        **{"options": OPTIONS, **more},
    )


def rows(key: str, column: str, value: object) -> pa.Table:
    return pa.table({"id": [key], "city": ["sf"], column: [value]})


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_write_that_brings_a_dropped_name_in_another_type_joins_no_statistics_of_the_old_column(
    table_type: str, version: int
) -> None:
    """The ranges of a partition were those of texts and numbers together, and the write failed with a TypeError."""
    table = small(version, table_type, indexes=["column_stats", "partition_stats"])
    table.upsert(table.schema.empty_table().from_pylist([{"id": "x", "city": "sf", "a": 1}], schema=table.schema))
    table.alter.drop_column("a")
    table.upsert(rows("y", "a", "text"))
    assert table.read(filter="a is null")["id"].to_pylist() == ["x"]
    assert table.read(filter="a = 'text'")["id"].to_pylist() == ["y"]
    assert table.index.check().is_clean


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_column_that_files_lack_has_no_statistics_of_them_after_a_renaming_either(
    table_type: str, version: int
) -> None:
    """The check of the indexes missed such statistics, and would have made a healthy index anew."""
    table = small(version, table_type, indexes=["column_stats"])
    table.upsert(table.schema.empty_table().from_pylist([{"id": "x", "city": "sf", "a": 1}], schema=table.schema))
    table.alter.add_column("more", pa.string())
    table.alter.rename_column("a", "b")
    assert table.index.check().is_clean
    assert table.read(filter="more is null").num_rows == 1


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_commit_that_made_the_metadata_table_is_rolled_back(version: int) -> None:
    """A log of version 6 does not tell its instant: the first listing named it, and no read found it any more."""
    table = small(version, "mor", indexes=[])
    table.upsert(rows("x", "a", 1))
    table.upsert(rows("x", "a", 2))
    table = lakefmt.open_table(table.client.store.url, options={**OPTIONS, "hoodie.metadata.enable": True})
    last = table.upsert(rows("x", "a", 3))
    assert table.index.list()
    table.rollback(last)
    assert table.read()["a"].to_pylist() == [2]
    assert table.index.check().is_clean


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_write_that_is_given_up_after_the_metadata_table_was_made_is_in_no_listing(version: int) -> None:
    together = {
        **OPTIONS,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.client.heartbeat.tolerable.misses": 2,
    }
    table = small(version, "mor", indexes=[], options=together)
    table.upsert(rows("x", "a", 1))
    slow = lowlevel.begin_write(table)
    for assignment, batches in lowlevel.assign(slow, rows("x", "a", 2)):
        lowlevel.write_files(slow, assignment, batches)
    table.index.create("column_stats")
    lowlevel.abort(slow)
    assert table.read()["a"].to_pylist() == [1]
    assert table.index.check().is_clean


@pytest.mark.parametrize("verb", ["rollback", "restore"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_commit_that_made_an_index_is_undone(version: int, verb: str) -> None:
    """Statistics of a log of version 6 that a rollback deleted stayed in an index that its commit had made."""
    with_metadata = {**OPTIONS, "hoodie.metadata.enable": True}
    table = small(version, "mor", indexes=[], options=with_metadata)
    first = table.upsert(rows("x", "a", 1))
    table.index.drop("column_stats")
    assert [index.name for index in table.index.list()] == ["files"]
    second = table.upsert(rows("x", "a", 2))
    assert {"files", "column_stats"} <= {index.name for index in table.index.list()}
    table.rollback(second) if verb == "rollback" else table.restore(first)
    assert table.read(filter="a = 1").num_rows == 1
    assert table.index.check().is_clean
