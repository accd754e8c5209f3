"""hudi-rs reads every kind of write, equal rows and types; each check has a twin that must fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from tests.compat.exemptions import Comparison
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.read.partial_rows import Step, make, run

pytestmark = pytest.mark.judge_rs

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("note", pa.string())]
)


def rows(first: int, last: int, ts: int = 1, note: str | None = "n") -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{i:04d}" for i in numbers],
            "city": [["sf", "são paulo", "a/b:c", None][i % 4] for i in numbers],
            "ts": [ts] * len(numbers),
            "fare": [i * 0.5 * ts for i in numbers],
            "note": [None if i % 7 == 0 else note for i in numbers],
        },
        schema=SCHEMA,
    )


def agree(judge: HudiRsJudge, table: lakefmt.Table, root: Path) -> None:
    assert_same_multiset(judge.snapshot(root), table.read(), what="hudi-rs against lakefmt")


@pytest.mark.parametrize("partition_by", [None, "city"])
@pytest.mark.parametrize("hive", [True, False])
def test_every_kind_of_write(tmp_path: Path, hudi_rs_judge: HudiRsJudge, partition_by: str | None, hive: bool) -> None:
    root = tmp_path / "trips"
    table = lakefmt.create_table(
        str(root),
        schema=SCHEMA,
        record_key="id",
        partition_by=partition_by,
        ordering="ts",
        properties={"hoodie.datasource.write.hive_style_partitioning": str(hive).lower()},
    )
    agree(hudi_rs_judge, table, root)
    loaded = table.bulk_insert(rows(0, 100))
    agree(hudi_rs_judge, table, root)
    inserted = table.insert(rows(100, 150))
    agree(hudi_rs_judge, table, root)
    assert table.upsert(rows(50, 200, ts=2)).num_updates == 100
    agree(hudi_rs_judge, table, root)
    late = table.upsert(rows(0, 100, ts=0))
    assert (late.num_updates, late.num_inserts) == (0, 0)
    agree(hudi_rs_judge, table, root)
    assert table.delete([f"k{i:04d}" for i in range(10)]).num_deletes == 10
    agree(hudi_rs_judge, table, root)
    assert table.delete("fare > 150").num_deletes == 49
    agree(hudi_rs_judge, table, root)
    assert table.read().num_rows == 141
    for result in (loaded, inserted):
        assert_same_multiset(hudi_rs_judge.as_of(root, result.instant), table.read(as_of=result.instant), what="as of")
    since = table.incremental(inserted.completion_time, late.completion_time)
    assert_same_multiset(
        hudi_rs_judge.incremental(root, inserted.completion_time, late.completion_time), since, what="increment"
    )
    assert since.num_rows == 150
    assert table.incremental(since.schema.metadata[b"lakefmt.next_start"].decode()).num_rows == 0


def _made(tmp_path: Path) -> tuple[lakefmt.Table, Path]:
    root = tmp_path / "trips"
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts")
    table.upsert(rows(0, 40))
    return table, root


def test_sabotage_one_value(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, root = _made(tmp_path)
    expected = table.read()
    file = root / table.file_groups()[0].base.path  # type: ignore[union-attr]
    content = pq.read_table(file, partitioning=None)
    fares = content.column("fare").to_pylist()
    fares[0] += 1e-9
    at = content.schema.get_field_index("fare")
    pq.write_table(content.set_column(at, content.schema.field(at), pa.array(fares)), file)
    with pytest.raises(AssertionError):
        assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what="sabotaged")


def test_sabotage_one_byte(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, root = _made(tmp_path)
    file = root / table.file_groups()[0].base.path  # type: ignore[union-attr]
    raw = bytearray(file.read_bytes())
    raw[-6] ^= 0xFF
    file.write_bytes(raw)
    with pytest.raises(Exception, match=r"."):
        hudi_rs_judge.snapshot(root)


def test_sabotage_one_file(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, root = _made(tmp_path)
    expected = table.read()
    (root / table.file_groups()[0].base.path).unlink()  # type: ignore[union-attr]
    with pytest.raises(AssertionError):
        assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what="a file is missing")


def test_sabotage_the_completed_instant(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, root = _made(tmp_path)
    expected = table.read()
    (completed,) = (root / ".hoodie/timeline").glob("*_*.commit")
    shutil.move(completed, completed.with_suffix(".gone"))
    assert expected.num_rows == 40
    with pytest.raises(AssertionError):
        assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what="never completed")
    assert table.read().num_rows == 0


def test_notes_are_ignored_by_hudi_rs(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, root = _made(tmp_path)
    assert json.loads((root / ".hoodie/.lakefmt/table.json").read_text()) == {"index": "bloom"}
    agree(hudi_rs_judge, table, root)


def test_hudi_rs_leaves_a_late_row_out(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, record_property: Callable[[str, object], None]
) -> None:
    """It lays rows over each other in another way; exempted by name, and the exemption has to be needed."""
    told = Comparison("hudi-rs", "late row behind a partial row")
    table = make(str(tmp_path / "t"), 9)
    row = {"id": "k", "ts": 100, "a": 1, "b": 1, "c": 1}
    for step in (
        Step("full", rows=(row,)),
        Step("partial", ("ts", "a"), ({"id": "k", "ts": 200, "a": 2},)),
        Step("full", rows=({**row, "ts": 150, "a": 3, "b": 3, "c": 3},)),
    ):
        run(table, step)
    assert table.read().to_pylist() == [{"id": "k", "ts": 200, "a": 2, "b": 3, "c": 3}]
    told.add("snapshot", table.read(), hudi_rs_judge.snapshot(tmp_path / "t"))
    told.finish(record_property)
