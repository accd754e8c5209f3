"""List the partitions and data files of a table on storage, and keep what a handle has listed (effects on reading only).

:class:`FileListing` is the protocol; the metadata table's listing is another implementation of it.

A small table is listed as a whole with one request, its timeline and its files (:class:`ListedTable`). The answer need not be of
one moment, so one of them is not believed. Two of them, one after the other, with the same timeline tell the files of that
timeline. Let a page be of one moment, or be read in the order of its keys:

* a file of a commit that both have is in the second one, or was removed before that came to it;
* the first one has the files that were there when it came to them, and what was removed since then was removed by an instant
  that the second timeline would have, because that was requested before the first file went;
* of a partition that sorts before ``.hoodie`` the files are read before the timeline: of those it is the second listing that has
  every file, and its own timeline would have the instant that removed one.

So the files of both together are those of the timeline, and some that no commit has or that nothing needs any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile, LogFile, join_path, parse_files
from lakefmt._core.formats.names import PARTITION_METADATA_NAMES, parse_log_file, split_base_file
from lakefmt._core.keys import KeySpec
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, SupportsNames, SupportsTrees
from lakefmt._core.storage.table_directory import KeptDirectory, SmallObjects, TableDirectory
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import PartitionPath

if TYPE_CHECKING:
    pass

__all__ = [
    "Choose",
    "FileListing",
    "KeptFiles",
    "KnownFiles",
    "KnownListing",
    "ListedTable",
    "StorageListing",
    "partition_levels",
]

_TABLE_DIRECTORY = ".hoodie"
#: Up to this number of partitions an object store is listed directory by directory, above it as a whole.
_FEW_DIRECTORIES = 8
_LISTING_THREADS = 8

#: Names that a handle keeps of all partitions together: some megabytes.
_MOST_KEPT_NAMES = 1 << 14
#: Above this number of new files all are looked at: one file by its path takes longer than one of a listing.
_MANY_NEW_FILES = 64

_Files = tuple[list[BaseFile], list[LogFile]]
Seen = Callable[[Collection[PartitionPath] | None, Sequence[BaseFile]], None]
#: Selects from the partition paths of a table; the result may also have paths that do not exist.
Choose = Callable[[list[PartitionPath]], list[PartitionPath]]


class FileListing(Protocol):
    """The partitions of a table and the files in them, committed or not."""

    def partitions(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        ...

    def candidates(self) -> list[PartitionPath]:
        """Return sorted paths that include every partition; :meth:`files` finds nothing in the others."""
        ...

    def chosen(self, choose: Choose) -> list[PartitionPath]:
        """Return the partitions that `choose` selects."""
        ...

    def files(self, partitions: Iterable[PartitionPath] | None) -> _Files:
        """Return the files of the given partitions, or of all."""
        ...

    @property
    def timeline_after(self) -> Timeline | None:
        """The timeline as it was found after the files; None: it has to be listed for that."""
        ...


def partition_levels(spec: KeySpec) -> int | None:
    """Return the number of directory levels of every partition path of `spec`; None if it depends on the values.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> partition_levels(plan_key_spec("id", ["country", "city"])), partition_levels(plan_key_spec("id", None))
        (2, 0)
    """
    if spec.unsupported:
        return None
    levels = 0
    for each in spec.partition_fields:
        if spec.url_encode:
            levels += 1
        elif each.timestamp is None:
            return None  # a value may contain slashes
        else:
            from lakefmt._core.keys.joda import compile_pattern

            levels += 1 + compile_pattern(each.timestamp.output_format).slashes
    return levels


class StorageListing:
    """Lists the store.

    Parameters:
        store: the table.
        levels: number of directory levels of every partition path, if the key generator fixes it. Then a
            directory is known to be a partition without a look at its metadata file. None: the levels differ.
        seen: callback for the listed partitions (None: all) and their base files.
        at_once: one request may tell the whole table; False: it is known to be larger.
        kept: lists one partition, and looks only at names that are new since it did so before; None: all are looked at.
    """

    def __init__(
        self,
        store: ObjectStore,
        levels: int | None = None,
        seen: Seen | None = None,
        *,
        at_once: bool = True,
        kept: Callable[[PartitionPath], _Files] | None = None,
    ) -> None:
        self._store = store
        self._kept = kept
        self._levels = levels
        self._seen = seen
        self._trees = store if at_once and isinstance(store, SupportsTrees) else None

    @property
    def timeline_after(self) -> Timeline | None:
        """None: the timeline has to be listed after the files."""
        return None

    def partitions(self) -> list[PartitionPath]:
        """Return the directories with a partition metadata file (docs/format.md, Partition metadata file)."""
        return [path for path in self.candidates() if self._levels is None or self._is_partition(path)]

    def candidates(self) -> list[PartitionPath]:
        """Return the directories that are partitions, or have the depth of one."""
        if self._levels == 0 and self._is_partition(""):
            return [PartitionPath("")]
        if self._levels:
            return sorted(PartitionPath(path) for path in self._directories_at(self._levels))
        if not self._store.capabilities.directories:
            return sorted(_by_partition(self._objects()))
        return sorted(self._walk())

    def chosen(self, choose: Choose) -> list[PartitionPath]:
        """Return the partitions that `choose` selects. Only these are looked up; if one does not exist, all partitions are listed."""
        if self._levels is None:
            return choose(self.partitions())
        candidates = self.candidates()
        paths = choose(candidates)
        if all(map(self._is_partition, set(candidates).intersection(paths))):
            return paths
        return choose(self.partitions())  # given only existing partitions, it may select others

    def _directories_at(self, level: int) -> list[str]:
        directories = [""]
        for _ in range(level):
            directories = [inside for path in directories for inside in self._inside(path)]
        return directories

    def _inside(self, directory: str) -> list[str]:
        return [d for d in self._store.list_directories(directory) if d.partition("/")[0] != _TABLE_DIRECTORY]

    def _is_partition(self, directory: str) -> bool:
        prefix = f"{directory}/" if directory else ""
        return any(self._store.info(prefix + name) is not None for name in PARTITION_METADATA_NAMES)

    def _walk(self) -> list[PartitionPath]:
        """Walk the directories; a partition contains no other partition."""
        partitions: list[PartitionPath] = []
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            if self._is_partition(directory):
                partitions.append(PartitionPath(directory))
            else:
                waiting.extend(self._inside(directory))
        return partitions

    def files(self, partitions: Iterable[PartitionPath] | None) -> _Files:
        """Return the files of partitions; an object store with many partitions is listed as a whole."""
        listed = None if partitions is None else list(partitions)
        files = self._files(listed)
        if self._seen is not None:
            self._seen(listed, files[0])
        return files

    @property
    def lists_partitions_at_once(self) -> bool:
        """Whether one listing of the table's directory tells the partitions."""
        return self._levels == 1

    def files_at_once(self) -> _Files | None:
        """Return the files of all partitions with one request; None: it takes more."""
        listed = None if self._trees is None else self._trees.list_tree("")
        if listed is None:
            return None
        files = _parsed_files(self._at_depth(_by_partition(_outside_table_directory(listed))).items())
        if self._seen is not None:
            self._seen(None, files[0])
        return files

    def _files(self, partitions: list[PartitionPath] | None) -> _Files:
        if partitions is None:
            if not self._store.capabilities.directories:
                return _parsed_files(self._at_depth(_by_partition(self._objects())).items())
            partitions = self.candidates()
        paths = partitions
        if self._kept is not None:
            return _joined_files(self._kept(path) for path in paths)
        if self._store.capabilities.low_latency or len(paths) < 2:
            return _parsed_files((path, self._inside_files(path)) for path in paths)
        with ThreadPoolExecutor(min(_LISTING_THREADS, len(paths))) as threads:
            return _parsed_files(zip(paths, threads.map(self._inside_files, paths), strict=True))

    def _at_depth(self, partitioned: dict[PartitionPath, list[ObjectInfo]]) -> dict[PartitionPath, list[ObjectInfo]]:
        """Drop directories with another depth than partitions, as the directory walk does."""
        if not self._levels:
            return partitioned
        return {path: objects for path, objects in partitioned.items() if path.count("/") + 1 == self._levels}

    def _inside_files(self, partition: PartitionPath) -> list[ObjectInfo]:
        return list(self._store.list(partition, recursive=False))

    def _objects(self) -> list[ObjectInfo]:
        """Return all objects of the partitions, and few others."""
        if self._trees is not None:
            listed = self._trees.list_tree("")  # a small table takes one request
            if listed is not None:
                return _outside_table_directory(listed)
        top = self._inside("")
        if len(top) > _FEW_DIRECTORIES:
            return _outside_table_directory(self._store.list())
        objects = list(self._store.list(recursive=False))
        for directory in top:
            objects += self._store.list(directory)
        return objects


