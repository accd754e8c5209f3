"""Stores the merged rows of a large file part by part: one is encoded while the next is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

import pyarrow as pa

from lakefmt.data_classes import replace
from lakefmt.filegroups.merge.base import Merged, sum_of_parts
from lakefmt.values import RECORD_KEY
from lakefmt.write.files.workers import WorkerPool

__all__ = ["store_parts"]


def store_parts(
    parts: Iterable[Merged], store: Callable[[Merged], None], *, beside: bool
) -> tuple[Merged, pa.ChunkedArray]:
    """Store the rows of each part, in their order; return the counts of all of them, and their keys.

    Args:
        parts: merged rows, made while they are asked for.
        store: writes the rows of a part; it is called once at a time.
        beside: it is called in another thread, while the next part is made.
    """
    done: list[Merged] = []
    keys: list[pa.Array] = []
    stored: Future[None] | None = None
    with WorkerPool(2 if beside else 1) as writer:
        for part in parts:
            if stored is not None:
                stored.result()  # no more than one part waits
            stored = writer.submit(store, part)
            keys += part.table.column(RECORD_KEY).chunks
            done.append(replace(part, table=part.table.schema.empty_table()))  # a slice would hold all rows
            del part  # else it would be held while the next one is made
        if stored is not None:
            stored.result()
    return sum_of_parts(done), pa.chunked_array(keys, pa.string())
