"""Write DataFrames by functions, on every release of PySpark that lakefmt takes.

What must hold of the rows that Spark hands over is checked before anything is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from lakefmt import Table, open_table
from lakefmt._core.data_classes import replace
from lakefmt._core.storage.open import open_store
from lakefmt._core.values import RECORD_KEY, CommitResult, WriteOperation
from lakefmt._core.write.ingest import STORED_KEY
from lakefmt.errors import InvalidInputError, TableExists, TableNotFound, UnsupportedFeature
from lakefmt.spark.options import SparkWriteOptions, WriteCall, log_notes, option_texts, parse_write_options, with_notes
from lakefmt.spark.types import dataframe_schema, spark_schema, spark_types
from lakefmt.spark.workers import check_workers
from lakefmt.spark.writing.distributed import SparkWrite, job_description
from lakefmt.spark.writing.plan import (
    FewRows,
    Limits,
    SilentSteps,
    SparkWritePlan,
    WriteSteps,
    can_collect,
    collect_few,
    take_limits,
    take_sort,
)
from lakefmt.spark.writing.staging import (
    MODES,
    StagedRows,
    check_creation,
    check_size,
    existing_table,
    new_stage,
    read_staged,
    remove_stage,
    stage_rows,
    write_and_commit,
    write_few_and_commit,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakefmt._core.table_verbs import TableMerge
    from lakefmt._core.write.context import CommitEntries

__all__ = [
    "CollectedRows",
    "accept_rows",
    "explain_write",
    "last_commit",
    "merge_dataframe",
    "partition_columns_apart",
    "rows_schema",
    "shape_rows",
    "write_dataframe",
    "write_few_rows",
    "write_with_entries",
]


def accept_rows(df: DataFrame, call: WriteCall, table: Table | None) -> tuple[DataFrame, pa.Schema]:
    """Return the rows to write and their schema.

    Args:
        df: what the user gave.
        call: may ask that columns which the rows lack are filled with null; keys to delete need none.
        table: the table, if there is one.

    Raises:
        UnsupportedFeature: a column holds times without a zone, or the workers do not run this release.
    """
    df, schema = shape_rows(df, call, table)
    check_workers(df.sparkSession)
    return df, schema


def shape_rows(df: DataFrame, call: WriteCall, table: Table | None) -> tuple[DataFrame, pa.Schema]:
    """Return the rows to write and their schema, as :func:`accept_rows`; no worker is asked.

    Raises:
        UnsupportedFeature: a column holds times without a zone.
    """
    schema = rows_schema(df.schema, call, table)
    if call.fills_missing and table is not None and call.operation != "delete":
        df = _with_lacking_columns(df, spark_schema(table.schema))
        schema = rows_schema(df.schema, call, table)
    return df, schema


class CollectedRows:
    """The rows of a DataFrame, which Spark computes when they are asked for, in this process (``__arrow_c_stream__``).

    Args:
        df: the DataFrame.
        schema: its columns as Arrow has them.
    """

    def __init__(self, df: DataFrame, schema: pa.Schema) -> None:
        self._df, self._schema = df, schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow stream capsule."""
        frame: Any = self._df
        if hasattr(frame, "toArrow"):
            rows = frame.toArrow()
        else:
            batches = frame._collect_as_arrow()
            rows = pa.Table.from_batches(batches) if batches else self._schema.empty_table()
        return rows.select(self._schema.names).cast(self._schema).__arrow_c_stream__(requested_schema)