class KnownListing(StorageListing):
    """Lists what listings of the whole table told, without a request.

    Parameters:
        files: what they told.
        storage: the listing in whose place this is.
    """

    def __init__(self, files: KnownFiles, storage: StorageListing) -> None:
        super().__init__(storage._store, storage._levels, storage._seen)
        self._listed = files

    @property
    def timeline_after(self) -> Timeline | None:
        """The timeline, if it was found to be the same after the files."""
        return self._listed.timeline

    @cached_property
    def _partitions(self) -> dict[PartitionPath, list[ObjectInfo]]:
        return self._at_depth(_by_partition(self._listed.objects.values()))

    def candidates(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        return sorted(self._partitions)

    def partitions(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        return self.candidates()

    def _is_partition(self, directory: str) -> bool:
        return directory in self._partitions

    @property
    def lists_partitions_at_once(self) -> bool:
        """True: nothing has to be listed."""
        return True

    def files_at_once(self) -> _Files:
        """Return the files of all partitions."""
        return self.files(None)

    def _files(self, partitions: list[PartitionPath] | None) -> _Files:
        paths = self._partitions if partitions is None else [p for p in partitions if p in self._partitions]
        return _parsed_files((path, self._partitions[path]) for path in paths)


def _outside_table_directory(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    return [item for item in objects if not item.name.startswith(_TABLE_DIRECTORY + "/")]


def _has_metadata(objects: Sequence[ObjectInfo]) -> bool:
    return any(
        item.name.endswith(PARTITION_METADATA_NAMES) and item.name.rpartition("/")[2] in PARTITION_METADATA_NAMES
        for item in objects
    )


def _by_partition(objects: Iterable[ObjectInfo]) -> dict[PartitionPath, list[ObjectInfo]]:
    """Return the objects directly inside each outermost directory that is a partition."""
    inside: dict[PartitionPath, list[ObjectInfo]] = {}
    for item in objects:
        inside.setdefault(PartitionPath(item.name.rpartition("/")[0]), []).append(item)
    marked = {path for path, items in inside.items() if _has_metadata(items)}
    return {path: inside[path] for path in marked if not any(above in marked for above in _directories_above(path))}


def _directories_above(path: str) -> list[str]:
    if not path:
        return []
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts))]


