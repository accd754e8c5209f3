"""What commands print: rows as JSON lines, CSV, Parquet or a table, timelines and file slices, and results.

Columns are formatted whole, by the functions of ``arrow_texts``. Numbers are JSON numbers; not-a-number and
the infinities are the texts ``"NaN"``, ``"Infinity"``, ``"-Infinity"``. Timestamps are ISO 8601 (in UTC, with a ``Z``, if the
column has a zone). Binary is base64. Maps are JSON objects.

A result is one line for people, and one JSON object for programs.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrow_texts import cell_texts, csv_head, csv_lines, json_lines, text_bytes
from lakefmt._core.data_classes import replace
from lakefmt._core.schema.types import is_number
from lakefmt._core.values import printable, size_text
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lakefmt._core.filegroups.model import FileSlice
    from lakefmt._core.read.stats import TimelineEntry
    from lakefmt._core.values import CommitResult

__all__ = [
    "FORMATS",
    "counted",
    "draw_slices",
    "draw_timeline",
    "plain_console",
    "print_json",
    "print_lines",
    "print_result",
    "printable",
    "result_as_json",
    "size_text",
    "warnings_on_stderr",
    "write_rows",
]

FORMATS = ("table", "csv", "jsonl", "parquet")
#: Rows of a table without --limit.
_PREVIEW_ROWS = 20
_MAX_CELL_WIDTH = 40
_BATCH_ROWS = 65_536
_WIDTH_WITHOUT_TERMINAL = 400
_STATE_COLOURS = {"○": "yellow", "◐": "yellow", "●": "green", "✗": "red"}


# --- rows in a format ---------------------------------------------------------------------------------------------


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
    most_rows = limit if limit is not None or how != "table" else _PREVIEW_ROWS
    with _opened_output(output) as target:
        writer = _row_writer(how, schema, target, limit is None)
        complete = False
        try:
            # One row more than a table shows tells whether there are more.
            for batch in _first_rows(
                batches, None if most_rows is None else most_rows + (how == "table" and limit is None)
            ):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    part = batch.slice(start, _BATCH_ROWS)
                    writer.write(part)
                    count(part.num_rows)
            complete = True
        finally:
            writer.end(complete=complete)


@contextmanager
def _opened_output(output: Path | None) -> Iterator[BinaryIO]:
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


def _first_rows(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    if most is None:
        yield from batches
        return
    remaining = most
    for batch in batches if remaining else ():
        yield batch.slice(0, min(remaining, batch.num_rows))
        remaining -= min(remaining, batch.num_rows)
        if not remaining:
            return


def _row_writer(how: str, schema: pa.Schema, target: BinaryIO, is_preview: bool) -> _RowWriter:
    if how == "csv":
        return _CsvWriter(schema, target)
    if how == "jsonl":
        return _JsonLinesWriter(target)
    return _ParquetWriter(schema, target) if how == "parquet" else _TerminalTable(schema, target, is_preview)


class _JsonLinesWriter:
    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.write(text_bytes(json_lines(batch)))

    def end(self, *, complete: bool) -> None:
        pass


class _CsvWriter:
    def __init__(self, schema: pa.Schema, target: BinaryIO) -> None:
        self._target = target
        target.write(csv_head(schema).encode())

    def write(self, batch: pa.RecordBatch) -> None:
        self._target.write(text_bytes(csv_lines(batch)))

    def end(self, *, complete: bool) -> None:
        pass


class _ParquetWriter:
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


class _TerminalTable:
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
        drawn = [_padded_column(name, table.column(i)) for i, name in enumerate(table.column_names)]
        room = shutil.get_terminal_size().columns if self._target.isatty() else 0
        num_columns = _columns_that_fit([width for _, width in drawn], room)
        lines = _joined_columns([column for column, _ in drawn[:num_columns]])
        self._target.write(text_bytes(lines))
        notes = [counted(table.num_rows, "row")] if not more else [f"first {_PREVIEW_ROWS} rows; --limit shows more"]
        notes += (
            [f"{counted(len(drawn) - num_columns, 'more column')}: select with --columns"]
            if num_columns < len(drawn)
            else []
        )
        self._target.write(f"({'; '.join(notes)})\n".encode())


def _padded_column(name: str, column: pa.ChunkedArray) -> tuple[pa.Array, int]:
    """Return a column's name, rule and cells padded to one width, and that width."""
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    heads = cell_texts(pa.array([name], pa.large_string()), _MAX_CELL_WIDTH)
    cells = cell_texts(values, _MAX_CELL_WIDTH)
    widths = pc.utf8_length(pa.concat_arrays([heads, cells]))
    width = int(str(pc.max(widths)))
    pad = pc.utf8_lpad if is_number(column.type) else pc.utf8_rpad
    rule = pa.array(["─" * width], heads.type)
    return pa.concat_arrays([pad(heads, width), rule, pad(cells, width)]), width


