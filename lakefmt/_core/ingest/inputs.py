"""Reads the rows of files: Parquet, CSV and JSON lines, batch by batch.

Rows come from files, from what a caller opens, or from standard input. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. Columns of the table are parsed
as the table's types: strings keep leading zeros, and timestamps without a zone are UTC. The types of other columns are guessed
from their first values, such that no two values become one: what is not the own form of a number is text (docs/cli.md, write).
"""

from __future__ import annotations

import codecs
import csv as csv_texts
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow import csv, json

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.types import struct_fields
from lakefmt._core.write.ingest import without_index
from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = [
    "FORMATS",
    "STDIN",
    "GuessedTypes",
    "Input",
    "guess_format",
    "open_batches",
    "parse_texts",
    "read_input",
    "read_schema",
]

FORMATS = ("parquet", "csv", "jsonl")
STDIN = "-"
_FORMAT_OF_SUFFIX = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_BLOCK_BYTES = 4 << 20
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
#: Whole numbers: in canonical form with at most 38 digits, with spaces or a sign around it, with leading zeros.
_CANONICAL_WHOLE: Final = r"^(0|-?[1-9][0-9]{0,37})$"
_PLAIN_WHOLE: Final = r"^\s*[+-]?(0|[1-9][0-9]*)\s*$"
_WHOLE_NUMBER: Final = r"^\s*[+-]?[0-9]+\s*$"
_LEADING_ZERO: Final = r"^\s*[+-]?0[0-9]"
#: A double holds these and not all larger whole numbers.
_EXACT_DIGITS: Final = r"^\s*[+-]?[0-9]{1,15}\s*$"
_WIDE_DECIMAL: Final = pa.decimal256(76, 38)
_BIG_WHOLE_TYPE: Final = pa.decimal128(38, 0)
_MOST_EXACT_DOUBLE: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Input:
    """An input and how to read it.

    Attributes:
        place: the path of a file, or ``-`` for standard input.
        format: one of :data:`FORMATS`.
        delimiter: the character between CSV cells.
        nulls: texts that mean null in CSV, in addition to the empty cell.
        absent_is_missing: leave out a column that no JSON line has, instead of filling it with nulls.
        names: the columns of CSV without a header; empty: the first line has them.
        opener: opens it, where it is no local file.
    """

    place: str
    format: str
    delimiter: str = ","
    nulls: tuple[str, ...] = ()
    absent_is_missing: bool = False
    names: tuple[str, ...] = ()
    opener: Callable[[], BinaryIO] | None = field(default=None, compare=False)

    @property
    def shown(self) -> str:
        """The name of the input in messages."""
        return "standard input" if self.place == STDIN else self.place


def guess_format(path: str) -> str | None:
    """Return the format for a file name's suffix, None if the suffix is unknown.

    Example:
        >>> guess_format("a/b.ndjson"), guess_format("-")
        ('jsonl', None)
    """
    return _FORMAT_OF_SUFFIX.get(Path(path).suffix.lower())


@dataclass(frozen=True, slots=True)
class GuessedTypes:
    """The types of columns that the table does not have, guessed from the first values of the first input.

    Attributes:
        keys: columns, and fields inside them, of which keys and paths are made.
        types: what was guessed.
        read_as: the type in which a column of JSON is read, where it is another one.
    """

    keys: frozenset[str]
    types: dict[str, pa.DataType] = field(default_factory=dict)
    read_as: dict[str, pa.DataType] = field(default_factory=dict)


