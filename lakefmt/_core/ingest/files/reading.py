"""Makes rows of one file: Parquet, CSV, JSON lines, Avro and ORC, also compressed, with the columns that its folders say (effects)."""

from __future__ import annotations

import io
import lzma
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote

import pyarrow as pa

from lakefmt._core.arguments import error_text, foreign, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.ingest.api import SourceBatch, rejected_records
from lakefmt._core.ingest.inputs import GuessedTypes, Input, parse_texts, read_input
from lakefmt._core.schema import avro_to_arrow
from lakefmt.errors import FormatError, InvalidInputError, SchemaMismatch, UnsupportedFeature

__all__ = ["FILE_FORMATS", "FileFormat", "file_format", "hive_values", "read_file", "salvage_lines"]

#: The formats, and how names of their files end.
FILE_FORMATS: Final = {
    "parquet": (".parquet", ".parq"),
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "avro": (".avro",),
    "orc": (".orc",),
}
_COMPRESSIONS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}
_TEXTS: Final = ("csv", "jsonl")
_BATCH_ROWS: Final = 65_536
#: Of Avro files, whose rows are read one by one.
_AVRO_ROWS: Final = 8_192
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_BLOCK_BYTES: Final = 1 << 20
_MAX_LINE_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class FileFormat:
    """How files are read.

    Attributes:
        name: one of :data:`FILE_FORMATS`; None: the end of each file's name tells.
        delimiter: between cells of CSV.
        nulls: texts that mean null in CSV, in addition to the empty cell.
        names: the columns of CSV without a header; empty: the first line of each file has them.
        hive_columns: folders such as ``day=2026-01-01`` are columns.
        keys: columns that make keys, whose guessed types keep different texts apart.
    """

    name: str | None = None
    delimiter: str = ","
    nulls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    hive_columns: bool = True
    keys: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.name is not None and self.name not in FILE_FORMATS:
            raise InvalidInputError(f"unknown format {shown(self.name)}: give {', '.join(FILE_FORMATS)}")
        if len(self.delimiter) != 1:
            raise InvalidInputError(f"the delimiter of CSV is one character, not {shown(self.delimiter)}")


def file_format(name: str, how: FileFormat) -> tuple[str, str | None] | None:
    """Return the format of a file and its compression; None: it is of no format that is known.

    Example:
        >>> file_format("a/b.json.gz", FileFormat()), file_format("part-0", FileFormat("csv")), file_format("x.txt", FileFormat())
        (('jsonl', 'gzip'), ('csv', None), None)
    """
    path = PurePosixPath(name.lower())
    compression = _COMPRESSIONS.get(path.suffix)
    if compression is not None:
        path = path.with_suffix("")
    if how.name is not None:
        return how.name, compression
    format_name = next((each for each, ends in FILE_FORMATS.items() if path.suffix in ends), None)
    return None if format_name is None else (format_name, compression)


def hive_values(name: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file say.

    Example:
        >>> hive_values("day=2026-01-01/city=S%C3%A3o/part.csv")
        {'day': '2026-01-01', 'city': 'São'}
    """
    values = dict[str, str | None]()
    for part in name.split("/")[:-1]:
        column, sign, value = part.partition("=")
        if sign and column:
            values[unquote(column)] = None if value == _HIVE_NULL else unquote(value)
    return values


def read_file(
    name: str, opener: Callable[[], BinaryIO], how: FileFormat, schema: pa.Schema, guesses: GuessedTypes
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in their order.

    Args:
        name: of the file, for its format, its columns and messages.
        opener: opens it.
        how: it is read.
        schema: of the table; columns that are not in it get guessed types where the format has none.
        guesses: so far.

    Raises:
        InvalidInputError: the file is not in its format.
        SchemaMismatch: a value does not fit its column.
        UnsupportedFeature: a package is missing.
    """
    format_name, compression = file_format(name, how) or ("jsonl", None)
    source = _input(name, format_name, compression, opener, how)
    hive = hive_values(name) if how.hive_columns else {}
    inside = pa.schema([each for each in schema if each.name not in hive])
    for batch in _batches(source, inside if hive else schema, guesses):
        yield _with_hive_columns(batch, hive, schema) if hive else batch


def _input(
    name: str, format_name: str, compression: str | None, opener: Callable[[], BinaryIO], how: FileFormat
) -> Input:
    if compression is not None and format_name not in _TEXTS:
        raise InvalidInputError(f"{name}: {format_name} files compress themselves, and are not read from {compression}")
    opened = opener if compression is None else lambda: _decompressed(opener(), compression)
    delimiter = "\t" if name.lower().removesuffix(".gz").endswith(".tsv") and how.delimiter == "," else how.delimiter
    return Input(name, format_name, delimiter, how.nulls, names=how.names, opener=opened)


def _decompressed(file: BinaryIO, compression: str) -> BinaryIO:
    if compression == "xz":
        return cast("BinaryIO", _Xz(file))
    return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(file, compression)))


