"""``format("lakefmt")`` on the readers and writers of one session's classes (effects).

PySpark 4 finds the data source on its own; what it cannot say to a data source (the modes ``error`` and ``ignore``, a
commit by the user's own process) and PySpark 3.5, which has none, come through wrapped methods. Any other format goes
straight to Spark's own methods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from lakefmt.errors import UnsupportedFeature
from lakefmt.spark.functions import write_dataframe
from lakefmt.spark.options import option_texts
from lakefmt.spark.reading import native_rows, read_dataframe
from lakefmt.spark.sessions import register_data_source, restore_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "unregister"]

_FORMAT: Final = "lakefmt"
#: Where a reader or writer remembers what was said to it.
_MEMORY: Final = "_lakefmt_memory"
#: The methods as Spark has them, by class and name.
_originals: Final[dict[tuple[type, str], Callable[..., Any]]] = {}


def register(spark: SparkSession) -> None:
    """Let ``format("lakefmt")`` of this process write and read by lakefmt; twice is fine.

    Args:
        spark: the session.
    """
    from pyspark.sql import DataFrameReader, DataFrameWriter

    register_data_source(spark)
    for kind, names in ((DataFrameWriter, ("mode", "partitionBy")), (DataFrameReader, ("schema",))):
        for name in ("format", "option", "options", *names):
            _wrap(kind, name, _remembering)
    _wrap(DataFrameWriter, "save", _saving)
    for name in ("saveAsTable", "insertInto"):
        _wrap(DataFrameWriter, name, _refusing)
    _wrap(DataFrameReader, "load", _loading)


def unregister() -> None:
    """Give Spark's classes their own methods back."""
    for (kind, name), original in _originals.items():
        setattr(kind, name, original)
    _originals.clear()
    restore_sessions()


def _wrap(kind: type, name: str, make: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    if (kind, name) not in _originals:
        original = _originals[kind, name] = getattr(kind, name)
        setattr(kind, name, wraps(original)(make(name, original)))


def _remembered(frame: Any) -> dict[str, Any]:
    memory: dict[str, Any] = frame.__dict__.setdefault(_MEMORY, {"options": {}})
    return memory


def _is_ours(frame: Any, named: object = None) -> bool:
    return str(named or _remembered(frame).get("format") or "").lower() == _FORMAT


def _remembering(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def remember(self: Any, *given: Any, **named: Any) -> Any:
        memory, values = _remembered(self), (*given, *named.values())
        if name == "option":
            memory["options"].update(option_texts({values[0]: values[1]}))
        elif name == "options":
            memory["options"].update(option_texts(named))
        else:
            memory[name] = values if name == "partitionBy" else values[0]
        return original(self, *given, **named)

    return remember


def _saving(_: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def save(
        self: Any, path: Any = None, format: Any = None, mode: Any = None, *partition_by: Any, **options: Any
    ) -> Any:
        if not _is_ours(self, format):
            return original(self, path, format, mode, *partition_by, **options)
        memory = _remembered(self)
        if any(partition_by) or options.pop("partitionBy", None) or memory.get("partitionBy"):
            raise UnsupportedFeature(
                "partitionBy() is not supported: name the columns in hoodie.datasource.write.partitionpath.field"
            )
        place, settings = _place(memory, path, options)
        write_dataframe(self._df, place, mode or memory.get("mode") or "error", **settings)
        return None

    return save


def _loading(_: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> Any:
        if not _is_ours(self, format):
            return original(self, path, format, schema, **options)
        memory = _remembered(self)
        if hasattr(self._spark, "dataSource"):
            place, settings = _place(memory, path, options)
            rows = None if schema or memory.get("schema") else native_rows(self._spark, place, **settings)
            return original(self, path, format, schema, **options) if rows is None else rows
        if schema or memory.get("schema"):
            raise UnsupportedFeature("schema() is not supported: the table knows its schema; use select()")
        place, settings = _place(memory, path, options)
        return read_dataframe(self._spark, place, **settings)

    return load


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Any, *given: Any, **named: Any) -> Any:
        if _is_ours(self, named.get("format")):
            raise UnsupportedFeature(
                f"{name}() needs a catalog table, which a Python data source cannot be: use save(path)"
            )
        return original(self, *given, **named)

    return refuse


def _place(memory: dict[str, Any], path: object, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path and the options of a call.

    Raises:
        UnsupportedFeature: there is no path.
    """
    settings = {**memory["options"], **option_texts(options)}
    place = str(path or settings.pop("path", ""))
    if not place:
        raise UnsupportedFeature("lakefmt needs a path: save(path) or load(path)")
    return place, settings