def merge_dataframe(
    df: DataFrame, path: str, on: str | Sequence[str] | None = None, **options: Unpack[SparkWriteOptions]
) -> TableMerge:
    """Begin a merge of a DataFrame into a table; clauses and ``execute()`` are those of ``table.merge``.

    The rows come to this process when the merge is executed, and are no more than ``lakefmt.merge.source.bytes``. Stored rows
    are read and written by this process, too.

    Args:
        df: the source.
        path: the table.
        on: which rows match: names of columns, an SQL condition over ``t`` and ``s``, or None: the record key.
        **options: settings by their names, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnsupportedFeature: this session hands no rows to Arrow (Connect of Spark 3.5), or a column holds times without a zone.

    Example::

        merge = lakefmt.spark.merge(df, "/data/trips", "t.id = s.id and t.city = s.city")
        merge.when_matched_delete(where="s.op = 'd'").when_matched().when_not_matched().execute()
    """
    if not can_collect(df):
        raise UnsupportedFeature(
            "Spark Connect of 3.5 hands no rows to Arrow: merge in a classic session, or with Spark 4"
        )
    call = parse_write_options(option_texts(options))
    table = open_table(path, options=call.settings, storage_options=call.storage)
    return table.merge(CollectedRows(df, rows_schema(df.schema, call, table)), on)


def rows_schema(schema: StructType, call: WriteCall, table: Table | None) -> pa.Schema:
    """Return the schema of the rows to write, in a table's types.

    Rows of a table that generates its keys keep the key with which they were read: it tells which rows they change.

    Args:
        schema: of the DataFrame.
        call: what the options ask for.
        table: the table, if there is one.

    Raises:
        UnsupportedFeature: a column holds times without a zone.
    """
    generates_keys = table is not None and table.client.key_spec(table.properties).auto_keys
    by_stored_key = generates_keys and call.operation in (None, "upsert", "delete") and RECORD_KEY in schema.names
    rows = dataframe_schema(schema, call.zoneless, stored_keys=by_stored_key)
    if by_stored_key and call.operation == "delete":
        return pa.schema([rows.field(name) for name in STORED_KEY if name in rows.names])
    return rows


def _with_lacking_columns(df: DataFrame, stored: pa.Schema) -> DataFrame:
    from pyspark.sql.functions import lit

    # Spark takes a name in other letters for the column that is there, and would replace its values; the write refuses such a name.
    present = {name.lower() for name in df.columns}
    lacking = {field.name: field.dataType for field in spark_types(stored) if field.name.lower() not in present}
    return df.withColumns({name: lit(None).cast(data_type) for name, data_type in lacking.items()}) if lacking else df


#: The result of the latest write of this process, by path.
_results_by_path: Final[dict[str, CommitResult]] = {}
_MOST_REMEMBERED_RESULTS: Final = 100


def write_dataframe(
    df: DataFrame,
    path: str,
    mode: str = "append",
    *,
    commit_metadata: Mapping[str, str] | None = None,
    progress: bool = False,
    **options: Unpack[SparkWriteOptions],
) -> CommitResult:
    """Write the rows of a DataFrame in one commit.

    Few rows are written by this process, others by Spark's tasks; :func:`explain_write` says which. This process commits.

    Args:
        df: the rows.
        path: the table; it is created if there is none.
        mode: ``append`` runs the operation of the options; ``overwrite`` replaces all rows, older states stay readable;
            ``error`` and ``ignore`` if there is a table.
        commit_metadata: texts to keep in the commit, beside those of the options.
        progress: say on the standard error stream what is done, in a terminal and a notebook with a bar of the tasks.
        **options: Hudi's options by their names, settings of lakefmt, and ``storage.…`` for the store; most names have dots
            and are given in a dictionary.

    Returns:
        What was committed.

    Raises:
        TableExists: there is a table, and the mode is ``error``.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: more rows than one process should take (``lakefmt.spark.stage.max.bytes``).

    Example::

        options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.precombine.field": "ts"}
        lakefmt.spark.write(df, "/data/trips", commit_metadata={"job": "nightly"}, **options)
    """
    texts = option_texts(options)
    return write_with_entries(df, path, mode, texts, None, commit_metadata=commit_metadata, progress=progress)


