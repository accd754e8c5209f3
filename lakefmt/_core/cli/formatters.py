"""What commands print: rows as JSON lines, CSV, Parquet or a table, timelines and file slices, and results.

Columns are formatted whole, by functions of arrays (json_lines, csv_lines, cell_texts). Numbers are JSON numbers; not-a-number and
the infinities are the texts ``"NaN"``, ``"Infinity"``, ``"-Infinity"``. Timestamps are ISO 8601 (in UTC, with a ``Z``, if the
column has a zone). Binary is base64. Maps are JSON objects.

A result is one line for people, and one JSON object for programs.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import text_offsets
from lakefmt._core.data_classes import replace
from lakefmt._core.values import printable, size_text
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lakefmt._core.filegroups.model import FileSlice
    from lakefmt._core.read.stats import TimelineEntry
    from lakefmt._core.values import CommitResult

__all__ = [
    "FORMATS",
    "cell_texts",
    "counted",
    "csv_head",
    "csv_lines",
    "draw_slices",
    "draw_timeline",
    "json_lines",
    "json_texts",
    "plain_console",
    "print_json",
    "print_lines",
    "print_result",
    "printable",
    "result_as_json",
    "size_text",
    "text_bytes",
    "write_rows",
]

_TEXT_TYPE = pa.large_string()
_CONTROL_PATTERN = r"[\x00-\x1f\x7f-\x9f]"
_CONTROL_CHARACTERS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
FORMATS = ("table", "csv", "jsonl", "parquet")
#: Rows of a table without --limit.
_PREVIEW_ROWS = 20
_MAX_CELL_WIDTH = 40
_BATCH_ROWS = 65_536
_WIDTH_WITHOUT_TERMINAL = 400
_STATE_COLOURS = {"○": "yellow", "◐": "yellow", "●": "green", "✗": "red"}


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    r"""Return one JSON object per row, each with a line feed at its end.

    Example:
        >>> json_lines(pa.record_batch({"a": [1, None], "b": ["x", "\n"]})).to_pylist()
        ['{"a": 1, "b": "x"}\n', '{"a": null, "b": "\\u000a"}\n']
    """
    if not batch.num_columns or not batch.num_rows:
        return pa.array([], _TEXT_TYPE)
    return _json_objects(batch.schema.names, [json_texts(column) for column in batch.columns], end="}\n")


def text_bytes(texts: pa.Array) -> memoryview:
    """Return the concatenated bytes of all texts, without copying."""
    flat = texts.cast(_TEXT_TYPE)
    data = flat.buffers()[2]
    if data is None or not len(flat):
        return memoryview(b"")
    ends = text_offsets(flat)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON; null becomes the text ``null``.

    Raises:
        UnsupportedFeature: values of the type cannot be written as JSON.
    """
    return pc.fill_null(_json_or_null(_plain_array(array)), _text_scalar("null"))


def _text_scalar(text: str | None) -> pa.Scalar:
    return pa.scalar(text, _TEXT_TYPE)


def _concatenated(*parts: pa.Array | str) -> pa.Array:
    """Return the parts concatenated row by row; null where a part is null."""
    typed = [_text_scalar(part) if isinstance(part, str) else part.cast(_TEXT_TYPE) for part in parts]
    return pc.binary_join_element_wise(*typed, _text_scalar(""))


def _plain_array(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pt.is_dictionary(array.type) else array


def _json_or_null(array: pa.Array) -> pa.Array:
    kind = array.type
    if pt.is_null(kind):
        return pa.nulls(len(array), _TEXT_TYPE)
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind):
        return array.cast(_TEXT_TYPE)
    if pt.is_floating(kind):
        return _json_floats(array)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _json_quoted(_json_escaped(array.cast(_TEXT_TYPE)))
    if pt.is_struct(kind):
        children = [json_texts(child) for child in array.flatten()]
        return _null_where_null(_json_objects([kind.field(i).name for i in range(kind.num_fields)], children), array)
    if pt.is_map(kind):
        return _json_maps(array)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        return _null_where_null(_bracketed(json_texts(array.flatten()), lengths, "[]"), array)
    return _json_quoted(_leaf_text(array))


