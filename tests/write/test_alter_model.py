"""Random alterations between random writes: the table holds what a model in plain Python says, then and now."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.testing.multiset import multiset_difference
from tests.example_counts import examples

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "lakefmt.write.threads": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
}
RETAINS_ONE = {"hoodie.clean.commits.retained": 1}
KEYS = ["a", "b", "c", "d"]
TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "decimal": pa.decimal128(6, 2),
    "wide": pa.decimal128(12, 3),
}
#: What a type may become, and what a value of it becomes. A number that was widened to a float first is not made a text:
#: its text is that of the type in its file, in Hudi, too.
WIDER: dict[str, dict[str, Callable[[Any], Any]]] = {
    "int": {"long": int, "string": str, "double": float},
    "long": {"string": str, "double": float, "float": lambda value: float(np.float32(value))},
    "float": {"double": lambda value: float(str(np.float32(value)))},
    "date": {"string": str},
    "decimal": {"wide": lambda value: value},
}


def some_value(kind: str, number: int) -> Any:
    """A value of a type; one in five is null."""
    if number % 5 == 0:
        return None
    if kind == "float":
        return float(np.float32(number / 10))
    made: dict[str, Any] = {
        **dict.fromkeys(("int", "long"), number),
        "double": number / 10,
        "string": f"t{number}",
        "date": np.datetime64("2026-01-01") + np.timedelta64(number, "D"),
    }
    if kind in made:
        return made[kind].item() if kind == "date" else made[kind]
    return pa.scalar(f"{number % 1000}.25").cast(TYPES[kind]).as_py()


@dataclass
class Field:
    """A column, or a field of the struct, with the values of all rows by key."""

    name: str
    kind: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Model:
    """The columns of a table in their order; `inside` are the fields of the struct ``s``, which may be renamed."""

    columns: list[Field]
    inside: list[Field]
    struct: str = "s"
    keys: set[str] = field(default_factory=set)

    def shape(self) -> pa.Schema:
        inner = pa.struct([pa.field(each.name, TYPES[each.kind]) for each in self.inside])
        fields = {each.name: pa.field(each.name, TYPES[each.kind]) for each in self.columns}
        return pa.schema([pa.field("id", pa.string()), *fields.values(), pa.field(self.struct, inner)])

    def rows(self, keys: set[str]) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {
                    "id": key,
                    **{each.name: each.values.get(key) for each in self.columns},
                    self.struct: {each.name: each.values.get(key) for each in self.inside},
                }
                for key in sorted(keys)
            ],
            schema=self.shape(),
        )


class Game:
    """A table and its model, changed alike."""

    def __init__(self, kind: str, version: int, logs: str) -> None:
        self.model = Model([Field("x", "int"), Field("y", "float")], [Field("p", "int"), Field("q", "string")])
        self.names = (f"n{number}" for number in itertools.count())
        properties = {"hoodie.logfile.data.block.format": logs}
        self.table = lakefmt.create_table(
            f"memory://alter-model-{next(NUMBERS)}",
            schema=self.model.shape(),
            record_key="id",
            table_type=kind,
            table_version=version,
            options={**OPTIONS, **(properties if kind == "mor" else {})},
        )
        self.merges = kind == "mor"
        self.past: list[tuple[str, pa.Table]] = []
        self.upsert(1, 3)

    def upsert(self, first: int, number: int) -> None:
        keys = {KEYS[(first + n) % len(KEYS)] for n in range(1 + number % 3)}
        for each in (*self.model.columns, *self.model.inside):
            for place, key in enumerate(sorted(keys)):
                each.values[key] = some_value(each.kind, number + place)
        self.table.upsert(self.model.rows(keys))
        self.model.keys |= keys

    def delete(self, first: int, number: int) -> None:
        key = KEYS[(first + number) % len(KEYS)]
        self.table.delete([key])
        self.model.keys -= {key}
        for each in (*self.model.columns, *self.model.inside):
            each.values.pop(key, None)

    def chosen(self, first: int) -> tuple[list[Field], str, Field]:
        """A level, its prefix, and a column of it."""
        level, prefix = (self.model.inside, f"{self.model.struct}.") if first % 3 == 0 else (self.model.columns, "")
        return level, prefix, level[(first // 3) % len(level)]

    def add(self, first: int, number: int) -> None:
        level, prefix, beside = self.chosen(first)
        # A name that was dropped comes again.
        taken = {each.name for each in level}
        name = next(n for n in (*(["x", "y", "p", "q"][number % 4 :]), next(self.names)) if n not in taken)
        kind = list(TYPES)[number % len(TYPES)]
        self.table.alter.add_column(f"{prefix}{name}", TYPES[kind], before=f"{prefix}{beside.name}")
        level.insert(level.index(beside), Field(name, kind))

    def drop(self, first: int, number: int) -> None:
        level, prefix, dropped = self.chosen(first)
        if len(level) > 1:
            self.table.alter.drop_column(f"{prefix}{dropped.name}")
            level.remove(dropped)

    def rename(self, first: int, number: int) -> None:
        if number % 7 == 0:
            new = f"s{next(self.names)}"
            self.table.alter.rename_column(self.model.struct, new)
            self.model.struct = new
            return
        _, prefix, renamed = self.chosen(first)
        new = next(self.names)
        self.table.alter.rename_column(f"{prefix}{renamed.name}", new)
        renamed.name = new

    def swap(self, first: int, number: int) -> None:
        level, prefix, one = self.chosen(first)
        other = level[number % len(level)]
        if one is not other:
            for old, new in ((one.name, "swapped"), (other.name, one.name), ("swapped", other.name)):
                self.table.alter.rename_column(f"{prefix}{old}", new)
            one.name, other.name = other.name, one.name

    def move(self, first: int, number: int) -> None:
        level, prefix, moved = self.chosen(first)
        beside = level[number % len(level)]
        if moved is not beside:
            self.table.alter.update_column(f"{prefix}{moved.name}", after=f"{prefix}{beside.name}")
            level.remove(moved)
            level.insert(level.index(beside) + 1, moved)

    def widen(self, first: int, number: int) -> None:
        _, prefix, changed = self.chosen(first)
        wider = WIDER.get(changed.kind, {})
        if wider:
            kind = list(wider)[number % len(wider)]
            self.table.alter.update_column(f"{prefix}{changed.name}", type=TYPES[kind])
            changed.values = {k: None if v is None else wider[kind](v) for k, v in changed.values.items()}
            changed.kind = kind

    def compact(self, first: int, number: int) -> None:
        if self.merges:
            self.table.compact()

    def cluster(self, first: int, number: int) -> None:
        self.table.cluster(("id", self.model.columns[0].name)[first % 2])

    def archive(self, first: int, number: int) -> None:
        self.table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, **RETAINS_ONE})

    def remember(self) -> None:
        newest = self.table.timeline.timeline.commits[-1]
        self.past.append((newest.time, self.model.rows(self.model.keys)))

    def check(self) -> None:
        expected = self.model.rows(self.model.keys)
        found = self.table.read()
        assert found.schema.names == expected.schema.names
        assert_same(found, expected)
        name, kind = self.model.columns[-1].name, self.model.columns[-1].kind
        some = next((value for value in self.model.columns[-1].values.values() if value is not None), None)
        if some is not None:
            chosen = self.table.read(filter=[(name, "==", pa.scalar(some, TYPES[kind]).as_py())], columns=["id"])
            matching = {k for k, v in self.model.columns[-1].values.items() if v == some and k in self.model.keys}
            assert set(chosen["id"].to_pylist()) == matching

    def check_past(self) -> None:
        for time, rows in self.past:
            then = self.table.read(as_of=time)
            assert then.schema.names == rows.schema.names
            assert_same(then, rows)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    difference = multiset_difference(found, expected)
    assert not difference, difference


MOVES = (
    "upsert",
    "upsert",
    "upsert",
    "add",
    "drop",
    "rename",
    "swap",
    "move",
    "widen",
    "delete",
    "compact",
    "cluster",
    "archive",
)
#: Of the active timeline they leave nothing that tells the columns.
SERVICES = [*(("cluster", first, 0) for first in range(4)), ("archive", 0, 0)]
STEPS = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 99), st.integers(0, 99)), min_size=4, max_size=14)
TABLES = st.sampled_from([(kind, version) for kind in ("cow", "mor") for version in (6, 8, 9)])


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(TABLES, st.sampled_from(["avro", "parquet"]), STEPS)
@example(("cow", 8), "avro", [("add", 1, 1), *SERVICES])
@example(("cow", 6), "avro", [("rename", 1, 1), *SERVICES])
def test_random_alterations_between_random_writes(
    table: tuple[str, int], logs: str, steps: list[tuple[str, int, int]]
) -> None:
    game = Game(*table, logs)
    for move, first, number in steps:
        getattr(game, move)(first, number)
        game.remember()
    game.check()
    game.check_past()


def test_the_model_is_a_judge() -> None:
    """A value of the table that the model does not have is found."""
    game = Game("cow", 8, "avro")
    game.check()
    game.model.columns[0].values["b"] = 999
    with pytest.raises(AssertionError):
        game.check()
