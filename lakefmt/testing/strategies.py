"""Hypothesis strategies: table shapes, rows, batches, operations.

The only module of lakefmt that needs hypothesis (``pip install "hypothesis>=6.100"``). There are
few keys, partitions and ordering values, so that updates, ties and late rows are frequent.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any, Final

import pyarrow as pa

from lakefmt.errors import UnsupportedFeature
from lakefmt.testing.model import Row
from lakefmt.testing.operations import VERBS, TableShape, Verb

try:
    from hypothesis import strategies as st
except ImportError:
    raise UnsupportedFeature("lakefmt.testing.strategies needs hypothesis: pip install 'hypothesis>=6.100'") from None

__all__ = ["KEYS", "PLACES", "TYPES", "batches", "rows", "schemas", "shapes", "values", "verbs"]

#: Common keys: short ones, and some that need careful encoding.
KEYS: Final = ("k0", "k1", "k2", "k3", "k4", "ключ", "a:b,c", "x/y z", "\U0001f986", "K0")
#: Partition values, some of which need encoding.
PLACES: Final = ("sf", "oslo", "são/paulo", "a=b c", None)

_POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])
_NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 1, tzinfo=dt.UTC)
#: Column type → interesting values; nulls are added.
TYPES: Final[dict[pa.DataType, Sequence[object]]] = {
    pa.string(): ["", "a", "ä\U0001f986", "x" * 40],
    pa.int32(): [0, -1, 2**31 - 1],
    pa.int64(): [0, 7, -(2**63)],
    pa.float32(): [0.0, 1.5, float("inf")],
    pa.float64(): [0.0, -2.25, float("nan")],
    pa.bool_(): [True, False],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-12345678.90")],
    pa.date32(): [dt.date(1969, 12, 31), dt.date(2026, 1, 2)],
    pa.timestamp("us", "UTC"): [_NOON, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    pa.binary(): [b"", b"\x00\xff"],
    pa.list_(pa.string()): [[], ["a", ""]],
    pa.map_(pa.string(), pa.int64()): [[], [("k", 1), ("l", None)]],
    _POINT: [{"x": 1.0, "name": None}, {"x": None, "name": "p"}],
}


def values(kind: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a column of one of :data:`TYPES`.

    Example:
        >>> values(pa.bool_(), nullable=False)
        sampled_from([True, False])
    """
    choices = [*TYPES[kind], None] if nullable else [*TYPES[kind]]
    return st.sampled_from(choices)


@st.composite
def schemas(draw: st.DrawFn, max_columns: int = 2) -> pa.Schema:
    """Draw a schema: ``id`` (key), ``city`` (partition), ``ts`` (ordering), ``v``, and up to `max_columns` others."""
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), max_size=max_columns))
    fixed = [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
    return pa.schema([*fixed, *((f"c{number}", data_type) for number, data_type in enumerate(kinds))])


@st.composite
def shapes(
    draw: st.DrawFn,
    versions: Sequence[int] = (6, 8, 9),
    indexes: Sequence[str] = ("bloom", "simple", "global_bloom", "global_simple"),
) -> TableShape:
    """Draw a table shape: columns, partitioned or not, ordered or not, index, version."""
    return TableShape(
        draw(schemas()),
        partition_by=draw(st.sampled_from(["city", None])),
        ordering=draw(st.sampled_from(["ts", None])),
        index=draw(st.sampled_from(list(indexes))),
        moves=draw(st.sampled_from([True, True, False])),
        table_version=draw(st.sampled_from(list(versions))),
    )


def rows(shape: TableShape) -> st.SearchStrategy[Row]:
    """Return a strategy for a row of a table."""
    return st.fixed_dictionaries({name: _column(shape, name) for name in shape.schema.names})


def _column(shape: TableShape, name: str) -> st.SearchStrategy[Any]:
    data_type = shape.schema.field(name).type
    if name == shape.record_key:
        return st.sampled_from(KEYS) if pa.types.is_string(data_type) else values(data_type, nullable=False)
    if name in (shape.partition_by, "city") and pa.types.is_string(data_type):
        return st.sampled_from(PLACES)
    if name in (shape.ordering, "ts") and pa.types.is_integer(data_type):
        return st.sampled_from([None, 0, 1, 2, 3])
    return st.integers(0, 4) if name == "v" else values(data_type)


def batches(shape: TableShape, min_rows: int = 1, max_rows: int = 6) -> st.SearchStrategy[tuple[Row, ...]]:
    """Return a strategy for the rows of a batch; ``shape.as_table`` converts them to Arrow."""
    return st.lists(rows(shape), min_size=min_rows, max_size=max_rows).map(tuple)


def verbs(shape: TableShape, names: Sequence[str] = VERBS, max_rows: int = 6) -> st.SearchStrategy[Verb]:
    """Return a strategy for operations on a table.

    Args:
        shape: the table shape.
        names: a subset of :data:`~lakefmt.testing.operations.VERBS`; those that need partitions are
            dropped without them.
        max_rows: the maximum rows of a batch.

    Example:
        >>> verbs(TableShape(pa.schema([("id", pa.string()), ("v", pa.int64())])), ["rollback"])
        just(Verb(name='rollback', ...))
    """
    verb_names = [name for name in names if shape.partition_by or name != "delete_partitions"]
    return st.one_of([_verb(shape, name, max_rows) for name in verb_names])


def _verb(shape: TableShape, name: str, max_rows: int) -> st.SearchStrategy[Verb]:
    some = st.just(name)
    keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(tuple)
    where = st.tuples(st.just("v"), st.integers(0, 5))
    if name == "rollback":
        return st.just(Verb(name))
    if name == "delete":
        return st.builds(Verb, some, keys=keys)
    if name == "delete_where":
        return st.builds(Verb, some, where=where)
    if name == "soft_delete":
        return st.builds(Verb, some, keys=keys, columns=st.just(shape.free_columns))
    if name == "update":
        return st.builds(Verb, some, where=where, values=st.fixed_dictionaries({"v": st.integers(3, 7)}))
    if name == "delete_partitions":
        some_places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=3, unique=True).map(tuple)
        return st.builds(Verb, some, places=some_places)
    brought = batches(shape, 0 if name == "insert_overwrite_table" else 1, max_rows)
    if name == "partial_upsert":
        return st.builds(Verb, some, rows=brought, columns=_some_columns(shape))
    if name == "bulk_insert":
        how = st.fixed_dictionaries({"sort": st.sampled_from(["none", "partition", "global"])})
        return st.builds(Verb, some, rows=brought, how=how)
    return st.builds(Verb, some, rows=brought)


def _some_columns(shape: TableShape) -> st.SearchStrategy[tuple[str, ...]]:
    """The key, the partition, and some other columns, for a partial upsert."""
    needed = {name for name in (shape.record_key, shape.partition_by) if name}
    rest = [name for name in shape.schema.names if name not in needed]
    several = [{*needed}, *({*needed, name} for name in rest), *({*needed, *pair} for pair in combinations(rest, 2))]
    return st.sampled_from([tuple(name for name in shape.schema.names if name in some) for some in several])
