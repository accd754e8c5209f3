"""``format("lakefmt")`` on the readers and writers of one session's classes.

PySpark 4 finds the data source on its own; what it cannot say to a data source (the modes ``error`` and ``ignore``, a
commit by the user's own process) and PySpark 3.5, which has none, come through wrapped methods. Any other format goes
straight to Spark's own methods. In sessions of PySpark 4 filters are pushed down, and views show the newest state.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import uuid4

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import UnsupportedFeature
from lakefmt.spark.options import KEEPS_STATE, NO_CATALOG_TABLE, option_texts
from lakefmt.spark.reading import native_rows, read_dataframe
from lakefmt.spark.streams.sink import StreamSink
from lakefmt.spark.writing.dataframe import write_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = [
    "forget_states_of_views",
    "register",
    "register_data_source",
    "register_source",
    "restore_sessions",
    "unregister",
]

#: An object of the JVM: py4j finds its methods when they are called.
_JavaObject: TypeAlias = Any
#: A method of a reader or writer of Spark, with the parameters of its class and release.
_Method: TypeAlias = Callable[..., object]

_log = logging.getLogger("lakefmt.spark")
_EXISTS_ERROR: Final = "DATA_SOURCE_ALREADY_EXISTS"
_PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"
_RELATION_CLASS: Final = "DataSourceV2Relation"
_TABLE_CLASS: Final = "PythonTable"
#: Sessions in which this process has switched the pushdown on.
_sessions_with_pushdown: Final[list[SparkSession]] = []


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
    if pushes and _PUSHDOWN_SETTING not in spark.conf.getAll:
        spark.conf.set(_PUSHDOWN_SETTING, "true")
        _sessions_with_pushdown.append(spark)
    # A reader that takes filters fails in a session that does not push them.
    pushes = pushes and str(spark.conf.get(_PUSHDOWN_SETTING)).lower() == "true"
    register_source(spark, FilteringDataSource if pushes else LakefmtDataSource)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, where Spark does not keep the one that it found on its own."""
    outcome = run_foreign(lambda: spark.dataSource.register(source))
    # Spark 4.0 registers nothing under the name of a source that it has found: that is `pyspark_lakefmt`, the same one.
    if isinstance(outcome, Raised) and _EXISTS_ERROR not in str(outcome.error):
        raise outcome.error


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
    outcome = run_foreign(lambda: _forget_states_of_session(state))
    if isinstance(outcome, Raised):  # a release of Spark that keeps its views in another way
        _log.warning(
            "temporary views of lakefmt keep the state of their first query in this session: %s", outcome.error
        )


def _forget_states_of_session(state: _JavaObject) -> None:
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


def _forget_states(leaves: _JavaObject) -> None:
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if (
            leaf.getClass().getSimpleName() != _RELATION_CLASS
            or leaf.table().getClass().getSimpleName() != _TABLE_CLASS
        ):
            continue
        if leaf.table().name() == "lakefmt" and not leaf.options().containsKey(KEEPS_STATE):
            source = _java_field(leaf.table(), "ds")
            _accessible_java_field(source, "readInfo").set(source, None)


def _java_field(holder: _JavaObject, name: str) -> _JavaObject:
    return _accessible_java_field(holder, name).get(holder)


def _accessible_java_field(holder: _JavaObject, name: str) -> _JavaObject:
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def restore_sessions() -> None:
    """Switch the pushdown off where this process has switched it on."""
    while _sessions_with_pushdown:
        spark = _sessions_with_pushdown.pop()
        with suppress(Exception):  # a session that has ended has nothing to restore
            from lakefmt.spark.data_source import LakefmtDataSource

            register_source(spark, LakefmtDataSource)
            spark.conf.unset(_PUSHDOWN_SETTING)


