"""Read tables as DataFrames by functions, on every release of PySpark that lakefmt takes.

Where that gives the same rows, Spark's own Parquet reader reads exactly the pinned base files. It reads only the columns
that a query uses, which a data source in Python is never told. It serves slices without logs whose files have the table's
types under the table's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Unpack

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.read.splits import ReadSplit
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.values import InstantTime
from lakefmt.spark.options import ReadCall, SparkReadOptions, option_texts
from lakefmt.spark.scan import PlannedScan, open_scan
from lakefmt.spark.types import spark_types
from lakefmt.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "fits_natively",
    "is_native_query",
    "native_dataframe",
    "native_paths",
    "native_rows",
    "read_dataframe",
]

#: Names that Spark takes as they are: no patterns, no escapes, no hidden files.
_PLAIN_PATH: Final = re.compile(r"(/[A-Za-z0-9=@+,~-][A-Za-z0-9_.=@+,~%-]*)+")
_HADOOP_SCHEMES: Final = {"s3": "s3a", "gcs": "gs"}
_MOST_FOOTERS: Final = 256
_FOOTER_THREADS: Final = 8


def native_dataframe(spark: SparkSession, planned: PlannedScan) -> DataFrame | None:
    """Return the rows of a planned query as a scan of Spark's own; None: the rows would differ, or cannot be reached.

    Args:
        spark: the session.
        planned: the query.
    """
    paths = native_paths(planned)
    if not paths:
        return None
    reader = spark.read.schema(spark_types(planned.schema)).option("mergeSchema", "false")
    # Hudi writes dates and times of the proleptic calendar, without Spark's note that it does.
    reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
    return reader.parquet(*paths)


def native_paths(planned: PlannedScan) -> list[str]:
    """Return where Spark finds the base files that hold exactly the rows of a planned query; none: no files do."""
    call = planned.scan.call
    if not is_native_query(call):
        return []
    slices = [each for split in planned.splits if isinstance(split, ReadSplit) for each in split.slices]
    if call.query == "snapshot" and any(each.logs for each in slices):
        return []
    files = [each.base for each in slices if each.base is not None]
    table = planned.scan.snapshot.client.store.url
    candidates = [_path_for_spark(table, file.path, remote=call.native == "always") for file in files]
    paths = [path for path in candidates if path is not None]
    return paths if paths and len(paths) == len(candidates) and _have_table_schema(planned, files) else []


def is_native_query(call: ReadCall) -> bool:
    """Return whether a query may be read by Spark's own reader, as far as its options tell. Pure."""
    return call.native != "never" and not call.filter and call.query in ("snapshot", "read_optimized")


def fits_natively(stored: pa.Schema, table: pa.Schema) -> bool:
    """Return whether Spark reads a file with one schema as rows of another: the same types; columns may be missing. Pure.

    Example:
        >>> narrow, wide = pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64()), ("new", pa.string())])
        >>> fits_natively(narrow, wide), fits_natively(pa.schema([("n", pa.int64())]), wide)
        (False, True)
    """
    names = [name.lower() for name in table.names]
    plain = all(_is_read_alike(field.type) for field in table)
    present = set(stored.names)
    same = all(stored.field(f.name).type.equals(f.type) for f in table if f.name in present)
    return plain and same and len(set(names)) == len(names)


def _is_read_alike(data_type: pa.DataType) -> bool:
    if pt.is_timestamp(data_type):
        return data_type.tz is not None and data_type.unit in ("ms", "us")
    if pt.is_fixed_size_binary(data_type) or pt.is_time(data_type):
        return False
    return all(_is_read_alike(data_type.field(number).type) for number in range(data_type.num_fields))


def _path_for_spark(table: str, path: str, *, remote: bool) -> str | None:
    """Return where Spark finds a file; None: Spark would understand the name in another way, or may lack credentials."""
    scheme, divider, rest = table.rstrip("/").partition("://")
    if not divider:
        local = f"{table.rstrip('/')}/{path}"
        return f"file:{local}" if _PLAIN_PATH.fullmatch(local) else None
    full_path = f"/{rest.lstrip('/')}/{path}"
    if not _PLAIN_PATH.fullmatch(full_path):
        return None
    if scheme == "file":
        return f"file:{full_path}"
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}:/{full_path}" if remote else None


def _have_table_schema(planned: PlannedScan, files: Sequence[BaseFile]) -> bool:
    """Return whether all files hold the table's columns under their names, in their types."""
    snapshot = planned.scan.snapshot
    client, state, table = snapshot.client, snapshot.state, snapshot.schema
    table_at = client.at(state)
    config = state.config
    if config.drop_partition_columns or (planned.scan.call.meta_columns and not config.populate_meta_fields):
        return False
    if table_at.internal_schema() is not None:  # names may have moved from one column to another
        return False
    schemas, untold = _schemas_of_commits(table_at, {file.instant for file in files})
    unknown = [file for file in files if file.instant in untold]
    if len(unknown) > _MOST_FOOTERS or not all(fits_natively(schema, table) for schema in schemas):
        return False
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        footers = list(threads.map(client.reader.footer, unknown))
    return all(fits_natively(footer.schema, table) for footer in footers)


def _schemas_of_commits(table_at: TableAt, times: Iterable[InstantTime]) -> tuple[list[pa.Schema], set[InstantTime]]:
    """Return the schemas that commits wrote with, each once, and the commits that do not tell."""
    commits = {commit.time: commit for commit in table_at.timeline.commits}
    texts = {time: table_at.commit_metadata(commits[time]).schema_text if time in commits else None for time in times}
    schemas = [
        avro_to_arrow(avro_json)
        for avro_json in sorted({avro_json for avro_json in texts.values() if avro_json is not None})
    ]
    return schemas, {time for time, avro_json in texts.items() if avro_json is None}


def read_dataframe(spark: SparkSession, path: str, **options: Unpack[SparkReadOptions]) -> DataFrame:
    """Return the rows of a table as a DataFrame, which reads the state of this moment however often it is used.

    Args:
        spark: the session.
        path: the table.
        **options: Hudi's options for reads by their names, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: Spark's workers do not run this release.

    Example::

        lakefmt.spark.read(spark, "/data/trips", **{"as.of.instant": "20260101000000000"})
    """
    planned = open_scan(str(path), option_texts(options)).plan(slots=_task_slots(spark))
    native = native_dataframe(spark, planned)
    if native is not None:
        return native
    check_workers(spark)
    splits = len(planned.splits)
    numbers = spark.range(0, splits, 1, max(1, splits))
    return numbers.mapInArrow(_split_reader(planned), spark_types(planned.schema))


def native_rows(spark: SparkSession, path: str, **options: Unpack[SparkReadOptions]) -> DataFrame | None:
    """Return the rows as a scan of Spark's own Parquet reader, where it reads the same rows; else None.

    Raises:
        TableNotFound: there is no table.
        UnknownSetting: an option that is not known.
    """
    scan = open_scan(path, option_texts(options))
    return native_dataframe(spark, scan.plan()) if is_native_query(scan.call) else None


def _split_reader(planned: PlannedScan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():  # splits, not rows
                yield from planned.read(planned.splits[number])

    return run


def _task_slots(spark: SparkSession) -> int | None:
    """Return how many tasks run at the same time; None: this kind of session does not tell."""
    slots = run_foreign(lambda: int(spark.sparkContext.defaultParallelism))  # Spark Connect raises errors of its own
    return None if isinstance(slots, Raised) else slots
