"""Write rows as a table on the terminal, CSV, JSON lines or a Parquet file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.cli.formatters import cell_texts, counted, csv_head, csv_lines, json_lines, text_bytes
from lakefmt.errors import UnsupportedFeature

__all__ = ["FORMATS", "write_rows"]

FORMATS = ("table", "csv", "jsonl", "parquet")

#: Rows of a table without --limit.
_PREVIEW_ROWS = 20
_MAX_CELL_WIDTH = 40
_BATCH_ROWS = 65_536


class _RowWriter(Protocol):
    """Takes batches of one schema; `end` is called once, also after a failure."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def end(self, *, complete: bool) -> None: ...


def write_rows(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    how: str,
    output: Path | None,
    limit: int | None,
    count: Callable[[int], None],
) -> None:
    """Write rows in a format, in bounded memory; only a table on the terminal is held whole.

    Args:
        schema: the schema of all batches.
        batches: the rows.
        how: one of :data:`FORMATS`.
        output: the file to write, which appears when it is complete; None: standard output.
        limit: maximum number of rows; None: no limit, in a table 20.
        count: called with the number of rows of each batch written.

    Raises:
        UnsupportedFeature: the format cannot represent a column.
    """
    shown = limit if limit is not None or how != "table" else _PREVIEW_ROWS
    with _opened(output) as target:
        writer = _row_writer(how, schema, target, limit is None)
        complete = False
        try:
            # One row more than a table shows tells whether there are more.
            for batch in _first(batches, None if shown is None else shown + (how == "table" and limit is None)):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    part = batch.slice(start, _BATCH_ROWS)
                    writer.write(part)
                    count(part.num_rows)
            complete = True
        finally:
            writer.end(complete=complete)


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        target = sys.stdout.buffer
        yield target
        target.flush()
        return
    partial = output.with_name(f"{output.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def _first(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    if most is None:
        yield from batches
        return
    left = most
    for batch in batches if left else ():
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def _row_writer(how: str, schema: pa.Schema, target: BinaryIO, is_preview: bool) -> _RowWriter:
    if how == "csv":
        return _Csv(schema, target)
    if how == "jsonl":
        return _JsonLines(target)
    return _Parquet(schema, target) if how == "parquet" else _Terminal(schema, target, is_preview)


class _JsonLines:
    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.write(text_bytes(json_lines(batch)))

    def end(self, *, complete: bool) -> None:
        pass


class _Csv:
    def __init__(self, schema: pa.Schema, target: BinaryIO) -> None:
        self._target = target
        target.write(csv_head(schema).encode())

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.write(text_bytes(csv_lines(batch)))

    def end(self, *, complete: bool) -> None:
        pass


class _Parquet:
    def __init__(self, schema: pa.Schema, target: BinaryIO) -> None:
        import pyarrow.parquet as pq

        try:
            self._writer = pq.ParquetWriter(target, schema, compression="zstd")
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedFeature(f"Parquet cannot hold these columns: {error}") from error

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def end(self, *, complete: bool) -> None:
        self._writer.close()


class _Terminal:
    """An aligned table; columns that do not fit into the terminal are counted below it."""

    def __init__(self, schema: pa.Schema, target: BinaryIO, is_preview: bool) -> None:
        self._schema, self._target, self._is_preview = schema, target, is_preview
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def end(self, *, complete: bool) -> None:
        if complete:
            self._print()

    def _print(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        more = self._is_preview and table.num_rows > _PREVIEW_ROWS
        table = table.slice(0, _PREVIEW_ROWS) if more else table
        drawn = [_padded(name, table.column(i)) for i, name in enumerate(table.column_names)]
        room = shutil.get_terminal_size().columns if self._target.isatty() else 0
        kept = _columns_that_fit([width for _, width in drawn], room)
        lines = _joined_columns([column for column, _ in drawn[:kept]])
        self._target.write(text_bytes(lines))
        notes = [counted(table.num_rows, "row")] if not more else [f"first {_PREVIEW_ROWS} rows; --limit shows more"]
        notes += [f"{counted(len(drawn) - kept, 'more column')}: select with --columns"] if kept < len(drawn) else []
        self._target.write(f"({'; '.join(notes)})\n".encode())


def _padded(name: str, column: pa.ChunkedArray) -> tuple[pa.Array, int]:
    """Return a column's name, rule and cells padded to one width, and that width."""
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    heads = cell_texts(pa.array([name], pa.large_string()), _MAX_CELL_WIDTH)
    cells = cell_texts(values, _MAX_CELL_WIDTH)
    widths = pc.utf8_length(pa.concat_arrays([heads, cells]))
    width = int(str(pc.max(widths)))
    pad = pc.utf8_lpad if _is_number(column.type) else pc.utf8_rpad
    rule = pa.array(["─" * width], heads.type)
    return pa.concat_arrays([pad(heads, width), rule, pad(cells, width)]), width


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _columns_that_fit(widths: list[int], room: int) -> int:
    """Return the number of columns that fit into `room` characters, at least 1; all if `room` is 0."""
    used, kept = 0, 0
    for width in widths:
        used += width + (2 if kept else 0)
        if room and kept and used > room:
            break
        kept += 1
    return kept


def _joined_columns(columns: list[pa.Array]) -> pa.Array:
    if not columns:
        return pa.array([], pa.large_string())
    between, end, nothing = (pa.scalar(sign, columns[0].type) for sign in ("  ", "\n", ""))
    trimmed = pc.utf8_rtrim_whitespace(pc.binary_join_element_wise(*columns, between))
    return pc.binary_join_element_wise(trimmed, end, nothing)