def _parsed_files(listed: Iterable[tuple[PartitionPath, list[ObjectInfo]]]) -> _Files:
    """Return the files of the directories that are partitions; one listing is held at a time."""
    return _joined_files(parse_files(partition, objects) for partition, objects in listed if _has_metadata(objects))


def _joined_files(parts: Iterable[_Files]) -> _Files:
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for more_bases, more_logs in parts:
        bases += more_bases
        logs += more_logs
    return bases, logs


@dataclass(frozen=True, slots=True)
class _KeptPartition:
    """What is kept of one partition.

    Attributes:
        names: those of the files below, and those that are no data files.
        bases: committed base files.
        logs: committed log files of layout 2.
    """

    names: frozenset[str] = frozenset()
    bases: tuple[BaseFile, ...] = ()
    logs: tuple[LogFile, ...] = ()


class KeptFiles:
    """The files of partitions that a handle has listed, so that the next listing looks at new names only; thread-safe.

    A directory's names are listed each time: a file of another process is seen at once, and one that is removed is gone. What a name
    says never changes. Nor does the size of a file whose instant counts as committed: it was written before its commit completed, and
    later writes make files of other names. So the size of such a file is asked for once, while its name stays in the listing. Sizes of other
    files may still grow, and those of logs of layout 1, to which later commits are appended: they are asked for again each time.

    Args:
        store: the table.
        most: names that are kept of all partitions together, those listed last first.

    Example:
        >>> import tempfile
        >>> from lakefmt._core.storage.local import LocalStore
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> store = LocalStore(tempfile.mkdtemp())
        >>> for name in (".hoodie_partition_metadata", "f-0_0-0-0_20260101000000000.parquet"):
        ...     store.put(f"p/{name}", b"x")
        >>> timeline = timeline_from_names(["20260101000000000_20260101000000500.commit"], 2)
        >>> KeptFiles(store).files(PartitionPath("p"), timeline)[0][0].size
        1
    """

    def __init__(self, store: ObjectStore, most: int = _MOST_KEPT_NAMES) -> None:
        self._store = store
        self._names = store if isinstance(store, SupportsNames) else None
        self._most = most
        self._partitions: OrderedDict[PartitionPath, _KeptPartition] = OrderedDict()
        self._num_names = 0
        self._lock = Lock()

    def of(self, timeline: Timeline | None) -> Callable[[PartitionPath], _Files] | None:
        """Return :meth:`files` for a timeline; None without one, and where listings bring the sizes anyway."""
        return None if self._names is None or timeline is None else partial(self.files, timeline=timeline)

    def files(self, partition: PartitionPath, timeline: Timeline) -> _Files:
        """Return the files of a partition, committed or not, as a listing of now tells them.

        Args:
            partition: its path.
            timeline: was loaded before; it tells whose files cannot change any more.
        """
        before = self._partitions.get(partition)
        if before is None or self._names is None:
            return self._all_files(partition, timeline)
        listed = frozenset(self._names.list_names(partition))
        new = listed - before.names
        data = [name for name in sorted(new) if _is_data_file(name)]
        if len(data) > _MANY_NEW_FILES:
            return self._all_files(partition, timeline)
        if listed.isdisjoint(PARTITION_METADATA_NAMES):
            self._keep(partition, _KeptPartition())
            return [], []
        if len(before.names) + len(new) > len(listed):  # some are gone
            bases = tuple(file for file in before.bases if file.name in listed)
            logs = tuple(file for file in before.logs if file.name in listed)
            before = _KeptPartition(before.names & listed, bases, logs)
        if not new:
            self._keep(partition, before)
            return [*before.bases], [*before.logs]
        infos = (self._store.info(join_path(partition, name)) for name in data)
        files = parse_files(partition, [info for info in infos if info is not None])  # others were removed meanwhile
        self._keep(partition, _with_committed_files(before, new.difference(data), files, timeline))
        return [*before.bases, *files[0]], [*before.logs, *files[1]]

    def _all_files(self, partition: PartitionPath, timeline: Timeline) -> _Files:
        objects = list(self._store.list(partition, recursive=False))
        names = frozenset(info.name.rpartition("/")[2] for info in objects)
        if names.isdisjoint(PARTITION_METADATA_NAMES):
            return [], []
        files = parse_files(partition, objects)
        others = names.difference(file.name for each in files for file in each)
        self._keep(partition, _with_committed_files(_KeptPartition(), others, files, timeline))
        return files

    def _keep(self, partition: PartitionPath, files: _KeptPartition) -> None:
        with self._lock:
            earlier = self._partitions.pop(partition, _KeptPartition())
            self._num_names -= len(earlier.names)
            if not files.names or len(files.names) > self._most:
                return
            self._partitions[partition] = files
            self._num_names += len(files.names)
            while self._num_names > self._most:
                _, dropped = self._partitions.popitem(last=False)
                self._num_names -= len(dropped.names)


