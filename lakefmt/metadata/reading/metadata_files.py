"""The base files and logs of the metadata table: listed, opened, kept (effects on reading only).

Small files are read whole and kept for the next look; of large base files only what is asked for is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, partial
from hashlib import md5
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.errors import ObjectNotFound, SnapshotExpired
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt.filegroups.reader import reading
from lakefmt.formats.hfile.reader import HFileReader, Reserve
from lakefmt.metadata.layout import METADATA_DIRECTORY, PartitionKind, parse_metadata_file
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.parallel import map_concurrently
from lakefmt.storage.table_directory import TableDirectory
from lakefmt.values import FileId, InstantTime, PartitionPath

if TYPE_CHECKING:
    from lakefmt.formats.log.blocks import LogBlock
    from lakefmt.formats.log.reader import WholeBlock
    from lakefmt.timeline.archive.store import History, HistoryStore

__all__ = ["MetadataFileCache", "MetadataFiles", "OpenedBlock"]

#: Files up to this size are read whole, and kept.
_READ_WHOLE = 8 << 20
_KEPT_BYTES = 64 << 20
#: Bytes of decoded blocks that are kept beside them: those of about a million keys.
_DECODED_BYTES = 64 << 20
#: Bytes of files as they are stored that are kept, those that this handle wrote, and of one of them.
_STORED_BYTES, _STORED_FILE_BYTES = 8 << 20, 1 << 20
_HISTORY = f"{METADATA_DIRECTORY}/.hoodie/timeline/history"


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
        from lakefmt.formats.log.delete_block import decode_delete_content

        return decode_delete_content(self._content, what=self._what).keys.cast(pa.binary())


_Content = HFileReader | tuple[OpenedBlock, ...]


class _Version(NamedTuple):
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

    content: _Content
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
        self._files: OrderedDict[_Version, _KeptFile] = OrderedDict()
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
        from lakefmt.timeline.archive.store import HistoryStore

        with self._lock:
            if layout not in self._histories:
                self._histories[layout] = HistoryStore(store, _HISTORY, layout)
            return self._histories[layout]

    def keep_bytes(self, path: str, data: bytes) -> None:
        """Keep the bytes of a file that this handle puts or has read."""
        with self._lock:
            self._bytes_of.pop(path, None)
            if len(data) <= _STORED_FILE_BYTES:
                self._bytes_of[path] = data
            kept = sum(map(len, self._bytes_of.values()))
            while kept > _STORED_BYTES:
                kept -= len(self._bytes_of.popitem(last=False)[1])

    def bytes_of(self, path: str, mark: str) -> bytes | None:
        """Return the bytes of a file that were kept, if its mark is the MD5 digest of them, as S3's ETag is."""
        with self._lock:
            data = self._bytes_of.get(path)
        if data is None or md5(data, usedforsecurity=False).hexdigest() != mark.strip('"'):
            return None
        return data

    def has(self, version: _Version, mark: str) -> bool:
        """Return whether a file need not be read."""
        with self._lock:
            kept = version in self._files
        return kept or self.bytes_of(version.path, mark) is not None

    def get(self, version: _Version) -> _Content | None:
        """Return a file that was read before."""
        with self._lock:
            kept = self._files.get(version)
            if kept is None:
                return None
            self._uses += 1
            kept.used_before, kept.used = kept.used, self._uses
            self._files.move_to_end(version)
            return kept.content

    def put(self, version: _Version, content: _Content) -> None:
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
                oldest, kept = self._files.popitem(last=False)
                self._bytes -= oldest.size
                self._decoded -= kept.forget_blocks()

    def _reserve(self, version: _Version, size: int) -> bool:
        """Return whether a file may keep more decoded blocks; those of files that are used no more make room.

        Files that were used since its own last use are as likely to be used again: they keep theirs.
        """
        with self._lock:
            own = self._files.get(version)
            if own is None:
                return False
            for kept in self._files.values():
                if self._decoded + size <= _DECODED_BYTES or kept.used >= own.used_before:
                    break
                self._decoded -= kept.forget_blocks()
            if self._decoded + size > _DECODED_BYTES:
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

    def _version(self, file: BaseFile | LogFile) -> _Version:
        return _Version(file.path, file.size, self._modified.get(file.path, 0.0))

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

    def _open(self, file: BaseFile | LogFile) -> _Content:
        from lakefmt.formats.log.blocks import MAX_LOG_BYTES
        from lakefmt.formats.log.reader import LogBlockReader, WholeBlock

        if isinstance(file, BaseFile) and file.size > _READ_WHOLE:
            return self._open_ranged(file)
        version = self._version(file)
        kept = self._cache.get(version)
        if kept is not None:
            return kept
        data = self._cache.bytes_of(file.path, self._marks.get(file.path, ""))
        if data is None:
            try:
                data = self._store.read(file.path, MAX_LOG_BYTES)
            except ObjectNotFound:
                raise SnapshotExpired(
                    f"{file.path} is gone: the metadata table was cleaned meanwhile; read again"
                ) from None
        content: _Content
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
        if len(data) <= _READ_WHOLE and version.modified:
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
