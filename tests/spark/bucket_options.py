"""What the scenarios of consistent hashing ask for, and what Hudi is to be asked."""

from __future__ import annotations

OPERATION = "hoodie.datasource.write.operation"
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}
#: Tasks write, few as the rows are, several of them in one partition path.
BY_TASKS = {"lakefmt.spark.driver.max.rows": "0", "lakefmt.spark.task.bytes": "300"}
_CLUSTERING = "org.apache.hudi.client.clustering."
TWICE = {
    "hoodie.clustering.updates.strategy": f"{_CLUSTERING}update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
}
CLASSES = {
    "hoodie.clustering.plan.strategy.class": f"{_CLUSTERING}plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": f"{_CLUSTERING}run.strategy."
    "SparkConsistentBucketClusteringExecutionStrategy",
    **TWICE,
}
#: A bucket is too large at once; one that is split has two halves.
SPLIT = {
    "hoodie.parquet.max.file.size": "1024",
    "hoodie.bucket.index.max.num.buckets": "4",
    "hoodie.bucket.index.min.num.buckets": "1",
}
MERGE = {
    "hoodie.parquet.max.file.size": str(1 << 30),
    "hoodie.bucket.index.max.num.buckets": "4",
    "hoodie.bucket.index.min.num.buckets": "1",
}
HUDI = {
    **OPTIONS,
    **CLASSES,
    "hoodie.write.table.version": "8",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
}
SPLIT_BY_LAKEFMT = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.bucket.index.split.threshold": 0}