def open_batches(
    sources: Sequence[Input],
    schema: pa.Schema,
    count: Callable[[int], None] = lambda _rows: None,
    keys: Iterable[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all sources in order; nothing is read ahead.

    Args:
        sources: at least one.
        schema: the table's columns; those not in it get guessed types.
        count: called with the number of rows of each batch.
        keys: columns that will make keys and paths.

    Raises:
        InvalidInputError: an input is not in its format.
        SchemaMismatch: inputs have different columns.
    """
    first: pa.Schema | None = None
    guesses = GuessedTypes(frozenset(keys))
    for source in sources:
        for batch in read_input(source, schema, guesses):
            first = first or batch.schema
            count(batch.num_rows)
            yield batch if batch.schema.equals(first) else _as_first_input(batch, first, source)


def read_schema(source: Input, keys: Iterable[str] = ()) -> pa.Schema:
    """Return the schema of an input, guessed from its first rows where the format has none.

    Args:
        source: the input.
        keys: columns that will make keys and paths.

    Raises:
        InvalidInputError: it is not in its format, or is empty.
    """
    nothing = pa.schema([])
    for batch in read_input(source, nothing, GuessedTypes(frozenset(keys))):
        return without_index(batch.schema).remove_metadata()
    raise InvalidInputError(f"{source.shown} is empty: it has no schema")


def _as_first_input(batch: pa.RecordBatch, first: pa.Schema, source: Input) -> pa.RecordBatch:
    """Return a batch with the columns and types of the first input."""
    if sorted(batch.schema.names) != sorted(first.names):
        raise SchemaMismatch(
            f"{source.shown} has the columns {batch.schema.names}, but earlier inputs have {first.names}"
        )
    try:
        return batch.select(first.names).cast(first)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        raise SchemaMismatch(f"{source.shown} has other column types than earlier inputs: {error}") from error


def read_input(source: Input, schema: pa.Schema, guesses: GuessedTypes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one input; nothing is read ahead.

    Args:
        source: the input.
        schema: the table's columns; those not in it get guessed types.
        guesses: the types that were guessed so far; new ones are added.

    Raises:
        InvalidInputError: it is not in its format.
        SchemaMismatch: a value does not fit its column.
    """
    reader = {"parquet": _read_parquet, "csv": _read_csv, "jsonl": _read_json_lines}[source.format]
    try:
        yield from reader(source, schema, guesses)
    except UnicodeError as error:
        raise InvalidInputError(
            f"{source.shown} cannot be read as {source.format}: a name or text is not UTF-8 ({error}); convert it to UTF-8, "
            "or to UTF-16 with a byte order mark"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        advice = ""
        if source.format == "jsonl":
            advice = "; each line has to be one JSON object, not an array and not a part of an object"
        raise InvalidInputError(f"{source.shown} cannot be read as {source.format}: {what}{advice}") from error


def _opened_text(source: Input) -> BinaryIO:
    """Open a text file and convert it to UTF-8 if it begins with the byte order mark of another encoding."""
    file = _opened(source)
    try:
        if file.seekable():
            start = file.read(4)
            file.seek(-len(start), io.SEEK_CUR)
        else:
            start = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    except BaseException:  # what is compressed may be damaged from its first byte on
        file.close()
        raise
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), None)
    return file if encoding is None else cast("BinaryIO", io.BufferedReader(_AsUtf8(file, encoding)))


def _opened(source: Input) -> BinaryIO:
    if source.opener is not None:
        return source.opener()
    return sys.stdin.buffer if source.place == STDIN else Path(source.place).open("rb")


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
            block = self._file.read(_BLOCK_BYTES)
            self._ended = not block
            self._held = self._decoder.decode(block, final=self._ended).encode()
        count = min(len(room), len(self._held))
        room[:count], self._held = self._held[:count], self._held[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


# --- Parquet ------------------------------------------------------------------------------------------------------


def _read_parquet(source: Input, _schema: pa.Schema, _guesses: GuessedTypes) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with _seekable(source) as file:
        parquet = pq.ParquetFile(file)
        empty = True
        for batch in parquet.iter_batches(_BATCH_ROWS):
            empty = False
            yield batch
        if empty:
            yield pa.RecordBatch.from_pylist([], parquet.schema_arrow)


def _seekable(source: Input) -> BinaryIO:
    """Open a file that can seek: Parquet is read from its end, so standard input is copied to a temporary file."""
    if source.place != STDIN or source.opener is not None:
        return _opened(source)
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while block := sys.stdin.buffer.read(_BLOCK_BYTES):
        copy.write(block)
    copy.seek(0)
    return copy


# --- CSV ----------------------------------------------------------------------------------------------------------


def _read_csv(source: Input, schema: pa.Schema, guesses: GuessedTypes) -> Iterator[pa.RecordBatch]:
    with _opened_text(source) as file:
        head = file.read(_BLOCK_BYTES)
        stream = cast("BinaryIO", io.BufferedReader(_FileWithHead(head, file)))
        yield from _csv_batches(source, schema, guesses, stream, source.names or _csv_header(head, source.delimiter))


def _csv_header(head: bytes, delimiter: str) -> list[str]:
    """Return the names of the columns."""
    lines = csv_texts.reader(io.StringIO(head.decode("utf-8-sig", "replace"), newline=""), delimiter=delimiter)
    try:
        return next((names for names in lines if names), [])
    except csv_texts.Error:
        return []  # Arrow says what is wrong


class _FileWithHead(io.RawIOBase):
    """A file whose first bytes were read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        block = self._head or self._rest.read(len(room))
        room[: len(block)], self._head = block[: len(room)], block[len(room) :]
        return min(len(block), len(room))


def _csv_batches(
    source: Input, schema: pa.Schema, guesses: GuessedTypes, file: BinaryIO, header: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in header}
        | {field.name: _type_in_csv(field.type) for field in schema},
        null_values=["", *source.nulls],
        strings_can_be_null=True,
        # As `lakefmt read` writes it: an empty cell is null, a quoted empty one is the empty string.
        quoted_strings_can_be_null=False,
    )
    reader = csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=list(source.names) or None),
        parse_options=csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
        convert_options=convert,
    )
    empty = True
    for batch in reader:
        empty = False
        yield _parsed_columns(_with_guessed_types(batch, schema, guesses), schema)
    if empty:
        yield _parsed_columns(
            _with_guessed_types(pa.RecordBatch.from_pylist([], reader.schema), schema, guesses), schema
        )


def _type_in_csv(data_type: pa.DataType) -> pa.DataType:
    return (
        pa.string() if pt.is_timestamp(data_type) or pt.is_nested(data_type) or pt.is_binary(data_type) else data_type
    )


# --- types that are guessed ---------------------------------------------------------------------------------------


def _with_guessed_types(batch: pa.RecordBatch, schema: pa.Schema, guesses: GuessedTypes) -> pa.RecordBatch:
    """Return a batch in which columns that the table does not have are cast to their guessed types."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in schema.names or not pt.is_string(column.type):
            columns.append(column)
            continue
        is_key = name in guesses.keys
        if name not in guesses.types:
            guesses.types[name] = _type_of_texts(column, is_key=is_key)
        columns.append(_parsed_as_guessed(name, column, guesses.types[name], is_key=is_key))
    return pa.record_batch(columns, names=batch.schema.names)


def _type_of_texts(texts: pa.Array, *, is_key: bool) -> pa.DataType:
    """Return the type of texts of CSV: Arrow's guess, where it keeps different values different."""
    column = io.BytesIO()
    csv.write_csv(pa.table({"v": texts}), column)
    column.seek(0)
    data_type = csv.read_csv(
        column,
        parse_options=csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    ).schema.types[0]
    if pt.is_int64(data_type) or pt.is_floating(data_type):
        return next(
            (each for each in (data_type, _BIG_WHOLE_TYPE) if _keeps_texts_apart(texts, each, is_key=is_key)),
            pa.string(),
        )
    is_exact = pt.is_date(data_type) or not is_key
    return pa.string() if pt.is_null(data_type) or not is_exact else data_type


def _keeps_texts_apart(texts: pa.Array, data_type: pa.DataType, *, is_key: bool) -> bool:
    """Return whether different texts are different numbers of a type: in columns that are no keys but for their form."""
    if pt.is_decimal(data_type) or (pt.is_integer(data_type) and is_key):
        return _all_match(texts, _CANONICAL_WHOLE)
    if pt.is_integer(data_type):
        return _all_match(texts, _PLAIN_WHOLE)
    wholes = texts.filter(pc.fill_null(pc.match_substring_regex(texts, _WHOLE_NUMBER), False))
    has_zeros = pc.any(pc.match_substring_regex(texts, _LEADING_ZERO)).as_py()
    # Whole numbers alone are doubles only where int64 does not hold them.
    is_mixed = len(wholes) < len(texts) - texts.null_count or not len(wholes)
    return is_mixed and not is_key and not has_zeros and _all_match(wholes, _EXACT_DIGITS)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _parsed_as_guessed(name: str, texts: pa.Array, data_type: pa.DataType, *, is_key: bool) -> pa.Array:
    if not (pt.is_int64(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type)):
        return parse_texts(name, texts, data_type)
    numbers = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^\+", "")
    pattern = _CANONICAL_WHOLE if is_key or pt.is_decimal(data_type) else _PLAIN_WHOLE
    fits = _all_match(texts, pattern) if not pt.is_floating(data_type) else not _all_zeros(texts)
    if not fits:
        raise SchemaMismatch(
            f"column {name!r} began with numbers, and has texts that are not the own form of one: create the table first, and say "
            "which type the column has (lakefmt create --schema)"
        )
    return parse_texts(name, numbers, data_type)


def _all_zeros(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _LEADING_ZERO)).as_py())


