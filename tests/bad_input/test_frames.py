"""Frames of today's libraries, and rows of Python: what they hold is stored, or refused with what to do."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Callable

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import InvalidInputError, InvalidKey, LakefmtError, SchemaMismatch
from tests.bad_input.hostile import FRAMES
from tests.bad_input.kit import check_said, same_rows

OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
NUMBERS = itertools.count()


def make(schema: pa.Schema, **asked: object) -> Table:
    return lakefmt.create_table(f"memory://frames-{next(NUMBERS)}", schema=schema, options=OPTIONS, **asked)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- dictionaries

TEXTS = ["b", "a", "b", None]
BYTES = [None if text is None else text.encode() for text in TEXTS]
#: The values of a dictionary, and the type that they have there.
KINDS: dict[str, tuple[list[object], pa.DataType]] = {
    "string": (TEXTS, pa.string()),
    "large_string": (TEXTS, pa.large_string()),
    "string_view": (TEXTS, pa.string_view()),
    "binary": (BYTES, pa.binary()),
    "large_binary": (BYTES, pa.large_binary()),
    "binary_view": (BYTES, pa.binary_view()),
    "int64": ([2, 1, 2, None], pa.int64()),
    "date32": ([2, 1, 2, None], pa.date32()),
}
#: Releases of Arrow before 18 cannot turn views into texts; lakefmt refuses them there.
VIEWS_CAST = tuple(map(int, pa.__version__.split(".")[:1])) >= (18,)
ROLES: dict[str, dict[str, object]] = {
    "value": {"record_key": "id", "table_type": "mor"},
    "key": {"record_key": ["id", "d"]},
    "partition": {"record_key": "id", "partition_by": "d"},
    "ordering": {"record_key": "id", "ordering": "d", "table_type": "mor"},
}


def coded(values: list[object], kind: pa.DataType, index: pa.DataType) -> pa.DictionaryArray:
    """Return values dictionary encoded, their nulls among the indices."""
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    places = [None if value is None else distinct.index(value) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(places, index), pa.array(distinct, kind))


@pytest.mark.slow
@pytest.mark.parametrize("role", list(ROLES))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if VIEWS_CAST or "view" not in kind])
def test_dictionaries_of_every_kind_are_what_their_values_are(kind: str, role: str) -> None:
    values, stored = KINDS[kind]
    values = values[:3] if role in ("key", "ordering") else values
    ids = [f"k{number}" for number in range(len(values))]
    plain = pa.table({"id": ids, "d": pa.array(values, stored)})
    asked = dict(ROLES[role])
    if role == "ordering" and not pa.types.is_string(plain.schema.field("d").type) and "binary" in str(stored):
        asked["table_type"] = "cow"  # merge-on-read tables do not order rows by bytes
    expected = make(plain.schema, **asked)
    expected.upsert(plain)
    rows = pa.table({"id": ids, "d": coded(values, stored, pa.int8() if role == "value" else pa.uint32())})
    table = make(rows.schema, **asked)
    table.upsert(rows.slice(0, 2))
    table.upsert(rows)
    assert same_rows(table.read(), expected.read())
    assert table.partitions() == expected.partitions()
    assert table.delete(rows.slice(1)).num_deletes == len(rows) - 1


def test_categories_of_polars_are_read_by_hudi_rs(tmp_path: pathlib.Path, hudi_rs_judge) -> None:  # type: ignore[no-untyped-def]
    frame = pl.DataFrame(
        {"id": ["a", "b"], "c": ["x", "y"], "e": ["x", None], "l": [["x"], []]},
        schema={"id": pl.Categorical, "c": pl.Categorical, "e": pl.Enum(["x", "y"]), "l": pl.List(pl.Categorical)},
    )
    path = tmp_path / "t"
    table = lakefmt.create_table(path, data=frame, record_key="id", partition_by="c", options=OPTIONS)
    table.upsert(frame)
    texts = frame.with_columns(pl.col("id", "c", "e").cast(pl.String), pl.col("l").cast(pl.List(pl.String)))
    assert same_rows(table.read(), texts.to_arrow().cast(table.schema))
    assert same_rows(hudi_rs_judge.snapshot(path), table.read())
    files = duckdb.sql(f"select id, c, e from read_parquet('{path}/*/*.parquet') order by id").fetchall()
    assert files == [("a", "x", "x"), ("b", "y", None)]


# ----------------------------------------------------------------------------------------------------------------- paths


def test_a_path_object_is_a_path_at_every_entry_point(tmp_path: pathlib.Path) -> None:
    class Own(os.PathLike[str]):
        def __fspath__(self) -> str:
            return str(tmp_path / "own")

    schema = pa.schema([("id", pa.string())])
    for path, name in ((tmp_path / "lake" / "trips", "trips"), (Own(), "own")):
        made = lakefmt.create_table(path, schema=schema, record_key="id")
        assert made.properties.name == name
        assert lakefmt.open_table(path).schema == schema
        assert lakefmt.create_table(path, schema=schema, record_key="id", if_exists="open").properties.name == name


@pytest.mark.parametrize("path", [b"/tmp/x", 5, None, "\ud800", "", "a\0b", ...], ids=repr)
def test_what_is_no_path_is_refused(path: object) -> None:
    for call in (
        lakefmt.open_table,
        lambda p: lakefmt.create_table(p, schema=pa.schema([("id", pa.string())]), record_key="id"),
    ):
        with pytest.raises(InvalidInputError):
            call(path)  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------------------- refusals

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
EMPTY = pa.binary(0)
#: A frame → what its refusal names.
REFUSED: dict[str, str] = {
    "dict without a field": "1 rows given as dicts have no fields",
    "dicts without a field": "2 rows given as dicts have no fields",
    "rows without columns": "2 rows have no columns",
    "batch without columns": "2 rows have no columns",
    "dict with half": "note",
    "dict with a half name": "surrogates not allowed",
    "dict with a number for a name": "a field named 5",
    "dict with bytes for a name": "a field named b'id'",
    "dict with itself": "column 'extra' has values nested deeper than 64 levels",
    "dict with a dict in itself": "column 'extra' has values nested deeper",
    "dict with a huge number": "column 'extra'",
    "dict with an object": "column 'extra'",
    "dict with mixed": "column 'extra'",
    "iterator that fails later": "RuntimeError: broke",
    "stream that fails": "RuntimeError: no stream",
    "binary of no length": "bytes of no length",
    "pandas, a column twice": "column names appear more than once: 'id'",
    "pandas, mixed objects": "extra",
    "pandas, sparse": "Sparse",
    "polars, Int128": "the rows of this DataFrame cannot be read",
    "column with a half name": "utf-8",
    "numpy texts": "str_",
}


@pytest.mark.parametrize("frame", [frame for frame in REFUSED if frame in FRAMES])
def test_what_cannot_be_stored_is_refused_by_name(frame: str) -> None:
    table = make(SCHEMA, record_key="id")
    for verb in (table.upsert, table.insert, table.bulk_insert):
        with pytest.raises(LakefmtError) as caught:
            verb(FRAMES[frame]())
        check_said(caught.value, REFUSED[frame])
    assert not list(table.timeline.entries)


@pytest.mark.parametrize(
    "kind", [EMPTY, pa.list_(EMPTY), pa.struct([("x", EMPTY)]), pa.map_(pa.string(), EMPTY)], ids=str
)
def test_bytes_of_no_length_are_refused_at_creation(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="bytes of no length"):
        make(pa.schema([("id", pa.string()), ("f", kind)]), record_key="id")


def refusal(verb: Callable[[pa.Table], object], rows: pa.Table) -> str | None:
    """Return what a verb says when it refuses rows for their keys."""
    try:
        verb(rows)
    except InvalidKey as error:
        return str(error)
    return None


#: One type of every kind that Arrow has and a table may hold.
TYPES = [
    *(
        pa.string(),
        pa.binary(),
        pa.binary(2),
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
    ),
    *(pa.timestamp("ns"), pa.timestamp("ms", "UTC"), pa.time32("s"), pa.time64("ns"), pa.decimal128(5, 2), pa.null()),
    *(pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize(
    "role", [{"record_key": "k"}, {"record_key": ["id", "k"]}, {"record_key": "id", "partition_by": "k"}]
)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_table_that_can_be_made_can_be_written(kind: pa.DataType, role: dict[str, object]) -> None:
    schema = pa.schema([("id", pa.string()), ("k", kind)])
    try:
        table = make(schema, **role)
    except InvalidKey:
        return
    for rows in (pa.table({"id": ["a"], "k": pa.nulls(1, kind)}), schema.empty_table()):
        for verb in (table.upsert, table.delete):
            said = refusal(verb, rows)
            assert said is None or "null or empty record key" in said


def test_pandas_series_hold_keys_of_every_dtype() -> None:
    for dtype in ("object", "string", "str", "category", "string[pyarrow]"):
        table = make(SCHEMA, record_key="id")
        table.upsert([{"id": "a", "city": "x", "ts": 1}, {"id": "b", "city": "x", "ts": 1}])
        assert table.delete(pd.Series(["b", "z"], dtype=dtype)).num_deletes == 1


@pytest.mark.parametrize("call", ["as_of", "start"])
@pytest.mark.parametrize("value", [5, 0, 1.5, b"2026", ..., [], pd.NaT], ids=repr)
def test_what_is_no_instant_is_refused(call: str, value: object) -> None:
    table = make(SCHEMA, record_key="id")
    calls: dict[str, list[Callable[[], object]]] = {
        "as_of": [lambda: table.read(as_of=value), lambda: table.snapshot(value), lambda: table.scan(as_of=value)],  # type: ignore[arg-type]
        "start": [lambda: table.incremental(value), lambda: table.changes(value), lambda: table.changes("000", value)],  # type: ignore[arg-type]
    }
    for act in calls[call]:
        with pytest.raises(InvalidInputError, match=r"instant|time zone"):
            act()
    with pytest.raises(InvalidInputError):
        table.changes(None)  # type: ignore[arg-type]
