"""Files as a source: which are there, and which come next, by time and name, none twice and none forgotten (effects).

Hudi stores the largest modification time of the files that were taken, and never looks at a file of that time or an earlier one again:
a file that comes later with an equal time is lost. Here the files of the newest times are remembered beside it, by short digests, so
that files of equal times, and late ones, are told from those that were taken.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.ingest.api import Checkpoint, SourceBatch, rejected_records
from lakefmt._core.ingest.checkpoints import SOURCE, check_kind, check_source
from lakefmt._core.ingest.files.reading import FileFormat, file_format, read_file, salvage_lines
from lakefmt._core.ingest.inputs import GuessedTypes
from lakefmt._core.ingest.rows import RoundRows
from lakefmt._core.schema.types import is_number
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.open import local_path, location_text, open_store
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.values import Clock, SystemClock
from lakefmt.errors import CorruptFile, InvalidInputError, SourceRefused, SourceUnavailable, StorageError

__all__ = [
    "FilePattern",
    "FileRound",
    "FileSource",
    "FilesTaken",
    "Folder",
    "ListedFile",
    "open_folder",
    "split_location",
]


_WILDCARDS: Final = re.compile(r"[*?\[]")
#: Files and folders that begin so are for the engines that wrote them: markers of success, checksums, temporary files.
_HIDDEN: Final = (".", "_")


class ListedFile(NamedTuple):
    """A file of a listing.

    Attributes:
        modified: milliseconds since 1970, as Hudi counts them.
        name: relative to the folder, with slashes.
        size: in bytes.
    """

    modified: int
    name: str
    size: int


class Folder(Protocol):
    """Files below one path or URL."""

    @property
    def url(self) -> str:
        """The path or URL, without secrets."""

    def list(self) -> Iterator[ListedFile]:
        """Yield all files that are not hidden, in no order.

        Raises:
            SourceUnavailable: they cannot be listed.
        """

    @property
    def tells_seconds(self) -> bool:
        """Whether :meth:`look` may return whole seconds where a listing returns fractions."""

    def look(self, name: str) -> ListedFile | None:
        """Return a file as it is now; None: it is gone."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading anywhere in it."""


def _is_hidden(name: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in name.split("/"))