class _Xz(lzma.LZMAFile):
    """A file that closes what it reads from."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._compressed = file

    def close(self) -> None:
        super().close()
        self._compressed.close()


def _batches(source: Input, schema: pa.Schema, guesses: GuessedTypes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input; what other libraries say of damaged files becomes one error."""
    try:
        if source.format == "avro":
            yield from _read_avro(source)
        elif source.format == "orc":
            yield from _read_orc(source)
        else:
            yield from read_input(source, schema, guesses)
    except (InvalidInputError, UnsupportedFeature):
        raise
    except (pa.ArrowException, FormatError, OSError, EOFError, lzma.LZMAError) as error:
        raise InvalidInputError(f"{source.shown} cannot be read as {source.format}: {error_text(error)}") from error


def _read_orc(source: Input) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    with _opened(source) as file:
        stored = orc.ORCFile(file)
        for number in range(stored.nstripes):
            stripe = stored.read_stripe(number)
            for begin in range(0, stripe.num_rows, _BATCH_ROWS):
                yield stripe.slice(begin, _BATCH_ROWS)
        if not stored.nstripes:
            yield pa.RecordBatch.from_pylist([], stored.schema)


def _read_avro(source: Input) -> Iterator[pa.RecordBatch]:
    try:
        import fastavro  # reads blocks of records in C; the project's own decoder needs to know where each record begins
    except ImportError:
        raise UnsupportedFeature(f"{source.shown} needs lakefmt[ingest]: install it with pip") from None
    with _opened(source) as file:
        what = f"{source.shown} cannot be read as avro"
        reader = foreign(lambda: fastavro.reader(file), what)
        schema = avro_to_arrow(reader.metadata["avro.schema"])
        empty = True
        while records := foreign(lambda: cast("list[dict[str, Any]]", list(islice(reader, _AVRO_ROWS))), what):
            empty = False
            yield foreign(lambda: pa.RecordBatch.from_pylist(records, schema), what)
        if empty:
            yield pa.RecordBatch.from_pylist([], schema)


def _opened(source: Input) -> BinaryIO:
    if source.opener is None:
        raise InvalidInputError(f"{source.shown} cannot be opened")
    return source.opener()


def _with_hive_columns(batch: pa.RecordBatch, values: dict[str, str | None], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns that the folders say, in place of those in the file."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, value in values.items():
        data_type = schema.field(name).type if name in schema.names else pa.string()
        texts = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
        columns[name] = parse_texts(name, texts, data_type)
    return pa.record_batch(list(columns.values()), names=list(columns))


# ------------------------------------------------------------------------------------------------------------ bad lines


def salvage_lines(
    name: str, opener: Callable[[], BinaryIO], how: FileFormat, schema: pa.Schema, guesses: GuessedTypes
) -> Iterator[SourceBatch]:
    """Yield the rows of a file of JSON lines that is not all JSON lines, and the lines that are none as rejected records.

    Raises:
        InvalidInputError: the file cannot be read at all, or a line is too long.
    """
    compression = (file_format(name, how) or ("jsonl", None))[1]
    source = _input(name, "jsonl", compression, opener, how)
    first = 1
    try:
        with _opened(source) as file:
            rest = b""
            while block := file.read(_BLOCK_BYTES):
                head, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    lines = head.split(b"\n")
                    yield from _salvaged(source, lines, first, how, schema, guesses)
                    first += len(lines)
                elif len(rest) > _MAX_LINE_BYTES:
                    raise InvalidInputError(f"{name} has a line of more than {_MAX_LINE_BYTES:,} bytes")
            if rest.strip():
                yield from _salvaged(source, [rest], first, how, schema, guesses)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InvalidInputError(f"{name} cannot be read as jsonl: {error_text(error)}") from error


def _salvaged(
    source: Input, lines: list[bytes], first: int, how: FileFormat, schema: pa.Schema, guesses: GuessedTypes
) -> Iterator[SourceBatch]:
    """Yield the rows of lines; halve the lines until each invalid one stands alone, for few are invalid."""
    part = replace(source, opener=lambda: io.BytesIO(b"\n".join(lines)))
    hive = hive_values(source.place) if how.hive_columns else {}
    trial = GuessedTypes(guesses.keys, dict(guesses.types), dict(guesses.read_as))
    try:
        batches = list(read_input(part, schema, trial))
    except (InvalidInputError, SchemaMismatch, pa.ArrowException) as error:
        if len(lines) == 1:
            origin = f"{source.shown}:{first}"
            rejected = rejected_records([error_text(error)], [origin], [lines[0]])
            yield SourceBatch(pa.RecordBatch.from_pylist([], pa.schema([])), rejected=rejected)
            return
        half = len(lines) // 2
        yield from _salvaged(source, lines[:half], first, how, schema, guesses)
        yield from _salvaged(source, lines[half:], first + half, how, schema, guesses)
        return
    guesses.types.update(trial.types)
    guesses.read_as.update(trial.read_as)
    yield from (SourceBatch(_with_hive_columns(each, hive, schema) if hive else each) for each in batches)
