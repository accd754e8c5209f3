"""Columns that were altered: a read with data skipping returns the rows of a read without it, and opens fewer files."""

from __future__ import annotations

import datetime
import functools
import itertools
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.check.index_contents import IndexDamage
from lakefmt.filegroups import base_writer
from lakefmt.metadata.reading import altered_stats
from lakefmt.metadata.reading.stats_reader import read_stats
from lakefmt.read.filters import keep_rows, parse_filter
from lakefmt.read.skipping import altered_columns, file_selection
from lakefmt.storage.memory import MemoryStore
from tests.example_counts import examples

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "lakefmt.write.threads": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.metadata.enable": True,
    # Each write opens a file group of its own, so that files differ.
    "hoodie.parquet.small.file.limit": 0,
}
TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
}
WIDER = {
    "int": ("long", "float", "double", "string"),
    "float": ("double", "string"),
    "date": ("string",),
    "long": ("double",),
}


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def some_value(kind: str, number: int) -> Any:
    """A value of a type; files of one number are narrow."""
    made: dict[str, Any] = {
        "int": number,
        "long": number,
        "float": number + 0.1,
        "double": number + 0.1,
        "string": str(number),
        "date": datetime.date(2026, 1, 1 + number),
    }
    return made[kind]


#: One operation is its name and two numbers that choose what it is done to.
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "write", "rename", "swap", "drop and add", "widen", "move", "delete", "index", "compact"]
        ),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    min_size=6,
    max_size=11,
)


class Game:
    """A table with columns that change; `kinds` are those of the columns, and of fields of the struct with a dot."""

    def __init__(self, table_type: str, version: int) -> None:
        self.kinds = {"a": "int", "b": "int", "c": "string", "d": "date", "f": "float", "s.p": "int", "s.q": "string"}
        self.inner = "s"
        self.merges = table_type == "mor"
        self.uri = f"memory://altered-{next(NUMBERS)}"
        self.table = lakefmt.create_table(
            self.uri,
            schema=pa.schema(
                [("id", pa.string())]
                + [(name, TYPES[kind]) for name, kind in self.kinds.items() if "." not in name]
                + [("s", pa.struct([("p", pa.int32()), ("q", pa.string())]))]
            ),
            record_key="id",
            table_type=table_type,
            table_version=version,
            options=OPTIONS,
        )
        self.names = (f"n{number}" for number in itertools.count())
        self.past: list[str] = []

    @property
    def is_indexed(self) -> bool:
        return "column_stats" in self.table.client.load().config.metadata_partitions

    def chosen(self, number: int) -> str:
        return list(self.kinds)[number % len(self.kinds)]

    def write(self, first: int, number: int) -> None:
        schema = self.table.schema
        rows = []
        for key in (f"k{first}", f"k{(first + number) % 6}"):
            row: dict[str, Any] = {"id": key}
            for place, (name, kind) in enumerate(self.kinds.items()):
                value = None if (number + place) % 7 == 0 else some_value(kind, (number + place) % 10)
                outer, _, inside = name.partition(".")
                if inside:
                    row.setdefault(outer, {})[inside] = value
                else:
                    row[name] = value
            rows.append(row)
        self.table.upsert(pa.Table.from_pylist(list({row["id"]: row for row in rows}.values()), schema=schema))
        self.past.append(str(self.table.timeline.timeline.commits[-1].time))

    def delete(self, first: int, number: int) -> None:
        self.table.delete([f"k{first}"])

    def rename(self, first: int, number: int) -> None:
        self.moved(self.chosen(first + number), next(self.names))

    def moved(self, name: str, to: str) -> None:
        outer, _, inside = name.partition(".")
        self.table.alter.rename_column(name, to)
        self.kinds[f"{outer}.{to}" if inside else to] = self.kinds.pop(name)

    def swap(self, first: int, number: int) -> None:
        one = self.chosen(first)
        alike = [each for each in self.kinds if each.count(".") == one.count(".") and each != one]
        other = alike[number % len(alike)]
        for name, to in ((one, "swapping"), (other, one), ("swapping", other)):
            prefix = f"{self.inner}." if "." in one and "." not in name else ""
            self.moved(prefix + name, to.rpartition(".")[2])

    def drop_and_add(self, first: int, number: int) -> None:
        name = self.chosen(first)
        kind = list(TYPES)[number % len(TYPES)]
        self.table.alter.drop_column(name)
        self.table.alter.add_column(name, TYPES[kind])
        del self.kinds[name]
        self.kinds[name] = kind

    def widen(self, first: int, number: int) -> None:
        name = self.chosen(first)
        wider = WIDER.get(self.kinds[name])
        if wider is not None:
            kind = wider[number % len(wider)]
            self.table.alter.update_column(name, type=TYPES[kind])
            self.kinds[name] = kind

    def move(self, first: int, number: int) -> None:
        name = self.chosen(first)
        alike = [each for each in self.kinds if each.count(".") == name.count(".") and each != name]
        self.table.alter.update_column(name, before=alike[number % len(alike)])

    def index(self, first: int, number: int) -> None:
        if self.is_indexed:
            self.table.index.drop("column_stats")
        self.table.index.create("column_stats", options=indexing(self.table))

    def compact(self, first: int, number: int) -> None:
        if self.merges:
            self.table.compact(options=OPTIONS)

    def play(self, name: str, first: int, number: int) -> None:
        getattr(self, name.replace(" ", "_"))(first, number)


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def filters(schema: pa.Schema) -> list[str]:
    made = []
    for name in (leaf for field in schema for leaf in leaves(field, "")):
        field = field_of(schema, name)
        kind = next(key for key, value in TYPES.items() if value == field.type)
        for number in (2, 7):
            value = some_value(kind, number)
            text = f"'{value}'" if kind == "string" else f"date '{value}'" if kind == "date" else str(value)
            made += [f"{name} = {text}", f"{name} > {text}"]
            if kind == "string":
                # Texts that were numbers or dates.
                made += [f"{name} = '{number}.1'", f"{name} = '2026-01-0{number + 1}'"]
        made += [f"{name} is null", f"{name} is not null"]
    return made


