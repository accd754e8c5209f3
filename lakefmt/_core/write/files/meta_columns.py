"""Rows on their way into one file: which of them delete their key, and the meta columns that they get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.filegroups.base_writer import repeated
from lakefmt._core.filegroups.merge import Mask
from lakefmt._core.filegroups.ordering import marked_deletes, to_mask
from lakefmt._core.formats.parquet.base_file import (
    same_text,
    with_dictionaries,
)
from lakefmt._core.keys import build_auto_keys, build_auto_keys_of_many
from lakefmt._core.values import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    WriteOperation,
)
from lakefmt._core.write.context import MOVED_AWAY, BoundContext, FileAssignment

#: A column of routed rows, never stored as such: the row of the base file that a log's row changes.
POSITION = "_lakefmt_position"


#: With fewer rows a column of one text is as quick without a dictionary.
_ROWS_FOR_DICTIONARY = 1000


_Column: TypeAlias = pa.Array | pa.ChunkedArray


def routed_deletes(bound: BoundContext, rows: pa.Table) -> Mask:
    """Return which routed rows remove their key from the file."""
    if bound.operation is WriteOperation.DELETE:
        return np.ones(rows.num_rows, dtype=bool)
    if bound.operation is WriteOperation.BULK_INSERT:
        return np.zeros(rows.num_rows, dtype=bool)  # writes rows as they are
    return deletes_among(rows, bound.rule)


def deletes_among(rows: pa.Table, rule: MergeRule) -> Mask:
    """Return which rows mark themselves as deletes, or are marked: by a stream, or because their key moves away."""
    flags = marked_deletes(rows, rule)
    if MOVED_AWAY in rows.column_names:
        flags |= to_mask(pc.fill_null(rows.column(MOVED_AWAY), False))
    return flags


class MetaColumns:
    """Completes routed rows with the meta columns of one file; sequence numbers count on over batches.

    Args:
        instant: the writing instant.
        assignment: the file.
        may_be_coded: in a new file of many rows, columns of one text may come as dictionaries.
    """

    def __init__(self, instant: str, assignment: FileAssignment, *, may_be_coded: bool = False) -> None:
        self._instant = instant
        self._assignment = assignment
        self._next = 0
        #: Columns of one text come as dictionaries; the first rows of a new file say so for all.
        self._coded: bool | None = None if may_be_coded and assignment.base is None else False

    def add_to(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return the rows with every column of the file; columns that a delete does not carry are null.

        Args:
            rows: the rows.
            schema: every column.
        """
        count, first, file = rows.num_rows, self._next, self._assignment
        self._next += count
        if self._coded is None:
            self._coded = count >= _ROWS_FOR_DICTIONARY
        same = same_text if self._coded else repeated
        return _completed(
            rows,
            schema,
            lambda: same(self._instant, count),
            # Sequence numbers and generated keys have one form (docs/format.md, Meta columns).
            lambda: build_auto_keys(self._instant, file.sequence, first, count),
            lambda: same(str(file.partition), count),
            lambda: same(file.shown_file, count),
        )


def with_meta_of(
    instant: str, assignments: Sequence[FileAssignment], counts: Sequence[int], rows: pa.Table, schema: pa.Schema
) -> pa.Table:
    """Return the rows of several files, one file's behind the other's, as :class:`MetaColumns` would of each alone.

    Args:
        instant: the writing instant.
        assignments: the files.
        counts: how many of the rows are each one's.
        rows: the rows.
        schema: every column of the files.
    """

    def repeated_each(texts: Sequence[str]) -> pa.Array:
        return pa.array(texts, pa.string()).take(from_numpy(np.repeat(np.arange(len(counts)), counts)))

    def numbered() -> pa.Array:
        return build_auto_keys_of_many(instant, [each.sequence for each in assignments], counts)

    partitions, files = [str(each.partition) for each in assignments], [each.shown_file for each in assignments]
    times = repeated(instant, rows.num_rows)
    return _completed(
        rows, schema, lambda: times, numbered, lambda: repeated_each(partitions), lambda: repeated_each(files)
    )


def _completed(
    rows: pa.Table,
    schema: pa.Schema,
    times: Callable[[], _Column],
    numbers: Callable[[], pa.Array],
    partitions: Callable[[], _Column],
    files: Callable[[], _Column],
) -> pa.Table:
    count, present = rows.num_rows, frozenset(rows.column_names)
    made: Mapping[str, Callable[[], _Column]] = {
        COMMIT_TIME: times,
        COMMIT_SEQNO: numbers,
        RECORD_KEY: lambda: rows.column(RECORD_KEY) if RECORD_KEY in present else numbers(),
        PARTITION_PATH: partitions,
        FILE_NAME: files,
    }
    columns = []
    for number, name in enumerate(schema.names):
        if name in made:
            columns.append(made[name]())
        elif name in present:
            columns.append(rows.column(name))
        else:
            columns.append(pa.nulls(count, schema.field(number).type))
    return pa.Table.from_arrays(columns, schema=with_dictionaries(schema, columns))
