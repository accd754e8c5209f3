"""Files as a source: which are there, and which come next, by time and name, none twice and none forgotten (effects).

Hudi stores the largest modification time of the files that were taken, and never looks at a file of that time or an earlier one again:
a file that comes later with an equal time is lost. Here the files of the newest times are remembered beside it, by short digests, so
that files of equal times, and late ones, are told from those that were taken.

Parquet, CSV, JSON lines, Avro and ORC are read, also compressed, with the columns that their folders name.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import error_text, foreign, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.ingest.api import (
    SOURCE,
    Checkpoint,
    RoundRows,
    SourceBatch,
    check_kind,
    check_source,
    rejected_records,
)
from lakefmt._core.ingest.folders import FilePattern, Folder, ListedFile, open_folder, split_location
from lakefmt._core.ingest.inputs import GuessedTypes, Input, parse_texts, read_input
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.schema.types import is_number
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.values import Clock, SystemClock
from lakefmt.errors import (
    CorruptFile,
    FormatError,
    InvalidInputError,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
    UnsupportedFeature,
)

__all__ = [
    "FILE_FORMATS",
    "FileFormat",
    "FileRound",
    "FileSource",
    "FilesTaken",
    "file_format",
    "hive_values",
    "read_file",
    "salvage_lines",
]


_log = logging.getLogger("lakefmt.ingest")

Digests = npt.NDArray[np.uint64]

_FILES: Final = "files"
_SINCE: Final = "since"
#: Files whose digests one commit keeps, unless more have the newest time.
_MOST_REMEMBERED: Final = 10_000
#: A million files of one millisecond would be eight million bytes in a commit.
_MOST_OF_ONE_TIME: Final = 1_000_000
#: Rows of one file that are held in memory until the file is known to be whole.
_FILE_MEMORY: Final = 64 << 20


@dataclass(frozen=True)
class FilesTaken:
    """Which files were taken.

    Attributes:
        modified: the largest time of one of them, in milliseconds.
        since: of files from this time on `digests` tells which were taken; of older ones all were.
        digests: of the files from `since` on, in order; None: all up to `modified` were taken.
    """

    modified: int
    since: int
    digests: Digests | None

    def are_known(self, files: list[ListedFile]) -> npt.NDArray[np.bool_]:
        """Return which files were taken."""
        times = np.fromiter((each.modified for each in files), np.int64, len(files))
        known = times <= self.modified
        if self.digests is None:
            return known
        near = np.flatnonzero(known & (times >= self.since))
        known[near] = np.isin(digests_of([files[number] for number in near]), self.digests)
        return known

    def checkpoint(self, source: str | None = None) -> Checkpoint:
        """Return the checkpoint that says it: Hudi's text, and beside it what Hudi does not know."""
        details = {} if source is None else {SOURCE: source}
        if self.digests is not None:
            encoded = base64.b64encode(self.digests.astype("<u8").tobytes()).decode()
            details |= {_FILES: encoded, _SINCE: str(self.since)}
        return Checkpoint(str(self.modified), details)

    @classmethod
    def of(cls, point: Checkpoint) -> FilesTaken:
        """Return what a checkpoint says.

        Raises:
            CorruptFile: its details are damaged.

        Example:
            >>> taken = FilesTaken(20, 10, np.array([7], np.uint64))
            >>> FilesTaken.of(taken.checkpoint()).digests.tolist(), FilesTaken.of(Checkpoint("20")).digests
            ([7], None)
        """
        modified = int(point.text)
        encoded, since = point.details.get(_FILES), point.details.get(_SINCE)
        if encoded is None or since is None:
            return cls(modified, modified, None)
        try:
            digests = np.frombuffer(base64.b64decode(encoded, validate=True), "<u8").astype(np.uint64)
            return cls(modified, int(since), digests)
        except ValueError:
            raise CorruptFile(
                "what a checkpoint says of files is damaged: begin with a checkpoint of your own"
            ) from None