_FORMAT: Final = "lakefmt"
#: A mode that Spark has under another name, too.
_SPARK_MODES: Final = {"default": "error"}
_MAKES_TABLE: Final = re.compile(r"\b(create|replace)\b.*\btable\b.*\busing\b.*\blakefmt\b", re.IGNORECASE | re.DOTALL)
_CATALOG_PLANS: Final = ("CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect")
_PARTITION_OPTIONS: Final = ("hoodie.datasource.write.partitionpath.field", "hoodie.table.partition.fields")
#: Where a reader or writer remembers what was said to it.
_MEMORY_ATTRIBUTE: Final = "_lakefmt_memory"
#: The methods as Spark has them, by class and name.
_original_methods: Final[dict[tuple[type, str], _Method]] = {}


def register(spark: SparkSession) -> None:
    """Let ``format("lakefmt")`` of this process write and read by lakefmt, batches and streams; twice is fine.

    Args:
        spark: the session, classic or Connect.

    Example::

        lakefmt.spark.register(spark)
        df.write.format("lakefmt").mode("append").options(**options).save("/data/trips")
    """
    classes = _classes_of(spark)
    register_data_source(spark)
    for spark_class, names in (
        (classes.writer, ("mode", "partitionBy")),
        (classes.reader, ("schema",)),
        (classes.stream_writer, ("outputMode", "queryName")),
        (classes.stream_reader, ()),
    ):
        for name in ("format", "option", "options", *names):
            _wrap_method(spark_class, name, _remembering)
    _wrap_method(classes.stream_writer, "partitionBy", _deferring)
    _wrap_method(classes.writer, "save", _saving)
    for spark_class, name in (
        (classes.writer, "saveAsTable"),
        (classes.writer, "insertInto"),
        (classes.stream_writer, "toTable"),
    ):
        _wrap_method(spark_class, name, _refusing)
    _wrap_method(classes.reader, "load", _loading)
    if not _is_connect(spark):
        _wrap_method(type(spark), "sql", _querying)
        _wrap_method(type(spark), "table", _querying)
        _wrap_method(classes.reader, "table", _querying)
    _wrap_method(classes.stream_writer, "start", _starting)
    _wrap_method(classes.stream_reader, "load", _loading_stream)


def unregister() -> None:
    """Give Spark's classes their own methods back.

    Example:
        >>> unregister()
    """
    for (spark_class, name), original in _original_methods.items():
        setattr(spark_class, name, original)
    _original_methods.clear()
    restore_sessions()


@dataclass(frozen=True, slots=True)
class _SessionClasses:
    writer: type
    reader: type
    stream_writer: type
    stream_reader: type


def _is_connect(session: object) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def _classes_of(spark: SparkSession) -> _SessionClasses:
    if _is_connect(spark):
        from pyspark.sql.connect import readwriter, streaming

        return _SessionClasses(
            readwriter.DataFrameWriter,
            readwriter.DataFrameReader,
            streaming.readwriter.DataStreamWriter,
            streaming.readwriter.DataStreamReader,
        )
    from pyspark.sql import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

    return _SessionClasses(DataFrameWriter, DataFrameReader, DataStreamWriter, DataStreamReader)


def _session_of(frame: object) -> SparkSession:
    """Return the session of a reader or writer, which each kind of class calls otherwise."""
    attributes = vars(frame)
    session: SparkSession = next(attributes[name] for name in ("_spark", "_session", "_client") if name in attributes)
    return session


def _rows_of(writer: _Writer) -> DataFrame:
    """Return the DataFrame of a writer; one of Connect holds its plan."""
    session = _session_of(writer)
    if not _is_connect(session):
        return writer._df
    from pyspark.sql.connect import dataframe

    make = getattr(dataframe.DataFrame, "withPlan", dataframe.DataFrame)  # Spark 3.5 has a method for it
    rows: DataFrame = make(writer._df, session)
    return rows


def _wrap_method(spark_class: type, name: str, make: Callable[[str, _Method], _Method]) -> None:
    if (spark_class, name) not in _original_methods:
        original = _original_methods[spark_class, name] = getattr(spark_class, name)
        setattr(spark_class, name, wraps(original)(make(name, original)))


class _Writer(Protocol):
    """The attributes of a Spark batch writer that lakefmt uses."""

    _df: DataFrame


class _Reader(Protocol):
    """The methods of a Spark batch reader that lakefmt calls."""

    def option(self, key: str, value: str) -> object: ...