def _columns_that_fit(widths: list[int], room: int) -> int:
    """Return the number of columns that fit into `room` characters, at least 1; all if `room` is 0."""
    used, num_columns = 0, 0
    for width in widths:
        used += width + (2 if num_columns else 0)
        if room and num_columns and used > room:
            break
        num_columns += 1
    return num_columns


def _joined_columns(columns: list[pa.Array]) -> pa.Array:
    if not columns:
        return pa.array([], pa.large_string())
    between, end, nothing = (pa.scalar(sign, columns[0].type) for sign in ("  ", "\n", ""))
    trimmed = pc.utf8_rtrim_whitespace(pc.binary_join_element_wise(*columns, between))
    return pc.binary_join_element_wise(trimmed, end, nothing)


# --- timelines, file slices and results ---------------------------------------------------------------------------


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "file"), counted(2000, "row")
        ('1 file', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plain_console() -> Console:
    """Return a console on standard output without highlighting; without a terminal it does not wrap lines."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, emoji=False, width=None if is_terminal else _WIDTH_WITHOUT_TERMINAL)


def draw_timeline(entries: Sequence[TimelineEntry], *, titles: bool = True) -> RenderableType:
    """Return the timeline as one line per instant, oldest first, as ``print(table.timeline)`` prints it."""
    from rich.text import Text

    from lakefmt._core.read.stats import draw_lines

    drawn = Text(no_wrap=True, overflow="ellipsis")
    for number, line in enumerate(draw_lines(entries, titles=titles)):
        colour = _STATE_COLOURS.get(line[:1], "dim" if line[:1] in " │" else "")
        drawn.append("\n" if number else "")
        drawn.append(line[:1], colour)
        drawn.append(line[1:], "dim" if line.startswith(" ") else "")
    return drawn


def draw_slices(root: str, slices: Iterable[FileSlice]) -> RenderableType:
    """Return the latest file slices as a tree of partitions and file groups with their sizes."""
    from rich.text import Text
    from rich.tree import Tree

    grouped: dict[str, list[FileSlice]] = {}
    for file_slice in slices:
        grouped.setdefault(file_slice.partition, []).append(file_slice)
    total = sum(file_slice.size_bytes for members in grouped.values() for file_slice in members)
    tree = Tree(Text(f"{root}  {size_text(total)}", "bold"), guide_style="dim")
    for partition, members in sorted(grouped.items()):
        size = size_text(sum(file_slice.size_bytes for file_slice in members))
        branch = tree.add(
            Text(f"{printable(partition) or '(no partitions)'}  {counted(len(members), 'file group')}, {size}")
        )
        for file_slice in members:
            logs = f", {counted(len(file_slice.logs), 'log file')}" if file_slice.logs else ""
            branch.add(
                Text(f"{printable(file_slice.file_id)}  {file_slice.instant}  {size_text(file_slice.size_bytes)}{logs}")
            )
    return tree


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def result_as_json(result: CommitResult) -> dict[str, object]:
    """Return a result as a JSON object; files as their paths."""
    return {
        **{f.name: getattr(result, f.name) for f in dataclasses.fields(result)},
        "operation": result.operation.value.lower(),
        "files": [stat.path for stat in result.files],
        "warnings": list(result.warnings),
        "seconds": round(result.seconds, 6),
    }


def print_result(result: CommitResult, as_json: bool) -> None:
    """Print the result of a write; its warnings go to stderr."""
    if as_json:
        print_json(result_as_json(result))
        return
    click.echo(str(replace(result, warnings=())))
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)


def print_lines(text: str) -> None:
    """Print lines as they are indented, without control characters."""
    for line in text.split("\n"):
        inner = line.lstrip(" ")
        click.echo(" " * (len(line) - len(inner)) + printable(inner))


class _OnStderr(logging.Handler):
    """Prints warnings and errors as lines on the standard error, or as objects, when they come."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        line, name = printable(record.getMessage()), "error" if record.levelno >= logging.ERROR else "warning"
        click.echo(json.dumps({name: line}) if self._as_json else f"{name}: {line}", err=True)


@contextmanager
def warnings_on_stderr(*, as_json: bool) -> Iterator[None]:
    """Print what is logged as a warning or an error while a command runs that may go on for long.

    Args:
        as_json: as JSON objects instead of lines.
    """
    handler = _OnStderr(as_json=as_json)
    logger = logging.getLogger("lakefmt")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
