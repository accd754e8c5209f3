"""Tables with consistent hashing that Spark's tasks and Apache Hudi write by turns, each splitting and merging buckets."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import lakefmt
from tests.compat.test_spark_bucket import check_rings
from tests.spark.bucket_options import HUDI, SPLIT
from tests.spark.written_by_tasks import expected_rows, in_order

READ = {"hudi": True, "lakefmt": True, "twice": [0, 0]}
#: Step → clusterings that wait, and buckets of a partition.
STEPS = {
    "created": (0, 2),
    "hudi upserts": (0, 2),
    "hudi splits": (0, 4),
    "tasks write on": (0, 4),
    "tasks write to both": (1, 4),
    "hudi writes to both": (1, 4),
    "hudi merges": (0, 1),
    "tasks write to both, planned by lakefmt": (1, 1),
    "hudi splits as planned by lakefmt": (0, 2),
    "hudi upserts what tasks replaced": (0, 2),
}


@pytest.mark.in_turn(2, "PySpark 3.5", 0)
@pytest.mark.scenarios("buckets_by_turns")
def test_tasks_and_hudi_write_split_and_merge_buckets_by_turns(pyspark_oldest):
    told = pyspark_oldest["buckets_by_turns"]
    assert told["ways"] == ["bucket"]
    assert told["steps"] == {
        step: {**READ, "waiting": waiting, "buckets": buckets} for step, (waiting, buckets) in STEPS.items()
    }


def test_tasks_that_run_twice_and_a_commit_that_fails(pyspark_4):
    assert pyspark_4["bucket_faults"] == {
        "doubled": [True, True, 1, []],
        "undone": [True, True, 1, []],
        "again": [True, True, 1, []],
        "run": [True, 0, []],
    }


def test_hudi_goes_on_where_tasks_of_pyspark_4_wrote(pyspark_4, folder_4, spark_judge, tmp_path):
    assert "failed" not in pyspark_4["written_by_tasks"]
    rows = pa.table({"id": ["k69", "new"], "city": ["c0", "c1"], "v": [7.0, 8.0], "ts": pa.array([99, 99])})
    for name, op in (("consistent", "scheduleAndExecute"), ("splitting", "execute")):
        path = shutil.copytree(folder_4 / f"tasks_{name}", tmp_path / name)  # other tests read it as it is
        spark_judge.write(path, rows, index="BUCKET", options=HUDI)
        spark_judge.sql(f"call run_clustering(path => '{path}', op => '{op}')", settings={**HUDI, **SPLIT})
        expected = sorted({*expected_rows(name), ("k69", "c0", 7.0), ("new", "c1", 8.0)} - {("k69", "c0", 138.0)})
        assert in_order(spark_judge.snapshot(path)) == expected
        table = lakefmt.open_table(path)
        assert in_order(table.read()) == expected
        assert table.client.load().timeline.pending == ()
        assert all(len(ring.nodes) > 2 for ring in check_rings(table).values())