def digests_of(files: Iterable[ListedFile]) -> Digests:
    """Return a digest of each file's name, size and time: a file that is replaced is another one."""
    parts = [
        hashlib.blake2b(
            f"{each.modified}/{each.size}/{each.name}".encode("utf-8", "surrogateescape"), digest_size=8
        ).digest()
        for each in files
    ]
    return np.frombuffer(b"".join(parts), "<u8").astype(np.uint64)


def remember(
    files: list[ListedFile], taken: npt.NDArray[np.bool_], modified: int, window: int, before: FilesTaken | None
) -> FilesTaken:
    """Return what is known after a round.

    Args:
        files: all that are there.
        taken: which of them were taken, by this round or before.
        modified: the largest time of a file that was taken.
        window: how many milliseconds late a file may come.
        before: what was known before the round.

    Raises:
        SourceRefused: more files have one time than a commit can name.
    """
    since = modified - window
    if before is not None and before.digests is not None:
        since = max(since, before.since)  # what was forgotten stays so
    times = np.fromiter((each.modified for each in files), np.int64, len(files))
    near = taken & (times >= since) & (times <= modified)
    if near.sum() > _MOST_REMEMBERED:
        newest = int(np.partition(times[near], -_MOST_REMEMBERED)[-_MOST_REMEMBERED])
        # Late files that this round leaves to the next one are behind no border.
        waiting = times[~taken & (times >= since)]
        since = min(newest, int(waiting.min(initial=newest)))
        near &= times >= since
    if near.sum() > _MOST_OF_ONE_TIME:
        raise SourceRefused(
            f"{near.sum():,} files have times too near to each other to be told apart: give them another folder"
        )
    return FilesTaken(modified, since, np.sort(digests_of([files[number] for number in np.flatnonzero(near)])))


