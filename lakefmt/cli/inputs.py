"""Read Parquet, CSV and JSON lines from files or standard input, batch by batch.

Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. Columns of the table are parsed as the table's types: strings keep
leading zeros, and timestamps without a zone are UTC. The types of other columns are inferred from their first values.
"""

from __future__ import annotations

import codecs
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow import csv, json

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, SchemaMismatch
from lakefmt.write.ingest import without_index

__all__ = ["FORMATS", "STDIN", "Source", "guess_format", "open_batches", "parse_texts", "read_schema"]

FORMATS = ("parquet", "csv", "jsonl")
STDIN = "-"

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_BLOCK = 4 << 20
#: Byte order marks and their encodings; longer ones first, because the UTF-32 mark begins with the UTF-16 one.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Longer lines are refused, so that memory stays bounded.
_MAX_LINE_BYTES = 64 << 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Source:
    """An input and how to read it.

    Attributes:
        place: the path of a file, or ``-`` for standard input.
        format: one of :data:`FORMATS`.
        delimiter: the character between CSV cells.
        nulls: texts that mean null in CSV, in addition to the empty cell.
        absent_is_missing: leave out a column that no JSON line has, instead of filling it with nulls.
    """

    place: str
    format: str
    delimiter: str = ","
    nulls: tuple[str, ...] = ()
    absent_is_missing: bool = False

    @property
    def shown(self) -> str:
        """The name of the input in messages."""
        return "standard input" if self.place == STDIN else self.place


def guess_format(place: str) -> str | None:
    """Return the format for a file name's suffix, None if the suffix is unknown.

    Example:
        >>> guess_format("a/b.ndjson"), guess_format("-")
        ('jsonl', None)
    """
    return _SUFFIXES.get(Path(place).suffix.lower())


def open_batches(
    sources: Sequence[Source], schema: pa.Schema, count: Callable[[int], None] = lambda _rows: None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all sources in order; nothing is read ahead.

    Args:
        sources: at least one.
        schema: the table's columns; those not in it get inferred types.
        count: called with the number of rows of each batch.

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
    """Return the schema of an input, inferred from its first rows where the format has none.

    Raises:
        InvalidInputError: it is not in its format, or is empty.
    """
    nothing = pa.schema([])
    for batch in _guarded(source, nothing):
        return without_index(batch.schema).remove_metadata()
    raise InvalidInputError(f"{source.shown} is empty: it has no schema")


def _aligned(batch: pa.RecordBatch, first: pa.Schema, source: Source) -> pa.RecordBatch:
    """Return a batch with the columns and types of the first input."""
    if sorted(batch.schema.names) != sorted(first.names):
        raise SchemaMismatch(
            f"{source.shown} has the columns {batch.schema.names}, but earlier inputs have {first.names}"
        )
    try:
        return batch.select(first.names).cast(first)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        raise SchemaMismatch(f"{source.shown} has other column types than earlier inputs: {error}") from error


def _guarded(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = {"parquet": _read_parquet, "csv": _read_csv, "jsonl": _read_json_lines}[source.format]
    try:
        yield from reader(source, schema)
    except UnicodeError as error:
        raise InvalidInputError(
            f"{source.shown} cannot be read as {source.format}: a name or text is not UTF-8 ({error}); convert it to UTF-8, "
            "or to UTF-16 with a byte order mark"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{source.shown} cannot be read as {source.format}: {what}") from error


def _opened(source: Source) -> BinaryIO:
    """Open a text file and convert it to UTF-8 if it begins with the byte order mark of another encoding."""
    file = sys.stdin.buffer if source.place == STDIN else Path(source.place).open("rb")  # noqa: SIM115 - the caller closes it
    if file.seekable():
        start = file.read(4)
        file.seek(-len(start), io.SEEK_CUR)
    else:
        start = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), None)
    return file if encoding is None else cast("BinaryIO", io.BufferedReader(_AsUtf8(file, encoding)))


class _AsUtf8(io.RawIOBase):
    """Converts a text in another encoding to UTF-8, without its byte order mark."""

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
    """Open a file that can seek: Parquet is read from its end, so standard input is copied to a temporary file."""
    if source.place != STDIN:
        return Path(source.place).open("rb")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while block := sys.stdin.buffer.read(_BLOCK):
        copy.write(block)
    copy.seek(0)
    return copy


# --- CSV ----------------------------------------------------------------------------------------------------------


def _read_csv(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    convert = csv.ConvertOptions(
        column_types={field.name: _type_in_csv(field.type) for field in schema},
        null_values=["", *source.nulls],
        strings_can_be_null=True,
        # As `lakefmt read` writes it: an empty cell is null, a quoted empty one is the empty string.
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
    # JSON has no bytes; reading its text as bytes would change values that were printed as base64.
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind) or _holds_binary(kind):
        return pa.string()
    return kind


def _holds_binary(kind: pa.DataType) -> bool:
    children = [kind.field(i).type for i in range(kind.num_fields)]
    return bool(pt.is_binary(kind) or pt.is_fixed_size_binary(kind) or any(_holds_binary(child) for child in children))


def _whole_lines(source: Source) -> Iterator[bytes]:
    """Yield blocks of whole lines; blank blocks are skipped."""
    held = b""
    with _opened(source) as file:
        while block := file.read(_BLOCK):
            held += block
            head, newline, rest = held.rpartition(b"\n")
            if newline:
                held = rest
                if head.strip():
                    yield head + newline
            elif len(held) > _MAX_LINE_BYTES:
                raise InvalidInputError(f"{source.shown} has a line of more than {_MAX_LINE_BYTES:,} bytes")
    if held.strip():
        yield held


# --- texts in the columns of a table --------------------------------------------------------------------------------


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with its text columns parsed to the table's timestamps, dates and times."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.field(name).type if name in schema.names else column.type
        columns.append(parse_texts(name, column, kind) if pt.is_string(column.type) else column)
    return pa.record_batch(columns, names=batch.schema.names)


def parse_texts(name: str, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as values of a type; timestamps without a zone are UTC.

    Raises:
        SchemaMismatch: a text cannot be parsed, or values of the type cannot be read from text.
    """
    if pt.is_string(kind) or pt.is_large_string(kind):
        return texts
    if pt.is_nested(kind) or pt.is_binary(kind):
        raise SchemaMismatch(f"column {name!r} of type {kind} cannot be read from text: use JSON lines or Parquet")
    try:
        return _with_date(texts, kind) if pt.is_time(kind) else _with_zone(texts, kind).cast(kind)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {name!r} of type {kind}: {error}") from error


def _with_date(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times of day, parsed as timestamps of one day: Arrow cannot parse times."""
    moments = pc.replace_substring_regex(texts, "^", "1970-01-01T")
    return moments.cast(pa.timestamp(kind.unit)).cast(kind)


def _with_zone(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return timestamps with ``Z`` added where the zone is missing, and midnight where the time is missing."""
    if not pt.is_timestamp(kind) or kind.tz is None:
        return texts
    texts = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    return pc.replace_substring_regex(texts, r"([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)$", r"\1Z")
