"""A key is one row of the whole table: streams delete and move it from any partition, whatever else a commit holds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream.options import FlushMode
from tests.producers.stream.stream_kit import make, rows_of, table_over

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
QUICK = {"flush_mode": FlushMode.MANUAL_FLUSH, "flush_interval": 0, "commit_interval": 60_000}
STORED = [{"id": f"k{n}", "p": "p0", "ts": 2, "v": n} for n in range(4)]

everywhere = pytest.mark.parametrize(
    ("index", "table_type", "ordering"),
    [
        ("global_bloom", "cow", None),
        ("global_bloom", "mor", "ts"),
        ("global_simple", "cow", "ts"),
        ("global_simple", "mor", None),
        ("record_index", "mor", "ts"),
    ],
)


@everywhere
def test_a_commit_that_deletes_a_key_and_moves_another(index: str, table_type: str, ordering: str | None) -> None:
    store = make(schema=SCHEMA, partition_by="p", index=index, table_type=table_type, ordering=ordering)
    table_over(store).upsert(STORED)
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "k0", "p": "p1", "ts": 3, "v": 10})
        stream.delete({"id": "k1", "p": "p0"})
        stream.flush()
        place = "p0" if index == "record_index" else "p1"  # which leaves a key where it is stored
        expected = [*STORED[2:], {"id": "k0", "p": place, "ts": 3, "v": 10}]
        uncommitted = table_over(store)
        assert rows_of(uncommitted.read(include_uncommitted=True)) == expected
        assert rows_of(uncommitted.read(filter=f"p = '{place}' and v = 10", include_uncommitted=True)) == expected[-1:]
    assert rows_of(table_over(store).read()) == expected


@everywhere
def test_a_delete_finds_its_key_in_another_partition(index: str, table_type: str, ordering: str | None) -> None:
    store = make(schema=SCHEMA, partition_by="p", index=index, table_type=table_type, ordering=ordering)
    table_over(store).upsert(STORED)
    with table_over(store).open_stream(**QUICK) as stream:
        stream.delete({"id": "k1", "p": "p1"})
        stream.extend([{"id": "k2", "p": "p9"}], "delete")
        stream.flush()
        assert rows_of(table_over(store).read(include_uncommitted=True)) == [STORED[0], STORED[3]]
    assert rows_of(table_over(store).read()) == [STORED[0], STORED[3]]
    if ordering:  # a delete that is older than the stored row does nothing
        with table_over(store).open_stream(**QUICK) as stream:
            stream.delete({"id": "k3", "p": "p1", "ts": 1})
        assert rows_of(table_over(store).read()) == [STORED[0], STORED[3]]
