"""Spark goes on with a metadata table whose timeline lakefmt has archived, and lakefmt goes on after it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.metadata.timeline import MetadataTimelineStore
from tests.compat.test_spark_metadata import INDEXES, SCHEMA, TOLD, judge, merged, rows
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge
from tests.metadata.metadata_content import check_metadata_table

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600), pytest.mark.every_second_day(0)]

SHORT = {
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.clean.commits.retained": "2",
    "hoodie.clean.automatic": "true",
    "hoodie.archive.automatic": "true",
    "hoodie.metadata.compact.max.delta.commits": "4",
}


def test_spark_goes_on_after_the_metadata_tables_timeline_was_archived(tmp_path: Path, spark_judge: SparkJudge) -> None:
    root = tmp_path / "archived"
    options = {**INDEXES, **SHORT}
    table = lakefmt.create_table(
        root, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", table_version=9, options=options
    )
    expected = rows(0, 30, 1)
    table.upsert(expected)
    for number in range(2, 34):
        part = rows(number, number + 4, number)
        table.upsert(part)
        expected = merged(expected, part)
    store = MetadataTimelineStore(table.client.store, table.properties.version, durable=False)
    names = set(table.properties.metadata_partitions)
    assert len(store.load().instants) < 60
    assert list((root / ".hoodie/metadata/.hoodie/timeline/history").glob("*.parquet"))
    judge(root, table, spark_judge, expected)
    for turn in range(2):
        theirs, ours = rows(20, 45, 50 + 2 * turn), rows(10, 25, 51 + 2 * turn)
        spark_judge.write(root, theirs, options={**options, **TOLD}, index="RECORD_INDEX")
        table.upsert(ours)
        expected = merged(expected, theirs, ours)
        assert_same_multiset(table.read(), expected, what="lakefmt")
    judge(root, table, spark_judge, expected)
    assert set(table.properties.metadata_partitions) == names
    check_metadata_table(table)
