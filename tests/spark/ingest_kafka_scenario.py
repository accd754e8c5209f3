"""Rounds of a topic by Spark, in turns with rounds without it: ``python ingest_kafka_scenario.py JOBS`` where JOBS is a list of settings as
JSON, each with ``by_spark``; prints the rows, rejected rows and checkpoint of each round, or its error."""

import json
import sys

from pyspark.sql import SparkSession

from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt.errors import LakefmtError
from lakefmt.spark.ingest import SparkEngine

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
answers = []
for given in json.loads(sys.argv[1]):
    engine = SparkEngine(session) if given.pop("by_spark") else None
    job, _ = resolve_table_job([("test", given)])
    try:
        (done,) = Ingester([job], engine=engine, attempts=0).run().tables
        answers.append([done.rows, done.rejected_rows, done.checkpoint])
    except LakefmtError as error:
        answers.append([type(error).__name__, str(error), None])
print("answers:" + json.dumps(answers))