def _guess_json(block: bytes, inferred: pa.Schema, known: pa.Schema, guesses: GuessedTypes) -> None:
    """Guess the types of columns of JSON that the table does not have.

    Raises:
        InvalidInputError: numbers of a column have no one type that keeps them.
    """
    for each in inferred:
        if each.name in known.names or each.name in guesses.types:
            continue
        data_type = each.type
        if _has_leaf(data_type, pt.is_floating):
            wide = pa.schema([(each.name, _with_leaf_type(data_type, pt.is_floating, _WIDE_DECIMAL))])
            parse = json.ParseOptions(explicit_schema=wide, unexpected_field_behavior="ignore")
            try:
                numbers = json.read_json(io.BytesIO(block), json.ReadOptions(block_size=len(block)), parse)
                data_type = _narrowed_type(numbers.column(0).combine_chunks(), data_type, each.name, guesses)
            except pa.ArrowInvalid:  # numbers of other magnitudes than whole ones have
                _refuse_doubles(data_type, each.name, guesses)
        guesses.types[each.name] = _with_text_keys(data_type, each.name, guesses)


def _narrowed_type(numbers: pa.Array, data_type: pa.DataType, path: str, guesses: GuessedTypes) -> pa.DataType:
    """Return a type with the doubles that are whole numbers of more digits as decimals.

    Args:
        numbers: the values, with decimals in place of doubles.
        data_type: their type as Arrow guesses it.
        path: of the column or field.
        guesses: so far.
    """
    if pt.is_struct(data_type):
        parts = zip(numbers.flatten(), struct_fields(data_type), strict=True)
        return pa.struct([f.with_type(_narrowed_type(part, f.type, f"{path}.{f.name}", guesses)) for part, f in parts])
    if pt.is_list(data_type):
        return pa.list_(_narrowed_type(numbers.flatten(), data_type.value_type, f"{path}.element", guesses))
    if not pt.is_floating(data_type):
        return data_type
    wholes = pc.equal(numbers, pc.floor(numbers))
    is_whole = pc.all(wholes).as_py() is not False
    is_big = bool(
        pc.any(pc.greater(pc.abs(numbers), pa.scalar(_MOST_EXACT_DOUBLE, pa.int64()).cast(_WIDE_DECIMAL))).as_py()
    )
    if is_whole and is_big:
        return _BIG_WHOLE_TYPE
    if is_whole and path in guesses.keys and "." not in path:
        guesses.read_as[path] = _BIG_WHOLE_TYPE  # 1.0 is the number 1
        return pa.int64()
    if is_big:
        raise InvalidInputError(
            f"column {path!r} has whole numbers of more than 15 digits beside fractions, which no double keeps: create the table "
            "first, and say which type the column has (lakefmt create --schema)"
        )
    _refuse_doubles(data_type, path, guesses)
    return data_type


