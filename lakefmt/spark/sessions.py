"""The data source in sessions of PySpark 4: pushed filters, and views that show the newest state (effects)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lakefmt.spark.options import KEEPS_STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["forget_states_of_views", "register_data_source", "register_source", "restore_sessions"]

_log = logging.getLogger("lakefmt.spark")
_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_RELATION: Final = "DataSourceV2Relation"
_TABLE: Final = "PythonTable"
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


def forget_states_of_views(spark: SparkSession) -> None:
    """Let the next query on a temporary view of a table pin the newest state.

    Spark asks a data source in Python for the splits of a view once, for as long as the view lives. There is no call for it: the
    view's plan is looked for among those of the session.

    Args:
        spark: a classic session; of Spark Connect the client does not reach what the server keeps.
    """
    state = getattr(spark, "_jsparkSession", None)
    if state is None or not hasattr(spark, "dataSource"):
        return
    try:
        _forget_states_of_session(state)
    except Exception as error:  # noqa: BLE001 - a release of Spark that keeps its views in another way
        _log.warning("temporary views of lakefmt keep the state of their first query in this session: %s", error)


def _forget_states_of_session(state: Any) -> None:
    catalog = state.sessionState().catalog()
    for views, find in (
        (catalog.listLocalTempViews("*"), catalog.getRawTempView),
        (catalog.globalTempViewManager().listViewNames("*"), catalog.getRawGlobalTempView),
    ):
        for number in range(views.size()):
            name = views.apply(number)
            relation = find(name if isinstance(name, str) else name.table())
            plan = relation.get().plan() if relation.isDefined() else None
            if plan is not None and plan.isDefined():
                _forget_states(plan.get().collectLeaves())


def _forget_states(leaves: Any) -> None:
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != _RELATION or leaf.table().getClass().getSimpleName() != _TABLE:
            continue
        if leaf.table().name() == "lakefmt" and not leaf.options().containsKey(KEEPS_STATE):
            source = _field(leaf.table(), "ds")
            _accessible(source, "readInfo").set(source, None)


def _field(holder: Any, name: str) -> Any:
    return _accessible(holder, name).get(holder)


def _accessible(holder: Any, name: str) -> Any:
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def restore_sessions() -> None:
    """Switch the pushdown off where this process has switched it on."""
    while _switched:
        spark = _switched.pop()
        with suppress(Exception):  # a session that has ended has nothing to restore
            from lakefmt.spark.data_source import LakefmtDataSource

            register_source(spark, LakefmtDataSource)
            spark.conf.unset(_PUSHDOWN)
