"""Every setting of ``hoodie.metadata.index.column.stats.column.list`` works with every service.

``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) tries every setting with every kind of table.
"""

from __future__ import annotations

import datetime
import itertools
import os
from decimal import Decimal

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from tests.metadata.metadata_content import check_metadata_table

THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
MOMENT = datetime.datetime(2024, 1, 1)
GEO = pa.struct([("lat", pa.float64()), ("seen", pa.timestamp("us", "UTC"))])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("address", pa.struct([("zip", pa.int32()), ("geo", GEO)])),
        ("tags", pa.list_(pa.string())),
        ("parts", pa.list_(pa.struct([("x", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(10, 2)),
        ("big", pa.decimal128(38, 2)),
        ("date", pa.date32()),
        ("ms", pa.timestamp("ms", "UTC")),
        ("bin", pa.binary()),
    ]
)
SETTINGS = {
    "nested": "id,address.zip",
    "deep": "address.geo.lat,address.geo.seen",
    "a struct": "address",
    "lists": "tags,tags.element,tags.list.element,parts.element.x,parts.x",
    "maps": "m,m.key,m.key_value.key,m.value",
    "wrong": "nope,id.x,address.nope,,id",
    "all": ",".join(SCHEMA.names),
    "twice": "id,id,address.zip,address.zip",
    "spaces": " id , address.zip ",
}
KINDS = list(itertools.product((6, 8, 9), ("cow", "mor")))
CASES = [(name, *KINDS[(number * 5 + 3) % len(KINDS)]) for number, name in enumerate(SETTINGS)]
if THOROUGH:
    CASES = [(name, *kind) for name, kind in itertools.product(SETTINGS, KINDS)]
NUMBERS = itertools.count()


def rows(ids: list[str], n: int) -> pa.Table:
    one = {
        "ts": n,
        "address": {"zip": n, "geo": {"lat": n / 3, "seen": MOMENT}} if n % 3 else None,
        "tags": ["x"],
        "parts": [{"x": n}],
        "m": [("k", n)],
        "b": n % 2 == 0,
        "i": n,
        "f": n / 2,
        "d": float("nan") if n % 4 == 0 else n / 3,
        "dec": Decimal(n),
        "big": Decimal(n),
        "date": MOMENT.date(),
        "ms": MOMENT,
        "bin": b"x",
    }
    return pa.Table.from_pylist(
        [{"id": each, "city": ("sf", "oslo")[ord(each) % 2], **one} for each in ids], schema=SCHEMA
    )


def made(columns: str, version: int, table_type: str) -> Table:
    options = {
        "hoodie.metadata.index.column.stats.column.list": columns,
        "hoodie.metadata.compact.max.delta.commits": 4,
        "hoodie.clean.automatic": False,
        "hoodie.archive.automatic": False,
        "lakefmt.durability": "none",
        "lakefmt.write.threads": 1,
    }
    return lakefmt.create_table(
        f"memory://statistics-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        indexes=["column_stats"],
        options=options,
    )


def run_services(table: Table, table_type: str) -> None:
    """Run every service and undo what can be undone; the metadata table is right after each."""
    for n in (1, 2, 3):
        assert not table.upsert(rows(["a", "b", "c"], n)).warnings
    if table_type == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        for n in (4, 5):
            table.upsert(rows(["a"], n))
        table.compact(log=True, options={"hoodie.log.compaction.blocks.threshold": 2})
        check_metadata_table(table)
    assert table.clean(options={"hoodie.clean.commits.retained": 1}).files_deleted
    check_metadata_table(table)
    table.cluster(["id"])
    check_metadata_table(table)
    kept = table.savepoint().instant
    undone = table.upsert(rows(["d"], 6)).instant
    assert undone is not None
    table.rollback(undone)
    check_metadata_table(table)
    table.upsert(rows(["d"], 7))
    table.restore(kept)
    table.delete_savepoint(kept)
    check_metadata_table(table)


def alter_and_run_services(table: Table) -> None:
    table.alter.add_column("address.new", pa.int64())
    table.alter.rename_column("address.zip", "code")
    table.alter.update_column("i", type=pa.int64())
    table.alter.drop_column("dec")
    assert not table.upsert(table.read()).warnings
    assert table.clean(options={"hoodie.clean.commits.retained": 1}).files_deleted
    table.delete_partitions(["oslo"])
    table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version", "table_type"), CASES)
def test_every_service_runs_with_statistics_of(name: str, version: int, table_type: str):
    table = made(SETTINGS[name], version, table_type)
    run_services(table, table_type)
    if version == 6:  # an altered table of it is upgraded with Spark
        table.upgrade(8)
        check_metadata_table(table)
    alter_and_run_services(table)
    if version == 8:
        table.upgrade(9)
        assert not table.upsert(table.read()).warnings
    assert table.read().column("id").to_pylist() == ["b"]
    assert not table.check("full").findings


def test_the_first_automatic_clean_removes_statistics_of_nested_fields():
    table = made("id,address.zip", 9, "cow")
    for n in range(1, 5):
        result = table.upsert(
            rows(["a"], n), options={"hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1}
        )
        assert not result.warnings
    assert any(instant.action.value == "clean" for instant in table.timeline.timeline.completed)
    check_metadata_table(table)