def _refuse_doubles(data_type: pa.DataType, path: str, guesses: GuessedTypes) -> None:
    """Raise for a key of floating point numbers, whose texts may become one number."""
    if pt.is_struct(data_type):
        for field_ in struct_fields(data_type):
            _refuse_doubles(field_.type, f"{path}.{field_.name}", guesses)
    if pt.is_floating(data_type) and path in guesses.keys:
        raise InvalidInputError(
            f"column {path!r} makes keys, and its numbers are no whole ones, of which two may become one: write them as texts, or "
            "create the table first, and say which type the column has (lakefmt create --schema)"
        )


def _with_text_keys(data_type: pa.DataType, path: str, guesses: GuessedTypes) -> pa.DataType:
    """Return a type whose keys are texts where JSON has texts; Arrow guesses times."""
    if pt.is_struct(data_type):
        return pa.struct(
            [f.with_type(_with_text_keys(f.type, f"{path}.{f.name}", guesses)) for f in struct_fields(data_type)]
        )
    return pa.string() if path in guesses.keys and pt.is_timestamp(data_type) else data_type


def _has_leaf(data_type: pa.DataType, check: Callable[[pa.DataType], bool]) -> bool:
    return check(data_type) or any(_has_leaf(data_type.field(i).type, check) for i in range(data_type.num_fields))


def _with_leaf_type(data_type: pa.DataType, check: Callable[[pa.DataType], bool], leaf: pa.DataType) -> pa.DataType:
    if pt.is_struct(data_type):
        return pa.struct([f.with_type(_with_leaf_type(f.type, check, leaf)) for f in struct_fields(data_type)])
    if pt.is_list(data_type):
        return pa.list_(_with_leaf_type(data_type.value_type, check, leaf))
    return leaf if check(data_type) else data_type


