"""Rows of a write on their way between Spark's tasks, and from them to the process that commits.

Between stages rows are packed as Arrow streams into a column of bytes. So a row keeps the type of the table's column, and a
shuffle moves a few large values instead of many rows.

Without a shuffle every task stages its rows in objects below ``.hoodie/.lakefmt/stage/<id>/``; the process that commits
reads those of the attempts that Spark names, and removes them all. No other engine looks there.

The process that commits writes the rows that it collects (effects).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from lakefmt import Table, write_table
from lakefmt._core.config.merge_rule import is_payload_class
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.create_and_write import check_agreement, check_properties, found_table, write_existing
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.values import RECORD_KEY, CommitResult, WriteOperation
from lakefmt._core.write.context import WriteRequest, parse_call
from lakefmt._core.write.ingest import KeyedBatch
from lakefmt.errors import InvalidInputError, TableExists, TableNotFound, UnsupportedFeature
from lakefmt.options import WriteOptions
from lakefmt.spark.options import WriteCall

__all__ = [
    "COUNTED",
    "MAX_BYTES",
    "MODES",
    "PREPARED",
    "ROUTED",
    "STAGE",
    "StagedRows",
    "by_partition",
    "check_creation",
    "check_size",
    "existing_table",
    "line_of",
    "new_stage",
    "pack",
    "pre_images",
    "read_staged",
    "remove_stage",
    "request_of",
    "resolve_operation",
    "sorted_tables",
    "stage_rows",
    "unpack",
    "write_and_commit",
    "write_few_and_commit",
]

#: Rows of one partition path: where they come from, how many they are, and the rows.
PREPARED: Final = "partition string, source int, number int, rows bigint, bytes bigint, data binary"
#: How many rows a partition path has in one task, and packed rows.
COUNTED: Final = "partition string, rows bigint, bytes bigint, source int, number int, data binary"
#: Rows of one task.
ROUTED: Final = "slot int, source int, number int, rows bigint, data binary"


def pack(table: pa.Table) -> bytes:
    """Return rows as one Arrow stream.

    Example:
        >>> unpack(pack(pa.table({"n": [1, 2]}))).num_rows
        2
    """
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack(data: Any) -> pa.Table:
    """Return the rows of :func:`pack`."""
    with ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def line_of(values: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return one line of packed rows, with what is said of them.

    Example:
        >>> line_of((1, b""), pa.schema([("rows", pa.int64()), ("data", pa.binary())])).to_pylist()
        [{'rows': 1, 'data': b''}]
    """
    columns = {name: [value] for name, value in zip(schema.names, values, strict=True)}
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def by_partition(batch: KeyedBatch) -> Iterator[tuple[str, pa.Table]]:
    """Yield each partition path with its rows, in their order."""
    codes = batch.partitions.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    distinct, starts = np.unique(codes[order], return_index=True)
    ends = np.append(starts[1:], len(codes))
    names = batch.partitions.dictionary
    alone = len(distinct) == 1
    for code, start, end in zip(distinct, starts, ends, strict=True):  # partitions, not rows
        yield names[int(code)].as_py(), batch.table if alone else batch.table.take(pa.array(order[start:end]))


def pre_images(slots: int) -> list[int]:
    """Return for each slot an integer that Spark's hash partitioning puts there: ``repartition(slots, column)``.

    Example:
        >>> pre_images(4)
        [12, 6, 2, 0]
    """
    images: dict[int, int] = {}
    number = 0
    while len(images) < slots:
        images.setdefault(_murmur3(number) % slots, number)
        number += 1
    return [images[slot] for slot in range(slots)]


def _murmur3(value: int) -> int:
    """Return Spark's hash of an integer: Murmur3 of four bytes, seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) * 0x1B873593 & mask
    h = 42 ^ k
    h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def sorted_tables(batches: Iterable[pa.RecordBatch]) -> list[pa.Table]:
    """Return the rows of packed batches in the order of their sources."""
    packed = pa.Table.from_batches(list(batches)).sort_by([("source", "ascending"), ("number", "ascending")])
    return [unpack(value.as_buffer()) for value in packed.column("data")]


STAGE: Final = ".hoodie/.lakefmt/stage"
#: More rows, as Arrow holds them, than one process may take by default.
MAX_BYTES: Final = 1 << 30
#: Rows are put when they have this many bytes.
_STAGED_OBJECT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What one attempt of a task has staged.

    Attributes:
        names: its objects, in the order of their rows.
        rows: their rows.
        num_bytes: the bytes of the rows, as Arrow holds them.
    """

    names: tuple[str, ...] = ()
    rows: int = 0
    num_bytes: int = 0


def new_stage() -> str:
    """Return the directory of a new write, relative to the table."""
    return f"{STAGE}/{uuid4().hex}"


def stage_rows(
    store: ObjectStore, stage: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, limit: int = MAX_BYTES
) -> StagedRows:
    """Put the rows of one attempt of a task; its objects have names of their own.

    Args:
        store: the table's.
        stage: from :func:`new_stage`.
        batches: the rows.
        schema: what they are cast to.
        limit: bytes that one attempt may stage.

    Raises:
        UnsupportedFeature: there are more rows than one process should take.
    """
    attempt = uuid4().hex
    names: list[str] = []
    pending: list[pa.RecordBatch] = []
    held_bytes = rows = total = 0
    for batch in batches:
        pending.append(batch.select(schema.names).cast(schema))
        held_bytes += pending[-1].nbytes
        rows, total = rows + batch.num_rows, total + pending[-1].nbytes
        check_size(total, limit)
        if held_bytes >= _STAGED_OBJECT_BYTES:
            names.append(_put_staged(store, f"{stage}/{attempt}-{len(names)}.arrow", pending, schema))
            pending, held_bytes = [], 0
    if rows and pending:
        names.append(_put_staged(store, f"{stage}/{attempt}-{len(names)}.arrow", pending, schema))
    return StagedRows(tuple(names), rows, total)


def check_size(num_bytes: int, limit: int) -> None:
    """Raise when a write has more bytes of rows than one process should take.

    Raises:
        UnsupportedFeature: it has.
    """
    if num_bytes > limit:
        raise UnsupportedFeature(
            f"the rows of this write take more than {limit:,} bytes, and one process writes them: split the write, or raise "
            "lakefmt.spark.stage.max.bytes if that process has the memory"
        )


def _put_staged(store: ObjectStore, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> str:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    store.put(name, sink.getvalue())
    return name


def read_staged(store: ObjectStore, staged: Iterable[StagedRows]) -> Iterator[pa.Table]:
    """Yield the rows of the attempts that count, object by object."""
    for part in staged:
        for name in part.names:
            with ipc.open_stream(pa.py_buffer(store.read(name))) as reader:
                yield reader.read_all()


def remove_stage(store: ObjectStore, stage: str) -> None:
    """Remove everything that a write has staged; twice is fine."""
    store.delete_tree(stage)


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