def write_with_entries(
    df: DataFrame,
    path: str,
    mode: str,
    texts: dict[str, str],
    entries: CommitEntries | None,
    *,
    commit_metadata: Mapping[str, str] | None = None,
    progress: bool = False,
) -> CommitResult:
    """Write the rows of a DataFrame in one commit that says what a function decides under the table lock.

    Args:
        df: the rows.
        path: the table.
        mode: as for :func:`write_dataframe`.
        texts: the options; those of the way of the rows are taken out.
        entries: the function; None: the commit says nothing of the kind. With it the table has to be there.
        commit_metadata: as for :func:`write_dataframe`.
        progress: as for :func:`write_dataframe`.
    """
    limits, sort = take_limits(texts, _shuffle_partitions(df)), take_sort(texts)
    call = replace(with_commit_metadata(parse_write_options(texts), commit_metadata), entries=entries)
    log_notes(call.notes)
    table = _existing_table(path, mode, call)
    if table is not None and mode == "ignore":
        return CommitResult(None, operation=WriteOperation((call.operation or "upsert").upper()))
    df, schema = accept_rows(df, call, table)
    result: CommitResult | None = None
    if call.operation == "delete_partition":
        result = write_and_commit(path, mode, call, schema, list)
    elif table is not None or call.operation != "delete":
        steps = WriteSteps() if progress else SilentSteps()
        with closing(SparkWrite(df, path, mode, schema, call, limits, table, sort, steps)) as write:
            result = write.run()
    if result is None:
        result = _stage_and_commit(df, path, mode, call, schema, limits.stage_bytes)
    result = with_notes(result, call.notes)
    _remember_result(path, result)
    return result


def write_few_rows(
    df: DataFrame,
    path: str,
    *,
    commit_metadata: Mapping[str, str] | None = None,
    table: Table | None = None,
    row_bytes: float | None = None,
    **options: Unpack[SparkWriteOptions],
) -> FewRows | None:
    """Append the rows of a DataFrame to a table if they are few, by one job of Spark; no rows make no commit.

    Where the size of a row is known no worker of Python takes part.

    Args:
        df: the rows.
        path: the table.
        commit_metadata: as for :func:`write_dataframe`.
        table: a handle of the table that these options opened; None: one is opened.
        row_bytes: about the bytes of a row, as Arrow holds them; None: that is not known.
        **options: as for :func:`write_dataframe`.

    Returns:
        What was written; None: nothing was done, and :func:`write_dataframe` has to write the rows.
    """
    texts = option_texts(options)
    # How many tasks there may be matters to those ways alone that have tasks.
    collects = row_bytes is not None and can_collect(df)
    limits, sort = take_limits(texts) if collects else take_limits(texts, _shuffle_partitions(df)), take_sort(texts)
    call = with_commit_metadata(parse_write_options(texts), commit_metadata)
    table = existing_table(path, call) if table is None else table
    if table is None or call.operation in ("delete", "delete_partition"):
        return None
    if row_bytes is not None and collects and call.operation in (None, "upsert", "insert"):
        return _collect_and_write(df, path, call, limits, table, row_bytes)
    df, schema = accept_rows(df, call, table)
    with closing(SparkWrite(df, path, "append", schema, call, limits, table, sort)) as write:
        result = write.run_few()
    if result is not None and result.instant is not None:
        _remember_result(path, result)
    return None if result is None else write.few


def _collect_and_write(
    df: DataFrame, path: str, call: WriteCall, limits: Limits, table: Table, row_bytes: float
) -> FewRows | None:
    """Let Spark send the rows to this process, if they are few, and write them here."""
    df, schema = shape_rows(df, call, table)
    check_creation(table, call)
    with job_description(df.sparkSession, f"lakefmt: send few rows to the driver ({path})"):
        rows = collect_few(df, schema, limits, row_bytes, table, call)
    if rows is None:
        return None
    if rows.num_rows:
        _remember_result(path, write_few_and_commit(table, "append", call, [rows]))
    return FewRows(rows.num_rows, rows.nbytes)


def partition_columns_apart(df: DataFrame, path: str, options: Mapping[str, str]) -> Sequence[str]:
    """Return the partition columns that belong to the identity of a row (:attr:`SparkWrite.partition_columns`).

    Args:
        df: the rows of an upsert.
        path: the table; where there is none, it is the one that the write would create.
        options: of the write.
    """
    texts = option_texts(dict(options))
    limits, sort = take_limits(texts), take_sort(texts)
    call = parse_write_options(texts)
    table = existing_table(path, call)
    df, schema = shape_rows(df, call, table)
    with closing(SparkWrite(df, path, "append", schema, call, limits, table, sort)) as write:
        return write.partition_columns


