"""Indexing by Hudi's write client, for the Spark judge's process: plan an index of the metadata table, or run a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: As a writer beside others: without them the client refuses.
SETTINGS = {
    "hoodie.metadata.enable": "true",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}


def _client(spark: SparkSession, request: dict[str, Any]) -> Any:
    jvm, path = spark._jvm, request["path"]
    properties = jvm.java.util.Properties()
    for key, value in {**SETTINGS, **request["options"]}.items():
        properties.setProperty(key, value)
    storage = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
    table = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder().setConf(storage).setBasePath(path).build()
    schema = jvm.org.apache.hudi.common.table.TableSchemaResolver(table).getTableSchema(False).toString()
    config = jvm.org.apache.hudi.config.HoodieWriteConfig.newBuilder().withPath(path).withSchema(schema)
    config = config.withProperties(properties).forTable(table.getTableConfig().getTableName()).build()
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(spark._jsc.sc())
    engine = jvm.org.apache.hudi.client.common.HoodieSparkEngineContext(context)
    return jvm.org.apache.hudi.client.SparkRDDWriteClient(engine, config)


def schedule_indexing(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """The instant of a plan of one kind of index, such as RECORD_INDEX."""
    jvm, client = spark._jvm, _client(spark, request)
    try:
        kinds = jvm.java.util.ArrayList()
        kinds.add(getattr(jvm.org.apache.hudi.metadata.MetadataPartitionType, request["kind"]))
        planned = client.scheduleIndexing(kinds, jvm.java.util.Collections.emptyList())
        return {"instant": planned.get() if planned.isPresent() else None}
    finally:
        client.close()


def run_indexing(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Run the plan of an instant."""
    client = _client(spark, request)
    try:
        return {"done": client.index(request["instant"]).isPresent()}
    finally:
        client.close()


OPERATIONS = {"schedule_indexing": schedule_indexing, "run_indexing": run_indexing}