def leaves(field: pa.Field, prefix: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [name for one in field.type for name in leaves(one, f"{prefix}{field.name}.")]
    return [prefix + field.name]


def field_of(schema: pa.Schema, name: str) -> pa.Field:
    outer, _, inside = name.partition(".")
    field = schema.field(outer)
    return field.type.field(inside) if inside else field


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "version"), [("cow", 9), ("cow", 6), ("mor", 6), ("mor", 8), ("mor", 9)])
@settings(max_examples=max(2, examples(2)), deadline=None, suppress_health_check=[*HealthCheck])
@given(operations=OPERATIONS)
def test_rows_are_equal_with_and_without_skipping(
    table_type: str, version: int, operations: list[tuple[str, int, int]]
) -> None:
    game = Game(table_type, version)
    game.write(1, 1)
    for operation in operations:
        game.play(*operation)
    if not game.is_indexed:
        game.index(0, 0)
    assert_rows_are_equal(game, operations)
    assert not game.table.index.check().findings, operations


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "version"), [("cow", 9), ("cow", 6), ("mor", 9)])
@settings(max_examples=max(3, examples(3)), deadline=None, suppress_health_check=[*HealthCheck])
@given(operations=OPERATIONS)
def test_rows_are_equal_with_and_without_footers(
    table_type: str, version: int, operations: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where nothing but footers leaves out rows, and each row is a row group."""
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 1)
    game = Game(table_type, version)
    game.write(1, 1)
    for operation in operations:
        if operation[0] != "index":
            game.play(*operation)
    assert_rows_are_equal(game, operations)


def assert_rows_are_equal(game: Game, operations: list[tuple[str, int, int]]) -> None:
    states: list[dict[str, Any]] = [{}, {"as_of": game.past[0]}, {"as_of": game.past[len(game.past) // 2]}]
    for state in states:
        everything = game.table.read(**state)
        for query in filters(everything.schema)[:: 3 if state else 1]:
            expected = sorted_rows(keep_rows(everything, parse_filter(query, everything.schema)))
            assert sorted_rows(game.table.read(filter=query, **state)) == expected, (query, state, operations)


# --------------------------------------------------------------------------------------------- files are really left out

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("m", pa.int32()),
        ("t", pa.string()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("s", pa.struct([("p", pa.int32()), ("r", pa.int32())])),
    ]
)


def rows_of(number: int) -> pa.Table:
    row = {
        "id": f"k{number}",
        "n": number,
        "m": -number,
        "t": f"t{number}",
        "f": number + 0.1,
        "s": {"p": number, "r": -number},
    }
    return pa.Table.from_pylist([{**row, "day": datetime.date(2026, 1, 1 + number)}], schema=SCHEMA)


def of_eight_files(table_type: str, *, metadata: bool = True, indexed: bool = False) -> lakefmt.Table:
    """A table of eight file groups; of merge on read each has a log that holds the same values."""
    made = eight_files(table_type, metadata=metadata, indexed=indexed).client
    copy = MemoryStore(f"altered-{next(NUMBERS)}")
    for found in made.store.list():
        copy.put(found.name, made.store.read(found.name))
    return lakefmt.open_table(copy.url, options=made.options)


@functools.cache
def eight_files(table_type: str, *, metadata: bool, indexed: bool) -> lakefmt.Table:
    """The table of which copies are altered: sixteen writes take longer than all that is asked of it."""
    table = lakefmt.create_table(
        f"memory://altered-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        table_type=table_type,
        options={
            **OPTIONS,
            "hoodie.metadata.index.column.stats.enable": False,
            "hoodie.metadata.enable": metadata,
        },
    )
    for number in range(1, 9):
        table.insert(rows_of(number))
        if table_type == "mor":
            table.upsert(rows_of(number))
    if indexed:
        table.index.create("column_stats", options=indexing(table))
    return table


def alter(table: lakefmt.Table, name: str) -> None:
    change = table.alter
    if name == "renamed":
        change.rename_column("n", "number")
    elif name == "renamed twice":
        change.rename_column("n", "number")
        change.rename_column("number", "n2")
    elif name == "renamed and back":
        change.rename_column("n", "number")
        change.rename_column("number", "n")
    elif name == "renamed, and another one has its name":
        change.rename_column("n", "number")
        change.add_column("n", pa.int64())
    elif name == "moved":
        change.update_column("n", before="id")
    elif name == "two changed names":
        for one, to in (("n", "swapping"), ("m", "n"), ("swapping", "m")):
            change.rename_column(one, to)
    elif name == "a struct":
        change.rename_column("s", "z")
        change.rename_column("z.p", "q")
    elif name == "dropped and added":
        change.drop_column("n")
        change.add_column("n", pa.int32())
    else:
        column, _, kind = name.partition(" to ")
        change.update_column(column, type={**TYPES, "decimal": pa.decimal128(12, 2)}[kind])


def indexing(table: lakefmt.Table) -> dict[str, object]:
    """Settings that index fields of structs, too."""
    names = [leaf for field in table.schema for leaf in leaves(field, "")]
    return {"hoodie.metadata.index.column.stats.column.list": ",".join(names)}


#: What is altered, a filter, and how many of eight file groups are read with statistics from before, and from after.
LEFT: list[tuple[str, str, tuple[int, int]]] = [
    ("renamed", "number = 3", (1, 1)),
    ("renamed twice", "n2 > 5", (3, 3)),
    ("renamed and back", "n = 1 or n = 2", (2, 2)),
    ("renamed, and another one has its name", "number = 3", (1, 1)),
    ("moved", "n = 3", (1, 1)),
    # A range of either column is one of both.
    ("two changed names", "n < -6", (2, 2)),
    ("a struct", "z.q = 3", (1, 1)),
    ("dropped and added", "n = 3", (0, 0)),
    ("n to long", "n = 3", (1, 1)),
    ("n to double", "n = 3", (1, 1)),
    # Numbers are not in the order of their texts: statistics from before tell nothing.
    ("n to string", "n = '3'", (8, 1)),
    ("f to double", "f = 3.1", (1, 1)),
    ("day to string", "day = '2026-01-04'", (1, 1)),
]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(("name", "query", "left"), LEFT, ids=[name for name, _, _ in LEFT])
def test_files_are_left_out(name: str, query: str, left: tuple[int, int], table_type: str) -> None:
    for indexed_first, count in zip((True, False), left, strict=True):
        table = of_eight_files(table_type, indexed=indexed_first)
        alter(table, name)
        if not indexed_first:
            table.index.create("column_stats", options=indexing(table))
        steps = {step.name: step.file_groups for step in table.explain(query).steps}
        # What a log has of a column that was added since is not taken for granted.
        wanted = 8 if (name, table_type) == ("dropped and added", "mor") else count
        assert steps["column_stats"] == wanted, (indexed_first, steps)
        everything = table.read()
        expected = sorted_rows(keep_rows(everything, parse_filter(query, everything.schema)))
        assert sorted_rows(table.read(filter=query)) == expected
        assert not table.index.check().findings


def test_wrong_statistics_of_an_altered_column_lose_rows_and_are_found() -> None:
    """The law sees wrong statistics: with ends that are too large, rows are missing, and the check says so."""
    table = of_eight_files("cow")
    table.index.create("column_stats")
    alter(table, "renamed")
    read = read_stats

    def lying(*arguments: Any) -> pa.Table:
        stats = read(*arguments)
        for place, name in ((1, "min"), (2, "max")):
            stats = (
                stats.set_column(place, name, pc.add(stats[name], pa.scalar(1, stats[name].type)))
                if arguments[2] == "n"
                else stats
            )
        return stats

    assert table.read(filter="number = 3").column("id").to_pylist() == ["k3"]
    with mock.patch.object(altered_stats, "read_stats", lying):
        assert table.read(filter="number = 3").num_rows == 0
        (finding,) = table.index.check().findings
        assert (finding.kind, len(finding.names)) == (IndexDamage.WRONG, 8)


# ------------------------------------------------------------------------------------------ row groups are really left out

#: What is altered, a filter, and how many of eight row groups are read.
ROW_GROUPS: list[tuple[str, str, int]] = [
    *((name, query, before) for name, query, (before, _) in LEFT),
    ("renamed", "number is null", 0),
    ("renamed", "number = 3 or m = -5", 2),
    # A column that was not altered, of a file that is read by ids because of another one.
    ("renamed", "t = 't3' and number > 0", 1),
    ("renamed, and another one has its name", "n = 3", 0),
    ("renamed, and another one has its name", "n is null and number < 3", 2),
    ("a struct", "z.r < -6", 2),
    ("dropped and added", "n is null", 8),
    ("n to float", "n > 6.5", 2),
    ("n to decimal", "n = 3", 1),
    ("n to string", "n = '3' and m = -4", 1),
    ("f to string", "f = '3.1'", 8),
    ("f to double", "f > 7.5", 1),
    ("day to string", "day like '2026-01-04%'", 1),
]


@pytest.mark.parametrize(
    ("name", "query", "count"), ROW_GROUPS, ids=[f"{name}: {query}" for name, query, _ in ROW_GROUPS]
)
def test_row_groups_are_left_out(name: str, query: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of_files = of_eight_files("cow", metadata=False)
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 1)
    of_groups = of_one_file()
    monkeypatch.undo()
    for table in (of_files, of_groups):
        alter(table, name)
        everything = table.read()
        groups = decoded(monkeypatch, table, query)
        expected = sorted_rows(keep_rows(everything, parse_filter(query, everything.schema)))
        assert sorted_rows(table.read(filter=query)) == sorted_rows(table.scan(filter=query).read_all()) == expected
        assert groups in (count, None), "explain and the read disagree with the case"
        last = table.explain(query).steps[-1]
        assert last.name == "footers"
        if table is of_files:
            assert last.file_groups == count
        else:
            whole = table.explain(query).steps[0].size_bytes
            assert (last.size_bytes < whole) == (count < 8)
            assert (last.size_bytes == 0) == (count == 0)


def of_one_file() -> lakefmt.Table:
    """A table of one file with eight row groups of a row."""
    table = lakefmt.create_table(
        f"memory://altered-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        options={**OPTIONS, "hoodie.metadata.enable": False},
    )
    table.insert(pa.concat_tables([rows_of(number) for number in range(1, 9)]))
    (file,) = (each.base for each in table.client.at(table.client.load()).slices())
    assert file is not None
    assert len(list(table.client.reader.row_groups(file, ["id"]))) == 8
    return table


def decoded(monkeypatch: pytest.MonkeyPatch, table: lakefmt.Table, query: str) -> int | None:
    """How many row groups a read decodes; None: Arrow reads the files, which it is not asked about."""
    seen: list[int] = []
    choose = altered_columns.row_groups_left

    def counted(*given: Any) -> list[int]:
        found = choose(*given)
        seen.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(altered_columns, "row_groups_left", counted)
        table.read(filter=query)
    return sum(seen) if seen else None


def test_wrong_ends_of_an_altered_column_lose_rows() -> None:
    """The law sees wrong ends: what a footer says of another column, or of its values before they were converted."""
    table = of_eight_files("cow", metadata=False)
    alter(table, "renamed")
    assert table.read(filter="number = 3").column("id").to_pylist() == ["k3"]
    place = altered_columns._place_in_file
    with mock.patch.object(altered_columns, "_place_in_file", lambda path, places: place(["m"], places)):
        assert table.read(filter="number = 3").num_rows == 0


def test_row_groups_of_files_whose_nested_columns_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files without ids that have a field less are read one by one, too, and leave out row groups."""
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", 1)
    table = of_one_file()
    monkeypatch.undo()
    wide = SCHEMA.set(6, pa.field("s", pa.struct([*SCHEMA.field("s").type, pa.field("new", pa.int64())])))
    table.insert(pa.Table.from_pylist([{"id": "new", "n": 3, "s": {"p": 100, "new": 1}}], schema=wide))
    for query, count in (("n = 3", 1), ("s.p = 3", 1), ("s.p > 6", 2), ("s.new = 1", 8), ("n is null", 0)):
        everything = table.read()
        assert decoded(monkeypatch, table, query) == count, query
        assert sorted_rows(table.read(filter=query)) == sorted_rows(
            keep_rows(everything, parse_filter(query, everything.schema))
        )