class FileRound:
    """The files of one commit."""

    def __init__(
        self, source: FileSource, files: list[ListedFile], files_taken: FilesTaken, schema: pa.Schema | None
    ) -> None:
        self._source, self.files, self._taken, self.schema = source, files, files_taken, schema
        self.checkpoint = files_taken.checkpoint(source.identity)

    @property
    def summary(self) -> str:
        """Return how many files they are, of how many bytes, and their first and last name."""
        if not self.files:
            return "no files"
        size = sum(each.size for each in self.files)
        names = self.files[0].name if len(self.files) == 1 else f"{self.files[0].name} … {self.files[-1].name}"
        return f"{len(self.files):,} files, {size:,} bytes: {names}"

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows will come, if the formats tell without reading."""
        return None

    def batches(self) -> Iterator[SourceBatch]:
        """Read the files in their order. A file that changes meanwhile is left for a later round, which sees its new time."""
        guesses = GuessedTypes(frozenset(self._source.format.keys))
        for file in self.files:
            yield from self._source.read(file, self.schema or pa.schema([]), guesses)


class FileSource:
    """Files below a path or URL.

    Args:
        location: a folder, a file, or a pattern such as ``s3://lake/in/*/x-*.json``.
        how: the files are read.
        min_age: seconds: younger files may still be written, and wait.
        late_window: seconds: so late a file may appear behind others of its time.
        quarantine: a bad file or line is rejected; False: it ends the round.
        storage_options: credentials of the store.
        clock: that of the store.
        time_source: how time passes.
    """

    def __init__(
        self,
        location: str,
        how: FileFormat | None = None,
        *,
        min_age: float = 1.0,
        late_window: float = 3600.0,
        quarantine: bool = False,
        storage_options: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        time_source: TimeSource | None = None,
    ) -> None:
        if min_age < 0 or late_window < 0:
            raise InvalidInputError("min_age and late_window of files are seconds, and not negative")
        base, pattern = split_location(location)
        self.folder: Folder = open_folder(base, storage_options)
        self.format = how or FileFormat()
        self._pattern = FilePattern(pattern)
        self._min_age, self._window = int(min_age * 1000), int(late_window * 1000)
        self._quarantine = quarantine
        self._clock, self._time = clock or SystemClock(), time_source or SystemTimeSource()
        #: The columns of the table, which the job tells.
        self.table_schema: pa.Schema | None = None
        self.waiting = 0

    @property
    def name(self) -> str:
        """Return the path or URL."""
        return self.folder.url

    @property
    def identity(self) -> str:
        """Return the name of this folder in checkpoints."""
        return self.folder.url.rstrip("/") if "://" in self.folder.url else str(Path(self.folder.url).absolute())

    def schema(self) -> pa.Schema | None:
        """Return None: only files that are read tell."""
        return None

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> FileRound | None:
        """Choose the files of the next commit.

        Args:
            after: of the newest commit that has one; None: all files are new.
            limit: about how many bytes of files; files of one time are never parted, since Hudi would lose the second part.

        Raises:
            SourceUnavailable: the files cannot be listed.
            SourceRefused: the checkpoint is of another kind of source.
        """
        before = None
        if after is not None:
            check_kind(after.text, "files", self.name)
            check_source(after, self.identity)
            before = FilesTaken.of(after)
        files = self._listed()
        known = np.zeros(len(files), bool) if before is None else before.are_known(files)
        # Empty files have no rows, and may get some later, under another time.
        candidates = [number for number in np.flatnonzero(~known).tolist() if files[number].size]
        file_numbers = _chosen(files, candidates, limit)
        if not file_numbers:
            return None
        known[file_numbers] = True
        newest = max(files[number].modified for number in file_numbers)
        modified = newest if before is None else max(newest, before.modified)
        files_taken = remember(files, known, modified, self._window, before)
        return FileRound(self, [files[number] for number in file_numbers], files_taken, self.table_schema)

    def _listed(self) -> list[ListedFile]:
        """Return the files that are old enough, by time and name; wait once for those that are not yet."""
        files = self._matching()
        oldest_young = self._limit_of_age()
        young = [each.modified for each in files if each.modified > oldest_young]
        if young:
            wait = min(max(young) - oldest_young, self._min_age) / 1000
            self._time.sleep(wait)
            files, oldest_young = self._matching(), self._limit_of_age()
        old = [each for each in files if each.modified <= oldest_young]
        self.waiting = len(files) - len(old)
        if self.waiting:
            _log.info("%s: %d files are too young, and wait for a later round", self.name, self.waiting)
        old.sort()
        return old

    def is_unchanged(self, file: ListedFile) -> bool:
        """Return whether a file is still the one that was listed.

        Some stores list milliseconds and tell seconds of one object: there the second decides, and the size.
        """
        now = self.folder.look(file.name)
        if now is None or now == file:
            return now is not None
        whole_second = file.modified - file.modified % 1000
        return self.folder.tells_seconds and now == file._replace(modified=whole_second)

    def _limit_of_age(self) -> int:
        return int(self._clock.now().timestamp() * 1000) - self._min_age

    def _matching(self) -> list[ListedFile]:
        return [
            each
            for each in self.folder.list()
            if self._pattern.matches(each.name) and file_format(each.name, self.format) is not None
        ]

    def read(self, file: ListedFile, schema: pa.Schema, guesses: GuessedTypes) -> Iterator[SourceBatch]:
        """Read one file whole or not at all.

        Raises:
            InvalidInputError: it is bad, and nothing is quarantined.
            SourceUnavailable: it is gone, or the store does not answer.
        """
        if not self.is_unchanged(file):
            self._log_changed(file)
            return
        rows = RoundRows(_FILE_MEMORY)
        trial = GuessedTypes(guesses.keys, dict(guesses.types), dict(guesses.read_as))
        try:
            rejected = self._read_into(rows, file, schema, trial)
            if not self.is_unchanged(file):
                self._log_changed(file)
                return
            empty = self._empty_columns(rows, file, schema)
            if rejected is None:
                # What no value tells the type of is guessed again with the next file.
                guesses.types.update({name: data_type for name, data_type in trial.types.items() if name not in empty})
                guesses.read_as.update(
                    {name: data_type for name, data_type in trial.read_as.items() if name not in empty}
                )
            for batch in rows.batches():
                columns = [name for name in batch.schema.names if name not in empty]
                yield SourceBatch(batch if len(columns) == len(batch.schema) else batch.select(columns))
            if not rows.num_rows and rows.schemas and not empty:
                yield SourceBatch(pa.RecordBatch.from_pylist([], rows.schemas[0]))
            if rejected is not None:
                yield SourceBatch(pa.RecordBatch.from_pylist([], pa.schema([])), rejected=rejected)
        finally:
            rows.close()

    def _empty_columns(self, rows: RoundRows, file: ListedFile, schema: pa.Schema) -> frozenset[str]:
        """Return new columns without a value in a file that has no types: which type they have, a later file tells."""
        format_of_file = file_format(file.name, self.format)
        if format_of_file is None or format_of_file[0] not in ("csv", "jsonl"):
            return frozenset()
        new = {name for each in rows.schemas for name in each.names if name not in schema.names}
        for batch in rows.batches() if new else ():
            new -= {name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows}
        return frozenset(new)

    def _read_into(
        self, rows: RoundRows, file: ListedFile, schema: pa.Schema, guesses: GuessedTypes
    ) -> pa.RecordBatch | None:
        """Read a file; return what of it is rejected, None: nothing."""
        try:
            self._read_whole(rows, file, schema, guesses)
            return None
        except InvalidInputError as error:
            failure = error
        format_of_file = file_format(file.name, self.format)
        if format_of_file is not None and format_of_file[0] in ("csv", "jsonl"):
            # Numbers that the columns do not hold, such as 2.5 among whole ones: the file says which types it has.
            rows.clear()
            plain = pa.schema([each for each in schema if not is_number(each.type)])
            with suppress(InvalidInputError):
                self._read_whole(rows, file, plain, GuessedTypes(guesses.keys))
                return None
        if not self._quarantine:
            failure.args = (f"{self.name}: {failure}", *failure.args[1:])
            raise failure
        rows.clear()
        if format_of_file is not None and format_of_file[0] == "jsonl":
            return self._salvage_into(rows, file, schema, guesses, str(failure))
        return rejected_records([str(failure)], [f"{self.name}/{file.name}"], [None])

    def _read_whole(self, rows: RoundRows, file: ListedFile, schema: pa.Schema, guesses: GuessedTypes) -> None:
        for batch in read_file(file.name, lambda: self._open(file), self.format, schema, guesses):
            rows.add(batch)

    def _salvage_into(
        self, rows: RoundRows, file: ListedFile, schema: pa.Schema, guesses: GuessedTypes, reason: str
    ) -> pa.RecordBatch:
        bad = list[pa.RecordBatch]()
        try:
            for part in salvage_lines(file.name, lambda: self._open(file), self.format, schema, guesses):
                rows.add(part.rows)
                bad += [] if part.rejected is None else [part.rejected]
        except InvalidInputError as error:
            rows.clear()
            return rejected_records([str(error)], [f"{self.name}/{file.name}"], [None])
        if not bad:  # the lines agree with each other only apart
            return rejected_records([reason], [f"{self.name}/{file.name}"], [None]).slice(0, 0)
        table = pa.Table.from_batches(bad).combine_chunks()
        origins = [f"{self.name}/{origin}" for origin in table["origin"].to_pylist()]
        return rejected_records(table["reason"].to_pylist(), origins, table["payload"].to_pylist())

    def _open(self, file: ListedFile) -> BinaryIO:
        try:
            return self.folder.open(file.name)
        except OSError as error:
            raise SourceUnavailable(f"{self.name}/{file.name} cannot be opened: {error}") from error

    def _log_changed(self, file: ListedFile) -> None:
        _log.info("%s/%s changed since it was listed, and is read by a later round", self.name, file.name)


def _chosen(files: list[ListedFile], candidates: list[int], limit: int | None) -> list[int]:
    """Return the first files, of about a number of bytes; all files of the last one's time are among them."""
    if limit is None:
        return candidates
    size, last = 0, None
    for count, number in enumerate(candidates):
        file = files[number]
        if last is not None and file.modified > last and size + file.size >= limit:
            return candidates[:count]
        size, last = size + file.size, file.modified
    return candidates


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
