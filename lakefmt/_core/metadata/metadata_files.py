"""The base files and logs of the metadata table: listed, opened, kept, and checked for files that are gone (effects on reading only).

Small files are read whole and kept for the next look; of large base files only what is asked for is read.

Which file groups and files there must be is told by the commits that wrote them (:class:`WrittenGroups`). Hudi counts the file
groups that it finds. A gap in their numbers shows which one is missing, but not when it is the last: then every key is looked for,
and stored, in a wrong place. Nor does Hudi see that a log is gone, empty or cut: the files or keys in it are passed over, as if
they had never been written.

What handles keep of a metadata table on a local disk is there for the next handle of the process (:class:`HandleMemory`). A job that opens the table for every commit would decode the same files again each time. All that is kept is of files and
commits that never change, and a handle that stays open keeps it while other processes write; so it is right for the next
handle too, as long as the metadata table is the same one: not dropped, and made anew under the same names.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from hashlib import md5
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, finalize

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.filegroups.reader import BaseFileReader, reading
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.hfile_container import HFileReader, Reserve
from lakefmt._core.formats.names import PARTITION_METADATA
from lakefmt._core.formats.properties import decode_properties
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, PartitionKind, parse_metadata_file
from lakefmt._core.metadata.timeline import INITIALISATION, MetadataInstant, MetadataTimeline, MetadataTimelineStore
from lakefmt._core.storage.api import ObjectStore, SupportsIdentities
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import decode_commit
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.store import MAX_BODY_BYTES
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableVersion
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired

if TYPE_CHECKING:
    from lakefmt._core.formats.log_blocks import LogBlock, WholeBlock
    from lakefmt._core.timeline.archive import History, HistoryStore

__all__ = [
    "CommittedFile",
    "CommittedLog",
    "KnownCommits",
    "MetadataFileCache",
    "MetadataFiles",
    "OpenedBlock",
    "WrittenGroups",
    "handle_memory",
    "known_commits",
    "log_damage",
    "log_problem",
]


_PROPERTIES: Final = f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties"
#: Metadata tables of which something is kept without a handle, and bytes that are kept of one of them.
_MOST_TABLES: Final = 4
_MOST_BYTES: Final = 16 << 20

K = TypeVar("K")


class HandleMemory:
    """What is kept of one metadata table, an object of each kind; for any number of handles and threads.

    Example:
        >>> memory = HandleMemory()
        >>> memory.of(dict) is memory.of(dict)
        True
    """

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}
        self._lock = Lock()

    def of(self, memory_type: type[K]) -> K:
        """Return what is kept of a kind, which is empty at first."""
        with self._lock:
            if memory_type not in self._kept:
                self._kept[memory_type] = memory_type()
            return cast("K", self._kept[memory_type])

    @property
    def nbytes(self) -> int:
        """Bytes of what knows its own; takes no lock."""
        return sum(int(getattr(each, "nbytes", 0)) for each in tuple(self._kept.values()))


#: Process and identity of a metadata table. A forked process begins anew: a lock might be held in its copy.
_Key = tuple[int, str]
_by_table: OrderedDict[_Key, HandleMemory] = OrderedDict()
_by_handle: WeakKeyDictionary[BaseFileReader, HandleMemory] = WeakKeyDictionary()
_guard = Lock()


def handle_memory(client: TableClient) -> HandleMemory:
    """Return what a table's handle keeps of the metadata table: on a local disk that of the handles before it."""
    reader = client.reader
    with _guard:
        memory = _by_handle.get(reader)
    if memory is not None:
        return memory
    identity = _identity(client.store)
    with _guard:
        memory = _by_handle.get(reader)
        if memory is None:
            _by_handle[reader] = memory = HandleMemory() if identity is None else _of_table((os.getpid(), identity))
            if identity is not None:
                finalize(reader, _forget_large, (os.getpid(), identity))
        return memory


