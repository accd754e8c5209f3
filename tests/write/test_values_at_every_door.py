"""Whatever door a value comes through, it is stored as it is or refused (docs/errors.md, Values)."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
import lakefmt.ingest
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError

STRUCT = pa.struct([("x", pa.int64())])
#: A column's type, a value in it, one that is the same in another class, and values that are others.
COLUMNS: list[tuple[pa.DataType, Any, Any, list[Any]]] = [
    (pa.int64(), 1, 1.0, [1.5, decimal.Decimal("1.9"), float("nan"), "1", True, 2**63]),
    (pa.int32(), 1, np.int64(1), [2**32 + 1, 1.9]),
    (pa.date32(), dt.date(2026, 1, 1), np.datetime64("2026-01-01"), [dt.datetime(2026, 1, 1, 13), 20454.5]),
    (pa.decimal128(10, 2), decimal.Decimal("1.00"), 1, [decimal.Decimal("1.001"), 1.239]),
    (pa.bool_(), True, np.bool_(True), [1, "true"]),
    (pa.string(), "1", np.str_("1"), [1, 1.0, b"1"]),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1), [dt.date(2026, 1, 1)]),
]
NESTED: list[tuple[pa.DataType, Any, Any, list[Any]]] = [
    (pa.list_(pa.int64()), [1], [1.0], [[1.5], "1", b"1"]),
    (STRUCT, {"x": 1}, {"x": 1.0}, [{"x": 2.7}, {"x": 1, "y": 5}]),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)], {"k": 1.0}, [[None], {None: 1}, {"k": 1.5}]),
]


def table(kind: pa.DataType, *, key: str = "id") -> Table:
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    return lakefmt.create_table(f"memory://doors-{next(_NUMBERS)}", schema=schema, record_key=key)


_NUMBERS = iter(range(100_000))


def update(door: Table, value: object) -> None:
    door.insert(pa.table({"id": ["a"], "v": pa.nulls(1, door.schema.field("v").type)}))
    door.update("id = 'a'", {"v": value})


def stream(door: Table, value: object) -> None:
    with door.open_stream() as rows:
        rows.upsert({"id": "a", "v": value})


def stream_of_objects(door: Table, value: object) -> None:
    with door.open_stream() as rows:
        rows.apply_rows("UPSERT", [{"id": "a", "v": value}])


@pytest.mark.parametrize("door", [update, stream, stream_of_objects], ids=lambda each: each.__name__)
@pytest.mark.parametrize(("kind", "stored", "same", "others"), [*COLUMNS, *NESTED])
def test_a_value_is_stored_as_it_is_or_refused(
    door: Callable[[Table, object], None], kind: pa.DataType, stored: Any, same: Any, others: list[Any]
) -> None:
    target = table(kind)
    door(target, same)
    assert target.read()["v"].to_pylist() == [stored]
    for value in others:
        target = table(kind)
        with pytest.raises(LakefmtError, match="'v'"):
            door(target, value)
        assert target.read()["v"].to_pylist() in ([], [None])


@pytest.mark.parametrize(("kind", "stored", "same", "others"), COLUMNS)
def test_a_key_that_is_none_of_the_column_deletes_nothing(
    kind: pa.DataType, stored: Any, same: Any, others: list[Any]
) -> None:
    target = table(kind, key="v")
    rows = pa.table({"id": ["a"], "v": pa.array([stored], kind)})
    target.upsert(rows)
    for value in others:
        for keys in (
            [value],
            (value,),
            pd.Series([value], dtype=object),
            [{"v": value}],
            np.array([value], dtype=object),
        ):
            with pytest.raises(LakefmtError):
                target.delete(keys)
    assert target.read().num_rows == 1
    for keys in ([same], pd.Series([same], dtype=object), [pa.scalar(stored, kind)], pa.array([stored], kind)):
        assert target.delete(keys).num_deletes == 1
        target.upsert(rows)


def test_series_of_numbers_delete_what_they_name() -> None:
    target = table(pa.int64(), key="v")
    target.upsert(pa.table({"id": ["a", "b"], "v": [1, 2]}))
    for keys in (pd.Series([1.9]), pl.Series([1.9]), pa.array([1.9]), np.array([1.0, np.nan]), {1.9}):
        with pytest.raises(LakefmtError):
            target.delete(keys)
    assert target.delete(np.array([1.0])).num_deletes == 1
    assert target.read()["v"].to_pylist() == [2]


def test_an_expression_whose_result_does_not_fit_is_refused() -> None:
    target = table(pa.int32())
    target.upsert(pa.table({"id": ["a"], "v": pa.array([7], pa.int32())}))
    for expression in (
        pc.multiply(pc.field("v"), 1.1),
        pc.add(pc.field("v").cast(pa.int64()), pa.scalar(2**40)),
        pc.field("id"),
        pc.equal(pc.field("v"), 7),
    ):
        with pytest.raises(LakefmtError, match="'v'"):
            target.update("id = 'a'", {"v": expression})
    target.update("id = 'a'", {"v": pc.multiply(pc.field("v"), 2.0)})
    assert target.read()["v"].to_pylist() == [14]


def test_a_partition_is_named_by_its_value_only() -> None:
    day = dt.date(2026, 1, 1)
    rows = pa.table({"id": ["a"], "day": [day], "n": pa.array([2026], pa.int32())})
    for column, same, others in (
        ("day", day, [dt.datetime(2026, 1, 1, 13), 20454, 1.5]),
        ("n", 2026.0, [2026.9, True, b"2026"]),
    ):
        target = lakefmt.create_table(
            f"memory://doors-{next(_NUMBERS)}", data=rows, record_key="id", partition_by=column
        )
        target.upsert(rows)
        for value in others:
            with pytest.raises(LakefmtError):
                target.delete_partitions([value])
        assert target.read().num_rows == 1
        target.delete_partitions([same])
        assert target.read().num_rows == 0


@pytest.mark.parametrize(
    "keys", [("email", "=", "x"), [("email", "is not", None)], [[("id", "IN", ["a"])]], [("a", "==", "b")]]
)
def test_a_filter_of_tuples_is_never_taken_for_keys(keys: object) -> None:
    target = lakefmt.create_table(
        f"memory://doors-{next(_NUMBERS)}", schema=pa.schema([("id", pa.string())]), record_key="id"
    )
    target.upsert(pa.table({"id": ["email", "=", "x"]}))
    with pytest.raises(lakefmt.errors.InvalidInputError, match="may be a filter or keys"):
        target.delete(keys)
    assert target.read().num_rows == 3
    assert target.delete(["email", "=", "x"]).num_deletes == 3


# ------------------------------------------------------------------------------------------------------ nested keys

ROWS = pa.table({"s": [{"id": "a", "city": "sf"}, {"id": "b", "city": "oslo"}], "v": [1, 2]})
NESTED_KEYS = [
    ["a"],
    pd.Series(["a"]),
    pa.table({"s.id": ["a"]}),
    pa.table({"s": [{"id": "a"}]}),
    pa.table({"s": [{"id": "a", "city": "sf"}]}),
    pa.table({"s.id": ["a"], "s.city": ["sf"]}),
    [{"s": {"id": "a"}}],
    [{"s.id": "a"}],
    [{"s": {"city": "sf", "id": "a"}}],
    ROWS.slice(0, 1),
    "s.id = 'a'",
]


@pytest.mark.parametrize("what", NESTED_KEYS, ids=range(len(NESTED_KEYS)))
@pytest.mark.parametrize(
    "settings", [{}, {"table_type": "mor", "properties": {"hoodie.index.type": "BUCKET"}}], ids=["cow", "mor"]
)
def test_every_form_of_a_nested_key_deletes_its_row(what: object, settings: dict[str, Any]) -> None:
    target = lakefmt.create_table(
        f"memory://doors-{next(_NUMBERS)}", data=ROWS, record_key="s.id", partition_by="s.city", **settings
    )
    target.upsert(ROWS)
    assert target.delete(what).num_deletes == 1
    assert target.read()["v"].to_pylist() == [2]


def test_rows_of_which_some_lack_a_nested_partition_are_refused() -> None:
    target = lakefmt.create_table(
        f"memory://doors-{next(_NUMBERS)}", data=ROWS, record_key="s.id", partition_by="s.city"
    )
    target.upsert(ROWS)
    with pytest.raises(lakefmt.errors.SchemaMismatch, match=r"lack the field 's\.city'"):
        target.delete([{"s": {"id": "a"}}, {"s": {"id": "b", "city": "oslo"}}])
    assert target.read().num_rows == 2


def test_a_stream_deletes_by_a_nested_key_and_refuses_a_part_of_it() -> None:
    target = lakefmt.create_table(
        f"memory://doors-{next(_NUMBERS)}", data=ROWS, record_key="s.id", partition_by="s.city"
    )
    target.upsert(ROWS)
    with target.open_stream() as rows:
        for key in (
            {"s": {"id": "a"}},
            {"s": {"id": None, "city": "sf"}},
            {"s": {"id": "", "city": "sf"}},
            {"s": None},
        ):
            with pytest.raises(LakefmtError):
                rows.delete(key)
        with pytest.raises(LakefmtError, match=r"s\.city"):
            rows.write_arrow(pa.table({"s": [{"id": "a"}]}), operator="DELETE")
        rows.delete({"s": {"id": "a", "city": "sf"}})
    assert target.read()["v"].to_pylist() == [2]


# ------------------------------------------------------------------------------------------------------ pandas' index

FRAME = pd.DataFrame({"id": list("abcd"), "v": [1, 2, 3, 4]})


def test_an_index_without_a_name_is_no_column() -> None:
    some = FRAME[FRAME.v.isin([1, 2, 4])]
    carried = pa.Table.from_pandas(some)
    assert "__index_level_0__" in carried.column_names
    for brought in (some, carried, iter([carried]), carried.to_batches()):
        path = f"memory://doors-{next(_NUMBERS)}"
        lakefmt.write_table(path, brought, record_key="id")
        target = lakefmt.open_table(path)
        target.upsert(FRAME)
        target.upsert(some)
        with target.open_stream() as rows:
            rows.write_arrow(some)
        assert target.schema.names == ["id", "v"]
        assert target.delete(some).num_deletes == 3
    assert lakefmt.create_table(f"memory://doors-{next(_NUMBERS)}", schema=carried.schema).schema.names == ["id", "v"]


def test_levels_of_an_index_with_a_name_are_columns() -> None:
    frame = FRAME.set_index("id")
    both = FRAME.assign(n=5).set_index(["id", "n"])
    for brought, names in (
        (frame, ["v", "id"]),
        (both, ["v", "id", "n"]),
        (both.rename_axis(["id", None]), ["v", "id"]),
        (FRAME.set_index("id", drop=False), ["id", "v"]),  # the level is that column
        (FRAME.rename_axis("row"), ["id", "v", "row"]),
    ):
        path = f"memory://doors-{next(_NUMBERS)}"
        lakefmt.write_table(path, brought, record_key="id")
        target = lakefmt.open_table(path)
        assert target.schema.names == names
        assert target.delete(brought).num_deletes == 4


@given(
    ids=st.lists(st.integers(-3, 9), min_size=1, max_size=5, unique=True)
    | st.builds(range, st.integers(-3, 3), st.integers(4, 9), st.integers(1, 3))
)
def test_which_levels_are_columns_does_not_depend_on_their_values(ids: list[int] | range) -> None:
    """pandas 3 makes a RangeIndex also of numbers with equal steps, by `set_index`; its name tells that it is a column."""
    rows = pd.DataFrame({"v": range(len(ids))})
    for index in (pd.Index(list(ids), name="id"), *([pd.RangeIndex(ids, name="id")] if isinstance(ids, range) else [])):
        brought = rows.set_index(index)
        path = f"memory://doors-{next(_NUMBERS)}"
        lakefmt.write_table(path, brought, record_key="id")
        target = lakefmt.open_table(path)
        assert sorted(target.read()["id"].to_pylist()) == sorted(ids)
        assert target.delete(brought).num_deletes == len(ids)


def test_a_job_takes_the_index_of_a_frame_as_a_write_does() -> None:
    numbered = FRAME.assign(id=[1, 2, 3, 4]).set_index("id")
    for brought, names in ((numbered, ["v", "id"]), (FRAME.assign(id=[1, 2, 3, 4])[1:], ["id", "v"])):
        path = f"memory://doors-{next(_NUMBERS)}"
        job = {"source": lambda brought=brought: [brought], "source_kind": "rows", "table": path, "key": "id"}
        lakefmt.ingest.run(job)
        assert lakefmt.open_table(path).schema.names == names


def test_objects_of_a_frame_keep_their_values_or_are_refused() -> None:
    day, moment = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 13)
    path = f"memory://doors-{next(_NUMBERS)}"
    frame = pd.DataFrame(
        {"id": ["a", "b"], "v": pd.Series([{"x": 1}, np.nan], dtype=object), "d": pd.Series([day, None])}
    )
    lakefmt.write_table(path, frame, record_key="id")
    assert lakefmt.open_table(path).read().to_pylist() == [
        {"id": "a", "v": {"x": 1}, "d": day},
        {"id": "b", "v": None, "d": None},
    ]
    for values in ([day, moment], ["a", b"b"], [True, 1]):
        with pytest.raises(LakefmtError, match="'v'"):
            lakefmt.write_table(
                f"memory://doors-{next(_NUMBERS)}", pd.DataFrame({"v": pd.Series(values, dtype=object)})
            )


MAPS = pa.schema(
    [
        ("id", pa.string()),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("l", pa.list_(pa.map_(pa.string(), pa.string()))),
        ("s", pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
    ]
)
_dicts = st.none() | st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(-9, 9), max_size=3)
_lists = st.none() | st.lists(
    st.dictionaries(st.text("ab", max_size=2), st.text("x", max_size=1), max_size=2), max_size=2
)
_structs = st.none() | st.fixed_dictionaries({"m": _dicts})


def _with_dicts(value: Any, data_type: pa.DataType) -> Any:
    """Return a value that Arrow gave, with dicts for its lists of pairs; old releases of Arrow have no argument for that."""
    if value is None or not pa.types.is_nested(data_type):
        return value
    if pa.types.is_map(data_type):
        return dict(value)
    if pa.types.is_list(data_type):
        return [_with_dicts(each, data_type.value_type) for each in value]
    return {field.name: _with_dicts(value[field.name], field.type) for field in data_type}


def _merged(door: Table, rows: list[dict[str, object]]) -> None:
    door.merge(rows, "id").when_not_matched("all").execute()


@pytest.mark.parametrize(
    "write",
    [
        lambda door, rows: door.upsert(rows),
        lambda door, rows: door.insert(rows),
        lambda door, rows: door.bulk_insert(iter([rows[:1], rows[1:]])),
        lambda door, rows: door.insert_overwrite_table(rows),
        lambda door, rows: door.upsert(pd.DataFrame({name: [row[name] for row in rows] for name in MAPS.names})),
        _merged,
    ],
    ids=["upsert", "insert", "bulk_insert", "overwrite", "pandas", "merge"],
)
@given(st.lists(st.tuples(_dicts, _lists, _structs), min_size=1, max_size=4))
def test_dicts_of_rows_are_the_maps_of_the_table(
    write: Callable[[Table, list[dict[str, object]]], None], drawn: list[tuple[Any, Any, Any]]
) -> None:
    rows = [{"id": str(n), "m": m, "l": lists, "s": s} for n, (m, lists, s) in enumerate(drawn)]
    door = lakefmt.create_table(f"memory://doors-{next(_NUMBERS)}", schema=MAPS, record_key="id")
    write(door, rows)
    stored = [{f.name: _with_dicts(row[f.name], f.type) for f in MAPS} for row in door.read().to_pylist()]
    assert sorted(stored, key=lambda row: row["id"]) == rows
