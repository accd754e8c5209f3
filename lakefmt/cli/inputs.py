"""Where rows come from: Parquet, CSV and JSON lines, in files or on standard input, batch by batch.

Texts are UTF-8, or what the mark at their beginning says (UTF-16, UTF-32). The table's schema says how text is read: a
column of strings keeps its leading zeros, moments without a zone are taken as UTC. Columns that the table does not have get the type their first values show.
"""

from __future__ import annotations

import codecs
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow import csv, json

from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = ["FORMATS", "STDIN", "Source", "guess_format", "open_batches", "parse_texts", "read_schema"]

FORMATS = ("parquet", "csv", "jsonl")
STDIN = "-"

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_BLOCK = 4 << 20
#: How a text tells its encoding; the longer marks come first, because one begins with another.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: A line longer than this is no line of JSON but something else.
_LONGEST_LINE = 64 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Source:
    """How to read one input.

    Attributes:
        place: a file, or ``-`` for standard input.
        format: one of :data:`FORMATS`.
        delimiter: between the cells of CSV.
        nulls: texts that mean null in CSV, besides the empty cell.
        absent_is_missing: in JSON lines, a field that no line has is not taken for a column of nulls.
    """

    place: str
    format: str
    delimiter: str = ","
    nulls: tuple[str, ...] = ()
    absent_is_missing: bool = False

    @property
    def shown(self) -> str:
        """What messages call it."""
        return "standard input" if self.place == STDIN else self.place


def guess_format(place: str) -> str | None:
    """Return the format that a file's name tells, None when it tells none.

    Example:
        >>> guess_format("a/b.ndjson"), guess_format("-")
        ('jsonl', None)
    """
    return _SUFFIXES.get(Path(place).suffix.lower())