def _identity(store: ObjectStore) -> str | None:
    return store.identity(_PROPERTIES) if isinstance(store, SupportsIdentities) else None


def _of_table(key: _Key) -> HandleMemory:
    if key not in _by_table:
        _by_table[key] = HandleMemory()
        while len(_by_table) > _MOST_TABLES:
            _by_table.popitem(last=False)
    _by_table.move_to_end(key)
    return _by_table[key]


def _forget_large(key: _Key) -> None:
    """Forget what is large once a handle of it is gone; other handles keep theirs. Takes no lock: Python calls it anywhere."""
    memory = _by_table.get(key)
    if memory is not None and memory.nbytes > _MOST_BYTES:
        _by_table.pop(key, None)


#: Files up to this size are read whole, and kept.
_READ_WHOLE_BYTES = 8 << 20
_KEPT_BYTES = 64 << 20
#: Bytes of decoded blocks that are kept beside them: those of about a million keys.
_KEPT_DECODED_BYTES = 64 << 20
#: Bytes of files as they are stored that are kept, those that this handle wrote, and of one of them.
_KEPT_STORED_BYTES, _MOST_STORED_FILE_BYTES = 8 << 20, 1 << 20
_HISTORY_DIRECTORY = f"{METADATA_DIRECTORY}/.hoodie/timeline/history"


#: More than a timeline holds between two archives.
_MOST_KNOWN_COMMITS = 512
#: Digits of the longest instant of the data table; in layout 1 those of services and of first records are longer.
_INSTANT_DIGITS = 17
_REPAIR_ADVICE = "make it anew with Table.index.check(repair=True) or `lakefmt index check --repair`"


class OpenedBlock:
    """A block of a log; what it holds is decoded when it is asked for, and once.

    Parameters:
        whole: the block with its bytes.
        what: the log, for errors.
    """

    def __init__(self, whole: WholeBlock, what: str) -> None:
        self.block: LogBlock = whole.block
        #: See :attr:`HFileReader.reserve`.
        self.reserve: Reserve | None = None
        self._content = whole.content
        self._what = what

    @cached_property
    def reader(self) -> HFileReader:
        """The records of a block of type HFILE_DATA.

        Raises:
            CorruptFile: they are damaged.
        """
        reader = HFileReader.from_bytes(self._content, self._what)
        reader.reserve = self.reserve
        return reader

    def forget_blocks(self) -> None:
        """Forget the decoded blocks of the records."""
        if "reader" in self.__dict__:
            self.reader.forget_blocks()

    @cached_property
    def deleted(self) -> pa.Array:
        """The keys of a delete block, binary.

        Raises:
            CorruptFile: they are damaged.
        """
        from lakefmt._core.formats.log_delete_block import decode_delete_content

        return decode_delete_content(self._content, what=self._what).keys.cast(pa.binary())


_OpenedFile = HFileReader | tuple[OpenedBlock, ...]


class _ListedFile(NamedTuple):
    """A file as it was listed: a metadata table that is made anew may use a name again."""

    path: str
    size: int
    modified: float


@dataclass(slots=True, eq=False)
class _KeptFile:
    """A file that was read, and when.

    Attributes:
        content: its blocks.
        used: counts uses of the cache, at its last use.
        used_before: the same, one use earlier.
        decoded: bytes of its decoded blocks.
    """

    content: _OpenedFile
    used: int
    used_before: int = 0
    decoded: int = 0

    def forget_blocks(self) -> int:
        """Forget the decoded blocks; return their bytes."""
        for block in (self.content,) if isinstance(self.content, HFileReader) else self.content:
            block.forget_blocks()
        size, self.decoded = self.decoded, 0
        return size


