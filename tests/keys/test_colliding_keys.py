"""Composite keys that read the same: found exactly when two different rows have one record key in Hudi's form."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.keys import build_record_keys, check_colliding_keys, plan_key_spec
from lakefmt._core.table import Table
from lakefmt.errors import InvalidKey

OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("p", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
#: Pieces of which texts are made that may be taken for the separators of a key.
PIECES = ["x", "y", ",", ":", ",b:", ",c:", "b:", "__null__", "__empty__", ""]
TEXTS = st.none() | st.lists(st.sampled_from(PIECES), max_size=3).map("".join)


def hudi_key(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the key as Hudi's complex key generator joins it."""
    shown = ["__null__" if value is None else value or "__empty__" for value in values]
    return ",".join(f"{name}:{value}" for name, value in zip(names, shown, strict=True))


@given(st.data(), st.integers(2, 3))
def test_rows_collide_when_a_dictionary_says_so(data: st.DataObject, count: int) -> None:
    names = ("a", "b", "c")[:count]
    rows = data.draw(st.lists(st.tuples(*[TEXTS] * count).filter(any), min_size=1, max_size=8))
    table = pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
    spec = plan_key_spec(list(names), None)
    keys = build_record_keys(spec, table)
    assert keys.to_pylist() == [hudi_key(names, row) for row in rows]
    by_key: dict[str, set[tuple[str | None, ...]]] = {}
    for row in rows:
        by_key.setdefault(hudi_key(names, row), set()).add(row)
    if max(map(len, by_key.values())) > 1:
        with pytest.raises(InvalidKey, match="one record key"):
            check_colliding_keys(spec, table, keys)
    else:
        check_colliding_keys(spec, table, keys)


def rows(*values: tuple[str, str, str]) -> pa.Table:
    columns = list(zip(*values, strict=True))
    return pa.table([*map(pa.array, columns), pa.array(range(len(values)))], schema=SCHEMA)


def make(**asked: object) -> Table:
    return lakefmt.create_table(
        f"memory://colliding-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key=["a", "b"],
        partition_by="p",
        options=OPTIONS,
        **asked,
    )  # type: ignore[arg-type]


TWO = (("x,b:y", "z", "p1"), ("x", "y,b:z", "p1"))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_different_rows_are_not_merged_and_both_are_named(table_type: str) -> None:
    table = make(table_type=table_type)
    table.upsert(rows(("q", "r", "p1")))
    with pytest.raises(InvalidKey, match=r"rows 1 and 2 differ .*\(a, b\).*'a:x,b:y,b:z'.*colliding_keys=merge"):
        table.upsert(rows(("k", "k", "p1"), *TWO))
    assert table.read().num_rows == 1
    assert not table.client.load().timeline.pending
    assert table.upsert(rows(*TWO), options={"lakefmt.write.colliding_keys": "merge"}).num_inserts == 1
    assert table.read(["a", "b"]).num_rows == 2


def test_what_is_not_merged_is_not_refused() -> None:
    table = make()
    assert table.insert(rows(*TWO)).num_inserts == 2
    # In two partitions they are two records; the same row twice is one.
    apart = (TWO[0], (*TWO[1][:2], "p2"))
    assert make().upsert(rows(*apart)).num_inserts == 2
    assert make().upsert(rows(TWO[0], TWO[0])).num_inserts == 1
    with pytest.raises(InvalidKey, match="one record key"):
        make(index="global_bloom").upsert(rows(*apart))
    with pytest.raises(InvalidKey, match="one record key"):
        make().insert(rows(*TWO), drop_duplicates=True)