def _leaf_text(array: pa.Array) -> pa.Array:
    """Return values of a type without children as text that needs no escapes in JSON."""
    kind = array.type
    if pt.is_timestamp(kind):
        instant = array if kind.tz is None else array.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.replace_substring(instant.cast(_TEXT_TYPE), " ", "T", max_replacements=1)
    if pt.is_date(kind) or pt.is_time(kind):
        return array.cast(_TEXT_TYPE)
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _null_where_null(_base64_texts(array.cast(pa.large_binary())), array)
    raise UnsupportedFeature(f"a column of type {kind} cannot be written as text: use --format parquet")


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Return floats as their shortest decimals; whole numbers end with ``.0``."""
    kind = pa.float32() if pt.is_float16(array.type) else array.type
    return pc.replace_substring_regex(array.cast(kind).cast(_TEXT_TYPE), "^(-?[0-9]+)$", r"\1.0")


def _json_floats(array: pa.Array) -> pa.Array:
    texts = _decimal_texts(array)
    words = (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))
    for arrow_text, json_text in words:
        texts = pc.if_else(pc.equal(texts, _text_scalar(arrow_text)), _text_scalar(json_text), texts)
    return texts


def _json_escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _without_controls(texts)


def _without_controls(texts: pa.Array) -> pa.Array:
    r"""Return texts with control characters as ``\u001b``: JSON requires it, and terminals would obey them."""
    if not pc.any(pc.match_substring_regex(texts, _CONTROL_PATTERN), min_count=0).equals(pa.scalar(True)):
        return texts
    for control in _CONTROL_CHARACTERS:
        texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return texts


def _json_quoted(texts: pa.Array) -> pa.Array:
    return _concatenated('"', texts, '"')


def _json_objects(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Return JSON objects: one column of texts for each name."""
    if not columns:
        raise UnsupportedFeature("a struct without fields cannot be written as text")
    parts: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", column]
    return _concatenated(*parts, end)


def _json_maps(array: pa.MapArray) -> pa.Array:
    whole = array.take(pa.array(np.arange(len(array))))  # keys and items of a slice are those of its parent
    ends = np.asarray(whole.offsets).astype(np.int64)
    keys, items = (child.slice(int(ends[0]), int(ends[-1] - ends[0])) for child in (whole.keys, whole.items))
    names = json_texts(keys)
    if not (pt.is_string(keys.type) or pt.is_large_string(keys.type)):
        names = _json_quoted(pc.replace_substring(names, '"', ""))
    return _null_where_null(
        _bracketed(_concatenated(names, ": ", json_texts(items)), pa.array(np.diff(ends)), "{}"), array
    )