class MetadataFileCache:
    """Files of the metadata table that were read before, the last used ones; for all readers of one table."""

    def __init__(self) -> None:
        self._files: OrderedDict[_ListedFile, _KeptFile] = OrderedDict()
        self._bytes = 0
        self._decoded = 0
        self._uses = 0
        self._lock = Lock()
        self._bytes_of: OrderedDict[str, bytes] = OrderedDict()
        #: Requests by which storage was listed where files of the metadata table would have had to be read.
        self.listed_instead = 0
        self._histories: dict[int, HistoryStore] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the files that were read, and of their decoded blocks; takes no lock."""
        return self._bytes + self._decoded

    def history(self, store: ObjectStore, layout: int) -> HistoryStore:
        """Return the metadata table's archived timeline, of which files that were read are kept.

        Parameters:
            store: the data table's store.
            layout: the timeline layout, 1 or 2.
        """
        from lakefmt._core.timeline.archive import HistoryStore

        with self._lock:
            if layout not in self._histories:
                self._histories[layout] = HistoryStore(store, _HISTORY_DIRECTORY, layout)
            return self._histories[layout]

    def keep_bytes(self, path: str, data: bytes) -> None:
        """Keep the bytes of a file that this handle puts or has read."""
        with self._lock:
            self._bytes_of.pop(path, None)
            if len(data) <= _MOST_STORED_FILE_BYTES:
                self._bytes_of[path] = data
            num_bytes = sum(map(len, self._bytes_of.values()))
            while num_bytes > _KEPT_STORED_BYTES:
                num_bytes -= len(self._bytes_of.popitem(last=False)[1])

    def bytes_of(self, path: str, mark: str) -> bytes | None:
        """Return the bytes of a file that were kept, if its mark is the MD5 digest of them, as S3's ETag is."""
        with self._lock:
            data = self._bytes_of.get(path)
        if data is None or md5(data, usedforsecurity=False).hexdigest() != mark.strip('"'):
            return None
        return data

    def has(self, version: _ListedFile, mark: str) -> bool:
        """Return whether a file need not be read."""
        with self._lock:
            is_decoded = version in self._files
        return is_decoded or self.bytes_of(version.path, mark) is not None

    def get(self, version: _ListedFile) -> _OpenedFile | None:
        """Return a file that was read before."""
        with self._lock:
            cached_file = self._files.get(version)
            if cached_file is None:
                return None
            self._uses += 1
            cached_file.used_before, cached_file.used = cached_file.used, self._uses
            self._files.move_to_end(version)
            return cached_file.content

    def put(self, version: _ListedFile, content: _OpenedFile) -> None:
        """Keep a file."""
        if PartitionKind.RECORD_INDEX.value in version.path:  # few of its values are distinct
            for block in (content,) if isinstance(content, HFileReader) else content:
                block.reserve = partial(self._reserve, version)
        with self._lock:
            if version in self._files:
                self._decoded -= self._files.pop(version).forget_blocks()
            else:
                self._bytes += version.size
            self._uses += 1
            self._files[version] = _KeptFile(content, self._uses)
            while self._bytes > _KEPT_BYTES:
                oldest, cached_file = self._files.popitem(last=False)
                self._bytes -= oldest.size
                self._decoded -= cached_file.forget_blocks()

    def _reserve(self, version: _ListedFile, size: int) -> bool:
        """Return whether a file may keep more decoded blocks; those of files that are used no more make room.

        Files that were used since its own last use are as likely to be used again: they keep theirs.
        """
        with self._lock:
            own = self._files.get(version)
            if own is None:
                return False
            for cached_file in self._files.values():
                if self._decoded + size <= _KEPT_DECODED_BYTES or cached_file.used >= own.used_before:
                    break
                self._decoded -= cached_file.forget_blocks()
            if self._decoded + size > _KEPT_DECODED_BYTES:
                return False
            own.decoded += size
            self._decoded += size
            return True


