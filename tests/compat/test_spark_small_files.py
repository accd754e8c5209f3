"""Small files that lakefmt has merged: Spark reads the table, changes rows of what was merged, and fills its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt._core.values import CommitResult, WriteOperation
from lakefmt._core.write.transaction import WriteTransaction
from tests.compat.test_spark_record_index import FEW, SCHEMA, SPARK, Expected
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge
from tests.metadata.metadata_content import check_metadata_table

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600)]


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    columns = {
        "id": [f"key-{n:04d}" for n in numbers],
        "city": ["ny"] * len(numbers),
        "v": [1000 * ts + n for n in numbers],
        "ts": [ts] * len(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


def append(table: Table, expected: Expected, first: int, batches: int, ts: int) -> None:
    for number in range(batches):
        done = table.insert(expected.upsert(rows(first + 3 * number, first + 3 * number + 3, ts)))
        assert done.warnings == ()


def merges(table: Table) -> set[str]:
    """The instants that merged files and are not archived yet."""
    state = table.client.load()
    return {
        each.time
        for each in state.timeline.commits
        if table.client.at(state).commit_metadata(each).operation is WriteOperation.CLUSTER
    }


@pytest.mark.parametrize(("kind", "version", "index"), [("cow", 9, "record"), ("mor", 8, "bloom")])
def test_spark_goes_on_with_a_table_whose_small_files_were_merged(
    kind: str, version: int, index: str, tmp_path: Path, spark_judge: SparkJudge
) -> None:
    root, expected = tmp_path / f"small_{kind}", Expected()
    how: dict[str, Any] = {"table_type": kind, "table_version": version, "index": index, "options": FEW}
    table = lakefmt.create_table(root, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", **how)
    append(table, expected, 0, 20, 1)
    first_merge = merges(table)
    assert first_merge
    asked = {"hoodie.metadata.enable": "true"} if index == "record" else {"hoodie.metadata.enable": "false"}
    spark_judge.assert_same_rows(root, expected.table(), options=asked)
    by_spark = {"options": SPARK, "index": "RECORD_INDEX"} if index == "record" else {"options": asked}
    spark_judge.write(root, expected.upsert(rows(30, 80, 2)), **by_spark)
    assert_same_multiset(table.read(), expected.table(), what="lakefmt")
    append(table, expected, 200, 20, 3)
    assert merges(table) - first_merge
    table.upsert(expected.upsert(rows(20, 210, 4)))
    table.delete(expected.delete("key-0003"))
    assert_same_multiset(table.read(), expected.table(), what="lakefmt")
    spark_judge.assert_same_rows(root, expected.table(), options=asked)
    if index == "record":
        check_metadata_table(table)


def test_a_merge_that_leaves_the_small_files_visible_is_seen_by_spark(
    tmp_path: Path, spark_judge: SparkJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = WriteTransaction.commit

    def hides_nothing(self: WriteTransaction, statuses: Any, replaced: Any = None) -> CommitResult:
        return whole(self, statuses, {} if self.context.operation is WriteOperation.CLUSTER else replaced)

    monkeypatch.setattr(WriteTransaction, "commit", hides_nothing)
    root, expected = tmp_path / "small_sabotaged", Expected()
    table = lakefmt.create_table(root, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts")
    append(table, expected, 0, 17, 1)
    with pytest.raises(AssertionError):
        spark_judge.assert_same_rows(root, expected.table())
