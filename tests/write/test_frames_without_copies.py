"""Columns of frames that Arrow can take as they lie in memory are not copied on their way into a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.write.ingest import open_stream

NUMBERS = np.arange(1000, dtype=np.int64)
PARTS = np.arange(1000) / 8


def addresses(table: pa.Table, name: str) -> list[int]:
    """Where the values of a column lie."""
    return [chunk.buffers()[1].address for chunk in table.column(name).chunks]


def table_of(frame: object) -> pa.Table:
    _, tables = open_stream(frame)
    return pa.concat_tables(tables)


@pytest.mark.parametrize("texts", [False, True])
def test_numbers_of_pandas_are_where_the_frame_has_them(texts):
    pandas = pytest.importorskip("pandas", reason="the frame is one of pandas")
    frame = pandas.DataFrame({"n": NUMBERS, "v": PARTS})
    if texts:
        frame["mixed"] = pandas.Series([{"a": 1}] * 1000)
    table = table_of(frame)
    for name in ("n", "v"):
        assert addresses(table, name) == [frame[name].to_numpy().__array_interface__["data"][0]]
    assert table.column("n").to_pylist() == list(range(1000))


def test_numbers_of_polars_are_where_the_frame_has_them():
    polars = pytest.importorskip("polars", reason="the frame is one of Polars")
    frame = polars.DataFrame({"n": NUMBERS, "v": PARTS, "word": ["x"] * 1000})
    table = table_of(frame)
    for name in ("n", "v"):
        assert addresses(table, name) == [frame[name].to_numpy(allow_copy=False).__array_interface__["data"][0]]