class _LocalFolder:
    """Files of a local path. Times are exact: a store's seconds would be off by one of Hudi's milliseconds now and then."""

    tells_seconds = False

    def __init__(self, path: str) -> None:
        self.url = path
        self._base = path.rstrip("/") or "/"

    def list(self) -> Iterator[ListedFile]:
        waiting = [("", self._base)]
        while waiting:
            prefix, folder = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.startswith(_HIDDEN):
                            continue
                        if entry.is_dir():
                            if not (entry.is_symlink() and _is_above(self._base, prefix, entry.path)):
                                waiting.append((f"{prefix}{entry.name}/", entry.path))
                        elif (listed_file := self._listed(prefix + entry.name, entry)) is not None:
                            yield listed_file
            except FileNotFoundError:
                if not prefix:
                    raise SourceUnavailable(f"{self.url} does not exist") from None
            except OSError as error:
                raise SourceUnavailable(f"{self.url} cannot be listed: {error.strerror}") from error

    @staticmethod
    def _listed(name: str, entry: os.DirEntry[str] | Path) -> ListedFile | None:
        try:
            status = entry.stat()
        except FileNotFoundError:
            return None
        return ListedFile(status.st_mtime_ns // 1_000_000, name, status.st_size)

    def look(self, name: str) -> ListedFile | None:
        return self._listed(name, Path(self._base, name))

    def open(self, name: str) -> BinaryIO:
        return Path(self._base, name).open("rb")


def _is_above(base: str, prefix: str, link: str) -> bool:
    """Return whether a link leads to a folder on the way to it, below which the same files would be found again and again."""
    target, way = Path(link).resolve(), Path(base, prefix)
    return any(folder.resolve() == target for folder in (way, *way.parents) if folder.is_relative_to(base))


class _StoreFolder:
    """Files of a store."""

    tells_seconds = True

    def __init__(self, url: str, storage_options: Mapping[str, object] | None) -> None:
        self._store = open_store(url, storage_options)
        self.url = self._store.url

    def list(self) -> Iterator[ListedFile]:
        try:
            for info in self._store.list():
                if not _is_hidden(info.name):
                    yield self._listed(info)
        except StorageError as error:
            raise SourceUnavailable(f"{self.url} cannot be listed: {error}") from error

    def _listed(self, info: ObjectInfo) -> ListedFile:
        # A thousandth of a millisecond more than any rounding of seconds takes away.
        return ListedFile(int(info.modified * 1000 + 0.001), info.name, info.size)

    def look(self, name: str) -> ListedFile | None:
        try:
            info = self._store.info(name)
        except StorageError as error:
            raise SourceUnavailable(f"{self.url}/{name}: {error}") from error
        return None if info is None else self._listed(info)

    def open(self, name: str) -> BinaryIO:
        filesystem, prefix = self._store.arrow_filesystem()
        path = f"{prefix.rstrip('/')}/{name}" if prefix else name
        return cast("BinaryIO", io.BufferedReader(filesystem.open_input_file(path)))


def open_folder(location: str, storage_options: Mapping[str, object] | None = None) -> Folder:
    """Return the files below a path or URL.

    Raises:
        InvalidInputError: it is no path or URL of a store.
    """
    path_or_url = location_text(location)
    if path_or_url.startswith(("file:", "local:")):
        return _LocalFolder(local_path(path_or_url))
    if "://" not in path_or_url:
        return _LocalFolder(os.path.expanduser(path_or_url))  # noqa: PTH111 - a text, as of other locations
    return _StoreFolder(path_or_url, storage_options)


def split_location(location: str) -> tuple[str, str | None]:
    """Return the folder of a location and the pattern of the files in it; None: all of them.

    A local path of a file is its folder and its name.

    Example:
        >>> split_location("s3://lake/in/2026-*/x?.csv"), split_location("/in")
        (('s3://lake/in', '2026-*/x?.csv'), ('/in', None))
    """
    head, separator, rest = location.rpartition("://")
    parts = rest.split("/")
    first = next((number for number, part in enumerate(parts) if _WILDCARDS.search(part)), None)
    if first is not None:
        folder = "/".join(parts[:first])
        if not folder and not separator:
            folder = "/" if location.startswith("/") else "."
        return head + separator + folder, "/".join(parts[first:])
    if not separator and _is_file(location):
        return str(Path(location).parent), re.sub(r"([*?\[])", r"[\1]", Path(location).name)
    return location, None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # no file system takes it
        return False


@dataclass(frozen=True)
class FilePattern:
    """Which files of a folder are read.

    Attributes:
        pattern: as a shell has it: ``*`` and ``?`` stay in one folder, ``**`` is any number of them; None: all files.

    Example:
        >>> FilePattern("**/*.csv").matches("a/b/c.csv"), FilePattern("*.csv").matches("a/c.csv")
        (True, False)
    """

    pattern: str | None

    def matches(self, name: str) -> bool:
        """Return whether a file is read."""
        return self.pattern is None or _expression(self.pattern).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of a shell.

    Raises:
        InvalidInputError: a bracket is not closed.
    """
    expression = ""
    for token in re.split(r"(\*\*/|\*\*|\*|\?|\[[^/]+?\])", pattern):
        if token in ("**/", "**", "*", "?"):
            expression += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[token]
        elif token.startswith("[") and token.endswith("]"):
            expression += (
                "[" + ("^" if token[1] == "!" else "") + re.sub(r"([\\\[])", r"\\\1", token[1:-1].lstrip("!")) + "]"
            )
        else:
            expression += re.escape(token)
    try:
        return re.compile(expression)
    except re.error:
        raise InvalidInputError(f"{pattern!r} is no pattern of files: close its brackets") from None


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
