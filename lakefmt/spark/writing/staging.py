"""Rows of a write on their way from Spark's tasks to the process that commits them (effects).

Every task puts its rows into objects below ``.hoodie/.lakefmt/stage/<id>/``; the process that commits reads those of the
attempts that Spark names, and removes them all. No other engine looks there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc as ipc

from lakefmt.data_classes import dataclass
from lakefmt.errors import UnsupportedFeature
from lakefmt.storage.api import ObjectStore

__all__ = [
    "MAX_BYTES",
    "STAGE",
    "StagedRows",
    "check_size",
    "new_stage",
    "read_staged",
    "remove_stage",
    "stage_rows",
]

STAGE: Final = ".hoodie/.lakefmt/stage"
#: More rows, as Arrow holds them, than one process may take by default.
MAX_BYTES: Final = 1 << 30
#: Rows are put when they have this many bytes.
_OBJECT_BYTES: Final = 64 << 20


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
    held: list[pa.RecordBatch] = []
    held_bytes = rows = total = 0
    for batch in batches:
        held.append(batch.select(schema.names).cast(schema))
        held_bytes += held[-1].nbytes
        rows, total = rows + batch.num_rows, total + held[-1].nbytes
        check_size(total, limit)
        if held_bytes >= _OBJECT_BYTES:
            names.append(_put(store, f"{stage}/{attempt}-{len(names)}.arrow", held, schema))
            held, held_bytes = [], 0
    if rows and held:
        names.append(_put(store, f"{stage}/{attempt}-{len(names)}.arrow", held, schema))
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


def _put(store: ObjectStore, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> str:
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