class MetadataFiles:
    """The files of the metadata table of one table.

    Parameters:
        store: the data table's store.
        cache: files that were read before.
        directory: what is below ``.hoodie`` at this moment; None: directories are listed.
    """

    def __init__(self, store: ObjectStore, cache: MetadataFileCache, directory: TableDirectory | None = None) -> None:
        self._store = store
        self._directory = directory
        self._cache = cache
        self._modified: dict[str, float] = {}
        self._marks: dict[str, str] = {}
        #: Logs with bytes that are no block: a writer died, or the file was damaged later.
        self.damaged: set[str] = set()

    def history(self, layout: int) -> History:
        """Return the metadata table's archived timeline.

        Raises:
            CorruptFile: it is damaged.
        """
        return self._cache.history(self._store, layout).load()

    def list(self, directory: PartitionPath) -> tuple[list[BaseFile], list[LogFile]]:
        """Return the base files and logs in a directory; other files, such as Hadoop's checksums, are passed over."""
        bases: list[BaseFile] = []
        logs: list[LogFile] = []
        listed = (
            self._store.list(directory, recursive=False)
            if self._directory is None
            else self._directory.inside(directory)
        )
        for item in listed:
            name = item.name.rpartition("/")[2]
            parsed = parse_metadata_file(name)
            if parsed is None:
                continue
            self._modified[item.name], self._marks[item.name] = item.modified, item.mark
            file_id, instant = FileId(parsed.file_id), InstantTime(parsed.instant)
            if parsed.version is None:
                bases.append(BaseFile(directory, name, file_id, parsed.write_token, instant, item.size))
            else:
                logs.append(LogFile(directory, name, file_id, instant, parsed.version, item.size))
        return bases, logs

    def count_unread(self, slices: Sequence[FileSlice]) -> int:
        """Return how many files of file slices have to be read."""
        files: list[BaseFile | LogFile] = [item.base for item in slices if item.base is not None]
        files += [log for item in slices for log in item.logs]
        return sum(not self._cache.has(self._version(file), self._marks.get(file.path, "")) for file in files)

    def _version(self, file: BaseFile | LogFile) -> _ListedFile:
        return _ListedFile(file.path, file.size, self._modified.get(file.path, 0.0))

    def open_all(
        self, slices: Sequence[FileSlice]
    ) -> tuple[dict[str, HFileReader], dict[str, tuple[OpenedBlock, ...]]]:
        """Return the base files and the blocks of the logs of file slices, by path.

        Raises:
            CorruptFile: a base file is no HFile.
            SnapshotExpired: a file is gone.
        """
        bases = [item.base for item in slices if item.base is not None]
        logs = [log for item in slices for log in item.logs]
        # Opened together: from a remote store each of them takes a request.
        looks = [*(partial(self._open, base) for base in bases), *(partial(self._open, log) for log in logs)]
        opened = map_concurrently(self._store, looks)
        readers = {b.path: item for b, item in zip(bases, opened, strict=False) if isinstance(item, HFileReader)}
        blocks = {
            log.path: item for log, item in zip(logs, opened[len(bases) :], strict=True) if isinstance(item, tuple)
        }
        return readers, blocks

    def _open(self, file: BaseFile | LogFile) -> _OpenedFile:
        from lakefmt._core.formats.log_blocks import MAX_LOG_BYTES, LogBlockReader, WholeBlock

        if isinstance(file, BaseFile) and file.size > _READ_WHOLE_BYTES:
            return self._open_ranged(file)
        version = self._version(file)
        opened_file = self._cache.get(version)
        if opened_file is not None:
            return opened_file
        data = self._cache.bytes_of(file.path, self._marks.get(file.path, ""))
        if data is None:
            try:
                data = self._store.read(file.path, MAX_LOG_BYTES)
            except ObjectNotFound:
                raise SnapshotExpired(
                    f"{file.path} is gone: the metadata table was cleaned meanwhile; read again"
                ) from None
        content: _OpenedFile
        if isinstance(file, BaseFile):
            content = HFileReader.from_bytes(data, file.path)
        else:
            reader = LogBlockReader(file.path)
            reader.feed(data)
            parts = list(reader.finish())
            content = tuple(OpenedBlock(part, file.path) for part in parts if isinstance(part, WholeBlock))
            if len(content) < len(parts):
                self.damaged.add(file.path)
                return content
        # A store that does not say when a file was written would not show that it was written anew.
        if len(data) <= _READ_WHOLE_BYTES and version.modified:
            self._cache.put(version, content)
        return content

    def _open_ranged(self, file: BaseFile) -> HFileReader:
        filesystem, prefix = self._store.arrow_filesystem()
        with reading(file.path):
            source = filesystem.open_input_file(prefix + file.path)

        def read_at(offset: int, size: int) -> bytes:
            with reading(file.path):
                return bytes(source.read_at(size, offset))

        return HFileReader(read_at, source.size(), file.path)


