"""The data source in sessions of PySpark 4, with or without pushed filters (effects)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["register_data_source", "register_source", "restore_sessions"]

_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
#: Sessions in which this process has switched the pushdown on.
_switched: Final[list[SparkSession]] = []


def register_data_source(spark: SparkSession) -> None:
    """Register the data source in a session; filters are pushed where Spark keeps those of queries apart.

    Args:
        spark: the session; PySpark 3.5 has no data sources in Python, and nothing is done.
    """
    if not hasattr(spark, "dataSource"):
        return
    from pyspark.sql.datasource import DataSourceReader

    from lakefmt.spark.data_source import FilteringDataSource, LakefmtDataSource

    # Up to Spark 4.3 a filter that one query pushes stays with the DataFrame: its next query, which has no such filter,
    # lacks rows. The release that learned to push limits keeps them apart.
    pushes = hasattr(DataSourceReader, "pushLimit")
    if pushes and _PUSHDOWN not in spark.conf.getAll:
        spark.conf.set(_PUSHDOWN, "true")
        _switched.append(spark)
    # A reader that takes filters fails in a session that does not push them.
    pushes = pushes and str(spark.conf.get(_PUSHDOWN)).lower() == "true"
    register_source(spark, FilteringDataSource if pushes else LakefmtDataSource)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, where Spark does not keep the one that it found on its own."""
    try:
        spark.dataSource.register(source)
    except Exception as error:
        # Spark 4.0 registers nothing under the name of a source that it has found: that is `pyspark_lakefmt`, the same one.
        if _EXISTS not in str(error):
            raise


def restore_sessions() -> None:
    """Switch the pushdown off where this process has switched it on."""
    while _switched:
        spark = _switched.pop()
        with suppress(Exception):  # a session that has ended has nothing to restore
            from lakefmt.spark.data_source import LakefmtDataSource

            register_source(spark, LakefmtDataSource)
            spark.conf.unset(_PUSHDOWN)
