"""Columns that were altered: files from before are opened, files from after are left out, and other columns leave out any file."""

from __future__ import annotations

import datetime
import functools
import itertools
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.check import index_contents
from lakefmt._core.check.index_contents import IndexDamage
from lakefmt._core.filegroups import base_writer
from lakefmt._core.metadata.index_readers import read_stats
from lakefmt._core.read import file_selection, partition_guarantees, statistics_selection
from lakefmt._core.read.filters import keep_rows, parse_filter
from lakefmt._core.schema.column_ids import ColumnPlaces
from lakefmt._core.storage.memory import MemoryStore

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


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def leaves(field: pa.Field, prefix: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [name for one in field.type for name in leaves(one, f"{prefix}{field.name}.")]
    return [prefix + field.name]


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
    elif name == "a field of a struct":
        change.rename_column("s.p", "q")
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


def row_of(schema: pa.Schema) -> pa.Table:
    """A row that none of the filters of the cases keeps."""

    def value(kind: pa.DataType) -> Any:
        if pa.types.is_struct(kind):
            return {field.name: value(field.type) for field in kind}
        if pa.types.is_date(kind):
            return datetime.date(2000, 1, 1)
        return "0" if pa.types.is_string(kind) else 0.5 if pa.types.is_floating(kind) else 0

    return pa.Table.from_pylist([{**{field.name: value(field.type) for field in schema}, "id": "new"}], schema=schema)


#: What is altered, a filter on it, and how many of eight older file groups are read.
CASES: list[tuple[str, str, int]] = [
    ("renamed", "number = 3", 8),
    ("renamed", "t = 't3'", 1),
    ("renamed", "t = 't3' and number = 3", 1),
    ("renamed twice", "n2 > 5", 8),
    ("renamed and back", "n = 1 or n = 2", 8),
    ("renamed, and another one has its name", "number = 3", 8),
    ("renamed, and another one has its name", "n = 3", 8),
    ("moved", "n = 3", 1),
    ("two changed names", "n < -6", 8),
    ("a struct", "z.q = 3", 8),
    ("a field of a struct", "s.q = 3", 8),
    ("a field of a struct", "s.r = -3", 1),
    ("dropped and added", "n = 3", 8),
    ("n to long", "n = 3", 8),
    ("n to double", "n = 3", 8),
    ("n to string", "n = '3'", 8),
    ("f to double", "f = 3.1", 8),
    ("day to string", "day = '2026-01-04'", 8),
]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(("name", "query", "count"), CASES, ids=[f"{name}: {query}" for name, query, _ in CASES])
def test_older_files_are_opened_and_newer_ones_left_out(name: str, query: str, count: int, table_type: str) -> None:
    table = of_eight_files(table_type, indexed=True)
    alter(table, name)
    left = {step.name: step.file_groups for step in table.explain(query).steps}
    assert left["column_stats"] == count, left
    # Made anew, they have the column under its name of today; of older files they are not used either.
    table.index.drop("column_stats")
    table.index.create("column_stats", options=indexing(table))
    table.insert(row_of(table.schema))
    left = {step.name: step.file_groups for step in table.explain(query).steps}
    assert (left["stored"], left["column_stats"]) == (9, count), left
    everything = table.read()
    expected = sorted_rows(keep_rows(everything, parse_filter(query, everything.schema)))
    assert sorted_rows(table.read(filter=query)) == expected
    assert not table.index.check().findings


def test_an_earlier_moment_uses_no_statistics_of_a_column_that_was_altered_later() -> None:
    table = of_eight_files("cow", indexed=True)
    before = str(table.timeline.timeline.commits[-1].time)
    alter(table, "two changed names")
    table.index.drop("column_stats")
    table.index.create("column_stats", options=indexing(table))
    assert table.read(filter="n = 3", as_of=before).column("id").to_pylist() == ["k3"]
    assert table.read(filter="m = -3", as_of=before).column("id").to_pylist() == ["k3"]


def test_explain_says_why_no_file_is_left_out() -> None:
    table = of_eight_files("cow", indexed=True)
    table.alter.drop_column("n")
    table.alter.add_column("n", pa.int32())
    assert not table.explain("n = 3").unused, "files from after may be left out"
    table.alter.rename_column("m", "k")
    assert {step.name: step.file_groups for step in table.explain("k = -3").steps}["column_stats"] == 8


def test_statistics_of_older_files_would_lose_rows() -> None:
    """The sabotage twin: where the statistics under a column's name are used in every file, they are another column's."""
    table = of_eight_files("cow", indexed=True)
    alter(table, "two changed names")
    assert table.read(filter="n < -6").num_rows == 2
    with mock.patch.object(partition_guarantees, "unaltered_since", return_value=0):
        assert table.read(filter="n < -6").num_rows == 0


def test_wrong_statistics_of_an_altered_column_lose_rows_and_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = of_eight_files("cow")
    alter(table, "renamed")
    table.index.create("column_stats")
    table.insert(row_of(table.schema))

    def lying(*arguments: Any) -> pa.Table:
        stats = read_stats(*arguments)
        for place, name in ((1, "min"), (2, "max")):
            if arguments[2] == "number":
                stats = stats.set_column(place, name, pc.add(stats[name], pa.scalar(1, stats[name].type)))
        return stats

    assert table.read(filter="number = 0").column("id").to_pylist() == ["new"]
    for module in (statistics_selection, index_contents):
        monkeypatch.setattr(module, "read_stats", lying)
    assert table.read(filter="number = 0").num_rows == 0
    (finding,) = table.index.check().findings
    assert (finding.kind, len(finding.names)) == (IndexDamage.WRONG, 1)


# ------------------------------------------------------------------------------------------ row groups are really left out

#: Files that Arrow reads by names, of today's or of numbers as longer ones: it compares its own ends.
ARROW_LEAVES = {"renamed and back": 2, "n to long": 1, "n to double": 1}
#: What is altered, a filter, and how many of eight row groups are read.
ROW_GROUPS: list[tuple[str, str, int]] = [
    *((name, query, ARROW_LEAVES.get(name, count)) for name, query, count in CASES),
    ("renamed", "number is null", 8),
    ("renamed", "number = 3 or m = -5", 8),
    ("renamed", "number = 3 or m = -5 and t = 't5'", 8),
    # A column that was not altered, of a file that is read by ids because of another one.
    ("renamed", "t = 't3' and number > 0", 1),
    ("renamed, and another one has its name", "n is null and m > -3 and number < 3", 2),
    ("a struct", "z.r < -6", 8),
    ("dropped and added", "n is null", 8),
    ("n to float", "n > 6.5", 8),
    ("n to decimal", "n = 3", 8),
    ("n to string", "n = '3' and m = -4", 1),
    ("f to string", "f = '3.1'", 8),
    ("day to string", "day like '2026-01-04%'", 8),
]


@pytest.mark.in_turn(2)
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
    choose = partition_guarantees.row_groups_left

    def counted(*given: Any) -> list[int]:
        found = choose(*given)
        seen.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(partition_guarantees, "row_groups_left", counted)
        table.read(filter=query)
    return sum(seen) if seen else None


def test_ends_of_altered_columns_would_lose_rows() -> None:
    """The sabotage twin: where the ends under a column's name are used in every file, they are another column's."""
    table = of_eight_files("cow", metadata=False)
    alter(table, "two changed names")
    assert table.read(filter="n < -6").num_rows == 2
    with mock.patch.object(ColumnPlaces, "stays_inside", return_value=True):
        assert table.read(filter="n < -6").num_rows == 0


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
