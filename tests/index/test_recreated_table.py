"""A handle that is open while its table is dropped and made anew finds keys as the new table does."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage.open import open_store

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()


def rows(city: str, v: int) -> pa.Table:
    return pa.table({"id": ["a"], "city": [city], "v": [v]}, schema=SCHEMA)


def made(url: str, index: str) -> lakefmt.Table:
    return lakefmt.create_table(url, schema=SCHEMA, record_key="id", partition_by="city", index=index, name="t")


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize(("first", "then"), [("bloom", "global_bloom"), ("global_simple", "simple")])
def test_an_open_handle_takes_the_index_of_the_table_that_is_there_now(
    place: str, first: str, then: str, tmp_path: Path
) -> None:
    url = str(tmp_path / "t") if place == "local" else f"memory://recreated-{next(NUMBERS)}"
    handle = made(url, first)
    handle.upsert(rows("x", 1))
    handle.upsert(rows("x", 2))
    if place == "local":
        shutil.rmtree(url)
    else:
        open_store(url).delete_tree("")
    other = made(url, then)
    other.upsert(rows("x", 1))
    handle.upsert(rows("y", 7))
    found = sorted(other.read(["city", "v"]).to_pylist(), key=str)
    moved = [{"city": "y", "v": 7}]
    assert found == (moved if then == "global_bloom" else [{"city": "x", "v": 1}, *moved])
