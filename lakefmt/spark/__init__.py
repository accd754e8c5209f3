"""Read and write tables from PySpark, without a JAR.

``format("lakefmt")`` reads and writes after :func:`register`; :func:`read` and :func:`write` are the same as functions.
The rows of a large write are keyed, placed and written by Spark's tasks; one process plans and commits.
:func:`stream_batch` writes streams, :func:`change_batch` applies streams of changes; table services run as tasks of the cluster.
No rule of the table format lives here: this package translates options, types and errors.
"""

from lakefmt.spark.reading import read_dataframe as read
from lakefmt.spark.registration import register, unregister
from lakefmt.spark.services import clean_table as clean
from lakefmt.spark.services import cluster_by_tasks as cluster
from lakefmt.spark.services import compact_table as compact
from lakefmt.spark.streams.sink import change_batch, debezium_rows, last_changes, stream_batch
from lakefmt.spark.writing.dataframe import explain_write, last_commit
from lakefmt.spark.writing.dataframe import merge_dataframe as merge
from lakefmt.spark.writing.dataframe import write_dataframe as write

__all__ = [
    "change_batch",
    "clean",
    "cluster",
    "compact",
    "debezium_rows",
    "explain_write",
    "last_changes",
    "last_commit",
    "merge",
    "read",
    "register",
    "stream_batch",
    "unregister",
    "write",
]
