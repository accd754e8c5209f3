"""Since when a column has had its name and type, by the history of a table's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.schema.column_ids import unaltered_since
from lakefmt._core.schema.history import Column, InternalSchema, SchemaHistory

NAMES = ["a", "b", "c"]
Columns = Mapping[str, int | tuple[int, str]]


def history(*schemas: Columns) -> SchemaHistory:
    """Schemas with the ids (and types) of their columns by name, oldest first, of the instants 0, 10, 20, …."""
    made = []
    for position, columns in enumerate(schemas):
        pairs = {name: one if isinstance(one, tuple) else (one, "int") for name, one in columns.items()}
        made.append(InternalSchema(10 * position, tuple(Column(n, name, kind) for name, (n, kind) in pairs.items()), 9))
    return SchemaHistory("", tuple(reversed(made)))


@pytest.mark.parametrize(
    ("schemas", "since"),
    [
        ([{"b": 1}], 0),
        ([{"a": 1}, {"b": 1}], 10),
        ([{"a": 1}, {"c": 1}, {"b": 1}], 20),
        ([{"b": 1}, {"c": 1}, {"b": 1}], 20),
        # Added under a name that was free: files from before have no other column there.
        ([{"a": 1}, {"a": 1, "b": 2}], 0),
        ([{"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {"b": 2}], 0),
        # Dropped and added again.
        ([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}], 20),
        # Another column had the name.
        ([{"a": 1, "b": 2}, {"b": 1, "a": 2}], 10),
        ([{"b": 1}, {"a": 1}, {"a": 1, "b": 2}], 20),
        # Another type.
        ([{"b": (1, "int")}, {"b": (1, "long")}], 10),
        ([{"b": (1, "decimal(6, 2)")}, {"b": (1, "decimal_fixed(6, 2)[3]")}], 0),
        ([{"b": (1, "decimal(6, 2)")}, {"b": (1, "decimal(8, 2)")}], 10),
    ],
)
def test_the_instant_of_the_last_alteration(schemas: list[Columns], since: int) -> None:
    whole = history(*schemas)
    assert unaltered_since("b", whole, whole) == since


@pytest.mark.parametrize(
    ("schemas", "since"),
    [
        ([{"b": 1}, {"b": 1, "a": 2}], 0),
        ([{"b": 1}, {"a": 1}], None),
        ([{"b": 1}, {}], None),
        ([{"b": 1}, {"b": 2}], None),
        ([{"b": (1, "int")}, {"b": (1, "long")}], None),
    ],
)
def test_an_earlier_moment_whose_columns_were_altered_later(schemas: list[Columns], since: int | None) -> None:
    assert unaltered_since("b", history(schemas[0]), history(*schemas)) == since


def test_fields_of_a_struct_that_was_renamed() -> None:
    inner, other = Column(2, "p", "int"), Column(5, "r", "int")
    was = InternalSchema(0, (Column(1, "s", "record", fields=(inner, other)),), 2)
    field = InternalSchema(10, (Column(1, "s", "record", fields=(replace(inner, name="q"), other)),), 2)
    whole = InternalSchema(20, (replace(field.columns[0], name="t"),), 2)
    first, second = SchemaHistory("", (field, was)), SchemaHistory("", (whole, field, was))
    assert [unaltered_since(name, first, first) for name in ("s.q", "s.r", "s.p")] == [10, 0, None]
    assert [unaltered_since(name, second, second) for name in ("t.q", "t.r", "s.r")] == [20, 20, None]


#: Each schema gives some of the names to some ids.
SCHEMAS = st.permutations([1, 2, 3, 4]).flatmap(
    lambda ids: st.integers(1, 3).map(lambda count: dict(zip(NAMES[:count], ids, strict=False)))
)


@given(st.lists(SCHEMAS, min_size=1, max_size=6), st.data())
def test_files_since_then_have_the_column_under_its_name_whoever_made_statistics_and_when(
    schemas: list[dict[str, int]], data: st.DataObject
) -> None:
    read = data.draw(st.integers(0, len(schemas) - 1))
    file = data.draw(st.integers(0, read))
    made = data.draw(st.integers(file, len(schemas) - 1))
    for column, number in schemas[read].items():
        since = unaltered_since(column, history(*schemas[: read + 1]), history(*schemas))
        if since is None or 10 * file + 5 < since:
            continue
        stored = schemas[file]
        # By ids, and by names: what stands under the name is the column's, or nothing does, or it is null and has no value.
        assert stored.get(column, number) == number
        assert schemas[made].get(column, number) == number
        assert number not in stored.values() or stored.get(column) == number