def _bracketed(children: pa.Array, lengths: pa.Array, brackets: str) -> pa.Array:
    """Return the elements of each list joined by commas, in brackets; `lengths` holds the number of elements."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(lengths).astype(np.int64))])
    grouped = pa.LargeListArray.from_arrays(pa.array(ends), children.cast(_TEXT_TYPE))
    return _concatenated(brackets[0], pc.binary_join(grouped, _text_scalar(", ")), brackets[1])


def _null_where_null(texts: pa.Array, like: pa.Array) -> pa.Array:
    return pc.if_else(like.is_valid(), texts, _text_scalar(None))


def _base64_texts(array: pa.Array) -> pa.Array:
    """Return the base64 of each value. Padded to a multiple of three bytes, all values are encoded in one call."""
    array = pc.fill_null(array, b"") if array.null_count else array
    starts = text_offsets(array)
    lengths = np.diff(starts)
    threes = -(-lengths // 3)
    ends = np.concatenate([[0], np.cumsum(threes)]) * 3
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
    padded = np.zeros(ends[-1], np.uint8)
    padded[np.arange(len(data)) + np.repeat(ends[:-1] - (starts[:-1] - starts[0]), lengths)] = data
    text = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8).copy()
    ends = ends // 3 * 4
    missing = threes * 3 - lengths
    text[ends[1:][missing > 0] - 1] = ord("=")
    text[ends[1:][missing > 1] - 2] = ord("=")
    return pa.Array.from_buffers(_TEXT_TYPE, len(array), [None, pa.py_buffer(ends), pa.py_buffer(text)])


# --- CSV and terminal ---------------------------------------------------------------------------------------------


def csv_lines(batch: pa.RecordBatch) -> pa.Array:
    r"""Return one line of CSV per row (RFC 4180, with line feeds); null is an empty cell, the empty string is quoted.

    Example:
        >>> csv_lines(pa.record_batch({"a": [1, None], "b": ["x, y", ""]})).to_pylist()
        ['1,"x, y"\n', ',""\n']
    """
    if not batch.num_columns or not batch.num_rows:
        return pa.array([], _TEXT_TYPE)
    cells = [pc.fill_null(_csv_cells(_plain_array(column)), _text_scalar("")) for column in batch.columns]
    between = [part for cell in cells for part in (",", cell)][1:]
    return _concatenated(*between, "\n")


def csv_head(schema: pa.Schema) -> str:
    """Return the header line of CSV."""
    names = _csv_quoted(pa.array(schema.names, _TEXT_TYPE))
    return ",".join(map(str, names)) + "\n"


def _csv_cells(array: pa.Array) -> pa.Array:
    """Return a column's values as CSV cells; null stays null."""
    kind = array.type
    if pt.is_nested(kind):
        return _csv_quoted(_json_or_null(array))
    texts = _value_texts(array)
    return _csv_quoted(texts) if pt.is_string(kind) or pt.is_large_string(kind) else texts


def _csv_quoted(texts: pa.Array) -> pa.Array:
    quoted = _concatenated('"', pc.replace_substring(texts, '"', '""'), '"')
    needed = pc.or_(pc.match_substring_regex(texts, '[",\r\n]'), pc.equal(texts, _text_scalar("")))
    return pc.if_else(needed, quoted, texts.cast(_TEXT_TYPE))


def _value_texts(array: pa.Array) -> pa.Array:
    """Return values of a type without children as text without quotes; null stays null."""
    kind = array.type
    if pt.is_floating(kind):
        return _decimal_texts(array)
    if pt.is_null(kind):
        return pa.nulls(len(array), _TEXT_TYPE)
    if (
        pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_boolean(kind)
        or pt.is_integer(kind)
        or pt.is_decimal(kind)
    ):
        return array.cast(_TEXT_TYPE)
    return _leaf_text(array)


def cell_texts(array: pa.Array, widest: int) -> pa.Array:
    """Return values for a table on the terminal: no quotes, no control characters, at most `widest` characters."""
    array = _plain_array(array)
    texts = _json_or_null(array) if pt.is_nested(array.type) else _without_controls(_value_texts(array))
    texts = pc.fill_null(texts, _text_scalar("null"))
    cut = _concatenated(pc.utf8_slice_codeunits(texts, 0, widest - 1), "…")
    return pc.if_else(pc.greater(pc.utf8_length(texts), widest), cut, texts)


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
    shown = limit if limit is not None or how != "table" else _PREVIEW_ROWS
    with _opened_output(output) as target:
        writer = _row_writer(how, schema, target, limit is None)
        complete = False
        try:
            # One row more than a table shows tells whether there are more.
            for batch in _first_rows(batches, None if shown is None else shown + (how == "table" and limit is None)):
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
    left = most
    for batch in batches if left else ():
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
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
        kept = _columns_that_fit([width for _, width in drawn], room)
        lines = _joined_columns([column for column, _ in drawn[:kept]])
        self._target.write(text_bytes(lines))
        notes = [counted(table.num_rows, "row")] if not more else [f"first {_PREVIEW_ROWS} rows; --limit shows more"]
        notes += [f"{counted(len(drawn) - kept, 'more column')}: select with --columns"] if kept < len(drawn) else []
        self._target.write(f"({'; '.join(notes)})\n".encode())


def _padded_column(name: str, column: pa.ChunkedArray) -> tuple[pa.Array, int]:
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