# -------------------------------------------------------------------------------------------- what commits have written


class CommittedFile(NamedTuple):
    """A file of the metadata table as the commit that wrote it names it; ``size`` in bytes."""

    partition: str
    file_id: str
    name: str
    size: int


class CommittedLog(NamedTuple):
    """A log as commits record it: the instants that wrote to it, and its size in bytes after the last one."""

    instants: frozenset[str]
    size: int


#: The files of a commit by partition.
_FilesByPartition = Mapping[str, tuple[CommittedFile, ...]]


@dataclass
class KnownCommits:
    """The files of commits of the metadata table, as one handle read or wrote them; a commit never changes."""

    _files: dict[tuple[str, str | None], _FilesByPartition] = field(default_factory=dict)

    def of(self, instant: MetadataInstant) -> _FilesByPartition | None:
        """Return the files of a commit by partition; None: it has to be read."""
        return self._files.get((instant.time, instant.completion))

    def remember(self, time: str, completion: str | None, files: Iterable[CommittedFile]) -> None:
        """Keep the files of a commit.

        Parameters:
            time: its requested time.
            completion: its completion time, as its name on the timeline says.
            files: that it wrote.
        """
        if completion == time and (len(time) > _INSTANT_DIGITS or time.startswith(INITIALISATION)):
            return  # in layout 1 an index that is made anew may have the instants of the one before it
        if len(self._files) >= _MOST_KNOWN_COMMITS:
            self._files = {}
        self._files[time, completion] = _by_partition(files)


def known_commits(client: TableClient) -> KnownCommits:
    """Return what a table's handle knows of the commits of its metadata table."""
    return handle_memory(client).of(KnownCommits)


