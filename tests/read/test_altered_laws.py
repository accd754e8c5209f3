"""A filtered read of a table whose columns were altered returns what the filter keeps of the unfiltered read in memory."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.check.index_contents import IndexDamage
from lakefmt._core.filegroups import base_writer
from lakefmt._core.read import file_selection
from lakefmt._core.read.filters import keep_rows, parse_filter
from tests.example_counts import examples

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.metadata.enable": True,
    "hoodie.compact.inline.max.delta.commits": 1,
    # Each insert opens a file group of its own, so that files differ.
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
PLACES = ("p0", "p1", "p2")


def some_value(kind: str, number: int) -> Any:
    """A value of a type; the values of one file are close to each other."""
    values: dict[str, Any] = {
        "int": number,
        "long": number,
        "float": number + 0.1,
        "double": number + 0.1,
        "string": str(number),
        "date": datetime.date(2026, 1, 1 + number),
    }
    return values[kind]


class Game:
    """A partitioned table whose columns change. `kinds` has the type of each column, and of fields of the struct with a dot."""

    def __init__(self, table_type: str, version: int) -> None:
        self.kinds = {"n": "int", "m": "int", "t": "string", "d": "date", "f": "float", "s.p": "int", "s.q": "string"}
        self.merges = table_type == "mor"
        self.table = lakefmt.create_table(
            f"memory://altered-law-{next(NUMBERS)}",
            schema=pa.schema(
                [("id", pa.string()), ("place", pa.string())]
                + [(name, TYPES[kind]) for name, kind in self.kinds.items() if "." not in name]
                + [("s", pa.struct([("p", pa.int32()), ("q", pa.string())]))]
            ),
            record_key="id",
            partition_by="place",
            table_type=table_type,
            table_version=version,
            options=OPTIONS,
        )
        self.names = (f"x{number}" for number in itertools.count())
        self.past: list[str] = []
        self.index(0, 0)

    def play(self, name: str, first: int, number: int) -> None:
        getattr(self, name.replace(" ", "_"))(first, number)

    def chosen(self, number: int) -> str:
        return list(self.kinds)[number % len(self.kinds)]

    def upsert(self, first: int, number: int) -> None:
        rows: dict[str, dict[str, Any]] = {}
        for key in (first % 6, (first + number) % 6):
            row: dict[str, Any] = {"id": f"k{key}", "place": PLACES[key % len(PLACES)]}
            for position, (name, kind) in enumerate(self.kinds.items()):
                value = None if (number + position) % 7 == 0 else some_value(kind, (number + position) % 10)
                outer, _, inner = name.partition(".")
                if inner:
                    row.setdefault(outer, {})[inner] = value
                else:
                    row[name] = value
            rows[row["id"]] = row
        self.table.upsert(pa.Table.from_pylist(list(rows.values()), schema=self.table.schema))
        self.past.append(str(self.table.timeline.timeline.commits[-1].time))

    def delete(self, first: int, number: int) -> None:
        self.table.delete(pa.table({"id": [f"k{first % 6}"], "place": [PLACES[first % 6 % len(PLACES)]]}))

    def add(self, first: int, number: int) -> None:
        name, kind = next(self.names), list(TYPES)[number % len(TYPES)]
        self.table.alter.add_column(name, TYPES[kind])
        self.kinds[name] = kind

    def drop(self, first: int, number: int) -> None:
        name = self.chosen(first)
        if len(self.kinds) > 4 and not name.startswith("s."):
            self.table.alter.drop_column(name)
            del self.kinds[name]

    def drop_and_add(self, first: int, number: int) -> None:
        name, kind = self.chosen(first), list(TYPES)[number % len(TYPES)]
        self.table.alter.drop_column(name)
        self.table.alter.add_column(name, TYPES[kind])
        del self.kinds[name]
        self.kinds[name] = kind

    def moved(self, name: str, to: str) -> None:
        outer, _, inner = name.partition(".")
        self.table.alter.rename_column(name, to)
        self.kinds[f"{outer}.{to}" if inner else to] = self.kinds.pop(name)

    def rename(self, first: int, number: int) -> None:
        self.moved(self.chosen(first), next(self.names))

    def swap(self, first: int, number: int) -> None:
        one = self.chosen(first)
        alike = [each for each in self.kinds if each.count(".") == one.count(".") and each != one]
        if alike:
            other = alike[number % len(alike)]
            prefix = "s." if "." in one else ""
            for name, to in ((one, "between"), (other, one), (f"{prefix}between", other)):
                self.moved(name, to.rpartition(".")[2])

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
        if alike:
            self.table.alter.update_column(name, before=alike[number % len(alike)])

    def index(self, first: int, number: int) -> None:
        """Make the statistics of all files anew, with the columns of now."""
        for name in ("partition_stats", "column_stats"):
            if name in self.table.client.load().config.metadata_partitions:
                self.table.index.drop(name)
        options = {"hoodie.metadata.index.column.stats.column.list": ",".join(self.kinds)}
        self.table.index.create("column_stats", options=options)
        config = self.table.client.load().config
        if config.version > 6 and "partition_stats" not in config.metadata_partitions:
            self.table.index.create("partition_stats", options=options)

    def compact(self, first: int, number: int) -> None:
        if self.merges:
            self.table.compact(options=OPTIONS)

    def cluster(self, first: int, number: int) -> None:
        self.table.cluster()


#: One operation is its name and two numbers that choose what it is done to.
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upsert"] * 4
            + ["rename", "rename", "swap", "drop", "add", "drop and add", "widen", "widen", "move"]
            + ["delete", "index", "compact", "cluster"]
        ),
        st.integers(0, 6),
        st.integers(0, 9),
    ),
    min_size=6,
    max_size=12,
)
#: One term is numbers that choose a column, an operator and a value.
TERMS = st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 9))
#: One filter is one or two terms, how they are joined, and in which form they are given.
FILTERS = st.tuples(
    st.lists(TERMS, min_size=1, max_size=2),
    st.sampled_from(["and", "or"]),
    st.sampled_from(["text", "text", "negated", "tuples", "expression"]),
)


def leaves(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The columns, and the fields of structs with dots."""
    found: dict[str, pa.DataType] = {}
    for field in schema:
        if pa.types.is_struct(field.type):
            found |= {f"{field.name}.{inner.name}": inner.type for inner in field.type}
        else:
            found[field.name] = field.type
    return found


