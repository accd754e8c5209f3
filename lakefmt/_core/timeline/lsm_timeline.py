"""The LSM timeline, which archives instants: file names, manifests, rows, merges (docs/format.md, Archived timeline).

A level 0 file has the instants of one archive step; ten files of one level are merged into one of the next. A manifest
names the valid files, ``_version_`` names the manifest.

A file is valid once ``_version_`` names a manifest with it; before that the next run removes or replaces it. A crash between
manifest and ``_version_`` leaves an unused manifest, whose number the next one takes. Write under the table lock: two writers
would lose each other's files.

Arrow's errors become typed errors; sizes are checked before memory is allocated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.storage.api import ObjectStore, ObjectWriter, PutOutcome
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.metadata_codec import BodyKind, body_schema
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound, StateError, StorageError

__all__ = [
    "HISTORY_SCHEMA",
    "HistoryEntry",
    "HistoryFile",
    "HistoryMerge",
    "HistoryPart",
    "HistoryWriter",
    "check_group",
    "decode_manifest",
    "encode_manifest",
    "entry_batch",
    "history_file_name",
    "history_footers",
    "load_manifest",
    "manifest_numbers",
    "obsolete_names",
    "open_archived",
    "parse_manifest_name",
    "place_archived",
    "plan_merge",
    "plan_of",
    "plan_parts",
    "read_manifest",
]

_WriteBatch = Callable[[pa.RecordBatch], None]

#: Hudi's defaults of ``hoodie.commits.archival.batch``, ``hoodie.timeline.compaction.batch.size``
#: and ``hoodie.timeline.compaction.target.file.max.bytes``.
_INSTANTS_PER_FILE = 10
_FILES_PER_MERGE = 10
_MAX_MERGE_BYTES = 1000 * 1024 * 1024
#: Number of manifests kept after a merge: ``hoodie.timeline.manifest.retained.versions``.
_KEPT_MANIFESTS = 3

#: The columns of an archive file; Hudi reads them by name.
HISTORY_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_ROW_VERSION = 1
_MAX_LEVEL = 9  # Hudi's file name pattern has one digit
_HISTORY_FILE_NAME = re.compile(r"([0-9]{1,17})_([0-9]{1,17})_([0-9]{1,3})\.parquet", re.ASCII)
_MANIFEST_NAME = re.compile(r"manifest_([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One archived instant, a row of the archive.

    Attributes:
        instant: the completed instant, with its completion time.
        metadata: the bytes of its completed file; None if it was empty.
        plan: the bytes of its plan, if the action has one (see :func:`plan_of`).
    """

    instant: Instant
    metadata: bytes | None
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file in a manifest; the size is in bytes.

    Example:
        >>> HistoryFile("20260101000000000_20260102000000000_1.parquet", 5288).level
        1
    """

    name: str
    size: int

    @property
    def level(self) -> int:
        """The number of merges of its rows."""
        return int(self._parts[2])

    @property
    def first(self) -> InstantTime:
        """The lowest requested time, from its name."""
        return InstantTime(self._parts[0])

    @property
    def last(self) -> InstantTime:
        """The highest requested time, from its name."""
        return InstantTime(self._parts[1])

    @property
    def _parts(self) -> tuple[str, ...]:
        match = _HISTORY_FILE_NAME.fullmatch(self.name)
        if match is None:
            raise InvalidInputError(f"{self.name!r:.80} is no name of an archived file")
        return match.groups()


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """An archive file to write, with its instants."""

    name: str
    instants: tuple[Instant, ...]


@dataclass(frozen=True, slots=True)
class HistoryMerge:
    """Files of one level that are merged into one of the next."""

    sources: tuple[HistoryFile, ...]
    target: str


def history_file_name(first: InstantTime, last: InstantTime, level: int) -> str:
    """Return the name of an archive file.

    Args:
        first: lowest requested time.
        last: highest requested time.
        level: 0 for newly archived instants.

    Raises:
        InvalidInputError: the level has two digits, or the times are in the wrong order.

    Example:
        >>> history_file_name("20260101000000000", "20260101000001000", 0)
        '20260101000000000_20260101000001000_0.parquet'
    """
    if not 0 <= level <= _MAX_LEVEL or first > last:
        raise InvalidInputError(f"no archived file goes from {first} to {last} on level {level}")
    return f"{first}_{last}_{level}.parquet"


def parse_manifest_name(name: str) -> int | None:
    """Return the number in a manifest's file name; None for other names.

    Example:
        >>> parse_manifest_name("manifest_12"), parse_manifest_name("manifest_12.tmp")
        (12, None)
    """
    match = _MANIFEST_NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_manifest(files: Iterable[HistoryFile]) -> bytes:
    """Return the content of a manifest, byte for byte as Hudi writes it.

    Example:
        >>> print(encode_manifest([HistoryFile("1_2_0.parquet", 9)]).decode())
        {
          "files" : [ {
            "fileName" : "1_2_0.parquet",
            "fileLen" : 9
          } ]
        }
    """
    entries = [f'{{\n    "fileName" : {json.dumps(f.name)},\n    "fileLen" : {f.size}\n  }}' for f in files]
    listed = f"[ {', '.join(entries)} ]" if entries else "[ ]"
    return f'{{\n  "files" : {listed}\n}}'.encode()


def decode_manifest(data: bytes, what: str) -> list[HistoryFile]:
    """Return the files in a manifest; other entries are ignored.

    Args:
        data: the bytes of the manifest.
        what: the manifest's name in errors.

    Raises:
        CorruptFile: not a manifest, or a file name that is not one of the archive.

    Example:
        >>> decode_manifest(b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 9}]}', "manifest_1")
        [HistoryFile(name='1_2_0.parquet', size=9)]
    """
    try:
        entries = [(entry["fileName"], entry["fileLen"]) for entry in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptFile(f"{what} is no manifest of archived files") from None
    for file, size in entries:
        if not isinstance(file, str) or not _HISTORY_FILE_NAME.fullmatch(file) or type(size) is not int or size < 0:
            raise CorruptFile(f"{what} names {file!r:.80} of {size!r:.20} bytes, which is no archived file")
    return [HistoryFile(file, size) for file, size in entries]


# ------------------------------------------------------------------------------------------------------------ the rows


def history_footers() -> dict[str, str]:
    """Return the key-value metadata of an archive file, where Java's Avro reader finds the schema.

    Example:
        >>> sorted(history_footers())
        ['parquet.avro.schema', 'writer.model.name']
    """
    return {"parquet.avro.schema": body_schema(BodyKind.LSM_TIMELINE_INSTANT), "writer.model.name": "avro"}


def entry_batch(entries: Sequence[HistoryEntry]) -> pa.RecordBatch:
    """Return archived instants as rows.

    Raises:
        InvalidInputError: an instant is not completed or has no completion time.

    Example:
        >>> from lakefmt._core.timeline.instant import parse_instant_file
        >>> done = parse_instant_file("20260101000000000_20260101000000500.commit", 2)
        >>> entry_batch([HistoryEntry(done, b"body")]).to_pylist()[0]["completionTime"]
        '20260101000000500'
    """
    for entry in entries:
        if not entry.instant.is_completed or entry.instant.completion is None:
            raise InvalidInputError(f"{entry.instant} is not completed: it cannot be archived")
    columns = [
        [entry.instant.time for entry in entries],
        [entry.instant.completion for entry in entries],
        [entry.instant.action.value for entry in entries],
        [entry.metadata for entry in entries],
        [entry.plan for entry in entries],
        [_ROW_VERSION] * len(entries),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, HISTORY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=HISTORY_SCHEMA)


def plan_of(action: Action, requested: bytes, inflight: bytes) -> bytes | None:
    """Return the bytes that the archive stores as the plan of an instant, or None.

    Args:
        action: the action of its pending files (a compaction completes as a commit).
        requested: the bytes of its requested file, empty without one.
        inflight: the bytes of its inflight file, empty without one.

    Example:
        >>> plan_of(Action.CLEAN, b"plan", b"plan too"), plan_of(Action.COMMIT, b"", b"profile")
        (b'plan', None)
    """
    if action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
        # Hudi stores the profile of an overwrite; the inflight file of a clustering is empty.
        return inflight or requested or None
    if action in (Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION):
        return requested or None
    return None


# ----------------------------------------------------------------------------------------------------------- the levels


def plan_parts(
    instants: Sequence[Instant], *, per_file: int = _INSTANTS_PER_FILE, fan_in: int = _FILES_PER_MERGE
) -> tuple[HistoryPart, ...]:
    """Return the files after archiving `instants` in steps with all due merges.

    Args:
        instants: completed, ordered by requested time; their sizes in bytes bound the files.
        per_file: instants per file of level 0.
        fan_in: files of one level per merge.

    Example:
        >>> from lakefmt._core.timeline.instant import State
        >>> done = [Instant(f"202601010000{n:05d}", Action.COMMIT, State.COMPLETED) for n in range(125)]
        >>> for part in plan_parts(done):
        ...     print(part.name, len(part.instants))
        20260101000000000_20260101000000099_1.parquet 100
        20260101000000100_20260101000000109_0.parquet 10
        20260101000000110_20260101000000119_0.parquet 10
        20260101000000120_20260101000000124_0.parquet 5
    """
    units = -(-len(instants) // per_file)
    parts: list[HistoryPart] = []
    start = 0
    level = _MAX_LEVEL
    while start < len(instants):
        size = fan_in**level
        if units < size:
            level -= 1
            continue
        chunk = tuple(instants[start : start + size * per_file])
        parts.extend(_cut_parts(chunk, level, per_file, fan_in))
        start += len(chunk)
        units -= size
    return tuple(parts)


def _cut_parts(instants: tuple[Instant, ...], level: int, per_file: int, fan_in: int) -> Iterator[HistoryPart]:
    """Yield one file, or several of a lower level if one would be too large."""
    if level == 0 or sum(instant.size for instant in instants) <= _MAX_MERGE_BYTES:
        yield HistoryPart(history_file_name(instants[0].time, instants[-1].time, level), instants)
        return
    step = per_file * fan_in ** (level - 1)
    for start in range(0, len(instants), step):
        yield from _cut_parts(instants[start : start + step], level - 1, per_file, fan_in)


def plan_merge(
    files: Iterable[HistoryFile], level: int, *, fan_in: int = _FILES_PER_MERGE, max_bytes: int = _MAX_MERGE_BYTES
) -> HistoryMerge | None:
    """Return the due merge of a level; None if there are too few files or they are too large.

    A merge may make another one due on the next level.

    Args:
        files: the files of the current manifest.
        level: from 0.
        fan_in: the number of files that makes a merge due, and its maximum.
        max_bytes: a merge takes no further file above this total size.

    Raises:
        InvalidInputError: a name is not that of an archive file.

    Example:
        >>> plan_merge([HistoryFile(f"{n}_{n + 1}_0.parquet", 9) for n in (10, 20, 30)], 0, fan_in=3).target
        '10_31_1.parquet'
    """
    here = sorted((file for file in files if file.level == level), key=lambda file: file.name)
    if len(here) < fan_in or level >= _MAX_LEVEL:
        return None
    sources: list[HistoryFile] = []
    size = 0
    for file in here:
        sources.append(file)
        size += file.size
        if len(sources) == fan_in:
            break
        if size > max_bytes:
            if len(sources) > 1:
                break
            # Large enough already.
            sources, size = [], 0
    if len(sources) < 2:
        return None
    # Hudi's upgrade names files by their first and last row, in whatever order the rows are.
    times = [time for file in sources for time in (file.first, file.last)]
    return HistoryMerge(tuple(sources), history_file_name(min(times), max(times), level + 1))


def obsolete_names(
    names: Collection[str], manifests: Mapping[int, Iterable[HistoryFile]], merged_levels: int = 0
) -> tuple[str, ...]:
    """Return the names to remove from the archive directory after a merge, in order.

    The newest manifests and their files are kept for concurrent readers.

    Args:
        names: the file names in the directory.
        manifests: number → files of each manifest.
        merged_levels: the number of levels merged now, each with a new manifest.

    Example:
        >>> known = {n: [HistoryFile(f"{n}_{n}_0.parquet", 9)] for n in (1, 2, 3, 4)}
        >>> names = [f"manifest_{n}" for n in known] + [f"{n}_{n}_0.parquet" for n in known]
        >>> obsolete_names(names, known)
        ('manifest_1', '1_1_0.parquet')
    """
    kept_numbers = sorted(manifests, reverse=True)[: _KEPT_MANIFESTS + merged_levels]
    if len(kept_numbers) == len(manifests):
        return ()
    needed = {file.name for number in kept_numbers for file in manifests[number]}
    old = [f"manifest_{number}" for number in sorted(manifests.keys() - set(kept_numbers))]
    files = sorted(name for name in names if _HISTORY_FILE_NAME.fullmatch(name) and name not in needed)
    return tuple(name for name in (*old, *files) if name in names)


_MAX_MANIFEST_BYTES = 16 * 1024 * 1024

#: Maximum size of a row group in bytes: it is read at once.
_MAX_READ_GROUP_BYTES = 1 << 30


def load_manifest(store: ObjectStore, directory: str) -> tuple[int, list[HistoryFile]]:
    """Return the number of the current manifest and its files; 0 and none without an archive.

    ``_version_`` names the current manifest; if it is not valid, the largest number counts.

    Args:
        store: the table.
        directory: the archive directory relative to the table.

    Raises:
        CorruptFile: the manifest is damaged.
        ObjectNotFound: the manifest that ``_version_`` names does not exist.
    """
    number = 0
    try:
        raw_number = store.read(f"{directory}/_version_", 64).strip()
        number = int(raw_number) if raw_number.isdigit() and len(raw_number) < 10 else 0
    except ObjectNotFound:
        pass
    if not number:
        names = (item.name.rpartition("/")[2] for item in store.list(directory, recursive=False))
        number = max(manifest_numbers(names), default=0)
    return number, read_manifest(store, directory, number) if number else []


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the manifests among file names.

    Example:
        >>> manifest_numbers(["_version_", "manifest_3", "manifest_4"])
        [3, 4]
    """
    return [number for number in map(parse_manifest_name, names) if number is not None]


