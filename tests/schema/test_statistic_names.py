"""Statistics that are found by the names of an altered column are that column's, whoever made them and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt.schema.history import Column, InternalSchema, SchemaHistory
from lakefmt.schema.statistic_names import StatisticNames, StoredUnder

NAMES = ["a", "b", "c"]


def history(*schemas: Mapping[str, int | tuple[int, str]]) -> SchemaHistory:
    """Schemas with the ids (and types) of their columns by name, oldest first; they are of the instants 0, 10, 20, …."""
    made = []
    for place, columns in enumerate(schemas):
        pairs = {name: one if isinstance(one, tuple) else (one, "int") for name, one in columns.items()}
        made.append(InternalSchema(10 * place, tuple(Column(n, name, kind) for name, (n, kind) in pairs.items()), 9))
    return SchemaHistory("", tuple(reversed(made)))


def names_of(*schemas: Mapping[str, int | tuple[int, str]], read_at: int | None = None) -> StatisticNames:
    newest = history(*schemas)
    now = newest if read_at is None else history(*schemas[: read_at + 1])
    return StatisticNames(now, newest)


@pytest.mark.parametrize(
    ("schemas", "instant", "wanted"),
    [
        ([{"a": 1}, {"b": 1}], "5", StoredUnder(("b", "a"))),
        ([{"a": 1}, {"b": 1}], "10", StoredUnder(("b",), is_same=True)),
        ([{"a": 1}, {"c": 1}, {"b": 1}], "0", StoredUnder(("b", "a", "c"))),
        # Dropped and added again: files from before have null in it.
        ([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}], "5", StoredUnder(is_absent=True)),
        ([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}], "15", StoredUnder(("b",))),
        ([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}], "25", StoredUnder(("b",), is_same=True)),
        # Two columns changed their names.
        (
            [{"a": 1, "b": 2}, {"c": 1, "b": 2}, {"c": 1, "a": 2}, {"b": 1, "a": 2}],
            "0",
            StoredUnder(("c",), shared=("b", "a")),
        ),
        ([{"a": 1, "b": 2}, {"b": 1, "a": 2}], "0", StoredUnder(shared=("b", "a"))),
        # Another column has the name now, and older files do not have that.
        ([{"a": 1}, {"b": 1}, {"b": 1, "a": 2}], "0", StoredUnder(("b",), ("a",))),
        # Another type: the ends that can be read as it bound the values, or nothing is told.
        ([{"b": (1, "int")}, {"b": (1, "long")}], "0", StoredUnder(("b",))),
        ([{"b": (1, "int")}, {"b": (1, "string")}], "0", StoredUnder(("b",))),
        ([{"b": (1, "float")}, {"b": (1, "double")}], "0", StoredUnder(("b",))),
        ([{"b": (1, "int")}, {"b": (1, "float")}, {"b": (1, "double")}], "0", StoredUnder()),
        ([{"b": (1, "date")}, {"b": (1, "timestamp")}], "0", StoredUnder()),
    ],
)
def test_names_by_the_instant_of_a_file(
    schemas: list[dict[str, int | tuple[int, str]]], instant: str, wanted: StoredUnder
) -> None:
    assert names_of(*schemas).of("b", instant) == wanted


@pytest.mark.parametrize(
    ("kinds", "is_told"),
    [(("int", "long"), True), (("long", "double"), False), (("float", "double"), False), (("int", "string"), False)],
)
def test_an_earlier_state_takes_no_ends_that_were_rounded_later(kinds: tuple[str, str], is_told: bool) -> None:
    found = names_of({"b": (1, kinds[0])}, {"b": (1, kinds[1])}, read_at=0).of("b", "5")
    assert found == (StoredUnder(("b",)) if is_told else StoredUnder())


def test_fields_of_a_struct_that_was_renamed() -> None:
    inner, other = Column(2, "p", "int"), Column(4, "p", "int")
    was = InternalSchema(0, (Column(1, "s", "record", fields=(inner,)),), 2)
    now = InternalSchema(10, (Column(1, "t", "record", fields=(replace(inner, name="q"),)),), 2)
    again = InternalSchema(20, (*now.columns, Column(3, "s", "record", fields=(other,))), 4)
    whole = SchemaHistory("", (again, now, was))
    names = StatisticNames(whole, whole)
    assert names.of("t.q", "0") == StoredUnder(("t.q",), ("s.p",))
    assert names.of("s.p", "0") == StoredUnder(is_absent=True)
    assert names.of("nothing", "0") == StoredUnder()


def test_all_types_of_a_column() -> None:
    names = names_of({"a": (1, "int"), "b": (2, "date")}, {"b": (1, "long")}, {"b": (1, "double")}, read_at=1)
    assert names.kinds("b") == {"int", "long", "double"}


# -------------------------------------------------------------------------------------- whoever made them, and when

#: Each schema gives some of the names to some ids.
SCHEMAS = st.permutations([1, 2, 3, 4]).flatmap(
    lambda ids: st.integers(1, 3).map(lambda count: dict(zip(NAMES[:count], ids, strict=False)))
)


def recorded(
    schemas: list[dict[str, int]], file: int, made: int, maker: str, indexed: set[str]
) -> dict[str, int | None]:
    """The id whose values stand under each name; None: nulls.

    Parameters:
        schemas: oldest first.
        file: the schema that the file was written with.
        made: the schema of the table when the statistics were made.
        maker: lakefmt goes by ids; Hudi by the names in a footer, or by names with null for those that a log lacks.
        indexed: the columns that are indexed.
    """
    stored, then = schemas[file], schemas[made]
    some = {name: number for name, number in then.items() if name in indexed}
    if maker == "ids":
        return {name: number if number in stored.values() else None for name, number in some.items()}
    if maker == "footer":
        return {name: stored[name] for name in some if name in stored}
    return {name: stored.get(name) for name in some}


@given(
    st.lists(SCHEMAS, min_size=1, max_size=5),
    st.data(),
    st.sampled_from(["ids", "footer", "log"]),
    st.sets(st.sampled_from(NAMES), min_size=1),
)
def test_what_is_found_includes_the_column(
    schemas: list[dict[str, int]], data: st.DataObject, maker: str, indexed: set[str]
) -> None:
    file = data.draw(st.integers(0, len(schemas) - 1))
    made = data.draw(st.integers(file, len(schemas) - 1))
    read = data.draw(st.integers(file, len(schemas) - 1))
    records = recorded(schemas, file, made, maker, indexed)
    names = names_of(*schemas, read_at=read)
    for column, number in schemas[read].items():
        under = names.of(column, str(10 * file + 5))
        truth = number if number in schemas[file].values() else None
        if under.is_absent:
            assert truth is None
        seen = {name for name, one in records.items() if one is not None or (maker != "log" or under.is_same)}
        own = [name for name in under.own if name in seen]
        own += [name for name in under.filled if records.get(name) is not None]
        used = own or (under.names if under.shared and all(name in records for name in under.names) else [])
        values = {records[name] for name in used}
        assert not values or truth in values, (column, under, records)