class _StreamWriter(Protocol):
    """The methods of a Spark stream writer that lakefmt calls."""

    def foreachBatch(self, func: StreamSink) -> object: ...  # noqa: N802 - the name is that of Spark


@dataclass(frozen=True, slots=True)
class _Memory:
    """What was said to a reader or writer.

    Attributes:
        options: as texts.
        said: by the other methods, by their names, as it was given.
    """

    options: dict[str, str] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)


def _remembered(frame: object) -> _Memory:
    memory: _Memory = vars(frame).setdefault(_MEMORY_ATTRIBUTE, _Memory())
    return memory


def _is_ours(frame: object, format_name: object = None) -> bool:
    return str(format_name or _remembered(frame).said.get("format") or "").lower() == _FORMAT


def _remembering(name: str, original: _Method) -> _Method:
    def remember(self: object, *arguments: object, **keywords: object) -> object:
        memory, values = _remembered(self), (*arguments, *keywords.values())
        if name == "option":
            memory.options.update(option_texts({str(values[0]): values[1]}))
        elif name == "options":
            memory.options.update(option_texts(keywords))
        else:
            memory.said[name] = values if name == "partitionBy" else values[0]
        return original(self, *arguments, **keywords)

    return remember


def _deferring(name: str, original: _Method) -> _Method:
    def defer(self: object, *columns: object) -> object:
        # A stream whose batches a function takes must not have been told: whether it is ours is known when it starts.
        _remembered(self).said[name] = columns
        return self

    return defer


def _partition_by_deferred(writer: object) -> None:
    """Tell Spark what ``partitionBy`` of a stream's writer was told, where the stream is none of ours."""
    columns = _remembered(writer).said.pop("partitionBy", None)
    if columns:
        _original_methods[type(writer), "partitionBy"](writer, *columns)


def _saving(_: str, original: _Method) -> _Method:
    def save(
        self: _Writer,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        *partition_by: object,
        **options: object,
    ) -> object:
        if not _is_ours(self, format):
            return original(self, path, format, mode, *partition_by, **options)
        memory = _remembered(self)
        columns = (
            [each for each in partition_by if each]
            or options.pop("partitionBy", None)
            or memory.said.get("partitionBy")
        )
        table_path, settings = _path_and_options(memory, path, options)
        _partition_by(settings, columns)
        save_mode = str(mode or memory.said.get("mode") or "error").lower()  # Spark takes names in any letters
        write_dataframe(_rows_of(self), table_path, _SPARK_MODES.get(save_mode, save_mode), **settings)
        return None

    return save


def _querying(name: str, original: _Method) -> _Method:
    def query(self: object, *arguments: object, **keywords: object) -> object:
        session: SparkSession = vars(self).get("_spark", self)  # of a reader, or itself one
        if name == "sql":
            _refuse_catalog_table(session, str(next(iter(arguments), keywords.get("sqlQuery", ""))))
        forget_states_of_views(session)
        return original(self, *arguments, **keywords)

    return query


def _refuse_catalog_table(spark: SparkSession, statement: str) -> None:
    """Raise when a statement would make a table in Spark's catalog, which nobody could read or write.

    Raises:
        UnsupportedFeature: it would; the text says what SQL can do.
    """
    state = getattr(spark, "_jsparkSession", None)
    if state is None or not _MAKES_TABLE.search(statement):
        return
    is_ours = run_foreign(lambda: _makes_our_table(state, statement))
    if isinstance(is_ours, Raised):  # Spark itself says what is wrong with a statement
        _log.debug("a statement was not understood: %s", is_ours.error)
    elif is_ours:
        raise UnsupportedFeature(NO_CATALOG_TABLE)


def _makes_our_table(state: _JavaObject, statement: str) -> bool:
    plan = state.sessionState().sqlParser().parsePlan(statement)
    provider = plan.tableSpec().provider() if plan.nodeName() in _CATALOG_PLANS else None
    return provider is not None and provider.isDefined() and str(provider.get()).lower() == _FORMAT


