"""Milliseconds that a file labels as microseconds are the times of the table's schema, wherever they stand.

Hudi 0.14 to 1.0 wrote such files where a table says ``timestamp-millis``; newer releases repair them as they read. Here the label
of the table is changed afterwards, so that its files have the wrong one.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt

MILLIS = [1641092645678, 1700000000001, -1, 253402300799000 - 1]
KINDS = [(version, kind) for version in (6, 8, 9) for kind in ("cow", "mor")]
UTC_MICROS, UTC_MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")


def _time(unit: str) -> pa.DataType:
    return pa.timestamp(unit, "UTC")


def _rows(millis: list[int], unit: str, first: int = 0) -> pa.Table:
    """Rows whose numbers are milliseconds, whatever the label says."""
    kind = _time(unit)
    times = pa.array(millis, pa.int64()).cast(kind)
    ends = pa.array(range(len(millis) + 1), pa.int32())
    names = pa.array([f"k{n}" for n in range(len(millis))])
    return pa.table(
        {
            "id": [f"r{first + n}" for n in range(len(millis))],
            "t": times,
            "s": pa.StructArray.from_arrays([times], ["at"]),
            "l": pa.ListArray.from_arrays(ends, times),
            "m": pa.MapArray.from_arrays(ends, names, times),
            "n": list(range(len(millis))),
        }
    )


def _mislabel(path: Path) -> None:
    """Make the table say milliseconds; its files stay as they are."""
    for file in (path / ".hoodie").rglob("*"):
        is_instant = file.is_file() and "metadata" not in file.relative_to(path / ".hoodie").parts
        if is_instant and (file.name.endswith("commit") or file.name == "hoodie.properties"):
            file.write_bytes(file.read_bytes().replace(b"timestamp-micros", b"timestamp-millis"))


def _mislabelled(path: Path, version: int, kind: str, **more: object) -> lakefmt.Table:
    rows = _rows(MILLIS, "us")
    table = lakefmt.create_table(path, data=rows, record_key="id", table_version=version, table_type=kind, **more)
    table.upsert(rows.slice(0, 2))
    table.upsert(rows)  # in logs of a merge-on-read table
    _mislabel(path)
    return lakefmt.open_table(path)


def _assert_repaired(rows: pa.Table, expected: pa.Table) -> None:
    assert rows.sort_by("id").select(expected.column_names).to_pylist() == expected.sort_by("id").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_times_are_read_at_every_depth_and_written_back_right(tmp_path, version, kind):
    table = _mislabelled(tmp_path / "t", version, kind)
    expected = _rows(MILLIS, "ms")
    _assert_repaired(table.read(), expected)
    assert table.read(columns=["t"])["t"].type == UTC_MILLIS
    one = expected.slice(1, 1)
    for condition in (pc.field("t") == one["t"][0], pc.field("s", "at") == one["t"][0]):
        _assert_repaired(table.read(filter=condition), one)
    assert table.read(filter=pc.field("t") < dt.datetime(1971, 1, 1, tzinfo=dt.UTC))["n"].to_pylist() == [2]

    more = _rows([1700000000002], "ms", first=9)
    table.upsert(more)
    _assert_repaired(table.read(), pa.concat_tables([expected, more]))
    _assert_repaired(lakefmt.open_table(tmp_path / "t").incremental("0"), pa.concat_tables([expected, more]))
    if kind == "mor":
        table.compact()
        _assert_repaired(table.read(), pa.concat_tables([expected, more]))
    table.cluster()
    _assert_repaired(table.read(), pa.concat_tables([expected, more]))
    assert not lakefmt.open_table(tmp_path / "t").check("full").findings


@pytest.mark.slow
@pytest.mark.parametrize("version", [8, 9])
def test_statistics_leave_out_no_repaired_time(tmp_path, version):
    millis = [MILLIS[0] + 86_400_000 * 365 * number for number in range(14)]
    rows, path = _rows(millis, "us"), tmp_path / "t"
    table = lakefmt.create_table(path, data=rows, record_key="id", partition_by="n", table_version=version)
    table.upsert(rows)
    table.index.create("column_stats")
    _mislabel(path)
    chosen = lakefmt.open_table(path)
    late = chosen.read(filter=pc.field("t") > pa.scalar(millis[9], UTC_MILLIS))
    assert sorted(late["n"].to_pylist()) == [10, 11, 12, 13]
    assert chosen.read(filter=pc.field("t") == pa.scalar(millis[3], UTC_MILLIS))["n"].to_pylist() == [3]
    chosen.upsert(_rows(millis, "ms"))
    left = chosen.explain(filter=pc.field("t") == pa.scalar(millis[3], UTC_MILLIS))
    assert "column_stats" in str(left)


@pytest.mark.parametrize("version", [8, 9])
def test_changes_have_repaired_times(tmp_path, version):
    rows, path = _rows(MILLIS, "us"), tmp_path / "t"
    captured = {"hoodie.table.cdc.enabled": "true"}
    table = lakefmt.create_table(path, data=rows, record_key="id", table_version=version, properties=captured)
    first = table.upsert(rows)
    table.upsert(rows.set_column(5, "n", pc.add(rows["n"], 1)))
    _mislabel(path)
    changes = lakefmt.open_table(path).changes(first.completion_time).to_pylist()
    expected = _rows(MILLIS, "ms")["t"].to_pylist()
    for side in ("before", "after"):
        assert sorted(str(row[side]["t"]) for row in changes) == sorted(map(str, expected))
