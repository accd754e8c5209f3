"""Keys, partitions and event times in every form that Arrow, pandas and Polars have: the same rows are met, whatever index finds them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from tests.example_counts import examples
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
QUICK: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
INDEXES = ("bloom", "simple", "global_bloom", "global_simple", "bucket", "record", "partitioned_record")
Form = Callable[[list[Any]], Any]


def coded(index: pa.DataType, values: pa.DataType) -> Form:
    return lambda keys: pa.array(keys, values).dictionary_encode().cast(pa.dictionary(index, values))


TEXTS: dict[str, Form] = {
    "string": lambda keys: pa.array(keys, pa.string()),
    "large_string": lambda keys: pa.array(keys, pa.large_string()),
    "string_view": lambda keys: pa.array(keys, pa.string_view()),
    "dictionary": coded(pa.int8(), pa.string()),
    "large dictionary": coded(pa.int32(), pa.large_string()),
    "chunks of dictionaries": lambda keys: pa.chunked_array([coded(pa.int8(), pa.string())([key]) for key in keys]),
    "sliced": lambda keys: pa.array(["zz", *keys, "yy"], pa.string()).slice(1, len(keys)),
    "objects": lambda keys: pd.Series(keys, dtype=object),
    "pandas": lambda keys: pd.Series(keys),
    "categories": lambda keys: pd.Series(keys, dtype="category"),
    "arrow in pandas": lambda keys: pd.Series(keys, dtype=pd.ArrowDtype(pa.large_string())),
    "polars": lambda keys: pl.Series(keys, dtype=pl.String),
    "polars categories": lambda keys: pl.Series(keys, dtype=pl.Categorical),
    "polars enum": lambda keys: pl.Series(keys, dtype=pl.Enum(sorted(set(keys)))),
}
BYTES: dict[str, Form] = {
    "binary": lambda keys: pa.array(keys, pa.binary()),
    "large_binary": lambda keys: pa.array(keys, pa.large_binary()),
    "binary_view": lambda keys: pa.array(keys, pa.binary_view()),
    "fixed": lambda keys: pa.array(keys, pa.binary(2)),
    "dictionary": coded(pa.int16(), pa.binary()),
    "objects": lambda keys: pd.Series(keys, dtype=object),
    "polars": lambda keys: pl.Series(keys, dtype=pl.Binary),
}
INTEGERS: dict[str, Form] = {
    "int64": lambda keys: pa.array(keys, pa.int64()),
    "int8": lambda keys: pa.array(keys, pa.int8()),
    "uint16": lambda keys: pa.array(keys, pa.uint16()),
    "dictionary": coded(pa.int8(), pa.int64()),
    "pandas": lambda keys: pd.Series(keys),
    "nullable": lambda keys: pd.Series(keys, dtype="Int32"),
    "categories": lambda keys: pd.Series(keys, dtype="category"),
    "polars": lambda keys: pl.Series(keys, dtype=pl.Int16),
}
KINDS: dict[str, tuple[pa.DataType, dict[str, Form], Callable[[int], Any]]] = {
    "text": (pa.string(), TEXTS, lambda n: f"k{n}"),
    "bytes": (pa.binary(), BYTES, lambda n: bytes([n, 255 - n])),
    "integer": (pa.int64(), INTEGERS, lambda n: n),
}


def frame(columns: dict[str, Any]) -> Any:
    """Return a frame of the library that the key column is of; other columns go with it."""
    key = next(iter(columns.values()))
    if isinstance(key, pd.Series):
        return pd.DataFrame(columns)
    if isinstance(key, pl.Series):
        return pl.DataFrame(columns)
    return pa.table(columns)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=examples(60), deadline=None)
@given(
    index=st.sampled_from(INDEXES),
    table_type=st.sampled_from(["cow", "mor"]),
    version=st.sampled_from([6, 8, 9]),
    data=st.data(),
)
def test_a_key_is_one_key_in_every_form(
    kind: str, index: str, table_type: str, version: int, data: st.DataObject
) -> None:
    stored, forms, make = KINDS[kind]
    schema = pa.schema([("id", stored), ("v", pa.int64())])
    properties = {"hoodie.bucket.index.num.buckets": "3"} if index == "bucket" else {}
    table = lakefmt.create_table(
        f"memory://forms-{next(NUMBERS)}",
        schema=schema,
        record_key="id",
        index=index,
        table_type=table_type,
        table_version=9 if index == "partitioned_record" else version,
        properties=properties,
        options=QUICK,
    )
    model = dict[Any, int]()
    for number in range(data.draw(st.integers(2, 6))):
        keys = [make(n) for n in data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True))]
        name = data.draw(st.sampled_from(list(forms)))
        column = forms[name](keys)
        verb = data.draw(st.sampled_from(["upsert", "upsert", "partial", "delete", "delete rows"]))
        if verb == "delete":
            table.delete(column)
        elif verb == "delete rows":
            table.delete(frame({"id": column}))
        else:
            table.upsert(frame({"id": column, "v": [number] * len(keys)}), partial=verb == "partial")
        for key in keys:
            if verb.startswith("delete"):
                model.pop(key, None)
            else:
                model[key] = number
        found = table.read()
        rows = sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
        assert rows == sorted(model.items()), (name, verb)


MISSING: dict[str, Form] = {
    "text": lambda _: pa.array(["x", None, "y", ""], pa.string()),
    "dictionary": lambda _: pa.array(["x", None, "y", ""], pa.string()).dictionary_encode(),
    "nan in objects": lambda _: pd.Series(["x", np.nan, "y", ""], dtype=object),
    "none in objects": lambda _: pd.Series(["x", None, "y", ""], dtype=object),
    "pandas": lambda _: pd.Series(["x", None, "y", ""]),
    "categories": lambda _: pd.Series(["x", None, "y", ""], dtype="category"),
    "polars": lambda _: pl.Series(["x", None, "y", ""]),
    "polars categories": lambda _: pl.Series(["x", None, "y", ""], dtype=pl.Categorical),
}


@product_or_diagonal(index=["bloom", "global_bloom", "bucket", "record"], table_type=["cow", "mor"])
def test_rows_without_a_partition_value_are_met_in_every_form(index: str, table_type: str) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
    properties = {"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else {}
    table = lakefmt.create_table(
        f"memory://missing-{next(NUMBERS)}",
        schema=schema,
        record_key="id",
        partition_by="p",
        index=index,
        table_type=table_type,
        properties=properties,
        options=QUICK,
    )
    for number, (name, form) in enumerate(MISSING.items()):
        places = form([])
        ids: Any = ["a", "b", "c", "d"]
        if isinstance(places, pd.Series):
            data: Any = pd.DataFrame({"id": ids, "p": places, "v": [number] * 4})
        elif isinstance(places, pl.Series):
            data = pl.DataFrame({"id": ids, "p": places, "v": [number] * 4})
        else:
            data = pa.table({"id": ids, "p": places, "v": [number] * 4})
        table.upsert(data)
        found = sorted(table.read().to_pylist(), key=lambda row: row["id"])
        assert [row["id"] for row in found] == ids, name
        assert {row["v"] for row in found} == {number}, name
        assert [row["p"] for row in found][:3] == ["x", None, "y"], name
    table.delete([{"id": "b", "p": None}, {"id": "a", "p": "x"}])
    assert sorted(table.read()["id"].to_pylist()) == ["c", "d"]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_nan_and_null_partitions_of_numbers_are_met(table_type: str) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.float64()), ("v", pa.int64())])
    table = lakefmt.create_table(
        f"memory://nan-{next(NUMBERS)}",
        schema=schema,
        record_key="id",
        partition_by="p",
        table_type=table_type,
        options=QUICK,
    )
    nan = float("nan")
    for number in range(2):
        rows = {"id": ["a", "b", "c", "d"], "p": pa.array([nan, None, 0.0, 1.5], pa.float64()), "v": [number] * 4}
        table.upsert(pa.table(rows, schema=schema))
        found = sorted(table.read().to_pylist(), key=lambda row: row["id"])
        assert [(row["id"], str(row["p"]), row["v"]) for row in found] == [
            ("a", "nan", number),
            ("b", "None", number),
            ("c", "0.0", number),
            ("d", "1.5", number),
        ]


BEGIN = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
TIMES: dict[str, Form] = {
    "utc": lambda times: pa.array(times, pa.timestamp("us", "UTC")),
    "berlin": lambda times: pa.array(times, pa.timestamp("us", "Europe/Berlin")),
    "seconds": lambda times: pa.array(times, pa.timestamp("s", "+05:30")),
    "nanoseconds": lambda times: pa.array(times, pa.timestamp("ns", "America/New_York")),
    "dictionary": lambda times: pa.array(times, pa.timestamp("us", "UTC")).dictionary_encode(),
    "pandas": lambda times: pd.Series(times).dt.tz_convert("Asia/Tokyo"),
    "objects": lambda times: pd.Series(times, dtype=object),
    "polars": lambda times: pl.Series(times, dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone("Europe/Berlin"),
    "polars milliseconds": lambda times: pl.Series(times, dtype=pl.Datetime("ms", "UTC")),
}


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(max_examples=examples(30), deadline=None)
@given(
    version=st.sampled_from([6, 8, 9]),
    index=st.sampled_from(["bloom", "record", "bucket"]),
    steps=st.lists(
        st.tuples(st.sampled_from(list(TIMES)), st.lists(st.integers(0, 40), min_size=3, max_size=3)),
        min_size=2,
        max_size=5,
    ),
)
def test_the_latest_event_time_wins_in_whatever_zone_it_comes(
    table_type: str, version: int, index: str, steps: list[tuple[str, list[int]]]
) -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    properties = {"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else {}
    table = lakefmt.create_table(
        f"memory://zones-{next(NUMBERS)}",
        schema=schema,
        record_key="id",
        ordering="at",
        index=index,
        table_type=table_type,
        table_version=version,
        properties=properties,
        options=QUICK,
    )
    model = dict[str, tuple[int, int]]()
    for number, (form, minutes) in enumerate(steps):
        times = TIMES[form]([BEGIN + timedelta(minutes=5 * minute) for minute in minutes])
        ids = ["a", "b", "c"]
        columns: dict[str, Any] = {"at": times, "id": ids, "v": [number] * 3}
        table.upsert(frame(columns))
        for key, minute in zip(ids, minutes, strict=True):
            if key not in model or minute >= model[key][0]:
                model[key] = (minute, number)
        found = {row["id"]: (row["at"], row["v"]) for row in table.read().to_pylist()}
        assert found == {key: (BEGIN + timedelta(minutes=5 * minute), v) for key, (minute, v) in model.items()}, form
