"""Tables that merge by a function of ours: Spark reads what needs no merging and refuses the rest."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from tests.compat.tables import plain_rows
from tests.judges.spark import JudgeError, SparkJudge

pytestmark = pytest.mark.judge_spark


def add(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Return the newer rows with both sums of `ts`."""
    return newer.set_column(newer.schema.get_field_index("ts"), "ts", pa.compute.add(older["ts"], newer["ts"]))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_spark_refuses_to_merge_by_a_function_that_it_does_not_have(
    tmp_path: Path, spark_judge: SparkJudge, table_type: str
) -> None:
    root = tmp_path / "t"
    schema = plain_rows(1).schema
    table = lakefmt.create_table(str(root), schema=schema, record_key="id", table_type=table_type, merge=add)
    table.upsert(plain_rows(4, ts=1))
    table.upsert(plain_rows(4, ts=2))
    assert set(table.read()["ts"].to_pylist()) == {3}
    if table_type == "cow":
        spark_judge.assert_same_rows(root, table.read())
    else:
        with pytest.raises(JudgeError):
            spark_judge.snapshot(root)
    with pytest.raises(JudgeError, match="No valid merger implementation"):
        spark_judge.write(root, plain_rows(4, ts=4))
    assert set(table.read()["ts"].to_pylist()) == {3}, "nothing of the refused write shows"
    if table_type == "mor":
        assert table.compact(verify=True).instant is not None
        spark_judge.assert_same_rows(root, table.read(), what="compacted")