def made_filter(schema: pa.Schema, drawn: tuple[list[tuple[int, int, int]], str, str]) -> Any:
    """The filter that numbers stand for, over the columns of a schema."""
    terms, join, form = drawn
    columns = list(leaves(schema).items())
    parts = [made_term(*columns[column % len(columns)], operator, value) for column, operator, value in terms]
    if form == "tuples":
        return parts if join == "and" else [[each] for each in parts]
    if form == "expression":
        expressions = [as_expression(*each) for each in parts]
        whole = expressions[0]
        for each in expressions[1:]:
            whole = whole & each if join == "and" else whole | each
        return whole
    text = f" {join} ".join(as_text(*each) for each in parts)
    return text if form == "text" else f"not ({text})"


def made_term(name: str, type_: pa.DataType, operator: int, number: int) -> tuple[str, str, Any]:
    kind = next(key for key, value in TYPES.items() if value == type_)
    values: list[Any] = [some_value(kind, number)]
    if name == "place":
        values = [PLACES[number % len(PLACES)]]
    elif kind == "string":  # texts that were numbers or dates, too
        values += [f"{number}.1", str(datetime.date(2026, 1, 1 + number)), f"k{number}"]
    value = values[operator % len(values)]
    word = ["=", "=", "!=", "<", "<=", ">", ">=", "in", "is", "is not"][operator]
    return name, word, None if word in ("is", "is not") else [value, values[0]] if word == "in" else value


def as_text(name: str, word: str, value: Any) -> str:
    def literal(one: Any) -> str:
        return str(one) if isinstance(one, int | float) else f"'{one}'"

    if value is None:
        return f"{name} {word} null"
    return f"{name} in ({', '.join(map(literal, value))})" if word == "in" else f"{name} {word} {literal(value)}"


def as_expression(name: str, word: str, value: Any) -> pc.Expression:
    field = pc.field(*name.split("."))
    if value is None:
        return field.is_null() if word == "is" else field.is_valid()
    compared = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    found: pc.Expression = field.isin(value) if word == "in" else getattr(field, compared[word])(value)
    return found


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.fixture(autouse=True, scope="module")
def statistics_of_few_files_and_rows() -> Iterator[None]:
    """Statistics are used whatever they cost, and each row is a row group."""
    few = {"FEW_FILES": 0, "FEW_NEAR_FILES": 0, "FEW_PARTITIONS": 0}
    with mock.patch.multiple(file_selection, **few), mock.patch.object(base_writer, "_ROW_GROUP_BYTES", 1):
        yield


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[*HealthCheck])
@given(operations=OPERATIONS, filters=st.lists(FILTERS, min_size=14, max_size=14), earlier=st.integers(0, 99))
def test_a_filter_keeps_the_rows_that_it_keeps_in_memory(
    table_type: str, version: int, operations: list[tuple[str, int, int]], filters: list[Any], earlier: int
) -> None:
    game = Game(table_type, version)
    for number in range(3):
        game.upsert(2 * number, 2 * number + 1)
    for operation in operations:
        game.play(*operation)
    plain = lakefmt.open_table(game.table.client.store.url, options={"hoodie.enable.data.skipping": False})
    states: list[dict[str, Any]] = [{}, {"as_of": game.past[earlier % len(game.past)]}]
    for state, every in zip(states, (1, 3), strict=True):
        everything = game.table.read(**state)
        for query in (made_filter(everything.schema, each) for each in filters[::every]):
            expected = sorted_rows(keep_rows(everything, parse_filter(query, everything.schema)))
            assert sorted_rows(game.table.read(filter=query, **state)) == expected, (str(query), state, operations)
            if not state:  # by footers alone
                assert sorted_rows(plain.read(filter=query)) == expected, (str(query), operations)
    wrong = [each for each in game.table.index.check().findings if each.kind is IndexDamage.WRONG]
    assert not wrong, operations