def read_manifest(store: ObjectStore, directory: str, number: int) -> list[HistoryFile]:
    """Return the files that a manifest lists.

    Raises:
        CorruptFile: the manifest is damaged.
        ObjectNotFound: the manifest does not exist.
    """
    name = f"{directory}/manifest_{number}"
    return decode_manifest(store.read(name, _MAX_MANIFEST_BYTES), name)


@contextmanager
def open_archived(store: ObjectStore, path: str) -> Iterator[pa.NativeFile]:
    """Open a file of the archive for reading.

    Raises:
        ObjectNotFound: the file was merged away.
        CorruptFile: data read inside of the context is damaged.
        StorageError: the store failed.
    """
    filesystem, prefix = store.arrow_filesystem()
    try:
        with filesystem.open_input_file(prefix + path) as source:
            yield source
    except FileNotFoundError:
        raise ObjectNotFound(f"{path} is gone: the archive was merged meanwhile; read again") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    except OSError as error:
        # Damaged pages come as OSError without errno.
        if error.errno is None:
            raise CorruptFile(f"{path} cannot be read: {error}") from error
        raise StorageError(f"{path} cannot be read: {error}", transient=True) from error


def check_group(file: pq.ParquetFile, number: int, what: str) -> None:
    """Refuse a row group that is too large to read.

    Args:
        file: a file of the archive.
        number: the index of the row group.
        what: the file's name in errors.

    Raises:
        CorruptFile: the row group exceeds the maximum size.
    """
    stated = file.metadata.row_group(number).total_byte_size
    if not 0 <= stated <= _MAX_READ_GROUP_BYTES:
        raise CorruptFile(f"{what}: a row group of {stated:,} bytes; at most {_MAX_READ_GROUP_BYTES:,} are read")


