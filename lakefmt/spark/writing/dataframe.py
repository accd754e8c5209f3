"""Write DataFrames by functions, on every release of PySpark that lakefmt takes (effects)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefmt import Table
from lakefmt.errors import InvalidInputError, TableExists
from lakefmt.spark.options import WriteCall, option_texts, parse_write_options
from lakefmt.spark.types import dataframe_schema
from lakefmt.spark.writing.commit import MODES, existing_table, write_and_commit
from lakefmt.spark.writing.staging import (
    StagedRows,
    check_size,
    new_stage,
    read_staged,
    remove_stage,
    stage_rows,
    take_limit,
)
from lakefmt.storage.open import open_store
from lakefmt.values import CommitResult, WriteOperation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["last_commit", "write_dataframe"]

#: The result of the latest write of this process, by path.
_results: Final[dict[str, CommitResult]] = {}
_REMEMBERED: Final = 100


def write_dataframe(
    df: DataFrame,
    path: str,
    mode: str = "append",
    *,
    commit_metadata: Mapping[str, str] | None = None,
    **options: object,
) -> CommitResult:
    """Write the rows of a DataFrame in one commit.

    Spark's tasks compute and stage the rows; this process writes and commits them.

    Args:
        df: the rows.
        path: the table; it is created if there is none.
        mode: ``append`` runs the operation of the options; ``overwrite`` replaces all rows, older states stay readable;
            ``error`` and ``ignore`` if there is a table.
        commit_metadata: texts to keep in the commit, beside those of the options.
        **options: Hudi's options by their names, settings of lakefmt, and ``storage.…`` for the store.

    Returns:
        What was committed.

    Raises:
        TableExists: there is a table, and the mode is ``error``.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: more rows than one process should take (``lakefmt.spark.stage.max.bytes``).
    """
    texts = option_texts(options)
    limit = take_limit(texts)
    call = with_commit_metadata(parse_write_options(texts), commit_metadata)
    schema = dataframe_schema(df.schema)
    table = _existing_table(path, mode, call)
    if table is not None and mode == "ignore":
        return CommitResult(None, operation=WriteOperation((call.operation or "upsert").upper()))
    stage, store = new_stage(), open_store(path, call.storage)
    try:
        staged = [] if call.operation == "delete_partition" else _stage(df, path, call, stage, schema, limit)
        check_size(sum(part.num_bytes for part in staged), limit)
        result = write_and_commit(path, mode, call, schema, lambda: read_staged(store, staged))
    finally:
        remove_stage(store, stage)
    _remember(path, result)
    return result


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


def _stage(df: DataFrame, path: str, call: WriteCall, stage: str, schema: pa.Schema, limit: int) -> list[StagedRows]:
    storage = dict(call.storage)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = stage_rows(open_store(path, storage), stage, batches, schema, limit)
        text = json.dumps([list(done.names), done.rows, done.num_bytes])
        yield pa.RecordBatch.from_pydict({"staged": pa.array([text], pa.string())})

    parts = [json.loads(row["staged"]) for row in df.mapInArrow(run, "staged string").collect()]  # one for each task
    return [StagedRows(tuple(names), rows, num_bytes) for names, rows, num_bytes in parts]


def last_commit(path: str) -> CommitResult | None:
    """Return the result of the latest write to a table by :func:`write_dataframe` in this process; None: there was none."""
    return _results.get(path)


def _remember(path: str, result: CommitResult) -> None:
    _results.pop(path, None)
    _results[path] = result
    while len(_results) > _REMEMBERED:
        del _results[next(iter(_results))]
