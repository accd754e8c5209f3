"""Write the rows of a DataFrame, in the process that commits (effects)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from lakefmt import Table, write_table
from lakefmt._core.config.merge_rule import is_payload_class
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.create_and_write import check_agreement, check_properties, found_table, write_existing
from lakefmt._core.data_classes import replace
from lakefmt._core.values import RECORD_KEY, CommitResult, WriteOperation
from lakefmt._core.write.context import WriteRequest, parse_call
from lakefmt.errors import InvalidInputError, TableExists, TableNotFound, UnsupportedFeature
from lakefmt.options import WriteOptions
from lakefmt.spark.options import WriteCall

__all__ = [
    "MODES",
    "check_creation",
    "existing_table",
    "request_of",
    "resolve_operation",
    "write_and_commit",
    "write_few_and_commit",
]

_OPERATION: Final = "hoodie.datasource.write.operation"
_MERGE_MODES: Final = ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
#: Where a table keeps the payload class by which it merges, or did before an upgrade.
_PAYLOADS: Final = ("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class")
#: Spark's save modes.
MODES: Final = ("append", "overwrite", "error", "errorifexists", "ignore")


def existing_table(path: str, call: WriteCall) -> Table | None:
    """Return the table, or None; a table whose creator died before its first commit is removed first."""
    return found_table(path, call.settings, call.storage)


def check_creation(table: Table | None, call: WriteCall) -> None:
    """Raise when options that create a table contradict the one that is there, or ask of a new one what no table here has.

    Raises:
        InvalidInputError: they contradict the table.
        InvalidKey: they name another key generator than the table's.
        UnsupportedFeature: a new table would merge rows by a payload class that has no meaning here.
    """
    if table is None:
        if call.merging not in (None, *_MERGE_MODES) and not is_payload_class(call.merging or ""):
            raise UnsupportedFeature(
                f"hoodie.datasource.write.payload.class={call.merging} is not supported: Java does not run in Python; Hudi's own "
                "classes are (docs/guarantees.md), and a merger of your own (docs/merging.md)"
            )
        return
    names = ("record_key", "ordering", "partition_by")
    check_agreement(table, **{name: call.creation.get(name) for name in names})
    check_properties(table, call.restated)
    if call.merging is not None:
        _check_merging(table.properties, table.client.store.url, call.merging)


def _check_merging(config: TableConfig, url: str, merging: str) -> None:
    """Raise when a table merges rows by another rule than options say."""
    there = config.merge_mode.value
    payload = next((config.properties[name] for name in _PAYLOADS if name in config.properties), "")
    # The default class without an ordering column is the later write.
    names = {there, payload, payload.rsplit(".", 1)[-1], *(() if config.ordering_fields else ("EVENT_TIME_ORDERING",))}
    if merging not in names and merging.rsplit(".", 1)[-1] not in names:
        rule = f"{there} ({payload})" if payload else there
        raise InvalidInputError(f"{url} merges rows by {rule}, not by {merging}: leave the option out")


def write_few_and_commit(table: Table, mode: str, call: WriteCall, rows: Sequence[pa.Table]) -> CommitResult:
    """Write rows that this process has to a table that is there, and commit.

    Args:
        table: the table, opened with the settings of the call.
        mode: a save mode of Spark, ``append`` or ``overwrite``.
        call: what the options ask for: a write, no delete.
        rows: at least one table.
    """
    operation = resolve_operation(call, mode, table, rows[0].schema)
    return _write_to(table, operation, _reader(rows[0].schema, lambda: rows), call)


def write_and_commit(
    path: str, mode: str, call: WriteCall, schema: pa.Schema, rows: Callable[[], Iterable[pa.Table]]
) -> CommitResult:
    """Run one write and commit it; create the table where there is none.

    Args:
        path: the table.
        mode: a save mode of Spark; ``overwrite`` replaces all rows, older states stay readable.
        call: what the options ask for.
        schema: the schema of the rows.
        rows: gives the rows; called at most once.

    Raises:
        TableExists: there is one, and the mode is ``error``.
        TableNotFound: there is none to delete from.
        InvalidInputError: an unknown mode, or options that contradict the table.
    """
    if mode not in MODES:
        raise InvalidInputError(f"unknown mode {mode!r}: expected {', '.join(MODES)}")
    table = existing_table(path, call)
    operation = resolve_operation(call, mode, table, schema)
    if table is not None and mode in ("error", "errorifexists"):
        raise TableExists(f"there is a table at {path}: mode('append') adds to it, mode('overwrite') replaces its rows")
    if table is not None and mode == "ignore":
        return CommitResult(None, operation=WriteOperation((operation or "upsert").upper()))
    check_creation(table, call)
    if table is not None:
        return _write_to(table, operation, _reader(schema, rows), call)
    if operation in ("delete", "delete_partition"):
        raise TableNotFound(f"there is no table at {path}: nothing can be deleted")
    replaces, arguments = operation == "insert_overwrite_table", _write_arguments(call)
    return write_table(
        path,
        _reader(schema, rows),
        mode="overwrite" if replaces else "append",
        operation=None if replaces else operation,
        storage_options=call.storage,
        **call.creation,
        **arguments,
    )


def _write_arguments(call: WriteCall) -> WriteOptions:
    settings = {name: value for name, value in call.settings.items() if name != _OPERATION}
    return {"options": settings, "commit_metadata": dict(call.commit_metadata)}


def _write_to(table: Table, operation: str | None, data: pa.RecordBatchReader, call: WriteCall) -> CommitResult:
    """Write rows to a table that is there."""
    if call.entries is not None:
        return _write_with_entries(table, operation, data, call)
    arguments = _write_arguments(call)
    if operation == "delete_partition":
        return table.delete_partitions(_partitions(call), **arguments)
    if operation == "delete":
        return table.delete(data, **arguments)
    if operation == "insert_overwrite_table":
        return write_existing(table, "overwrite", None, data, arguments)
    return write_existing(table, "append", operation, data, arguments)


def _write_with_entries(
    table: Table, operation: str | None, data: pa.RecordBatchReader, call: WriteCall
) -> CommitResult:
    """Write rows by a commit that says what a function decides under the table lock."""
    name = operation or ("upsert" if table.properties.record_key_fields else "insert")
    return table._write(WriteOperation(name.upper()), data, _write_arguments(call), call.entries)


def resolve_operation(call: WriteCall, mode: str, table: Table | None, schema: pa.Schema) -> str | None:
    """Return the operation that is run; None: upsert or insert, as the table has a record key.

    Args:
        call: what the options ask for.
        mode: a save mode of Spark.
        table: the table, if there is one.
        schema: of the rows. Those that bring the key with which they were read are updates, as in Hudi.
    """
    if mode != "overwrite" and call.operation is None and table is not None and RECORD_KEY in schema.names:
        return "upsert" if table.client.key_spec(table.properties).auto_keys else None
    if mode != "overwrite" or call.operation in ("insert_overwrite", "delete", "delete_partition"):
        return call.operation
    return "insert_overwrite_table" if table is not None else call.operation


def request_of(operation: WriteOperation, call: WriteCall) -> WriteRequest:
    """Return what a call asks of the core."""
    request, _ = parse_call(operation, _write_arguments(call), call.entries)
    partial = operation is WriteOperation.DELETE  # of keys to delete the key columns are enough
    return replace(request, partial=True) if partial else request


def _partitions(call: WriteCall) -> list[str]:
    if not call.partitions:
        raise InvalidInputError("delete_partition needs hoodie.datasource.write.partitions.to.delete")
    return list(call.partitions)


def _reader(schema: pa.Schema, rows: Callable[[], Iterable[pa.Table]]) -> pa.RecordBatchReader:
    batches = (batch for table in rows() for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)