def explain_write(
    df: DataFrame, path: str, mode: str = "append", **options: Unpack[SparkWriteOptions]
) -> SparkWritePlan:
    """Return how a write would run: by which way, over how many tasks and files, and why. The rows are counted for it.

    Args:
        df: the rows.
        path: the table.
        mode: as for :func:`write_dataframe`.
        **options: as for :func:`write_dataframe`.

    Raises:
        TableExists: there is a table, and the mode is ``error``.
        UnknownSetting: an option that is not known.

    Example::

        print(lakefmt.spark.explain_write(df, "/data/trips", **options))
    """
    texts = option_texts(options)
    limits, sort = take_limits(texts, _shuffle_partitions(df)), take_sort(texts)
    call = parse_write_options(texts)
    table = _existing_table(path, mode, call)
    if call.operation == "delete_partition":
        return SparkWritePlan("driver", "no rows are written", "delete_partition", 0)
    if table is None and call.operation == "delete":
        raise TableNotFound(f"there is no table at {path}: nothing can be deleted")
    df, schema = accept_rows(df, call, table)
    with closing(SparkWrite(df, path, mode, schema, call, limits, table, sort)) as write:
        return write.plan()


def _shuffle_partitions(df: DataFrame) -> int:
    value = df.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or "200"
    return max(1, int(value))


def _stage_and_commit(
    df: DataFrame, path: str, mode: str, call: WriteCall, schema: pa.Schema, limit: int
) -> CommitResult:
    """Let tasks stage the rows and write them here."""
    stage, store = new_stage(), open_store(path, call.storage)
    try:
        staged = _stage_by_tasks(df, path, call, stage, schema, limit)
        check_size(sum(part.num_bytes for part in staged), limit)
        return write_and_commit(path, mode, call, schema, lambda: read_staged(store, staged))
    finally:
        remove_stage(store, stage)


def with_commit_metadata(call: WriteCall, texts: Mapping[str, str] | None) -> WriteCall:
    """Return a call that keeps more texts in its commit."""
    return replace(call, commit_metadata={**call.commit_metadata, **texts}) if texts else call


def _existing_table(path: str, mode: str, call: WriteCall) -> Table | None:
    """Return the table if there is one; refuse a mode before Spark computes anything."""
    if mode not in MODES:
        raise InvalidInputError(f"unknown mode {mode!r}: expected {', '.join(MODES)}")
    table = existing_table(path, call)
    if table is not None and mode in ("error", "errorifexists"):
        raise TableExists(f"there is a table at {path}: mode('append') adds to it, mode('overwrite') replaces its rows")
    return table


def _stage_by_tasks(
    df: DataFrame, path: str, call: WriteCall, stage: str, schema: pa.Schema, limit: int
) -> list[StagedRows]:
    storage = dict(call.storage)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = stage_rows(open_store(path, storage), stage, batches, schema, limit)
        json_text = json.dumps([list(staged.names), staged.rows, staged.num_bytes])
        yield pa.RecordBatch.from_pydict({"staged": pa.array([json_text], pa.string())})

    parts = [json.loads(row["staged"]) for row in df.mapInArrow(run, "staged string").collect()]  # one for each task
    return [StagedRows(tuple(names), rows, num_bytes) for names, rows, num_bytes in parts]


def last_commit(path: str) -> CommitResult | None:
    """Return the result of the latest write to a table by :func:`write_dataframe` in this process; None: there was none.

    Args:
        path: the table, as the write was given it.

    Example:
        >>> last_commit("/data/never-written") is None
        True
    """
    return _results_by_path.get(path)


def _remember_result(path: str, result: CommitResult) -> None:
    _results_by_path.pop(path, None)
    _results_by_path[path] = result
    while len(_results_by_path) > _MOST_REMEMBERED_RESULTS:
        del _results_by_path[next(iter(_results_by_path))]