# --- JSON lines ---------------------------------------------------------------------------------------------------


def _read_json_lines(source: Input, schema: pa.Schema, guesses: GuessedTypes) -> Iterator[pa.RecordBatch]:
    expected = pa.schema([(field.name, _type_in_json(field.type)) for field in schema])
    for block in _whole_lines(source):
        options = json.ReadOptions(block_size=max(len(block), 1))
        schema_of_block = expected
        if source.absent_is_missing:
            block_names = json.read_json(io.BytesIO(block), options).schema.names
            schema_of_block = pa.schema([field for field in expected if field.name in block_names])
        parse = json.ParseOptions(explicit_schema=schema_of_block, unexpected_field_behavior="infer")
        table = json.read_json(io.BytesIO(block), options, parse)
        # Another block may have another guess.
        if any(name not in schema.names for name in table.schema.names):
            _guess_json(block, table.schema, schema, guesses)
            new_fields = [
                (name, guesses.read_as.get(name, guesses.types[name]))
                for name in table.schema.names
                if name not in schema.names
            ]
            parse = json.ParseOptions(
                explicit_schema=pa.schema([*schema_of_block, *new_fields]), unexpected_field_behavior="infer"
            )
            table = json.read_json(io.BytesIO(block), options, parse)
        for batch in table.combine_chunks().to_batches():
            yield _parsed_columns(_cast_as_guessed(batch, guesses), schema)


def _cast_as_guessed(batch: pa.RecordBatch, guesses: GuessedTypes) -> pa.RecordBatch:
    columns = [
        column.cast(guesses.types[name]) if name in guesses.read_as else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.record_batch(columns, names=batch.schema.names)


def _type_in_json(data_type: pa.DataType) -> pa.DataType:
    # JSON has no bytes; reading its text as bytes would change values that were printed as base64.
    if pt.is_date(data_type) or pt.is_time(data_type) or pt.is_timestamp(data_type) or _holds_binary(data_type):
        return pa.string()
    return data_type


def _holds_binary(data_type: pa.DataType) -> bool:
    children = [data_type.field(i).type for i in range(data_type.num_fields)]
    return bool(
        pt.is_binary(data_type) or pt.is_fixed_size_binary(data_type) or any(_holds_binary(child) for child in children)
    )


def _whole_lines(source: Input) -> Iterator[bytes]:
    """Yield blocks of whole lines; blank blocks are skipped."""
    buffer = b""
    with _opened_text(source) as file:
        while block := file.read(_BLOCK_BYTES):
            buffer += block
            head, newline, rest = buffer.rpartition(b"\n")
            if newline:
                buffer = rest
                if head.strip():
                    yield head + newline
            elif len(buffer) > _MAX_LINE_BYTES:
                raise InvalidInputError(f"{source.shown} has a line of more than {_MAX_LINE_BYTES:,} bytes")
    if buffer.strip():
        yield buffer


# --- texts in the columns of a table --------------------------------------------------------------------------------


def _parsed_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with its text columns parsed to the table's timestamps, dates and times."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        data_type = schema.field(name).type if name in schema.names else column.type
        columns.append(parse_texts(name, column, data_type) if pt.is_string(column.type) else column)
    return pa.record_batch(columns, names=batch.schema.names)


def parse_texts(name: str, texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return texts as values of a type; timestamps without a zone are UTC.

    Raises:
        SchemaMismatch: a text cannot be parsed, or values of the type cannot be read from text.
    """
    if pt.is_string(data_type) or pt.is_large_string(data_type):
        return texts
    if pt.is_nested(data_type) or pt.is_binary(data_type):
        raise SchemaMismatch(f"column {name!r} of type {data_type} cannot be read from text: use JSON lines or Parquet")
    try:
        return _with_date(texts, data_type) if pt.is_time(data_type) else _with_zone(texts, data_type).cast(data_type)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {name!r} of type {data_type}: {error}") from error


def _with_date(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return times of day, parsed as timestamps of one day: Arrow cannot parse times."""
    moments = pc.replace_substring_regex(texts, "^", "1970-01-01T")
    return moments.cast(pa.timestamp(data_type.unit)).cast(data_type)


def _with_zone(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return timestamps with ``Z`` added where the zone is missing, and midnight where the time is missing."""
    if not pt.is_timestamp(data_type) or data_type.tz is None:
        return texts
    texts = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    return pc.replace_substring_regex(texts, r"([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)$", r"\1Z")