def place_archived(store: ObjectStore, sink: ObjectWriter, path: str) -> int:
    """Commit a finished file under its name; return its size in bytes.

    Raises:
        StorageError: the file exists, or the store does not confirm it.
    """
    size = sink.size
    outcome = sink.put_if_absent()
    if outcome is PutOutcome.UNKNOWN:
        info = store.info(path)
        outcome = PutOutcome.DONE if info is not None and info.size == size else outcome
    if outcome is not PutOutcome.DONE:
        raise StorageError(f"{path} could not be written: the store answers {outcome.value}", transient=True)
    return size


#: A row group ends when it reaches this size: it bounds the memory, and a reader reads it for one
#: body.
_WRITTEN_GROUP_BYTES = 8 * 1024 * 1024
_WRITTEN_GROUP_ROWS = 1000
#: Bodies do not repeat.
_DICTIONARY_COLUMNS = ["action", "version"]
_STATISTICS_COLUMNS = ["instantTime", "completionTime", "action", "version"]


class HistoryWriter:
    """Writes the archive directory of one table.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> from lakefmt._core.timeline.instant import parse_instant_file
        >>> writer = HistoryWriter(MemoryStore(), ".hoodie/timeline/history", durable=False)
        >>> done = parse_instant_file("20260101000000000_20260101000000500.commit", 2)
        >>> writer.append([HistoryEntry(done, b"body")]).name
        '20260101000000000_20260101000000000_0.parquet'
        >>> writer.load()[0]
        1
    """

    def __init__(self, store: ObjectStore, directory: str, *, durable: bool = True) -> None:
        self._store = store
        self._directory = directory
        self._durable = durable

    def load(self) -> tuple[int, list[HistoryFile]]:
        """Return the number of the current manifest, 0 without one, and its files.

        Raises:
            CorruptFile: the manifest is damaged.
            ObjectNotFound: the manifest that ``_version_`` names does not exist.
        """
        return load_manifest(self._store, self._directory)

    def write(self, name: str, entries: Iterable[HistoryEntry]) -> HistoryFile:
        """Write an archive file, which becomes valid with a manifest; replaces a file of the same name.

        Args:
            name: a result of :func:`~lakefmt._core.timeline.lsm_timeline.history_file_name`.
            entries: the instants by requested time; streamed.

        Raises:
            StorageError: the store failed; the call may be repeated.
        """

        def fill(write: _WriteBatch) -> None:
            group: list[HistoryEntry] = []
            size = 0
            for entry in entries:
                group.append(entry)
                size += len(entry.metadata or b"") + len(entry.plan or b"")
                if size >= _WRITTEN_GROUP_BYTES or len(group) >= _WRITTEN_GROUP_ROWS:
                    write(entry_batch(group))
                    group, size = [], 0
            if group:
                write(entry_batch(group))

        return self._write(name, fill)

    def publish(self, number: int, files: Iterable[HistoryFile]) -> None:
        """Write a manifest with these files and make it current.

        Args:
            number: of the new manifest, one above the current one.
            files: all valid files.

        Raises:
            StorageError: the store failed, and the current manifest is unknown; load again.
        """
        self._store.put(self._path(f"manifest_{number}"), encode_manifest(files), durable=self._durable)
        self._store.put(self._path("_version_"), str(number).encode(), durable=self._durable)

    def append(self, entries: Iterable[HistoryEntry]) -> HistoryFile:
        """Archive instants in a new level 0 file; a repeated call changes nothing.

        Args:
            entries: one or more instants, held in memory: pass a few hundred at a time.

        Raises:
            StorageError: the store failed; the call may be repeated.
            StateError: a file of that range has other instants.
        """
        ordered = sorted(entries, key=lambda entry: (entry.instant.time, entry.instant.action.value))
        number, files = self.load()
        name = history_file_name(ordered[0].instant.time, ordered[-1].instant.time, 0)
        for existing in files:
            if existing.name == name:
                self._check_same(existing, len(ordered))
                return existing
        written = self.write(name, ordered)
        self.publish(number + 1, [*files, written])
        return written

    def merge(self) -> tuple[HistoryMerge, ...]:
        """Run the due merges from level 0 up, and remove files outside of the kept manifests.

        Returns:
            The merges; empty if none was due, and then nothing is removed.

        Raises:
            StorageError: the store failed; the call may be repeated.
            CorruptFile: a file of the archive is damaged.
            StateError: a valid file has the name of a merge result.
        """
        merges: list[HistoryMerge] = []
        number, files = self.load()
        while merge := plan_merge(files, len(merges)):
            if any(file.name == merge.target for file in files):
                raise StateError(f"{self._path(merge.target)} counts already and would be written over")
            written = self._write(merge.target, partial(self._copy, merge))
            files = [file for file in files if file not in merge.sources] + [written]
            number += 1
            self.publish(number, files)
            merges.append(merge)
        if merges:
            self._remove_obsolete(len(merges))
        return tuple(merges)

    # -------------------------------------------------------------------------------------------------------- inside

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _check_same(self, existing: HistoryFile, count: int) -> None:
        # The caller deletes the instants afterwards: one that is missing in the file would be lost.
        with open_archived(self._store, self._path(existing.name)) as source, pq.ParquetFile(source) as table:
            if table.metadata.num_rows != count:
                raise StateError(
                    f"{self._path(existing.name)} holds {table.metadata.num_rows} instants, and not {count}"
                )

    def _copy(self, merge: HistoryMerge, write: _WriteBatch) -> None:
        for file in merge.sources:
            with open_archived(self._store, self._path(file.name)) as source, pq.ParquetFile(source) as table:
                check_row_counts(table.metadata)
                for number in range(table.num_row_groups):
                    check_group(table, number, self._path(file.name))
                    rows = table.read_row_group(number, columns=HISTORY_SCHEMA.names)
                    for batch in rows.cast(HISTORY_SCHEMA).to_batches():
                        write(batch)

    def _remove_obsolete(self, merged_levels: int) -> None:
        names = [item.name.rpartition("/")[2] for item in self._store.list(self._directory, recursive=False)]
        numbers = manifest_numbers(names)
        manifests = {number: read_manifest(self._store, self._directory, number) for number in numbers}
        self._store.delete([self._path(name) for name in obsolete_names(names, manifests, merged_levels)])

    def _write(self, name: str, fill: Callable[[_WriteBatch], None]) -> HistoryFile:
        path = self._path(name)
        # An interrupted run left this unused file.
        self._store.delete([path])
        with self._store.create(path, durable=self._durable) as sink:
            with _parquet_writer(sink) as writer:
                fill(lambda batch: writer.write_batch(batch, row_group_size=batch.num_rows))
                writer.add_key_value_metadata(history_footers())
                writer.close()
            size = place_archived(self._store, sink, path)
        return HistoryFile(name, size)


@contextmanager
def _parquet_writer(sink: ObjectWriter) -> Iterator[pq.ParquetWriter]:
    writer = pq.ParquetWriter(
        sink.file,
        HISTORY_SCHEMA,
        version="1.0",
        compression="gzip",
        use_dictionary=_DICTIONARY_COLUMNS,
        write_statistics=_STATISTICS_COLUMNS,
        store_schema=False,
    )
    try:
        yield writer
    except OSError as error:
        raise StorageError(f"writing the archive failed: {error}") from error
    finally:
        if writer.is_open:
            # The rest goes to an unread temporary object.
            with suppress(OSError, ValueError, pa.ArrowException):
                writer.close()