def open_batches(
    sources: Sequence[Source], schema: pa.Schema, count: Callable[[int], None] = lambda _rows: None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all sources, one after the other; nothing is read ahead.

    Args:
        sources: at least one.
        schema: the table's columns.
        count: is told how many rows went by.

    Raises:
        InvalidInputError: an input is not in its format.
        SchemaMismatch: inputs have different columns.
    """
    first: pa.Schema | None = None
    for source in sources:
        for batch in _guarded(source, schema):
            first = first or batch.schema
            count(batch.num_rows)
            yield batch if batch.schema.equals(first) else _aligned(batch, first, source)


def read_schema(source: Source) -> pa.Schema:
    """Return the schema that an input shows in its first rows.

    Raises:
        InvalidInputError: it is not in its format, or shows none.
    """
    nothing = pa.schema([])
    for batch in _guarded(source, nothing):
        return batch.schema.remove_metadata()
    raise InvalidInputError(f"{source.shown} shows no schema: it is empty")


def _aligned(batch: pa.RecordBatch, first: pa.Schema, source: Source) -> pa.RecordBatch:
    """Columns in the order of the first input; nothing else may differ."""
    if sorted(batch.schema.names) != sorted(first.names):
        raise SchemaMismatch(f"{source.shown} has the columns {batch.schema.names}, inputs before it {first.names}")
    try:
        return batch.select(first.names).cast(first)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        raise SchemaMismatch(f"{source.shown} does not fit the inputs before it: {error}") from error


def _guarded(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = {"parquet": _read_parquet, "csv": _read_csv, "jsonl": _read_json_lines}[source.format]
    try:
        yield from reader(source, schema)
    except UnicodeError as error:
        raise InvalidInputError(
            f"{source.shown} cannot be read as {source.format}: a name or text in it is not UTF-8 ({error}); convert it, or "
            "give it as UTF-8 or UTF-16 with a mark"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{source.shown} cannot be read as {source.format}: {what}") from error


def _opened(source: Source) -> BinaryIO:
    """Open a text as UTF-8, whatever the mark at its beginning says that it is; without a mark as it is."""
    file = sys.stdin.buffer if source.place == STDIN else Path(source.place).open("rb")  # noqa: SIM115 - the caller closes it
    if file.seekable():
        start = file.read(4)
        file.seek(-len(start), io.SEEK_CUR)
    else:
        start = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    encoding = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    return file if encoding is None else cast("BinaryIO", io.BufferedReader(_AsUtf8(file, encoding)))


class _AsUtf8(io.RawIOBase):
    """A text in another encoding, read as UTF-8; its mark is left out."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._held = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        while not self._held and not self._ended:
            block = self._file.read(_BLOCK)
            self._ended = not block
            self._held = self._decoder.decode(block, final=self._ended).encode()
        count = min(len(room), len(self._held))
        room[:count], self._held = self._held[:count], self._held[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


# --- Parquet ------------------------------------------------------------------------------------------------------


def _read_parquet(source: Source, _schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with _seekable(source) as file:
        parquet = pq.ParquetFile(file)
        empty = True
        for batch in parquet.iter_batches(_BATCH_ROWS):
            empty = False
            yield batch
        if empty:
            yield pa.RecordBatch.from_pylist([], parquet.schema_arrow)


def _seekable(source: Source) -> BinaryIO:
    """A Parquet file is read from its end, so standard input is put aside first."""
    if source.place != STDIN:
        return Path(source.place).open("rb")
    aside = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while block := sys.stdin.buffer.read(_BLOCK):
        aside.write(block)
    aside.seek(0)
    return aside


# --- CSV ----------------------------------------------------------------------------------------------------------


def _read_csv(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    convert = csv.ConvertOptions(
        column_types={field.name: _type_in_csv(field.type) for field in schema},
        null_values=["", *source.nulls],
        strings_can_be_null=True,
        # As lakefmt writes it: an empty cell is null, a quoted empty one is empty text.
        quoted_strings_can_be_null=False,
    )
    with _opened(source) as file:
        reader = csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=_BLOCK),
            parse_options=csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
            convert_options=convert,
        )
        empty = True
        for batch in reader:
            empty = False
            yield _typed(batch, schema)
        if empty:
            yield _typed(pa.RecordBatch.from_pylist([], reader.schema), schema)


def _type_in_csv(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pt.is_timestamp(kind) or pt.is_nested(kind) or pt.is_binary(kind) else kind


# --- JSON lines ---------------------------------------------------------------------------------------------------


def _read_json_lines(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    expected = pa.schema([(field.name, _type_in_json(field.type)) for field in schema])
    for block in _whole_lines(source):
        wanted = expected
        if source.absent_is_missing:
            named = json.read_json(io.BytesIO(block)).schema.names
            wanted = pa.schema([field for field in expected if field.name in named])
        parse = json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="infer")
        table = json.read_json(io.BytesIO(block), json.ReadOptions(block_size=max(len(block), 1)), parse)
        for batch in table.combine_chunks().to_batches():
            yield _typed(batch, schema)


def _type_in_json(kind: pa.DataType) -> pa.DataType:
    # Bytes have no form of their own in JSON; taken as text they would come in as other bytes than went out.
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind) or _holds_binary(kind):
        return pa.string()
    return kind


def _holds_binary(kind: pa.DataType) -> bool:
    children = [kind.field(i).type for i in range(kind.num_fields)]
    return bool(pt.is_binary(kind) or pt.is_fixed_size_binary(kind) or any(_holds_binary(child) for child in children))


def _whole_lines(source: Source) -> Iterator[bytes]:
    """Blocks that end where a line ends; blank ones are left out."""
    held = b""
    with _opened(source) as file:
        while block := file.read(_BLOCK):
            held += block
            head, newline, rest = held.rpartition(b"\n")
            if newline:
                held = rest
                if head.strip():
                    yield head + newline
            elif len(held) > _LONGEST_LINE:
                raise InvalidInputError(f"{source.shown} has a line of more than {_LONGEST_LINE:,} bytes")
    if held.strip():
        yield held


# --- texts in the columns of a table --------------------------------------------------------------------------------


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with its texts parsed where the table wants moments, dates or times."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.field(name).type if name in schema.names else column.type
        columns.append(parse_texts(name, column, kind) if pt.is_string(column.type) else column)
    return pa.record_batch(columns, names=batch.schema.names)


def parse_texts(name: str, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as the values of a column; moments without a zone are in UTC.

    Raises:
        SchemaMismatch: a text is no value of that type, or the type has no form as text.
    """
    if pt.is_string(kind) or pt.is_large_string(kind):
        return texts
    if pt.is_nested(kind) or pt.is_binary(kind):
        raise SchemaMismatch(f"column {name!r} of type {kind} cannot be read from text: bring JSON lines or Parquet")
    try:
        return _with_date(texts, kind) if pt.is_time(kind) else _with_zone(texts, kind).cast(kind)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {name!r} of type {kind}: {error}") from error


def _with_date(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times of day, parsed as those of some day: Arrow parses moments, not times."""
    moments = pc.replace_substring_regex(texts, "^", "1970-01-01T")
    return moments.cast(pa.timestamp(kind.unit)).cast(kind)


def _with_zone(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Moments with a ``Z`` where they name no zone, and midnight where they name no time."""
    if not pt.is_timestamp(kind) or kind.tz is None:
        return texts
    texts = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    return pc.replace_substring_regex(texts, r"([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)$", r"\1Z")