@dataclass(frozen=True)
class WrittenGroups:
    """The file groups that the commits of a metadata table have written.

    Attributes:
        store: the data table's store.
        version: the table version.
        timeline: the metadata table's.
        known: commits that were read before.
    """

    store: ObjectStore
    version: TableVersion
    timeline: MetadataTimeline
    known: KnownCommits = field(default_factory=KnownCommits)
    _read_now: dict[str, _FilesByPartition] = field(default_factory=dict, repr=False)

    def check(self, partition: str, present: Collection[str]) -> None:
        """Raise when commits wrote to file groups of a partition that are not there.

        Parameters:
            partition: the metadata table's partition.
            present: the ids of the file groups that its directory has.

        Raises:
            CorruptFile: a file group is missing.
        """
        # Where there are none at all, every commit is asked whether there ever was one.
        everything = not present
        lost = self._read("", everything=everything).get(partition, frozenset()).difference(present)
        if lost:  # unless it was dropped and made anew with fewer of them
            lost &= self._read(self._made_at(partition), everything=everything).get(partition, frozenset())
        if lost:
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition} lacks the file group {min(lost)}: keys would be looked for in wrong "
                "places; drop this index, a later write can build it again"
            )

    def _made_at(self, partition: str) -> str:
        """Return when a partition was made; the empty text where no instant on the timeline says so."""
        name = f"{METADATA_DIRECTORY}/{partition}/{PARTITION_METADATA}"
        try:
            maker = decode_properties(self.store.read(name, MAX_BODY_BYTES), what=name).get("commitTime", "")
        except ObjectNotFound:
            return ""
        commits = self.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
        return max((_order_time(each) for each in commits if each.time == maker), default="")

    def check_files(
        self, partition: str, present: Mapping[str, int], bases: Mapping[str, str]
    ) -> Mapping[str, CommittedLog]:
        """Raise when a file of the newest file slices is gone, or shorter than the commit says that wrote it.

        Where a request takes long, a commit is not read whose log in ``files`` is there: such stores put objects whole.

        Parameters:
            partition: the metadata table's partition.
            present: the files in its directory, in bytes.
            bases: the instant of the newest complete base file of each of its file groups; the empty text for none.

        Returns:
            The logs of layout 1 by name: they have blocks of several instants.

        Raises:
            CorruptFile: a file is gone or was cut.
            SnapshotExpired: the metadata table was changed meanwhile.
        """
        since = min(bases.values(), default="")
        commits = [
            each for each in self.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT) if _order_time(each) >= since
        ]
        listed_instants: set[str] = set()
        if partition == PartitionKind.FILES.value and self._is_lazy:
            listed_instants = {parsed.instant for parsed in map(parse_metadata_file, present) if parsed is not None}
        self._load_all([each for each in commits if each.time not in listed_instants])
        named = [(commit, file) for commit in commits for file in self._needed(commit, partition, bases)]
        # What was cut of a base file shows when it is opened.
        doubtful = [
            (commit, file)
            for commit, file in named
            if file.name not in present or (file.name.startswith(".") and present[file.name] < file.size)
        ]
        if doubtful:
            self._check_doubtful(partition, doubtful, present)
        return {} if self.version.layout > 1 else _committed_logs(named)

    @property
    def tells_begin(self) -> bool:
        """Whether the timeline has what made the oldest files of the newest file slices: a compaction, or the first records."""
        return bool(self.timeline.completed(Action.COMMIT)) or any(
            each.is_initialisation or (self.version.layout == 1 and len(each.time) > _INSTANT_DIGITS)
            for each in self.timeline.completed(Action.DELTA_COMMIT)
        )

    @property
    def _is_lazy(self) -> bool:
        return self.version.layout > 1 and not self.store.capabilities.low_latency

    def _needed(self, commit: MetadataInstant, partition: str, bases: Mapping[str, str]) -> list[CommittedFile]:
        """Return the files of a commit that the newest file slices have."""
        needed = []
        for file in (self._files_of(commit) or {}).get(partition, ()):
            parsed, base = parse_metadata_file(file.name), bases.get(file.file_id, "")
            if parsed is None:
                continue
            # A log of layout 2 lies on the newest base file when it was completed after that was requested.
            placed = parsed.instant if parsed.version is None or self.version.layout == 1 else _order_time(commit)
            if placed >= base:
                needed.append(file)
        return needed

    def _check_doubtful(
        self,
        partition: str,
        doubtful: Sequence[tuple[MetadataInstant, CommittedFile]],
        present: Mapping[str, int],
    ) -> None:
        made = self._made_at(partition)
        now = MetadataTimelineStore(self.store, self.version, durable=False).load()
        completed = {(each.time, each.completion) for each in now.completed()}
        for commit, file in doubtful:
            if _order_time(commit) < made:
                continue  # of the partition of this name that was dropped
            if (
                commit.time,
                commit.completion,
            ) not in completed or now.last_compaction != self.timeline.last_compaction:
                raise SnapshotExpired(f"{METADATA_DIRECTORY} was changed meanwhile; read again")
            self._load(commit)
            if all(file.name != other.name for other in (self._files_of(commit) or {}).get(partition, ())):
                continue  # it was recorded again meanwhile
            size = present.get(file.name)
            what = "is gone" if size is None else f"has {size:,} of {file.size:,} bytes"
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition}/{file.name} {what}, as {commit.time} wrote it: {_REPAIR_ADVICE}"
            )

    def _read(self, since: str, *, everything: bool) -> Mapping[str, frozenset[str]]:
        """Return the file groups by partition: the last compaction names all of them.

        Before the first compaction there are a few deltacommits, and all of those are read.

        Parameters:
            since: only commits that were completed at this time or later.
            everything: read all commits, also those before the last compaction.
        """
        deltas = [each for each in self.timeline.completed(Action.DELTA_COMMIT) if _order_time(each) >= since]
        compactions = [each for each in self.timeline.completed(Action.COMMIT) if _order_time(each) >= since]
        last = sorted(compactions, key=_order_time)[-1:]
        commits = [*compactions, *deltas] if everything else last or deltas
        self._load_all(commits)
        written: dict[str, frozenset[str]] = {}
        for commit in commits:
            for name, files in (self._files_of(commit) or {}).items():
                written[name] = written.get(name, frozenset()) | {file.file_id for file in files}
        return written

    def _files_of(self, commit: MetadataInstant) -> _FilesByPartition | None:
        """Return the files of a commit by partition; None: it was not read, or is archived meanwhile."""
        return self._read_now.get(commit.time) or self.known.of(commit)

    def _load_all(self, commits: Iterable[MetadataInstant]) -> None:
        unread = [each for each in commits if self._files_of(each) is None]
        map_concurrently(self.store, [partial(self._load, each) for each in unread])

    def _load(self, instant: MetadataInstant) -> None:
        name = next(name for name in instant.file_names if not name.endswith((".requested", ".inflight")))
        try:
            body = MetadataTimelineStore(self.store, self.version, durable=False).read_body(name)
        except ObjectNotFound:
            return  # archived meanwhile
        files = [
            CommittedFile(stat.partition_path, stat.file_id, stat.file_name, stat.file_size_in_bytes)
            for stat in decode_commit(body, name).stats
        ]
        self._read_now[instant.time] = _by_partition(files)
        self.known.remember(instant.time, instant.completion, files)