def _loading(_: str, original: _Method) -> _Method:
    def load(
        self: _Reader, path: str | None = None, format: str | None = None, schema: object = None, **options: object
    ) -> object:
        if not _is_ours(self, format):
            return original(self, path, format, schema, **options)
        memory = _remembered(self)
        if hasattr(_session_of(self), "dataSource"):
            table_path, settings = _path_and_options(memory, path, options)
            rows = (
                None if schema or memory.said.get("schema") else native_rows(_session_of(self), table_path, **settings)
            )
            if rows is not None:
                return rows
            return original(self.option(KEEPS_STATE, "true"), path, format, schema, **options)
        if schema or memory.said.get("schema"):
            raise UnsupportedFeature("schema() is not supported: the table knows its schema; use select()")
        table_path, settings = _path_and_options(memory, path, options)
        return read_dataframe(_session_of(self), table_path, **settings)

    return load


def _starting(_: str, original: _Method) -> _Method:
    def start(
        self: _StreamWriter,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,  # noqa: N803 - the names are those of Spark
        partitionBy: object = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: object,
    ) -> object:
        if not _is_ours(self, format):
            _partition_by_deferred(self)
            return original(self, path, format, outputMode, partitionBy, queryName, **options)
        memory = _remembered(self)
        table_path, settings = _path_and_options(memory, path, options)
        _partition_by(settings, partitionBy or memory.said.get("partitionBy"))
        query_name = queryName or memory.said.get("queryName")
        sink = StreamSink(table_path, outputMode or memory.said.get("outputMode") or "append", settings)
        if _is_connect(_session_of(self)):
            _tell_query(sink, _session_of(self), query_name)
        writer = self.foreachBatch(sink)
        sink_options = {name: value for name, value in options.items() if name != "path"}
        return original(writer, None, None, outputMode, None, queryName, **sink_options)

    return start


def _tell_query(sink: StreamSink, session: SparkSession, name: str | None) -> None:
    """Tell a sink where the id of its query is: the process that runs batches of Connect does not know it."""
    if sink.checkpoint is None and name and (root := session.conf.get("spark.sql.streaming.checkpointLocation", None)):
        sink.checkpoint = f"{str(root).rstrip('/')}/{name}"
    if sink.checkpoint is None:
        sink.query = str(uuid4())  # Spark makes a folder for this run alone, so it is a query of its own


def _loading_stream(_: str, original: _Method) -> _Method:
    def load(
        self: object, path: str | None = None, format: str | None = None, schema: object = None, **options: object
    ) -> object:
        if _is_ours(self, format) and not hasattr(_session_of(self), "dataSource"):
            raise UnsupportedFeature(
                "readStream of a table needs PySpark 4, which has data sources in Python: with PySpark 3.5 read increments in "
                "batches (hoodie.datasource.query.type=incremental) and keep the last commit time"
            )
        return original(self, path, format, schema, **options)

    return load


def _partition_by(settings: dict[str, object], columns: object) -> None:
    """Let the columns of ``partitionBy`` be those of the option, where it is not given, as Hudi does."""
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, list | tuple) else []
    while any(isinstance(name, list | tuple) for name in names):
        names = [part for name in names for part in ([name] if isinstance(name, str) else name)]
    if names and not any(option.lower() in _PARTITION_OPTIONS for option in settings):
        settings[_PARTITION_OPTIONS[0]] = ",".join(map(str, names))


def _refusing(name: str, original: _Method) -> _Method:
    def refuse(self: object, *arguments: object, **keywords: object) -> object:
        if _is_ours(self, keywords.get("format")):
            raise UnsupportedFeature(f"{name}() needs a catalog table: {NO_CATALOG_TABLE}")
        if name == "toTable":
            _partition_by_deferred(self)
        return original(self, *arguments, **keywords)

    return refuse


def _path_and_options(memory: _Memory, path: object, options: dict[str, object]) -> tuple[str, dict[str, Any]]:
    """Return the path and the options of a call.

    Raises:
        UnsupportedFeature: there is no path.
    """
    settings: dict[str, Any] = {**memory.options, **option_texts(options)}
    table_path = str(path or settings.pop("path", ""))
    if not table_path:
        raise UnsupportedFeature("lakefmt needs a path: save(path), load(path) or start(path)")
    return table_path, settings
