"""``lakefmt.year``, ``month``, ``day`` and ``hour`` make the partitions that their pattern makes, of every kind of time."""

from __future__ import annotations

import itertools
from datetime import date, datetime

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import InvalidKey

NUMBERS = itertools.count()
AT = datetime(2026, 1, 31, 23, 59)
PATHS = {
    lakefmt.year: ("yyyy", "2026"),
    lakefmt.month: ("yyyy/MM", "2026/01"),
    lakefmt.day: ("yyyy/MM/dd", "2026/01/31"),
    lakefmt.hour: ("yyyy/MM/dd/HH", "2026/01/31/23"),
}
PLAIN = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
}


def made(partition_by: object, kind: pa.DataType, **how: object) -> lakefmt.Table:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", kind)])
    return lakefmt.create_table(
        f"memory://periods-{next(NUMBERS)}", schema=schema, record_key="id", partition_by=partition_by, **how
    )


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("us"), pa.date32()], ids=str
)
@pytest.mark.parametrize("period", list(PATHS), ids=lambda period: period.__name__)
def test_a_period_is_its_pattern(period, kind: pa.DataType, version: int) -> None:
    pattern, path = PATHS[period]
    is_date = pa.types.is_date(kind)
    value = date(2026, 1, 31) if is_date else AT
    expected = path.replace("/23", "/00") if is_date else path
    said = made(period("ts"), kind, table_version=version)
    spelled = made(f"ts:timestamp({pattern})", kind, table_version=version)
    for table in (said, spelled):
        table.upsert(
            pa.table(
                {
                    "id": ["a"],
                    "city": ["sf"],
                    "ts": pa.array([value], pa.timestamp("us") if not is_date else kind).cast(kind),
                }
            )
        )
        assert table.partitions() == [f"ts={expected.replace('/', '%2F')}"]
        assert table.read().num_rows == 1
    drop = {"hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema"}
    one, other = (
        {k: v for k, v in t.client.load_config().properties.items() if k not in drop} for t in (said, spelled)
    )
    assert one == other


def test_a_period_stands_beside_other_columns() -> None:
    table = made(["city", lakefmt.day("ts")], pa.timestamp("us", "UTC"), table_version=8)
    table.upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": pa.array([AT], pa.timestamp("us", "UTC"))}))
    assert table.partitions() == ["city=sf/ts=2026%2F01%2F31"]


@pytest.mark.parametrize("wrong", ["", " ", "a,b", "a:b", "a(b)", None, 3, ["ts"]])
def test_what_is_no_column_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidKey, match="name of one column"):
        lakefmt.day(wrong)  # type: ignore[arg-type]
