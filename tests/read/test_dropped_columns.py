"""Tables whose files lack the partition columns: the path gives them back, typed (docs/format.md, Partition paths). hudi-rs refuses such tables."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import open_store
from lakefmt._core.table import Table, open_table
from lakefmt.errors import UnsupportedFeature
from lakefmt.testing.stores import CountingStore
from tests.judges.compare import assert_same_multiset

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("n", pa.int32()),
        ("day", pa.date32()),
        ("x", pa.float64()),
        ("pos", pa.struct([("a", pa.int32())])),
    ]
)
ROWS = pa.table(
    {
        "id": [f"k{i}" for i in range(8)],
        "city": ["a/b", "são", None, "100%"] * 2,
        "n": pa.array([1, 2, None, -3] * 2, pa.int32()),
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 3)] * 2, pa.date32()),
        "x": [i / 2 for i in range(8)],
        "pos": [{"a": i} for i in range(8)],
    },
    schema=SCHEMA,
)


def without(root: Path, columns: list[str]) -> None:
    """Take columns out of every file, and say so in the properties."""
    for file in root.rglob("*.parquet"):
        content = pq.read_table(file, partitioning=None)
        pq.write_table(content.drop_columns(columns), file, store_schema=False)
    properties = root / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.datasource.write.drop.partition.columns=true\n")


def make(root: Path, partition_by: list[str], **how: Any) -> Table:
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by=partition_by, **how)
    table.insert(ROWS)
    without(root, partition_by)
    return open_table(str(root))


@pytest.mark.parametrize("partition_by", [["city"], ["n"], ["day"], ["city", "day"]])
def test_values_come_back_from_the_path_with_their_types(tmp_path: Path, partition_by: list[str]) -> None:
    table = make(tmp_path / "t", partition_by)
    assert_same_multiset(table.read(), ROWS)
    assert_same_multiset(table.scan().read_all(), ROWS)
    assert_same_multiset(table.read([*partition_by, "id"]), ROWS.select([*partition_by, "id"]))
    assert table.read(filter=[(partition_by[0], "is", None)]).num_rows == 2


def test_filters_on_them_prune_and_filter(tmp_path: Path) -> None:
    make(tmp_path / "t", ["city", "n"])
    store = CountingStore(open_store(str(tmp_path / "t")))
    table = Table(TableClient(store))
    assert table.read(["id"], "city = 'a/b' and n > 0").column("id").to_pylist() == ["k0", "k4"]
    opened = {one.name.partition("/")[0] for one in store.log if one.kind == "range"}
    assert opened == {"city=a%2Fb"}
    assert sorted(table.read(["id"], "city <> 'a/b' or n is null")["id"].to_pylist()) == [
        "k1",
        "k2",
        "k3",
        "k5",
        "k6",
        "k7",
    ]


def test_increments_have_them_too(tmp_path: Path) -> None:
    table = make(tmp_path / "t", ["city"])
    assert_same_multiset(table.incremental("000"), ROWS)


def test_older_files_with_other_nested_types_have_them_too(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="city")
    table.insert(ROWS.slice(0, 4))
    wider = pa.table(
        {
            **{name: ROWS.slice(4).column(name) for name in SCHEMA.names[:-1]},
            "pos": pa.array([{"a": i, "b": "y"} for i in range(4)], pa.struct([("a", pa.int32()), ("b", pa.string())])),
        }
    )
    table.bulk_insert(wider)
    expected = table.read()
    without(root, ["city"])
    assert_same_multiset(open_table(str(root)).read(), expected)
    assert expected.schema.field("pos").type.num_fields == 2


def test_paths_that_do_not_determine_the_value_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", ["x"])
    with pytest.raises(UnsupportedFeature, match="does not determine x"):
        table.read()