def log_problem(
    instant: str,
    size: int,
    blocks: Sequence[str | None],
    committed: CommittedLog | None,
    *,
    layout: int,
    is_whole: bool,
) -> str | None:
    """Return what a log of a complete instant has lost; None: nothing. Pure.

    Parameters:
        instant: as the log's name has it.
        size: of the log, in bytes.
        blocks: the instants of its blocks.
        committed: what commits say of the log; None: they do not tell.
        layout: the timeline layout: in 2 a log is of one instant.
        is_whole: whether all its bytes are blocks.

    Example:
        >>> log_problem("1", 9, ["1"], None, layout=2, is_whole=True), log_problem("1", 0, [], None, layout=2, is_whole=True)
        (None, 'holds no block')
    """
    no_block = "holds bytes that are no log block"
    if layout > 1:
        others = [block for block in blocks if block != instant]
        if not is_whole:
            return no_block
        return "holds no block" if not blocks else f"holds a block of the instant {others[0]}" if others else None
    if committed is None:
        return None
    lost = sorted(committed.instants.difference(block or "" for block in blocks))
    if lost:
        return f"holds no block of the instant {lost[0]}, which wrote to it"
    return no_block if not is_whole and size <= committed.size else None


def log_damage(path: str, problem: str) -> CorruptFile:
    """Return the error for a log that has lost something."""
    return CorruptFile(f"{path} {problem}: {_REPAIR_ADVICE}")


def _by_partition(files: Iterable[CommittedFile]) -> _FilesByPartition:
    parts: dict[str, list[CommittedFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return {partition: tuple(own) for partition, own in parts.items()}


def _committed_logs(named: Iterable[tuple[MetadataInstant, CommittedFile]]) -> dict[str, CommittedLog]:
    logs: dict[str, CommittedLog] = {}
    for commit, file in named:
        before = logs.get(file.name, CommittedLog(frozenset(), 0))
        logs[file.name] = CommittedLog(before.instants | {commit.time}, max(before.size, file.size))
    return logs


def _order_time(instant: MetadataInstant) -> str:
    return instant.completion or instant.time