def _with_committed_files(
    before: _KeptPartition, others: frozenset[str], files: _Files, timeline: Timeline
) -> _KeptPartition:
    """Return what is kept after files were looked at whose names were new; `others` are new names of no data files."""
    bases = [file for file in files[0] if timeline.is_committed(file.instant)]
    logs = [file for file in files[1] if timeline.layout > 1 and timeline.is_committed(file.instant)]
    names = before.names.union(others, (file.name for file in bases), (file.name for file in logs))
    return _KeptPartition(names, (*before.bases, *bases), (*before.logs, *logs))


def _is_data_file(name: str) -> bool:
    if split_base_file(name) is not None:
        return True
    log = parse_log_file(name)
    return log is not None and not log.is_cdc


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files of a timeline, as listings of the whole table told them.

    Attributes:
        objects: what is not below ``.hoodie``, by name.
        timeline: as it was found with them and again after that; None: it has to be listed again.
    """

    objects: dict[str, ObjectInfo]
    timeline: Timeline | None


@dataclass
class ListedTable:
    """The listings of one table's handle.

    Attributes:
        store: the table's store.
        kept: the listing that the timeline loaded last was taken from.
    """

    store: ObjectStore
    kept: KeptDirectory = field(default_factory=KeptDirectory)

    def __post_init__(self) -> None:
        self._objects = SmallObjects(self.store) if isinstance(self.store, SupportsTrees) else None
        #: The files of partitions that were listed one by one.
        self.files = KeptFiles(self.store)
        #: Whether one request can list many directories, and whether the whole table is known to take more than one.
        self.lists_at_once, self.is_large = self._objects is not None, False
        self._newest: TableDirectory | None = None
        #: The newest listing of the whole table that has ended, and the timeline in it.
        self.whole: tuple[Timeline, TableDirectory] | None = None
        self._proven: tuple[Timeline, KnownFiles] | None = None

    def list_directory(self) -> TableDirectory | None:
        """List ``.hoodie`` with one request. Return None if the store cannot: the caller lists each directory."""
        return None if self._objects is None else self._objects.list_directory()

    def list_table(self) -> TableDirectory | None:
        """List the whole table with one request. Return None if one request is not enough; it is not tried again."""
        if self._objects is None or self.is_large:
            return None
        directory = self._objects.list_table()
        self.is_large = directory is None
        return directory

    def small_objects(self, directory: TableDirectory | None) -> Callable[[str, int], bytes]:
        """Return what reads an object of at most that many bytes, or has its bytes where `directory` shows them unchanged."""
        return self.store.read if self._objects is None else partial(self._objects.read, directory=directory)

    def keep_written(self, name: str, data: bytes) -> None:
        """Keep a small object that was just put: it is not read while a listing shows that it is the same."""
        if self._objects is not None:
            self._objects.keep_written(name, data)

    def read_newest(self, name: str, max_bytes: int) -> bytes:
        """Return the bytes of a small object, by the newest listing where that shows what was read or put before.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: it is larger.
        """
        return self.small_objects(self._newest)(name, max_bytes)

    def keep(
        self, timeline: Timeline, directory: TableDirectory, before: tuple[Timeline, TableDirectory] | None = None
    ) -> None:
        """Keep a listing, and the timeline that was taken from it.

        Args:
            timeline: what was taken from it.
            directory: the listing.
            before: what :attr:`whole` was when it began.
        """
        self.kept.keep(timeline, directory)
        self._newest = directory
        if directory.is_whole:
            self.whole = (timeline, directory)
            files = None if before is None else _files_of_two_listings(before, timeline, directory)
            self._proven = None if files is None else (timeline, files)

    def files_of(self, timeline: Timeline, read: Callable[[TableDirectory], Timeline]) -> KnownFiles | None:
        """Return, once, the files of a timeline that was taken from a listing of the whole table; None: it was not.

        Where one listing alone has that timeline, the table is listed again.

        Args:
            timeline: that very object.
            read: takes the timeline from a listing.
        """
        joined, first = self._proven, self.whole
        if joined is not None and joined[0] is timeline:
            self._proven = None
            return joined[1]
        if first is None or first[0] is not timeline:
            return None
        directory = self.list_table()
        if directory is None:
            return None
        now = read(directory)
        self.whole = (now, directory)
        return _files_of_two_listings(first, now, directory) or KnownFiles(directory.outside(), None)


def _files_of_two_listings(
    first: tuple[Timeline, TableDirectory], timeline: Timeline, directory: TableDirectory
) -> KnownFiles | None:
    """Return the files of two listings that have one timeline; None: they have not."""
    if first[0] != timeline:
        return None
    return KnownFiles({**first[1].outside(), **directory.outside()}, timeline)
